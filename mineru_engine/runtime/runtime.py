"""The resident part of the engine: a loop thread and what lives on it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from mineru_engine.errors import ErrorCode, RuntimeStateError
from mineru_engine.runtime.cancel import run_to_end
from mineru_engine.runtime.loop import JOB_NAME, LoopThread, reentered
from mineru_engine.settings import WorkerSettings
from mineru_engine.workers.pool import PoolStatistics, WorkerPool

if TYPE_CHECKING:
    from mineru_engine.vlm.engine import EngineStatistics, VlmEngine

__all__ = ("Resources", "Runtime", "RuntimeState", "RuntimeStatistics")

T = TypeVar("T")


class RuntimeState(StrEnum):
    """Life of a runtime."""

    STARTING = "starting"  # its engine is not up yet; calls wait for it
    READY = "ready"
    DRAINING = "draining"  # being closed: what runs is cancelled and cleaned up, nothing new starts
    DEAD = "dead"  # the engine is gone or did not come up; closed when the last call has left
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class RuntimeStatistics:
    """State of a runtime at one moment.

    :ivar jobs: calls in progress.
    :ivar engine: ``None`` for a runtime without a vision-language model.
    """

    state: RuntimeState
    jobs: int
    pool: PoolStatistics
    engine: EngineStatistics | None


@dataclass(frozen=True, slots=True)
class Resources:
    """What a job on the runtime's loop may use."""

    pool: WorkerPool
    _engine: VlmEngine | None = None

    async def engine(self) -> VlmEngine:
        """The vision-language engine, started when first asked for.

        :raises EngineError: if it does not come up.
        """
        assert self._engine is not None, "the runtime was made without an engine"
        await self._engine.start()
        return self._engine


Job = Callable[[Resources], Coroutine[Any, Any, T]]


class Runtime:
    """One loop thread, one worker pool and at most one engine, shared by synchronous and asynchronous callers.

    :param make_engine: called once on the loop; ``None`` for tiers that need no vision-language model.
    """

    def __init__(self, workers: WorkerSettings, make_engine: Callable[[WorkerPool], VlmEngine] | None = None) -> None:
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._jobs = 0
        self._draining = False
        self._closed = threading.Event()
        self._loop = LoopThread("mineru-runtime")
        try:
            self._resources = self._loop.call(_make_resources(workers, make_engine))
        except BaseException:
            self._loop.close()
            raise

    @property
    def state(self) -> RuntimeState:
        """Where it is in its life."""
        if self._closed.is_set():
            return RuntimeState.CLOSED
        if self._draining:
            return RuntimeState.DRAINING
        engine = self._resources._engine
        phase = "ready" if engine is None else str(engine.phase)
        return RuntimeState("starting" if phase == "idle" else phase)

    @property
    def usable(self) -> bool:
        """Whether a new call may go here."""
        fine = self.state in (RuntimeState.STARTING, RuntimeState.READY)
        return fine and self.pid == os.getpid() and self._loop.running

    def __repr__(self) -> str:
        engine = self._resources._engine
        what = f" engine={engine.config.engine}" if engine is not None else ""
        return f"<Runtime {self.state} pid={self.pid} jobs={self._jobs} workers={self._resources.pool.size}{what}>"

    def run(self, job: Job[T]) -> T:
        """Run ``job`` on the runtime's loop and block for its result."""
        self._enter()
        try:
            return self._loop.call(job(self._resources))
        finally:
            if self._leave():
                self.close()

    async def arun(self, job: Job[T]) -> T:
        """Run ``job`` on the runtime's loop and await its result from any loop."""
        self._enter()
        try:
            return await self._loop.acall(job(self._resources))
        finally:
            if self._leave():
                await run_to_end(self.aclose())

    def _enter(self) -> None:
        with self._lock:
            if self._draining or not self._loop.running:
                raise RuntimeStateError("the runtime is closed", code=ErrorCode.RUNTIME_CLOSED)
            self._jobs += 1

    def _leave(self) -> bool:
        """Whether the caller was the last one in a dead runtime, and so must close it."""
        with self._lock:
            self._jobs -= 1
            return self._jobs == 0 and self.state is RuntimeState.DEAD and not self._loop.is_own_thread()

    def statistics(self) -> RuntimeStatistics:
        """Counters for the server, the benchmark and tests; may be read from any thread."""
        engine = self._resources._engine
        counted = None if engine is None else engine.statistics()
        return RuntimeStatistics(self.state, self._jobs, self._resources.pool.statistics(), counted)

    def worker_pids(self) -> list[int]:
        """Process ids of the live workers."""
        return self._resources.pool.pids()

    def is_own_thread(self) -> bool:
        """Whether the caller runs on the runtime's own thread."""
        return self._loop.is_own_thread()

    def close(self) -> None:
        """Cancel what runs, end the engine and the workers, stop the thread. Safe to call twice, from any thread.

        :raises RuntimeStateError: if called from the runtime's own thread; it goes on running.
        """
        if self._loop.is_own_thread():
            raise reentered()
        with self._lock:
            first, self._draining = not self._draining, True
        if not first:
            self._closed.wait()
            return
        try:
            self._loop.call(_shut(self._resources))
        finally:
            self._loop.close()
            self._closed.set()

    async def aclose(self) -> None:
        """:meth:`close` without blocking the caller's loop."""
        done: concurrent.futures.Future[None] = concurrent.futures.Future()
        closer = threading.Thread(target=_report, args=(self.close, done), name="mineru-closer", daemon=True)
        closer.start()
        await asyncio.wrap_future(done)
        closer.join()  # it has nothing left to do


def _report(work: Callable[[], None], done: concurrent.futures.Future[None]) -> None:
    try:
        work()
    except BaseException as exc:  # noqa: BLE001 - raised where it is awaited
        done.set_exception(exc)
    else:
        done.set_result(None)


async def _make_resources(workers: WorkerSettings, make_engine: Callable[[WorkerPool], VlmEngine] | None) -> Resources:
    pool = WorkerPool(workers)
    return Resources(pool, None if make_engine is None else make_engine(pool))


async def _shut(resources: Resources) -> None:
    current = asyncio.current_task()
    jobs = [task for task in asyncio.all_tasks() if task is not current and task.get_name() == JOB_NAME]
    for job in jobs:
        job.cancel()
    ending: list[Awaitable[None]] = [resources.pool.aclose()]
    if resources._engine is not None:
        ending.append(resources._engine.aclose())
    for outcome in await asyncio.gather(*ending, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
