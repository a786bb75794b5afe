"""From bytes or an open file to the document protocol: ``(MiddleJson, ModelJson)``.

The work is one coroutine on the runtime's loop. :func:`doc_analyze` blocks for it, :func:`aio_doc_analyze`
awaits it; both give the same result.
"""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mineru_engine.errors import (
    DeadlineError,
    ErrorCode,
    InputError,
    MineruError,
    NothingReadError,
    OcrRequiredError,
    OptionError,
    PasswordError,
    WorkerCrashedError,
    WorkerDeadlineError,
)
from mineru_engine.exchange import ExchangeCallback
from mineru_engine.options import Engine, ParseOptions, Tier
from mineru_engine.pdf.continuity import join_pages
from mineru_engine.pdf.pipeline import PageLimits, PageReader, PageReading
from mineru_engine.pdf.spec import SourceSpec
from mineru_engine.progress import Progress, ProgressCallback
from mineru_engine.protocol import Protocol, layout_extension, with_inline_images
from mineru_engine.resident import needs_model, runtime_for
from mineru_engine.result import Diagnostic, PageKind
from mineru_engine.runtime.registry import Lease
from mineru_engine.runtime.runtime import Resources
from mineru_engine.settings import Settings
from mineru_engine.spool import ImageSpool
from mineru_engine.workers.pool import usable_cores

if TYPE_CHECKING:
    from docvortex.schema import MiddleJson, ModelJson

__all__ = ("Analysis", "SourceFile", "aio_doc_analyze", "analyze_source", "doc_analyze")

