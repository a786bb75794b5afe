"""The runs of a report, one group for each mode and concurrency, and what is read off them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from mineru_cli.bench.report import DocumentSample, Mode, Report, Run
from mineru_cli.bench.statistics import mean, percentile, spread

__all__ = ("METRICS", "Condition", "Key", "Metric", "conditions")

Key: TypeAlias = tuple[Mode, int]
"""Mode and concurrency."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number per run. ``lower_is_better`` tells improvement from regression."""

    name: str
    unit: str
    lower_is_better: bool
    read: Callable[[Run], float | None]


METRICS = (
    Metric("throughput", "pages/s", False, lambda run: run.pages_per_s),
    Metric("documents", "documents/s", False, lambda run: run.documents_per_s),
    Metric("cpu", "ms/page", True, lambda run: run.resources.cpu_ms_per_page),
    Metric("peak rss", "MiB", True, lambda run: run.resources.peak_rss_mib),
    Metric("peak vram", "MiB", True, lambda run: run.gpu.peak_vram_mib),
    Metric("loop lag p99", "ms", True, lambda run: run.loop_lag.p99_ms if run.loop_lag else None),
)


@dataclass(frozen=True, slots=True)
class Condition:
    """All repeats of one mode at one concurrency."""

    mode: Mode
    concurrency: int
    runs: tuple[Run, ...]
    inputs: tuple[str, ...]
    closed: bool

    def values(self, metric: Metric) -> list[float]:
        """The number of each repeat; empty unless every repeat has it."""
        found = [value for run in self.runs if (value := metric.read(run)) is not None]
        return found if len(found) == len(self.runs) else []

    def mean(self, name: str) -> float | None:
        """Mean of a metric over the repeats."""
        return mean(self.values(_METRIC[name]))

    @property
    def throughput_spread(self) -> float | None:
        """Spread of pages/s over the repeats."""
        return spread(self.values(_METRIC["throughput"]))

    @property
    def latencies(self) -> list[list[float]]:
        """For each repeat the seconds of its successful documents.

        With arrivals of their own (poisson) the time in the queue belongs to a document's latency; in a closed load the
        next document is only due when a place is free, and what it waited says nothing about the engine.
        """
        return [[self._latency(sample) for sample in run.samples if sample.error is None] for run in self.runs]

    def latency(self, percent: float) -> float | None:
        """A percentile over the documents of all repeats, in seconds."""
        return percentile([value for repeat in self.latencies for value in repeat], percent)

    @property
    def document_seconds(self) -> list[dict[str, float]]:
        """For each repeat: name of a document → mean seconds of its successful parses."""
        return [self._by_document(run) for run in self.runs]

    @property
    def errors(self) -> int:
        """Documents that failed, over all repeats."""
        return sum(sample.error is not None for run in self.runs for sample in run.samples)

    def _by_document(self, run: Run) -> dict[str, float]:
        seconds: defaultdict[str, list[float]] = defaultdict(list)
        for sample in run.samples:
            if sample.error is None:
                seconds[self.inputs[sample.input]].append(sample.parse_s)
        return {name: sum(values) / len(values) for name, values in seconds.items()}

    def _latency(self, sample: DocumentSample) -> float:
        return sample.parse_s if self.closed else sample.queued_s + sample.parse_s


_METRIC = {metric.name: metric for metric in METRICS}


def conditions(report: Report) -> dict[Key, Condition]:
    """The groups of a report, sorted by mode and concurrency, their runs by repeat."""
    groups: defaultdict[Key, list[Run]] = defaultdict(list)
    for run in sorted(report.runs, key=lambda run: run.repeat):
        groups[run.mode, run.concurrency].append(run)
    closed = report.workload.arrival == "closed"
    inputs = tuple(item.name for item in report.inputs)
    return {key: Condition(*key, tuple(runs), inputs, closed) for key, runs in sorted(groups.items())}
