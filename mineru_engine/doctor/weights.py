"""The weight files of a local model directory, against its index."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from hashlib import file_digest
from pathlib import Path

from mineru_engine.doctor.finding import Finding, Level

__all__ = ("local_model",)

_SUBJECT = "model weights"
_INDEX = "model.safetensors.index.json"
_HINT = "download the model again"
_MAX_HEADER = 100 << 20


def local_model(model: str | None) -> Iterator[Finding]:
    """Every shard there, whole, and holding the tensors that the index says; sha256 of each."""
    directory = Path(model) if model else None
    if directory is None or not directory.is_dir():
        return
    expected = _expected(directory)
    if expected is None:
        yield Finding(_SUBJECT, Level.BROKEN, f"{directory}: {_INDEX} cannot be read", _HINT)
        return
    if not expected:
        yield Finding(_SUBJECT, Level.BROKEN, f"{directory} holds no *.safetensors files", _HINT)
        return
    for name, tensors in sorted(expected.items()):
        yield _shard(directory / name, tensors)


def _expected(directory: Path) -> dict[str, set[str]] | None:
    """Shard → tensors it should hold; without an index, whatever shards there are."""
    index = directory / _INDEX
    if not index.is_file():
        return {path.name: set() for path in directory.glob("*.safetensors")}
    shards: dict[str, set[str]] = {}
    try:
        for tensor, shard in json.loads(index.read_bytes())["weight_map"].items():
            shards.setdefault(Path(shard).name, set()).add(tensor)
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return shards


def _shard(path: Path, tensors: set[str]) -> Finding:
    subject = f"{_SUBJECT} {path.name}"
    if not path.is_file():
        return Finding(subject, Level.BROKEN, "is missing", _HINT)
    try:
        held, size = _header(path)
    except (OSError, ValueError, KeyError, TypeError, struct.error) as exc:
        return Finding(subject, Level.BROKEN, f"is not a safetensors file ({exc})", _HINT)
    with path.open("rb") as stream:
        digest = file_digest(stream, "sha256").hexdigest()
    details: dict[str, object] = {"path": str(path), "sha256": digest, "bytes": path.stat().st_size}
    if path.stat().st_size != size:
        message = f"has {path.stat().st_size} bytes instead of {size}"
        return Finding(subject, Level.BROKEN, message, _HINT, details)
    if missing := sorted(tensors - held):
        message = f"lacks {len(missing)} tensors of the index, for instance {missing[0]}"
        return Finding(subject, Level.BROKEN, message, _HINT, details)
    named = path.resolve().name  # a hub's cache calls its blobs by their sha256
    if re.fullmatch(r"[0-9a-f]{64}", named) and named != digest:
        return Finding(subject, Level.BROKEN, f"has sha256 {digest}, not {named}", _HINT, details)
    return Finding(subject, Level.OK, f"sha256 {digest}", details=details)


def _header(path: Path) -> tuple[set[str], int]:
    """Names of the tensors, and how many bytes the file should have."""
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > _MAX_HEADER:
            raise ValueError("its header is absurd")
        entries = json.loads(stream.read(length))
    entries.pop("__metadata__", None)
    end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    return set(entries), 8 + length + end
