"""What a benchmark report holds, version 1. Seconds, bytes and MiB throughout, unless a name says otherwise.

A value that was not measured is ``null``, never 0, and where the reason is not plain there is a field for it. The
report is written as canonical JSON (sorted keys, UTF-8) and carries the sha256 of itself without that field.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from mineru_engine.errors import ErrorCode, InputError

__all__ = (
    "Cancellation",
    "Caveat",
    "DocumentResult",
    "DocumentSample",
    "EngineIdentity",
    "Gpu",
    "GpuUse",
    "Input",
    "Leftovers",
    "LoopLag",
    "Machine",
    "Mode",
    "Report",
    "RequestCounts",
    "Resources",
    "Run",
    "Series",
    "Source",
    "Workload",
    "load_report",
    "save_report",
)

SCHEMA = "mineru.bench-report"
SCHEMA_VERSION = 1
"""Raised when a reader of the old version would misread the new one."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Mode(StrEnum):
    """How documents are called for."""

    ASYNC = "async"  # tasks on one event loop
    SYNC_THREAD = "sync-thread"  # blocking calls from as many threads


class Source(_Part):
    """The code that was measured."""

    revision: str | None = Field(description="git commit; null outside of a repository")
    dirty: bool | None = Field(description="files differed from that commit")
    tree_sha256: str = Field(description="of the sorted list of file hashes below")
    files: dict[str, str] = Field(description="path in the packages → sha256")
    distributions: dict[str, str] = Field(description="installed distribution → version")
    lock_sha256: str | None = Field(description="of requirements/constraints.txt")


class Gpu(_Part):
    """One graphics processor that the driver shows."""

    name: str
    uuid: str
    memory_mib: int
    mig: bool = False


class Machine(_Part):
    """Where it ran."""

    cpu: str
    cores_allowed: int
    memory_mib: int
    memory_limit_mib: int | None = Field(description="of the container, if any")
    cpu_limit: float | None = Field(description="cores granted to the container, if limited")
    system: str = Field(description="operating system and kernel")
    python: str
    gpus: list[Gpu]
    driver: str | None


class EngineIdentity(_Part):
    """What read the pages. Holds no secret."""

    engine: str
    model: str
    version: str | None
    location: str
    models: list[str] = []
    revision: str | None = None
    weights_sha256: str | None = Field(default=None, description="of the weight index of a local model")
    simulated: bool = Field(default=False, description="the server says of itself that it runs no model")
    device: Literal["cpu", "gpu", "remote", "unknown"] = "unknown"


class Workload(_Part):
    """What was asked for."""

    name: str
    tier: str
    ocr_mode: str
    modes: list[Mode]
    concurrencies: list[int]
    repeats: int
    warmup: int = Field(description="rounds before the clock starts")
    duration_s: float | None = Field(description="steady load for so long; null for a fixed batch")
    arrival: str = Field(description="closed or poisson:RATE, documents/s")
    seed: int
    single_document: str | None = Field(description="name of the input whose time alone is the single-document time")


class Input(_Part):
    """One document."""

    name: str
    sha256: str
    pages: int
    bytes: int


class DocumentSample(_Part):
    """One document of one run.

    :ivar queued_s: from when it was due until its parse began.
    :ivar parse_s: from there until its result.
    """

    input: int = Field(description="index into inputs")
    due_s: float = Field(description="from the start of the run")
    queued_s: float
    parse_s: float
    pages: int
    error: str | None = Field(default=None, description="error code; null for a success")


class LoopLag(_Part):
    """How late the caller's event loop was, in milliseconds."""

    p50_ms: float
    p99_ms: float
    max_ms: float


class Resources(_Part):
    """The client's process tree during one run; the harness's own sampling is taken off the CPU time."""

    peak_rss_mib: float = Field(description="sum over the processes; shared pages count in each")
    peak_threads: int
    peak_fds: int | None
    cpu_s: float
    cpu_ms_per_page: float | None


class RequestCounts(_Part):
    """Requests to the engine during one run; all null for tiers without one."""

    done: int | None
    failed: int | None
    requests_per_s: float | None
    completion_tokens: int | None
    tokens_per_s: float | None
    mean_in_flight: float | None
    peak_in_flight: int | None
    busy_s: float | None = Field(description="time the engine says it was busy; null where it does not tell")


class GpuUse(_Part):
    """Memory of our processes on the GPUs, and their utilization."""

    peak_vram_mib: float | None
    vram_reason: str | None = Field(description="why there is no figure")
    mean_utilization_percent: float | None


class Series(_Part):
    """Samples over time; all lists are of one length."""

    t_s: list[float]
    rss_mib: list[float]
    in_flight: list[int | None]
    vram_mib: list[float | None]


