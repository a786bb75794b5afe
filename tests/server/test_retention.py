"""What is thrown away: ended jobs that are too old, then the oldest until the rest is small enough."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from mineru_engine.server.jobs import Job, JobFile, JobState, new_job_id
from mineru_engine.server.retention import Retention
from mineru_engine.server.storage import Storage
from mineru_engine.server.store import JobStore
from mineru_engine.settings import ServerSettings

HOUR, MB = 3600.0, 1_000_000


async def kept(place: Path, ages: list[float | None], **limits: Any) -> list[int]:
    """Numbers of the jobs that two sweeps leave; each has 1 MB and ended so many hours ago, or has not ended."""
    storage = Storage(place)
    storage.open()
    store = JobStore(storage.database)
    await store.open()
    try:
        jobs = [await added(store, storage, age) for age in ages]
        retention = Retention(store, storage, ServerSettings(**limits))
        await retention.sweep()
        await retention.sweep()
        left = await store.ids()
        assert {path.name for path in (place / "jobs").iterdir()} == left
        return [number for number, job in enumerate(jobs) if job.id in left]
    finally:
        await store.close()
        storage.close()


async def added(store: JobStore, storage: Storage, age: float | None) -> Job:
    state = JobState.QUEUED if age is None else JobState.COMPLETED
    job = Job(new_job_id(), "a", {}, ["md"], [JobFile("x.pdf", "x", "x.pdf", "00", MB)], state=state)
    job.finished = None if age is None else time.time() - age * HOUR
    upload = storage.new_upload()
    (upload / "x.pdf").write_bytes(bytes(MB))
    storage.accept(upload, job)
    await store.add(job)
    await store.update(job)
    return job


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"retention_hours": 24, "retention_gb": 0}, [0, 2, 3]),
        ({"retention_hours": 0, "retention_gb": 0}, [0, 1, 2, 3]),
        ({"retention_hours": 0, "retention_gb": 0.0021}, [0, 2, 3]),
        ({"retention_hours": 0, "retention_gb": 0.0005}, [3]),
    ],
)
def test_the_oldest_go_first_and_what_waits_stays(tmp_path: Path, limits: dict[str, float], left: list[int]) -> None:
    assert asyncio.run(kept(tmp_path, [1.0, 30.0, 2.0, None], **limits)) == left
