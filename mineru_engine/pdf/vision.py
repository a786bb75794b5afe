"""Pages read with a vision-language model: the stream of images out and answers in, with every fallback.

Runs on the runtime's loop. At tier ``xhigh`` the model is asked twice: for the layout of a page, then for the contents
of its blocks. At ``high`` native analysis or the bundled layout model finds the blocks and the model reads those that
have no text of their own. Pages stream: each goes on as soon as it can, while the next are being drawn; only the
budget for page images and the number of requests in flight hold them back.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mineru_engine.errors import (
    EngineDeadError,
    EngineRequestError,
    EngineUnavailableError,
    MineruError,
    RuntimeStateError,
)
from mineru_engine.exchange import telling
from mineru_engine.options import Engine, ImageFormat, OcrMode
from mineru_engine.pdf.pipeline import PageLimits, PageReader, PageReading, first_error
from mineru_engine.result import PageKind
from mineru_engine.runtime.budget import Reservation, page_images
from mineru_engine.vlm.protocol import LAYOUT, request
from mineru_engine.vlm.transport import EncodedImage

if TYPE_CHECKING:
    from mineru_engine.exchange import ExchangeCallback
    from mineru_engine.pdf.spec import SourceSpec
    from mineru_engine.vlm.engine import VlmEngine
    from mineru_engine.workers.pool import WorkerPool

__all__ = ("VisionOptions", "VisionReader")

RawBlock = dict[str, Any]

_TASKS: Final = "mineru_engine.pdf.vision_tasks"
_PAGE_BYTES: Final = 1 << 20
"""What a page is taken to need before its images are there."""
_FATAL: Final = (RuntimeStateError, EngineDeadError, EngineUnavailableError)
_ASKED: Final = frozenset({"equation", "image", "chart", "table"})
"""What native analysis finds but cannot always read."""


@dataclass(frozen=True, slots=True)
class VisionOptions:
    """How the model is used.

    :ivar two_step: it finds the blocks too (tier ``xhigh``).
    :ivar image_analysis: it describes pictures and charts.
    :ivar budget_bytes: limit of page images for the whole process.
    """

    two_step: bool
    image_analysis: bool
    image_format: ImageFormat
    budget_bytes: int


class VisionReader(PageReader):
    """Reads the pages of one document with a model.

    :param on_exchange: hears each question and its answer.
    :param take_pictures: moves the pictures of raw blocks out of memory.
    """

    def __init__(
        self,
        pool: WorkerPool,
        source: SourceSpec,
        limits: PageLimits,
        *,
        ocr_mode: OcrMode,
        on_page: Callable[[PageReading], None],
        engine: VlmEngine,
        vision: VisionOptions,
        on_exchange: ExchangeCallback | None,
        take_pictures: Callable[[list[RawBlock]], None],
    ) -> None:
        super().__init__(pool, source, limits, ocr_mode=ocr_mode, reads_images=True, on_page=on_page)
        self._engine = engine
        self._vision = vision
        self._on_exchange = on_exchange
        self._take_pictures = take_pictures
        self._entrance = asyncio.Lock()
        self._inside = 0
        # Enough pages to keep all requests in flight, each page having at least one.
        self.parallel = pool.size + -(-engine.config.max_concurrency // limits.window_size)

    @property
    def engine_name(self) -> str:
        """What read the pages."""
        return str(self._engine.config.engine)

    # Two steps: the model finds the blocks.

    async def _read_window(self, pages: list[int]) -> list[PageReading]:
        if not self._vision.two_step:
            return await super()._read_window(pages)
        return [await self._see(page) for page in pages]

    async def _see(self, index: int) -> PageReading:
        async with self._room() as room:
            try:
                args = {"image_format": str(self._vision.image_format), "ocr_mode": str(self._ocr_mode)}
                item = await self._page_task("look_at_page", index, args)
            except RuntimeStateError:
                raise
            except MineruError as exc:
                return await self._finish(self._failed(index, exc))
            if item["layer"] in (None, "blank"):
                item["blocks"] = None if item["layer"] is None else []
                return await self._finish(item)
            blocks = await self._try_model(item, room)
        if blocks is None:
            return await self._finish((await self._analyze([index]))[0])
        return await self._finish({**item, "blocks": blocks, "vlm": True})

    async def _try_model(self, item: dict[str, Any], room: Reservation) -> list[RawBlock] | None:
        """The page as the model reads it; ``None``, with a diagnostic, if it must be read another way."""
        index = item["index"]
        try:
            answer = await self._layout_answer(item, room) if self._vision.two_step else None
            if answer is not None and not answer.strip() and not item["chars"]:
                return []  # a scan of an empty page
            return await self._read_blocks(item, answer, room)
        except _FATAL:
            raise
        except MineruError as exc:
            self._note("vlm_page_failed", f"not read with the model: {exc.message}", index)
            return None

    async def _layout_answer(self, item: dict[str, Any], room: Reservation) -> str:
        image = EncodedImage(**item.pop("image"))
        room.resize(len(image.data))
        return await self._ask(item["index"], LAYOUT, image)

    async def _read_blocks(self, item: dict[str, Any], answer: str | None, room: Reservation) -> list[RawBlock]:
        index = item["index"]
        args = {
            "answer": answer,
            "fill": item["fill"],
            "ask_formulas": self._engine.config.engine is not Engine.ONNX,
            "threads": self._limits.threads,
            **self._cutting(),
        }
        cut = await self._page_task("cut_page", index, args)
        blocks: list[RawBlock] = cut["blocks"]
        if not blocks:
            raise EngineRequestError("the layout answer names no block")
        failed = await self._ask_blocks(index, blocks, cut["questions"], room)
        args = {"blocks": blocks, "failed": failed, "fill": item["fill"], "first": index == self._first_page}
        done = await self._page_task("finish_page", index, {**args, "threads": self._limits.threads})
        if failed:
            ways = ", ".join(f"{done['rescued'].count(way)} by {way}" for way in sorted(set(done["rescued"])))
            self._note("vlm_blocks_rescued", f"blocks without an answer were read another way: {ways}", index)
        finished: list[RawBlock] = done["blocks"]
        return finished

    def _cutting(self) -> dict[str, Any]:
        return {"image_analysis": self._vision.image_analysis, "image_format": str(self._vision.image_format)}

    # External layout: native analysis or the bundled model finds the blocks.

    async def _finish(self, item: dict[str, Any]) -> PageReading:
        if not self._vision.two_step and item["blocks"]:
            await self._read_rest(item)
        return await super()._finish(item)

    async def _read_rest(self, item: dict[str, Any]) -> None:
        """Ask about the blocks of a native page that have no text."""
        index = item["index"]
        blocks: list[RawBlock] = item["blocks"]
        wanted = [
            {"type": block["type"], "bbox": block["bbox"], "angle": block.get("angle") or 0, "content": None, "_at": at}
            for at, block in enumerate(blocks)
            if block["type"] in _ASKED and not block.get("content")
        ]
        if not wanted:
            return
        try:
            async with self._room() as room:
                cut = await self._page_task("cut_blocks", index, {"blocks": wanted, **self._cutting()})
                await self._ask_blocks(index, cut["blocks"], cut["questions"], room)
            done = await self._vision_task("finish_blocks", {"blocks": cut["blocks"]})
        except _FATAL:
            raise
        except MineruError as exc:
            self._note("vlm_page_failed", f"formulas and pictures not read with the model: {exc.message}", index)
            return
        for block in done:
            if block.get("content"):
                native = blocks[block["_at"]]
                native.update({name: block[name] for name in ("type", "content", "sub_type") if name in block})

    def _ways(self, layer: str, chars: int) -> list[str]:
        ways = super()._ways(layer, chars)
        if self._vision.two_step or layer == "failed":
            return ways
        return [*ways, "vlm"] if self._ocr_mode is OcrMode.TXT else ["vlm", *ways]

    async def _try(self, item: dict[str, Any], how: str) -> list[RawBlock] | None:
        if how != "vlm":
            return await super()._try(item, how)
        async with self._room() as room:
            return await self._try_model({**item, "fill": False}, room)

    async def _give_up(self, index: int, layer: str) -> PageReading:
        try:
            blocks = await self._page_task("page_picture", index, {})
        except RuntimeStateError:
            raise
        except MineruError:
            return await super()._give_up(index, layer)
        self._note("page_picture", "nothing could be read; the page is kept as a picture", index)
        return PageReading(index, PageKind.PICTURE, blocks)

    # Both.

    async def _ask_blocks(
        self, index: int, blocks: list[RawBlock], questions: list[dict[str, Any]], room: Reservation
    ) -> list[int]:
        """Write the answers into the blocks; returns the indices of those that got none."""
        self._take_pictures(blocks)
        left = sum(len(question["image"]["data"]) for question in questions)
        room.resize(left)
        failed: list[int] = []
        reasons: list[str] = []

        async def ask(question: dict[str, Any]) -> None:
            nonlocal left
            image = EncodedImage(**question.pop("image"))
            size = len(image.data)
            try:
                blocks[question["block"]]["content"] = await self._ask(index, question["type"], image)
            except EngineRequestError as exc:
                failed.append(question["block"])
                reasons.append(exc.message)
            left -= size
            room.resize(left)

        await _all(ask(question) for question in questions)
        if failed:
            message = f"{len(failed)} of {len(questions)} blocks got no answer: {reasons[0]}"
            self._note("vlm_blocks_failed", message, index)
        return sorted(failed)

    async def _ask(self, index: int, question: str, image: EncodedImage) -> str:
        # Layouts before all else: blocks wait for them. What fills more of the page has more to say.
        length = math.inf if question == LAYOUT else float(len(image.data))
        asked = request(question, image)
        with telling(self._on_exchange, question.strip("[]"), asked.prompt, index) as answered:
            reply = await self._engine.ask(self._key, asked, length)
            answered(reply.text)
        if reply.truncated:
            what = "layout" if question == LAYOUT else question
            self._note("vlm_answer_truncated", f"the model's answer ({what}) reached its length limit", index)
        return reply.text

    async def _page_task(self, name: str, index: int, args: dict[str, Any]) -> Any:
        return await self._vision_task(name, {"source": self._source, "page": index, **args})

    async def _vision_task(self, name: str, args: dict[str, Any]) -> Any:
        return await self._task(name, args, self._limits.page_timeout_s, module=_TASKS)

    @asynccontextmanager
    async def _room(self) -> AsyncIterator[Reservation]:
        """Room for the images of one page. A document that holds none gets it at once, however full it is."""
        if self._inside == 0:
            self._inside += 1
            room = page_images.take(_PAGE_BYTES)
        else:
            async with self._entrance:  # one in the queue for each document, so that all get their turn
                room = await page_images.reserve(_PAGE_BYTES, limit=self._vision.budget_bytes)
            self._inside += 1
        try:
            with room:
                yield room
        finally:
            self._inside -= 1


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all of it; the first real error cancels the rest and comes out as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for item in work:
                group.create_task(item)
    except BaseExceptionGroup as error:
        raise first_error(error) from None
