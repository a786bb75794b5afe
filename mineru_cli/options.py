"""Options that several commands take: one spelling and one help text each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

__all__ = ("ConfigOption", "EngineOption", "ModelOption", "OcrModeOption", "ServerUrlOption", "TierOption")

TierOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="auto|flash|basic|high|xhigh", help="How much machinery reads a page.")
]
OcrModeOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="auto|txt|ocr", help="Where text comes from; auto decides per page.")
]
EngineOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="What runs the VLM: auto, http, vllm, onnx ...")
]
ServerUrlOption: TypeAlias = Annotated[str | None, typer.Option(metavar="URL", help="OpenAI-compatible VLM server.")]
ModelOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="Model name at the server, or a local path.")
]
ConfigOption: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Settings file instead of ./mineru.toml.")
]
