"""What a process and all below it take."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

import psutil

__all__ = ("Tree",)

_MIB = 1 << 20

T = TypeVar("T")


class Tree:
    """A process and all below it."""

    def __init__(self, root: psutil.Process | None = None) -> None:
        self._root = root or psutil.Process()
        self._processes = [self._root]

    def refresh(self) -> None:
        """Look for children; that is dear, because the whole process table is read."""
        try:
            self._processes = [self._root, *self._root.children(recursive=True)]
        except psutil.Error:  # the root itself is gone
            self._processes = []

    def pids(self) -> set[int]:
        """Of the processes known."""
        return {process.pid for process in self._processes}

    def cpu_s(self) -> float:
        """Processor time of the processes known and of those below them that have ended."""
        return sum(self._read(_cpu_s))

    def look(self) -> tuple[float, int, int | None] | None:
        """Resident memory in MiB, threads, and descriptors where the system counts them; ``None`` if all has ended."""
        seen = self._read(_look)
        if not seen:
            return None
        descriptors = [fds for _, _, fds in seen if fds is not None]
        return (
            sum(rss for rss, _, _ in seen) / _MIB,
            sum(threads for _, threads, _ in seen),
            sum(descriptors) if descriptors else None,
        )

    def _read(self, read: Callable[[psutil.Process], T]) -> list[T]:
        values = []
        for process in self._processes:
            with contextlib.suppress(psutil.Error), process.oneshot():
                values.append(read(process))
        return values


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    # Where the system tells, the time of children that have ended and were waited for.
    ended = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return float(times.user + times.system + ended)


def _look(process: psutil.Process) -> tuple[int, int, int | None]:
    fds = process.num_fds() if hasattr(process, "num_fds") else None  # not on Windows
    return int(process.memory_info().rss), process.num_threads(), fds
