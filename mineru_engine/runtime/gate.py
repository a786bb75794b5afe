"""How many model requests are in flight, and whose turn it is."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

__all__ = ("GateStatistics", "RequestGate")


_Waiting = tuple[float, int, asyncio.Future[None]]


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
    place after all that were there before. Within a document long requests go first, so that the last ones to run
    beside each other are short and the engine is not left with one; equally long ones go in order of arrival. Lives
    on one loop.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_flight = 0
        self._queues: OrderedDict[str, list[_Waiting]] = OrderedDict()
        self._arrivals = itertools.count()

    def statistics(self) -> GateStatistics:
        """Counters for tests, the server and the benchmark."""
        waiting = sum(len(queue) for queue in self._queues.values())
        return GateStatistics(self._limit, self._in_flight, waiting, len(self._queues))

    @asynccontextmanager
    async def place(self, document: str, length: float = 0.0) -> AsyncIterator[None]:
        """One place for one request of ``document``; given back at the end, also after a cancel.

        :param length: how long the request will take, in any unit.
        """
        await self._acquire(document, length)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, document: str, length: float) -> None:
        if self._in_flight < self._limit and not self._queues:
            self._in_flight += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queues.setdefault(document, []), (-length, next(self._arrivals), turn))
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
            *_, turn = heapq.heappop(queue)
            if queue:
                self._queues[document] = queue  # at the end: the others come first
            if not turn.done():
                self._in_flight += 1
                turn.set_result(None)

    def _forget(self, document: str, turn: asyncio.Future[None]) -> None:
        left = [waiting for waiting in self._queues.get(document, ()) if waiting[2] is not turn]
        if left:
            heapq.heapify(left)
            self._queues[document] = left
        else:
            self._queues.pop(document, None)
