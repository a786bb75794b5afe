"""The record beside a result (``.mineru.json``): what it was made from, and which files it consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from mineru_engine.errors import ErrorCode, InputError
from mineru_engine.resident import needs_model
from mineru_engine.vlm.config import VlmConfig

if TYPE_CHECKING:
    from mineru_engine.options import ParseOptions
    from mineru_engine.result import OutputFormat
    from mineru_engine.settings import Settings

__all__ = ("MANIFEST_NAME", "FileRecord", "Manifest", "fingerprint", "hash_file", "is_complete", "read_manifest")

MANIFEST_NAME = ".mineru.json"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file of a result. ``path`` is relative to the result's directory, with forward slashes."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a result was made from and what it consists of.

    :ivar identity: fingerprint of the input's place, see :func:`mineru_engine.naming.path_identity`.
    :ivar fingerprint: of the options and formats, see :func:`fingerprint`.
    :ivar status: ``success`` or ``partial``.
    """

    name: str
    sha256: str = ""
    size: int = 0
    identity: str = ""
    fingerprint: str = ""
    status: str = ""
    tier: str = ""
    engine: str = ""
    ocr_mode: str = ""
    pages: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[FileRecord] = ()

    def to_bytes(self) -> bytes:
        """The manifest as JSON."""
        return orjson.dumps({"schema": SCHEMA, **_plain(self)}, option=orjson.OPT_INDENT_2)


def _plain(manifest: Manifest) -> dict[str, Any]:
    values = {name: getattr(manifest, name) for name in Manifest.__dataclass_fields__}
    values["name"] = manifest.name.encode(errors="backslashreplace").decode()  # a file name need not be UTF-8
    values["versions"] = dict(manifest.versions)
    values["files"] = [{"path": f.path, "size": f.size, "sha256": f.sha256} for f in manifest.files]
    return values


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest of a result's directory; ``None`` if there is none that we understand."""
    try:
        values = orjson.loads((directory / MANIFEST_NAME).read_bytes())
        if values.pop("schema") != SCHEMA:
            return None
        values["files"] = tuple(FileRecord(**item) for item in values["files"])
        return Manifest(**values)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def is_complete(directory: Path, input_sha256: str, options_fingerprint: str) -> bool:
    """Whether a result is there, whole, and what the same input and options would give again.

    A partial result (a page was lost) does not count, so that a later run tries it again.
    """
    manifest = read_manifest(directory)
    if manifest is None or manifest.status != "success":
        return False
    if (manifest.sha256, manifest.fingerprint) != (input_sha256, options_fingerprint):
        return False
    return all(_size(directory / record.path) == record.size for record in manifest.files)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _model_of(options: ParseOptions, settings: Settings) -> list[str | None]:
    config = VlmConfig.resolve(settings.model.vlm, options)
    url = urlsplit(config.server_url or "")
    return [config.engine, url.hostname, str(url.port), config.model, config.image_format, config.options]


def fingerprint(options: ParseOptions, settings: Settings, formats: Sequence[OutputFormat], *, layout: bool) -> str:
    """A digest of everything but the input that decides what is written. No secret goes into it."""
    vlm, enhance = settings.model.vlm, settings.enhance
    tier = options.effective_tier(vlm)
    chosen = {
        "options": {**options.fingerprint(), "tier": str(tier)},
        "vlm": _model_of(options, settings) if needs_model(tier) else None,
        "enhance": [enhance.title_levels, enhance.tables, enhance.model] if enhance.active else None,
        "formats": sorted(str(item) for item in formats),
        "layout": layout,
    }
    return sha256(orjson.dumps(chosen, option=orjson.OPT_SORT_KEYS)).hexdigest()


def hash_file(path: Path) -> str:
    """The sha256 of a file.

    :raises InputError: if it cannot be read.
    """
    from hashlib import file_digest

    try:
        with path.open("rb") as stream:
            return file_digest(stream, "sha256").hexdigest()
    except OSError as exc:
        code = ErrorCode.FILE_NOT_FOUND if isinstance(exc, FileNotFoundError) else ErrorCode.FILE_UNREADABLE
        raise InputError(f"cannot read {path.name}: {exc.strerror or exc}", code=code, document=path.name) from exc
