"""Results as clients of MinerU 3.x expect them. Everything here blocks: call it in a thread."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from mimetypes import guess_type
from pathlib import Path
from typing import Any

import orjson

from mineru_engine.result import OutputFormat
from mineru_engine.server.jobs import Job, JobFile
from mineru_engine.server.mineru3_form import TaskForm
from mineru_engine.server.mineru3_json import content_list_v2, content_list_v3, middle_v3
from mineru_engine.server.results import format_name, result_files
from mineru_engine.server.storage import Storage

__all__ = ("as_json", "members")


@dataclass(slots=True)
class _Result:
    """The files of one document."""

    file: JobFile
    task: TaskForm
    paths: dict[str, Path]

    @classmethod
    def of(cls, storage: Storage, job: Job, file: JobFile, task: TaskForm) -> _Result:
        return cls(file, task, result_files(storage, job, file))

    def read(self, name: str) -> bytes | None:
        path = self.paths.get(name)
        return path.read_bytes() if path else None

    def images(self) -> list[str]:
        return sorted(path for path in self.paths if path.startswith("images/"))

    def middle(self) -> dict[str, Any] | None:
        """docvortex's."""
        content = self.read(format_name(self.file, OutputFormat.JSON))
        return None if content is None else orjson.loads(content)

    def artifacts(self) -> dict[str, bytes | None]:
        """What was asked for: key of a JSON result → content. The file of a ZIP ends in ``_SUFFIXES[key]``."""
        task, found = self.task, dict[str, bytes | None]()
        if task.return_md:
            found["md_content"] = self.read(format_name(self.file, OutputFormat.MD))
        if task.return_middle_json:
            found["middle_json"] = _dumped(self.middle_v3())
        if task.return_model_output:
            found["model_output"] = self.read(f"{self.file.stem}_model.json")
        if task.return_content_list:
            found["content_list"] = self.content_list()
        return found

    def middle_v3(self) -> dict[str, Any] | None:
        middle = self.middle()
        if middle is None:
            return None
        native = middle["metadata"]["file_suffix"] != "pdf"
        return middle_v3(middle, "office" if native else self.task.family, self.task.start_page_id)

    def content_list(self) -> bytes | None:
        content = self.read(format_name(self.file, OutputFormat.CONTENT_LIST))
        return None if content is None else _dumped(content_list_v3(orjson.loads(content), self.task.start_page_id))


_SUFFIXES = {
    "md_content": ".md",
    "middle_json": "_middle.json",
    "model_output": "_model.json",
    "content_list": "_content_list.json",
}


def as_json(storage: Storage, job: Job, task: TaskForm) -> dict[str, dict[str, Any]]:
    """``results`` of a JSON answer: stem → what was asked for. JSON files are strings; what is missing is null."""
    results = {}
    for file in job.files:
        result = _Result.of(storage, job, file, task)
        entry: dict[str, Any] = {
            key: None if content is None else content.decode() for key, content in result.artifacts().items()
        }
        if task.return_images:
            entry["images"] = {Path(path).name: _data_uri(result.paths[path]) for path in result.images()}
        results[file.stem] = entry
    return results


def members(storage: Storage, job: Job, task: TaskForm) -> Iterator[tuple[str, bytes | Path]]:
    """Members of a ZIP, ``<stem>/<directory>/<file>``; a path stands for what is in that file."""
    for file in job.files:
        result = _Result.of(storage, job, file, task)
        middle = result.middle()
        native = middle is not None and middle["metadata"]["file_suffix"] != "pdf"
        at = f"{file.stem}/{task.directory(native=native)}"
        for key, content in result.artifacts().items():
            if content is not None:
                yield f"{at}/{file.stem}{_SUFFIXES[key]}", content
        if task.return_content_list and (legacy := result.middle_v3()) is not None:
            yield f"{at}/{file.stem}_content_list_v2.json", orjson.dumps(content_list_v2(legacy))
        if task.return_images:
            for path in result.images():
                yield f"{at}/{path}", result.paths[path]
        if task.return_original_file:
            yield f"{at}/{file.stem}_origin{Path(file.stored).suffix}", storage.input(job, file)


def _dumped(value: Any) -> bytes | None:
    return None if value is None else orjson.dumps(value, option=orjson.OPT_INDENT_2)


def _data_uri(path: Path) -> str:
    kind = guess_type(path.name)[0] or "image/jpeg"
    return f"data:{kind};base64,{b64encode(path.read_bytes()).decode()}"
