"""Tier flash against docvortex in process, and two documents at once against one at a time.

Usage: python benchmarks/flash_speed.py DOCUMENT … [--rounds 5] [--output REPORT.json]

All sides run in this process, warm, in alternation (A B C A B C …), so that a drift of the machine hits them
alike. A is ``docvortex.parse`` (text mode), B is ``mineru_engine.parse``, C is ``parse_async`` with two documents
at a time. Times are wall seconds for all documents; the report keeps every round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import docvortex
from loguru import logger

import mineru_engine as engine


def run_docvortex(paths: Sequence[Path]) -> dict[str, float]:
    """Seconds for each document with docvortex alone."""
    return {path.name: _seconds(lambda path=path: docvortex.parse(path, parse_mode="txt")) for path in paths}


def run_engine(paths: Sequence[Path]) -> dict[str, float]:
    """Seconds for each document with our synchronous call."""
    return {path.name: _seconds(lambda path=path: engine.parse(path, tier="flash", ocr_mode="txt")) for path in paths}


def run_concurrent(paths: Sequence[Path], width: int) -> float:
    """Seconds for all documents, ``width`` at a time."""

    async def everything() -> None:
        slots = asyncio.Semaphore(width)

        async def one(path: Path) -> None:
            async with slots:
                await engine.parse_async(path, tier="flash", ocr_mode="txt")

        async with asyncio.TaskGroup() as group:
            for path in paths:
                group.create_task(one(path))

    return _seconds(lambda: asyncio.run(everything()))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    """Run the rounds and report medians, spread and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    logger.remove()
    run_docvortex(args.documents[:1])
    run_concurrent([args.documents[0]] * 4, 2)
    rounds = []
    for _ in range(args.rounds):
        each = {"docvortex": run_docvortex(args.documents), "mineru": run_engine(args.documents)}
        rounds.append(
            {
                **each,
                "one_at_a_time": run_concurrent(args.documents, 1),
                "two_at_a_time": run_concurrent(args.documents, 2),
            }
        )
    engine.shutdown_cached_models()
    documents = {}
    for path in args.documents:
        theirs = [entry["docvortex"][path.name] for entry in rounds]
        ours = [entry["mineru"][path.name] for entry in rounds]
        ratio = statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
        documents[path.name] = {
            "docvortex_s": statistics.median(theirs),
            "mineru_s": statistics.median(ours),
            "ratio": ratio,
        }
        print(f"{path.name[:44]:44} " + ", ".join(f"{key} {value:.3f}" for key, value in documents[path.name].items()))
    total = [sum(entry["mineru"].values()) / sum(entry["docvortex"].values()) for entry in rounds]
    gain = [entry["one_at_a_time"] / entry["two_at_a_time"] for entry in rounds]
    print(
        f"all documents, ours / docvortex: median {statistics.median(total):.3f} ({min(total):.3f}..{max(total):.3f})"
    )
    print(f"two at a time against one: median {statistics.median(gain):.2f}x ({min(gain):.2f}..{max(gain):.2f})")
    if args.output:
        report = {
            "rounds": rounds,
            "documents": documents,
            "ratio_all": total,
            "concurrency_gain": gain,
            "caveats": ["CPU only"],
        }
        args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
