"""Reading results that lie on the disk. Everything here blocks: call it in a thread."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from starlette.background import BackgroundTask

from mineru_engine.errors import ErrorCode
from mineru_engine.manifest import read_manifest
from mineru_engine.output import FILE_NAMES
from mineru_engine.result import OutputFormat
from mineru_engine.server.jobs import Job, JobFile
from mineru_engine.server.problems import RequestError
from mineru_engine.server.storage import Storage

__all__ = ("archive", "format_name", "read_result", "removal", "result_files", "result_path", "zipped")


def read_result(storage: Storage, job: Job, file: JobFile, chosen: OutputFormat) -> bytes:
    """One document in one of the job's formats.

    :raises RequestError: if it is not there.
    """
    if chosen not in job.formats:
        raise RequestError(
            f"the job was not asked for format {chosen}",
            code=ErrorCode.FILE_NOT_FOUND,
            hint=f"it has {', '.join(job.formats)}",
        )
    return result_path(storage, job, file, format_name(file, chosen)).read_bytes()


def format_name(file: JobFile, chosen: OutputFormat) -> str:
    """What the file of a format is called in a document's result."""
    return FILE_NAMES[chosen].format(file.stem)


def result_files(storage: Storage, job: Job, file: JobFile) -> dict[str, Path]:
    """Name in a document's result, as ``images/….jpg`` → where that file lies; empty without a result.

    Only what the result's manifest lists is given out.
    """
    home = storage.result(job, file)
    manifest = read_manifest(home) if file.state.has_result else None
    return {record.path: home / record.path for record in manifest.files} if manifest else {}


def result_path(storage: Storage, job: Job, file: JobFile, name: str) -> Path:
    """Where one file of a result lies.

    :raises RequestError: if it is not there.
    """
    path = result_files(storage, job, file).get(name)
    if path is None:
        raise RequestError(f"{file.name} has no result file of that name", code=ErrorCode.FILE_NOT_FOUND)
    return path


def zipped(storage: Storage, job: Job) -> Path:
    """A temporary ZIP of all results, ``<stem>/<file>``; see :func:`removal`."""
    return archive(
        storage,
        (
            (f"{file.stem}/{name}", path)
            for file in job.files
            for name, path in result_files(storage, job, file).items()
        ),
    )


def archive(storage: Storage, members: Iterable[tuple[str, bytes | Path]]) -> Path:
    """A temporary ZIP; see :func:`removal`.

    :param members: names and contents; a path stands for what is in that file.
    """
    handle, name = tempfile.mkstemp(suffix=".zip", dir=storage.incoming)
    path = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as zip_file:
            for member, content in members:
                if isinstance(content, Path):
                    zip_file.write(content, member)
                else:
                    zip_file.writestr(member, content)
    except BaseException:
        path.unlink()
        raise
    return path


def removal(path: Path) -> BackgroundTask:
    """Removes a temporary file after it was sent."""
    return BackgroundTask(path.unlink, missing_ok=True)
