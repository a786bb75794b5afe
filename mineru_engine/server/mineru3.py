"""The API of MinerU 3.x (protocol 2), for clients that know no other: ``/tasks``, ``/file_parse``, ``/health``.

A job is the same as everywhere else on this server; here it is called a task, and a cancelled one has failed.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from starlette.datastructures import FormData, UploadFile

from mineru_engine.errors import ErrorCode
from mineru_engine.server.intake import Upload, check_type, form_of, uploads_of
from mineru_engine.server.jobs import Job, JobState
from mineru_engine.server.mineru3_form import TaskForm, read_form
from mineru_engine.server.mineru3_results import as_json, members
from mineru_engine.server.native import TheCaller, TheService
from mineru_engine.server.problems import RequestError
from mineru_engine.server.results import archive, removal
from mineru_engine.server.schemas import form_schema, request_body
from mineru_engine.server.service import Service
from mineru_engine.server.urls import check_server_url
from mineru_engine.server.waiting import until_ended
from mineru_engine.version import __version__

__all__ = ("router",)

router = APIRouter(tags=["MinerU 3.x"])

PROTOCOL_VERSION = 2
_CLEANUP_INTERVAL_S = 60

_SUBMIT = request_body({"multipart/form-data": form_schema(TaskForm)})


@router.post("/tasks", status_code=202, summary="Submit a task", openapi_extra=_SUBMIT)
async def submit(request: Request, service: TheService, caller: TheCaller) -> JSONResponse:
    """Answers at once; ask ``status_url`` how far it is."""
    job = await _submit(request, service, caller.tenant)
    return JSONResponse(
        {**_status(request, job), "queued_ahead": _ahead(service, job), "message": "Task submitted successfully"}, 202
    )


@router.post("/file_parse", summary="Parse and wait for the result", openapi_extra=_SUBMIT)
async def file_parse(request: Request, service: TheService, caller: TheCaller) -> Response:
    """Answers when the task has ended. Who goes away before cancels it."""
    job = await until_ended(request, service, await _submit(request, service, caller.tenant))
    status = _status(request, job)
    if not job.state.ended:
        gone = {"message": "the server is shutting down", "error": "the task goes on when the server is back"}
        return JSONResponse({**status, **gone}, 503, {"Retry-After": "5"})
    if status["status"] == "failed":
        return _failed(status)
    task = _task(job)
    if not task.response_format_zip:
        return JSONResponse({**status, **await _results(service, job, task)})
    names = {"Id": "task_id", "Status": "status", "Status-Url": "status_url", "Result-Url": "result_url"}
    return await _zip(service, job, task, {f"X-MinerU-Task-{name}": status[key] for name, key in names.items()})


@router.get("/tasks/{task_id}", name="mineru3_task", summary="State of a task")
async def get_task(request: Request, service: TheService, caller: TheCaller, task_id: str) -> dict[str, Any]:
    """``pending``, ``processing``, ``completed`` or ``failed``."""
    job = await _find(service, task_id, caller.tenant)
    return {**_status(request, job), "queued_ahead": _ahead(service, job)}


@router.get("/tasks/{task_id}/result", name="mineru3_result", summary="Result of a task")
async def get_result(request: Request, service: TheService, caller: TheCaller, task_id: str) -> Response:
    """202 while it is not there, 409 if the task failed; JSON or a ZIP, as asked for with the task."""
    job = await _find(service, task_id, caller.tenant)
    status = _status(request, job)
    if not job.state.ended:
        return JSONResponse({**status, "message": "Task result is not ready yet"}, 202)
    if status["status"] == "failed":
        return _failed(status)
    task = _task(job)
    if task.response_format_zip:
        return await _zip(service, job, task, {})
    return JSONResponse(await _results(service, job, task))


@router.get("/health", summary="Is the server well?")
async def health(service: TheService) -> JSONResponse:
    """What a client of protocol 2 wants to know before it sends anything."""
    if service.engine_problem is not None or not service.queue.accepting:
        problem = service.engine_problem.message if service.engine_problem else "the server is shutting down"
        return JSONResponse({"status": "unhealthy", "version": __version__, "error": problem}, 503)
    counts, settings = await service.store.counts(), service.settings

    def count(*states: JobState) -> int:
        return sum(counts.get(state, 0) for state in states)

    return JSONResponse(
        {
            "status": "healthy",
            "version": __version__,
            "protocol_version": PROTOCOL_VERSION,
            "queued_tasks": count(JobState.QUEUED),
            "processing_tasks": count(JobState.RUNNING),
            "completed_tasks": count(JobState.COMPLETED, JobState.PARTIAL),
            "failed_tasks": count(JobState.FAILED, JobState.CANCELED),
            "max_concurrent_requests": settings.server.concurrency,
            "processing_window_size": settings.processing.window_size,
            "task_retention_seconds": round(settings.server.retention_hours * 3600),
            "task_cleanup_interval_seconds": _CLEANUP_INTERVAL_S,
        }
    )


async def _submit(request: Request, service: Service, tenant: str) -> Job:
    service.check(tenant)
    limit = service.settings.server.max_files
    async with await Upload.begin(service.storage) as upload:
        async with form_of(request, limit) as form:
            _must_have_files(form)
            task = read_form(form)
            options = task.options(service.defaults)
            if task.vlm_url is not None:
                options["server_url"] = await check_server_url(task.vlm_url, service.settings)
            for item in uploads_of(form, "files", limit):
                file = await upload.add(item.filename or "", item.file, pages=task.pages(item.filename or ""))
                await asyncio.to_thread(check_type, upload, file)
        return await service.submit(
            upload, tenant=tenant, options=options, origin={"api": "mineru3", "task": task.model_dump()}
        )


def _must_have_files(form: FormData) -> None:
    if not any(isinstance(item, UploadFile) for item in form.getlist("files")):
        raise RequestValidationError([{"type": "missing", "loc": ("body", "files"), "msg": "Field required"}])


async def _find(service: Service, task_id: str, tenant: str) -> Job:
    try:
        return await service.find(task_id, tenant)
    except RequestError:
        raise RequestError("Task not found", code=ErrorCode.JOB_NOT_FOUND) from None


def _task(job: Job) -> TaskForm:
    return TaskForm.model_validate(job.origin.get("task", {}))


def _ahead(service: Service, job: Job) -> int:
    return service.queue.position(job.id) or 0


def _status(request: Request, job: Job) -> dict[str, Any]:
    return {
        "task_id": job.id,
        "status": _word(job),
        "backend": _task(job).backend,
        "file_names": [file.stem for file in job.files],
        "created_at": _iso(job.created),
        "started_at": _iso(job.started),
        "completed_at": _iso(job.finished),
        "error": _error(job),
        "status_url": str(request.url_for("mineru3_task", task_id=job.id)),
        "result_url": str(request.url_for("mineru3_result", task_id=job.id)),
    }


def _word(job: Job) -> str:
    """The state in 3.x: a task is done when all its files are, and failed if one is not."""
    if not job.state.ended:
        return "pending" if job.state is JobState.QUEUED else "processing"
    return "completed" if all(file.state.has_result for file in job.files) else "failed"


def _error(job: Job) -> str | None:
    if not job.state.ended:
        return None
    if job.state is JobState.CANCELED:
        return "the task was cancelled"
    return job.complaints or (job.error["message"] if job.error else None)


def _failed(status: dict[str, Any]) -> JSONResponse:
    return JSONResponse({**status, "message": "Task execution failed"}, 409)


async def _results(service: Service, job: Job, task: TaskForm) -> dict[str, Any]:
    results = await asyncio.to_thread(as_json, service.storage, job, task)
    return {"backend": task.backend, "version": __version__, "results": results}


async def _zip(service: Service, job: Job, task: TaskForm, headers: dict[str, str]) -> FileResponse:
    path = await asyncio.to_thread(lambda: archive(service.storage, members(service.storage, job, task)))
    return FileResponse(
        path, filename=f"{job.id}.zip", media_type="application/zip", headers=headers, background=removal(path)
    )


def _iso(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat()
