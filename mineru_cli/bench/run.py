"""The run behind ``mineru bench``: from what was asked for to a report on disk and a table on the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from mineru_cli.bench.caveats import RESULTS_DIFFER
from mineru_cli.bench.feed import Arrival
from mineru_cli.bench.live import Board
from mineru_cli.bench.modes import Interrupted, Stop
from mineru_cli.bench.plan import Plan
from mineru_cli.bench.report import Mode, Report, save_report
from mineru_cli.bench.session import Hooks, measure
from mineru_cli.bench.workload import Documents, named_documents, standard_documents
from mineru_cli.errors import EXIT_FAILED, UsageProblem
from mineru_cli.signals import Interrupts, interrupts
from mineru_engine.options import Engine, ParseOptions, Tier
from mineru_engine.resident import needs_model
from mineru_engine.settings import Settings
from mineru_engine.vlm.config import VlmConfig

__all__ = ("BenchJob", "run_bench")

_FAILED = {RESULTS_DIFFER, "documents_failed"}


@dataclass(frozen=True, slots=True)
class BenchJob:
    """What the command line asks for.

    :ivar options: fields of ``ParseOptions`` that the user really gave.
    :ivar seed: of all that is random.
    :ivar against: git revision, source tree, wheel or virtual environment of a baseline.
    :ivar peer: name of another tool instead of ours.
    :ivar command: as typed.
    """

    paths: tuple[str, ...]
    output: Path
    options: Mapping[str, Any] = field(repr=False)  # a URL may hold a password
    modes: tuple[Mode, ...] = (Mode.ASYNC, Mode.SYNC_THREAD)
    concurrencies: tuple[int, ...] = (1,)
    repeats: int = 4
    warmup: int = 1
    duration_s: float | None = None
    arrival: str = "closed"
    cancel_after_s: float | None = None
    sample_every_s: float = 0.1
    seed: int = 0
    save_results: Path | None = None
    html: Path | None = None
    config: Path | None = None
    against: str | None = None
    peer: str | None = None
    markdown: bool = False
    as_json: bool = False
    quiet: bool = False
    command: tuple[str, ...] = ()


def run_bench(job: BenchJob) -> int:
    """Do it all, write it all, print it all; returns the exit code.

    :raises KeyboardInterrupt: if the user ended it before anything was measured.
    """
    os.environ.setdefault("LOGURU_AUTOINIT", "0")
    _check(job)
    with interrupts() as signals, ExitStack() as stack:
        board = stack.enter_context(Board(quiet=job.quiet))
        plan = _plan(job, stack, board)
        try:
            report, base = _measure(job, plan, board, signals)
        except Interrupted:
            raise KeyboardInterrupt from None
    save_report(report, job.output)
    _publish(job, report)
    if base is not None:
        save_report(base, _base_path(job))
        _publish_comparison(job, report, base)
    return signals.exit_code or (EXIT_FAILED if _FAILED & {caveat.code for caveat in report.caveats} else 0)


def _base_path(job: BenchJob) -> Path:
    return job.output.with_suffix(f".base{job.output.suffix}")


def _measure(job: BenchJob, plan: Plan, board: Board, signals: Interrupts) -> tuple[Report, Report | None]:
    """The report, and that of the baseline if there is one."""
    stop = Stop()
    hooks = Hooks(
        board=board,
        stop=stop,
        ready=lambda: signals.cancels(stop.now),
        keep=lambda report: save_report(report, job.output),
    )
    try:
        if job.peer is not None:
            from mineru_cli.bench.peers import measure_peer

            return measure_peer(job.peer, plan, hooks), None
        if job.against is not None:
            from mineru_cli.bench.against import measure_against

            versions = measure_against(job.against, plan, hooks)
            return versions.new, versions.base
        return measure(plan, hooks), None
    finally:
        signals.cancels(lambda: None)


def _check(job: BenchJob) -> None:
    """What need not wait for the end to be refused."""
    Arrival.parse(job.arrival)
    if job.save_results is not None and job.save_results.exists() and any(job.save_results.iterdir()):
        raise UsageProblem(f"{job.save_results} is not empty", "name another directory with --save-results")
    if job.save_results is not None and not job.warmup:
        raise UsageProblem("--save-results writes what the warm-up read", "use --warmup 1")
    if not job.output.absolute().parent.is_dir():
        raise UsageProblem(f"there is no directory {job.output.absolute().parent} for the report")
    if job.html is not None:
        from mineru_cli.bench.figures import require_plotly

        require_plotly()


def _plan(job: BenchJob, stack: ExitStack, board: Board) -> Plan:
    settings = Settings.load(job.config)
    options = ParseOptions.create(**job.options)
    documents = _documents(job, settings, options, stack)
    if documents.note:
        board.say(documents.note)
    return Plan(
        documents=documents,
        options=dict(job.options),
        config=job.config,
        modes=job.modes,
        concurrencies=job.concurrencies,
        repeats=job.repeats,
        warmup=job.warmup,
        duration_s=job.duration_s,
        arrival=job.arrival,
        cancel_after_s=job.cancel_after_s,
        seed=job.seed,
        sample_every_s=job.sample_every_s,
        save_results=job.save_results,
        command=job.command,
    )


def _documents(job: BenchJob, settings: Settings, options: ParseOptions, stack: ExitStack) -> Documents:
    if job.paths:
        return named_documents(job.paths, stack)
    tier = options.effective_tier(settings.model.vlm)
    builtin = not needs_model(tier) or VlmConfig.resolve(settings.model.vlm, options).engine is Engine.ONNX
    return standard_documents(builtin=builtin, reads_scans=tier is not Tier.FLASH)


def _publish(job: BenchJob, report: Report) -> None:
    """The report in the forms that were asked for; on stdout one of them."""
    from mineru_cli.bench import text

    if job.html is not None:
        from mineru_cli.bench import html

        job.html.write_text(html.report_page(report), encoding="utf-8")
    if job.as_json:
        content = report.model_dump(mode="json", by_alias=True)
        sys.stdout.buffer.write(orjson.dumps(content, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE))
    else:
        print((text.report_markdown if job.markdown else text.report_table)(report).rstrip())  # noqa: T201
    _say(job, f"report: {job.output}")


def _publish_comparison(job: BenchJob, report: Report, base: Report) -> None:
    from mineru_cli.bench import text
    from mineru_cli.bench.comparable import Named
    from mineru_cli.bench.compare import compare_reports

    found = compare_reports(Named("the baseline", base), Named("this version", report))
    if not job.as_json:
        print((text.comparison_markdown if job.markdown else text.comparison_table)([found]).rstrip())  # noqa: T201
    _say(job, f"baseline: {_base_path(job)}")


def _say(job: BenchJob, line: str) -> None:
    if not job.quiet:
        print(line, file=sys.stderr)  # noqa: T201
