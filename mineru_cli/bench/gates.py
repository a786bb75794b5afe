"""The gates of a release, each decided by the 95 % interval of a ratio: whether it lies past the target or across it.

A mode passes with more throughput **or** a lower P95 at equal throughput, **and** a single document that is not slower.
All modes must pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from mineru_cli.bench.report import Mode
from mineru_cli.bench.statistics import MIN_REPEATS, Ratio, repeats_to_settle

__all__ = ("MIN_TAIL", "Check", "GateInput", "Gates", "Targets", "Verdict", "all_of", "gates")

_EQUAL_PERCENT = 3
MIN_TAIL = 20
"""Documents below which the P95 is just the slowest one."""


class Verdict(StrEnum):
    """What a gate, or all of them, say."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Targets:
    """Percent: more throughput at least, less P95 at least, more time for a single document at most."""

    throughput: float = 25
    p95: float = 20
    single: float = 5


@dataclass(frozen=True, slots=True)
class GateInput:
    """The figures of one mode; a ratio is none where the reports do not have it.

    :ivar concurrency: of the multi-document load; none if both reports have no common one above 1.
    :ivar documents: samples behind the P95 of the side that has fewer.
    """

    mode: Mode
    concurrency: int | None
    throughput: Ratio | None
    p95: Ratio | None
    documents: int
    single: Ratio | None


@dataclass(frozen=True, slots=True)
class Check:
    """One target.

    :ivar repeats_needed: about how many would settle it, where that can be told.
    """

    name: str
    target: str
    ratio: Ratio | None
    verdict: Verdict
    reason: str | None = None
    repeats_needed: int | None = None


@dataclass(frozen=True, slots=True)
class Gates:
    """All checks of one mode, at the concurrency that stands for the multi-document load."""

    mode: Mode
    concurrency: int | None
    throughput: Check
    p95: Check
    equal_throughput: Check
    single: Check
    verdict: Verdict

    @property
    def checks(self) -> tuple[Check, ...]:
        """In the order of the rule."""
        return self.throughput, self.p95, self.equal_throughput, self.single


def gates(figures: GateInput, targets: Targets) -> Gates:
    """Decide one mode."""
    load = None if figures.concurrency else "the reports have no common concurrency above 1"
    alone = None if figures.single else "the reports have no document in common at concurrency 1"
    thin = f"a P95 needs {MIN_TAIL} documents over all repeats" if figures.documents < MIN_TAIL else None
    throughput = _at_least("throughput", figures.throughput, targets.throughput, load)
    p95 = _at_most("P95", figures.p95, -targets.p95, load or thin)
    equal = _equal(figures.throughput, load)
    single = _at_most("single document", figures.single, targets.single, alone)
    faster = any_of([throughput.verdict, all_of([p95.verdict, equal.verdict])])
    return Gates(figures.mode, figures.concurrency, throughput, p95, equal, single, all_of([faster, single.verdict]))


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Fail if one fails; pass if all do."""
    return min(verdicts, key=_WORST_FIRST.index)


def any_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Pass if one passes; fail if all do."""
    return max(verdicts, key=_WORST_FIRST.index)


_WORST_FIRST = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS)


def _at_least(name: str, ratio: Ratio | None, percent: float, missing: str | None) -> Check:
    limit = 1 + percent / 100
    return _check(name, f"at least {percent:+g} %", ratio, (limit, None), missing)


def _at_most(name: str, ratio: Ratio | None, percent: float, missing: str | None) -> Check:
    limit = 1 + percent / 100
    return _check(name, f"at most {percent:+g} %", ratio, (None, limit), missing)


def _equal(ratio: Ratio | None, missing: str | None) -> Check:
    limits = (1 - _EQUAL_PERCENT / 100, 1 + _EQUAL_PERCENT / 100)
    return _check("equal throughput", f"within ±{_EQUAL_PERCENT} %", ratio, limits, missing)


def _check(
    name: str, target: str, ratio: Ratio | None, limits: tuple[float | None, float | None], missing: str | None
) -> Check:
    """Is the ratio inside of the limits, ends included?"""
    if missing or ratio is None:
        return Check(name, target, ratio, Verdict.INCONCLUSIVE, missing or "the reports do not have the figures")
    if ratio.low is None or ratio.high is None or ratio.repeats < MIN_REPEATS:
        reason = f"{ratio.repeats} repeats cannot show anything with 95 % confidence"
        return Check(name, target, ratio, Verdict.INCONCLUSIVE, reason, MIN_REPEATS)
    low, high = limits
    if (low is None or ratio.low >= low) and (high is None or ratio.high <= high):
        return Check(name, target, ratio, Verdict.PASS)
    if (low is not None and ratio.high < low) or (high is not None and ratio.low > high):
        return Check(name, target, ratio, Verdict.FAIL)
    return _straddling(name, target, ratio, [limit for limit in limits if limit is not None])


def _straddling(name: str, target: str, ratio: Ratio, limits: Sequence[float]) -> Check:
    estimates = [repeats_to_settle(ratio, limit) for limit in limits]
    needed = None if None in estimates else max(estimate for estimate in estimates if estimate is not None)
    advice = f"about {needed} repeats would settle it" if needed else "too near it for more repeats to settle it soon"
    return Check(name, target, ratio, Verdict.INCONCLUSIVE, f"across the target; {advice}", needed)
