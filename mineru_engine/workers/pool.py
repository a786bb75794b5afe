"""A small pool of worker processes, shared by all documents of the process."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

from mineru_engine.errors import ErrorCode, RuntimeStateError
from mineru_engine.runtime.cancel import run_to_end
from mineru_engine.settings import WorkerSettings
from mineru_engine.workers.process import WorkerProcess

__all__ = ("PoolStatistics", "WorkerPool", "usable_cores")

_MAX_DEFAULT_WORKERS = 8
_OPEN_DOCUMENTS = 2
_CANCEL_GRACE_S = 0.25


def usable_cores() -> int:
    """Cores this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows
        return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """State of the pool at one moment.

    :ivar restarts: children replaced after a crash, a deadline or a cancel.
    """

    size: int
    alive: int
    busy: int
    waiting: int
    tasks_done: int
    restarts: int


class WorkerPool:
    """Runs tasks in at most ``size`` child processes, started when first needed.

    Lives on one event loop. Tasks are served in order of arrival; a task prefers an idle child that
    already holds its document open.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self.size = settings.processes or min(usable_cores(), _MAX_DEFAULT_WORKERS)
        self._slots = asyncio.Semaphore(self.size)
        self._idle: list[WorkerProcess] = []
        self._busy: set[WorkerProcess] = set()
        self._waiting = 0
        self._tasks_done = 0
        self._restarts = 0
        self._closed = False

    def statistics(self) -> PoolStatistics:
        """Counters for tests, the server and the benchmark."""
        alive = len(self._idle) + len(self._busy)
        return PoolStatistics(self.size, alive, len(self._busy), self._waiting, self._tasks_done, self._restarts)

    def pids(self) -> list[int]:
        """Process ids of the live children."""
        return [worker.pid for worker in (*self._idle, *self._busy)]

    async def run(self, task: str, args: dict[str, Any], *, deadline_s: float, document: str | None = None) -> Any:
        """Run ``task`` (``module:function``) with keyword ``args`` in a child.

        Cancelling waits for the task in flight for a moment, then kills its process, and returns only
        when the process is idle or gone.

        :param deadline_s: seconds the task may take, not counting the wait for a free child.
        :param document: key of the document concerned, for reuse of open documents.
        :raises WorkerError: if the process crashed or ran past the deadline.
        """
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            worker = await self._take(document)
            return await self._run_on(worker, task, args, deadline_s, document)
        finally:
            self._slots.release()

    async def _take(self, document: str | None) -> WorkerProcess:
        if self._closed:
            raise RuntimeStateError("the worker pool is closed", code=ErrorCode.RUNTIME_CLOSED)
        self._idle = [worker for worker in self._idle if worker.alive]
        idle = [worker for worker in self._idle if document in worker.documents] or self._idle
        if idle:
            worker = idle[-1]
            self._idle.remove(worker)
        else:
            worker = await WorkerProcess.start(self._settings.memory_mb)
        self._busy.add(worker)
        return worker

    async def _run_on(
        self, worker: WorkerProcess, task: str, args: dict[str, Any], deadline_s: float, document: str | None
    ) -> Any:
        drop = self._make_room(worker, document)
        work = asyncio.create_task(worker.run(task, args, deadline_s=deadline_s, drop=drop))
        try:
            value = await asyncio.shield(work)
        except asyncio.CancelledError:
            await run_to_end(self._abandon(worker, work))
            raise
        except BaseException:
            await run_to_end(self._put_back(worker))
            raise
        self._tasks_done += 1
        await run_to_end(self._put_back(worker))
        return value

    def _make_room(self, worker: WorkerProcess, document: str | None) -> list[str]:
        if document is None:
            return []
        if document in worker.documents:
            worker.documents.remove(document)
        worker.documents.append(document)
        surplus = worker.documents[:-_OPEN_DOCUMENTS]
        del worker.documents[:-_OPEN_DOCUMENTS]
        return surplus

    async def _abandon(self, worker: WorkerProcess, work: asyncio.Task[Any]) -> None:
        """The caller was cancelled: let a short task end, kill a long one."""
        await asyncio.wait({work}, timeout=_CANCEL_GRACE_S)
        if not work.done():
            await worker.kill()
            await asyncio.wait({work})
        if not work.cancelled():
            work.exception()  # retrieved: nobody else will
        await self._put_back(worker)

    async def _put_back(self, worker: WorkerProcess) -> None:
        self._busy.discard(worker)
        if not worker.alive:
            self._restarts += 1
            await worker.kill()
        elif (
            self._closed or worker.tasks_done >= self._settings.max_tasks or worker.rss_mb() > self._settings.recycle_mb
        ):
            await worker.aclose()
        else:
            self._idle.append(worker)

    def forget(self, document: str) -> None:
        """A document is finished: children that hold it open and are idle let go of it."""
        for worker in self._idle:
            if document in worker.documents:
                worker.documents.remove(document)
                worker.forget([document])

    async def aclose(self) -> None:
        """Refuse new tasks, wait for those in flight, end all children. Safe to call twice."""
        self._closed = True
        for _ in range(self.size):
            await self._slots.acquire()
        idle, self._idle = self._idle, []
        await asyncio.gather(*(worker.aclose() for worker in idle))
        for _ in range(self.size):
            self._slots.release()
