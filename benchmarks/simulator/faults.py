"""Which request is hit by which fault."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from benchmarks.simulator.config import FaultRule


class _Switch:
    """One rule with what is left of it."""

    def __init__(self, rule: FaultRule) -> None:
        self.rule = rule
        self._skip = rule.skip
        self._left = rule.count
        self._random = random.Random(rule.seed)

    def hits(self, kind: str) -> bool:
        if self.rule.kinds and kind not in self.rule.kinds:
            return False
        if self._skip > 0:
            self._skip -= 1
            return False
        if self._left == 0 or (self.rule.share is not None and self._random.random() >= self.rule.share):
            return False
        if self._left is not None:
            self._left -= 1
        return True


class FaultPlan:
    """The faults in force; the first rule that hits a request decides."""

    def __init__(self) -> None:
        self._switches: list[_Switch] = []

    def replace(self, rules: Iterable[FaultRule]) -> None:
        """Put these rules in force instead of all others."""
        self._switches = [_Switch(rule) for rule in rules]

    def choose(self, kind: str) -> FaultRule | None:
        """The fault for the next request of this kind."""
        return next((switch.rule for switch in self._switches if switch.hits(kind)), None)

    @property
    def rules(self) -> Sequence[FaultRule]:
        """The rules in force."""
        return [switch.rule for switch in self._switches]
