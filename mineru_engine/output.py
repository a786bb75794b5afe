"""Results as files: rendering to each format, and writing a document's directory in one step."""

from __future__ import annotations

import errno
import os
import re
import shutil
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from mimetypes import guess_type
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from uuid import uuid4

import orjson

from mineru_engine.errors import ErrorCode, OptionError, OutputError
from mineru_engine.manifest import MANIFEST_NAME, FileRecord, Manifest, read_manifest
from mineru_engine.naming import safe_stem
from mineru_engine.result import OutputFormat

if TYPE_CHECKING:
    from mineru_engine.result import ParseResult

__all__ = ("Staged", "check_place", "render", "safe_path", "save", "stage")

FILE_NAMES = {
    OutputFormat.MD: "{}.md",
    OutputFormat.JSON: "{}_middle.json",
    OutputFormat.CONTENT_LIST: "{}_content_list.json",
    OutputFormat.HTML: "{}.html",
    OutputFormat.LATEX: "{}.tex",
    OutputFormat.DOCX: "{}.docx",
    OutputFormat.EPUB: "{}.epub",
    OutputFormat.PDF: "{}_rendered.pdf",  # typeset from the result; "x.pdf" would pass for the source
}
"""Where each format goes, by the document's stem."""

_REFERS_TO_IMAGES = {OutputFormat.MD, OutputFormat.JSON, OutputFormat.CONTENT_LIST, OutputFormat.LATEX}
NO_SPACE = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
"""Numbers of the system's errors that mean a full disk."""


def render(result: ParseResult, output_format: OutputFormat | str) -> bytes:
    """One document in one format. HTML, DOCX, EPUB and PDF carry their pictures inside."""
    chosen = OutputFormat(output_format)
    if chosen is OutputFormat.MD:
        return result.markdown().encode(errors="replace")
    if chosen is OutputFormat.JSON:
        return orjson.dumps(result.middle_json.to_dict(), option=orjson.OPT_INDENT_2)
    if chosen is OutputFormat.CONTENT_LIST:
        return orjson.dumps(result.content_list(), option=orjson.OPT_INDENT_2)
    return _convert(result, chosen)


def _convert(result: ParseResult, chosen: OutputFormat) -> bytes:
    from docvortex.api import render as docvortex_render
    from docvortex.assets import AssetStore
    from docvortex.render import HtmlRenderOptions, LatexRenderOptions, PdfRenderOptions

    assets, title = AssetStore(result.assets), safe_stem(result.name)
    options = {
        OutputFormat.HTML: HtmlRenderOptions(document_title=title),
        OutputFormat.LATEX: LatexRenderOptions(document_title=title),
        OutputFormat.PDF: PdfRenderOptions(document_title=title, asset_resolver=assets.__getitem__),
    }.get(chosen)
    content: bytes = docvortex_render(result.middle_json, chosen.value, assets=assets, options=options).content
    return _embed_images(content, result.assets) if chosen is OutputFormat.HTML else content


def _embed_images(html: bytes, assets: Mapping[str, bytes]) -> bytes:
    def data_uri(match: re.Match[bytes]) -> bytes:
        payload = assets.get(match[2].decode(errors="replace"))
        if payload is None:
            return match[0]
        kind = guess_type(match[2].decode())[0] or "application/octet-stream"
        return match[1] + b"data:" + kind.encode() + b";base64," + b64encode(payload) + match[3]

    return re.sub(rb"""(\bsrc=["'])([^"']+)(["'])""", data_uri, html)


def save(
    result: ParseResult,
    directory: Path,
    formats: Sequence[OutputFormat],
    *,
    overwrite: bool,
    extra_files: Mapping[str, bytes],
) -> list[Path]:
    """Write a document's directory below ``directory``; all of it or nothing.

    :raises OutputError: if the place exists (without ``overwrite``) or cannot be written.
    """
    return stage(
        result, directory / safe_stem(result.name), formats, overwrite=overwrite, extra_files=extra_files
    ).commit()


@dataclass(slots=True)
class Staged:
    """A result written aside, in a hidden directory beside its place. Call one of the two methods."""

    target: Path
    partial: Path
    files: Sequence[str]
    overwrite: bool

    def commit(self) -> list[Path]:
        """Put the result in its place, in one step; an old one is replaced and then removed.

        :raises OutputError: if the place was taken meanwhile; nothing is left behind.
        """
        try:
            with _translated(self.target):
                _claim(self.target, overwrite=self.overwrite)
                _move(self.partial, self.target)
        finally:
            self.discard()
        return [self.target / name for name in self.files]

    def discard(self) -> None:
        """Remove what was written aside. May be called twice."""
        shutil.rmtree(self.partial, ignore_errors=True)


