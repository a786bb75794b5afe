"""The front door: path in, :class:`~mineru_engine.result.ParseResult` out."""

from __future__ import annotations

import asyncio
import base64
import stat
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from mineru_engine.analyze import SourceFile, analyze_source
from mineru_engine.attachments import MAX_DEPTH, read_attachments
from mineru_engine.errors import ErrorCode, InputError, OptionError
from mineru_engine.exchange import ExchangeCallback
from mineru_engine.options import ImageFormat, ParseOptions
from mineru_engine.progress import ProgressCallback
from mineru_engine.resident import needs_model, runtime_for
from mineru_engine.result import ParseResult
from mineru_engine.runtime.registry import Lease
from mineru_engine.runtime.runtime import Resources
from mineru_engine.settings import Settings
from mineru_engine.versions import installed_versions
from mineru_engine.vlm.transport import EngineInfo

__all__ = ("draw_layout", "draw_layout_async", "page_image_async", "parse", "parse_async", "preload", "preload_async")

_TASKS = "mineru_engine.pdf.tasks"
_LAYOUT_DEADLINE_S = 300.0


def parse(
    path: Path | str,
    *,
    settings: Settings | None = None,
    on_progress: ProgressCallback | None = None,
    on_exchange: ExchangeCallback | None = None,
    lease: Lease | None = None,
    **options: Any,
) -> ParseResult:
    """Parse one file and block until the result is there.

    Works from any thread, from a plain script without a main guard, and beside a running loop.

    :param settings: instead of those of the configuration file and the environment.
    :param on_exchange: hears what a model is asked and what it answers.
    :param lease: an application's hold on the models; default the process's.
    :param options: fields of :class:`~mineru_engine.options.ParseOptions`: ``tier``, ``ocr_mode``, ``pages``,
        ``password``, ``timeout_s`` …
    :raises MineruError: see :mod:`mineru_engine.errors`.
    """
    chosen, effective = ParseOptions.create(**options), settings or Settings.load()
    runtime = runtime_for(effective, chosen, lease)
    return runtime.run(lambda resources: _parse(resources, Path(path), chosen, effective, on_progress, on_exchange))


async def parse_async(
    path: Path | str,
    *,
    settings: Settings | None = None,
    on_progress: ProgressCallback | None = None,
    on_exchange: ExchangeCallback | None = None,
    lease: Lease | None = None,
    **options: Any,
) -> ParseResult:
    """:func:`parse` for any event loop. Cancelling stops the work and returns after its clean-up."""
    chosen, effective = ParseOptions.create(**options), settings or Settings.load()
    runtime = runtime_for(effective, chosen, lease)
    return await runtime.arun(
        lambda resources: _parse(resources, Path(path), chosen, effective, on_progress, on_exchange)
    )


def preload(*, settings: Settings | None = None, lease: Lease | None = None, **options: Any) -> EngineInfo | None:
    """Start what a parse with these options would start, so that the first one need not wait.

    :return: what runs the model; ``None`` for tiers without one.
    :raises EngineError: if the engine does not come up.
    """
    chosen, effective = ParseOptions.create(**options), settings or Settings.load()
    return runtime_for(effective, chosen, lease).run(lambda resources: _preload(resources, chosen, effective))


async def preload_async(
    *, settings: Settings | None = None, lease: Lease | None = None, **options: Any
) -> EngineInfo | None:
    """:func:`preload` for any event loop."""
    chosen, effective = ParseOptions.create(**options), settings or Settings.load()
    runtime = runtime_for(effective, chosen, lease)
    return await runtime.arun(lambda resources: _preload(resources, chosen, effective))


async def _preload(resources: Resources, options: ParseOptions, settings: Settings) -> EngineInfo | None:
    if not needs_model(options.effective_tier(settings.model.vlm)):
        return None
    return (await resources.engine()).info


def draw_layout(
    path: Path | str, result: ParseResult, *, settings: Settings | None = None, password: str | None = None
) -> bytes:
    """A PDF of the pages on which every block is outlined, typed and numbered in reading order.

    :param path: the file that ``result`` was parsed from.
    :raises OptionError: if the format has no pages to draw on.
    """
    return runtime_for(settings or Settings.load()).run(
        lambda resources: _draw_layout(resources, Path(path), result, password)
    )


async def draw_layout_async(
    path: Path | str, result: ParseResult, *, settings: Settings | None = None, password: str | None = None
) -> bytes:
    """:func:`draw_layout` for any event loop."""
    runtime = runtime_for(settings or Settings.load())
    return await runtime.arun(lambda resources: _draw_layout(resources, Path(path), result, password))