class Run(_Part):
    """One repeat of one mode at one concurrency."""

    mode: Mode
    concurrency: int
    repeat: int
    elapsed_s: float
    pages: int
    documents_per_s: float
    pages_per_s: float
    samples: list[DocumentSample]
    loop_lag: LoopLag | None = Field(description="null in mode sync-thread, which has no loop of the caller's")
    resources: Resources
    requests: RequestCounts
    gpu: GpuUse
    series: Series


class Leftovers(_Part):
    """What was still there after a cancel had returned; null where it cannot be seen."""

    requests_in_flight: int | None
    requests_at_server: int | None
    server_reason: str | None
    tasks: int
    threads: int
    fds: int | None = Field(description="without TCP connections: the idle ones are kept for the next request")
    temporary_files: int


class Cancellation(_Part):
    """Documents cancelled after a time."""

    concurrency: int
    after_s: float
    repeat: int
    return_s: list[float] = Field(description="for each document, from the cancel until its call returned")
    finished_before: int = Field(description="documents that were done before the cancel came")
    leftovers: Leftovers


class DocumentResult(_Part):
    """What came out of an input, over all runs."""

    input: int
    sha256: str | None = Field(description="of the semantic content; null if it never succeeded")
    blocks: list[list[str]] = Field(description="for each page, a short hash of each block, to find what differs")
    variants: int = Field(description="different contents seen over modes, concurrencies and repeats; 1 is right")


class Caveat(_Part):
    """What a reader must know before believing the figures."""

    code: str
    text: str


class Report(_Part):
    """A whole benchmark."""

    schema_id: Literal["mineru.bench-report"] = Field(alias="schema")
    schema_version: Literal[1]
    report_sha256: str = ""
    created_at: str = Field(description="UTC, ISO 8601")
    duration_s: float
    command: list[str] = Field(description="as typed, without secrets")
    complete: bool
    source: Source
    machine: Machine
    settings: dict[str, Any] = Field(description="effective settings; secrets are masked")
    options: dict[str, Any]
    engine: EngineIdentity
    workload: Workload
    inputs: list[Input]
    runs: list[Run]
    cancellation: list[Cancellation] = []
    results: list[DocumentResult]
    caveats: list[Caveat]

    @model_validator(mode="after")
    def _lists_its_inputs(self) -> Self:
        """Figures of an input that is not there mean nothing, and an index from the end would mean another input."""
        used = {sample.input for run in self.runs for sample in run.samples} | {item.input for item in self.results}
        if not used <= set(range(len(self.inputs))):
            raise PydanticCustomError("unlisted_input", "has figures of an input that it does not list")
        return self

    def canonical(self) -> bytes:
        """The content that :attr:`report_sha256` is of."""
        content = self.model_dump(mode="json", by_alias=True, exclude={"report_sha256"})
        return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)

    def sealed(self) -> Report:
        """The same report with its hash."""
        return self.model_copy(update={"report_sha256": sha256(self.canonical()).hexdigest()})

    @property
    def intact(self) -> bool:
        """Whether the hash is that of the content."""
        return self.report_sha256 == sha256(self.canonical()).hexdigest()


def save_report(report: Report, path: Path) -> None:
    """Write it sealed, aside first and then in place."""
    content = report.sealed().model_dump(mode="json", by_alias=True)
    data = orjson.dumps(content, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".part")
    aside.write_bytes(data)
    aside.replace(path)


def load_report(path: Path) -> Report:
    """Read a report; whether it is :attr:`Report.intact` is for the caller to ask.

    :raises InputError: if it cannot be read, is no report or of another version.
    """
    try:
        content = orjson.loads(path.read_bytes())
    except OSError as exc:
        raise InputError(f"cannot read {path}: {exc.strerror}", code=ErrorCode.FILE_UNREADABLE) from exc
    except orjson.JSONDecodeError as exc:
        raise InputError(f"{path} is no JSON: {exc}", code=ErrorCode.FILE_DAMAGED) from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise InputError(f"{path} is no benchmark report", code=ErrorCode.FILE_TYPE_UNSUPPORTED)
    if content.get("schema_version") != SCHEMA_VERSION:
        version = content.get("schema_version")
        raise InputError(
            f"{path} has schema version {version}, this mineru reads {SCHEMA_VERSION}",
            code=ErrorCode.FILE_TYPE_UNSUPPORTED,
            hint="compare reports that the same version of mineru wrote",
        )
    try:
        return Report.model_validate(content)
    except ValidationError as exc:
        problem = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, problem["loc"]))  # nowhere in particular if it is about the report as a whole
        sentence = f"{path}: {where}: {problem['msg']}" if where else f"{path} {problem['msg']}"
        raise InputError(sentence, code=ErrorCode.FILE_DAMAGED) from None
