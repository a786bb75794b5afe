"""Two reports in, typed rows, gates and a verdict out. Nothing is printed here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from mineru_cli.bench.comparable import Named, changes, problems
from mineru_cli.bench.conditions import METRICS, Condition, Key, conditions
from mineru_cli.bench.gates import MIN_TAIL, GateInput, Gates, Targets, Verdict, all_of, gates
from mineru_cli.bench.report import Cancellation, EngineIdentity, Mode
from mineru_cli.bench.result_changes import ResultChange, new_failures, result_changes
from mineru_cli.bench.statistics import MIN_REPEATS, NOISY, PERCENTILES, Bootstrap, Ratio, mean, percentile

__all__ = (
    "CancellationRow",
    "Comparison",
    "ConditionRow",
    "Difference",
    "DocumentRow",
    "Effect",
    "compare_reports",
    "left_behind",
)

SCHEMA = "mineru.bench-comparison"
SCHEMA_VERSION = 1

_SMALL = 0.05
"""A difference counts if it is real, so that its interval leaves out 1, and larger than this."""
_BAND = 0.10
""""No difference" is said only if the interval holds nothing beyond this."""


class Difference(StrEnum):
    """What an interval says about an effect, without regard to any target."""

    BETTER = "better"
    WORSE = "worse"
    NONE = "no difference"
    UNSETTLED = "unsettled"
    MIXED = "mixed"  # better here, worse there: only of a whole comparison


@dataclass(frozen=True, slots=True)
class Effect:
    """One figure, before and after; what could not be measured is none."""

    name: str
    unit: str
    lower_is_better: bool
    base: float | None
    new: float | None
    ratio: Ratio | None
    difference: Difference | None


@dataclass(frozen=True, slots=True)
class ConditionRow:
    """All effects of one mode at one concurrency."""

    mode: Mode
    concurrency: int
    repeats: tuple[int, int]
    spreads: tuple[float | None, float | None]
    effects: tuple[Effect, ...]

    def effect(self, name: str) -> Effect:
        """By name, as ``throughput`` or ``p95``."""
        return next(effect for effect in self.effects if effect.name == name)


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """Seconds of one document at the lowest common concurrency of a mode."""

    mode: Mode
    concurrency: int
    document: str
    effect: Effect


@dataclass(frozen=True, slots=True)
class CancellationRow:
    """Documents cancelled after a time: until the call came back, and what stayed behind, summed over the repeats."""

    concurrency: int
    after_s: float
    effect: Effect
    left_behind: tuple[Mapping[str, int], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that is to be said about two reports.

    :ivar problems: why they cannot be compared; then there is no verdict.
    :ivar changed: what is being compared, as the revision.
    :ivar not_acceptance: why a pass is no acceptance on a GPU.
    :ivar failures: documents that fail now and did not before.
    """

    base: str
    new: str
    hashes: tuple[str, str]
    problems: Sequence[str]
    changed: Sequence[str]
    conditions: Sequence[ConditionRow]
    documents: Sequence[DocumentRow]
    cancellation: Sequence[CancellationRow]
    targets: Targets
    gates: Sequence[Gates]
    failures: Sequence[str]
    result_changes: Sequence[ResultChange]
    result_changes_allowed: bool
    difference: Difference | None
    verdict: Verdict | None
    not_acceptance: str | None
    caveats: Sequence[str]
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION


def compare_reports(
    base: Named, new: Named, targets: Targets | None = None, *, allow_result_changes: bool = False
) -> Comparison:
    """Compare two reports; of two that may not be compared the figures are there, the verdict is not."""
    targets = targets or Targets()
    pair = _Pair(base, new)
    found = problems(base, new)
    rows = [pair.row(key) for key in pair.common]
    figures = [pair.gate_input(mode, rows) for mode in pair.modes]
    decided = [] if found else [gates(figure, targets) for figure in figures]
    differing = result_changes(base.report, new.report)
    failures = new_failures(base.report, new.report)
    wrong = bool(failures or (differing and not allow_result_changes))
    return Comparison(
        base=base.name,
        new=new.name,
        hashes=pair.hashes,
        problems=found,
        changed=changes(base, new),
        conditions=rows,
        documents=[row for mode in pair.modes for row in pair.documents(mode)],
        cancellation=list(pair.cancellation()),
        targets=targets,
        gates=decided,
        failures=failures,
        result_changes=differing,
        result_changes_allowed=allow_result_changes,
        difference=None if found else _overall(figures),
        verdict=_verdict(decided, wrong=wrong),
        not_acceptance=_not_acceptance(base.report.engine) or _not_acceptance(new.report.engine),
        caveats=list(_caveats(base, new, rows)),
    )


