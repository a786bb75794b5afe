"""Which documents a benchmark reads: those that were named, or the standard workload."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from mineru_cli.errors import UsageProblem
from mineru_cli.inputs import Document, find_documents

__all__ = ("BenchDocument", "Documents", "named_documents", "standard_documents")

_STANDARD = Path("benchmarks", "workloads", "standard.toml")
_SUFFIX = ".toml"
_SHORT = (
    "the built-in engine reads the short form of the workload: "
    "--concurrency 1 2 4 8 --repeats 4 ends within ten minutes on two cores"
)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BenchDocument(_Part):
    """One parse of a workload.

    :ivar name: what the report calls it: the file's name, and the pages if it is a part.
    :ivar pages: as in :class:`mineru_engine.options.ParseOptions`.
    """

    name: str
    path: Path
    pages: str = ""


class Documents(_Part):
    """A workload.

    :ivar single: name of the document whose time alone is the single-document time.
    :ivar note: what a user should know about the choice.
    """

    name: str
    documents: tuple[BenchDocument, ...]
    single: str | None = None
    note: str | None = None


class _Entry(_Part):
    file: str
    pages: str = ""
    scanned: bool = False


class _File(_Part):
    name: str
    single: str | None = None
    documents: tuple[_Entry, ...]
    builtin: tuple[_Entry, ...] = ()


def named_documents(paths: Sequence[str], stack: ExitStack) -> Documents:
    """The workload of some paths: documents, directories, globs, or one workload file (``*.toml``).

    The single-document time is that of the largest file, whose time varies least.

    :raises MineruError: if one of them cannot be read.
    """
    if len(paths) == 1 and paths[0].endswith(_SUFFIX):
        return _load(Path(paths[0]), builtin=False, reads_scans=True)
    found = find_documents(paths, None, stack)
    for document in found:
        if document.error is not None:
            raise document.error
    documents = tuple(BenchDocument(name=name, path=item.path) for name, item in _named(found))
    largest = max(documents, key=lambda document: document.path.stat().st_size)
    return Documents(name="named documents", documents=documents, single=largest.name)


def _named(found: Sequence[Document]) -> list[tuple[str, Document]]:
    """File names, which are the same on every machine; whole paths for those that share one."""
    times = Counter(document.path.name for document in found)
    return [
        (document.path.name if times[document.path.name] == 1 else document.path.as_posix(), document)
        for document in found
    ]


def standard_documents(*, builtin: bool, reads_scans: bool) -> Documents:
    """The workload for when no paths are named.

    :param builtin: the built-in engine reads: fewer pages, so that a run ends soon.
    :param reads_scans: whether the tier reads pages without text.
    :raises UsageProblem: if this installation came without the documents.
    """
    # The repository that this code lies in, or else the one that the user is in.
    places = [Path(__file__).resolve().parents[2] / _STANDARD, _STANDARD]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise UsageProblem(
            f"the standard workload is not here: {_STANDARD} and the demo documents come with the repository only",
            "name documents of your own, as in: mineru bench FILE.pdf DIRECTORY; or run it inside a clone",
        )
    return _load(path, builtin=builtin, reads_scans=reads_scans)


def _load(path: Path, *, builtin: bool, reads_scans: bool) -> Documents:
    file = _read(path)
    short = builtin and bool(file.builtin)
    entries = [entry for entry in (file.builtin if short else file.documents) if reads_scans or not entry.scanned]
    documents = tuple(
        BenchDocument(name=_name(entry), path=path.parent / entry.file, pages=entry.pages) for entry in entries
    )
    missing = [document.path for document in documents if not document.path.is_file()]
    if missing or not documents:
        raise UsageProblem(f"{path}: {f'{missing[0]} is missing' if missing else 'it names no documents'}")
    note = _SHORT if short else None
    return Documents(
        name=f"{file.name}, short" if short else file.name, documents=documents, single=file.single, note=note
    )


def _read(path: Path) -> _File:
    try:
        return _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as exc:
        problem = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise UsageProblem(f"{path}: {where}: {problem['msg']}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise UsageProblem(f"{path}: {exc}") from None


def _name(entry: _Entry) -> str:
    name = Path(entry.file).name
    return f"{name}#{entry.pages}" if entry.pages else name
