"""How many model requests are in flight, and whose turn it is."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

__all__ = ("GateStatistics", "RequestGate")


@dataclass(frozen=True, slots=True)
class GateStatistics:
    """State of a gate at one moment.

    :ivar documents: documents with a request waiting.
    """

    limit: int
    in_flight: int
    waiting: int
    documents: int


class RequestGate:
    """Lets ``limit`` requests through at a time and serves the waiting documents in turn.

    A document of one page that arrives behind one of five hundred gets the next free place but one, not the
    place after all that were there before. Within a document requests go in order of arrival. Lives on one loop.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_flight = 0
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def statistics(self) -> GateStatistics:
        """Counters for tests, the server and the benchmark."""
        waiting = sum(len(queue) for queue in self._queues.values())
        return GateStatistics(self._limit, self._in_flight, waiting, len(self._queues))

    @asynccontextmanager
    async def place(self, document: str) -> AsyncIterator[None]:
        """One place for one request of ``document``; given back at the end, also after a cancel."""
        await self._acquire(document)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, document: str) -> None:
        if self._in_flight < self._limit and not self._queues:
            self._in_flight += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(document, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()  # the place was given in the same moment: pass it on
            else:
                self._forget(document, turn)
            raise

    def _release(self) -> None:
        self._in_flight -= 1
        while self._queues and self._in_flight < self._limit:
            document, queue = self._queues.popitem(last=False)
            turn = queue.popleft()
            if queue:
                self._queues[document] = queue  # at the end: the others come first
            if not turn.done():
                self._in_flight += 1
                turn.set_result(None)

    def _forget(self, document: str, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(document)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[document]
