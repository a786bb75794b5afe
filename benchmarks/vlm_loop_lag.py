"""How late the caller's own event loop gets while documents are parsed beside it.

Usage: python -m benchmarks.vlm_loop_lag [--repeats 5] [--output REPORT.json]

A task of the caller sleeps 5 ms and notes how much longer it took, all in one process and beside one warm runtime: with
nothing to do, while eight documents of 13 pages go through ``parse_async`` at a simulated engine without latency, and
the same at one that is slower than the client. Rendering the result is the caller's own doing and is left out.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mineru_engine as engine
from benchmarks._vlm import (
    ENGINE_BOUND,
    FREE,
    SLOW_CLOCK,
    Goal,
    Record,
    Spread,
    arguments,
    make_documents,
    report,
    timing,
    valid,
)
from benchmarks.engine_http import check_pages, engine_settings
from benchmarks.simulator import Simulator, SimulatorConfig
from mineru_cli.bench.sampling import LagProbe

SLEEP_S = 0.005
IDLE_S = 5.0
GOAL_MS = 10.0
IDLE = "idle"
QUANTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}


async def lags_during(work: Coroutine[Any, Any, object]) -> list[float]:
    """Milliseconds that each sleep took too long while ``work`` ran, in ascending order."""
    async with LagProbe(SLEEP_S) as probe:
        await work
    return sorted(probe.late_ms)


async def parse_all(url: str, documents: Sequence[Path]) -> None:
    """All at once."""

    async def one(path: Path) -> None:
        settings = engine_settings({})
        check_pages(await engine.parse_async(path, tier="xhigh", ocr_mode="ocr", server_url=url, settings=settings))

    async with asyncio.TaskGroup() as group:
        for path in documents:
            group.create_task(one(path))


def measure(simulator: Simulator, config: SimulatorConfig, documents: Sequence[Path]) -> Record:
    """A loop beside the documents, at an engine with these timings."""
    simulator.control(reset=True, engine=timing(config))
    lags = asyncio.run(lags_during(parse_all(simulator.url, documents)))
    return summary(lags, simulator.stats().late_s)


def measure_idle(seconds: float) -> Record:
    """A loop with nothing else to do."""
    return summary(asyncio.run(lags_during(asyncio.sleep(seconds))), 0.0)


def summary(lags: Sequence[float], late_s: float) -> Record:
    """Quantiles of ascending lags."""
    last = len(lags) - 1
    found = {name: lags[round(share * last)] for name, share in QUANTILES.items()}
    return {"sleeps": len(lags), **found, "late_s": late_s}


def main(arguments_given: Sequence[str] | None = None) -> None:
    """Run the rounds and report."""
    options = arguments(__doc__, repeats=5).parse_args(arguments_given)
    engines = {"zero latency": FREE, "engine-bound": SLOW_CLOCK if options.quick else ENGINE_BOUND}
    pages, idle_s = (1, 0.1) if options.quick else (13, IDLE_S)
    runs: list[Record] = []
    with tempfile.TemporaryDirectory(prefix="mineru-bench-") as name, Simulator(FREE) as simulator:
        documents = make_documents(Path(name), 8, pages)
        asyncio.run(parse_all(simulator.url, documents[:1]))
        cases = {IDLE: partial(measure_idle, idle_s)}
        cases |= {label: partial(measure, simulator, config, documents) for label, config in engines.items()}
        for number in range(options.repeats):
            for label, one_round in cases.items():
                run = valid(one_round)
                runs.append({"case": label, "round": number, **run})
                print(f"round {number}: {label}: P99 {run['p99_ms']:.2f} ms", flush=True)
        engine.shutdown_cached_models()
    figures = {
        label: {key: Spread.of(run[key] for run in runs if run["case"] == label) for key in QUANTILES}
        for label in (IDLE, *engines)
    }
    goals = [Goal(f"P99 of the loop's lag in ms, {label}", figures[label]["p99_ms"], GOAL_MS) for label in engines]
    report(options, benchmark="vlm_loop_lag", engines=engines.values(), figures=figures, goals=goals, runs=runs)


if __name__ == "__main__":
    main()
