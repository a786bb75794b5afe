"""An HTTP server for tests that answers byte for byte what a test wants, in the test's own loop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import orjson


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it arrived.

    :ivar connection: which connection of the server it came over, from 0.
    :ivar at: the loop's time.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int
    at: float

    def json(self) -> Any:
        return orjson.loads(self.body)


Handler = Callable[[Seen], Awaitable[bytes | None]]


def reply(status: int, body: bytes | object = b"", **headers: str) -> bytes:
    """A complete answer; a body that is not bytes becomes JSON."""
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


class RawServer:
    """Asks ``handler`` for the bytes to send; ``None`` closes the connection.

    :ivar seen: all requests so far.
    :ivar connections: how many were made so far; ``open`` of them are still.
    """

    def __init__(self, handler: Handler, tls: ssl.SSLContext | None = None) -> None:
        self._handler = handler
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self.seen: list[Seen] = []
        self.connections = 0
        self.open = 0
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def origin(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.origin}"

    async def until(self, holds: Callable[[Self], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(20), self._changed:
            await self._changed.wait_for(lambda: holds(self))

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        number, self.connections, self.open = self.connections, self.connections + 1, self.open + 1
        try:
            await self._tell()
            while (seen := await _read(reader, number)) is not None:
                self.seen.append(seen)
                await self._tell()
                answer = await self._answer(seen, reader)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self.open -= 1
            self._tasks.discard(task)
            await self._tell()

    async def _answer(self, seen: Seen, reader: asyncio.StreamReader) -> bytes | None:
        """The handler's answer, or ``None`` as soon as the client has gone away."""
        work = asyncio.ensure_future(self._handler(seen))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        finally:
            for part in (work, gone):
                part.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)


async def _read(reader: asyncio.StreamReader, connection: int) -> Seen | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode().rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, target, _ = first.split(" ")
    return Seen(method, target, headers, body, connection, asyncio.get_running_loop().time())
