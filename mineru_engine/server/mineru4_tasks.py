"""``/v1/tasks`` and ``/v1/file_parse`` of MinerU 4.0: a job in one request, and its result in one answer."""

from __future__ import annotations

import asyncio
import tempfile
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse

from mineru_engine.errors import ErrorCode
from mineru_engine.options import OcrMode
from mineru_engine.server.intake import Upload, fields_of, form_of, media_type, save_body, uploads_of
from mineru_engine.server.jobs import Job, JobState
from mineru_engine.server.mineru4_files import FileStore
from mineru_engine.server.mineru4_jobs import JobBody, Wanted, asked_formats, end, job_view, read_job, take
from mineru_engine.server.mineru4_jobs import submit as submit_job
from mineru_engine.server.mineru4_results import all_in_one_zip, contents
from mineru_engine.server.mineru4_route import V1Error, V1Route
from mineru_engine.server.mineru4_uploads import TheFiles
from mineru_engine.server.native import TheCaller, TheJob, TheService
from mineru_engine.server.problems import RequestError
from mineru_engine.server.results import removal
from mineru_engine.server.schemas import BINARY, json_schema, request_body
from mineru_engine.server.service import Service
from mineru_engine.server.waiting import until_ended

__all__ = ("router",)

router = APIRouter(prefix="/v1", tags=["MinerU 4.0"], route_class=V1Route)

ResponseFormat = Literal["json", "zip"]

_BODY = request_body(
    {
        "multipart/form-data": {
            "type": "object",
            "properties": {"files": {"type": "array", "items": BINARY}},
            "required": ["files"],
            "additionalProperties": False,
        },
        "application/json": json_schema(JobBody),
        "application/octet-stream": BINARY,
    }
)


async def _asked(
    tier: str | None = None,
    ocr_mode: OcrMode = OcrMode.AUTO,
    page_range: Annotated[str | None, Query(max_length=1000)] = None,
    output_formats: Annotated[list[str], Query()] = ["markdown"],  # noqa: B006 - FastAPI's manner
    filename: Annotated[str | None, Query(max_length=1000, description="of an octet-stream")] = None,
    sha256sum: Annotated[str | None, Query(pattern=r"^[0-9a-fA-F]{64}$", description="of an octet-stream")] = None,
) -> dict[str, Any]:
    """What stands in the query; it holds for bodies that are no JSON."""
    wanted = Wanted(tier=tier, ocr_mode=ocr_mode, output_formats=asked_formats(output_formats))
    return {"wanted": wanted, "page_range": page_range, "filename": filename, "sha256sum": sha256sum}


TheQuery = Annotated[dict[str, Any], Depends(_asked)]


@router.post("/tasks", status_code=202, summary="Submit a task", openapi_extra=_BODY)
async def submit(
    request: Request, service: TheService, files: TheFiles, caller: TheCaller, query: TheQuery
) -> JSONResponse:
    """Documents as parts ``files`` of a form, one as the body itself, or a job's JSON."""
    job = await _submit(request, service, files, caller.tenant, query)
    return JSONResponse(await _view(service, files, job), 202)


@router.post("/file_parse", summary="Parse and wait for the result", openapi_extra=_BODY)
async def file_parse(
    request: Request,
    service: TheService,
    files: TheFiles,
    caller: TheCaller,
    query: TheQuery,
    response_format: ResponseFormat = "json",
    wait_timeout: Annotated[int, Query(ge=1, le=3600, description="seconds")] = 300,
) -> Response:
    """After ``wait_timeout`` the task is given (202) and goes on. Who goes away before that cancels it."""
    job = await _submit(request, service, files, caller.tenant, query, response_format)
    return await _result(service, files, await until_ended(request, service, job, wait_timeout), response_format)


@router.get("/tasks/{job_id}", summary="State of a task")
async def get_task(service: TheService, files: TheFiles, job: TheJob) -> dict[str, Any]:
    """A task is a job; so is its id."""
    return await _view(service, files, job)


@router.delete("/tasks/{job_id}", summary="Cancel a task")
async def cancel(service: TheService, files: TheFiles, job: TheJob) -> dict[str, Any]:
    """Returns when its work has stopped."""
    return await _view(service, files, await end(service, job))


