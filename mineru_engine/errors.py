"""Every error a caller can catch.

::

    MineruError                     root; code, message, hint, document, page, retryable
    ├── InputError                  the document cannot be used as given
    │   ├── UnsupportedFormatError  not a format we read
    │   ├── DamagedDocumentError    the container is broken, empty or has no pages
    │   └── PasswordError           a password is needed, or the one given is wrong
    ├── OptionError                 an option, setting or page range makes no sense (also a ValueError)
    ├── EngineError                 the engine asked for cannot do the work
    │   ├── EngineUnavailableError  not installed, not configured, or it refuses us
    │   ├── EngineDeadError         the engine is gone: killed, crashed, no longer reachable
    │   ├── EngineRequestError      one request failed; the page falls back to another way of reading
    │   ├── OcrRequiredError        the document has no usable text and the tier reads none
    │   └── NothingReadError        no page of the document could be read
    ├── DeadlineError               a deadline set by the caller passed (also a TimeoutError)
    ├── OutputError                 a result could not be written (also an OSError)
    ├── WorkerError                 a worker process died or ran past its deadline
    │   ├── WorkerCrashedError
    │   └── WorkerDeadlineError
    └── RuntimeStateError           the runtime is closed, or was called from its own thread

A failed *page* is not an exception: it is a :class:`mineru_engine.result.Diagnostic` of the result.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = (
    "DamagedDocumentError",
    "DeadlineError",
    "EngineDeadError",
    "EngineError",
    "EngineRequestError",
    "EngineUnavailableError",
    "ErrorCode",
    "InputError",
    "MineruError",
    "NothingReadError",
    "OcrRequiredError",
    "OptionError",
    "OutputError",
    "PasswordError",
    "RuntimeStateError",
    "UnsupportedFormatError",
    "WorkerCrashedError",
    "WorkerDeadlineError",
    "WorkerError",
)


class ErrorCode(StrEnum):
    """Stable identifiers for scripts; the message is for people and may change."""

    FILE_NOT_FOUND = "file_not_found"
    FILE_UNREADABLE = "file_unreadable"
    FILE_EMPTY = "file_empty"
    FILE_TOO_LARGE = "file_too_large"
    FILE_TYPE_UNSUPPORTED = "file_type_unsupported"
    FILE_DAMAGED = "file_damaged"
    PDF_NO_PAGES = "pdf_no_pages"
    PDF_ENCRYPTION_UNSUPPORTED = "pdf_encryption_unsupported"
    PASSWORD_REQUIRED = "password_required"
    PASSWORD_WRONG = "password_wrong"
    OPTION_INVALID = "option_invalid"
    PAGE_RANGE_INVALID = "page_range_invalid"
    SETTING_INVALID = "setting_invalid"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    ENGINE_DEAD = "engine_dead"
    ENGINE_REQUEST_FAILED = "engine_request_failed"
    OCR_REQUIRED = "ocr_required"
    NOTHING_READ = "nothing_read"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    OUTPUT_EXISTS = "output_exists"
    OUTPUT_NOT_WRITABLE = "output_not_writable"
    DISK_FULL = "disk_full"
    WORKER_CRASHED = "worker_crashed"
    WORKER_DEADLINE = "worker_deadline"
    RUNTIME_CLOSED = "runtime_closed"
    RUNTIME_REENTERED = "runtime_reentered"
    REQUEST_INVALID = "request_invalid"
    JOB_NOT_FOUND = "job_not_found"
    JOB_INTERRUPTED = "job_interrupted"
    RESULT_NOT_READY = "result_not_ready"
    QUEUE_FULL = "queue_full"
    SERVER_CLOSING = "server_closing"
    ACCESS_DENIED = "access_denied"
    QUOTA_EXCEEDED = "quota_exceeded"
    INTERNAL = "internal"


class MineruError(Exception):
    """Root of all errors raised on purpose by the engine.

    :param message: what happened, one sentence, no secret and no stack trace.
    :param code: stable identifier.
    :param hint: what the user can do about it.
    :param document: name of the document concerned.
    :param page: zero-based page index concerned.
    :param retryable: the same call may succeed later.
    """

    code: ErrorCode = ErrorCode.INTERNAL
    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        hint: str | None = None,
        document: str | None = None,
        page: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.hint = hint
        self.document = document
        self.page = page

    def to_dict(self) -> dict[str, object]:
        """The error as plain JSON values."""
        return {
            "type": type(self).__name__,
            "code": str(self.code),
            "message": self.message,
            "hint": self.hint,
            "document": self.document,
            "page": self.page,
            "retryable": self.retryable,
        }


class InputError(MineruError):
    """The document cannot be used as given."""

    code = ErrorCode.FILE_UNREADABLE


class UnsupportedFormatError(InputError):
    """The file is of a format that no reader exists for."""

    code = ErrorCode.FILE_TYPE_UNSUPPORTED


class DamagedDocumentError(InputError):
    """The container is broken, empty or has no pages."""

    code = ErrorCode.FILE_DAMAGED


class PasswordError(InputError):
    """A password is needed, or the one given is wrong."""

    code = ErrorCode.PASSWORD_REQUIRED


class OptionError(MineruError, ValueError):
    """An option, a setting or a page range makes no sense."""

    code = ErrorCode.OPTION_INVALID


class EngineError(MineruError):
    """The engine asked for cannot do the work."""

    code = ErrorCode.ENGINE_UNAVAILABLE


class EngineUnavailableError(EngineError):
    """The engine is not installed, not configured, or refuses us (wrong key, unknown model)."""


class EngineDeadError(EngineError):
    """The engine is gone: process killed, crashed, server no longer reachable. The next call builds a new one."""

    code = ErrorCode.ENGINE_DEAD
    retryable = True


class EngineRequestError(EngineError):
    """One request to the engine failed, retries included; other requests may succeed."""

    code = ErrorCode.ENGINE_REQUEST_FAILED
    retryable = True


class OcrRequiredError(EngineError):
    """The document has no usable text layer and the tier in force does not read images."""

    code = ErrorCode.OCR_REQUIRED


class NothingReadError(EngineError):
    """No page of the document could be read; the diagnostics say why for each."""

    code = ErrorCode.NOTHING_READ


class DeadlineError(MineruError, TimeoutError):
    """A deadline set by the caller passed before the document was finished."""

    code = ErrorCode.DEADLINE_EXCEEDED
    retryable = True


class OutputError(MineruError, OSError):
    """A result could not be written. Nothing half-written is left behind."""

    code = ErrorCode.OUTPUT_NOT_WRITABLE


class WorkerError(MineruError):
    """A worker process could not finish its task."""

    code = ErrorCode.WORKER_CRASHED
    retryable = True


class WorkerCrashedError(WorkerError):
    """The worker process died: a native crash, a kill, or its memory limit."""


class WorkerDeadlineError(WorkerError):
    """The worker process ran past the deadline of its task and was killed."""

    code = ErrorCode.WORKER_DEADLINE


class RuntimeStateError(MineruError, RuntimeError):
    """The runtime is closed, or a blocking call was made from its own thread."""

    code = ErrorCode.RUNTIME_CLOSED


_BY_NAME: dict[str, type[MineruError]] = {
    cls.__name__: cls
    for cls in (
        MineruError,
        InputError,
        UnsupportedFormatError,
        DamagedDocumentError,
        PasswordError,
        OptionError,
        EngineUnavailableError,
        EngineDeadError,
        EngineRequestError,
        OcrRequiredError,
        NothingReadError,
        DeadlineError,
        OutputError,
    )
}


def error_from_dict(value: dict[str, object]) -> MineruError:
    """Rebuild an error that crossed a process border as :meth:`MineruError.to_dict`."""
    cls = _BY_NAME.get(str(value.get("type")), MineruError)
    hint, document, page = value.get("hint"), value.get("document"), value.get("page")
    return cls(
        str(value.get("message", "")),
        code=ErrorCode(str(value.get("code", ErrorCode.INTERNAL))),
        hint=hint if isinstance(hint, str) else None,
        document=document if isinstance(document, str) else None,
        page=page if isinstance(page, int) else None,
    )
