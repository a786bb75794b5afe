"""What is left after a cancel, and how long it takes.

Usage: python -m benchmarks.vlm_cancel [--repeats 5] [--output REPORT.json]

First a document is cancelled when 100 of its requests are in flight at a slow simulated engine, several times over.
Then 200 documents are cancelled at random moments (seeded), and one is parsed to its end: its Markdown must be that of
an undisturbed one. Before and after: requests at the engine, tasks on both loops, threads, file descriptors and
temporary files of this process, and the memory of it and its workers. Threads and descriptors may differ a little:
executors keep their threads, and connections that were in use are not kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mineru_engine as engine
from benchmarks._vlm import MODERATE, SLOW_CLOCK, Goal, Record, Spread, arguments, make_document, report, timing
from benchmarks.simulator import Simulator, SimulatorConfig
from benchmarks.vlm_leftovers import MAY_DIFFER, NONE_LEFT, Scene
from mineru_cli.bench.leftovers import scratch_directory

SLOW = SimulatorConfig(step_base_ms=500)
SEED = 20261130


async def cancel(task: asyncio.Task[str]) -> float | None:
    """Seconds until it has returned; ``None`` if it had ended before."""
    started = time.perf_counter()
    asked = task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return time.perf_counter() - started if asked else None


async def cancel_in_flight(scene: Scene, requests: int, document: Path, repeats: int) -> Record:
    """The first part: with all requests in flight. ``before`` is after one such cancel, which also warms up."""
    rounds: list[Record] = []
    for _ in range(1 + repeats):
        task = scene.start(document)
        await scene.until_in_flight(requests, task)
        rounds.append({"cancel_s": await cancel(task), **await scene.left()})
    seconds = [item["cancel_s"] for item in rounds]
    return {"before": rounds[0], "after": rounds[-1], "cancel_s": seconds, "rounds": rounds}


async def cancel_at_random(scene: Scene, document: Path, cancels: int) -> Record:
    """The second part: at moments all over the time that the document takes."""
    moments, seconds = random.Random(SEED), []
    await scene.start(document)
    started = time.perf_counter()
    markdown = await scene.start(document)
    whole_s = time.perf_counter() - started
    before = await scene.left()
    for _ in range(cancels):
        task = scene.start(document)
        await asyncio.wait({task}, timeout=moments.uniform(0, whole_s))
        seconds.append(await cancel(task))
    after = await scene.left()
    same = await scene.start(document) == markdown
    cancelled = [value for value in seconds if value is not None]
    return {"before": before, "after": after, "cancel_s": cancelled, "same_markdown": same, "document_s": whole_s}


def at_engine(
    simulator: Simulator, config: SimulatorConfig, scratch: Path, part: Callable[[Scene], Coroutine[Any, Any, Record]]
) -> Record:
    """One part, at an engine with these timings."""
    simulator.control(reset=True, engine=timing(config))
    load = os.getloadavg()[0]
    found = asyncio.run(part(Scene(simulator, scratch)))
    return {**found, "late_s": simulator.stats().late_s, "load_before": round(load, 2)}


def figures_and_goals(runs: Sequence[Record]) -> tuple[dict[str, dict[str, Spread | float]], list[Goal]]:
    """Times, counts before and after, and what must be nothing."""
    figures: dict[str, dict[str, Spread | float]] = {}
    goals = []
    for run in runs:
        figures[run["part"]] = {"cancel_s": Spread.of(run["cancel_s"])}
        for moment in ("before", "after"):
            figures[f"{run['part']}: {moment}"] = {name: run[moment][name] for name in (*NONE_LEFT, *MAY_DIFFER)}
        goals += [Goal(f"{run['part']}: {name}", Spread.of([run["after"][name]]), 0) for name in NONE_LEFT]
    different = sum(not run.get("same_markdown", True) for run in runs)
    return figures, [*goals, Goal("documents after it that read otherwise", Spread.of([different]), 0)]


def main(arguments_given: Sequence[str] | None = None) -> None:
    """Run both parts and report."""
    options = arguments(__doc__, repeats=5).parse_args(arguments_given)
    slow = replace(SLOW, max_seqs=8) if options.quick else SLOW
    moderate, pages, cancels = (SLOW_CLOCK, 1, 5) if options.quick else (MODERATE, 4, 200)
    with tempfile.TemporaryDirectory(prefix="mineru-bench-") as name:
        place = Path(name)
        long = make_document(place / "long.pdf", slow.max_seqs + slow.max_seqs // 4)
        short = make_document(place / "short.pdf", pages)
        parts = {
            f"{slow.max_seqs} in flight": (
                slow,
                lambda scene: cancel_in_flight(scene, slow.max_seqs, long, options.repeats),
            ),
            f"{cancels} at random": (moderate, lambda scene: cancel_at_random(scene, short, cancels)),
        }
        runs = []
        with scratch_directory() as scratch, Simulator(slow) as simulator:
            for label, (config, part) in parts.items():
                # That the engine lost its clock (``late_s``) says nothing against what is left or how fast a cancel is.
                runs.append({"part": label, **at_engine(simulator, config, scratch, part)})
            engine.shutdown_cached_models()
    figures, goals = figures_and_goals(runs)
    report(options, benchmark="vlm_cancel", engines=[slow, moderate], figures=figures, goals=goals, runs=runs)


if __name__ == "__main__":
    main()
