"""One document of a job: from the stored upload to the stored result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson

from mineru_engine.api import parse_async
from mineru_engine.result import ParseResult, ParseStatus
from mineru_engine.runtime.cancel import run_to_end
from mineru_engine.runtime.registry import Lease
from mineru_engine.server.audit import Audit
from mineru_engine.server.cache import ResultCache
from mineru_engine.server.jobs import Job, JobFile, JobState
from mineru_engine.server.storage import Storage
from mineru_engine.server.tracing import Tracing
from mineru_engine.settings import Settings

__all__ = ("Secrets", "Work", "without_stray_key")

Secrets = dict[str, dict[str, Any]]
"""Job id → options that are never written to the disk, as a password. They die with the process."""


class Work:
    """What :class:`~mineru_engine.server.queue.JobQueue` calls for each document."""

    def __init__(
        self, settings: Settings, storage: Storage, lease: Lease, cache: ResultCache, tracing: Tracing, audit: Audit
    ) -> None:
        self._settings = settings
        self._storage = storage
        self._lease = lease
        self._cache = cache
        self._tracing = tracing
        self._audit = audit
        self.secrets: Secrets = {}

    async def __call__(self, job: Job, file: JobFile, report: Callable[[int, int], None]) -> None:
        """Parse a document and keep its result; an earlier result for the same bytes and options is taken instead.

        :raises MineruError: if there is no result.
        """
        with self._tracing.document(job, file):
            await self._run(job, file, report)

    async def _run(self, job: Job, file: JobFile, report: Callable[[int, int], None]) -> None:
        secrets = self.secrets.get(job.id, {})
        key = None if secrets else self._cache.key(job, file, self._settings)
        if key is not None and not job.origin.get("no_cache") and await self._cache.fetch(key, job, file):
            return
        options = {**job.options_of(file), **secrets}
        async with self._holding(options) as lease:
            result = await parse_async(
                self._storage.input(job, file),
                settings=without_stray_key(self._settings, options),
                lease=lease,
                on_progress=lambda progress: report(progress.done, progress.total),
                on_exchange=self._audit.exchanges_of(job, file),
                **options,
            )
            await run_to_end(asyncio.to_thread(self._keep, job, file, result))  # nothing is written after a cancel
        _describe(file, result)
        if key is not None and result.status is ParseStatus.SUCCESS:
            await self._cache.keep(key, job, file)

    @asynccontextmanager
    async def _holding(self, options: Mapping[str, Any]) -> AsyncIterator[Lease]:
        """The server's lease; for a model server that only the request names one that ends with the document.

        Else each address and model that somebody thinks of would keep an engine and its workers for good.
        """
        if "server_url" not in options:
            yield self._lease
            return
        async with Lease("request") as lease:
            yield lease

    def _keep(self, job: Job, file: JobFile, result: ParseResult) -> None:
        model = {f"{file.stem}_model.json": orjson.dumps(result.model_json.to_dict())}
        result.save(self._storage.output(job), [*job.formats], overwrite=True, extra_files=model)


def without_stray_key(settings: Settings, options: Mapping[str, Any]) -> Settings:
    """Settings for a document: a key that belongs to no server must not travel to the one that a request names."""
    vlm = settings.model.vlm
    if vlm.server_url or "server_url" not in options:
        return settings
    keyless = vlm.model_copy(update={"api_key": None})
    return settings.model_copy(update={"model": settings.model.model_copy(update={"vlm": keyless})})


def _describe(file: JobFile, result: ParseResult) -> None:
    file.tier, file.engine, file.model, file.seconds = result.tier, result.engine, result.model, result.seconds
    file.done = file.total = result.page_count
    file.diagnostics = [diagnostic.to_dict() for diagnostic in result.diagnostics]
    if result.status is ParseStatus.PARTIAL:
        file.state = JobState.PARTIAL
