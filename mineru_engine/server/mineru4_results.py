"""What comes out of a job in MinerU 4.0's V1: one file for each document and format."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson

from mineru_engine.errors import MineruError
from mineru_engine.result import OutputFormat
from mineru_engine.server.jobs import Job, JobFile
from mineru_engine.server.mineru4_files import FileStore, StoredFile
from mineru_engine.server.mineru4_uploads import file_expiry
from mineru_engine.server.results import archive, format_name, result_files, result_path
from mineru_engine.server.service import DEFAULT_FORMATS, Service
from mineru_engine.server.storage import Storage

__all__ = ("FORMATS", "all_in_one_zip", "contents", "job_formats", "outputs", "path_of")

_RESULTS = {
    "markdown": OutputFormat.MD,
    "middle_json": OutputFormat.JSON,
    "html": OutputFormat.HTML,
    "latex": OutputFormat.LATEX,
    "docx": OutputFormat.DOCX,
}
_ENDINGS = {
    "markdown": ".md",
    "middle_json": ".middle.json",
    "structured_content": ".structured_content.json",
    "html": ".html",
    "latex": ".tex",
    "docx": ".docx",
    "zip": ".zip",
}
FORMATS = tuple(_ENDINGS)
"""What ``output_formats`` may name."""


def job_formats(asked: list[str]) -> list[str]:
    """The formats that a job must have for these outputs."""
    return list(dict.fromkeys([*DEFAULT_FORMATS, *(str(_RESULTS[name]) for name in asked if name in _RESULTS)]))


async def outputs(
    service: Service, files: FileStore, job: Job, asked: list[str]
) -> list[dict[str, dict[str, Any] | None]]:
    """For each document of a job: format → ``{file_id, bytes}``, ``None`` where there is none."""
    views: list[dict[str, dict[str, Any] | None]] = []
    for index, file in enumerate(job.files):
        view: dict[str, dict[str, Any] | None] = dict.fromkeys(FORMATS)
        for name in asked if job.state.ended and file.state.has_result else ():
            stored = await _output(service, files, job, index, name)
            view[name] = {"file_id": stored.id, "bytes": stored.size} if stored else None
        views.append(view)
    return views


async def _output(service: Service, files: FileStore, job: Job, index: int, name: str) -> StoredFile | None:
    """An output as a file; it is made when it is first looked for."""
    file_id = f"file-{sha256(f'{job.id}/{index}/{name}'.encode()).hexdigest()[:24]}"
    known = await files.get(file_id, job.tenant)
    if known is None:
        made = await asyncio.to_thread(_describe, service.storage, job, index, name)
        if made is None:
            return None
        path, size, digest = made
        created = job.finished or job.created
        file = StoredFile(
            id=file_id,
            tenant=job.tenant,
            name=Path(job.files[index].name).stem + _ENDINGS[name],
            size=size,
            sha256=digest,
            purpose="parse_output",
            created=created,
            expires=file_expiry(service, created),
            path=path.relative_to(service.storage.root).as_posix(),
        )
        await files.add(file)
        known = await files.get(file_id, job.tenant)  # none if it was deleted before
    return known


def _describe(storage: Storage, job: Job, index: int, name: str) -> tuple[Path, int, str] | None:
    try:
        path = path_of(storage, job, index, name)
        with path.open("rb") as stream:
            return path, path.stat().st_size, file_digest(stream, "sha256").hexdigest()
    except (MineruError, FileNotFoundError):  # the job has no such format, or was deleted this moment
        return None


def path_of(storage: Storage, job: Job, index: int, name: str) -> Path:
    """Where a document's output lies; what the result does not hold is made. Blocks.

    :raises RequestError: if the job cannot give it.
    """
    file = job.files[index]
    if name in _RESULTS:
        return result_path(storage, job, file, format_name(file, _RESULTS[name]))
    target = storage.output(job).parent / "exports" / f"{index:04}{_ENDINGS[name]}"
    if not target.exists():
        if name == "zip":
            made = archive(storage, _members(storage, job, file))
        else:
            made = _temporary(storage, _structured(storage, job, file))
        try:
            target.parent.mkdir(exist_ok=True)
            made.replace(target)
        finally:
            made.unlink(missing_ok=True)
    return target


def _structured(storage: Storage, job: Job, file: JobFile) -> bytes:
    from docvortex.codecs.json import load_middle
    from docvortex.render import render_structured_content

    middle = orjson.loads(result_path(storage, job, file, format_name(file, OutputFormat.JSON)).read_bytes())
    return orjson.dumps(render_structured_content(load_middle(middle)))


def _temporary(storage: Storage, content: bytes) -> Path:
    path = storage.incoming / uuid4().hex
    path.write_bytes(content)
    return path


def _members(storage: Storage, job: Job, file: JobFile) -> Iterator[tuple[str, bytes | Path]]:
    """A document's ZIP: fixed names at its root, and the pictures where Markdown and JSON name them."""
    yield "markdown.md", result_path(storage, job, file, format_name(file, OutputFormat.MD))
    yield "middle_json.json", result_path(storage, job, file, format_name(file, OutputFormat.JSON))
    yield "structured_content.json", _structured(storage, job, file)
    yield "model_output.json", result_path(storage, job, file, f"{file.stem}_model.json")
    yield from ((name, path) for name, path in result_files(storage, job, file).items() if name.startswith("images/"))


def all_in_one_zip(storage: Storage, job: Job) -> Path:
    """A temporary ZIP of all documents: that of the only one, else ``0001/…``, ``0002/…`` and a manifest. Blocks."""

    def members() -> Iterator[tuple[str, bytes | Path]]:
        done = [(number, file) for number, file in enumerate(job.files, 1) if file.state.has_result]
        if len(job.files) == 1:
            yield from _members(storage, job, job.files[0])
            return
        listed = [{"directory": f"{number:04}", "name": file.name} for number, file in done]
        yield "manifest.json", orjson.dumps({"task_id": job.id, "files": listed}, option=orjson.OPT_INDENT_2)
        for number, file in done:
            yield from ((f"{number:04}/{name}", content) for name, content in _members(storage, job, file))

    return archive(storage, members())


def contents(storage: Storage, job: Job, asked: list[str]) -> list[dict[str, Any] | None]:
    """Markdown and JSON of every document, as far as asked for; ``None`` for one without a result. Blocks."""
    found: list[dict[str, Any] | None] = []
    for index, file in enumerate(job.files):
        entry: dict[str, Any] = {}
        for name in asked if file.state.has_result else ():
            if name == "markdown":
                entry[name] = path_of(storage, job, index, name).read_text(encoding="utf-8")
            elif name in ("middle_json", "structured_content"):
                entry[name] = orjson.loads(path_of(storage, job, index, name).read_bytes())
        found.append(entry if file.state.has_result else None)
    return found
