"""A result once more: as links in another directory, or as bytes that travel. Everything here blocks."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson

from mineru_engine.manifest import MANIFEST_NAME, Manifest, read_manifest
from mineru_engine.output import safe_path

__all__ = ("link_result", "pack_result", "unpack_result")

_FACTS = "facts.json"
_FILES = "result/"
_MAX_UNPACKED = 1 << 30


def link_result(source: Path, target: Path) -> bool:
    """Make the files of one result those of another; whether that went well. An older target is replaced."""
    manifest = read_manifest(source)
    if manifest is None:
        return False
    try:
        with _new_result(target) as partial:
            for name in _names(manifest):
                (partial / name).parent.mkdir(parents=True, exist_ok=True)
                _link_or_copy(source / name, partial / name)
    except OSError:  # the job it belongs to was deleted this moment, or the disk is full
        return False
    return True


def pack_result(directory: Path, facts: dict[str, Any], max_bytes: int) -> bytes | None:
    """A result and what is known of it as one ZIP; ``None`` if it is larger than allowed, or not there."""
    manifest = read_manifest(directory)
    if manifest is None:
        return None
    buffer = BytesIO()
    try:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_FACTS, orjson.dumps(facts))
            for name in _names(manifest):
                archive.write(directory / name, _FILES + name)
                if buffer.tell() > max_bytes:
                    return None
    except OSError:
        return None
    return buffer.getvalue()


def unpack_result(payload: bytes, target: Path) -> dict[str, Any]:
    """Make a packed result that of a directory; every file is compared with what the manifest says of it.

    :return: the facts that it was packed with.
    :raises Exception: of any kind, if it is no such thing.
    """
    with zipfile.ZipFile(BytesIO(payload)) as archive, _new_result(target) as partial:
        if sum(entry.file_size for entry in archive.infolist()) > _MAX_UNPACKED:
            raise ValueError("it is too large")
        (partial / MANIFEST_NAME).write_bytes(archive.read(_FILES + MANIFEST_NAME))
        manifest = read_manifest(partial)
        if manifest is None:
            raise ValueError("it has no manifest")
        for record in manifest.files:
            path = safe_path(record.path)
            content = archive.read(_FILES + record.path)
            if sha256(content).hexdigest() != record.sha256:
                raise ValueError("a file is not what it was")
            (partial / path).parent.mkdir(parents=True, exist_ok=True)
            (partial / path).write_bytes(content)
        facts: dict[str, Any] = orjson.loads(archive.read(_FACTS))
    return facts


def _names(manifest: Manifest) -> list[str]:
    return [*(record.path for record in manifest.files), MANIFEST_NAME]


@contextmanager
def _new_result(target: Path) -> Iterator[Path]:
    """A directory that becomes the target in one step, unless something goes wrong."""
    partial = target.parent / f".mineru-{uuid4().hex[:12]}.partial"
    partial.mkdir(parents=True)
    try:
        yield partial
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copy2(source, target)
