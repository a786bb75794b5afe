"""What the server writes to stderr: lines for people, or JSON lines for a collector; each with the job it is about."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from datetime import UTC, datetime

import orjson

__all__ = ("LOG_FORMATS", "configure", "current_job")

LOG_FORMATS = ("text", "json")
current_job: ContextVar[str | None] = ContextVar("job", default=None)
"""Id of the job that is being worked on, in its task and in what that calls."""


class _Text(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s%(about)s")

    def format(self, record: logging.LogRecord) -> str:
        job = getattr(record, "job", None)
        record.about = f" [job {job}]" if job else ""
        return super().format(record)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        values = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "job": getattr(record, "job", None),
        }
        values.update(getattr(record, "facts", {}))
        if record.exc_info:
            values["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(values, default=str).decode()


def _with_job(record: logging.LogRecord) -> bool:
    if getattr(record, "job", None) is None:
        record.job = current_job.get()
    return True


def configure(log_format: str) -> None:
    """Let the whole process log to stderr.

    :param log_format: one of :data:`LOG_FORMATS`.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if log_format == "json" else _Text())
    handler.addFilter(_with_job)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
