"""The data directory: documents that came in, and results.

::

    DATA/lock                     held by the server that uses the directory
    DATA/jobs.sqlite3             see store.py
    DATA/jobs/<id>/input/         documents, under safe names
    DATA/jobs/<id>/output/<stem>/ results, as `mineru parse` writes them
    DATA/incoming/                uploads that are not yet a job; emptied at every start
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection
from pathlib import Path
from uuid import uuid4

from mineru_engine.errors import ErrorCode, OutputError
from mineru_engine.server.jobs import Job, JobFile

__all__ = ("Storage",)


class Storage:
    """Directories of jobs below one data directory. Methods that touch the disk block: call them in a thread."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._jobs = root / "jobs"
        self.incoming = root / "incoming"
        self._lock: int | None = None

    @property
    def database(self) -> Path:
        """Where the job database lies."""
        return self.root / "jobs.sqlite3"

    def open(self) -> None:
        """Make the directories, and make sure that no other server uses them. Uploads half received are removed.

        :raises OutputError: if another server does, or the place cannot be written.
        """
        try:
            for directory in (self.root, self._jobs):
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = _locked(self.root / "lock")
            shutil.rmtree(self.incoming, ignore_errors=True)
            self.incoming.mkdir(mode=0o700)
        except OutputError:
            raise
        except OSError as exc:
            raise OutputError(
                f"cannot use the data directory {self.root}: {exc.strerror or exc}", hint="choose another: --data-dir"
            ) from exc

    def close(self) -> None:
        """Let another server use the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def sweep(self, known: Collection[str]) -> None:
        """Remove what a killed server left: directories of jobs that nobody knows, and results half written."""
        for path in self._jobs.iterdir():
            if path.name not in known:
                shutil.rmtree(path, ignore_errors=True)
        for path in self._jobs.glob("*/output/.mineru-*"):
            shutil.rmtree(path, ignore_errors=True)

    def new_upload(self) -> Path:
        """A fresh directory for documents on their way in."""
        path = self.incoming / uuid4().hex
        path.mkdir(mode=0o700)
        return path

    def accept(self, upload: Path, job: Job) -> None:
        """Make an upload the input of a job, in one step on the disk."""
        home = self._jobs / job.id
        home.mkdir(mode=0o700)
        upload.rename(home / "input")

    def discard(self, upload: Path) -> None:
        """Remove an upload that became no job."""
        shutil.rmtree(upload, ignore_errors=True)

    def input(self, job: Job, file: JobFile) -> Path:
        """Where a document lies."""
        return self._jobs / job.id / "input" / file.stored

    def output(self, job: Job) -> Path:
        """The directory below which each document of the job has its result's directory."""
        return self._jobs / job.id / "output"

    def result(self, job: Job, file: JobFile) -> Path:
        """The directory of one document's result."""
        return self.output(job) / file.stem

    def delete(self, job_id: str) -> None:
        """Remove all files of a job."""
        shutil.rmtree(self._jobs / job_id, ignore_errors=True)

    def delete_output(self, job: Job) -> None:
        """Remove the results of a job."""
        shutil.rmtree(self.output(job), ignore_errors=True)

    def size(self, job_id: str) -> int:
        """Bytes that a job takes on the disk."""
        return sum(path.stat().st_size for path in (self._jobs / job_id).rglob("*") if path.is_file())

    def free_bytes(self) -> int:
        """Room left on the disk."""
        return shutil.disk_usage(self.root).free


def _locked(path: Path) -> int:
    """A file descriptor that holds an exclusive lock until it is closed or the process ends."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise OutputError(
            f"another server uses the data directory {path.parent}",
            code=ErrorCode.OUTPUT_EXISTS,
            hint="stop it, or choose another: --data-dir",
        ) from None
    return handle
