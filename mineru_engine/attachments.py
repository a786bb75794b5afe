"""Files that travel inside a PDF: listed always, parsed when asked."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from mineru_engine.analyze import Analysis, SourceFile
from mineru_engine.errors import MineruError
from mineru_engine.result import Attachment, Diagnostic, ParseResult
from mineru_engine.workers.pool import WorkerPool

__all__ = ("MAX_ATTACHMENTS", "MAX_DEPTH", "read_attachments")

MAX_DEPTH = 3  # a PDF in a PDF in a PDF
MAX_ATTACHMENTS = 200  # of one document
_SAVE_DEADLINE_S = 60.0
_MAX_NAME_BYTES = 200


async def read_attachments(
    pool: WorkerPool, source: SourceFile, analysis: Analysis, parse: Callable[[Path], Awaitable[ParseResult]] | None
) -> list[Attachment]:
    """The attached files of a document that was just read.

    One that cannot be parsed is a diagnostic of the document, not an error.

    :param parse: parses a file; ``None`` to list only.
    """
    found = []
    for index, item in enumerate(analysis.facts.get("attachments") or ()):
        result = None
        if parse is not None and index < MAX_ATTACHMENTS:
            try:
                result = await _parse_one(pool, source, analysis, index, item["name"], parse)
            except MineruError as exc:
                analysis.diagnostics.append(Diagnostic("attachment_failed", f"{item['name']}: {exc.message}"))
        found.append(Attachment(item["name"], item["size"], result))
    return found


async def _parse_one(
    pool: WorkerPool,
    source: SourceFile,
    analysis: Analysis,
    index: int,
    name: str,
    parse: Callable[[Path], Awaitable[ParseResult]],
) -> ParseResult:
    with tempfile.TemporaryDirectory(prefix="mineru-") as directory:
        target = Path(directory) / _file_name(name, f"attachment-{index + 1}")
        spec = {"path": str(source.path), "key": source.key, "kind": "pdf", "password": analysis.password}
        args = {"source": spec, "index": index, "target": str(target)}
        task = "mineru_engine.pdf.tasks:save_attachment"
        await pool.run(task, args, deadline_s=_SAVE_DEADLINE_S, document=source.key)
        return await parse(target)


def _file_name(name: str, otherwise: str) -> str:
    """The last part of a name that a document gives, if a file can be called so."""
    last = Path(name.replace("\\", "/").replace("\0", "")).name
    return last if last not in ("", "..") and len(last.encode()) <= _MAX_NAME_BYTES else otherwise
