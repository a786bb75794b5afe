"""Which job runs when: a durable first-in-first-out queue, a bound on running jobs, and cancellation.

All methods belong to the server's event loop. A job that is not ended lives here in memory, with every change that
matters written to the :class:`~mineru_engine.server.store.JobStore`; page progress is not written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from mineru_engine.errors import ErrorCode, MineruError
from mineru_engine.runtime.cancel import run_to_end
from mineru_engine.server.database import StoreError
from mineru_engine.server.jobs import Job, JobFile, JobState
from mineru_engine.server.logs import current_job
from mineru_engine.server.problems import told
from mineru_engine.server.store import JobStore

__all__ = ("JobQueue", "QueueClosedError", "QueueFullError", "RunFile")

RunFile = Callable[[Job, JobFile, Callable[[int, int], None]], Coroutine[Any, Any, None]]
"""Parses one document of a job and keeps its result; is told where to report (pages done, pages to do), which may be
called from any thread. Fills in what it finds out about the file, but not its state, except ``PARTIAL``."""

_log = logging.getLogger(__name__)


class QueueFullError(MineruError):
    """More jobs wait than the server lets wait."""

    code = ErrorCode.QUEUE_FULL
    retryable = True


class QueueClosedError(MineruError):
    """The server is shutting down."""

    code = ErrorCode.SERVER_CLOSING
    retryable = True


@dataclass(slots=True, eq=False)
class _Entry:
    """A job that has not ended, and who looks at it."""

    job: Job
    task: asyncio.Task[None] | None = None
    cancelled: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def touch(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class JobQueue:
    """Runs jobs.

    :param run_file: see :data:`RunFile`.
    :param concurrency: jobs that run at once; the files of one run in order.
    :param limit: jobs that may wait.
    :param max_attempts: how often a job is begun, if the server dies under it.
    :param on_end: called with each job that has ended.
    """

    def __init__(
        self,
        store: JobStore,
        run_file: RunFile,
        *,
        concurrency: int = 1,
        limit: int = 1000,
        max_attempts: int = 2,
        on_end: Callable[[Job], None] = lambda job: None,
    ) -> None:
        self._store = store
        self._run_file = run_file
        self._concurrency = concurrency
        self._limit = limit
        self._max_attempts = max_attempts
        self._on_end = on_end
        self._entries: dict[str, _Entry] = {}
        self._waiting: deque[_Entry] = deque()
        self._running: set[_Entry] = set()
        self._unsaved: dict[str, Job] = {}
        self._arriving = 0
        self._accepting = True

    @property
    def waiting(self) -> int:
        """Jobs that wait."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Jobs that run."""
        return len(self._running)

    @property
    def accepting(self) -> bool:
        """Whether new jobs may come."""
        return self._accepting

    @property
    def has_room(self) -> bool:
        """Whether one more may wait."""
        return len(self._waiting) + self._arriving < self._limit

    async def recover(self) -> None:
        """Take up what a server before us left: what waited waits again, what ran starts again."""
        for job in await self._store.unfinished():
            if job.state is JobState.RUNNING and job.attempts >= self._max_attempts:
                await self._give_up(job)
                continue
            if job.state is JobState.RUNNING:
                job.reset()
                await self._store.update(job)
            self._enqueue(job)
        self._fill()

    async def _give_up(self, job: Job) -> None:
        error = MineruError(
            f"the server ended {job.attempts} times while this job ran", code=ErrorCode.JOB_INTERRUPTED
        ).to_dict()
        for file in job.files:
            if not file.state.ended:
                file.state, file.error = JobState.FAILED, error
        job.error = error
        await self._end(_Entry(job), job.outcome())

    def check(self) -> None:
        """See whether a job would be taken.

        :raises QueueFullError: if too many wait.
        :raises QueueClosedError: if the server is going down.
        """
        if not self._accepting:
            raise QueueClosedError("the server is shutting down", hint="send it again when the server is back")
        if not self.has_room:
            raise QueueFullError(f"{len(self._waiting)} jobs wait already", hint="try again later")

    async def submit(self, job: Job) -> Job:
        """Accept a job: once this returns it will be run, whatever happens to the process.

        :return: the job, or the earlier one with the same idempotency key.
        """
        self.check()
        self._arriving += 1
        try:
            kept = await self._store.add(job)
        finally:
            self._arriving -= 1
        if kept is not job:
            return self.live(kept.id) or kept
        self._enqueue(job)
        self._fill()
        return job

    def live(self, job_id: str) -> Job | None:
        """A job of which memory knows more than the disk."""
        entry = self._entries.get(job_id)
        return entry.job if entry else self._unsaved.get(job_id)

    def unfinished(self, tenant: str) -> int:
        """A tenant's jobs that wait or run."""
        return sum(entry.job.tenant == tenant for entry in self._entries.values())

    def position(self, job_id: str) -> int | None:
        """Jobs before this one; ``None`` unless it waits."""
        return next((at for at, entry in enumerate(self._waiting) if entry.job.id == job_id), None)

    async def wait(self, job_id: str) -> None:
        """Until a job has ended; at once if it is none of ours."""
        while (entry := self._entries.get(job_id)) is not None:
            await entry.changed.wait()

    async def changes(self, job_id: str) -> AsyncIterator[Job]:
        """The job now and after every change, until it has ended or the server goes down."""
        while (entry := self._entries.get(job_id)) is not None:
            changed = entry.changed
            yield entry.job
            await changed.wait()

    async def cancel(self, job_id: str) -> None:
        """End a job that has not ended. Returns when its work has stopped and its slot is free."""
        entry = self._entries.get(job_id)
        if entry is None:
            return
        if not entry.cancelled:
            entry.cancelled = True
            if entry.task is not None:
                await asyncio.sleep(0)  # a task that is cancelled before its first step would clean nothing up
                entry.task.cancel()
            else:
                self._waiting.remove(entry)
                await run_to_end(self._end(entry, JobState.CANCELED))
        if entry.task is not None:
            await asyncio.wait({entry.task})
        await self.wait(job_id)

    async def close(self, grace: float) -> None:
        """Take no more; let what runs end within ``grace`` seconds, else stop it: then it waits on the disk."""
        self._accepting = False
        tasks = [entry.task for entry in self._running if entry.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._waiting.clear()
        for entry in self._entries.values():
            entry.touch()
        self._entries.clear()

    def _enqueue(self, job: Job) -> None:
        entry = self._entries[job.id] = _Entry(job)
        self._waiting.append(entry)

    def _fill(self) -> None:
        """Start what may start."""
        while self._accepting and self._waiting and len(self._running) < self._concurrency:
            entry = self._waiting.popleft()
            self._running.add(entry)
            entry.task = asyncio.get_running_loop().create_task(self._run(entry), name=f"mineru-job-{entry.job.id}")

    async def _run(self, entry: _Entry) -> None:
        current_job.set(entry.job.id)
        try:
            await self._run_job(entry)
        except asyncio.CancelledError:
            if entry.job.state.ended:
                pass  # the cancel came too late
            elif entry.cancelled:
                await run_to_end(self._end(entry, JobState.CANCELED))
            else:  # the server goes down: it is not the job's fault
                entry.job.attempts -= 1
                entry.job.reset()
                await run_to_end(self._store.update(entry.job))
        except Exception as exc:  # noqa: BLE001 - a bug met by one job must not stop the queue
            _log.exception("the job failed")
            entry.job.error = told(exc).to_dict()
            await self._end(entry, JobState.FAILED)
        finally:
            self._running.discard(entry)
            self._entries.pop(entry.job.id, None)
            entry.touch()
            self._fill()

    async def _run_job(self, entry: _Entry) -> None:
        job = entry.job
        job.state, job.started, job.attempts = JobState.RUNNING, time.time(), job.attempts + 1
        entry.touch()
        await self._store.update(job)
        for file in job.files:
            if not file.state.ended:
                await self._run_one(entry, file)
        await run_to_end(self._end(entry, job.outcome()))

    async def _run_one(self, entry: _Entry, file: JobFile) -> None:
        loop = asyncio.get_running_loop()

        def advance(done: int, total: int) -> None:
            if not file.state.ended:
                file.done, file.total = done, total
                entry.touch()

        def report(done: int, total: int) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(advance, done, total)

        file.state = JobState.RUNNING
        entry.touch()
        try:
            await self._run_file(entry.job, file, report)
        except Exception as exc:  # noqa: BLE001 - one document must not take the others along
            problem = told(exc)
            if problem is not exc:
                _log.exception("a document failed: %s", file.stem)
            file.state, file.error = JobState.FAILED, problem.to_dict()
        else:
            if not file.state.ended:
                file.state = JobState.COMPLETED
        entry.touch()
        await self._store.update(entry.job)

    async def _end(self, entry: _Entry, state: JobState) -> None:
        job = entry.job
        for file in job.files:
            if not file.state.ended:
                file.state = state
        job.state, job.finished = state, time.time()
        try:
            await self._save(job)
        finally:
            self._entries.pop(job.id, None)
            entry.touch()
            self._on_end(job)

    async def _save(self, job: Job) -> None:
        """Write an ended job; where the disk takes nothing, keep it in memory and try again with the next."""
        self._unsaved[job.id] = job
        for unsaved in list(self._unsaved.values()):
            try:
                await self._store.update(unsaved)
            except StoreError as exc:
                _log.error("job %s cannot be written: %s", unsaved.id, exc.message)
                return
            self._unsaved.pop(unsaved.id, None)
