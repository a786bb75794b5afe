"""Counts requests as they come and go."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.simulator.chat import Chat

_LOG_ENTRIES = 200_000


class Visit:
    """One chat request on its way through the server."""

    def __init__(self, arrived_s: float) -> None:
        self.entry: dict[str, Any] = {"arrived_s": arrived_s, "outcome": "cancelled"}

    @property
    def outcome(self) -> str:
        """ok, failed (a fault), rejected (the client's mistake) or cancelled (the client went away)."""
        return str(self.entry["outcome"])

    @outcome.setter
    def outcome(self, value: str) -> None:
        self.entry["outcome"] = value


class Recorder:
    """Counters since it was made; a reset makes a new one that takes over what is in flight."""

    def __init__(self, in_flight: int = 0) -> None:
        self.in_flight = in_flight
        self.peak_in_flight = in_flight
        self.arrivals = 0
        self.with_authorization = 0
        self.connections = 0
        self.body_bytes = 0
        self.image_bytes = 0
        self.mpixels = 0.0
        self.outcomes: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.log: deque[dict[str, Any]] = deque(maxlen=_LOG_ENTRIES)
        self._first_s: float | None = None
        self._last_s = 0.0
        self._zero_s = time.perf_counter()
        self._cpu_zero_s = time.process_time()

    def arrive(self, body_bytes: int) -> Visit:
        """A chat request is here."""
        now = self._now()
        self._first_s = now if self._first_s is None else self._first_s
        self.arrivals += 1
        self.body_bytes += body_bytes
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        return Visit(now)

    def understood(self, visit: Visit, chat: Chat) -> None:
        """The request was read."""
        visit.entry.update(kind=chat.kind, tokens=chat.tokens)
        self.kinds[chat.kind] += 1
        self.mpixels += chat.mpixels
        self.image_bytes += chat.image_bytes

    def leave(self, visit: Visit) -> None:
        """The request is answered, or its client is gone."""
        self.in_flight -= 1
        self.outcomes[visit.outcome] += 1
        self._last_s = visit.entry["left_s"] = self._now()
        self.log.append(visit.entry)

    @property
    def elapsed_s(self) -> float:
        """From the first arrival to the last answer."""
        return max(0.0, self._last_s - self._first_s) if self._first_s is not None else 0.0

    @property
    def cpu_s(self) -> float:
        """CPU time of this process."""
        return time.process_time() - self._cpu_zero_s

    def _now(self) -> float:
        return time.perf_counter() - self._zero_s


@contextmanager
def visit(recorder: Recorder, body_bytes: int) -> Iterator[Visit]:
    """Count a request for as long as the block runs."""
    here = recorder.arrive(body_bytes)
    try:
        yield here
    finally:
        recorder.leave(here)
