"""Kept-alive connections to one server, one HTTP client each."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from mineru_engine.errors import EngineDeadError
from mineru_engine.runtime.cancel import run_to_end

if TYPE_CHECKING:
    import httpcore

__all__ = ("Connection", "Connections")

_KEPT_S = 4.0  # uvicorn, and so vLLM and SGLang, closes idle connections after 5 s


@dataclass(slots=True, eq=False)
class Connection:
    """One connection.

    :ivar used_at: monotonic seconds at the end of its last request; ``None`` before the first.
    """

    client: httpx.AsyncClient
    used_at: float | None = None
    _socket: httpcore.AsyncNetworkStream | None = None

    async def watch(self, event: str, details: Mapping[str, Any]) -> None:
        """Told by httpcore what it does; remembers the socket."""
        if event == "connection.connect_tcp.complete":
            self._socket = details["return_value"]

    async def aclose(self) -> None:
        """Close it, whatever state it is in."""
        await self.client.aclose()
        if self._socket is not None:  # httpcore 1.0.9 forgets it when a TLS handshake is cancelled
            await self._socket.aclose()


class Connections:
    """Lends connections; who holds one has it alone.

    The pool inside a shared ``AsyncClient`` loses a place for good when a request is cancelled in the wrong moment
    (httpcore 1.0.9), and goes through all its connections twice for each request. So each connection has a client of
    its own, which is thrown away after anything but success. How many there are is up to the gate.

    :param open_client: makes a client that keeps at most one connection.
    """

    def __init__(self, open_client: Callable[[], httpx.AsyncClient]) -> None:
        self._open_client = open_client
        self._idle: deque[Connection] = deque()  # the one used last at the right
        self._lent: dict[Connection, asyncio.Timeout] = {}
        self._none_lent = asyncio.Event()
        self._closed = asyncio.Event()

    @asynccontextmanager
    async def lend(self, seconds: float, *, new: bool = False) -> AsyncIterator[Connection]:
        """A connection for one request. It is closed, not kept, if the block fails or is cancelled.

        :param new: not one that was used before.
        :raises TimeoutError: if the block takes longer than ``seconds``.
        :raises EngineDeadError: if all was closed, before or meanwhile.
        """
        self._check()
        await self._close_expired()
        try:
            async with asyncio.timeout(seconds) as limit, self._lend(limit, new) as connection:
                yield connection
        except TimeoutError:
            self._check()
            raise

    @asynccontextmanager
    async def _lend(self, limit: asyncio.Timeout, new: bool) -> AsyncIterator[Connection]:
        connection = self._idle.pop() if self._idle and not new else Connection(self._open_client())
        self._lent[connection] = limit
        self._none_lent.clear()
        try:
            yield connection
        except BaseException:
            await run_to_end(connection.aclose())
            raise
        else:
            connection.used_at = time.monotonic()
            self._idle.append(connection)
        finally:
            del self._lent[connection]
            if not self._lent:
                self._none_lent.set()

    def _check(self) -> None:
        if self._closed.is_set():
            raise EngineDeadError("the connections to the server were closed")

    async def _close_expired(self) -> None:
        oldest = time.monotonic() - _KEPT_S
        while self._idle and (self._idle[0].used_at or 0.0) < oldest:
            await run_to_end(self._idle.popleft().aclose())

    async def pause(self, seconds: float) -> None:
        """Wait, but not longer than until all is closed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), seconds)

    async def aclose(self) -> None:
        """Close all connections, also those with a request on them. Safe to call twice."""
        self._closed.set()
        for limit in self._lent.values():
            if not limit.expired():
                limit.reschedule(0.0)
        if self._lent:
            await self._none_lent.wait()
        while self._idle:
            await self._idle.pop().aclose()
