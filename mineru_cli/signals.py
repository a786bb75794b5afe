"""SIGINT and SIGTERM during a run: the first cancels, later ones are told to wait."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ("Interrupts", "interrupts")

_PATIENCE = 3


class Interrupts:
    """Counts signals.

    Before :meth:`cancels` was called, a signal raises ``KeyboardInterrupt`` as usual.

    :ivar received: number of the first signal; 0 while there was none.
    """

    def __init__(self) -> None:
        self.received = 0
        self._count = 0
        self._cancel: Callable[[], object] | None = None

    @property
    def exit_code(self) -> int:
        """130 after SIGINT, 143 after SIGTERM, 0 without a signal."""
        return 128 + self.received if self.received else 0

    def cancels(self, cancel: Callable[[], object]) -> None:
        """From now on the first signal calls ``cancel`` (thread-safe, quick) instead of raising."""
        self._cancel = cancel

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        self.received = self.received or number
        self._count += 1
        if self._count >= _PATIENCE:  # results are moved into place in one step: even this leaves none half-written
            os._exit(self.exit_code)
        if self._cancel is None:
            raise KeyboardInterrupt
        if self._count == 1:
            self._tell("mineru: stopping, cleaning up ...")
            self._cancel()
        else:
            self._tell("mineru: still cleaning up; once more leaves at once")

    @staticmethod
    def _tell(text: str) -> None:
        os.write(2, f"{text}\n".encode())  # a handler may interrupt a print: stay clear of sys.stderr's lock


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Handle both signals inside the block; outside the main thread nothing is changed."""
    state = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield state
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, state.handle) for number in numbers]
    try:
        yield state
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
