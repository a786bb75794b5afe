"""How well a client keeps an engine busy: tokens made / limit / elapsed.

Usage: python -m benchmarks.vlm_efficiency [--repeats 5] [--sides png jpeg mineru_vl_utils mineru_345] [--output FILE]

A simulated engine with a limit of 5,714 tokens/s, slower than any client. Elapsed is from the call to the result of all
documents, measured in the client after its warm-up; tokens are those the engine made for them. Sides alternate in
rotating order; every round is a process of its own. Beside it stands what an ideal client would reach (vlm_ideal.py).
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks._vlm import (
    ENGINE_BOUND,
    OURS,
    SIDES,
    SLOW_CLOCK,
    Case,
    Goal,
    Record,
    Spread,
    arguments,
    make_document,
    make_documents,
    report,
    rounds,
    run_case,
    values,
)
from benchmarks.simulator import SimulatorConfig
from benchmarks.vlm_ideal import Workload, efficiency, ideal_efficiency

GOALS = {Workload(1, 13, 1): 0.75, Workload(1, 58, 1): 0.95, Workload(4, 13, 4): 0.97, Workload(12, 13, 4): 0.97}
QUICK_GOALS = {Workload(2, 1, 2): 0.97}


def measure(sides: Sequence[str], repeats: int, workloads: Sequence[Workload], config: SimulatorConfig) -> list[Record]:
    """All rounds."""
    with tempfile.TemporaryDirectory(prefix="mineru-bench-") as name:
        directory = Path(name)
        cases = [_case(work, directory / str(number), config) for number, work in enumerate(workloads)]
        warm_up = make_document(directory / "warm-up.pdf", workloads[0].pages)

        def one_round(case: Case, side: str) -> Record:
            run = run_case(case, SIDES[side], warm_up)
            return {**run, "efficiency": efficiency(run["tokens"], run["seconds"], config)}

        return rounds(sides, repeats, cases, one_round, lambda run: f"{run['efficiency']:.3f}")


def _case(work: Workload, place: Path, config: SimulatorConfig) -> Case:
    place.mkdir()
    return Case(work.name, config, sorted(make_documents(place, work.documents, work.pages)), work.width)


def main(arguments_given: Sequence[str] | None = None) -> None:
    """Run the rounds and report."""
    options = arguments(__doc__, repeats=5, sides=list(SIDES)).parse_args(arguments_given)
    limits, config = (QUICK_GOALS, SLOW_CLOCK) if options.quick else (GOALS, ENGINE_BOUND)
    runs = measure(options.sides, options.repeats, list(limits), config)
    figures: dict[str, dict[str, Spread | float]] = {}
    goals = []
    for work, limit in limits.items():
        row: dict[str, Spread | float] = {"ideal client": ideal_efficiency(work, config)}
        for side in options.sides:
            reached = Spread.of(values(runs, side, work.name, "efficiency"))
            row[side] = reached
            if side in OURS:
                goals.append(Goal(f"{work.name}, {side}", reached, limit, at_most=False))
        figures[work.name] = row
    report(options, benchmark="vlm_efficiency", engines=[config], figures=figures, goals=goals, runs=runs)


if __name__ == "__main__":
    main()
