"""The resident part of the engine: a loop thread and what lives on it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine
from enum import StrEnum
from typing import Any, TypeVar

from mineru_engine.errors import ErrorCode, RuntimeStateError
from mineru_engine.runtime.loop import JOB_NAME, LoopThread, reentered
from mineru_engine.settings import WorkerSettings
from mineru_engine.workers.pool import PoolStatistics, WorkerPool

__all__ = ("Runtime", "RuntimeState")

T = TypeVar("T")


class RuntimeState(StrEnum):
    """Life of a runtime."""

    READY = "ready"
    CLOSED = "closed"


class Runtime:
    """One loop thread and one worker pool, shared by synchronous and asynchronous callers."""

    def __init__(self, workers: WorkerSettings) -> None:
        self.pid = os.getpid()
        self.state = RuntimeState.READY
        self._loop = LoopThread("mineru-runtime")
        self._pool = self._loop.call(_make_pool(workers))

    def __repr__(self) -> str:
        return f"<Runtime {self.state} pid={self.pid} workers={self._pool.size}>"

    def run(self, job: Callable[[WorkerPool], Coroutine[Any, Any, T]]) -> T:
        """Run ``job`` on the runtime's loop and block for its result."""
        self._check()
        return self._loop.call(job(self._pool))

    async def arun(self, job: Callable[[WorkerPool], Coroutine[Any, Any, T]]) -> T:
        """Run ``job`` on the runtime's loop and await its result from any loop."""
        self._check()
        return await self._loop.acall(job(self._pool))

    def statistics(self) -> PoolStatistics:
        """Counters of the worker pool."""
        return self._pool.statistics()

    def worker_pids(self) -> list[int]:
        """Process ids of the live workers."""
        return self._pool.pids()

    def _check(self) -> None:
        if self.state is RuntimeState.CLOSED or not self._loop.running:
            raise RuntimeStateError("the runtime is closed", code=ErrorCode.RUNTIME_CLOSED)

    def close(self) -> None:
        """Cancel what runs, end the workers, stop the thread. Safe to call twice.

        :raises RuntimeStateError: if called from the runtime's own thread; it goes on running.
        """
        if self._loop.is_own_thread():
            raise reentered()
        if self.state is RuntimeState.CLOSED:
            return
        self.state = RuntimeState.CLOSED
        self._loop.call(_shut(self._pool.aclose))
        self._loop.close()


async def _make_pool(workers: WorkerSettings) -> WorkerPool:
    return WorkerPool(workers)


async def _shut(aclose: Callable[[], Awaitable[None]]) -> None:
    import asyncio

    current = asyncio.current_task()
    jobs = [task for task in asyncio.all_tasks() if task is not current and task.get_name() == JOB_NAME]
    for job in jobs:
        job.cancel()
    await aclose()
