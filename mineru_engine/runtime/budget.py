"""How many bytes of page images the process may hold at a time, over all runtimes and documents."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from types import TracebackType
from typing import Self

__all__ = ("ByteBudget", "Reservation", "page_images")


class ByteBudget:
    """Counts reserved bytes; who finds no room waits in order of arrival. Usable from any thread and loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used = 0
        self._waiting: deque[tuple[int, int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    @property
    def used(self) -> int:
        """Bytes reserved now."""
        return self._used

    async def reserve(self, size: int, *, limit: int) -> Reservation:
        """Wait until ``size`` bytes fit under ``limit``. One reservation always fits, however large it is."""
        with self._lock:
            if not self._waiting and self._fits(size, limit):
                self._used += size
                return Reservation(self, size)
            loop = asyncio.get_running_loop()
            turn: asyncio.Future[None] = loop.create_future()
            entry = (size, limit, loop, turn)
            self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            self._withdraw(entry)
            raise
        return Reservation(self, size)

    def take(self, size: int) -> Reservation:
        """Reserve at once, over the limit if need be: for work that others wait for."""
        with self._lock:
            self._used += size
        return Reservation(self, size)

    def _fits(self, size: int, limit: int) -> bool:
        return self._used == 0 or self._used + size <= limit

    def _change(self, by: int) -> None:
        with self._lock:
            self._used += by
            self._wake()

    def _wake(self) -> None:
        while self._waiting and self._fits(*self._waiting[0][:2]):
            size, _, loop, turn = self._waiting.popleft()
            self._used += size
            try:
                loop.call_soon_threadsafe(self._grant, size, turn)
            except RuntimeError:  # the loop is closed: nobody waits there any more
                self._used -= size

    def _grant(self, size: int, turn: asyncio.Future[None]) -> None:
        if turn.done():  # cancelled in the same moment, and no longer in the queue to see it
            self._change(-size)
        else:
            turn.set_result(None)

    def _withdraw(self, entry: tuple[int, int, asyncio.AbstractEventLoop, asyncio.Future[None]]) -> None:
        size, _, _, turn = entry
        with self._lock:
            if entry in self._waiting:
                self._waiting.remove(entry)
                self._wake()
                return
        if not turn.cancelled():  # granted, and then cancelled before the waiter ran
            self._change(-size)


class Reservation:
    """Some bytes of a budget; a context manager that gives them back."""

    def __init__(self, budget: ByteBudget, size: int) -> None:
        self._budget = budget
        self._size = size

    def resize(self, size: int) -> None:
        """Make it as large as what it stands for turned out to be; never waits."""
        by, self._size = size - self._size, size
        self._budget._change(by)

    def release(self) -> None:
        """Give all of it back. Safe to call twice."""
        self.resize(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


page_images = ByteBudget()
