"""The simulated engine: one loop of steps over a batch of sequences, with a waiting queue behind it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.simulator.config import SimulatorConfig


class Sequence:
    """One request inside the engine."""

    __slots__ = ("done", "made", "on_progress", "prefill_ms", "tokens")

    def __init__(self, tokens: int, prefill_ms: float, on_progress: Callable[[int], None] | None = None) -> None:
        self.tokens = tokens
        self.prefill_ms = prefill_ms
        self.made = 0
        self.on_progress = on_progress
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


@dataclass(slots=True)
class EngineCounters:
    """What the engine did since the last reset."""

    tokens: int = 0
    wasted_tokens: int = 0
    steps: int = 0
    busy_s: float = 0.0
    prefill_s: float = 0.0
    late_s: float = 0.0
    peak_running: int = 0
    peak_waiting: int = 0


class Engine:
    """Makes ``tokens_per_step`` tokens a step for each running sequence.

    Steps follow a clock of their own, so that late wake-ups of the loop do not add up; ``late_s`` is the time that
    was lost because this process could not keep up.
    """

    def __init__(self, config: SimulatorConfig) -> None:
        self.config = config
        self.counters = EngineCounters()
        self._running: list[Sequence] = []
        self._waiting: deque[Sequence] = deque()
        self._wake = asyncio.Event()

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences behind the cap."""
        return len(self._waiting)

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence; its ``done`` is set when all tokens are made."""
        self._waiting.append(sequence)
        self.counters.peak_waiting = max(self.counters.peak_waiting, len(self._waiting))
        self._wake.set()

    def abort(self, sequence: Sequence) -> None:
        """Drop a sequence; its slot is free from the next step on."""
        if not sequence.done.done():
            sequence.done.cancel()
            self.counters.wasted_tokens += sequence.made
        if sequence in self._waiting:
            self._waiting.remove(sequence)

    async def run(self) -> None:
        """Make steps for ever."""
        loop = asyncio.get_running_loop()
        clock = loop.time()
        while True:
            self._admit()
            if not self._running:
                self._wake.clear()
                await self._wake.wait()
                clock = loop.time()
                continue
            budget = self.config.prefill_ms_per_step or float("inf")
            prefill_ms = self._prefill(self._running, budget)
            step_s = self._decode_s() + prefill_ms / 1000
            clock += step_s
            behind = loop.time() - clock
            if behind > step_s > 0:
                self.counters.late_s += behind
                clock = loop.time()
            await asyncio.sleep(max(0.0, -behind))
            self.counters.steps += 1
            self.counters.busy_s += step_s
            self.counters.prefill_s += prefill_ms / 1000
            self._running = [sequence for sequence in self._running if not self._advance(sequence)]

    def _admit(self) -> None:
        self._running = [sequence for sequence in self._running if not sequence.done.done()]
        while self._waiting and len(self._running) < self.config.max_seqs:
            self._running.append(self._waiting.popleft())
        self.counters.peak_running = max(self.counters.peak_running, len(self._running))

    def _decode_s(self) -> float:
        return (self.config.step_base_ms + self.config.step_per_seq_ms * len(self._running)) / 1000

    @staticmethod
    def _prefill(sequences: Iterable[Sequence], budget_ms: float) -> float:
        """Prefill work that this step takes on, first come first served, in ms."""
        spent = 0.0
        for sequence in sequences:
            if sequence.prefill_ms > 0 and spent < budget_ms:
                part = min(sequence.prefill_ms, budget_ms - spent)
                sequence.prefill_ms -= part
                spent += part
        return spent

    def _advance(self, sequence: Sequence) -> bool:
        """Give a sequence its tokens of this step; True when it leaves the batch."""
        if sequence.done.done():
            return True
        if sequence.prefill_ms > 0:
            return False
        free = self.config.limit_tokens_per_s is None
        made = sequence.tokens if free else min(sequence.tokens, sequence.made + self.config.tokens_per_step)
        self.counters.tokens += made - sequence.made
        sequence.made = made
        if sequence.on_progress is not None:
            sequence.on_progress(made)
        if made < sequence.tokens:
            return False
        sequence.done.set_result(None)
        return True
