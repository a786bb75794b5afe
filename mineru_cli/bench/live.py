"""What the user sees while it runs: a few moving lines on a terminal, else a line for each finished run."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mineru_cli.bench.report import Mode, Run
from mineru_cli.bench.sampling import quantile

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from mineru_cli.bench.modes import Round
    from mineru_cli.bench.report import DocumentSample
    from mineru_cli.bench.sampling import Sample

__all__ = ("Board", "Step")

_BAR = 24


@dataclass(frozen=True, slots=True)
class Step:
    """One of the runs that are planned.

    :ivar mode: ``None`` for the warm-up.
    """

    mode: Mode | None
    concurrency: int
    repeat: int

    def __str__(self) -> str:
        at_once = f"{self.concurrency} at a time"
        return f"warm-up, {at_once}" if self.mode is None else f"{self.mode}, {at_once}, repeat {self.repeat + 1}"


class Board:
    """Shows on stderr how far a benchmark is; a context manager.

    :param label: put before each line.
    """

    def __init__(self, *, quiet: bool = False, label: str = "") -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True, quiet=quiet)
        moving = self._console.is_terminal and not quiet
        self._live = Live(console=self._console, auto_refresh=False, transient=True) if moving else None
        self._label = label
        self._left: list[Step] = []
        self._planned = 0
        self._seconds: dict[int, list[float]] = {}
        self._step: Step | None = None
        self._work: Round | None = None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(Text(f"{self._label}{text}"))

    def plan(self, steps: list[Step]) -> None:
        """Runs to come, the warm-up left aside."""
        self._left = list(steps)
        self._planned = len(steps)

    def begin(self, step: Step, work: Round) -> None:
        """A run starts."""
        self._step, self._work = step, work

    def warmed_up(self, work: Round, run_s: float) -> None:
        """The warm-up is over.

        :param run_s: what a run will take, as far as is known now.
        """
        assert self._step is not None
        self._seconds[0] = [run_s]
        pages, rate, p95 = _rates(work.samples, work.elapsed_s)
        left = f", about {_clock(self.left_s())} for {self._planned} runs" if self._planned else ""
        self.say(f"{self._step}: {pages} pages, {rate:.2f} pages/s, P95 {p95:.2f} s{left}")

    def end(self, step: Step, run: Run) -> None:
        """A run is over."""
        self._left.remove(step)
        self._seconds.setdefault(step.concurrency, []).append(run.elapsed_s)
        _, rate, p95 = _rates(run.samples, run.elapsed_s)
        left = f", about {_clock(self.left_s())} left" if self._left else ""
        number = self._planned - len(self._left)
        self.say(
            f"[{number}/{self._planned}] {step}: {rate:.2f} pages/s, P95 {p95:.2f} s, "
            f"{run.resources.peak_rss_mib:.0f} MiB{left}"
        )

    def left_s(self) -> float:
        """Seconds until the end of all runs, judged by those of the same concurrency, or else by all there were."""
        known = [value for values in self._seconds.values() for value in values]
        return sum(statistics.mean(self._seconds.get(step.concurrency) or known) for step in self._left if known)

    def show(self, sample: Sample) -> None:
        """Draw the moving lines; called now and then by the sampler, whose time it counts as."""
        if self._live is not None and self._work is not None:
            self._live.update(self._lines(self._work, sample), refresh=True)

    def _lines(self, work: Round, sample: Sample) -> RenderableType:
        done = self._planned - len(self._left)
        elapsed = work.feed.elapsed()
        left = max(0.0, self.left_s() - elapsed) if self._seconds else None
        bars = Table.grid(padding=(0, 1))
        note = f"run {done + 1} of {self._planned}" if self._step and self._step.mode else "warm-up"
        when = "" if left is None else f", about {_clock(left)} left"
        bars.add_row(ProgressBar(total=max(1, self._planned), completed=done, width=_BAR), Text(f"{note}{when}"))
        pages, rate, p95 = _rates(list(work.samples), elapsed)
        parts = [f"{self._step}", f"{len(work.samples)} documents, {pages} pages", f"{rate:.2f} pages/s"]
        parts += [f"P95 {p95:.2f} s"] if work.samples else []
        parts += [f"{sample.rss_mib:.0f} MiB"]
        parts += [f"{sample.in_flight} requests in flight"] if sample.in_flight is not None else []
        return Group(bars, Text(f"{self._label}{'; '.join(parts)}", overflow="ellipsis", no_wrap=True))


def _rates(samples: list[DocumentSample], elapsed_s: float) -> tuple[int, float, float]:
    """Pages, pages/s, and the P95 of the parse times in seconds; failed documents are left out."""
    good = [sample for sample in samples if sample.error is None]
    pages = sum(sample.pages for sample in good)
    times = sorted(sample.parse_s for sample in good)
    return pages, pages / elapsed_s if elapsed_s else 0.0, quantile(times, 0.95) if times else 0.0


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
