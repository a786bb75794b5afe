"""The audit log, ``DATA/audit.jsonl``: who had what parsed, and what came of it. One JSON object a line.

Neither document names nor contents are in it: a document is known by its SHA-256. What a model is asked and what it
answers, which is contents, goes into ``DATA/exchanges.jsonl``, if the operator wants it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from dataclasses import asdict
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import QueueListener, RotatingFileHandler
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import orjson

from mineru_engine.exchange import Exchange, ExchangeCallback
from mineru_engine.server.jobs import Job, JobFile

__all__ = ("Audit",)

_KEPT = 10
_DENIALS_S = 60.0
_log = logging.getLogger(__name__)


class Audit:
    """Writes the audit log. A line is written before the call returns; that it cannot be is logged, and stops nothing.

    :param path: ``None`` to write nothing.
    :param max_bytes: at which a new file is begun; ten old ones are kept, as ``audit.jsonl.1``.
    :param exchanges: where questions and answers go; ``None`` to write none.
    """

    def __init__(self, path: Path | None, max_bytes: int, *, exchanges: Path | None = None) -> None:
        self._file = _File(path, max_bytes) if path else None
        self._exchanges: QueueListener | None = None
        if exchanges:  # written on a thread of its own, as the engine's loop must not wait for a disk
            self._exchanges = QueueListener(SimpleQueue(), _File(exchanges, max_bytes))
            self._exchanges.start()
        self._denials = 0
        self._last_denial = -math.inf

    def close(self) -> None:
        """Let go of the files; what was told is written before."""
        if self._exchanges:
            self._exchanges.stop()
            with contextlib.suppress(OSError):
                self._exchanges.handlers[0].close()
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

    def exchanges_of(self, job: Job, file: JobFile) -> ExchangeCallback | None:
        """What hears the questions about a document; ``None`` if they are not to be written. For any thread."""
        if (listener := self._exchanges) is None:
            return None
        facts = {**_whose(job), "sha256": file.sha256}

        def hear(exchange: Exchange) -> None:
            told = asdict(exchange)
            del told["document"]  # names stay out of the logs
            listener.queue.put_nowait(_record("exchange", **facts, **told))

        return hear

    def denied(self, client: str, path: str) -> None:
        """Somebody came without a valid key. A line a minute, with their number: or they would drive out the others."""
        self._denials += 1
        if (now := time.monotonic()) - self._last_denial >= _DENIALS_S:
            self._write("denied", client=client, path=path[:200], count=self._denials)
            self._denials, self._last_denial = 0, now

    def _write(self, event: str, **facts: Any) -> None:
        if self._file is None:
            return
        self._file.handle(_record(event, **facts))


def _record(event: str, **facts: Any) -> logging.LogRecord:
    line = orjson.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **facts})
    return logging.LogRecord("audit", logging.INFO, "", 0, line.decode(), None, None)


def _whose(job: Job) -> dict[str, Any]:
    return {"tenant": job.tenant, "key": job.origin.get("key"), "job": job.id, "api": job.origin.get("api")}


def _facts(job: Job) -> dict[str, Any]:
    return {**_whose(job), "sha256": [file.sha256 for file in job.files]}


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
