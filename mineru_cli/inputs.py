"""From the paths on the command line to the documents of a run."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from mineru_cli.errors import UsageProblem
from mineru_engine.detect import SUPPORTED_SUFFIXES
from mineru_engine.errors import ErrorCode, InputError, MineruError
from mineru_engine.manifest import MANIFEST_NAME

__all__ = ("Document", "find_documents")


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a run.

    :ivar label: the path as the user knows it; ``-`` for stdin.
    :ivar error: why there is nothing to read.
    """

    label: str
    path: Path
    error: MineruError | None = None

    @property
    def from_stdin(self) -> bool:
        """Whether it came through the pipe."""
        return self.label == "-"


def find_documents(paths: Sequence[str], output: Path | None, stack: ExitStack) -> list[Document]:
    """All documents, each once, in the order of the command line; directories sorted by name.

    :param output: the output directory, which is not searched.
    :param stack: gets the removal of the temporary copy of stdin.
    """
    documents: dict[Path, Document] = {}
    for path in paths:
        for document in _expand(path, output, stack):
            documents.setdefault(document.path.absolute(), document)
    return list(documents.values())


def _expand(text: str, output: Path | None, stack: ExitStack) -> Iterator[Document]:
    path = Path(text)
    if text == "-":
        yield Document("-", _spool(stack))
    elif path.is_dir():
        yield from _search(path, output)
    elif not path.exists() and glob.has_magic(text):
        matches = sorted(glob.glob(text, recursive=True))  # noqa: PTH207 - the pattern may be absolute
        for match in matches:
            yield from _expand(match, output, stack)
        if not matches:
            yield _failed(path, "no file matches this pattern", ErrorCode.FILE_NOT_FOUND)
    elif not path.exists():
        yield _failed(path, "no such file", ErrorCode.FILE_NOT_FOUND)
    else:
        yield Document(text, path)


def _search(directory: Path, output: Path | None) -> Iterator[Document]:
    """Documents below a directory. Hidden names, results of earlier runs and the output are left out."""
    problems: list[OSError] = []
    found: list[Document] = []
    skipped = output.resolve() if output is not None and output.resolve() != directory.resolve() else None
    for here, below, names in os.walk(directory, onerror=problems.append):
        if MANIFEST_NAME in names:
            below.clear()
            continue
        below[:] = sorted(name for name in below if name[0] != "." and Path(here, name).resolve() != skipped)
        for name in sorted(names):
            path = Path(here, name)
            if name[0] != "." and path.suffix[1:].lower() in SUPPORTED_SUFFIXES and path.is_file():
                found.append(Document(str(path), path))
    found += [
        _failed(Path(problem.filename), f"cannot read: {problem.strerror}", ErrorCode.FILE_UNREADABLE)
        for problem in problems
    ]
    if not found:
        found.append(_failed(directory, "no documents in this directory", ErrorCode.FILE_NOT_FOUND))
    yield from found


def _failed(path: Path, message: str, code: ErrorCode) -> Document:
    return Document(str(path), path, InputError(f"{path}: {message}", code=code, document=path.name))


def _spool(stack: ExitStack) -> Path:
    """Copy stdin to a temporary file."""
    import shutil
    import tempfile

    if sys.stdin.isatty():
        raise UsageProblem("stdin is a terminal", "pipe a document in: mineru parse - < x.pdf")
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mineru-stdin-")))
    path = directory / "stdin"
    with path.open("wb") as target:
        shutil.copyfileobj(sys.stdin.buffer, target)
    return path