class _Pair:
    """Two reports and what both have."""

    def __init__(self, base: Named, new: Named) -> None:
        self._reports = base.report, new.report
        self.hashes = base.report.sealed().report_sha256, new.report.sealed().report_sha256
        self._base, self._new = conditions(base.report), conditions(new.report)
        self.common = [key for key in self._base if key in self._new]
        self.modes = list(dict.fromkeys(mode for mode, _ in self.common))

    def row(self, key: Key) -> ConditionRow:
        """All effects at one mode and concurrency."""
        base, new = self._base[key], self._new[key]
        bootstrap = self._bootstrap(key)
        effects = []
        for metric in METRICS:
            old, fresh = base.values(metric), new.values(metric)
            figures = mean(old), mean(fresh), bootstrap.mean(old, fresh)
            effects.append(_effect(metric.name, metric.unit, *figures, lower=metric.lower_is_better))
        for percent in PERCENTILES:
            ratio = bootstrap.percentile(base.latencies, new.latencies, percent)
            effects.append(_effect(f"p{percent}", "s", base.latency(percent), new.latency(percent), ratio))
        repeats = len(base.runs), len(new.runs)
        return ConditionRow(*key, repeats, (base.throughput_spread, new.throughput_spread), tuple(effects))

    def gate_input(self, mode: Mode, rows: Sequence[ConditionRow]) -> GateInput:
        """What the gates of a mode look at."""
        loads = [row for row in rows if row.mode is mode and row.concurrency > 1]
        row = max(loads, key=lambda row: row.concurrency, default=None)
        single = self._single(mode)
        if row is None:
            return GateInput(mode, None, None, None, 0, single)
        sides = self._base[mode, row.concurrency], self._new[mode, row.concurrency]
        documents = min(sum(map(len, side.latencies)) for side in sides)
        return GateInput(
            mode, row.concurrency, row.effect("throughput").ratio, row.effect("p95").ratio, documents, single
        )

    def documents(self, mode: Mode) -> Iterator[DocumentRow]:
        """Each document by itself, where it was disturbed least."""
        concurrency = min(at for found, at in self.common if found is mode)
        bootstrap = self._bootstrap((mode, concurrency))
        for name in self._names((mode, concurrency)):
            base, new = (self._seconds(side, (mode, concurrency), [name]) for side in (self._base, self._new))
            effect = _effect("time", "s", mean(base), mean(new), bootstrap.mean(base, new))
            yield DocumentRow(mode, concurrency, name, effect)

    def cancellation(self) -> Iterator[CancellationRow]:
        """Cancels after the same time at the same concurrency."""
        base, new = (_cancels(report.cancellation) for report in self._reports)
        for key in sorted(base.keys() & new.keys()):
            before, after = ([cancel.return_s for cancel in side[key]] for side in (base, new))
            ratio = Bootstrap(self.hashes, len(before), len(after)).percentile(before, after, 95)
            p95 = (percentile(list(chain(*repeats)), 95) for repeats in (before, after))
            effect = _effect("return p95", "s", next(p95), next(p95), ratio)
            yield CancellationRow(*key, effect, (left_behind(base[key]), left_behind(new[key])))

    def _single(self, mode: Mode) -> Ratio | None:
        """Time of the workload's single document, or of all documents with equal weight, at concurrency 1."""
        key = mode, 1
        if key not in self.common:
            return None
        wanted = self._reports[0].workload.single_document
        names = [name for name in self._names(key) if wanted in (None, name)]
        base, new = (self._seconds(side, key, names) for side in (self._base, self._new))
        return self._bootstrap(key).mean(base, new) if names else None

    def _names(self, key: Key) -> list[str]:
        """Documents that succeeded in every repeat of both."""
        repeats = [repeat for side in (self._base, self._new) for repeat in side[key].document_seconds]
        return [name for name in repeats[0] if all(name in repeat for repeat in repeats)]

    @staticmethod
    def _seconds(side: Mapping[Key, Condition], key: Key, names: Sequence[str]) -> list[float]:
        """Mean seconds over these documents, one figure per repeat."""
        repeats = side[key].document_seconds
        return [sum(repeat[name] for name in names) / len(names) for repeat in repeats] if names else []

    def _bootstrap(self, key: Key) -> Bootstrap:
        base, new = self._base[key].runs, self._new[key].runs
        seeds = {report.workload.seed for report in self._reports}
        pairs = len(seeds) == 1 and [run.repeat for run in base] == [run.repeat for run in new]
        return Bootstrap(self.hashes, len(base), len(new), pairs=pairs)


