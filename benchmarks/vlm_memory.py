"""Peak memory against documents at a time and against the length of a document.

Usage: python -m benchmarks.vlm_memory [--repeats 3] [--sides png jpeg mineru_vl_utils mineru_345] [--output FILE]

Eight documents of 25 pages, one and eight at a time, and single documents of 50 and 500 pages, at a simulated engine
of moderate latency. Every round is a process of its own; its peak is that of the whole process tree from start to end,
looked at ten times a second. RSS counts shared memory in each process, PSS (Linux) shares it out. The other sides are
measured on request only.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks._vlm import (
    MODERATE,
    OURS,
    SIDES,
    SLOW_CLOCK,
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
from benchmarks.simulator import SimulatorConfig

ONE, EIGHT = "8 documents, 1 at a time", "8 documents, 8 at a time"
SHORT, LONG = "a short document", "one ten times as long"
PEAK_GOAL_MIB = 700.0
RATIO_GOALS = ((EIGHT, ONE, 1.3), (LONG, SHORT, 1.2))
_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


class TreePeak:
    """Peaks of a process and all below it; call it again and again."""

    def __init__(self) -> None:
        self.rss = self.pss = self.processes = 0

    def __call__(self, process: psutil.Process) -> None:
        """Look once."""
        try:
            tree = [process, *process.children(recursive=True)]
        except psutil.Error:
            return
        self.processes = max(self.processes, len(tree))
        self.rss = max(self.rss, sum(map(_rss, tree)))
        self.pss = max(self.pss, sum(map(_pss, tree)))

    def to_dict(self) -> Record:
        """In MiB; PSS is 0 where the system does not tell."""
        return {"rss_mib": self.rss / 2**20, "pss_mib": self.pss / 2**20, "processes": self.processes}


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _pss(process: psutil.Process) -> int:
    try:
        found = _PSS.search(Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii"))
    except OSError:
        return 0
    return int(found[1]) << 10 if found else 0


def measure(sides: Sequence[str], repeats: int, config: SimulatorConfig, pages: int, short: int) -> list[Record]:
    """All rounds.

    :param pages: of each of the eight documents.
    :param short: pages of the short document; 0 leaves both single documents out.
    """
    with tempfile.TemporaryDirectory(prefix="mineru-bench-") as name:
        directory = Path(name)
        eight, warm_up = make_documents(directory, 8, pages), make_document(directory / "warm-up.pdf", 1)
        cases = [Case(ONE, config, eight, 1), Case(EIGHT, config, eight, 8)]
        for label, length in ((SHORT, short), (LONG, 10 * short)) if short else ():
            cases.append(Case(label, config, [make_document(directory / f"single-{length}.pdf", length)], 1))

        def one_round(case: Case, side: str) -> Record:
            peak = TreePeak()
            return {**run_case(case, SIDES[side], warm_up, peak), **peak.to_dict()}

        return rounds(sides, repeats, cases, one_round, lambda run: f"{run['rss_mib']:.0f} MiB")


def goals(runs: Sequence[Record], sides: Sequence[str]) -> list[Goal]:
    """Ours alone: neither more documents nor more pages cost much."""
    found = []
    for side in (side for side in OURS if side in sides):
        for more, less, limit in RATIO_GOALS:
            peaks = [values(runs, side, case, "rss_mib") for case in (more, less)]
            found += [Goal(f"{side}, RSS, {more} / {less}", Spread.ratio(*peaks), limit)] if peaks[0] else []
        peak = Spread.of(values(runs, side, EIGHT, "rss_mib"))
        found.append(Goal(f"{side}, RSS in MiB, {EIGHT}", peak, PEAK_GOAL_MIB))
    return found


def main(arguments_given: Sequence[str] | None = None) -> None:
    """Run the rounds and report."""
    options = arguments(__doc__, repeats=3, sides=["png"]).parse_args(arguments_given)
    config = SLOW_CLOCK if options.quick else MODERATE
    pages, short = (1, 0) if options.quick else (25, 50)
    runs = measure(options.sides, options.repeats, config, pages, short)
    figures: Figures = {
        f"{side}, {case}": {key: Spread.of(values(runs, side, case, key)) for key in ("rss_mib", "pss_mib")}
        for side in options.sides
        for case in dict.fromkeys(run["case"] for run in runs)
    }
    report(
        options,
        benchmark="vlm_memory",
        engines=[config],
        figures=figures,
        goals=goals(runs, options.sides),
        runs=runs,
        caveats=[f"the short document has {short} pages, the long one {10 * short}"],
    )


if __name__ == "__main__":
    main()
