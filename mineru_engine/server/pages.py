"""Pages of a job's documents as pictures, drawn by the engine's workers."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from mineru_engine.api import page_image_async
from mineru_engine.errors import ErrorCode, InputError, OptionError
from mineru_engine.options import ImageFormat
from mineru_engine.server.jobs import Job, JobFile
from mineru_engine.server.native import TheJob, TheService
from mineru_engine.server.problems import RequestError
from mineru_engine.server.service import Service
from mineru_engine.server.waiting import gone

__all__ = ("router",)

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

_MAX_WIDTH = 2400
_CACHED = {"Cache-Control": "private, max-age=3600, immutable", "X-Content-Type-Options": "nosniff"}
_PICTURES: dict[int | str, dict[str, Any]] = {
    200: {"content": {f"image/{name}": {} for name in ImageFormat}, "description": "the picture"}
}


@router.get(
    "/{job_id}/files/{index}/pages/{page}.{image_format}",
    response_class=Response,
    responses=_PICTURES,
    summary="A page of a document as a picture",
)
async def page_picture(
    request: Request,
    service: TheService,
    job: TheJob,
    index: Annotated[int, Path(ge=0, description="which document, from 0")],
    page: Annotated[int, Path(ge=1, le=1_000_000, description="which page, from 1")],
    image_format: Annotated[ImageFormat, Path(description="a JPEG may come as PNG where that is smaller")],
    width: Annotated[int, Query(ge=16, le=_MAX_WIDTH, description="pixels, as far as the page has them")] = 1200,
) -> Response:
    """Of PDFs and images, as they were sent; other formats have no pages."""
    if index >= len(job.files):
        raise RequestError(f"the job has no document {index}", code=ErrorCode.FILE_NOT_FOUND, param="index")
    drawing = asyncio.create_task(_draw(service, job, job.files[index], page - 1, width, image_format))
    leaving = asyncio.create_task(gone(request))
    try:
        await asyncio.wait({drawing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not drawing.done():
            return Response(status_code=499)  # nobody reads it
        picture, media_type = drawing.result()
    finally:
        drawing.cancel()
        leaving.cancel()
        await asyncio.gather(drawing, leaving, return_exceptions=True)
    return Response(picture, media_type=media_type, headers=_CACHED)


async def _draw(
    service: Service, job: Job, file: JobFile, page: int, width: int, image_format: ImageFormat
) -> tuple[bytes, str]:
    try:
        return await page_image_async(
            service.storage.input(job, file),
            page,
            width=width,
            image_format=image_format,
            password=service.work.secrets.get(job.id, {}).get("password"),
            settings=service.settings,
            lease=service.lease,
        )
    except OptionError as exc:
        raise RequestError(exc.message, code=ErrorCode.FILE_NOT_FOUND, param="page") from None
    except InputError as exc:
        raise RequestError(exc.message, code=exc.code, hint=exc.hint, status=422) from None
