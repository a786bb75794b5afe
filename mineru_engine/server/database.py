"""An SQLite file with one connection, on one thread of its own.

The write-ahead log lets a killed server start again where it was; what was answered is on disk (``synchronous=FULL``).
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
    """Runs work on the connection, one piece after the other.

    :param path: made if it is not there.
    :param what: what it is called in errors, as ``job``.
    :ivar connection: for the work alone, and only once it is open.
    """

    connection: sqlite3.Connection

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"mineru-{what}s")

    async def open(self, prepare: Callable[[], None]) -> None:
        """Open the file.

        :param prepare: the first work; makes the tables.
        :raises StoreError: if it is damaged.
        """

        def work() -> None:
            self.connection = sqlite3.connect(self._path, isolation_level=None, timeout=10, check_same_thread=False)
            self.connection.execute("PRAGMA journal_mode=WAL")
            self.connection.execute("PRAGMA synchronous=FULL")
            prepare()

        await self.run(work)

    async def close(self) -> None:
        """Write everything and let go."""
        await self.run(lambda: self.connection.close())
        self._thread.shutdown()

    async def run(self, work: Callable[[], T]) -> T:
        """What a piece of work gives.

        :raises StoreError: if the file cannot be read or written.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as exc:
            full = getattr(exc, "sqlite_errorname", "") == "SQLITE_FULL"
            code = ErrorCode.DISK_FULL if full else ErrorCode.OUTPUT_NOT_WRITABLE
            raise StoreError(f"the {self._what} database: {exc}", code=code) from exc