@router.get("/tasks/{job_id}/result", summary="Result of a task")
async def get_result(
    service: TheService, files: TheFiles, job: TheJob, response_format: ResponseFormat = "json"
) -> Response:
    """202 while it is not there, 409 if there is none."""
    _must_be_able_to_give(_outputs(job), response_format)
    return await _result(service, files, job, response_format)


async def _submit(
    request: Request,
    service: Service,
    files: FileStore,
    tenant: str,
    query: dict[str, Any],
    response_format: ResponseFormat = "json",
) -> Job:
    service.check(tenant)
    async with await Upload.begin(service.storage) as upload:
        wanted, ids = await _read(request, service, files, tenant, query, upload)
        _must_be_able_to_give(wanted.output_formats, response_format)
        return await submit_job(service, upload, tenant, wanted, ids)


async def _read(
    request: Request, service: Service, files: FileStore, tenant: str, query: dict[str, Any], upload: Upload
) -> tuple[Wanted, list[str | None]]:
    kind = media_type(request)
    if kind == "application/json":
        return await read_job(request, service, files, tenant, upload)
    if kind == "application/octet-stream":
        await _read_stream(request, service, query, upload)
    else:
        await _read_form(request, service, upload)
    for file in upload.files:
        await take(upload, file, query["page_range"])
    return query["wanted"], []


async def _read_form(request: Request, service: Service, upload: Upload) -> None:
    limit = service.settings.server.max_files
    async with form_of(request, limit) as form:
        if fields_of(form):
            raise V1Error("invalid_request", "Too many fields: options stand in the query", param="files")
        for item in uploads_of(form, "files", limit):
            await upload.add(item.filename or "", item.file)


async def _read_stream(request: Request, service: Service, query: dict[str, Any], upload: Upload) -> None:
    if "content-length" not in request.headers:
        raise V1Error("invalid_request", "a Content-Length is needed", status=411, param="content-length")
    if not query["filename"]:
        raise V1Error("invalid_request", "filename: say what the document is called", param="filename")
    with tempfile.TemporaryFile(dir=service.storage.incoming) as stream:
        _, sha256 = await save_body(request, stream, service.settings.server.max_request_mb << 20)
        if query["sha256sum"] and query["sha256sum"].lower() != sha256:
            raise V1Error("file_hash_mismatch", f"the content has the hash {sha256}", param="sha256sum")
        stream.seek(0)
        await upload.add(query["filename"], stream)


def _outputs(job: Job) -> list[str]:
    found: list[str] = job.origin.get("outputs", ["markdown", "middle_json"])
    return found


def _must_be_able_to_give(outputs: list[str], response_format: ResponseFormat) -> None:
    if response_format == "zip" and "zip" not in outputs:
        raise V1Error("unsupported_output_format", "zip is not among the output_formats", param="response_format")


async def _result(service: Service, files: FileStore, job: Job, response_format: ResponseFormat) -> Response:
    if not job.state.ended:
        return JSONResponse(await _view(service, files, job), 202)
    if not job.state.has_result:
        _refuse(job)
    if response_format == "zip":
        path = await asyncio.to_thread(all_in_one_zip, service.storage, job)
        return FileResponse(path, filename=f"{job.id}.zip", media_type="application/zip", background=removal(path))
    view = await _view(service, files, job)
    found = await asyncio.to_thread(contents, service.storage, job, _outputs(job))
    for entry, content in zip(view["files"], found, strict=True):
        entry["content"] = content
    return JSONResponse(view)


def _refuse(job: Job) -> None:
    if job.state is JobState.CANCELED:
        raise V1Error("task_canceled", "the task was canceled", status=409)
    raise RequestError(job.complaints or "the task failed", code=ErrorCode.RESULT_NOT_READY, status=409)


async def _view(service: Service, files: FileStore, job: Job) -> dict[str, Any]:
    view = await job_view(service, files, job)
    at = f"/v1/tasks/{view.pop('job_id')}"
    return {"task_id": job.id, **view, "status_url": at, "result_url": f"{at}/result"}