_TASKS = "mineru_engine.pdf.tasks"
_OPEN_DEADLINE_S = 60.0
_FILE_DEADLINE_S = 300.0
_EXTENSION = "mineru"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read.

    :ivar name: what the user calls it; its suffix helps to recognise formats without a signature.
    :ivar local: it lies where the user put it, so an HTML page may refer to pictures beside it.
    """

    path: Path
    name: str
    local: bool = True
    key: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(slots=True)
class Analysis:
    """Everything known about a document after it was read.

    :ivar facts: what opening the file told (kind, suffix, sha256, bytes, attachments …).
    """

    middle_json: MiddleJson
    model_json: ModelJson
    images: ImageSpool
    facts: dict[str, Any]
    tier: Tier
    engine: str
    model: str
    page_kinds: dict[int, PageKind]
    diagnostics: list[Diagnostic]
    password: str | None


def doc_analyze(
    data: bytes,
    name: str = "document.pdf",
    *,
    settings: Settings | None = None,
    on_progress: ProgressCallback | None = None,
    lease: Lease | None = None,
    **options: Any,
) -> tuple[MiddleJson, ModelJson]:
    """Read a document held in memory; pictures are inside the result as ``image_base64``.

    :param name: file name, for formats that have no signature and for messages.
    :param lease: an application's hold on the models; default the process's.
    :param options: fields of :class:`~mineru_engine.options.ParseOptions`.
    :raises MineruError: see :mod:`mineru_engine.errors`.
    """
    chosen, effective = ParseOptions.create(**options), settings or Settings.load()
    runtime = runtime_for(effective, chosen, lease)
    return runtime.run(lambda resources: _analyze_bytes(resources, data, name, chosen, effective, on_progress))


async def aio_doc_analyze(
    data: bytes,
    name: str = "document.pdf",
    *,
    settings: Settings | None = None,
    on_progress: ProgressCallback | None = None,
    lease: Lease | None = None,
    **options: Any,
) -> tuple[MiddleJson, ModelJson]:
    """:func:`doc_analyze` for any event loop. Cancelling stops the work and returns after its clean-up."""
    chosen, effective = ParseOptions.create(**options), settings or Settings.load()
    runtime = runtime_for(effective, chosen, lease)
    return await runtime.arun(lambda resources: _analyze_bytes(resources, data, name, chosen, effective, on_progress))


async def _analyze_bytes(
    resources: Resources,
    data: bytes,
    name: str,
    options: ParseOptions,
    settings: Settings,
    on_progress: ProgressCallback | None,
) -> tuple[MiddleJson, ModelJson]:
    with tempfile.TemporaryDirectory(prefix="mineru-") as directory:
        path = Path(directory) / "document"
        await asyncio.to_thread(path.write_bytes, data)
        source = SourceFile(path, name, local=False)
        analysis = await analyze_source(resources, source, options, settings, on_progress)
        try:
            return with_inline_images(analysis.middle_json, analysis.model_json, analysis.images)
        finally:
            analysis.images.close()


async def analyze_source(
    resources: Resources,
    source: SourceFile,
    options: ParseOptions,
    settings: Settings,
    on_progress: ProgressCallback | None = None,
    on_exchange: ExchangeCallback | None = None,
) -> Analysis:
    """Read one file on the runtime's loop.

    :raises MineruError: with :attr:`MineruError.document` set.
    """
    try:
        async with asyncio.timeout(options.timeout_s):
            return await _DocumentReader(resources, source, options, settings, on_progress, on_exchange).read()
    except MineruError as exc:
        exc.document = exc.document or source.name
        raise
    except TimeoutError as exc:
        raise DeadlineError(f"not finished within {options.timeout_s:g} s", document=source.name) from exc
    finally:
        resources.pool.forget(source.key)


class _DocumentReader:
    """Reads one document: opens it, chooses the way, puts the result together."""

    def __init__(
        self,
        resources: Resources,
        source: SourceFile,
        options: ParseOptions,
        settings: Settings,
        on_progress: ProgressCallback | None,
        on_exchange: ExchangeCallback | None,
    ) -> None:
        self._resources = resources
        self._pool = resources.pool
        self._source = source
        self._options = options
        self._settings = settings
        self._on_progress = on_progress
        self._on_exchange = on_exchange and (lambda told: on_exchange(replace(told, document=source.name)))
        self._tier = options.effective_tier(settings.model.vlm)
        self._model = ""
        self._images = ImageSpool()
        self._diagnostics: list[Diagnostic] = []
        self._done = 0
        self._total = 0

    async def read(self) -> Analysis:
        try:
            facts, password = await self._open()
            if facts["kind"] == "native":
                return await self._read_whole(facts)
            return await self._read_pages(facts, password)
        except BaseException:
            self._images.close()
            raise

    async def _run(self, task: str, args: dict[str, Any], deadline_s: float) -> Any:
        try:
            return await self._pool.run(f"{_TASKS}:{task}", args, deadline_s=deadline_s, document=self._source.key)
        except WorkerDeadlineError as exc:
            raise InputError(
                f"the file could not be read: {exc.message}",
                code=ErrorCode.FILE_DAMAGED,
                hint="the file is damaged or made to exhaust its reader",
            ) from exc
        except WorkerCrashedError as exc:
            raise InputError(f"the file crashed its reader: {exc.message}", code=ErrorCode.FILE_DAMAGED) from exc

    async def _open(self) -> tuple[dict[str, Any], str | None]:
        """Open with the password given, asking the callable only when the file turns out to need one."""
        given = self._options.password
        password = None if given is None or callable(given) else given.get_secret_value()
        args = {"path": str(self._source.path), "key": self._source.key, "name": self._source.name}
        try:
            facts = await self._run("open_document", {**args, "password": password}, _OPEN_DEADLINE_S)
        except PasswordError as exc:
            if exc.code is ErrorCode.PASSWORD_REQUIRED:
                exc.hint = "give it with --password-env or --password-file (API: password=)"
                if callable(given):
                    password = await asyncio.to_thread(given, self._source.name)
            if password is None or exc.code is not ErrorCode.PASSWORD_REQUIRED:
                raise
            facts = await self._run("open_document", {**args, "password": password}, _OPEN_DEADLINE_S)
        self._note_facts(facts)
        return facts, password

    def _note_facts(self, facts: Mapping[str, Any]) -> None:
        if facts.get("copy_forbidden"):
            self._note("copy_forbidden", "the document's owner forbids copying its text; mind the terms of use")
        if facts.get("repaired"):
            self._note("pdf_repaired", "the PDF is damaged and was rebuilt before reading")
        attachments = facts.get("attachments") or ()
        if attachments and not self._options.attachments:
            names = ", ".join(str(item["name"]) for item in attachments[:5])
            self._note("attachments", f"{len(attachments)} attached file(s) not parsed: {names}; use --attachments")

    def _note(self, code: str, message: str, page: int | None = None) -> None:
        self._diagnostics.append(Diagnostic(code, message, page))

    def _start(self, pages: int) -> None:
        """So many pages are to be read.

        :raises InputError: if that is more than is allowed.
        """
        if 0 < (most := self._settings.processing.max_pages) < pages:
            raise InputError(
                f"{pages} pages, the limit is {most}",
                code=ErrorCode.FILE_TOO_LARGE,
                hint="choose some of them; processing.max_pages is the limit",
            )
        self._total = pages
        self._report()

    def _report(self) -> None:
        if self._on_progress is not None:
            self._on_progress(Progress(self._source.name, self._done, self._total))

    async def _read_whole(self, facts: dict[str, Any]) -> Analysis:
        if self._options.pages:
            raise OptionError(
                f"pages can be chosen for PDFs and images only, not for {facts['suffix']}",
                code=ErrorCode.PAGE_RANGE_INVALID,
            )
        args = {"path": str(self._source.path), "suffix": facts["suffix"], "local": self._source.local}
        found = await self._run("analyze_file", args, self._options.timeout_s or _FILE_DEADLINE_S)
        for blocks in found["pages"]:
            self._images.take(blocks)
        for code, message, page in found["diagnostics"]:
            self._note(code, message, page)
        self._done = len(found["pages"])
        self._start(self._done)
        return await self._assemble(facts, found["pages"], [], {}, found["extensions"], found["document"], "native")

    async def _read_pages(self, facts: dict[str, Any], password: str | None) -> Analysis:
        from mineru_engine.pages import parse_pages

        pages = parse_pages(self._options.pages, facts["page_count"])
        self._start(len(pages))
        reader = await self._page_reader(facts, password, len(pages))
        readings = await reader.read(pages)
        self._diagnostics += reader.diagnostics
        self._check_something_read(readings)
        blocks = [reading.blocks for reading in readings]
        join_pages(blocks)
        if self._settings.enhance.active:
            from mineru_engine.enhance import enhance

            await enhance(blocks, pages, self._settings.enhance, self._note, self._on_exchange)
        index_map = [] if len(pages) == facts["page_count"] else pages
        kinds = {reading.index: reading.kind for reading in readings}
        extensions = {"docvortex_layout": layout_extension(readings)}
        properties = facts.get("properties")
        analysis = await self._assemble(facts, blocks, index_map, kinds, extensions, properties, reader.engine_name)
        analysis.password = password
        return analysis

    async def _page_reader(self, facts: dict[str, Any], password: str | None, pages: int) -> PageReader:
        pool = self._pool
        source = SourceSpec(str(self._source.path), self._source.key, facts["kind"], password)
        limits = self._limits(pages)
        if not needs_model(self._tier):
            reads_images = self._tier is not Tier.FLASH
            return PageReader(
                pool,
                source,
                limits,
                ocr_mode=self._options.ocr_mode,
                reads_images=reads_images,
                on_page=self._page_done,
            )
        from mineru_engine.pdf.vision import VisionOptions, VisionReader

        engine = await self._resources.engine()
        self._model = engine.info.model if engine.info else ""
        if engine.config.engine is Engine.ONNX:
            self._note("engine_builtin", "read by the built-in models; a vision-language model would read better")
        for limit in engine.info.limits if engine.info else ():
            self._note("engine_limited", limit)
        vision = VisionOptions(
            two_step=self._tier is Tier.XHIGH,
            image_analysis=self._options.image_analysis,
            image_format=engine.config.image_format,
            budget_bytes=self._settings.processing.image_budget_mb << 20,
        )
        return VisionReader(
            pool,
            source,
            limits,
            ocr_mode=self._options.ocr_mode,
            on_page=self._page_done,
            engine=engine,
            vision=vision,
            on_exchange=self._on_exchange,
            take_pictures=self._images.take,
        )

    def _limits(self, pages: int) -> PageLimits:
        processing, options = self._settings.processing, self._options
        window = options.window_size or processing.window_size
        return PageLimits(
            window_size=1 if self._tier is Tier.XHIGH else window,  # the model reads each page by itself
            page_timeout_s=options.page_timeout_s or processing.page_timeout,
            threads=max(1, usable_cores() // min(self._pool.size, pages)),
        )

    def _page_done(self, reading: PageReading) -> None:
        self._images.take(reading.blocks)
        self._done += 1
        self._report()

    def _check_something_read(self, readings: list[PageReading]) -> None:
        if any(reading.kind not in (PageKind.LOST, PageKind.PICTURE) for reading in readings):
            return
        if any(item.code == "ocr_required" for item in self._diagnostics):
            raise OcrRequiredError(
                "the document has no text layer",
                hint="use tier basic with OCR mode auto: it reads scanned pages without a GPU",
            )
        reasons = [item.message for item in self._diagnostics if item.page is not None]
        reason = reasons[0] if reasons else "no reason known"
        raise NothingReadError(f"no page could be read: {reason}")

    async def _assemble(
        self,
        facts: dict[str, Any],
        pages: list[list[dict[str, Any]]],
        index_map: list[int],
        kinds: dict[int, PageKind],
        extensions: dict[str, Any],
        properties: dict[str, Any] | None,
        engine: str,
    ) -> Analysis:
        if not any(pages):
            self._note("empty_document", "the document holds nothing to read")
        suffix = facts["suffix"] if facts["kind"] == "native" else "pdf"
        build = Protocol(suffix, pages, index_map, extensions, properties)
        middle, model = await asyncio.to_thread(build)
        for place in build.simplified:
            page = index_map[place] if index_map else place
            self._note("page_simplified", "the page's blocks were inconsistent; its text is kept as it stands", page)
        ours = self._extension(kinds, engine)
        middle.extensions[_EXTENSION], model.extensions[_EXTENSION] = ours, ours
        return Analysis(
            middle, model, self._images, facts, self._tier, engine, self._model, kinds, self._diagnostics, None
        )

    def _extension(self, kinds: dict[int, PageKind], engine: str) -> dict[str, Any]:
        from mineru_engine.versions import installed_versions

        return {
            "tier": str(self._tier),
            "engine": engine,
            "model": self._model,
            "parse_mode": str(self._options.ocr_mode),
            "versions": installed_versions(),
            "page_kinds": {str(index): str(kind) for index, kind in sorted(kinds.items())},
            "diagnostics": [item.to_dict() for item in self._diagnostics],
        }
