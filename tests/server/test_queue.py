"""Order, bounds, cancellation and recovery of the queue, with documents that a test lets end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mineru_engine.errors import ErrorCode, MineruError
from mineru_engine.server.database import StoreError
from mineru_engine.server.jobs import Job, JobFile, JobState, new_job_id
from mineru_engine.server.queue import JobQueue, QueueClosedError, QueueFullError
from mineru_engine.server.store import JobStore


def a_job(*names: str, key: str | None = None) -> Job:
    files = [JobFile(name, name, name, "00", 1) for name in names or ("x",)]
    return Job(new_job_id(), "a", {}, ["md"], files, idempotency=key)


class Desk:
    """Runs documents: each waits for :meth:`release`.

    :ivar begun: names of the documents, in order.
    :ivar most: running at once.
    """

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.most = 0
        self.running = 0
        self.errors: dict[str, Exception] = {}
        self._gates: dict[str, asyncio.Event] = {}

    def release(self, *names: str) -> None:
        for name in names:
            self._gates.setdefault(name, asyncio.Event()).set()

    async def __call__(self, job: Job, file: JobFile, report: Callable[[int, int], None]) -> None:
        self.begun.append(file.stem)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            report(1, 3)
            await self._gates.setdefault(file.stem, asyncio.Event()).wait()
            if file.stem in self.errors:
                raise self.errors[file.stem]
        finally:
            await asyncio.sleep(0)  # a clean-up that takes its time
            self.running -= 1
            self.ended.append(file.stem)


@asynccontextmanager
async def a_queue(path: Path, desk: Desk, **options: Any) -> AsyncIterator[JobQueue]:
    store = JobStore(path / "jobs.sqlite3")
    await store.open()
    queue = JobQueue(store, desk, **options)
    try:
        yield queue
    finally:
        await queue.close(0)
        await store.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_jobs_run_in_order_and_no_more_at_once_than_allowed(tmp_path: Path) -> None:
    async def work() -> None:
        desk = Desk()
        async with a_queue(tmp_path, desk, concurrency=2) as queue:
            names = [f"d{number}" for number in range(6)]
            jobs = [await queue.submit(a_job(name)) for name in names]
            await until(lambda: len(desk.begun) == 2)
            assert [queue.position(job.id) for job in jobs] == [None, None, 0, 1, 2, 3]
            assert (queue.running, queue.waiting) == (2, 4)
            for name, job in zip(names, jobs, strict=True):
                desk.release(name)
                await queue.wait(job.id)
                assert job.state is JobState.COMPLETED
            assert desk.begun == names
            assert desk.most == 2

    run(work())


def test_files_of_a_job_run_in_order_and_one_failure_makes_it_partial(tmp_path: Path) -> None:
    async def work() -> None:
        desk = Desk()
        desk.errors = {"b": MineruError("damaged", code=ErrorCode.FILE_DAMAGED), "c": RuntimeError("secret detail")}
        desk.release("a", "b", "c", "d")
        async with a_queue(tmp_path, desk, concurrency=4) as queue:
            job = await queue.submit(a_job("a", "b", "c", "d"))
            await queue.wait(job.id)
            assert desk.begun == ["a", "b", "c", "d"]
            assert desk.most == 1
            assert job.state is JobState.PARTIAL
            completed, failed = JobState.COMPLETED, JobState.FAILED
            assert [file.state for file in job.files] == [completed, failed, failed, completed]
            errors = [file.error for file in job.files if file.error]
            assert [error["code"] for error in errors] == ["file_damaged", "internal"]
            assert "secret" not in str(errors)

    run(work())


def test_a_full_queue_refuses_and_takes_again_when_there_is_room(tmp_path: Path) -> None:
    async def work() -> None:
        desk = Desk()
        async with a_queue(tmp_path, desk, limit=2) as queue:
            await queue.submit(a_job("run"))
            answers = await asyncio.gather(*(queue.submit(a_job()) for _ in range(10)), return_exceptions=True)
            assert sum(isinstance(answer, Job) for answer in answers) == 2  # also when they come at the same moment
            assert {type(answer) for answer in answers} == {Job, QueueFullError}
            desk.release("run", "x")
            await until(lambda: not queue.running)
            await queue.submit(a_job())

    run(work())


def test_cancelling_a_waiting_job_never_starts_it(tmp_path: Path) -> None:
    async def work() -> None:
        desk, ended = Desk(), list[str]()
        async with a_queue(tmp_path, desk, on_end=lambda job: ended.append(job.id)) as queue:
            await queue.submit(a_job("run"))
            waiting = await queue.submit(a_job("never"))
            await queue.cancel(waiting.id)
            assert waiting.state is JobState.CANCELED
            assert [file.state for file in waiting.files] == [JobState.CANCELED]
            assert ended == [waiting.id]
            desk.release("run")
            await until(lambda: not queue.running)
            assert desk.begun == ["run"]

    run(work())


def test_cancelling_a_running_job_returns_when_its_work_has_stopped(tmp_path: Path) -> None:
    async def work() -> None:
        desk = Desk()
        async with a_queue(tmp_path, desk) as queue:
            job = await queue.submit(a_job("a", "b"))
            following = await queue.submit(a_job("next"))
            await until(lambda: desk.running)
            await asyncio.gather(*(queue.cancel(job.id) for _ in range(3)))
            assert desk.ended[0] == "a"
            assert "b" not in desk.begun
            assert job.state is JobState.CANCELED
            assert (await queue._store.get(job.id)) == job
            desk.release("next")
            await queue.wait(following.id)
            assert following.state is JobState.COMPLETED

    run(work())


def test_a_job_cancelled_at_the_moment_it_starts_frees_its_slot(tmp_path: Path) -> None:
    async def work() -> None:
        desk = Desk()
        async with a_queue(tmp_path, desk) as queue:
            job = await queue.submit(a_job("a"))  # its task exists, and has not run yet
            assert queue.running == 1 and not desk.begun
            async with asyncio.timeout(10):
                await queue.cancel(job.id)
            assert job.state is JobState.CANCELED
            assert not queue.running

    run(work())


def test_a_cancel_that_comes_too_late_changes_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        desk = Desk()
        async with a_queue(tmp_path, desk) as queue:
            job = await queue.submit(a_job("a"))
            await until(lambda: desk.running)
            desk.release("a")
            await until(lambda: job.state.ended)  # on its way to the disk
            await queue.cancel(job.id)
            assert job.state is JobState.COMPLETED
            assert (await queue._store.get(job.id)) == job

    run(work())


def test_followers_see_every_state_and_the_end(tmp_path: Path) -> None:
    async def work() -> None:
        desk = Desk()
        async with a_queue(tmp_path, desk) as queue:
            first = await queue.submit(a_job("first"))
            job = await queue.submit(a_job("a"))
            seen: list[tuple[JobState, int]] = []

            async def follow() -> None:
                async for live in queue.changes(job.id):
                    seen.append((live.state, live.done))  # noqa: PERF401 - as they are at that moment

            follower = asyncio.create_task(follow())
            desk.release("first")
            await queue.wait(first.id)
            await until(lambda: job.done == 1)
            desk.release("a")
            await follower
            assert next(state for state, _ in seen) is JobState.QUEUED
            assert (JobState.RUNNING, 1) in seen
            assert job.state is JobState.COMPLETED

    run(work())


def test_closing_lets_running_jobs_end_and_keeps_the_others_for_the_next_start(tmp_path: Path) -> None:
    async def work() -> None:
        desk = Desk()
        async with a_queue(tmp_path, desk) as queue:
            running, waiting = await queue.submit(a_job("a")), await queue.submit(a_job("b"))
            await until(lambda: desk.running)
            closing = asyncio.create_task(queue.close(30))
            await asyncio.sleep(0)
            with pytest.raises(QueueClosedError):
                await queue.submit(a_job())
            desk.release("a")
            await closing
            assert running.state is JobState.COMPLETED
        desk.release("b")
        async with a_queue(tmp_path, desk) as queue:
            await queue.recover()
            await queue.wait(waiting.id)
            kept = await queue._store.get(waiting.id)
            assert kept is not None and (kept.state, kept.attempts) == (JobState.COMPLETED, 1)
        assert desk.begun == ["a", "b"]

    run(work())


def test_what_a_shutdown_cuts_off_runs_again_and_does_not_count_as_an_attempt(tmp_path: Path) -> None:
    async def work() -> None:
        job = a_job("done", "cut")
        for start in range(4):  # more often than a job may be interrupted
            desk = Desk()
            desk.release("done")
            async with a_queue(tmp_path, desk) as queue:
                await (queue.recover() if start else queue.submit(job))
                await until(lambda desk=desk: "cut" in desk.begun)
        desk = Desk()
        desk.release("cut")
        async with a_queue(tmp_path, desk) as queue:
            await queue.recover()
            await queue.wait(job.id)
            kept = await queue._store.get(job.id)
            assert kept is not None and (kept.state, kept.attempts) == (JobState.COMPLETED, 1)
            assert desk.begun == ["cut"]  # what was finished is not done again

    run(work())


async def _crash(path: Path, job: Job | None, finished: str | None = None) -> None:
    """A server that takes or finds a job, begins it, and is gone without a word."""
    store = JobStore(path / "jobs.sqlite3")
    await store.open()
    desk = Desk()
    if finished:
        desk.release(finished)
    queue = JobQueue(store, desk)
    await (queue.recover() if job is None else queue.submit(job))
    await until(lambda: desk.running and (not finished or finished in desk.ended))
    tasks = [entry.task for entry in queue._running if entry.task]
    await store.close()  # from here on nothing reaches the disk
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_job_that_was_running_starts_again_once(tmp_path: Path) -> None:
    async def work() -> None:
        job = a_job("a")
        await _crash(tmp_path, job)
        desk = Desk()
        desk.release("a")
        async with a_queue(tmp_path, desk) as queue:
            await queue.recover()
            await queue.wait(job.id)
            kept = await queue._store.get(job.id)
            assert kept is not None and (kept.state, kept.attempts) == (JobState.COMPLETED, 2)

    run(work())


def test_after_the_second_crash_a_job_is_given_up(tmp_path: Path) -> None:
    async def work() -> None:
        job = a_job("done", "poison")
        await _crash(tmp_path, job, finished="done")
        await _crash(tmp_path, None)
        desk = Desk()
        async with a_queue(tmp_path, desk) as queue:
            await queue.recover()
            kept = await queue._store.get(job.id)
            assert kept is not None and kept.state is JobState.PARTIAL  # what was finished can be fetched
            assert kept.error is not None and kept.error["code"] == "job_interrupted"
            assert [file.state for file in kept.files] == [JobState.COMPLETED, JobState.FAILED]
            assert kept.files[1].error == kept.error
            assert not desk.begun

    run(work())


def test_a_job_that_cannot_be_written_ends_in_memory_and_reaches_the_disk_later(tmp_path: Path) -> None:
    async def work() -> None:
        desk = Desk()
        async with a_queue(tmp_path, desk) as queue:
            store, update = queue._store, queue._store.update
            job = await queue.submit(a_job("a"))
            await until(lambda: desk.running)

            async def full(job: Job) -> None:
                raise StoreError("no space", code=ErrorCode.DISK_FULL)

            store.update = full  # type: ignore[method-assign]
            desk.release("a", "b")
            await queue.wait(job.id)
            assert job.state is JobState.FAILED
            assert job.error is not None and job.error["code"] == "disk_full"
            assert queue.live(job.id) is job
            store.update = update  # type: ignore[method-assign]
            following = await queue.submit(a_job("b"))
            await queue.wait(following.id)
            assert following.state is JobState.COMPLETED
            assert queue.live(job.id) is None
            assert (await store.get(job.id)) == job

    run(work())


def test_the_same_key_gives_the_live_job(tmp_path: Path) -> None:
    async def work() -> None:
        desk = Desk()
        async with a_queue(tmp_path, desk) as queue:
            first = await queue.submit(a_job("a", key="k"))
            assert (await queue.submit(a_job("a", key="k"))) is first
            await until(lambda: desk.begun)
            desk.release("a")
            await queue.wait(first.id)
            again = await queue.submit(a_job("a", key="k"))
            assert again == first
            assert desk.begun == ["a"]

    run(work())
