"""What must survive the process: all jobs, in SQLite (see :mod:`database`)."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import Any

import orjson

from mineru_engine.server.database import Database, StoreError
from mineru_engine.server.jobs import Job, JobState

__all__ = ("JobStore",)

SCHEMA = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS jobs (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT NOT NULL UNIQUE,
    tenant      TEXT NOT NULL,
    state       TEXT NOT NULL,
    created     REAL NOT NULL,
    finished    REAL,
    idempotency TEXT,
    document    BLOB NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS jobs_idempotency ON jobs (tenant, idempotency) WHERE idempotency IS NOT NULL;
CREATE INDEX IF NOT EXISTS jobs_tenant ON jobs (tenant, number);
CREATE INDEX IF NOT EXISTS jobs_state ON jobs (state, finished);
CREATE TABLE IF NOT EXISTS results (
    key  TEXT PRIMARY KEY,
    job  TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    stem TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS results_job ON results (job);
"""


class JobStore:
    """Jobs on disk.

    :param path: of the database; made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self._database = Database(path, "job")
        self._run = self._database.run

    async def open(self) -> None:
        """Open or make the database.

        :raises StoreError: if it is damaged, or of a later version.
        """
        await self._database.open(self._prepare)

    async def close(self) -> None:
        """Write everything and let go."""
        await self._database.close()

    async def add(self, job: Job) -> Job:
        """Keep a new job.

        :return: the job, or the earlier one with the same idempotency key.
        """
        return await self._run(lambda: self._add(job))

    async def update(self, job: Job) -> None:
        """Keep a job's new state; nothing happens if it was deleted."""
        document = _packed(job)  # now: the job may change before the thread gets to it
        values = (job.state, job.finished, document, job.id)
        await self._run(lambda: self._write("UPDATE jobs SET state=?, finished=?, document=? WHERE id=?", values))

    async def get(self, job_id: str) -> Job | None:
        """One job."""
        found = await self._look("WHERE id=?", (job_id,))
        return found[0] if found else None

    async def find(self, tenant: str, idempotency: str) -> Job | None:
        """The job that a tenant made with an idempotency key."""
        found = await self._look("WHERE tenant=? AND idempotency=?", (tenant, idempotency))
        return found[0] if found else None

    async def page(
        self,
        tenant: str,
        *,
        states: Collection[JobState] = (),
        limit: int = 20,
        after: str | None = None,
        oldest_first: bool = False,
        since: float = 0.0,
    ) -> list[Job]:
        """A tenant's jobs, the newest first.

        :param after: id of the last job of the page before.
        :param since: seconds since 1970; older ones are left out.
        """
        clauses, values = ["tenant=?", "created>=?"], [tenant, since]
        if states:
            clauses.append(f"state IN ({','.join('?' * len(states))})")
            values += list(states)
        if after is not None:
            clauses.append(f"number{'>' if oldest_first else '<'}(SELECT number FROM jobs WHERE id=? AND tenant=?)")
            values += [after, tenant]
        order = f"ORDER BY number {'ASC' if oldest_first else 'DESC'} LIMIT ?"
        where = f"WHERE {' AND '.join(clauses)} {order}"
        return await self._look(where, (*values, limit))

    async def unfinished(self) -> list[Job]:
        """Jobs that were queued or running when the server went, in their order."""
        return await self._look("WHERE state IN (?,?) ORDER BY number", (JobState.QUEUED, JobState.RUNNING))

    async def ended(self, before: float = float("inf")) -> list[str]:
        """Ids of the jobs that ended before a time (seconds since 1970), the oldest first."""
        select = "SELECT id FROM jobs WHERE finished IS NOT NULL AND finished<? ORDER BY finished"
        return [job_id for (job_id,) in await self._rows(select, (before,))]

    async def ids(self) -> set[str]:
        """The ids of all jobs."""
        return {job_id for (job_id,) in await self._rows("SELECT id FROM jobs")}

    async def counts(self) -> dict[JobState, int]:
        """Number of jobs in each state."""
        rows = await self._rows("SELECT state, count(*) FROM jobs GROUP BY state")
        return {JobState(state): count for state, count in rows}

    async def keep_result(self, key: str, job_id: str, stem: str) -> None:
        """Note which document of a job has the latest result for a cache key; forgotten with the job."""
        await self._run(lambda: self._write("INSERT OR REPLACE INTO results VALUES (?,?,?)", (key, job_id, stem)))

    async def result(self, key: str) -> tuple[Job, str] | None:
        """The job with a result for a cache key, and the stem of its document."""
        query = "SELECT document, stem FROM jobs JOIN results ON job=id WHERE key=?"
        rows = await self._rows(query, (key,))
        return (_unpacked(rows[0][0]), rows[0][1]) if rows else None

    async def delete(self, job_id: str) -> None:
        """Forget a job."""
        await self._run(lambda: self._write("DELETE FROM jobs WHERE id=?", (job_id,)))

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._database.connection

    def _prepare(self) -> None:
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA:
            raise StoreError(f"{self._name} was written by a later version (schema {version}, here {SCHEMA})")
        self._connection.execute("PRAGMA foreign_keys=ON")
        if version < SCHEMA:
            self._connection.executescript(f"BEGIN;{_TABLES}PRAGMA user_version={SCHEMA};COMMIT;")

    def _add(self, job: Job) -> Job:
        values = (job.id, job.tenant, job.state, job.created, job.idempotency, _packed(job))
        try:
            self._write(
                "INSERT INTO jobs (id, tenant, state, created, idempotency, document) VALUES (?,?,?,?,?,?)", values
            )
        except sqlite3.IntegrityError:
            found = _read(self._connection, "WHERE tenant=? AND idempotency=?", (job.tenant, job.idempotency))
            if not found:
                raise
            return found[0]
        return job

    def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        self._connection.execute(statement, values)

    async def _look(self, where: str, values: tuple[Any, ...]) -> list[Job]:
        return await self._database.read(lambda: _read(self._database.reading, where, values))

    async def _rows(self, select: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return await self._database.read(lambda: self._database.reading.execute(select, values).fetchall())


def _read(connection: sqlite3.Connection, where: str, values: tuple[Any, ...]) -> list[Job]:
    return [_unpacked(row[0]) for row in connection.execute(f"SELECT document FROM jobs {where}", values)]


def _packed(job: Job) -> bytes:
    return orjson.dumps(job.to_dict())


def _unpacked(document: bytes) -> Job:
    return Job.from_dict(orjson.loads(document))
