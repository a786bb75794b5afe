"""``/v1/parse/jobs`` of MinerU 4.0: create, look, list, cancel."""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode
from collections.abc import Sequence
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from mineru_engine.detect import NATIVE_SUFFIXES
from mineru_engine.errors import ErrorCode, OptionError
from mineru_engine.options import OcrMode, ParseOptions, Tier
from mineru_engine.pages import check_pages
from mineru_engine.server.access import LOCAL
from mineru_engine.server.intake import Upload, check_type
from mineru_engine.server.jobs import Job, JobFile, JobState, iso
from mineru_engine.server.mineru4_files import FileStore, new_id
from mineru_engine.server.mineru4_results import FORMATS, job_formats, outputs
from mineru_engine.server.mineru4_route import V1Error, V1Route, body_of
from mineru_engine.server.mineru4_uploads import TheFiles, find_file
from mineru_engine.server.native import TheCaller, TheJob, TheService
from mineru_engine.server.problems import RequestError
from mineru_engine.server.schemas import json_schema, request_body
from mineru_engine.server.service import Service
from mineru_engine.server.urls import fetch_all
from mineru_engine.version import __version__

__all__ = ("MAX_JSON", "Wanted", "asked_formats", "job_view", "read_job", "router", "submit", "take", "tier_name")

router = APIRouter(prefix="/v1/parse/jobs", tags=["MinerU 4.0"], route_class=V1Route)

MAX_JSON = 2 << 20
_MAX_INLINE = 1 << 20
_MAX_FILES = 100
_TIERS = {Tier.HIGH: "standard", Tier.XHIGH: "advanced"}
_FORBID = ConfigDict(extra="forbid")


class FileIdSource(BaseModel):
    """A file that was uploaded."""

    model_config = _FORBID

    type: Literal["file_id"]
    file_id: str = Field(max_length=100)


class UrlSource(BaseModel):
    """A document that the server fetches, if the operator allows its host."""

    model_config = _FORBID

    type: Literal["url"]
    url: str = Field(max_length=2000)


class InlineSource(BaseModel):
    """A small document in the request itself."""

    model_config = _FORBID

    type: Literal["inline"]
    name: str = Field(min_length=1, max_length=1000)
    data: str = Field(description="base64; at most 1 MiB decoded")


class SourceFile(BaseModel):
    """One document of a job."""

    model_config = _FORBID

    source: Annotated[FileIdSource | UrlSource | InlineSource, Field(discriminator="type")]
    page_range: str | None = Field(default=None, max_length=1000, description="as 1-5,8,r3-r1; of PDFs and images")


class JobBody(BaseModel):
    """A job."""

    model_config = _FORBID

    files: list[SourceFile] = Field(min_length=1, max_length=_MAX_FILES)
    tier: str | None = Field(default=None, description="flash, basic, standard or advanced")
    ocr_mode: OcrMode = OcrMode.AUTO
    output_formats: list[str] = Field(default=["markdown"], min_length=1, description=f"of {', '.join(FORMATS)}")
    callback: Any = Field(default=None, description="refused")


class Wanted(BaseModel):
    """What is to be done with the documents, however they came."""

    tier: str | None = None
    ocr_mode: OcrMode = OcrMode.AUTO
    output_formats: list[str] = ["markdown"]

    def options(self) -> dict[str, Any]:
        """Fields of ``ParseOptions``."""
        tier = {"tier": self.tier} if self.tier else {}
        return {**tier, "ocr_mode": str(self.ocr_mode)}


@router.post(
    "",
    status_code=202,
    summary="Create a job",
    openapi_extra=request_body({"application/json": json_schema(JobBody)}),
)
async def create(request: Request, service: TheService, files: TheFiles, caller: TheCaller) -> JSONResponse:
    """Documents are named by ``file_id`` or URL, or sent along if they are small."""
    service.check(caller.tenant)
    async with await Upload.begin(service.storage) as upload:
        wanted, ids = await read_job(request, service, files, caller.tenant, upload)
        job = await submit(service, upload, caller.tenant, wanted, ids)
    return JSONResponse(await job_view(service, files, job), 202)


async def read_job(
    request: Request, service: Service, files: FileStore, tenant: str, upload: Upload
) -> tuple[Wanted, list[str | None]]:
    """A job's JSON, with its documents taken in.

    :return: what is wanted, and the ids of the documents that have one.
    """
    body = await body_of(request, JobBody, MAX_JSON)
    if body.callback is not None:
        raise V1Error("invalid_request", "callback: there are no callbacks here; ask for the job", param="callback")
    most = service.settings.server.max_files
    if len(body.files) > most:
        raise RequestError(f"at most {most} files in one job", status=413, param="files")
    wanted = Wanted(tier=body.tier, ocr_mode=body.ocr_mode, output_formats=asked_formats(body.output_formats))
    ids: list[str | None] = []
    for index, item in enumerate(body.files):
        file = await _fetch(service, files, tenant, upload, item.source, f"files.{index}.source")
        await take(upload, file, item.page_range)
        ids.append(item.source.file_id if isinstance(item.source, FileIdSource) else None)
    return wanted, ids


async def _fetch(service: Service, files: FileStore, tenant: str, upload: Upload, source: Any, param: str) -> JobFile:
    """Add the document of a source to an upload."""
    if isinstance(source, FileIdSource):
        stored = await find_file(files, source.file_id, tenant)
        with files.path(stored).open("rb") as stream:
            return await upload.add(stored.name, stream)
    if isinstance(source, UrlSource):
        try:
            await fetch_all([source.url], upload, service.settings.server)
        except RequestError as exc:
            exc.param = param
            raise
        if sum(file.size for file in upload.files) > service.settings.server.max_request_mb << 20:
            raise RequestError("the documents are too large together", code=ErrorCode.FILE_TOO_LARGE, param=param)
        return upload.files[-1]
    try:
        data = await asyncio.to_thread(b64decode, source.data, validate=True)
    except ValueError:
        raise V1Error("invalid_request", f"{param}.data: this is not base64", param=param) from None
    if len(data) > _MAX_INLINE:
        raise RequestError("inline documents may have 1 MiB; upload it", code=ErrorCode.FILE_TOO_LARGE, param=param)
    return await upload.add(source.name, BytesIO(data))


