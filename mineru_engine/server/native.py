"""``/v1/jobs``: this server's own API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from mineru_engine.errors import ErrorCode
from mineru_engine.nearest import did_you_mean
from mineru_engine.options import OcrMode, Tier
from mineru_engine.result import OutputFormat
from mineru_engine.server.access import Caller, caller_of
from mineru_engine.server.intake import Upload, fields_of, form_of, media_type, uploads_of
from mineru_engine.server.jobs import Job, JobFile, JobState, iso
from mineru_engine.server.problems import RequestError
from mineru_engine.server.results import read_result, removal, result_path, zipped
from mineru_engine.server.schemas import form_schema, json_schema, request_body, with_first
from mineru_engine.server.service import DEFAULT_FORMATS, Service
from mineru_engine.server.urls import check_server_url, fetch_all

__all__ = ("JobRequest", "job_view", "router")

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

_EVENT_INTERVAL_S = 0.1
_MEDIA = {
    OutputFormat.MD: "text/markdown; charset=utf-8",
    OutputFormat.JSON: "application/json",
    OutputFormat.CONTENT_LIST: "application/json",
    OutputFormat.HTML: "text/html; charset=utf-8",
    OutputFormat.LATEX: "application/x-tex",
    OutputFormat.DOCX: "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    OutputFormat.EPUB: "application/epub+zip",
    OutputFormat.PDF: "application/pdf",
}


def _listed(value: object) -> object:
    """A list as the command line and a form write it: with commas, repeated, or both."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list):
        return value
    return [name.strip() for part in parts for name in str(part).split(",") if name.strip()]


_INERT = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
"""A document is somebody's file: a browser must not run what is in it."""


