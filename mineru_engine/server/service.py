"""Everything a running server holds, and what its routes ask of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from mineru_engine.api import preload_async
from mineru_engine.errors import ErrorCode, MineruError
from mineru_engine.options import ParseOptions
from mineru_engine.runtime.registry import Lease
from mineru_engine.server.cache import ResultCache
from mineru_engine.server.intake import Upload
from mineru_engine.server.jobs import Job, JobState, new_job_id
from mineru_engine.server.problems import RequestError
from mineru_engine.server.queue import JobQueue
from mineru_engine.server.retention import Retention
from mineru_engine.server.storage import Storage
from mineru_engine.server.store import JobStore
from mineru_engine.server.work import Work
from mineru_engine.settings import Settings

__all__ = ("Service",)

DEFAULT_FORMATS = ("md", "json", "content-list")
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
        self.cache = ResultCache(self.storage, settings.server.cache_ttl)
        self.started = time.time()
        self.engine_problem: MineruError | None = None
        self._preload = preload
        self._stack = AsyncExitStack()
        self.lease: Lease
        self.work: Work
        self.queue: JobQueue

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await asyncio.to_thread(self.storage.open)
            stack.callback(self.storage.close)
            await self.store.open()
            stack.push_async_callback(self.store.close)
            await asyncio.to_thread(self.storage.sweep, await self.store.ids())
            self.lease = await stack.enter_async_context(Lease("server"))
            self.work = Work(self.settings, self.storage, self.lease, self.cache)
            limits = self.settings.server
            self.queue = JobQueue(
                self.store,
                self.work,
                concurrency=limits.concurrency,
                limit=limits.queue_limit,
                on_end=self._ended,
            )
            stack.push_async_callback(self.queue.close, 0.0)
            await self.queue.recover()
            retention = Retention(self.store, self.storage, limits)
            await stack.enter_async_context(retention)
            if self._preload:
                task = asyncio.create_task(self._start_engine())
                stack.push_async_callback(_cancelled, task)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def drain(self, grace: float) -> None:
        """Take no more jobs and let those that run end, for at most so many seconds."""
        await self.queue.close(grace)

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
    ) -> Job:
        """Accept a job. Once this returns it will be run, whatever happens to the process.

        :param secrets: options that are not written to the disk.
        :param idempotency: with the same key the same job is given again.
        :param request: digest of what was asked, to tell a repetition from a key that was used twice.
        :raises MineruError: if an option is wrong or there is no room.
        """
        chosen = {**self.defaults, **options}
        ParseOptions.create(**chosen, **(secrets or {}))
        job = Job(
            new_job_id(),
            tenant,
            chosen,
            tuple(formats),
            upload.files,
            origin=dict(origin or {}),
            idempotency=idempotency,
            request=request,
        )
        self.queue.check()
        await asyncio.to_thread(self.storage.accept, upload.directory, job)
        if secrets:
            self.work.secrets[job.id] = dict(secrets)
        try:
            kept = await self.queue.submit(job)
        except BaseException:
            self._drop(job.id)
            raise
        if kept is not job:
            self._drop(job.id)
            if kept.request != request:
                raise RequestError(
                    "this Idempotency-Key was used for another request", param="Idempotency-Key", status=422
                )
        return kept

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

    async def _start_engine(self) -> None:
        try:
            await preload_async(settings=self.settings, lease=self.lease, **self.defaults)
        except MineruError as exc:
            self.engine_problem = exc
            _log.error("the engine did not start: %s", exc.message)

    def _ended(self, job: Job) -> None:
        self.work.secrets.pop(job.id, None)
        if job.state is JobState.CANCELED:
            self.storage.delete_output(job)

    def _drop(self, job_id: str) -> None:
        self.work.secrets.pop(job_id, None)
        self.storage.delete(job_id)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
