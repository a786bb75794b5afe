"""What clients of MinerU 3.x send, and what it means here.

Fields that nobody knows are ignored, as several clients rely on it. ``lang_list``, ``formula_enable`` and
``table_enable`` are read but change nothing: there is nothing here that they could switch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.datastructures import FormData

from mineru_engine.detect import NATIVE_SUFFIXES
from mineru_engine.server.intake import fields_of
from mineru_engine.server.problems import RequestError

__all__ = ("TaskForm", "read_form")

DEFAULT_BACKEND = "hybrid-engine"
_BACKENDS = {
    "pipeline": "pipeline",
    "vlm-engine": "vlm-engine",
    "vlm-auto-engine": "vlm-engine",
    "vlm-transformers": "vlm-engine",
    "vlm-sglang-engine": "vlm-engine",
    "vlm-vllm-engine": "vlm-engine",
    "vlm-vllm-async-engine": "vlm-engine",
    "vlm-lmdeploy-engine": "vlm-engine",
    "vlm-mlx-engine": "vlm-engine",
    "vlm-http-client": "vlm-http-client",
    "vlm-sglang-client": "vlm-http-client",
    "hybrid-engine": "hybrid-engine",
    "hybrid-auto-engine": "hybrid-engine",
    "hybrid-transformers": "hybrid-engine",
    "hybrid-http-client": "hybrid-http-client",
}
"""Every name that a version of MinerU or a client has offered → the name it has in 3.4."""

_LAST_PAGE = 99999
_EFFORTS = ("medium", "high")
_METHODS = ("auto", "ocr", "txt")


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


class TaskForm(BaseModel):
    """The form of ``/tasks`` and ``/file_parse``."""

    model_config = ConfigDict(extra="ignore")

    lang_list: Annotated[list[str], BeforeValidator(_listed)] = Field(
        default=["ch"], description="accepted, without effect: the language is found out"
    )
    backend: str = Field(default=DEFAULT_BACKEND, description=f"one of {', '.join(_BACKENDS)}")
    effort: str = Field(default="medium", description="medium or high; of hybrid-* only")
    parse_method: str = Field(default="auto", description="auto, txt or ocr")
    formula_enable: bool = Field(default=True, description="accepted, without effect")
    table_enable: bool = Field(default=True, description="accepted, without effect")
    image_analysis: bool = Field(default=True, description="let a VLM describe images and charts")
    server_url: str | None = Field(default=None, description="VLM server for *-http-client, if its host is allowed")
    return_md: bool = Field(default=True)
    return_middle_json: bool = Field(default=False)
    return_model_output: bool = Field(default=False)
    return_content_list: bool = Field(default=False)
    return_images: bool = Field(default=False)
    response_format_zip: bool = Field(default=False, description="the result is a ZIP, not JSON")
    return_original_file: bool = Field(default=False, description="in a ZIP only")
    client_side_output_generation: bool = Field(
        default=False, description="no Markdown and content list, but all that a client needs to make them"
    )
    start_page_id: int = Field(default=0, description="first page, from 0")
    end_page_id: int = Field(default=_LAST_PAGE, description="last page, from 0; it is included")

    @property
    def family(self) -> str:
        """``pipeline``, ``vlm`` or ``hybrid``."""
        return self.backend.partition("-")[0]

    @property
    def vlm_url(self) -> str | None:
        """The VLM server asked for; other backends than ``*-http-client`` have always ignored it."""
        return self.server_url if self.backend.endswith("-http-client") else None

    def directory(self, *, native: bool) -> str:
        """Name of the directory that a client looks for its files in.

        :param native: of a format that has no pages to look at, as a Word document.
        """
        if native:
            return "office"
        return {"pipeline": self.parse_method, "vlm": "vlm"}.get(self.family, f"hybrid_{self.parse_method}")

    def options(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of ``ParseOptions``.

        :param defaults: options of the server; its tier is in force where the client named no backend.
        """
        named = (self.backend, self.effort) != (DEFAULT_BACKEND, "medium")
        tier = {"pipeline": "basic", "vlm": "xhigh"}.get(self.family, "xhigh" if self.effort == "high" else "high")
        return {
            "tier": tier if named else defaults.get("tier", tier),
            "ocr_mode": self.parse_method,
            "image_analysis": self.image_analysis,
        }

    def pages(self, name: str) -> str:
        """The page range of a document, one-based; formats without pages are always read as a whole."""
        last = self.end_page_id if 0 <= self.end_page_id < _LAST_PAGE else None
        if Path(name).suffix.lower()[1:] in NATIVE_SUFFIXES or (self.start_page_id == 0 and last is None):
            return ""
        return f"{self.start_page_id + 1}-{'' if last is None else last + 1}"


def read_form(form: FormData) -> TaskForm:
    """The fields of a form, with the names of today.

    :raises RequestValidationError: if a value is not of its type.
    :raises RequestError: if a value is none of those allowed.
    """
    values = {name: _last(name, value) for name, value in fields_of(form).items() if value != ""}
    try:
        task = TaskForm.model_validate(values)
    except ValidationError as exc:
        errors = exc.errors(include_url=False, include_input=False, include_context=False)
        raise RequestValidationError([{**error, "loc": ("body", *error["loc"])} for error in errors]) from None
    task.backend = _BACKENDS.get(task.backend, task.backend)
    _one_of("backend", task.backend, tuple(dict.fromkeys(_BACKENDS.values())))
    _one_of("effort", task.effort, _EFFORTS)
    _one_of("parse_method", task.parse_method, _METHODS)
    if not 0 <= task.start_page_id <= (task.end_page_id if task.end_page_id >= 0 else _LAST_PAGE):
        raise RequestError("start_page_id must be from 0 to end_page_id", param="start_page_id")
    if task.client_side_output_generation:
        task.return_md = task.return_content_list = False
        task.return_middle_json = task.return_model_output = task.return_images = True
    return task


def _last(name: str, value: str | list[str]) -> str | list[str]:
    return value[-1] if isinstance(value, list) and name != "lang_list" else value


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise RequestError(f"Invalid {name}. Allowed values: {', '.join(allowed)}", param=name)