class JobRequest(BaseModel):
    """Options of a job; the names are those of the command line."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"tier": "basic", "formats": "md,html"}})

    tier: Tier | None = Field(default=None, description="how much machinery reads a page")
    ocr_mode: OcrMode | None = Field(default=None, description="where text comes from")
    pages: str = Field(default="", max_length=1000, description="as 1-5,8,r3-r1; empty for all")
    formats: Annotated[list[OutputFormat], BeforeValidator(_listed)] = Field(
        default=[OutputFormat(name) for name in DEFAULT_FORMATS], description="what is written of each document"
    )
    image_analysis: bool | None = Field(default=None, description="let a VLM describe images and charts")
    server_url: str | None = Field(default=None, description="VLM server, if the operator allows its host")
    model: str | None = Field(default=None, max_length=500, description="model name at server_url")
    timeout_s: float | None = Field(default=None, gt=0, description="limit for one document, seconds")
    page_timeout_s: float | None = Field(default=None, gt=0, description="limit for one page, seconds")
    attachments: bool | None = Field(default=None, description="also parse files attached to a PDF")
    password: SecretStr | None = Field(default=None, description="of encrypted documents; never written to the disk")
    cache: bool = Field(default=True, description="whether an earlier result for the same bytes may be given")

    def options(self) -> dict[str, Any]:
        """Fields of ``ParseOptions`` that were really given."""
        values = self.model_dump(mode="json", exclude={"formats", "password", "cache"})
        return {name: value for name, value in values.items() if value not in (None, "")}


def service_of(request: Request) -> Service:
    """The server that a request came to."""
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(service_of)]
TheCaller = Annotated[Caller, Depends(caller_of)]


async def _job(job_id: str, service: TheService, caller: TheCaller) -> Job:
    return await service.find(job_id, caller.tenant)


TheJob = Annotated[Job, Depends(_job)]

_CREATE = request_body(
    {
        "multipart/form-data": form_schema(JobRequest),
        "application/json": with_first(
            json_schema(JobRequest),
            "urls",
            {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": "where the documents are"},
        ),
    }
)


@router.post("", status_code=202, summary="Create a job", openapi_extra=_CREATE)
async def create(
    request: Request,
    service: TheService,
    caller: TheCaller,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    cache_control: Annotated[str, Header(max_length=200)] = "",
) -> JSONResponse:
    """One or many documents, as parts ``files`` of a form; the options are its other fields. Or a JSON object of the
    options and ``urls``, addresses that the server fetches documents from, if the operator allows their hosts."""
    if await service.earlier(caller.tenant, idempotency_key) is None:
        service.check(caller.tenant)
    async with await Upload.begin(service.storage) as upload:
        options = await _read(request, service, upload)
        job = await service.submit(
            upload,
            tenant=caller.tenant,
            options=options.options(),
            formats=[str(name) for name in options.formats],
            secrets={"password": options.password.get_secret_value()} if options.password else None,
            origin={"api": "native", "no_cache": not options.cache or "no-cache" in cache_control.lower()},
            idempotency=idempotency_key,
            request=_digest(options, upload.files),
        )
    status = 202 if job.files is upload.files else 200
    return JSONResponse(job_view(service, job), status, {"Location": f"/v1/jobs/{job.id}"})


async def _read(request: Request, service: Service, upload: Upload) -> JobRequest:
    limit = service.settings.server.max_files
    if media_type(request) == "application/json":
        fields = await _read_json(request)
        urls = _urls(fields.pop("urls", None), limit)
        options = await _options(fields, service)
        await fetch_all(urls, upload, service.settings.server)
        return options
    async with form_of(request, limit) as form:
        options = await _options(fields_of(form), service)
        for file in uploads_of(form, "files", limit):
            await upload.add(file.filename or "", file.file)
    return options


async def _read_json(request: Request) -> dict[str, Any]:
    try:
        value = orjson.loads(await request.body())
    except orjson.JSONDecodeError as exc:
        raise RequestError(f"the body is no JSON: {exc.msg}") from None
    if not isinstance(value, dict):
        raise RequestError("the body must be a JSON object")
    return value


def _urls(value: Any, limit: int) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(url, str) for url in value):
        raise RequestError("urls: a list of one or more addresses is needed", param="urls")
    if len(value) > limit:
        raise RequestError(f"urls: at most {limit} documents in one job", param="urls", status=413)
    return value


async def _options(values: dict[str, Any], service: Service) -> JobRequest:
    options = _validated(values)
    if options.server_url:
        options.server_url = await check_server_url(options.server_url, service.settings)
    elif options.model:
        raise RequestError("model: goes with server_url only", param="model")
    return options


def _validated(values: dict[str, Any]) -> JobRequest:
    try:
        return JobRequest.model_validate(values)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            hint = did_you_mean(name, JobRequest.model_fields) or f"options are {', '.join(JobRequest.model_fields)}"
            raise RequestError(f"unknown option {name!r}", param=name, hint=hint) from None
        raise RequestError(f"{name}: {first['msg']}", code=ErrorCode.OPTION_INVALID, param=name) from None


def _digest(options: JobRequest, files: list[JobFile]) -> str:
    """Of what was asked for, to tell a repetition from a key that was used twice."""
    asked = [options.model_dump(mode="json", exclude={"password"}), [(file.name, file.sha256) for file in files]]
    return sha256(orjson.dumps(asked)).hexdigest()


@router.get("", summary="List jobs, the newest first")
async def list_jobs(
    service: TheService,
    caller: TheCaller,
    state: Annotated[list[JobState], Query(description="only these")] = [],  # noqa: B006 - FastAPI's manner
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: Annotated[str | None, Query(max_length=100, description="id of the last job of the page before")] = None,
) -> dict[str, Any]:
    """The caller's jobs."""
    page, more = await service.page(caller.tenant, limit, states=state, after=after)
    return {
        "object": "list",
        "data": [job_view(service, job) for job in page],
        "has_more": more,
        "last_id": page[-1].id if page else None,
    }


@router.get("/{job_id}", summary="State and progress of a job")
async def get_job(service: TheService, job: TheJob) -> dict[str, Any]:
    """Its files, their pages, the place in the queue while it waits, an estimate while it runs."""
    return job_view(service, job)


