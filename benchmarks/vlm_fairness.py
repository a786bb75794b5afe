"""A one-page document in the middle of a 200-page one, against the same document alone.

Usage: python -m benchmarks.vlm_fairness [--repeats 3] [--sides ours mineru_vl_utils] [--output REPORT.json]

At a simulated engine of 29,630 tokens/s. Both documents go through one runtime (the peer: one client and one limit of
requests). A round takes the one-page document five times alone, then five times one after the other from the moment on
that a quarter of the long one is answered, and compares medians. Of the latter the first counts, and those that ended
before the long one did.

``engine alone`` is what a full engine does to a page by itself, without a client and without a wait: its steps take
27 ms instead of 12 to 14.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mineru_engine as engine
from benchmarks._vlm import (
    AT_CAP,
    SLOW_CLOCK,
    Goal,
    Record,
    Spread,
    arguments,
    make_document,
    peer,
    report,
    rounds,
    run_command,
)
from benchmarks.engine_http import check_pages, engine_settings
from benchmarks.peers._fairness import measure_fairness
from benchmarks.simulator import Simulator, SimulatorConfig
from benchmarks.vlm_ideal import CONTENT_TOKENS, LAYOUT_TOKENS, Workload, ideal_seconds

OURS, PEER = "ours", "mineru_vl_utils"
REQUESTS_PER_PAGE = 1 + len(CONTENT_TOKENS)
GOAL = 2.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What a round is made of.

    :ivar samples: one-page documents of each kind.
    :ivar middle: answered requests of the long document after which it counts as running.
    """

    name: str
    config: SimulatorConfig
    short: Path
    long: Path
    samples: int
    middle: int


def measure(setting: Setting, side: str) -> Record:
    """One round at a fresh engine."""
    with Simulator(setting.config) as simulator:
        found = (_ours if side == OURS else _peer)(simulator.url, setting)
        stats = simulator.stats()
    alone, inside = (statistics.median(found[key]) for key in ("alone_s", "inside_s"))
    return {**found, "ratio": inside / alone, "peak_running": stats.peak_running, "late_s": stats.late_s}


def _ours(url: str, setting: Setting) -> Record:
    settings = engine_settings({"model.vlm.max_concurrency": setting.config.max_seqs})

    async def parse(path: Path) -> None:
        check_pages(await engine.parse_async(path, tier="xhigh", ocr_mode="ocr", server_url=url, settings=settings))

    try:
        return asyncio.run(
            measure_fairness(url, parse, setting.short, setting.long, repeats=setting.samples, middle=setting.middle)
        )
    finally:
        engine.shutdown_cached_models()


def _peer(url: str, setting: Setting) -> Record:
    options = ["--server-url", url, "--repeat", setting.samples, "--middle", setting.middle]
    options += ["--max-concurrency", setting.config.max_seqs]
    return run_command(peer(PEER, "mineru_vl_utils_fairness").command(*options, setting.short, setting.long))


def engine_alone(config: SimulatorConfig) -> float:
    """Time of a page in a batch that is always full, over its time in an empty one."""
    steps = sum(math.ceil(tokens / config.tokens_per_step) for tokens in (LAYOUT_TOKENS, max(CONTENT_TOKENS)))
    full_step_ms = config.step_base_ms + config.step_per_seq_ms * config.max_seqs
    return steps * full_step_ms / 1000 / ideal_seconds(Workload(1, 1, 1), config)


def main(arguments_given: Sequence[str] | None = None) -> None:
    """Run the rounds and report."""
    parser = arguments(__doc__, repeats=3, sides=[OURS, PEER], choices=[OURS, PEER])
    options = parser.parse_args(arguments_given)
    config, pages, samples = (SLOW_CLOCK, 12, 1) if options.quick else (AT_CAP, 200, 5)
    with tempfile.TemporaryDirectory(prefix="mineru-bench-") as name:
        short, long = (make_document(Path(name) / f"{count}.pdf", count) for count in (1, pages))
        middle = pages * REQUESTS_PER_PAGE // 4
        setting = Setting(f"1 page in the middle of {pages}", config, short, long, samples, middle)
        runs = rounds(options.sides, options.repeats, [setting], measure, lambda run: f"{run['ratio']:.2f}")
    figures: dict[str, dict[str, Spread | float]] = {"engine alone": {"ratio": engine_alone(config)}}
    goals: list[Goal] = []
    for side in options.sides:
        mine = [run for run in runs if run["side"] == side]
        ratio = Spread.of(run["ratio"] for run in mine)
        seconds = {key: Spread.of(statistics.median(run[key]) for run in mine) for key in ("alone_s", "inside_s")}
        figures[side] = {"ratio": ratio, **seconds, "long_s": Spread.of(run["long_s"] for run in mine)}
        goals += [Goal(f"{side}, in the middle / alone", ratio, GOAL)] if side == OURS else []
    report(options, benchmark="vlm_fairness", engines=[config], figures=figures, goals=goals, runs=runs)


if __name__ == "__main__":
    main()
