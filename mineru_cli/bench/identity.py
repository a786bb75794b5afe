"""What read the pages: engine, model, weights, device."""

from __future__ import annotations

import re
from hashlib import file_digest
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mineru_cli.bench.report import EngineIdentity
from mineru_engine.options import Engine, Tier

if TYPE_CHECKING:
    from mineru_engine.vlm.config import VlmConfig
    from mineru_engine.vlm.transport import EngineInfo

__all__ = ("builtin_engine", "identify")

_WEIGHTS = ("model.safetensors.index.json", "model.safetensors")  # a small model has no index
_SNAPSHOT = re.compile(r"snapshots/([0-9a-f]{40})(?:/|$)")


def builtin_engine(tier: Tier) -> EngineIdentity:
    """Of tiers that need no vision-language model."""
    name, model = ("native", "") if tier is Tier.FLASH else ("onnx", "built-in layout and OCR models")
    return EngineIdentity(engine=name, model=model, version=None, location="", device="cpu")


def identify(info: EngineInfo, config: VlmConfig, *, simulated: bool) -> EngineIdentity:
    """Of a vision-language engine that is ready.

    :param info: what it says of itself, without secrets.
    """
    served = config.engine is Engine.HTTP
    directory = None if served or config.engine is Engine.ONNX else _model_directory(info.model)
    found = _SNAPSHOT.search(directory.as_posix()) if directory else None
    return EngineIdentity(
        engine=info.engine,
        model=info.model,
        version=info.version,
        location=info.location,
        models=list(info.models),
        revision=found[1] if found else None,
        weights_sha256=_weights(directory) if directory else None,
        simulated=simulated,
        device="remote" if served else _device(info),
    )


def _device(info: EngineInfo) -> Literal["cpu", "gpu", "unknown"]:
    if info.engine == Engine.ONNX or info.location.startswith("cpu"):
        return "cpu"
    return "gpu" if info.location.startswith(("cuda", "mps", "xpu")) else "unknown"


def _model_directory(model: str) -> Path | None:
    """Where a local model lies; ``None`` if it cannot be found without a network."""
    path = Path(model).expanduser()
    if path.exists():
        return path.resolve()
    try:
        return Path(import_module("huggingface_hub").snapshot_download(model, local_files_only=True))
    except (ImportError, OSError, ValueError):
        return None


def _weights(place: Path) -> str | None:
    """Of the index of the weights, or of the weights where there is one file of them."""
    files = [place] if place.is_file() else [place / name for name in _WEIGHTS]
    path = next((path for path in files if path.is_file()), None)
    if path is None:
        return None
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()
