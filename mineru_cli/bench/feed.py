"""Which document is next, and when: a batch, steady load, random times."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from mineru_engine.errors import OptionError

__all__ = ("Arrival", "Due", "Feed", "Load")


@dataclass(frozen=True, slots=True)
class Arrival:
    """When documents are due.

    :ivar rate: documents/s on average, at random times; ``None`` if a caller takes the next when it is free.
    """

    rate: float | None = None

    @classmethod
    def parse(cls, text: str) -> Arrival:
        """``closed`` or ``poisson:RATE``.

        :raises OptionError: if it is neither.
        """
        kind, _, number = text.partition(":")
        if text == "closed":
            return cls()
        try:
            rate = float(number)
        except ValueError:
            rate = 0.0
        if kind != "poisson" or not 0 < rate < float("inf"):
            raise OptionError(f"arrival {text!r}", hint="write closed, or poisson:RATE with documents/s")
        return cls(rate)

    def __str__(self) -> str:
        return "closed" if self.rate is None else f"poisson:{self.rate:g}"


@dataclass(frozen=True, slots=True)
class Load:
    """How much is asked for in one run.

    :ivar times: a batch is all documents so many times, all of them due at the start, or else at random times.
    :ivar duration_s: instead of a batch there is always another document until the time is over.
    """

    times: int = 1
    arrival: Arrival = Arrival()
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """A document whose turn it is, ``due_s`` seconds after the start."""

    document: int
    due_s: float


class Feed:
    """Hands documents to callers, in a random order that the seed alone decides; for any number of threads.

    :param documents: how many there are.
    """

    def __init__(self, documents: int, load: Load, seed: str) -> None:
        self._documents = documents
        self._load = load
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._dues = self._plan()
        self.started = time.perf_counter()

    def start(self) -> None:
        """The clock starts now."""
        self.started = time.perf_counter()

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    def take(self) -> Due | None:
        """The next document; ``None`` if there is none any more. It may be due later than now."""
        with self._lock:
            return None if self._closed.is_set() else next(self._dues, None)

    def wait(self, due: Due) -> None:
        """Block until a document is due, or the feed is closed."""
        self._closed.wait(due.due_s - self.elapsed())

    def close(self) -> None:
        """No more documents."""
        self._closed.set()

    def _plan(self) -> Iterator[Due]:
        rate, duration_s = self._load.arrival.rate, self._load.duration_s
        due_s = 0.0
        for document in self._order():
            if rate is not None:
                due_s += self._random.expovariate(rate)
            elif duration_s is not None:
                due_s = self.elapsed()
            if duration_s is not None and due_s >= duration_s:
                return
            yield Due(document, due_s)

    def _order(self) -> Iterator[int]:
        order = list(range(self._documents))
        for _ in range(self._load.times) if self._load.duration_s is None else count():
            self._random.shuffle(order)
            yield from order
