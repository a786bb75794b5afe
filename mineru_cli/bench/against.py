"""Two versions in turn, so that a drift of the machine hits both alike.

Each repeat of each version is a process of its own, with its own warm-up. Both are measured by this very harness: its
package stands before that of the version on the path of modules. Both run in the environment that was made for the
baseline, so that they have the same dependencies. Which of the two begins a repeat is random, by the seed.
"""

from __future__ import annotations

import compileall
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from mineru_cli.bench.baseline import build_baseline
from mineru_cli.bench.caveats import caveats_of
from mineru_cli.bench.machine import load_average
from mineru_cli.bench.modes import Interrupted
from mineru_cli.bench.plan import Plan
from mineru_cli.bench.report import DocumentResult, Input, Report, load_report
from mineru_cli.bench.session import Hooks
from mineru_cli.bench.source import LOCK, git_state, package_root
from mineru_engine.errors import MineruError
from mineru_engine.options import Engine, ParseOptions
from mineru_engine.resident import needs_model
from mineru_engine.settings import Settings
from mineru_engine.vlm.config import VlmConfig

__all__ = ("Versions", "measure_against")

NEW, BASE = "new", "base"


@dataclass(frozen=True, slots=True)
class Versions:
    """The reports of both."""

    new: Report
    base: Report


@dataclass(frozen=True, slots=True)
class _Side:
    """A version, ready to run.

    :ivar path: directories that go before everything else on the path of modules.
    """

    name: str
    python: Path
    path: Sequence[Path | str]
    state: tuple[str | None, bool | None]


def measure_against(against: str, plan: Plan, hooks: Hooks) -> Versions:
    """Measure a baseline and this version, a repeat of each in turn.

    :param against: see :func:`~mineru_cli.bench.baseline.build_baseline`.
    :raises Interrupted: if a stop came before both had been measured once.
    :raises MineruError: if the baseline cannot be installed, or a version cannot be measured.
    """
    load = load_average()
    with ExitStack() as stack:
        sides = _sides(against, plan, hooks, stack)
        hooks.ready()
        found: dict[str, list[Report]] = {NEW: [], BASE: []}
        try:
            for repeat in range(plan.repeats):
                turn = list(sides)
                random.Random(f"{plan.seed}/against/{repeat}").shuffle(turn)
                for side in turn:
                    hooks.stop.check()
                    found[side.name].append(_measure(side, _part(plan, side, repeat), hooks))
        except Interrupted:
            if not all(found.values()):
                raise
    return Versions(*(_merged(found[name], plan, load) for name in (NEW, BASE)))


def _sides(against: str, plan: Plan, hooks: Hooks, stack: ExitStack) -> list[_Side]:
    baseline = build_baseline(against, _engine(plan), stack, hooks.board.say)
    ours = _copies(stack, "mineru_cli", "mineru_engine")
    inherited = list(filter(None, [os.environ.get("PYTHONPATH")]))  # not for the baseline: it may hold our engine
    return [
        _Side(
            NEW, baseline.python if baseline.ours_too else Path(sys.executable), [ours, *inherited], git_state(_root())
        ),
        _Side(BASE, baseline.python, [_copies(stack, "mineru_cli")], baseline.state),
    ]


def _engine(plan: Plan) -> Engine:
    """What will read the pages."""
    vlm, options = Settings.load(plan.config).model.vlm, ParseOptions.create(**plan.options)
    return VlmConfig.resolve(vlm, options).engine if needs_model(options.effective_tier(vlm)) else Engine.ONNX


def _root() -> Path:
    return package_root("mineru_engine")


def _copies(stack: ExitStack, *packages: str) -> Path:
    """A directory with copies of packages, which do not change while somebody works on them; and with the lock."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mineru-bench-code-")))
    for package in packages:
        shutil.copytree(package_root(package) / package, directory / package, ignore=shutil.ignore_patterns("*.pyc"))
    compileall.compile_dir(directory, quiet=2)  # else the first process to import would, and not the other version's
    if (_root() / LOCK).is_file():
        (directory / LOCK).parent.mkdir()
        shutil.copy(_root() / LOCK, directory / LOCK)
    return directory


def _part(plan: Plan, side: _Side, repeat: int) -> Plan:
    """One repeat for one side."""
    save = plan.save_results / side.name if plan.save_results is not None and repeat == 0 else None
    return plan.model_copy(
        update={"repeats": 1, "first_repeat": repeat, "save_results": save, "source_state": side.state}
    )


def _measure(side: _Side, plan: Plan, hooks: Hooks) -> Report:
    """A process of that side does what the plan says; a stop closes its standard input, which ends it."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, side.path))}
    with tempfile.TemporaryDirectory(prefix="mineru-bench-") as directory:
        target = Path(directory) / "report.json"
        # -P: the directory that the user is in may hold another version.
        command = [str(side.python), "-P", "-m", "mineru_cli.bench.child", str(target), f"{side.name}: "]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, bufsize=0, env=environment, start_new_session=True
        ) as process:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it has ended already: its code tells
                process.stdin.write(plan.model_dump_json().encode() + b"\n")
            with contextlib.suppress(Interrupted), hooks.stop.ends(process.stdin.close):
                process.wait()
        if target.is_file():  # after a stop, with what it had by then
            return load_report(target)
    hooks.stop.check()
    raise MineruError(f"the version {side.name!r} could not be measured: its process ended with {process.returncode}")


def _merged(reports: Sequence[Report], plan: Plan, load_before: float | None) -> Report:
    """One report of the repeats that several processes made."""
    first = reports[0]
    whole = first.model_copy(
        update={
            "duration_s": round(sum(report.duration_s for report in reports), 3),
            "complete": len(reports) == plan.repeats and all(report.complete for report in reports),
            "workload": plan.workload(first.workload.tier),
            "inputs": [_input(reports, index) for index in range(len(first.inputs))],
            "runs": [run for report in reports for run in report.runs],
            "cancellation": [cancel for report in reports for cancel in report.cancellation],
            "results": [_result(reports, index) for index in range(len(first.results))],
        }
    )
    return whole.model_copy(update={"caveats": caveats_of(whole, load_before=load_before)}).sealed()


def _input(reports: Sequence[Report], index: int) -> Input:
    return max((report.inputs[index] for report in reports), key=lambda item: item.pages)


def _result(reports: Sequence[Report], index: int) -> DocumentResult:
    """The first content, and how many there were; of those that one process saw only the number is known."""
    found = [report.results[index] for report in reports]
    contents = {result.sha256 for result in found if result.sha256 is not None}
    first = next((result for result in found if result.sha256 is not None), found[0])
    return first.model_copy(update={"variants": max(len(contents), *(result.variants for result in found))})
