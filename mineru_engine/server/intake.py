"""Documents on their way in: from the parts of a request to files of an upload."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, TypeVar

from pydantic import BaseModel
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from mineru_engine.detect import IMAGE_SUFFIXES, NATIVE_SUFFIXES, by_signature
from mineru_engine.errors import ErrorCode
from mineru_engine.naming import safe_stem
from mineru_engine.server.jobs import JobFile
from mineru_engine.server.problems import RequestError
from mineru_engine.server.storage import Storage

__all__ = ("Upload", "check_type", "fields_of", "form_of", "json_of", "media_type", "save_body", "uploads_of")

MAX_FIELDS = 100
MAX_NAME = 255
MAX_FIELD_BYTES = 64 << 10
_CHUNK = 1 << 20
_HEAD = 1 << 10

M = TypeVar("M", bound=BaseModel)


@dataclass(slots=True)
class Upload:
    """Documents that are not yet a job.

    Use as an asynchronous context manager: what was not accepted by then is removed.
    """

    storage: Storage
    directory: Path
    files: list[JobFile] = field(default_factory=list)

    @classmethod
    async def begin(cls, storage: Storage) -> Upload:
        """An empty one."""
        return cls(storage, await asyncio.to_thread(storage.new_upload))

    async def __aenter__(self) -> Upload:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self.storage.discard, self.directory)

    async def add(self, name: str, content: BinaryIO, *, pages: str = "") -> JobFile:
        """Take a document in.

        :param name: as the client calls it; only its last part counts.
        :raises RequestError: if it is empty.
        """
        plain = "".join(filter(str.isprintable, name.replace("\\", "/").rsplit("/", 1)[-1]))[-MAX_NAME:] or "document"
        stem = self._unique(plain)
        stored = stem + _suffix(plain)
        size, digest = await asyncio.to_thread(_copy, content, self.directory / stored)
        if not size:
            raise RequestError(f"{plain} is empty", code=ErrorCode.FILE_EMPTY, param="files")
        self.files.append(JobFile(plain, stem, stored, digest, size, pages=pages))
        return self.files[-1]

    def _unique(self, name: str) -> str:
        taken = {file.stem.casefold() for file in self.files}
        stem, number = safe_stem(name), 2
        while stem.casefold() in taken:
            stem, number = safe_stem(name, f"_{number}"), number + 1
        return stem


def _suffix(name: str) -> str:
    """What a file name ends with, as far as it can be a file name's end anywhere."""
    suffix = Path(name).suffix
    return suffix if suffix[1:].isalnum() and suffix.isascii() and len(suffix) <= 10 else ""


def _copy(source: BinaryIO, target: Path) -> tuple[int, str]:
    digest, size = sha256(), 0
    with target.open("xb") as stream:
        while chunk := source.read(_CHUNK):
            stream.write(chunk)
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def media_type(request: Request) -> str:
    """What a body is said to be, without parameters, in small letters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


@asynccontextmanager
async def form_of(request: Request, max_files: int) -> AsyncIterator[FormData]:
    """A multipart or URL-encoded body.

    :raises RequestError: if it is neither, or has too many or too large parts.
    """
    if media_type(request) not in ("multipart/form-data", "application/x-www-form-urlencoded"):
        raise RequestError("the body must be multipart/form-data", status=415, param="content-type")
    # one file more than allowed, so that the refusal is ours; some clients name a language for each file
    async with request.form(
        max_files=max_files + 1, max_fields=MAX_FIELDS + max_files, max_part_size=MAX_FIELD_BYTES
    ) as form:
        yield form


def fields_of(form: FormData) -> dict[str, str | list[str]]:
    """The fields of a form that are no files; a repeated one is a list."""
    fields: dict[str, str | list[str]] = {}
    for name in dict.fromkeys(form.keys()):
        values = [value for value in form.getlist(name) if isinstance(value, str)]
        if values:
            fields[name] = values[0] if len(values) == 1 else values
    return fields


def uploads_of(form: FormData, name: str, max_files: int) -> Sequence[UploadFile]:
    """The files that came under a field's name.

    :raises RequestError: if there are none, too many, or one is no file.
    """
    found = form.getlist(name)
    files = [item for item in found if isinstance(item, UploadFile)]
    if not files or len(files) != len(found):
        raise RequestError(f"{name}: send one or more files under this name", param=name)
    if len(files) > max_files:
        raise RequestError(f"{name}: at most {max_files} files in one job", param=name, status=413)
    return files


def check_type(upload: Upload, file: JobFile) -> None:
    """Refuse at once what no reader would take, as far as its name and its first bytes tell. Blocks.

    :raises RequestError: if it is neither a PDF nor an image and has not the name of another format that we read.
    """
    with (upload.directory / file.stored).open("rb") as stream:
        head = stream.read(_HEAD)
    suffix = Path(file.stored).suffix.lower()[1:]
    if by_signature(head) is None and suffix not in NATIVE_SUFFIXES:
        told = "unknown" if suffix in IMAGE_SUFFIXES | {"", "pdf"} else suffix
        raise RequestError(f"Unsupported file type: {told}", code=ErrorCode.FILE_TYPE_UNSUPPORTED, param="files")


async def save_body(request: Request, stream: BinaryIO, max_bytes: int) -> tuple[int, str]:
    """Write a request's body to a file.

    :return: its size and its SHA-256.
    :raises RequestError: if it is larger.
    """
    digest, size = sha256(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > max_bytes:
            raise RequestError(f"the body is larger than {max_bytes} bytes", code=ErrorCode.FILE_TOO_LARGE)
        digest.update(chunk)
        await asyncio.to_thread(stream.write, chunk)
    return size, digest.hexdigest()


async def json_of(request: Request, model: type[M], max_bytes: int) -> M:
    """A JSON body; an empty one is ``{}``.

    :raises pydantic.ValidationError: if it does not fit.
    :raises RequestError: if it is larger.
    """
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > max_bytes:
            raise RequestError(f"the body is larger than {max_bytes} bytes", code=ErrorCode.FILE_TOO_LARGE)
    return await asyncio.to_thread(model.model_validate_json, bytes(content) or b"{}")
