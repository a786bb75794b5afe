"""Everything a running server holds, and what its routes ask of it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from mineru_engine.api import preload_async
from mineru_engine.errors import ErrorCode, MineruError
from mineru_engine.options import ParseOptions, Tier
from mineru_engine.pages import check_pages
from mineru_engine.resident import needs_model
from mineru_engine.runtime.cancel import run_to_end
from mineru_engine.runtime.registry import Lease
from mineru_engine.server.access import current_caller
from mineru_engine.server.audit import Audit
from mineru_engine.server.cache import ResultCache
from mineru_engine.server.intake import Upload
from mineru_engine.server.jobs import Job, JobState, new_job_id
from mineru_engine.server.keys import FILE_NAME, Keys
from mineru_engine.server.metrics import Metrics
from mineru_engine.server.problems import RequestError
from mineru_engine.server.queue import JobQueue
from mineru_engine.server.quotas import Quotas
from mineru_engine.server.retention import Retention
from mineru_engine.server.shared_cache import SharedCache
from mineru_engine.server.storage import Storage
from mineru_engine.server.store import JobStore
from mineru_engine.server.tracing import Tracing
from mineru_engine.server.work import Work
from mineru_engine.settings import Settings

__all__ = ("Service",)

DEFAULT_FORMATS = ("md", "json", "content-list")
_ENGINE_PAUSE_S = 5.0
_ENGINE_GONE = {ErrorCode.ENGINE_DEAD, ErrorCode.ENGINE_UNAVAILABLE}
_log = logging.getLogger(__name__)


class Service:
    """A server without its routes: an asynchronous context manager.

    :param data_dir: where jobs and results are kept; one server at a time.
    :param defaults: options in force where a request says nothing, as ``tier``.
    :param preload: start the engine now instead of with the first job.
    """

    def __init__(
        self,
        settings: Settings,
        data_dir: Path,
        *,
        defaults: Mapping[str, Any] | None = None,
        preload: bool = False,
    ) -> None:
        self.settings = settings
        self.defaults = dict(defaults or {})
        self.storage = Storage(data_dir)
        self.store = JobStore(self.storage.database)
        url = settings.server.cache_url
        shared = None if url is None else SharedCache(url.get_secret_value())
        self.cache = ResultCache(self.storage, self.store, settings.server.cache_ttl, shared)
        self.started = time.time()
        self.metrics = Metrics(self)
        self.engine_problem: MineruError | None = None
        self.engine_starting = False
        self._engine_start: asyncio.Task[None] | None = None
        self._engine_tried = -math.inf
        self._preload = preload
        self._stack = AsyncExitStack()
        self.lease: Lease
        self.keys: Keys
        self.audit: Audit
        self.quotas: Quotas
        self.tracing: Tracing
        self.work: Work
        self.queue: JobQueue

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await asyncio.to_thread(self.storage.open)
            stack.callback(self.storage.close)
            await self.store.open()
            stack.push_async_callback(self.store.close)
            self._open_access(stack)
            await asyncio.to_thread(self.storage.sweep, await self.store.ids())
            stack.push_async_callback(self.cache.aclose)
            self.lease = await stack.enter_async_context(Lease("server"))
            self.tracing = Tracing.from_environment()
            stack.push_async_callback(asyncio.to_thread, self.tracing.close)
            self.work = Work(self.settings, self.storage, self.lease, self.cache, self.tracing, self.audit)
            limits = self.settings.server
            self.queue = JobQueue(
                self.store,
                self.work,
                concurrency=limits.concurrency,
                limit=limits.queue_limit,
                max_attempts=limits.max_attempts,
                on_end=self._ended,
            )
            stack.push_async_callback(self.queue.close, 0.0)
            await self.queue.recover()
            retention = Retention(self.store, self.storage, limits)
            await stack.enter_async_context(retention)
            stack.push_async_callback(self._stop_starting)
            if self._preload:
                self.start_engine()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def _open_access(self, stack: AsyncExitStack) -> None:
        root, limits = self.storage.root, self.settings.server
        self.keys = stack.enter_context(Keys(root / FILE_NAME))
        self.audit = Audit(
            root / "audit.jsonl" if limits.audit else None,
            limits.audit_mb << 20,
            exchanges=root / "exchanges.jsonl" if limits.audit_exchanges else None,
        )
        stack.callback(self.audit.close)
        self.quotas = Quotas(root / "usage.sqlite3", self.keys.limits, lambda tenant: self.queue.unfinished(tenant))
        stack.callback(self.quotas.close)

    @property
    def has_space(self) -> bool:
        """Whether the disk has room for another job."""
        return self.storage.free_bytes() >= self.settings.server.min_free_mb << 20

    async def drain(self, grace: float) -> None:
        """Take no more jobs and let those that run end, for at most so many seconds."""
        await self.queue.close(grace)

    def check(self, tenant: str) -> None:
        """See whether a tenant's job would be taken; ask before its documents are read.

        :raises MineruError: if there is no room, or the tenant's quota is used up.
        """
        self.queue.check()
        self.quotas.check(tenant)
        if not self.has_space:
            raise RequestError(
                "the server has too little free disk space", code=ErrorCode.DISK_FULL, hint="tell whoever runs it"
            )

    async def submit(
        self,
        upload: Upload,
        *,
        tenant: str,
        options: Mapping[str, Any],
        formats: Sequence[str] = DEFAULT_FORMATS,
        secrets: Mapping[str, Any] | None = None,
        origin: Mapping[str, Any] | None = None,
        idempotency: str | None = None,
        request: str = "",
        job_id: str | None = None,
    ) -> Job:
        """Accept a job. Once this returns it will be run, whatever happens to the process.

        :param secrets: options that are not written to the disk.
        :param idempotency: with the same key the same job is given again.
        :param request: digest of what was asked, to tell a repetition from a key that was used twice.
        :param job_id: a new identifier, where an API has its own form of them.
        :raises MineruError: if an option is wrong or there is no room.
        """
        chosen = {**self.defaults, **options}
        check_pages(ParseOptions.create(**chosen, **(secrets or {})).pages)
        job = Job(
            job_id or new_job_id(),
            tenant,
            chosen,
            tuple(formats),
            upload.files,
            origin={**(origin or {}), "key": current_caller().key},
            idempotency=idempotency,
            request=request,
        )
        return await run_to_end(self._accept(upload, job, dict(secrets or {})))

    async def _accept(self, upload: Upload, job: Job, secrets: dict[str, Any]) -> Job:
        kept = await self.earlier(job.tenant, job.idempotency) or await self._enter(upload, job, secrets)
        if kept is not job and kept.request != job.request:
            raise RequestError("this Idempotency-Key was used for another request", param="Idempotency-Key", status=422)
        return kept

    async def _enter(self, upload: Upload, job: Job, secrets: dict[str, Any]) -> Job:
        self.check(job.tenant)
        with self.quotas.entering(job.tenant):
            await asyncio.to_thread(self.storage.accept, upload.directory, job)
            if secrets:
                self.work.secrets[job.id] = secrets
            try:
                kept = await self.queue.submit(job)
            except BaseException:
                self._drop(job.id)
                raise
        if kept is job:
            self.audit.accepted(job)
        else:
            self._drop(job.id)
        return kept

    async def earlier(self, tenant: str, idempotency: str | None) -> Job | None:
        """The job that was made with an idempotency key. It is given again even when there is room for no other."""
        job = None if idempotency is None else await self.store.find(tenant, idempotency)
        return job and (self.queue.live(job.id) or job)

    async def page(self, tenant: str, limit: int, **query: Any) -> tuple[list[Job], bool]:
        """Some of a tenant's jobs, and whether there are more.

        :param query: see :meth:`JobStore.page`.
        """
        found = await self.store.page(tenant, limit=limit + 1, **query)
        return [self.queue.live(job.id) or job for job in found[:limit]], len(found) > limit

    async def find(self, job_id: str, tenant: str) -> Job:
        """A tenant's job.

        :raises RequestError: if there is none.
        """
        job = self.queue.live(job_id) or await self.store.get(job_id)
        if job is None or job.tenant != tenant:
            raise RequestError(f"no job {job_id!r}", code=ErrorCode.JOB_NOT_FOUND)
        return job

    async def cancel(self, job: Job) -> Job:
        """End a job; returns when its work has stopped."""
        await self.queue.cancel(job.id)
        return await self.find(job.id, job.tenant)

    async def delete(self, job: Job) -> None:
        """End a job and remove all that is left of it."""
        await self.queue.cancel(job.id)
        await self.store.delete(job.id)
        await asyncio.to_thread(self.storage.delete, job.id)
        self.audit.deleted(job)

    def start_engine(self) -> None:
        """Bring the engine up in the background; nothing if that is being done or was tried a moment ago."""
        if self.engine_starting or time.monotonic() - self._engine_tried < _ENGINE_PAUSE_S:
            return
        self.engine_starting = True
        self._engine_start = asyncio.create_task(self._start_engine())

    async def _start_engine(self) -> None:
        try:
            await preload_async(settings=self.settings, lease=self.lease, **self.defaults)
            self.engine_problem = None
        except MineruError as exc:
            self.engine_problem = exc
            _log.error("the engine did not start: %s", exc.message)
        finally:
            self.engine_starting, self._engine_tried = False, time.monotonic()

    def _judge_engine(self, job: Job) -> None:
        """What an ended job tells of the engine that jobs without options of their own run on."""
        own = ParseOptions.create(**self.defaults).effective_tier(self.settings.model.vlm)
        if not needs_model(own) or "server_url" in job.options:
            return
        for file in job.files:
            if file.error and file.error["code"] in _ENGINE_GONE:
                self.engine_problem = MineruError(file.error["message"])
            elif file.state.has_result and not file.cached and needs_model(Tier(file.tier)):
                self.engine_problem = None

    async def _stop_starting(self) -> None:
        if self._engine_start is not None:
            self._engine_start.cancel()
            await asyncio.gather(self._engine_start, return_exceptions=True)

    def _ended(self, job: Job) -> None:
        self.work.secrets.pop(job.id, None)
        self.metrics.ended(job)
        self.tracing.ended(job)
        facts = {"state": job.state, "pages": job.done, "seconds": round((job.finished or 0) - job.created, 3)}
        _log.info("%s after %s s", job.state, facts["seconds"], extra={"job": job.id, "facts": facts})
        self._judge_engine(job)
        self.quotas.ended(job)
        self.audit.ended(job)
        if job.state is JobState.CANCELED:
            self.storage.delete_output(job)

    def _drop(self, job_id: str) -> None:
        self.work.secrets.pop(job_id, None)
        self.storage.delete(job_id)