def _cancels(cancellations: Sequence[Cancellation]) -> dict[tuple[int, float], list[Cancellation]]:
    groups: defaultdict[tuple[int, float], list[Cancellation]] = defaultdict(list)
    for cancel in cancellations:
        groups[cancel.concurrency, cancel.after_s].append(cancel)
    return groups


def left_behind(cancellations: Sequence[Cancellation]) -> dict[str, int]:
    """What was still there, summed over the repeats; what could not be seen is not in it."""
    found: defaultdict[str, int] = defaultdict(int)
    for cancel in cancellations:
        for name, value in cancel.leftovers:
            if isinstance(value, int):
                found[name] += value
    return dict(found)


def _effect(
    name: str, unit: str, base: float | None, new: float | None, ratio: Ratio | None, *, lower: bool = True
) -> Effect:
    return Effect(name, unit, lower, base, new, ratio, _difference(ratio, lower_is_better=lower))


def _difference(ratio: Ratio | None, *, lower_is_better: bool) -> Difference | None:
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    if ratio.repeats < MIN_REPEATS:
        return Difference.UNSETTLED
    if abs(ratio.value - 1) > _SMALL and not ratio.low <= 1 <= ratio.high:
        return Difference.BETTER if (ratio.value < 1) == lower_is_better else Difference.WORSE
    return Difference.NONE if ratio.low >= 1 - _BAND and ratio.high <= 1 + _BAND else Difference.UNSETTLED


def _overall(figures: Sequence[GateInput]) -> Difference | None:
    """One word for throughput and P95 under load and the single-document time of all modes."""
    found = {difference for figure in figures for difference in _judged(figure) if difference}
    if found >= {Difference.BETTER, Difference.WORSE}:
        return Difference.MIXED
    order = (Difference.WORSE, Difference.BETTER, Difference.UNSETTLED, Difference.NONE)
    return next((difference for difference in order if difference in found), None)


def _judged(figure: GateInput) -> Iterator[Difference | None]:
    yield _difference(figure.throughput, lower_is_better=False)
    yield _difference(figure.single, lower_is_better=True)
    tail = _difference(figure.p95, lower_is_better=True) if figure.documents >= MIN_TAIL else None
    if tail is not Difference.UNSETTLED:  # it settles last, and says nothing until then
        yield tail


def _verdict(decided: Sequence[Gates], *, wrong: bool) -> Verdict | None:
    if not decided:
        return None
    return Verdict.FAIL if wrong else all_of([found.verdict for found in decided])


def _not_acceptance(engine: EngineIdentity) -> str | None:
    if engine.simulated:
        return "the engine is simulated"
    if engine.device in ("cpu", "unknown"):
        return "the engine ran on the CPU" if engine.device == "cpu" else "it is not known what the engine ran on"
    return None


def _caveats(base: Named, new: Named, rows: Sequence[ConditionRow]) -> Iterator[str]:
    """What the reports say of themselves, and what only shows when both are there."""
    told = {caveat.text: named.name for named in (new, base) for caveat in named.report.caveats}
    both = {caveat.text for caveat in base.report.caveats} & {caveat.text for caveat in new.report.caveats}
    yield from (text if text in both else f"{name}: {text}" for text, name in told.items())
    for side, named in enumerate((base, new)):
        worst = max((spread for row in rows if (spread := row.spreads[side]) is not None), default=0.0)
        if worst > NOISY and not any(caveat.code == "machine_noisy" for caveat in named.report.caveats):
            yield f"{named.name}: pages/s differed by up to {worst:.0%} between repeats"
    if "remote" in (base.report.engine.device, new.report.engine.device):
        yield "the engine is remote: what it ran on is not seen from here"
