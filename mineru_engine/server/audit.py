"""The audit log, ``DATA/audit.jsonl``: who had what parsed, and what came of it. One JSON object a line.

Neither document names nor contents are in it: a document is known by its SHA-256. What is asked of a model and what it
answers is not in it either, as the engine does not show that to the server.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import orjson

from mineru_engine.server.jobs import Job

__all__ = ("Audit",)

_KEPT = 10
_DENIALS_S = 60.0
_log = logging.getLogger(__name__)


class Audit:
    """Writes the audit log. A line is written before the call returns; that it cannot be is logged, and stops nothing.

    :param path: ``None`` to write nothing.
    :param max_bytes: at which a new file is begun; ten old ones are kept, as ``audit.jsonl.1``.
    """

    def __init__(self, path: Path | None, max_bytes: int) -> None:
        self._file = _File(path, max_bytes) if path else None
        self._denials = 0
        self._last_denial = -math.inf

    def close(self) -> None:
        """Let go of the file."""
        if self._file:
            with contextlib.suppress(OSError):  # told already
                self._file.close()

    def accepted(self, job: Job) -> None:
        """A job was taken."""
        self._write("accepted", **_facts(job), tier=job.options.get("tier"), formats=list(job.formats))

    def ended(self, job: Job) -> None:
        """A job has ended, in whichever way."""
        self._write(
            "ended",
            **_facts(job),
            outcome=job.state,
            pages=job.done,
            seconds=round((job.finished or job.created) - (job.started or job.finished or job.created), 3),
            errors=[file.error["code"] if file.error else None for file in job.files],
        )

    def deleted(self, job: Job) -> None:
        """A job and its results were removed on request."""
        self._write("deleted", **_facts(job))

    def denied(self, client: str, path: str) -> None:
        """Somebody came without a valid key. A line a minute, with their number: or they would drive out the others."""
        self._denials += 1
        if (now := time.monotonic()) - self._last_denial >= _DENIALS_S:
            self._write("denied", client=client, path=path[:200], count=self._denials)
            self._denials, self._last_denial = 0, now

    def _write(self, event: str, **facts: Any) -> None:
        if self._file is None:
            return
        line = orjson.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **facts})
        self._file.handle(logging.LogRecord("audit", logging.INFO, "", 0, line.decode(), None, None))


def _facts(job: Job) -> dict[str, Any]:
    return {
        "tenant": job.tenant,
        "key": job.origin.get("key"),
        "job": job.id,
        "api": job.origin.get("api"),
        "sha256": [file.sha256 for file in job.files],
    }


class _File(RotatingFileHandler):
    """A file that only its owner reads."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(path, maxBytes=max_bytes, backupCount=_KEPT, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=_private)

    def handleError(self, record: logging.LogRecord) -> None:
        """The disk is full, say."""
        _log.error("the audit log cannot be written", exc_info=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
