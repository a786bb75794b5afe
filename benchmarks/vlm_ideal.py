"""The best that a client can do with an engine: costs nothing, knows nothing of a page before its layout is answered.

All layouts go first, contents as soon as they are known: the longest first, or those of the oldest document first,
whichever is better. Not a measurement; what measurements are held against.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from benchmarks.simulator import DEFAULT_OUTPUTS, DEFAULT_PAGE, Kind, SimulatorConfig
from benchmarks.simulator.script import content_kind

LAYOUT_TOKENS = DEFAULT_OUTPUTS[Kind.LAYOUT].tokens
CONTENT_TOKENS = [DEFAULT_OUTPUTS[content_kind(block.type)].tokens for block in DEFAULT_PAGE]


@dataclass(frozen=True, slots=True)
class Workload:
    """Documents of the same length, so many at a time."""

    documents: int
    pages: int
    width: int

    @property
    def name(self) -> str:
        """For reports."""
        return f"{self.documents} of {self.pages} pages, {self.width} at a time"


@dataclass(slots=True)
class _Request:
    tokens_left: int
    document: int
    layout: bool


ORDERS: tuple[Callable[[_Request], tuple[int, ...]], ...] = (
    lambda request: (request.layout, request.tokens_left),
    lambda request: (request.layout, -request.document, request.tokens_left),
)


def ideal_seconds(work: Workload, config: SimulatorConfig) -> float:
    """What the ideal client needs, in steps as the simulated engine makes them."""
    return min(_seconds(work, config, order) for order in ORDERS)


def _seconds(work: Workload, config: SimulatorConfig, order: Callable[[_Request], tuple[int, ...]]) -> float:
    left = [work.pages * (1 + len(CONTENT_TOKENS))] * work.documents
    to_come = iter(range(work.documents))
    waiting = [request for _ in range(work.width) for request in _layouts(work, next(to_come))]
    running: list[_Request] = []
    elapsed_ms = 0.0
    while waiting or running:
        waiting.sort(key=order)  # the last goes first
        while waiting and len(running) < config.max_seqs:
            running.append(waiting.pop())
        elapsed_ms += config.step_base_ms + config.step_per_seq_ms * len(running)
        for request in running:
            request.tokens_left -= config.tokens_per_step
        for done in [request for request in running if request.tokens_left <= 0]:
            running.remove(done)
            left[done.document] -= 1
            if done.layout:
                waiting += [_Request(tokens, done.document, False) for tokens in CONTENT_TOKENS]
            if not left[done.document]:
                waiting += [request for document in islice(to_come, 1) for request in _layouts(work, document)]
    return elapsed_ms / 1000


def _layouts(work: Workload, document: int) -> list[_Request]:
    return [_Request(LAYOUT_TOKENS, document, True) for _ in range(work.pages)]


def ideal_efficiency(work: Workload, config: SimulatorConfig) -> float:
    """What the ideal client reaches."""
    tokens = work.documents * work.pages * (LAYOUT_TOKENS + sum(CONTENT_TOKENS))
    return efficiency(tokens, ideal_seconds(work, config), config)


def efficiency(tokens: int, seconds: float, config: SimulatorConfig) -> float:
    """Tokens made, over what a full engine makes in the time."""
    limit = config.limit_tokens_per_s
    assert limit is not None, "the engine costs nothing"
    return tokens / limit / seconds
