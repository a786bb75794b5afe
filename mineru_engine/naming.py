"""Which directory a document's result goes to: safe names, one per input, found again by a later run."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path

from mineru_engine.manifest import Manifest, read_manifest

__all__ = ("SourceFile", "assign_names", "path_identity", "safe_stem")

MAX_STEM_BYTES = 200
_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*\ud800-\udfff]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


def safe_stem(name: str, suffix: str = "") -> str:
    """A file name's stem that is a valid directory name on every system, at most 200 bytes of UTF-8.

    :param suffix: appended after cutting, so that it survives.
    """
    stem = _UNSAFE.sub("_", Path(name).stem).rstrip(". ").lstrip()
    if stem.startswith("."):
        stem = "_" + stem[1:]
    if _RESERVED.fullmatch(stem):
        stem = "_" + stem
    room = MAX_STEM_BYTES - len(suffix.encode())
    stem = stem.encode()[:room].decode(errors="ignore").rstrip(". ")
    return (stem or "document") + suffix


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One input of a run.

    :ivar name: file name that the result is named after.
    :ivar identity: fingerprint of where it came from; empty for inputs without a lasting place (stdin).
    :ivar digest: computes the content's sha256; only called when the answer matters.
    """

    name: str
    identity: str
    digest: Callable[[], str]


def path_identity(path: Path) -> str:
    """A fingerprint of a file's absolute path, which does not give the path away."""
    return sha256(str(path.absolute()).encode(errors="surrogateescape")).hexdigest()


def assign_names(sources: Sequence[SourceFile], directory: Path) -> list[str]:
    """Give every input a directory name of its own: ``x``, ``x_2``, ``x_3`` …, compared without case.

    An input gets the directory that already holds its result: first by where the input lies, then by its
    content. Directories of other inputs, and those that we did not write, are never handed out. New
    names are given in the order of the inputs, so the same call gives the same names.
    """
    taken = _Directory(directory)
    names: list[str | None] = [None] * len(sources)
    for match in (_same_place, _same_content):
        for index, source in enumerate(sources):
            if names[index] is None:
                names[index] = taken.find(source, match)
    return [name or taken.new(source) for name, source in zip(names, sources, strict=True)]


def _same_place(source: SourceFile, manifest: Manifest) -> bool:
    return bool(source.identity) and source.identity == manifest.identity


def _same_content(source: SourceFile, manifest: Manifest) -> bool:
    return manifest.sha256 == source.digest()


class _Directory:
    """The names in an output directory, and those given away in this run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._existing: dict[str, str] = {}
        self._given: set[str] = set()
        if directory.is_dir():
            self._existing = {_fold(entry.name): entry.name for entry in directory.iterdir()}

    def find(self, source: SourceFile, match: Callable[[SourceFile, Manifest], bool]) -> str | None:
        for candidate in _candidates(source.name):
            actual = self._existing.get(_fold(candidate))
            if actual is None:
                return None
            if _fold(candidate) in self._given:
                continue
            manifest = read_manifest(self._directory / actual)
            if manifest is not None and match(source, manifest):
                self._given.add(_fold(candidate))
                return actual
        return None

    def new(self, source: SourceFile) -> str:
        for candidate in _candidates(source.name):
            key = _fold(candidate)
            if key not in self._given and key not in self._existing:
                self._given.add(key)
                return candidate
        raise AssertionError("endless")  # pragma: no cover


def _candidates(name: str) -> Iterator[str]:
    yield safe_stem(name)
    for number in count(2):
        yield safe_stem(name, f"_{number}")


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
