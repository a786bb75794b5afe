"""The run behind ``mineru parse``: many documents, some at a time, each written when it is whole."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mineru_cli.errors import EXIT_FAILED, EXIT_USAGE, UsageProblem, show_traceback
from mineru_cli.inputs import Document, find_documents
from mineru_cli.outcome import Outcome, Status, print_json_line, print_notices, print_table
from mineru_cli.progress import Board
from mineru_cli.signals import Interrupts, interrupts
from mineru_cli.writing import Writer
from mineru_engine import api
from mineru_engine.errors import ErrorCode, MineruError
from mineru_engine.options import ParseOptions
from mineru_engine.progress import Progress
from mineru_engine.result import ParseResult, ParseStatus
from mineru_engine.runtime.registry import shutdown_cached_models
from mineru_engine.settings import Settings

__all__ = ("Job", "run_job")

_MAX_DEFAULT_CONCURRENCY = 4
_ELSEWHERE_CONCURRENCY = 8
_NOTICES = 20
_USAGE = {ErrorCode.OPTION_INVALID, ErrorCode.PAGE_RANGE_INVALID, ErrorCode.SETTING_INVALID}


@dataclass(frozen=True, slots=True)
class Job:
    """What the command line asks for.

    :ivar output: directory for results; ``None`` for stdout.
    :ivar options: fields of ``ParseOptions`` that the user really gave.
    :ivar api_url: of the job server that parses; ``None`` for this process.
    """

    paths: tuple[str, ...]
    output: Path | None
    options: Mapping[str, Any] = field(repr=False)  # may hold a password
    formats: tuple[str, ...] = ()
    layout: bool = False
    concurrency: int | None = None
    overwrite: bool = False
    resume: bool = False
    config: Path | None = None
    json_lines: bool = False
    quiet: bool = False
    verbose: bool = False
    api_url: str | None = None


def run_job(job: Job) -> int:
    """Do it all, print it all; returns the exit code."""
    _route_logs(verbose=job.verbose)
    with interrupts() as signals, ExitStack() as stack:
        settings = Settings.load(job.config)
        options = ParseOptions.create(**job.options)
        documents = find_documents(job.paths, job.output, stack)
        if job.output is None and len(documents) != 1:
            raise UsageProblem(f"-o - takes one document, not {len(documents)}", "give a directory with -o")
        try:
            outcomes = asyncio.run(_Run(job, settings, options, documents).all(signals))
            _print_closing(job, outcomes)
        finally:
            shutdown_cached_models()
    return signals.exit_code or _exit_code(outcomes)


def _exit_code(outcomes: Sequence[Outcome]) -> int:
    failures = [outcome.error or {} for outcome in outcomes if outcome.status in {Status.FAILED, Status.CANCELLED}]
    if failures and len(failures) == len(outcomes) and all(error.get("code") in _USAGE for error in failures):
        return EXIT_USAGE
    return EXIT_FAILED if failures else 0


def _route_logs(*, verbose: bool) -> None:
    """Libraries log through loguru and logging, at once and a lot; quiet unless asked."""
    import logging

    if verbose:
        logging.basicConfig(level=logging.INFO, stream=sys.stderr)
        return
    os.environ.setdefault("LOGURU_AUTOINIT", "0")
    logging.lastResort = None


def _print_closing(job: Job, outcomes: Sequence[Outcome]) -> None:
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if not job.json_lines:
        if job.quiet or job.output is None:
            print_table(failed) if failed else None
        else:
            print_table(outcomes)
    if not job.quiet and not job.json_lines:
        print_notices(outcomes, limit=10_000 if job.verbose else _NOTICES)


class _Run:
    """State of one run; lives on one event loop."""

    def __init__(self, job: Job, settings: Settings, options: ParseOptions, documents: Sequence[Document]) -> None:
        self._job = job
        self._settings = settings
        self._documents = documents
        self._writer = Writer(job, settings, options)
        self._outcomes = [Outcome(document.label, Status.CANCELLED) for document in documents]
        self._slots = asyncio.Semaphore(job.concurrency or _default_concurrency(job, settings, options))
        self._parse: Callable[..., Coroutine[Any, Any, ParseResult]]
        self._board = Board(len(documents), enabled=not job.quiet)

    async def all(self, signals: Interrupts) -> list[Outcome]:
        """Every document, to its end; after a signal, the clean-up of those that run."""
        if self._job.api_url is None:
            self._parse = functools.partial(api.parse_async, settings=self._settings)
            return await self._all(signals)
        from mineru_cli.remote import RemoteServer

        key, proxy = os.environ.get("MINERU_API_KEY"), self._settings.model.vlm.proxy_from_env
        async with RemoteServer(self._job.api_url, key, proxy_from_env=proxy) as server:
            self._parse = server.parse_async
            return await self._all(signals)

    async def _all(self, signals: Interrupts) -> list[Outcome]:
        loop = asyncio.get_running_loop()
        self._writer.plan(self._documents)
        tasks = [asyncio.create_task(self._one(index)) for index in range(len(self._documents))]
        signals.cancels(lambda: loop.call_soon_threadsafe(_cancel, tasks))
        board = asyncio.create_task(self._board.show())
        try:
            await asyncio.wait(tasks)
        finally:
            signals.cancels(_nothing)
            board.cancel()
            await asyncio.gather(board, return_exceptions=True)
            for task in tasks:
                if not task.cancelled():
                    task.result()
        for outcome in self._outcomes:
            if self._job.json_lines and outcome.status is Status.CANCELLED:
                print_json_line(outcome)
        return self._outcomes

    async def _one(self, index: int) -> None:
        document = self._documents[index]
        async with self._slots:
            self._board.start(index, document.path.name)
            started = time.perf_counter()
            try:
                outcome = await self._outcome(index, document)
            except MineruError as exc:
                outcome = Outcome(document.label, Status.FAILED, error=exc.to_dict())
            except BrokenPipeError:
                raise
            except Exception as exc:  # noqa: BLE001 - a bug met by one document must not take the others along
                show_traceback(exc)
                outcome = Outcome(document.label, Status.FAILED, error=_internal(exc))
            outcome.seconds = time.perf_counter() - started
            self._outcomes[index] = outcome
            self._board.finish(index)
            if self._job.json_lines:
                print_json_line(outcome)

    async def _outcome(self, index: int, document: Document) -> Outcome:
        if document.error is not None:
            raise document.error
        skipped = await self._writer.check(index, document)
        if skipped is not None:
            return skipped
        result = await self._parse(
            document.path, on_progress=functools.partial(self._advance, index), **self._job.options
        )
        outcome = _of_result(document, result)
        await self._writer.write(index, document, result, outcome)
        return outcome

    def _advance(self, index: int, progress: Progress) -> None:
        self._board.advance(index, progress.done, progress.total)


def _of_result(document: Document, result: ParseResult) -> Outcome:
    return Outcome(
        path=document.label,
        status=Status.PARTIAL if result.status is ParseStatus.PARTIAL else Status.SUCCESS,
        pages=result.page_count,
        tier=result.tier,
        engine=result.engine,
        diagnostics=[diagnostic.to_dict() for diagnostic in result.diagnostics],
    )


def _internal(exc: Exception) -> dict[str, object]:
    message = f"internal error: {type(exc).__name__}: {exc}"[:500]
    return MineruError(message, hint="MINERU_DEBUG=1 shows the traceback; please report it").to_dict()


def _nothing() -> None:
    """All is done: a signal that comes now only sets the exit code."""


def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()


def _default_concurrency(job: Job, settings: Settings, options: ParseOptions) -> int:
    """Documents at once: with a model or a server they mostly wait for it, else they share the cores."""
    from mineru_engine.resident import needs_model
    from mineru_engine.workers.pool import usable_cores

    elsewhere = job.api_url is not None or needs_model(options.effective_tier(settings.model.vlm))
    return _ELSEWHERE_CONCURRENCY if elsewhere else min(usable_cores(), _MAX_DEFAULT_CONCURRENCY)
