"""An SQLite file with a connection on a thread of its own, and one for single reads on another.

The write-ahead log lets a killed server start again where it was; what was answered is on disk (``synchronous=FULL``).
It also lets a read go on while a write waits for the disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from mineru_engine.errors import ErrorCode, MineruError

__all__ = ("Database", "StoreError")

T = TypeVar("T")


class StoreError(MineruError):
    """A database of the server cannot be read or written."""

    code = ErrorCode.OUTPUT_NOT_WRITABLE
    retryable = True


class Database:
    """Runs work on a connection, one piece after the other.

    :param path: made if it is not there.
    :param what: what it is called in errors, as ``job``.
    :ivar connection: for :meth:`run` alone, and only once it is open.
    :ivar reading: for :meth:`read` alone.
    """

    connection: sqlite3.Connection
    reading: sqlite3.Connection

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"mineru-{what}s")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix=f"mineru-{what}s-read")

    async def open(self, prepare: Callable[[], None]) -> None:
        """Open the file.

        :param prepare: the first work; makes the tables.
        :raises StoreError: if it is damaged.
        """

        def work() -> None:
            self.connection = self._connect()
            self.connection.execute("PRAGMA journal_mode=WAL")
            self.connection.execute("PRAGMA synchronous=FULL")
            prepare()
            self.reading = self._connect()
            self.reading.execute("PRAGMA query_only=ON")

        await self.run(work)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, isolation_level=None, timeout=10, check_same_thread=False)

    async def close(self) -> None:
        """Write everything and let go."""
        await self.read(lambda: self.reading.close())
        await self.run(lambda: self.connection.close())
        self._reader.shutdown()
        self._thread.shutdown()

    async def run(self, work: Callable[[], T]) -> T:
        """What a piece of work gives.

        :raises StoreError: if the file cannot be read or written.
        """
        return await self._on(self._thread, work)

    async def read(self, work: Callable[[], T]) -> T:
        """What a piece of work gives that only reads and must not wait for those that write.

        :raises StoreError: if the file cannot be read.
        """
        return await self._on(self._reader, work)

    async def _on(self, thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, work)
        except sqlite3.Error as exc:
            full = getattr(exc, "sqlite_errorname", "") == "SQLITE_FULL"
            code = ErrorCode.DISK_FULL if full else ErrorCode.OUTPUT_NOT_WRITABLE
            raise StoreError(f"the {self._what} database: {exc}", code=code) from exc
