"""``/v1/uploads`` and ``/v1/files`` of MinerU 4.0."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field

from mineru_engine.server.intake import save_body
from mineru_engine.server.mineru4_files import FileStore, StoredFile, StoredUpload, new_id
from mineru_engine.server.mineru4_route import V1Error, V1Route, body_of
from mineru_engine.server.native import TheCaller, TheService
from mineru_engine.server.problems import RequestError
from mineru_engine.server.schemas import BINARY, json_schema, request_body
from mineru_engine.server.service import Service

__all__ = ("TheFiles", "file_expiry", "file_view", "find_file", "router")

router = APIRouter(prefix="/v1", tags=["MinerU 4.0"], route_class=V1Route)

_UPLOAD_S = 3600.0
_MAX_BODY = 1 << 16
_SHA256 = r"^[0-9a-fA-F]{64}$"
_FORBID = ConfigDict(extra="forbid")


class Expiry(BaseModel):
    """When a file goes."""

    model_config = _FORBID

    anchor: Literal["created_at"]
    seconds: int = Field(ge=3600, le=2592000)


class UploadRequest(BaseModel):
    """A file that will be sent."""

    model_config = _FORBID

    filename: str = Field(min_length=1, max_length=1000)
    bytes: int = Field(gt=0, description="size of the file")
    mime_type: str = Field(default="application/octet-stream", max_length=200)
    purpose: Literal["parse", "input_image"] = "parse"
    sha256sum: str | None = Field(default=None, pattern=_SHA256)
    expires_after: Expiry | None = None


class Completion(BaseModel):
    """What was sent."""

    model_config = _FORBID

    sha256sum: str | None = Field(default=None, pattern=_SHA256)


def _files_of(request: Request) -> FileStore:
    files: FileStore = request.app.state.files
    return files


TheFiles = Annotated[FileStore, Depends(_files_of)]


async def _upload(files: TheFiles, caller: TheCaller, upload_id: str) -> StoredUpload:
    upload = await files.get_upload(upload_id, caller.tenant)
    if upload is None:
        raise V1Error("upload_not_found", f"no upload {upload_id!r}", status=404, param="upload_id")
    return upload


async def find_file(files: FileStore, file_id: str, tenant: str) -> StoredFile:
    """A tenant's file.

    :raises V1Error: if there is none.
    """
    file = await files.get(file_id, tenant)
    if file is None:
        raise V1Error("file_not_found", f"no file {file_id!r}", status=404, param="file_id")
    return file


async def _file(files: TheFiles, caller: TheCaller, file_id: str) -> StoredFile:
    return await find_file(files, file_id, caller.tenant)


TheUpload = Annotated[StoredUpload, Depends(_upload)]
TheFile = Annotated[StoredFile, Depends(_file)]


def file_expiry(service: Service, created: float) -> float | None:
    """When a file goes that was given no time of its own: with the jobs of its day."""
    hours = service.settings.server.retention_hours
    return created + hours * 3600 if hours else None


@router.post(
    "/uploads",
    summary="Announce a file",
    openapi_extra=request_body({"application/json": json_schema(UploadRequest)}, required=False),
)
async def create(request: Request, service: TheService, files: TheFiles, caller: TheCaller) -> dict[str, Any]:
    """Where to send it. If the caller has sent the same bytes before, that file is given at once."""
    asked = await body_of(request, UploadRequest, _MAX_BODY)
    largest = service.settings.server.max_request_mb << 20
    if asked.bytes > largest:
        raise V1Error("file_too_large", f"a file may have {largest} bytes", status=413, param="bytes")
    service.check(caller.tenant)
    now = time.time()
    sha256 = (asked.sha256sum or "").lower()
    known = await files.with_hash(sha256, caller.tenant) if sha256 else None
    if known is not None and known.size != asked.bytes:
        raise V1Error("upload_size_mismatch", f"the file with this hash has {known.size} bytes", param="bytes")
    expires = now + asked.expires_after.seconds if asked.expires_after else file_expiry(service, now)
    upload = StoredUpload(
        id=new_id("upload_"),
        tenant=caller.tenant,
        name=asked.filename,
        size=asked.bytes,
        mime=asked.mime_type,
        sha256=sha256,
        purpose=asked.purpose,
        status="completed" if known else "pending",
        created=now,
        expires=now + _UPLOAD_S,
        file_expires=expires,
        file=known.id if known else "",
    )
    await files.add_upload(upload)
    return await _upload_view(files, upload)


@router.put(
    "/uploads/{upload_id}/content",
    summary="Send a file",
    openapi_extra=request_body({"application/octet-stream": BINARY}, required=False),
)
async def receive(request: Request, service: TheService, files: TheFiles, upload: TheUpload) -> Response:
    """The bytes, exactly as many as were announced. May be repeated until the upload is complete."""
    _must_be_pending(upload)
    with tempfile.NamedTemporaryFile(dir=service.storage.incoming, delete=False) as stream:
        path = Path(stream.name)
        try:
            size, sha256 = await _body(request, stream, upload)
            stream.close()
            if size != upload.size:
                raise V1Error("upload_size_mismatch", f"{size} bytes came, not {upload.size}", status=413)
            if not await files.receive(upload, path, sha256):
                raise V1Error("upload_already_terminal", "the upload has ended", status=409)
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)
    return Response()


async def _body(request: Request, stream: Any, upload: StoredUpload) -> tuple[int, str]:
    try:
        return await save_body(request, stream, upload.size)
    except RequestError as exc:
        raise V1Error("upload_size_mismatch", f"more than {upload.size} bytes came", status=exc.status or 413) from None


@router.post(
    "/uploads/{upload_id}/complete",
    summary="Make a file of an upload",
    openapi_extra=request_body({"application/json": json_schema(Completion)}, required=False),
)
async def complete(request: Request, files: TheFiles, upload: TheUpload) -> dict[str, Any]:
    """The body is optional."""
    told = await body_of(request, Completion, _MAX_BODY)
    _must_be_pending(upload)
    if not upload.received:
        raise V1Error("upload_not_ready", "the content was not sent", status=409)
    for sha256 in (upload.sha256, (told.sha256sum or "").lower()):
        if sha256 not in ("", upload.received):
            raise V1Error("file_hash_mismatch", f"the content has the hash {upload.received}", param="sha256sum")
    file = StoredFile(
        id=new_id("file-"),
        tenant=upload.tenant,
        name=upload.name,
        size=upload.size,
        sha256=upload.received,
        purpose=upload.purpose,
        created=time.time(),
        expires=upload.file_expires,
        path=f"files/{upload.id}",
    )
    await _end(files, upload, file)
    upload.status, upload.file = "completed", file.id
    return await _upload_view(files, upload)


@router.post("/uploads/{upload_id}/cancel", summary="Give an upload up")
async def cancel(files: TheFiles, upload: TheUpload) -> dict[str, Any]:
    """What was sent of it is removed."""
    await _end(files, upload, None)
    upload.status = "cancelled"
    return await _upload_view(files, upload)


@router.get("/uploads/{upload_id}", summary="State of an upload")
async def get_upload(files: TheFiles, upload: TheUpload) -> dict[str, Any]:
    """404 once it has expired."""
    return await _upload_view(files, upload)


@router.get("/files", summary="List files")
async def list_files(
    files: TheFiles,
    caller: TheCaller,
    after: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    order: Literal["asc", "desc"] = "desc",
    purpose: Annotated[str | None, Query(max_length=100)] = None,
) -> dict[str, Any]:
    """The caller's: what was uploaded, and what came out of jobs of this API."""
    found = await files.page(caller.tenant, purpose=purpose, limit=limit + 1, after=after, oldest_first=order == "asc")
    page = found[:limit]
    return {
        "object": "list",
        "data": [file_view(file) for file in page],
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
        "has_more": len(found) > limit,
    }


