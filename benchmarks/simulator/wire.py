"""A small HTTP/1.1 server side on asyncio: cheap with large bodies, and able to misbehave on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

_MAX_HEAD = 64 * 1024
_MAX_BODY = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """One complete request; header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | bytearray


Handler = Callable[[Request, "Connection"], Awaitable[None]]


class BadRequestError(ValueError):
    """The peer does not speak the HTTP that we read."""


class Connection(asyncio.BufferedProtocol):
    """One client connection: reads a request, runs the handler, reads the next.

    When the client goes away the handler's task is cancelled.
    """

    def __init__(self, handler: Handler, connections: set[Connection]) -> None:
        self._handler = handler
        self._connections = connections
        self._buffer = bytearray(_MAX_HEAD)
        self._filled = 0
        self._body: bytearray | None = None
        self._body_filled = 0
        self._head: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._keep_alive = True
        self._broken_here = False
        self.transport: asyncio.Transport

    # reading

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a stream transport is needed")
        self.transport = transport
        self._writable.set()
        self._connections.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._body is not None and self._body_filled < len(self._body):
            return memoryview(self._body)[self._body_filled :]
        if self._filled == len(self._buffer):  # pipelined requests behind a slow one
            self._buffer.extend(bytes(_MAX_HEAD))
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._body is not None and self._body_filled < len(self._body):
            self._body_filled += nbytes
        else:
            self._filled += nbytes
        try:
            self._advance()
        except BadRequestError as error:
            self._keep_alive = False
            self.respond(HTTPStatus.BAD_REQUEST, str(error).encode(), "text/plain")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._writable.set()
        if self._task is not None and not self._broken_here:
            self._task.cancel()

    def _advance(self) -> None:
        if self._task is not None:
            return
        if self._body is None and not self._read_head():
            return
        if self._body is None or self._head is None or self._body_filled < len(self._body):
            return
        head, body = self._head, self._body
        self._head = self._body = None
        request = Request(head.method, head.path, head.headers, body)
        self._task = asyncio.get_running_loop().create_task(self._serve(request))

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n", 0, self._filled)
        if end < 0:
            if self._filled >= _MAX_HEAD:
                raise BadRequestError("the header is too long")
            return False
        self._head = head = _parse_head(bytes(self._buffer[:end]))
        length = int(head.headers.get("content-length", "0"))
        if "transfer-encoding" in head.headers or not 0 <= length <= _MAX_BODY:
            raise BadRequestError("a body needs a Content-Length within the limit")
        if head.headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._keep_alive = head.headers.get("connection", "").lower() != "close"
        start = end + 4
        taken = min(length, self._filled - start)
        self._body = bytearray(length)
        self._body[:taken] = self._buffer[start : start + taken]
        self._body_filled = taken
        rest = self._buffer[start + taken : self._filled]
        self._buffer[: len(rest)] = rest
        self._filled = len(rest)
        return True

    async def _serve(self, request: Request) -> None:
        try:
            await self._handler(request, self)
        except Exception:  # asyncio reports it; the client shall not wait for ever
            self._keep_alive = False
            raise
        finally:
            self._task = None
            if not self._keep_alive:
                self.transport.close()
        if not self.transport.is_closing():
            self._advance()

    async def join(self) -> None:
        """Close, and wait for the handler."""
        task = self._task
        self.transport.abort()
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    # writing

    def head(self, status: HTTPStatus, headers: Mapping[str, str]) -> None:
        """Send the status line and headers."""
        lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
        if not self._keep_alive:
            lines.append("connection: close")
        self.write("\r\n".join(lines).encode() + b"\r\n\r\n")

    def respond(
        self, status: HTTPStatus, body: bytes, content_type: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a complete answer."""
        self.head(status, {"content-type": content_type, "content-length": str(len(body)), **(headers or {})})
        self.write(body)

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def chunk(self, data: bytes) -> None:
        """Send one chunk of a chunked body; an empty one ends it."""
        self.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def drain(self) -> None:
        """Wait until the client has taken enough."""
        await self._writable.wait()

    def finish_early(self) -> None:
        """Close after what was written, though more was announced."""
        self._keep_alive, self._broken_here = False, True
        self.transport.close()

    def reset(self) -> None:
        """Drop the connection at once."""
        self._keep_alive, self._broken_here = False, True
        self.transport.abort()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


def _parse_head(data: bytes) -> Request:
    try:
        first, *rest = data.decode("latin-1").split("\r\n")
        method, target, version = first.split(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        int(headers.get("content-length", "0"))
    except ValueError as error:
        raise BadRequestError("this is no HTTP request") from error
    if version != "HTTP/1.1":
        raise BadRequestError("HTTP/1.1 only")
    return Request(method, target.partition("?")[0], headers, b"")
