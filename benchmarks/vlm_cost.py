"""What a page costs the client, and how many it gets through, when the engine costs nothing.

Usage: python -m benchmarks.vlm_cost [--repeats 5] [--sides png jpeg mineru_vl_utils mineru_345] [--output REPORT.json]

Four documents of 13 pages, one and four at a time, at a simulated engine without latency. CPU time and memory are those
of all processes of the client. Sides alternate in rotating order; every round is a process of its own, warmed up by a
document of 13 pages. Ratios are taken round by round. MinerUClient makes no Markdown, the others do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks._vlm import (
    FREE,
    OURS,
    PEERS,
    SIDES,
    Case,
    Figures,
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

CPU_GOALS = {"png": 1 / 3, "jpeg": 1 / 6}
SPEED_GOAL = 3.0


def measure(sides: Sequence[str], repeats: int, widths: Sequence[int], pages: int) -> list[Record]:
    """All rounds.

    :param widths: documents at a time.
    :param pages: of each of the four documents.
    """
    with tempfile.TemporaryDirectory(prefix="mineru-bench-") as name:
        directory = Path(name)
        documents, warm_up = make_documents(directory, 4, pages), make_document(directory / "warm-up.pdf", pages)

        def one_round(case: Case, side: str) -> Record:
            run = run_case(case, SIDES[side], warm_up)
            rates = {
                "cpu_ms_per_page": run["cpu_s"] / run["pages"] * 1000,
                "pages_per_s": run["pages"] / run["seconds"],
            }
            return {**run, **rates}

        cases = [Case(_name(width), FREE, documents, width) for width in widths]
        return rounds(sides, repeats, cases, one_round, lambda run: f"{run['seconds']:.2f} s")


def _name(width: int) -> str:
    return f"{width} at a time"


def figures(runs: Sequence[Record], sides: Sequence[str], widths: Sequence[int]) -> Figures:
    """What each side needed."""
    keys = ("cpu_ms_per_page", "pages_per_s", "peak_rss_mb")
    return {
        f"{side}, {_name(width)}": {key: Spread.of(values(runs, side, _name(width), key)) for key in keys}
        for width in widths
        for side in sides
    }


def goals(runs: Sequence[Record], sides: Sequence[str], widths: Sequence[int]) -> list[Goal]:
    """Ours against each peer's, which sends lossless images in all cases."""
    found = []
    for ours in (side for side in OURS if side in sides):
        for other in (side for side in PEERS if side in sides):
            for width in widths:
                cpu = [values(runs, side, _name(width), "cpu_ms_per_page") for side in (ours, other)]
                name = f"CPU, {ours} / {other}, {_name(width)}"
                found.append(Goal(name, Spread.ratio(*cpu), CPU_GOALS[ours]))
            speed = [values(runs, side, _name(4), "pages_per_s") for side in (ours, other)]
            name = f"pages/s, {ours} / {other}, {_name(4)}"
            found.append(Goal(name, Spread.ratio(*speed), SPEED_GOAL, at_most=False))
    return found


def main(arguments_given: Sequence[str] | None = None) -> None:
    """Run the rounds and report."""
    options = arguments(__doc__, repeats=5, sides=list(SIDES)).parse_args(arguments_given)
    widths, pages = ((4,), 1) if options.quick else ((1, 4), 13)
    runs = measure(options.sides, options.repeats, widths, pages)
    report(
        options,
        benchmark="vlm_cost",
        engines=[FREE],
        figures=figures(runs, options.sides, widths),
        goals=goals(runs, options.sides, widths),
        runs=runs,
        caveats=["memory shared between processes counts in each of them"],
    )


if __name__ == "__main__":
    main()
