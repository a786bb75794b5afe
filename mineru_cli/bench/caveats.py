"""What the program itself says against the figures of a report."""

from __future__ import annotations

from collections.abc import Iterator

from mineru_cli.bench.conditions import conditions
from mineru_cli.bench.report import Caveat, Report
from mineru_cli.bench.statistics import NOISY

__all__ = ("RESULTS_DIFFER", "caveats_of")

RESULTS_DIFFER = "results_differ"
_FEW_REPEATS = 3


def caveats_of(report: Report, *, load_before: float | None) -> list[Caveat]:
    """All that hold, the gravest first.

    :param load_before: load average before the start.
    """
    found = (*_outcome(report), *_engine(report), *_machine(report, load_before))
    return [Caveat(code=code, text=text) for code, text in found]


def _outcome(report: Report) -> Iterator[tuple[str, str]]:
    if not report.complete:
        yield "incomplete", "the benchmark was interrupted: runs are missing"
    different = [report.inputs[result.input].name for result in report.results if result.variants > 1]
    if different:
        yield RESULTS_DIFFER, f"the result was not always the same: {_listed(different)}"
    failed = {sample.input: sample.error for run in report.runs for sample in run.samples if sample.error}
    if failed:
        names = [f"{report.inputs[index].name} ({error})" for index, error in sorted(failed.items())]
        yield "documents_failed", f"documents failed, and rates count the others: {_listed(names)}"


def _engine(report: Report) -> Iterator[tuple[str, str]]:
    engine = report.engine
    if engine.simulated:
        yield "simulated", "the server is simulated: no model and no GPU took part"
    if engine.device == "cpu":
        yield "cpu_engine", "the engine ran on the processor: this says nothing about a GPU"
    if engine.device == "remote":
        yield "remote_vram", "the engine is a server: its GPU memory cannot be seen from here"
    else:
        reasons = {run.gpu.vram_reason for run in report.runs if run.gpu.vram_reason} if report.machine.gpus else set()
        if reasons:
            yield "vram_unknown", f"no figure of GPU memory: {'; '.join(sorted(reasons))}"


def _machine(report: Report, load_before: float | None) -> Iterator[tuple[str, str]]:
    groups = conditions(report).values()
    repeats = min((len(group.runs) for group in groups), default=0)
    if repeats < _FEW_REPEATS:
        yield "single_sample", f"{repeats} repeat{'s' * (repeats != 1)}: too few to tell a change from chance"
    spread = max((group.throughput_spread or 0.0 for group in groups), default=0.0)
    if spread > NOISY:
        yield "machine_noisy", f"pages/s differed by up to {spread:.0%} between repeats"
    if load_before is not None and load_before > report.machine.cores_allowed:
        yield (
            "machine_noisy",
            f"others used the machine: load average {load_before:.1f} before the start, on "
            f"{report.machine.cores_allowed} cores",
        )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
