"""The job database."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from mineru_engine.errors import ErrorCode
from mineru_engine.server.jobs import Job, JobFile, JobState, new_job_id
from mineru_engine.server.store import JobStore, StoreError

T = TypeVar("T")


def a_job(tenant: str = "a", key: str | None = None, **values: object) -> Job:
    file = JobFile("x.pdf", "x", "x.pdf", "00", 1, diagnostics=[{"code": "c", "message": "ü", "page": None}])
    return Job(new_job_id(), tenant, {"tier": "flash"}, ["md"], [file], idempotency=key, **values)  # type: ignore[arg-type]


def with_store(path: Path, work: Callable[[JobStore], Awaitable[T]]) -> T:
    async def run() -> T:
        store = JobStore(path)
        await store.open()
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def test_a_job_is_the_same_after_the_process(tmp_path: Path) -> None:
    job = a_job(key="k", request="r", origin={"api": "native"})

    async def keep(store: JobStore) -> None:
        await store.add(job)
        job.state, job.files[0].state, job.finished = JobState.PARTIAL, JobState.PARTIAL, 12.5
        await store.update(job)

    with_store(tmp_path / "jobs.sqlite3", keep)
    assert with_store(tmp_path / "jobs.sqlite3", lambda store: store.get(job.id)) == job


def test_a_poll_does_not_wait_for_a_write(tmp_path: Path) -> None:
    job, disk = a_job(), threading.Event()

    async def work(store: JobStore) -> Job | None:
        await store.add(job)
        writing = asyncio.create_task(store._database.run(disk.wait))
        try:
            return await asyncio.wait_for(store.get(job.id), 10)
        finally:
            disk.set()
            await writing

    assert with_store(tmp_path / "jobs.sqlite3", work) == job


def test_a_key_belongs_to_one_job_of_one_tenant(tmp_path: Path) -> None:
    async def work(store: JobStore) -> None:
        first = a_job("a", "k")
        kept = await asyncio.gather(store.add(first), *(store.add(a_job("a", "k")) for _ in range(20)))
        assert {job.id for job in kept} == {first.id}
        other = a_job("b", "k")
        assert (await store.add(other)) is other
        assert [job.id for job in (await store.find("a", "k"), await store.find("b", "k")) if job] == [
            first.id,
            other.id,
        ]
        assert await store.find("c", "k") is None

    with_store(tmp_path / "jobs.sqlite3", work)


def test_pages_of_jobs_meet_without_gap_or_overlap(tmp_path: Path) -> None:
    async def work(store: JobStore) -> None:
        mine = [await store.add(a_job("a")) for _ in range(7)]
        await store.add(a_job("b"))
        newest = [job.id for job in reversed(mine)]
        seen: list[str] = []
        while page := await store.page("a", limit=3, after=seen[-1] if seen else None):
            seen += [job.id for job in page]
        assert seen == newest
        oldest = await store.page("a", limit=3, oldest_first=True)
        assert [job.id for job in oldest] == newest[::-1][:3]
        following = await store.page("a", limit=3, oldest_first=True, after=oldest[-1].id)
        assert [job.id for job in following] == newest[::-1][3:6]
        mine[2].state = JobState.FAILED
        await store.update(mine[2])
        assert [job.id for job in await store.page("a", states=[JobState.FAILED])] == [mine[2].id]
        assert await store.page("b", after=mine[0].id) == []  # another's job says nothing

    with_store(tmp_path / "jobs.sqlite3", work)


def test_unfinished_jobs_come_in_their_order_and_ended_ones_by_age(tmp_path: Path) -> None:
    async def work(store: JobStore) -> None:
        jobs = [await store.add(a_job()) for _ in range(4)]
        jobs[3].state = JobState.RUNNING
        jobs[0].state, jobs[0].finished = JobState.COMPLETED, 200.0
        jobs[1].state, jobs[1].finished = JobState.FAILED, 100.0
        for job in jobs:
            await store.update(job)
        assert [job.id for job in await store.unfinished()] == [jobs[2].id, jobs[3].id]
        assert await store.ended() == [jobs[1].id, jobs[0].id]
        assert await store.ended(before=150.0) == [jobs[1].id]
        counts = {JobState.COMPLETED: 1, JobState.FAILED: 1, JobState.QUEUED: 1, JobState.RUNNING: 1}
        assert await store.counts() == counts
        await store.delete(jobs[1].id)
        await store.update(jobs[1])
        assert await store.get(jobs[1].id) is None
        assert await store.ids() == {jobs[0].id, jobs[2].id, jobs[3].id}

    with_store(tmp_path / "jobs.sqlite3", work)


def test_a_full_disk_is_a_typed_error_and_passes(tmp_path: Path) -> None:
    async def work(store: JobStore) -> None:
        job = await store.add(a_job())
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count={pages}")
        job.origin = {"filler": "x" * 100_000}
        with pytest.raises(StoreError) as caught:
            await store.update(job)
        assert caught.value.code is ErrorCode.DISK_FULL
        store._connection.execute("PRAGMA max_page_count=100000")
        await store.update(job)
        assert await store.get(job.id) == job

    with_store(tmp_path / "jobs.sqlite3", work)


def test_a_database_that_is_damaged_or_newer_is_refused(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.sqlite3"
    damaged.write_bytes(b"this is no database" * 1000)
    with pytest.raises(StoreError, match="not a database"):
        with_store(damaged, lambda store: store.ids())
    newer = tmp_path / "newer.sqlite3"
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StoreError, match="later version"):
        with_store(newer, lambda store: store.ids())
