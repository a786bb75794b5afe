"""What a tenant may use: jobs per minute, pages per day, jobs at the same time.

Pages are counted when a job has ended, whatever became of it, in ``DATA/usage.sqlite3``: deleting a job or starting the
server again gives none back. Pages for which an earlier result was given cost nothing. A minute means the last 60
seconds, a day the last 24 hours.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mineru_engine.errors import ErrorCode
from mineru_engine.server.database import StoreError
from mineru_engine.server.jobs import Job
from mineru_engine.server.keys import TenantLimits
from mineru_engine.server.problems import RequestError

__all__ = ("Quotas",)

_MINUTE_S = 60.0
_DAY_S = 86400.0
_SOON_S = 5.0
_log = logging.getLogger(__name__)


class Quotas:
    """Counts what tenants use. All methods belong to the server's event loop.

    :param path: of the database of used pages; made if it is not there.
    :param limits: of a tenant.
    :param unfinished: number of a tenant's jobs that wait or run.
    :param now: seconds since 1970.
    """

    def __init__(
        self,
        path: Path,
        limits: Callable[[str], TenantLimits],
        unfinished: Callable[[str], int],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._limits = limits
        self._unfinished = unfinished
        self._now = now
        self._begun: dict[str, deque[float]] = defaultdict(deque)
        self._pages: dict[str, deque[tuple[float, int]]] = defaultdict(deque)
        self._entering: Counter[str] = Counter()
        try:
            path.touch(mode=0o600)
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")  # a power cut may give a few pages back
            self._connection.execute("CREATE TABLE IF NOT EXISTS usage (tenant TEXT, ended REAL, pages INTEGER)")
            self._connection.execute("DELETE FROM usage WHERE ended<?", (self._now() - _DAY_S,))
            for tenant, ended, pages in self._connection.execute("SELECT * FROM usage ORDER BY ended"):
                self._pages[tenant].append((ended, pages))
        except (OSError, sqlite3.Error) as exc:
            raise StoreError(f"the used pages cannot be read: {exc}") from exc

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def check(self, tenant: str) -> None:
        """See whether a tenant may have another job.

        :raises RequestError: if not; it says when to try again.
        """
        limits, now = self._limits(tenant), self._now()
        begun, pages = self._begun[tenant], self._pages[tenant]
        while begun and begun[0] <= now - _MINUTE_S:
            begun.popleft()
        while pages and pages[0][0] <= now - _DAY_S:
            pages.popleft()
        if limits.running and self._unfinished(tenant) + self._entering[tenant] >= limits.running:
            raise _exceeded(f"{limits.running} jobs wait or run already", _SOON_S)
        if limits.jobs_per_minute and len(begun) >= limits.jobs_per_minute:
            first = begun[-limits.jobs_per_minute]  # when it is a minute old there is room for one
            raise _exceeded(f"{limits.jobs_per_minute} jobs per minute", first + _MINUTE_S - now)
        excess = sum(number for _, number in pages) - limits.pages_per_day
        if limits.pages_per_day and excess >= 0:
            for ended, number in pages:
                excess -= number
                if excess < 0:
                    raise _exceeded(f"{limits.pages_per_day} pages per day", ended + _DAY_S - now)

    @contextmanager
    def entering(self, tenant: str) -> Iterator[None]:
        """Around taking a job in: it counts from here on, unless it fails.

        :raises RequestError: as :meth:`check`.
        """
        self.check(tenant)
        moment = self._now()
        self._begun[tenant].append(moment)
        self._entering[tenant] += 1
        try:
            yield
        except BaseException:
            self._begun[tenant].remove(moment)
            raise
        finally:
            self._entering[tenant] -= 1

    def ended(self, job: Job) -> None:
        """Count the pages of a job that has ended."""
        pages = sum(file.done for file in job.files if not file.cached)
        if not pages:
            return
        row = (job.tenant, self._now(), pages)
        self._pages[job.tenant].append(row[1:])
        try:
            self._connection.execute("INSERT INTO usage VALUES (?,?,?)", row)
        except sqlite3.Error as exc:
            _log.error("pages of job %s are counted until the server ends only: %s", job.id, exc)


def _exceeded(what: str, wait: float) -> RequestError:
    return RequestError(
        f"the quota is used up: {what}",
        code=ErrorCode.QUOTA_EXCEEDED,
        hint="try again after Retry-After seconds; the operator can raise the quota with mineru keys add",
        retry_after=max(1, int(wait) + 1),
    )
