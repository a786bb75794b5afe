"""A job: one or more documents with common options, and how far they have come."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self
from uuid import uuid4

__all__ = ("Job", "JobFile", "JobState", "iso", "new_job_id")


class JobState(StrEnum):
    """Life of a job, and of each of its files."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    PARTIAL = "partial"  # of a job: some files failed; of a file: some pages were lost
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self not in (JobState.QUEUED, JobState.RUNNING)

    @property
    def has_result(self) -> bool:
        """Whether there is something to fetch."""
        return self in (JobState.COMPLETED, JobState.PARTIAL)


@dataclass(slots=True)
class JobFile:
    """One document of a job.

    :ivar name: as the client called it.
    :ivar stem: unique in the job; the result's directory and files are named after it.
    :ivar stored: file name of the document in the data directory.
    :ivar size: bytes.
    :ivar pages: page range, one-based, empty for all.
    :ivar done: pages finished.
    :ivar total: pages to do; 0 while unknown.
    :ivar error: :meth:`mineru_engine.errors.MineruError.to_dict` of what ended it.
    :ivar cached: whether an earlier result was given.
    """

    name: str
    stem: str
    stored: str
    sha256: str
    size: int
    pages: str = ""
    state: JobState = JobState.QUEUED
    done: int = 0
    total: int = 0
    tier: str = ""
    engine: str = ""
    model: str = ""
    seconds: float = 0.0
    cached: bool = False
    error: dict[str, Any] | None = None
    diagnostics: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Job:
    """One job.

    :ivar tenant: whose it is; nobody else sees it.
    :ivar options: fields of :class:`~mineru_engine.options.ParseOptions`, without secrets.
    :ivar formats: what is written of each document.
    :ivar origin: which API it came through and what that needs to know to answer.
    :ivar created: seconds since 1970; so are ``started`` and ``finished``.
    :ivar attempts: how often it was begun.
    :ivar error: what ended the job as a whole.
    :ivar idempotency: the client's key, with a digest of what it asked for.
    """

    id: str
    tenant: str
    options: Mapping[str, Any]
    formats: Sequence[str]
    files: list[JobFile]
    origin: dict[str, Any] = field(default_factory=dict)
    state: JobState = JobState.QUEUED
    created: float = field(default_factory=time.time)
    started: float | None = None
    finished: float | None = None
    attempts: int = 0
    error: dict[str, Any] | None = None
    idempotency: str | None = None
    request: str = ""

    @property
    def done(self) -> int:
        """Pages finished."""
        return sum(file.done for file in self.files)

    @property
    def total(self) -> int:
        """Pages to do, as far as known."""
        return sum(file.total for file in self.files)

    @property
    def complaints(self) -> str:
        """What is wrong with its files, in one line; empty if nothing is."""
        return "; ".join(f"{file.name}: {file.error['message']}" for file in self.files if file.error)

    def options_of(self, file: JobFile) -> dict[str, Any]:
        """Fields of ``ParseOptions`` for one of its files."""
        return {**self.options, **({"pages": file.pages} if file.pages else {})}

    def outcome(self) -> JobState:
        """What the states of its files amount to, when all have ended."""
        states = {file.state for file in self.files}
        if states <= {JobState.COMPLETED}:
            return JobState.COMPLETED
        if any(state.has_result for state in states):
            return JobState.PARTIAL
        return JobState.CANCELED if JobState.CANCELED in states else JobState.FAILED

    def reset(self) -> None:
        """Back into the queue: what was finished stays, the rest begins again."""
        self.state, self.started = JobState.QUEUED, None
        for file in self.files:
            if file.state is JobState.RUNNING:
                file.state, file.done, file.total = JobState.QUEUED, 0, 0

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; :meth:`from_dict` reads them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of :meth:`to_dict`."""
        files = [JobFile(**{**file, "state": JobState(file["state"])}) for file in values["files"]]
        return cls(**{**values, "files": files, "state": JobState(values["state"])})


def iso(moment: float | None) -> str | None:
    """A time, in seconds since 1970, as clients see it."""
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


def new_job_id() -> str:
    """An identifier that nobody can guess."""
    return str(uuid4())
