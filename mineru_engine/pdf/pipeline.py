"""One paged document from open file to raw blocks: windows, fallbacks, order.

Runs on the runtime's loop and touches neither PDFium nor a model itself: every step is a task in a worker
process. A page that hangs, crashes or eats memory costs that page only:

1. a window that fails is tried again page by page, which finds the bad page;
2. the good pages are analysed together once more, so that running headers are still recognised;
3. the bad page is read the simple way (text layer), else by OCR, else it is lost with a diagnostic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mineru_engine.errors import MineruError, RuntimeStateError, WorkerCrashedError, WorkerDeadlineError, WorkerError
from mineru_engine.options import OcrMode
from mineru_engine.result import Diagnostic, PageKind

if TYPE_CHECKING:
    from mineru_engine.pdf.spec import SourceSpec
    from mineru_engine.workers.pool import WorkerPool

__all__ = ("PageLimits", "PageReader", "PageReading", "first_error", "plan_windows")

_TASKS = "mineru_engine.pdf.tasks"
_WINDOW_ALLOWANCE_S = 1.0  # of a window's deadline, for each page after the first
_OCR_ALLOWANCE = 3.0  # a page of OCR may take this many page deadlines
_POOR_SHARE = 0.3  # of the text layer's characters
_POOR_SCORE = 0.6  # OCR below this mean confidence is no better than a doubtful text layer


@dataclass(slots=True)
class PageReading:
    """What became of one page.

    :ivar size: width and height in points, ``None`` if the page could not be measured.
    """

    index: int
    kind: PageKind
    blocks: list[dict[str, Any]] = field(default_factory=list)
    size: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class PageLimits:
    """How pages are cut into windows and how long one may take.

    :ivar page_timeout_s: seconds for one page.
    :ivar threads: threads of a model session in one worker.
    """

    window_size: int
    page_timeout_s: float
    threads: int


def plan_windows(pages: Sequence[int], size: int) -> list[list[int]]:
    """Cut the pages into windows of nearly equal length, none longer than ``size``."""
    if not pages:
        return []
    count = -(-len(pages) // size)
    base, longer = divmod(len(pages), count)
    windows, start = [], 0
    for number in range(count):
        end = start + base + (number < longer)
        windows.append(list(pages[start:end]))
        start = end
    return windows


class PageReader:
    """Reads the pages of one document.

    :param reads_images: the tier has a model for pages without text; without one such pages are lost.
    :param on_page: called once for each finished page.
    :ivar parallel: windows in progress at a time.
    """

    def __init__(
        self,
        pool: WorkerPool,
        source: SourceSpec,
        limits: PageLimits,
        *,
        ocr_mode: OcrMode,
        reads_images: bool,
        on_page: Callable[[PageReading], None],
    ) -> None:
        self._pool = pool
        self._source = asdict(source)
        self._key = source.key
        self._limits = limits
        self._ocr_mode = ocr_mode
        self._reads_images = reads_images
        self._on_page = on_page
        # Enough in flight to keep every worker busy, few enough that another document gets its turn.
        self._slots = asyncio.Semaphore(pool.size)
        self.diagnostics: list[Diagnostic] = []
        self.used_models = False
        self.parallel = pool.size
        self._first_page = 0

    @property
    def engine_name(self) -> str:
        """What read the pages."""
        return "onnx" if self.used_models else "native"

    async def read(self, pages: Sequence[int]) -> list[PageReading]:
        """Read the pages; the result is in page order whatever finished first.

        Never raises for a page; what ``on_page`` raises comes out. Cancelling stops the tasks in flight and
        returns after they have ended.
        """
        self._first_page = min(pages, default=0)
        readings: list[PageReading] = []
        windows = iter(plan_windows(pages, self._limits.window_size))

        async def feed() -> None:
            for window in windows:
                readings.extend(await self._read_window(window))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.parallel, len(pages))):
                    group.create_task(feed())
        except BaseExceptionGroup as group_error:
            raise first_error(group_error) from None
        self.diagnostics.sort(key=lambda item: (item.page is not None, item.page or 0))
        return sorted(readings, key=lambda reading: reading.index)

    async def _read_window(self, pages: list[int]) -> list[PageReading]:
        items = await self._analyze(pages)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._finish(item)) for item in items]
        return [task.result() for task in tasks]

    async def _analyze(self, pages: list[int]) -> list[dict[str, Any]]:
        """Native analysis of a window, surviving a page that kills its worker."""
        try:
            return await self._window_task(pages)
        except RuntimeStateError:
            raise
        except MineruError as exc:
            if len(pages) == 1:
                return [self._failed(pages[0], exc)]
        alone = [item for items in await asyncio.gather(*(self._analyze([page]) for page in pages)) for item in items]
        good = [item["index"] for item in alone if item["layer"] != "failed"]
        if len(good) < 2:
            return alone
        try:
            together = {item["index"]: item for item in await self._window_task(good)}
        except WorkerError:
            return alone  # it is no single page; what each gave alone must do
        return [together.get(item["index"], item) for item in alone]

    async def _window_task(self, pages: list[int]) -> list[dict[str, Any]]:
        deadline = self._limits.page_timeout_s + _WINDOW_ALLOWANCE_S * (len(pages) - 1)
        args = {
            "source": self._source,
            "pages": pages,
            "ocr_mode": str(self._ocr_mode),
            "reads_images": self._reads_images,
        }
        items: list[dict[str, Any]] = await self._task("analyze_window", args, deadline)
        return items

    async def _task(self, name: str, args: dict[str, Any], deadline_s: float, *, module: str = _TASKS) -> Any:
        async with self._slots:
            return await self._pool.run(f"{module}:{name}", args, deadline_s=deadline_s, document=self._key)

    def _failed(self, page: int, exc: MineruError) -> dict[str, Any]:
        self._note(_failure_code(exc), f"native analysis: {exc.message}", page)
        return {"index": page, "size": None, "layer": "failed", "blocks": None, "chars": 1, "problem": exc.message}

    def _note(self, code: str, message: str, page: int) -> None:
        self.diagnostics.append(Diagnostic(code, message, page))

    async def _finish(self, item: dict[str, Any]) -> PageReading:
        if item["layer"] == "garbled" and item["blocks"] is not None and not item.get("vlm"):
            self._explain_plain(item["index"], "garbled")
        reading = await self._read_otherwise(item) if item["blocks"] is None else _native(item)
        reading.size = tuple(item["size"]) if item["size"] else None
        self._on_page(reading)
        return reading

    async def _read_otherwise(self, item: dict[str, Any]) -> PageReading:
        """A page that native analysis did not read: choose by its layer, fall back until something works."""
        index, layer = item["index"], item["layer"]
        if layer is None:
            self._note("page_unreadable", item["problem"], index)
            return PageReading(index, PageKind.LOST)
        for how in self._ways(layer, item["chars"]):
            blocks = await self._try(item, how)
            if blocks is not None:
                return PageReading(index, _kind(how, layer), blocks)
        return await self._give_up(index, layer)

    def _ways(self, layer: str, chars: int) -> list[str]:
        plain = ["plain"] if chars else []
        if not self._reads_images or self._ocr_mode is OcrMode.TXT:
            return plain
        if self._ocr_mode is OcrMode.OCR:
            return ["ocr", *plain]
        if layer == "ocr_layer":
            return ["layer", "ocr", *plain]
        if layer == "failed":
            return ["plain", "ocr"]
        return ["ocr", *plain]

    async def _try(self, item: dict[str, Any], how: str) -> list[dict[str, Any]] | None:
        index, layer = item["index"], item["layer"]
        allowance = 1.0 if how == "plain" else _OCR_ALLOWANCE
        args = {"source": self._source, "page": index, "how": how, "threads": self._limits.threads}
        args["first"] = index == self._first_page
        try:
            result = await self._task("read_page", args, self._limits.page_timeout_s * allowance)
        except RuntimeStateError:
            raise
        except MineruError as exc:
            self._note(_failure_code(exc), f"{how}: {exc.message}", index)
            return None
        blocks: list[dict[str, Any]] = result["blocks"]
        if how == "plain":
            if not blocks:
                return None
            self._explain_plain(index, layer)
        else:
            self.used_models = True
            doubtful = layer == "garbled" and self._ocr_mode is OcrMode.AUTO
            if doubtful and (result["score"] < _POOR_SCORE or result["chars"] < _POOR_SHARE * item["chars"]):
                self._note("ocr_poor", "OCR of the page is not trustworthy; its text layer is used instead", index)
                return None
        return blocks

    def _explain_plain(self, index: int, layer: str) -> None:
        if layer == "garbled":
            self._note("text_layer_doubtful", "the text layer may not match what the page shows", index)
        elif layer == "failed":
            self._note("page_plain_text", "the page was read as plain text, without tables and headings", index)

    async def _give_up(self, index: int, layer: str) -> PageReading:
        if layer == "failed" or (self._reads_images and self._ocr_mode is not OcrMode.TXT):
            self._note("page_lost", "nothing could be read", index)
        else:
            self._note("ocr_required", "the page has no text layer; tier basic with OCR mode auto reads it", index)
        return PageReading(index, PageKind.LOST)


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first real error in nested groups: the caller did not ask for groups."""
    error = group.exceptions[0]
    return first_error(error) if isinstance(error, BaseExceptionGroup) else error


def _kind(how: str, layer: str) -> PageKind:
    if how in ("ocr", "vlm"):
        return PageKind(how)
    return PageKind.OCR_LAYER if layer == "ocr_layer" else PageKind.PLAIN


def _failure_code(exc: MineruError) -> str:
    if isinstance(exc, WorkerDeadlineError):
        return "page_timeout"
    return "page_crashed" if isinstance(exc, WorkerCrashedError) else "page_failed"


def _native(item: dict[str, Any]) -> PageReading:
    kind = PageKind.BLANK if item["layer"] == "blank" else PageKind.VLM if item.get("vlm") else PageKind.NATIVE
    return PageReading(item["index"], kind, item["blocks"])
