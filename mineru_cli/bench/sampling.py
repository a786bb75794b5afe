"""What a run costs, looked at ten times a second: memory, threads, descriptors, processor time, requests in flight.

The looking is itself measured. It takes no more than a hundredth of one core: where a look is dear (many processes, a
slow driver), there are fewer of them; and its processor time is taken off what is reported.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from mineru_cli.bench.report import GpuUse, LoopLag, Resources, Series

if TYPE_CHECKING:
    from mineru_engine.gpu import GpuProbe
    from mineru_engine.processes import Tree

__all__ = ("SAMPLE_EVERY_S", "LagProbe", "Sample", "Sampler", "Samples", "Watched", "quantile")

SAMPLE_EVERY_S = 0.1
_CHILDREN_EVERY_S = 1.0
_TOLD_EVERY_S = 1.0
_SAMPLES_SHARE, _CHILDREN_SHARE, _TOLD_SHARE = 0.005, 0.002, 0.003  # of one core; 0.01 together
_PROBE_EVERY_S = 0.01
_MIB = 1 << 20

T = TypeVar("T")


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of at least one value in ascending order, by interpolation."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


class LagProbe:
    """A task that sleeps again and again, and notes how late its loop woke it.

    :param sleep_s: length of a sleep.
    :ivar late_ms: one number for each sleep.
    """

    def __init__(self, sleep_s: float = _PROBE_EVERY_S) -> None:
        self.late_ms: list[float] = []
        self._sleep_s = sleep_s
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _watch(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(self._sleep_s)
            self.late_ms.append((time.perf_counter() - began - self._sleep_s) * 1000)

    def summary(self) -> LoopLag | None:
        """Quantiles; ``None`` if the loop never got round to it."""
        if not self.late_ms:
            return None
        ordered = sorted(self.late_ms)
        return LoopLag(p50_ms=quantile(ordered, 0.5), p99_ms=quantile(ordered, 0.99), max_ms=ordered[-1])


class _Pace:
    """Something that is done every so often, and less often where it would take more than its share of one core."""

    def __init__(self, every_s: float, share: float) -> None:
        self._every_s = every_s
        self._share = share
        self._next = time.perf_counter() + every_s

    def left_s(self) -> float:
        """Seconds until it is due."""
        return max(0.0, self._next - time.perf_counter())

    def do(self, timed: Callable[[Callable[[], None]], float], work: Callable[[], None]) -> None:
        """Do it if it is due.

        :param timed: does it and returns its processor time in seconds.
        """
        began = time.perf_counter()
        if began >= self._next:
            self._next = began + max(self._every_s, timed(work) / self._share)


@dataclass(frozen=True, slots=True)
class Sample:
    """One look, ``t_s`` seconds after the start; ``None`` is what cannot be seen."""

    t_s: float
    rss_mib: float
    threads: int
    fds: int | None
    in_flight: int | None
    vram_mib: float | None
    utilization_percent: float | None


@dataclass(frozen=True, slots=True)
class Samples:
    """What was seen of one run.

    :ivar looks: at least one.
    :ivar cpu_s: processor time of the tree, without that of the looking.
    :ivar own_s: processor time of the looking.
    :ivar vram_reason: why there is no figure of the GPU's memory.
    """

    looks: Sequence[Sample]
    cpu_s: float
    own_s: float
    vram_reason: str | None

    def resources(self, pages: int) -> Resources:
        """Peaks, and processor time for each of the pages."""
        return Resources(
            peak_rss_mib=round(max(look.rss_mib for look in self.looks), 1),
            peak_threads=max(look.threads for look in self.looks),
            peak_fds=max(_known(look.fds for look in self.looks), default=None),
            cpu_s=round(self.cpu_s, 3),
            cpu_ms_per_page=round(1000 * self.cpu_s / pages, 3) if pages else None,
        )

    def gpu(self) -> GpuUse:
        """Peak memory and mean utilization."""
        peak = max(_known(look.vram_mib for look in self.looks), default=None)
        busy = _known(look.utilization_percent for look in self.looks)
        return GpuUse(
            peak_vram_mib=None if peak is None else round(peak, 1),
            vram_reason=self.vram_reason if peak is None else None,
            mean_utilization_percent=round(sum(busy) / len(busy), 1) if busy else None,
        )

    def series(self) -> Series:
        """All looks."""
        return Series(
            t_s=[round(look.t_s, 3) for look in self.looks],
            rss_mib=[round(look.rss_mib, 1) for look in self.looks],
            in_flight=[look.in_flight for look in self.looks],
            vram_mib=[None if look.vram_mib is None else round(look.vram_mib, 1) for look in self.looks],
        )

    def mean_in_flight(self) -> float | None:
        """Over the time; a look stands for half of the time to its neighbours."""
        seen = [(look.t_s, look.in_flight) for look in self.looks if look.in_flight is not None]
        span = seen[-1][0] - seen[0][0] if seen else 0.0
        if not span:
            return None
        return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(seen)) / span

    def peak_in_flight(self) -> int | None:
        """The most that was seen."""
        return max(_known(look.in_flight for look in self.looks), default=None)


def _known(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]


@dataclass(frozen=True, slots=True)
class Watched:
    """What a sampler looks at.

    :ivar in_flight: requests to the engine; ``None`` for a tier without one.
    :ivar tell: gets a look about once a second, to show it.
    """

    tree: Tree
    gpu: GpuProbe
    in_flight: Callable[[], int | None] = lambda: None
    tell: Callable[[Sample], object] = lambda sample: None


class Sampler:
    """Looks at the start, at the end, and while the block runs on a thread of its own.

    :param every_s: seconds from look to look; 0 for none in between.
    """

    def __init__(self, watched: Watched, every_s: float = SAMPLE_EVERY_S) -> None:
        self._watched = watched
        self._every_s = every_s
        self._looks: list[Sample] = []
        self._own_s = self._cpu_s = 0.0
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="mineru-bench-sampler", daemon=True)

    def __enter__(self) -> Self:
        self._watched.tree.refresh()
        self._cpu_s = -self._watched.tree.cpu_s()
        self._started = time.perf_counter()
        self._timed(self._look)
        if self._every_s:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._every_s:
            self._thread.join()
        self._timed(self._watched.tree.refresh)
        self._timed(self._look)
        self._cpu_s += self._watched.tree.cpu_s() - self._own_s
        if self._error is not None and error is None:
            raise self._error

    def elapsed(self) -> float:
        """Seconds since the first look."""
        return time.perf_counter() - self._started

    def samples(self) -> Samples:
        """What was seen; after the block."""
        return Samples(self._looks, max(0.0, self._cpu_s), self._own_s, self._watched.gpu.reason)

    def _watch(self) -> None:
        looks = _Pace(self._every_s, _SAMPLES_SHARE)
        children = _Pace(_CHILDREN_EVERY_S, _CHILDREN_SHARE)
        told = _Pace(_TOLD_EVERY_S, _TOLD_SHARE)
        try:
            while not self._stop.wait(looks.left_s()):
                children.do(self._timed, self._watched.tree.refresh)
                looks.do(self._timed, self._look)
                told.do(self._timed, self._tell)
        except Exception as exc:  # noqa: BLE001 - raised where the samples are awaited
            self._error = exc

    def _timed(self, work: Callable[[], None]) -> float:
        """Do it; returns the processor time that it took, in seconds."""
        began = time.thread_time()
        work()
        cost_s = time.thread_time() - began
        self._own_s += cost_s
        return cost_s

    def _look(self) -> None:
        watched = self._watched
        found = watched.tree.look()
        if found is None:
            return
        vram, utilization = watched.gpu.look(watched.tree.pids())
        self._looks.append(Sample(self.elapsed(), *found, watched.in_flight(), vram, utilization))

    def _tell(self) -> None:
        self._watched.tell(self._looks[-1])