def stage(
    result: ParseResult,
    target: Path,
    formats: Sequence[OutputFormat],
    *,
    overwrite: bool = False,
    extra_files: Mapping[str, bytes] | None = None,
    manifest: Manifest | None = None,
) -> Staged:
    """Write a result aside. Its files are named after ``target``.

    :param manifest: what is known of the input; the rest is filled in from the result.
    :raises OutputError: if the place exists (without ``overwrite``) or cannot be written; nothing is left.
    """
    extra = {safe_path(name): payload for name, payload in (extra_files or {}).items()}
    known = manifest or Manifest(name=result.name)
    check_place(target, overwrite=overwrite)
    with _translated(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.parent / f".mineru-{uuid4().hex[:12]}.partial"
        partial.mkdir()
        try:
            records = [_write(partial, name, payload) for name, payload in _files(result, target.name, formats)]
            records += [_write(partial, name, payload) for name, payload in extra.items()]
            _write(partial, MANIFEST_NAME, _filled_in(known, result, records).to_bytes())
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return Staged(target, partial, [record.path for record in records], overwrite)


def _files(result: ParseResult, stem: str, formats: Sequence[OutputFormat]) -> Iterator[tuple[str, bytes]]:
    """Relative paths and contents, made one at a time; attachments in directories of their own."""
    for chosen in dict.fromkeys(formats):
        yield FILE_NAMES[chosen].format(stem), render(result, chosen)
    if _REFERS_TO_IMAGES.intersection(formats):
        for name, payload in result.assets.items():
            yield safe_path(name), payload
    used: set[str] = set()
    for attachment in result.attachments:
        if attachment.result is None:
            continue
        name, number = safe_stem(attachment.name), 2
        while name.casefold() in used:
            name, number = safe_stem(attachment.name, f"_{number}"), number + 1
        used.add(name.casefold())
        for inner, payload in _files(attachment.result, name, formats):
            yield f"attachments/{name}/{inner}", payload


def _filled_in(known: Manifest, result: ParseResult, records: Sequence[FileRecord]) -> Manifest:
    return replace(
        known,
        sha256=result.source_sha256,
        size=result.source_bytes,
        status=str(result.status),
        tier=result.tier,
        engine=result.engine,
        ocr_mode=result.ocr_mode,
        pages=result.page_count,
        versions=dict(result.versions),
        files=tuple(records),
    )


def _write(directory: Path, name: str, payload: bytes) -> FileRecord:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as stream:
        stream.write(payload)
    return FileRecord(name, len(payload), sha256(payload).hexdigest())


def safe_path(name: str) -> str:
    """A name that stays below the directory of a result.

    :raises OptionError: if it would not, or is that of the manifest.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts or path.name == MANIFEST_NAME:
        raise OptionError(f"not a relative file name: {name!r}")
    return str(path)


def check_place(target: Path, *, overwrite: bool) -> None:
    """See, before the work of parsing, whether a result could be written at ``target``.

    :raises OutputError: if it is taken (without ``overwrite``), holds foreign files, or is not writable.
    """
    with _translated(target):
        _claim(target, overwrite=overwrite)
        parent = next(path for path in target.absolute().parents if path.exists())
        if not parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _claim(target: Path, *, overwrite: bool) -> None:
    """Refuse a place that is taken, or that holds what we did not write."""
    if not target.exists() and not target.is_symlink():
        return
    manifest = read_manifest(target)
    if not overwrite:
        hint = "use --overwrite to replace it, --resume to keep what is complete, or another output directory"
        raise OutputError(f"{target} exists already", code=ErrorCode.OUTPUT_EXISTS, hint=hint)
    ours = {MANIFEST_NAME, *(record.path for record in manifest.files)} if manifest else set()
    foreign = next((path for path in _walk(target) if path.relative_to(target).as_posix() not in ours), None)
    if target.is_symlink() or not target.is_dir() or foreign is not None:
        raise OutputError(
            f"{target} holds what mineru did not write ({(foreign or target).name}); it is not replaced",
            code=ErrorCode.OUTPUT_EXISTS,
            hint="move it away, or choose another output directory",
        )


def _walk(directory: Path) -> Iterator[Path]:
    return (path for path in directory.rglob("*") if path.is_symlink() or not path.is_dir())


def _move(partial: Path, target: Path) -> None:
    """Swap in one step where the system can (the old result is then in ``partial``), else in two."""
    if not target.exists():
        partial.rename(target)
        return
    if _exchange(partial, target):
        return
    old = partial.with_suffix(".old")
    target.rename(old)
    try:
        partial.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Linux's ``renameat2(RENAME_EXCHANGE)``; false where it is not to be had."""
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, TypeError, AttributeError):
        return False
    here, exchange = -100, 2
    done: int = call(here, os.fsencode(first), here, os.fsencode(second), exchange)
    return done == 0


@contextmanager
def _translated(target: Path) -> Iterator[None]:
    """Foreign errors of the file system as :class:`OutputError`."""
    try:
        yield
    except OutputError:
        raise
    except OSError as exc:
        if exc.errno in NO_SPACE:
            message, code = f"no space left for {target}", ErrorCode.DISK_FULL
            hint = "free some space, or choose an output directory on another disk"
        elif exc.errno in {errno.EEXIST, errno.ENOTEMPTY}:
            message, code, hint = f"{target} exists already", ErrorCode.OUTPUT_EXISTS, "another run wrote it meanwhile"
        else:
            message, code = f"cannot write {target}: {exc.strerror or exc}", ErrorCode.OUTPUT_NOT_WRITABLE
            hint = "check the permissions, or choose another output directory"
        raise OutputError(message, code=code, hint=hint) from exc