@router.get("/{job_id}/events", response_class=EventSourceResponse, summary="Follow a job")
async def events(service: TheService, job: TheJob) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events: ``progress`` after every change, ``end`` as the last; their data is the job."""
    async for live in service.queue.changes(job.id):
        if not live.state.ended:
            yield ServerSentEvent(data=job_view(service, live), event="progress")
        await asyncio.sleep(_EVENT_INTERVAL_S)  # changes that come closer together than this are told together
    last = await service.find(job.id, job.tenant)
    yield ServerSentEvent(data=job_view(service, last), event="end" if last.state.ended else "progress")


@router.get("/{job_id}/result", summary="What came out")
async def result(
    service: TheService,
    job: TheJob,
    format: Annotated[
        str, Query(description="json for everything, zip, or the name of a format for one document")
    ] = "json",
    file: Annotated[int, Query(ge=0, description="which document, from 0, for a single format")] = 0,
) -> Response:
    """``json``: Markdown and content list of every document. ``zip``: all files of all documents."""
    _must_have_result(job)
    if format == "json":
        return Response(await asyncio.to_thread(_whole_result, service, job), media_type="application/json")
    if format == "zip":
        path = await asyncio.to_thread(zipped, service.storage, job)
        return FileResponse(path, filename=f"{job.id}.zip", media_type="application/zip", background=removal(path))
    try:
        chosen = OutputFormat(format)
    except ValueError:
        raise RequestError(f"unknown format {format!r}", param="format") from None
    content = await asyncio.to_thread(read_result, service.storage, job, _file(job, file), chosen)
    return Response(content, media_type=_MEDIA[chosen])


@router.get("/{job_id}/files/{index}/source", summary="A document as it was sent")
async def source(service: TheService, job: TheJob, index: int) -> Response:
    """The bytes of a document."""
    file = _file(job, index)
    return FileResponse(service.storage.input(job, file), filename=file.name, headers=_INERT)


@router.get("/{job_id}/files/{index}/{path:path}", summary="One file of a result")
async def one_file(service: TheService, job: TheJob, index: int, path: str) -> Response:
    """A file that the result consists of, as ``images/….jpg``."""
    file = _file(job, index)
    return FileResponse(await asyncio.to_thread(result_path, service.storage, job, file, path), headers=_INERT)


@router.post("/{job_id}/cancel", summary="Stop a job")
async def cancel(service: TheService, job: TheJob) -> dict[str, Any]:
    """Returns when its work has stopped; a job that had ended stays as it is."""
    return job_view(service, await service.cancel(job))


@router.delete("/{job_id}", summary="Stop and delete a job")
async def delete(service: TheService, job: TheJob) -> dict[str, Any]:
    """Stops the job if need be, then removes its documents and its results."""
    await service.delete(job)
    return {"id": job.id, "object": "job", "deleted": True}


def _file(job: Job, index: int) -> JobFile:
    if not 0 <= index < len(job.files):
        raise RequestError(f"the job has no document {index}", code=ErrorCode.FILE_NOT_FOUND, param="file")
    return job.files[index]


def _must_have_result(job: Job) -> None:
    if job.state.has_result:
        return
    code = ErrorCode.RESULT_NOT_READY
    if job.state.ended:
        raise RequestError(f"the job has no result: it is {job.state}", code=code)
    raise RequestError(f"the job is {job.state}", code=code, hint="follow its events", retry_after=1)


def _whole_result(service: Service, job: Job) -> bytes:
    files = []
    for index, file in enumerate(job.files):
        entry: dict[str, Any] = {**_file_view(job, index, file), "markdown": None, "content_list": None}
        for name, chosen in (("markdown", OutputFormat.MD), ("content_list", OutputFormat.CONTENT_LIST)):
            if file.state.has_result and chosen in job.formats:
                content = read_result(service.storage, job, file, chosen)
                entry[name] = content.decode() if chosen is OutputFormat.MD else orjson.loads(content)
        files.append(entry)
    return orjson.dumps({"id": job.id, "object": "job.result", "state": job.state, "files": files})


def job_view(service: Service, job: Job) -> dict[str, Any]:
    """A job as clients see it."""
    at = f"/v1/jobs/{job.id}"
    return {
        "id": job.id,
        "object": "job",
        "state": job.state,
        "created_at": iso(job.created),
        "started_at": iso(job.started),
        "finished_at": iso(job.finished),
        "queue_position": service.queue.position(job.id),
        "attempts": job.attempts,
        "options": job.options,
        "formats": job.formats,
        "progress": {
            "pages_done": job.done,
            "pages_total": job.total,
            "files_done": sum(file.state.ended for file in job.files),
            "files_total": len(job.files),
            "seconds_left": _seconds_left(job),
        },
        "files": [_file_view(job, index, file) for index, file in enumerate(job.files)],
        "error": job.error,
        "links": {"self": at, "events": f"{at}/events", "result": f"{at}/result", "cancel": f"{at}/cancel"},
    }


def _file_view(job: Job, index: int, file: JobFile) -> dict[str, Any]:
    return {
        "index": index,
        "name": file.name,
        "stem": file.stem,
        "state": file.state,
        "bytes": file.size,
        "sha256": file.sha256,
        "pages_done": file.done,
        "pages_total": file.total,
        "tier": file.tier or None,
        "engine": file.engine or None,
        "model": file.model or None,
        "seconds": round(file.seconds, 3) if file.state.has_result else None,
        "cached": file.cached,
        "error": file.error,
        "diagnostics": file.diagnostics,
    }


def _seconds_left(job: Job) -> float | None:
    """At the speed so far; pages of documents that were not yet opened are not counted."""
    if job.state is not JobState.RUNNING or job.started is None or not job.done:
        return None
    return round((time.time() - job.started) / job.done * (job.total - job.done), 1)