async def page_image_async(
    path: Path | str,
    page: int,
    *,
    width: int,
    image_format: ImageFormat = ImageFormat.PNG,
    password: str | None = None,
    settings: Settings | None = None,
    lease: Lease | None = None,
) -> tuple[bytes, str]:
    """One page of a PDF or an image file, drawn by a worker: an image file and its media type.

    :param page: zero-based.
    :param width: pixels, as far as the page has them.
    :raises OptionError: if there is no such page, or the format has no pages.
    """
    effective = settings or Settings.load()
    file = Path(path)

    async def draw(resources: Resources) -> dict[str, str]:
        await asyncio.to_thread(_check_readable, file, effective.processing.max_file_mb)
        source = SourceFile(file, file.name)
        facts = {"path": str(file), "key": source.key, "name": source.name, "password": password}
        args = {**facts, "page": page, "width": width, "image_format": str(image_format)}
        try:
            image: dict[str, str] = await resources.pool.run(
                f"{_TASKS}:page_image", args, deadline_s=effective.processing.page_timeout, document=source.key
            )
        finally:
            resources.pool.forget(source.key)
        return image

    image = await runtime_for(effective, lease=lease).arun(draw)
    return base64.b64decode(image["data"]), image["media_type"]


async def _parse(
    resources: Resources,
    path: Path,
    options: ParseOptions,
    settings: Settings,
    on_progress: ProgressCallback | None,
    on_exchange: ExchangeCallback | None,
    depth: int = 0,
) -> ParseResult:
    started = time.perf_counter()
    await asyncio.to_thread(_check_readable, path, settings.processing.max_file_mb)
    source = SourceFile(path, path.name)
    analysis = await analyze_source(resources, source, options, settings, on_progress, on_exchange)
    inner = options.model_copy(update={"pages": "", "password": None, "attachments": depth + 1 < MAX_DEPTH})

    def parse_inner(file: Path) -> Coroutine[Any, Any, ParseResult]:
        return _parse(resources, file, inner, settings, None, on_exchange, depth + 1)

    try:
        attachments = await read_attachments(
            resources.pool, source, analysis, parse_inner if options.attachments else None
        )
    except BaseException:
        analysis.images.close()
        raise
    return ParseResult(
        name=source.name,
        middle_json=analysis.middle_json,
        model_json=analysis.model_json,
        assets=analysis.images,
        tier=str(analysis.tier),
        engine=analysis.engine,
        model=analysis.model,
        ocr_mode=str(options.ocr_mode),
        versions=installed_versions(),
        page_kinds=analysis.page_kinds,
        diagnostics=analysis.diagnostics,
        attachments=attachments,
        source_sha256=analysis.facts["sha256"],
        source_bytes=analysis.facts["bytes"],
        options=options.fingerprint(),
        seconds=time.perf_counter() - started,
    )


def _check_readable(path: Path, max_mb: int) -> None:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise InputError(  # opening a pipe may wait for ever, and a device may never end
                f"{path} is no regular file", document=path.name, hint="write its content to a file first"
            )
        with path.open("rb"):
            size = status.st_size
    except FileNotFoundError:
        raise InputError(f"no such file: {path}", code=ErrorCode.FILE_NOT_FOUND, document=path.name) from None
    except IsADirectoryError:
        raise InputError(f"{path} is a directory", document=path.name, hint="the API parses one file") from None
    except OSError as exc:
        raise InputError(f"cannot read {path}: {exc.strerror}", document=path.name) from exc
    except ValueError as exc:  # a null byte in the name
        raise InputError(f"cannot read {path!s}: {exc}", document=path.name) from exc
    if size > max_mb << 20:
        raise InputError(
            f"{path.name} has {size >> 20} MiB, the limit is {max_mb}",
            code=ErrorCode.FILE_TOO_LARGE,
            document=path.name,
            hint="raise MINERU_PROCESSING_MAX_FILE_MB",
        )


async def _draw_layout(
    resources: Resources, path: Path, result: ParseResult, password: str | SecretStr | None
) -> bytes:
    if not result.page_kinds:
        raise OptionError("a layout can be drawn for PDFs and images only", document=result.name)
    secret = password.get_secret_value() if isinstance(password, SecretStr) else password
    source, pool = SourceFile(path, path.name), resources.pool
    with tempfile.TemporaryDirectory(prefix="mineru-") as directory:
        target = Path(directory) / "layout.pdf"
        facts = {"path": str(path), "key": source.key, "name": path.name, "password": secret}
        try:
            opened = await pool.run(
                f"{_TASKS}:open_document", facts, deadline_s=_LAYOUT_DEADLINE_S, document=source.key
            )
            spec = {"path": str(path), "key": source.key, "kind": opened["kind"], "password": secret}
            args = {"source": spec, "middle": result.middle_json.to_dict(), "target": str(target)}
            await pool.run(f"{_TASKS}:draw_layout", args, deadline_s=_LAYOUT_DEADLINE_S, document=source.key)
        finally:
            pool.forget(source.key)
        return await asyncio.to_thread(target.read_bytes)
