"""Where the results of a run go: names, what is there already, and the writing itself."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mineru_cli.inputs import Document
from mineru_cli.outcome import Outcome, Status
from mineru_cli.parse import DEFAULT_FORMATS
from mineru_engine import api
from mineru_engine.errors import MineruError
from mineru_engine.manifest import Manifest, fingerprint, hash_file, is_complete, read_manifest
from mineru_engine.naming import SourceFile, assign_names, path_identity
from mineru_engine.output import Staged, check_place, render, stage
from mineru_engine.result import OutputFormat, ParseResult

if TYPE_CHECKING:
    from mineru_cli.batch import Job
    from mineru_engine.options import ParseOptions
    from mineru_engine.settings import Settings

__all__ = ("Writer",)

T = TypeVar("T")


class Writer:
    """Writes each document of a run to its own directory, or one document to stdout."""

    def __init__(self, job: Job, settings: Settings, options: ParseOptions) -> None:
        self._job = job
        self._settings = settings
        default = DEFAULT_FORMATS if job.output is not None else ("md",)
        self._formats = [OutputFormat(name) for name in job.formats or default]
        self._fingerprint = fingerprint(options, settings, self._formats, layout=job.layout)
        self._names: list[str] = []
        self._digest = cache(hash_file)

    def plan(self, documents: Sequence[Document]) -> None:
        """Give every document a directory name."""
        if self._job.output is not None:
            self._names = assign_names([self._source(document) for document in documents], self._job.output)

    def _source(self, document: Document) -> SourceFile:
        name = "stdin" if document.from_stdin else document.path.name
        return SourceFile(name, self._identity(document), partial(self._digest_or_nothing, document))

    def _digest_or_nothing(self, document: Document) -> str:
        """An unreadable file matches nothing; parsing it will tell why."""
        try:
            return self._digest(document.path)
        except MineruError:
            return "unreadable"

    def _identity(self, document: Document) -> str:
        return "" if document.from_stdin else path_identity(document.path)

    async def check(self, index: int, document: Document) -> Outcome | None:
        """Before the work: an outcome if there is nothing to do.

        :raises OutputError: if the place is taken or cannot be written.
        """
        if self._job.output is None:
            return None
        target = self._job.output / self._names[index]
        if self._job.resume and target.exists():
            digest = await asyncio.to_thread(self._digest, document.path)
            if is_complete(target, digest, self._fingerprint):
                return _skipped(document, target)
        check_place(target, overwrite=self._job.overwrite or self._job.resume)
        return None

    async def write(self, index: int, document: Document, result: ParseResult, outcome: Outcome) -> None:
        """Write the result and note in ``outcome`` where it is.

        :raises OutputError: if it cannot be written; nothing is left behind.
        """
        if self._job.output is None:
            content = await _to_the_end(partial(render, result, self._formats[0]))
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
            return
        target = self._job.output / self._names[index]
        extra = await self._layout(document, target.name, result, outcome) if self._job.layout else {}
        staged = await _to_the_end(partial(self._stage, target, document, result, extra))
        outcome.files = staged.commit()
        outcome.output = target

    async def _layout(self, document: Document, stem: str, result: ParseResult, outcome: Outcome) -> dict[str, bytes]:
        try:
            drawn = await api.draw_layout_async(
                document.path, result, settings=self._settings, password=self._job.options.get("password")
            )
        except MineruError as exc:
            outcome.diagnostics.append({"code": "layout_not_drawn", "message": exc.message, "page": None})
            return {}
        return {f"{stem}_layout.pdf": drawn}

    def _stage(self, target: Path, document: Document, result: ParseResult, extra: dict[str, bytes]) -> Staged:
        manifest = Manifest(
            name=result.name,
            identity=self._identity(document),
            fingerprint=self._fingerprint,
        )
        replace = self._job.overwrite or self._job.resume
        return stage(result, target, self._formats, overwrite=replace, extra_files=extra, manifest=manifest)


def _skipped(document: Document, target: Path) -> Outcome:
    manifest = read_manifest(target)
    assert manifest is not None
    return Outcome(
        path=document.label,
        status=Status.SKIPPED,
        pages=manifest.pages,
        tier=manifest.tier,
        engine=manifest.engine,
        output=target,
        files=[target / record.path for record in manifest.files],
    )


async def _to_the_end(work: Callable[[], T]) -> T:
    """Run ``work`` on a thread. A cancel waits for the thread, undoes what it made, and goes on."""
    thread = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait({thread})
        if thread.exception() is None and isinstance(staged := thread.result(), Staged):
            staged.discard()
        raise
