"""Document parsing: PDFs, scans and office files to Markdown and structured JSON."""

from __future__ import annotations

from mineru_engine.analyze import aio_doc_analyze, doc_analyze
from mineru_engine.api import draw_layout, draw_layout_async, parse, parse_async, preload, preload_async
from mineru_engine.errors import (
    DamagedDocumentError,
    DeadlineError,
    EngineDeadError,
    EngineError,
    EngineRequestError,
    EngineUnavailableError,
    ErrorCode,
    InputError,
    MineruError,
    NothingReadError,
    OcrRequiredError,
    OptionError,
    OutputError,
    PasswordError,
    RuntimeStateError,
    UnsupportedFormatError,
    WorkerCrashedError,
    WorkerDeadlineError,
    WorkerError,
)
from mineru_engine.exchange import Exchange
from mineru_engine.options import Engine, OcrMode, ParseOptions, Tier
from mineru_engine.progress import Progress
from mineru_engine.result import Attachment, Diagnostic, OutputFormat, PageKind, ParseResult, ParseStatus
from mineru_engine.runtime.registry import Lease, shutdown_cached_models
from mineru_engine.settings import Settings
from mineru_engine.version import __version__
from mineru_engine.vlm.transport import EngineInfo

__all__ = (
    "Attachment",
    "DamagedDocumentError",
    "DeadlineError",
    "Diagnostic",
    "Engine",
    "EngineDeadError",
    "EngineError",
    "EngineInfo",
    "EngineRequestError",
    "EngineUnavailableError",
    "ErrorCode",
    "Exchange",
    "InputError",
    "Lease",
    "MineruError",
    "NothingReadError",
    "OcrMode",
    "OcrRequiredError",
    "OptionError",
    "OutputError",
    "OutputFormat",
    "PageKind",
    "ParseOptions",
    "ParseResult",
    "ParseStatus",
    "PasswordError",
    "Progress",
    "RuntimeStateError",
    "Settings",
    "Tier",
    "UnsupportedFormatError",
    "WorkerCrashedError",
    "WorkerDeadlineError",
    "WorkerError",
    "__version__",
    "aio_doc_analyze",
    "doc_analyze",
    "draw_layout",
    "draw_layout_async",
    "parse",
    "parse_async",
    "preload",
    "preload_async",
    "shutdown_cached_models",
)