async def take(upload: Upload, file: JobFile, page_range: str | None) -> None:
    """Check a document's type and set its pages."""
    await asyncio.to_thread(check_type, upload, file)
    text = (page_range or "").strip()
    if text.lower() in ("", "all"):
        return
    if Path(file.name).suffix.lower()[1:] in NATIVE_SUFFIXES:
        raise V1Error("page_range_invalid", f"{file.name} has no pages to choose from", param="page_range")
    try:
        check_pages(text)
    except OptionError as exc:
        raise V1Error("page_range_invalid", exc.message, param="page_range") from None
    file.pages = text


def asked_formats(names: Sequence[str]) -> list[str]:
    """Output formats, each once.

    :raises V1Error: if there is one that nobody knows.
    """
    for name in names:
        if name not in FORMATS:
            raise V1Error("unsupported_output_format", f"unknown output format {name!r}", param="output_formats")
    return list(dict.fromkeys(names))


async def submit(service: Service, upload: Upload, tenant: str, wanted: Wanted, ids: Sequence[str | None] = ()) -> Job:
    """Accept a job of this API."""
    return await service.submit(
        upload,
        tenant=tenant,
        options=wanted.options(),
        formats=job_formats(wanted.output_formats),
        origin={"api": "mineru4", "outputs": wanted.output_formats, "ids": list(ids)},
        job_id=new_id("job_"),
    )


@router.get("", summary="List jobs, the newest first")
async def list_jobs(
    service: TheService,
    caller: TheCaller,
    status: Annotated[str | None, Query(max_length=200, description="only these, with commas")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: Annotated[str | None, Query(max_length=100)] = None,
    order: Literal["asc", "desc"] = "desc",
    created_after: datetime | None = None,
) -> dict[str, Any]:
    """The caller's jobs, also those of the other APIs."""
    page, more = await service.page(
        caller.tenant,
        limit,
        states=_states(status),
        after=after,
        oldest_first=order == "asc",
        since=created_after.timestamp() if created_after else 0.0,
    )
    return {
        "object": "list",
        "data": [
            {
                "job_id": job.id,
                "status": job.state,
                "created_at": iso(job.created),
                "file_count": len(job.files),
            }
            for job in page
        ],
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
        "has_more": more,
    }


def _states(text: str | None) -> list[JobState]:
    try:
        return [JobState(word.strip()) for word in (text or "").split(",") if word.strip()]
    except ValueError as exc:
        raise V1Error("invalid_request", f"status: {exc}", param="status") from None


@router.get("/{job_id}", summary="State of a job")
async def get_job(service: TheService, files: TheFiles, job: TheJob) -> dict[str, Any]:
    """With the ids of what came out."""
    return await job_view(service, files, job)


@router.delete("/{job_id}", summary="Cancel a job")
async def cancel(service: TheService, job: TheJob) -> dict[str, Any]:
    """Returns when its work has stopped; its documents and its record stay."""
    ended = await end(service, job)
    return {"job_id": job.id, "status": "canceled", "canceled_at": iso(ended.finished or time.time())}


async def end(service: Service, job: Job) -> Job:
    """Cancel a job.

    :raises V1Error: if it had ended.
    """
    if job.state.ended or (ended := await service.cancel(job)).state is not JobState.CANCELED:
        raise V1Error("job_already_terminal", "the job has ended", status=409)
    return ended


async def job_view(service: Service, files: FileStore, job: Job) -> dict[str, Any]:
    """A job as clients see it."""
    asked = job.origin.get("outputs", ["markdown", "middle_json"])
    ids = [*job.origin.get("ids", ()), *[None] * len(job.files)]
    made = await outputs(service, files, job, asked)
    at = f"/v1/parse/jobs/{job.id}"
    return {
        "job_id": job.id,
        "status": job.state,
        "created_at": iso(job.created),
        "started_at": iso(job.started),
        "finished_at": iso(job.finished),
        "tier": tier_name(ParseOptions.create(**job.options).effective_tier(service.settings.model.vlm)),
        "output_formats": asked,
        "access_level": access_level(job.tenant),
        "progress": {
            "completed": sum(file.state.has_result for file in job.files),
            "failed": sum(file.state is JobState.FAILED for file in job.files),
            "total": len(job.files),
        },
        "files": [_file_view(*parts) for parts in zip(job.files, ids, made, strict=False)],
        "links": {"self": at, "cancel": at},
    }


def access_level(tenant: str) -> str:
    """Whether the caller came with a key."""
    return "anonymous" if tenant == LOCAL else "registered"


def tier_name(tier: Tier) -> str:
    """What 4.0 calls a tier."""
    return _TIERS.get(tier, str(tier))


def _file_view(file: JobFile, file_id: str | None, made: dict[str, Any]) -> dict[str, Any]:
    done = file.state.has_result
    return {
        "file_id": file_id,
        "name": file.name,
        "page_range": file.pages or None,
        "status": JobState.COMPLETED if done else file.state,
        "parse": {
            "model_used": (file.model or file.engine or None) if done else None,
            "duration_ms": round(file.seconds * 1000) if done else None,
            "parser_version": __version__,
        },
        "output_files": made,
        "error": {"code": file.error["code"], "message": file.error["message"]} if file.error else None,
    }
