"""Uploads and files of MinerU 4.0's V1: what they are called and where they lie.

::

    DATA/files.sqlite3      both tables
    DATA/files/<upload id>  bytes that were uploaded

A file is an uploaded document, or what came out of a job: then it lies in the job's directory and goes with it. Nobody
but its tenant can see or name it. An upload whose bytes were received completely survives the process, one that was
being received does not: what ``PUT`` had not answered must be sent again. Removed are files that have expired, when the
next upload is made and at every start.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from secrets import token_hex
from typing import Any, Self

from mineru_engine.server.database import Database
from mineru_engine.server.storage import Storage

__all__ = ("FileStore", "StoredFile", "StoredUpload", "new_id")

_TABLES = """
CREATE TABLE IF NOT EXISTS files (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, name TEXT NOT NULL,
    size INTEGER NOT NULL, sha256 TEXT NOT NULL, purpose TEXT NOT NULL, created REAL NOT NULL, expires REAL,
    path TEXT NOT NULL, deleted INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS files_sha256 ON files (tenant, sha256);
CREATE TABLE IF NOT EXISTS uploads (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, size INTEGER NOT NULL, mime TEXT NOT NULL,
    sha256 TEXT NOT NULL, purpose TEXT NOT NULL, status TEXT NOT NULL, created REAL NOT NULL, expires REAL NOT NULL,
    file_expires REAL, received TEXT NOT NULL, file TEXT NOT NULL
);
"""


@dataclass(slots=True)
class StoredFile:
    """One file.

    :ivar purpose: ``parse`` or ``input_image`` as it was uploaded, ``parse_output`` as it came out.
    :ivar created: seconds since 1970; so is ``expires``, ``None`` for never.
    :ivar path: relative to the data directory.
    """

    id: str
    tenant: str
    name: str
    size: int
    sha256: str
    purpose: str
    created: float
    expires: float | None
    path: str

    @property
    def is_output(self) -> bool:
        """Whether it came out of a job."""
        return self.purpose == "parse_output"


@dataclass(slots=True)
class StoredUpload:
    """A file on its way in.

    :ivar size: bytes, as announced.
    :ivar sha256: as announced, or empty.
    :ivar status: ``pending``, ``completed`` or ``cancelled``.
    :ivar expires: seconds since 1970, when it is forgotten; ``file_expires`` is that of its file.
    :ivar received: SHA-256 of what has come, or empty.
    :ivar file: id of what it became, or empty.
    """

    id: str
    tenant: str
    name: str
    size: int
    mime: str
    sha256: str
    purpose: str
    status: str
    created: float
    expires: float
    file_expires: float | None
    received: str = ""
    file: str = ""


_FILE = ", ".join(item.name for item in fields(StoredFile))
_UPLOAD = ", ".join(item.name for item in fields(StoredUpload))


def new_id(prefix: str) -> str:
    """An identifier as 4.0 makes them, which nobody can guess."""
    return prefix + token_hex(12)


class FileStore:
    """The two tables and the directory; an asynchronous context manager."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._blobs = storage.root / "files"
        self._database = Database(storage.root / "files.sqlite3", "file")
        self._run = self._database.run

    async def __aenter__(self) -> Self:
        await self._database.open(self._prepare)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._database.close()

    def path(self, file: StoredFile) -> Path:
        """Where a file lies."""
        return self._storage.root / file.path

    def blob(self, upload_id: str) -> Path:
        """Where the bytes of an upload lie once they were received."""
        return self._blobs / upload_id

    async def add(self, *files: StoredFile) -> None:
        """Keep files; those that are known stay as they are."""
        await self._run(lambda: self._connection.executemany(_insert("files", _FILE), map(asdict, files)))

    async def get(self, file_id: str, tenant: str) -> StoredFile | None:
        """A tenant's file."""
        return await self._run(lambda: next(self._files("id=? AND tenant=?", file_id, tenant), None))

    async def with_hash(self, sha256: str, tenant: str) -> StoredFile | None:
        """A tenant's uploaded file with these contents."""
        where = "sha256=? AND tenant=? AND purpose<>'parse_output'"
        return await self._run(lambda: next(self._files(where, sha256, tenant), None))

    async def page(
        self, tenant: str, *, purpose: str | None, limit: int, after: str | None, oldest_first: bool
    ) -> list[StoredFile]:
        """A tenant's files, the newest first.

        :param after: id of the last file of the page before.
        """
        where, values = "tenant=?", [tenant]
        if purpose is not None:
            where, values = f"{where} AND purpose=?", [*values, purpose]
        if after is not None:
            sign = ">" if oldest_first else "<"
            where = f"{where} AND number{sign}(SELECT number FROM files WHERE id=? AND tenant=?)"
            values += [after, tenant]
        order = f"ORDER BY number {'ASC' if oldest_first else 'DESC'}"

        def read() -> list[StoredFile]:
            found = self._files(where, *values, order=order)
            return [file for file, _ in zip(found, range(limit), strict=False)]

        return await self._run(read)

    async def delete(self, file: StoredFile) -> None:
        """Forget a file. What came out of a job stays there until the job goes."""

        def work() -> None:
            self._connection.execute("UPDATE files SET deleted=1 WHERE id=?", (file.id,))
            if not file.is_output:
                self.path(file).unlink(missing_ok=True)

        await self._run(work)

    async def add_upload(self, upload: StoredUpload) -> None:
        """Keep a new upload, and remove what has expired."""

        def work() -> None:
            self._sweep()
            self._connection.execute(_insert("uploads", _UPLOAD), asdict(upload))

        await self._run(work)

    async def get_upload(self, upload_id: str, tenant: str) -> StoredUpload | None:
        """A tenant's upload, unless it has expired."""

        def read() -> StoredUpload | None:
            where = f"SELECT {_UPLOAD} FROM uploads WHERE id=? AND tenant=? AND expires>?"
            row = self._connection.execute(where, (upload_id, tenant, time.time())).fetchone()
            return StoredUpload(*row) if row else None

        return await self._run(read)

    async def receive(self, upload: StoredUpload, content: Path, sha256: str) -> bool:
        """Take in the bytes of an upload; ``content`` is moved.

        :return: whether it was still pending.
        """

        def work() -> bool:
            update = "UPDATE uploads SET received=? WHERE id=? AND status='pending'"
            pending = bool(self._connection.execute(update, (sha256, upload.id)).rowcount)
            if pending:
                content.replace(self.blob(upload.id))
            return pending

        return await self._run(work)

    async def end_upload(self, upload: StoredUpload, file: StoredFile | None) -> bool:
        """Complete an upload, or cancel it, in one step.

        :return: whether it was still pending.
        """

        def work() -> bool:
            status = "cancelled" if file is None else "completed"
            with self._connection:
                self._connection.execute("BEGIN")
                ended = self._connection.execute(
                    "UPDATE uploads SET status=?, file=? WHERE id=? AND status='pending'",
                    (status, file.id if file else "", upload.id),
                )
                if ended.rowcount and file is not None:
                    self._connection.execute(_insert("files", _FILE), asdict(file))
            if file is None and ended.rowcount:
                self.blob(upload.id).unlink(missing_ok=True)
            return bool(ended.rowcount)

        return await self._run(work)

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._database.connection

    def _prepare(self) -> None:
        self._blobs.mkdir(mode=0o700, exist_ok=True)
        self._connection.executescript(f"BEGIN;{_TABLES}COMMIT;")
        self._sweep()

    def _files(self, where: str, *values: Any, order: str = "ORDER BY number DESC") -> Iterator[StoredFile]:
        """Files that have not expired and whose bytes are there."""
        query = f"SELECT {_FILE} FROM files WHERE {where} AND NOT deleted AND (expires IS NULL OR expires>?) {order}"
        for row in self._connection.execute(query, (*values, time.time())):
            file = StoredFile(*row)
            if self.path(file).is_file():
                yield file

    def _sweep(self) -> None:
        now = time.time()
        self._connection.execute("DELETE FROM files WHERE expires<=? OR (deleted AND purpose<>'parse_output')", (now,))
        self._connection.execute("DELETE FROM uploads WHERE expires<=?", (now,))
        kept = {row[0] for row in self._connection.execute("SELECT id FROM uploads WHERE status='pending'")}
        kept |= {Path(row[0]).name for row in self._connection.execute("SELECT path FROM files")}
        for blob in self._blobs.iterdir():
            if blob.name not in kept:
                blob.unlink(missing_ok=True)


def _insert(table: str, columns: str) -> str:
    values = ", ".join(f":{name}" for name in columns.split(", "))
    return f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({values})"
