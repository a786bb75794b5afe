"""The worker pool: one bad task costs that task only."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from mineru_engine import shutdown_cached_models
from mineru_engine.errors import MineruError, RuntimeStateError, WorkerCrashedError, WorkerDeadlineError
from mineru_engine.settings import WorkerSettings
from mineru_engine.workers.pool import WorkerPool

TASKS = "worker_tasks"


@pytest.fixture(scope="module", autouse=True)
def _no_other_workers() -> None:
    """Children that are left are then this module's."""
    shutdown_cached_models()


@asynccontextmanager
async def pool(**settings: int) -> AsyncIterator[WorkerPool]:
    made = WorkerPool(WorkerSettings(**{"processes": 1, **settings}))
    try:
        yield made
    finally:
        await made.aclose()
        assert made.statistics().alive == 0


async def busy(workers: WorkerPool) -> None:
    """Wait until a task runs."""
    while workers.statistics().busy == 0:
        await asyncio.sleep(0.01)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]


def test_value_comes_back_and_process_is_reused() -> None:
    async def body() -> None:
        async with pool() as workers:
            value = {"text": "合同", "boxes": [[0.1, 0.2]], "none": None}
            assert await workers.run(f"{TASKS}:echo", {"value": value}, deadline_s=20) == value
            first = await workers.run(f"{TASKS}:pid", {}, deadline_s=20)
            assert await workers.run(f"{TASKS}:pid", {}, deadline_s=20) == first != os.getpid()

    run(body)


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="Windows knows no niceness")
def test_workers_let_their_caller_go_first() -> None:
    async def body() -> None:
        async with pool() as workers:
            pid = await workers.run(f"{TASKS}:pid", {}, deadline_s=20)
            assert psutil.Process(pid).nice() == min(19, psutil.Process().nice() + 5)

    run(body)


def test_printing_cannot_corrupt_the_protocol() -> None:
    async def body() -> None:
        async with pool() as workers:
            assert await workers.run(f"{TASKS}:chatter", {}, deadline_s=20) == "clean"
            assert len(await workers.run(f"{TASKS}:big", {"mib": 8}, deadline_s=20)) == 8 << 20

    run(body)


def test_exception_in_a_task_is_typed_and_leaves_the_worker_alive() -> None:
    async def body() -> None:
        async with pool() as workers:
            first = await workers.run(f"{TASKS}:pid", {}, deadline_s=20)
            with pytest.raises(MineruError, match="ZeroDivisionError: on purpose"):
                await workers.run(f"{TASKS}:fail", {}, deadline_s=20)
            assert await workers.run(f"{TASKS}:pid", {}, deadline_s=20) == first

    run(body)


@pytest.mark.parametrize(("task", "args"), [("sleep", {"seconds": 60}), ("spin_holding_gil", {})])
def test_a_hang_ends_at_the_deadline(task: str, args: dict[str, object]) -> None:
    async def body() -> None:
        async with pool() as workers:
            first = await workers.run(f"{TASKS}:pid", {}, deadline_s=20)
            with pytest.raises(WorkerDeadlineError):
                await workers.run(f"{TASKS}:{task}", args, deadline_s=0.5)
            assert not psutil.pid_exists(first)
            assert await workers.run(f"{TASKS}:echo", {"value": 1}, deadline_s=20) == 1
            assert workers.statistics().restarts == 1

    run(body)


def test_a_crash_is_reported_with_its_signal() -> None:
    async def body() -> None:
        async with pool() as workers:
            with pytest.raises(WorkerCrashedError, match="signal 11"):
                await workers.run(f"{TASKS}:crash", {}, deadline_s=20)
            assert await workers.run(f"{TASKS}:echo", {"value": 1}, deadline_s=20) == 1

    run(body)


def test_a_memory_hog_is_killed() -> None:
    async def body() -> None:
        async with pool(memory_mb=300) as workers:
            with pytest.raises(WorkerCrashedError, match="300 MiB"):
                await workers.run(f"{TASKS}:eat_memory", {"mib": 600}, deadline_s=25)

    run(body)


def test_workers_are_replaced_after_their_share_of_tasks() -> None:
    async def body() -> None:
        async with pool(max_tasks=2) as workers:
            pids = [await workers.run(f"{TASKS}:pid", {}, deadline_s=20) for _ in range(4)]
            assert pids[0] == pids[1] != pids[2] == pids[3]

    run(body)


def test_cancel_kills_the_work_and_returns_after_it_ended(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    async def body() -> None:
        async with pool() as workers:
            first = await workers.run(f"{TASKS}:pid", {}, deadline_s=20)
            args = {"seconds": 3, "mark": str(mark)}
            task = asyncio.create_task(workers.run(f"{TASKS}:sleep", args, deadline_s=20))
            await busy(workers)
            await asyncio.sleep(0.1)
            started = time.monotonic()
            task.cancel()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - started < 2
            assert not psutil.pid_exists(first)
            assert workers.statistics().busy == 0

    run(body)
    assert not mark.exists()
    assert children() == []


def test_cancelled_waiters_leave_the_queue() -> None:
    async def body() -> None:
        async with pool() as workers:
            running = asyncio.create_task(workers.run(f"{TASKS}:sleep", {"seconds": 1}, deadline_s=20))
            await busy(workers)
            queued = [asyncio.create_task(workers.run(f"{TASKS}:echo", {"value": 1}, deadline_s=20)) for _ in range(5)]
            await asyncio.sleep(0.05)
            assert workers.statistics().waiting == 5
            for task in queued:
                task.cancel()
            await asyncio.gather(*queued, return_exceptions=True)
            assert workers.statistics().waiting == 0
            assert await running == "slept"

    run(body)


def test_closed_pool_refuses() -> None:
    async def body() -> None:
        async with pool() as workers:
            await workers.aclose()
            with pytest.raises(RuntimeStateError):
                await workers.run(f"{TASKS}:echo", {"value": 1}, deadline_s=5)

    run(body)


def test_nothing_is_left_after_many_random_cancels() -> None:
    import random

    async def body() -> None:
        rng = random.Random(7)
        async with pool(processes=2) as workers:
            for _ in range(30):
                task = asyncio.create_task(workers.run(f"{TASKS}:sleep", {"seconds": 0.05}, deadline_s=20))
                await asyncio.sleep(rng.random() * 0.15)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert await workers.run(f"{TASKS}:echo", {"value": "fine"}, deadline_s=20) == "fine"
            state = workers.statistics()
            assert (state.busy, state.waiting) == (0, 0)
            leftover = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            assert all(task.get_name() == "mineru-worker-stderr" for task in leftover)

    run(body)
    assert children() == []