@router.get("/files/{file_id}", summary="About a file")
async def get_file(file: TheFile) -> dict[str, Any]:
    """Its name, size and hash."""
    return file_view(file)


@router.get("/files/{file_id}/content", summary="Contents of a result")
async def content(files: TheFiles, file: TheFile) -> FileResponse:
    """What came out of a job. Documents that were sent are not given back."""
    if not file.is_output:
        raise V1Error("feature_requires_api_key", "documents are not given back", status=403)
    return FileResponse(files.path(file), filename=file.name, media_type="application/octet-stream")


@router.delete("/files/{file_id}", summary="Remove a file")
async def delete(files: TheFiles, file: TheFile) -> dict[str, Any]:
    """A result is no longer given out, but goes only with its job."""
    await files.delete(file)
    return {"id": file.id, "object": "file", "deleted": True}


def _must_be_pending(upload: StoredUpload) -> None:
    if upload.status != "pending":
        raise V1Error("upload_already_terminal", f"the upload is {upload.status}", status=409)


async def _end(files: FileStore, upload: StoredUpload, file: StoredFile | None) -> None:
    if not await files.end_upload(upload, file):
        raise V1Error("upload_already_terminal", "the upload has ended", status=409)


async def _upload_view(files: FileStore, upload: StoredUpload) -> dict[str, Any]:
    file = await files.get(upload.file, upload.tenant) if upload.file else None
    return {
        "id": upload.id,
        "object": "upload",
        "bytes": upload.size,
        "created_at": int(upload.created),
        "expires_at": int(upload.expires),
        "filename": upload.name,
        "purpose": upload.purpose,
        "mime_type": upload.mime,
        "sha256sum": upload.received or upload.sha256 or None,
        "status": upload.status,
        "upload_url": f"/v1/uploads/{upload.id}/content" if upload.status == "pending" else None,
        "upload_method": "PUT",
        "upload_headers": {"Content-Type": upload.mime},
        "file": file_view(file) if file else None,
    }


def file_view(file: StoredFile) -> dict[str, Any]:
    """A file as clients see it."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size,
        "created_at": int(file.created),
        "expires_at": None if file.expires is None else int(file.expires),
        "filename": file.name,
        "purpose": file.purpose,
        "sha256sum": file.sha256,
    }
