"""One paged document, with workers that do what the test says."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import pytest

from mineru_engine.errors import (
    ErrorCode,
    MineruError,
    OptionError,
    RuntimeStateError,
    WorkerCrashedError,
    WorkerDeadlineError,
)
from mineru_engine.options import OcrMode
from mineru_engine.pages import parse_pages
from mineru_engine.pdf.continuity import join_pages, plain_text
from mineru_engine.pdf.pipeline import PageLimits, PageReader, PageReading, plan_windows
from mineru_engine.pdf.spec import SourceSpec
from mineru_engine.pdf.textlayer import PageEvidence, TextLayer, judge, plausible_text
from mineru_engine.result import PageKind
from mineru_engine.spool import ImageSpool
from mineru_engine.workers.pool import WorkerPool

# Windows and page ranges


@pytest.mark.parametrize(
    ("count", "size", "lengths"),
    [
        (0, 4, []),
        (1, 4, [1]),
        (4, 4, [4]),
        (5, 4, [3, 2]),
        (33, 32, [17, 16]),
        (10, 3, [3, 3, 2, 2]),
        (3, 1, [1, 1, 1]),
    ],
)
def test_windows_are_of_nearly_equal_length(count: int, size: int, lengths: list[int]) -> None:
    pages = list(range(100, 100 + count))
    windows = plan_windows(pages, size)
    assert [len(window) for window in windows] == lengths
    assert [page for window in windows for page in window] == pages


@pytest.mark.parametrize(
    ("text", "pages"),
    [
        ("", [0, 1, 2, 3, 4]),
        (" ALL ", [0, 1, 2, 3, 4]),
        ("1", [0]),
        ("1-3", [0, 1, 2]),
        ("3-1", [0, 1, 2]),
        ("4-", [3, 4]),
        ("r1", [4]),
        ("r3-r1", [2, 3, 4]),
        ("r2-", [3, 4]),
        ("2,2, 1-2 ", [0, 1]),
        ("5,1", [0, 4]),
        ("4-999", [3, 4]),
        ("1,77", [0]),
        ("r99-1", [0]),
    ],
)
def test_page_ranges(text: str, pages: list[int]) -> None:
    assert parse_pages(text, 5) == pages


@pytest.mark.parametrize("text", ["0", "6", "6-9", "r6", "-3", "1--2", "a", "1,", ",", "1.5", "r", "1-r", "9" * 5000])
def test_page_ranges_that_make_no_sense(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_pages(text, 5)
    assert caught.value.code is ErrorCode.PAGE_RANGE_INVALID


# The reader

Answer = dict[str, Any] | Exception


class FakePool:
    """Stands in for the worker pool.

    :ivar bad: pages that make any window they are in fail, with the error.
    :ivar ways: (page, how) → what ``read_page`` gives.
    :ivar calls: what was asked, in order.
    """

    size = 2

    def __init__(self) -> None:
        self.bad: dict[int, Exception] = {}
        self.layers: dict[int, str | None] = {}
        self.ways: dict[tuple[int, str], Answer] = {}
        self.calls: list[tuple[str, Any]] = []
        self.windows: list[list[int]] = []
        self.window_limit = 99
        self.gates: dict[int, asyncio.Event] = {}
        self.deadlines: dict[str, list[float]] = {"analyze_window": [], "read_page": []}
        self.running = 0
        self.started = asyncio.Event()

    async def run(self, task: str, args: dict[str, Any], *, deadline_s: float, document: str | None = None) -> Any:
        name = task.partition(":")[2]
        self.deadlines[name].append(deadline_s)
        self.running += 1
        self.started.set()
        try:
            await asyncio.sleep(0)
            return await self._window(args["pages"]) if name == "analyze_window" else self._page(args)
        finally:
            self.running -= 1

    async def _window(self, pages: list[int]) -> list[dict[str, Any]]:
        self.windows.append(list(pages))
        for page in pages:
            if page in self.gates:
                await self.gates[page].wait()
        if len(pages) > self.window_limit:
            raise WorkerDeadlineError("too many")
        for page in pages:
            if page in self.bad:
                raise self.bad[page]
        return [self._item(page, pages) for page in pages]

    def _item(self, page: int, pages: list[int]) -> dict[str, Any]:
        layer = self.layers.get(page, "good")
        blocks = [text(f"page {page} of {pages}")] if layer == "good" else [] if layer == "blank" else None
        problem = "cannot be loaded" if layer is None else None
        size = None if layer is None else (595.0, 842.0)
        chars = 0 if layer in (None, "none", "blank") else 50
        return {"index": page, "size": size, "layer": layer, "blocks": blocks, "chars": chars, "problem": problem}

    def _page(self, args: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((args["how"], args["page"]))
        answer = self.ways.get((args["page"], args["how"]), WorkerCrashedError("no script"))
        if isinstance(answer, Exception):
            raise answer
        return answer


def text(content: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "content": [{"type": "text", "content": content}], **more}


def read_as(content: str, score: float = 0.99, chars: int = 1000) -> dict[str, Any]:
    return {"blocks": [text(content)], "score": score, "chars": chars}


def reader(
    pool: FakePool,
    *,
    window: int = 4,
    mode: OcrMode = OcrMode.AUTO,
    reads_images: bool = True,
    on_page: Callable[[PageReading], None] = lambda _: None,
) -> PageReader:
    return PageReader(
        cast(WorkerPool, pool),
        SourceSpec("x.pdf", "key", "pdf", "secret"),
        PageLimits(window, 5.0, 1),
        ocr_mode=mode,
        reads_images=reads_images,
        on_page=on_page,
    )


def read(made: PageReader, pages: Sequence[int]) -> list[PageReading]:
    return asyncio.run(made.read(pages))


def words(reading: PageReading) -> str:
    return " ".join(plain_text(block) for block in reading.blocks)


def notes(made: PageReader) -> list[tuple[str, int | None]]:
    return [(item.code, item.page) for item in made.diagnostics]


def test_good_pages_come_in_order_with_their_window() -> None:
    pool, seen = FakePool(), []
    made = reader(pool, window=3, on_page=lambda reading: seen.append(reading.index))
    readings = read(made, range(7))
    assert [item.index for item in readings] == list(range(7))
    assert sorted(seen) == list(range(7))
    assert pool.windows == [[0, 1, 2], [3, 4], [5, 6]]
    assert {item.kind for item in readings} == {PageKind.NATIVE}
    assert made.diagnostics == [] and not made.used_models
    assert readings[0].size == (595.0, 842.0)


def test_pages_are_in_order_when_a_later_window_is_ready_first() -> None:
    pool = FakePool()
    finished: list[int] = []

    async def body() -> list[PageReading]:
        pool.gates[0] = asyncio.Event()

        def done(reading: PageReading) -> None:
            finished.append(reading.index)
            if len(finished) == 4:
                pool.gates[0].set()

        return await reader(pool, window=2, on_page=done).read(range(6))

    readings = asyncio.run(body())
    assert finished[0] != 0
    assert [item.index for item in readings] == list(range(6))


def test_a_hanging_page_is_found_and_the_good_ones_are_analysed_together_again() -> None:
    pool = FakePool()
    pool.bad[2] = WorkerDeadlineError("no result within 5 s")
    pool.ways[2, "plain"] = read_as("simple text")
    made = reader(pool)
    readings = read(made, range(4))
    assert pool.windows[0] == [0, 1, 2, 3]
    assert sorted(map(tuple, pool.windows[1:5])) == [(0,), (1,), (2,), (3,)]
    assert pool.windows[5:] == [[0, 1, 3]]
    assert words(readings[0]) == "page 0 of [0, 1, 3]"
    assert words(readings[2]) == "simple text"
    assert [item.kind for item in readings] == [PageKind.NATIVE, PageKind.NATIVE, PageKind.PLAIN, PageKind.NATIVE]
    assert notes(made) == [("page_timeout", 2), ("page_plain_text", 2)]


def test_a_window_that_is_too_slow_as_a_whole_keeps_what_each_page_gave_alone() -> None:
    pool = FakePool()
    pool.window_limit = 1
    made = reader(pool)
    readings = read(made, range(3))
    assert [words(item) for item in readings] == ["page 0 of [0]", "page 1 of [1]", "page 2 of [2]"]
    assert made.diagnostics == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (WorkerCrashedError("signal 11"), "page_crashed"),
        (WorkerDeadlineError("late"), "page_timeout"),
        (MineruError("ValueError: odd"), "page_failed"),
    ],
)
def test_a_failing_page_falls_back_to_plain_then_ocr_then_is_lost(error: Exception, code: str) -> None:
    pool = FakePool()
    pool.bad = {0: error, 1: error}
    pool.ways = {(0, "plain"): error, (0, "ocr"): read_as("recognised"), (1, "plain"): error, (1, "ocr"): error}
    made = reader(pool)
    readings = read(made, range(3))
    assert [item.kind for item in readings] == [PageKind.OCR, PageKind.LOST, PageKind.NATIVE]
    assert words(readings[0]) == "recognised" and readings[1].blocks == []
    assert notes(made) == [(code, 0)] * 2 + [(code, 1)] * 3 + [("page_lost", 1)]
    assert made.used_models


def test_a_failing_page_without_a_model_is_lost_but_not_called_a_scan() -> None:
    pool = FakePool()
    pool.bad[0] = WorkerDeadlineError("late")
    made = reader(pool, reads_images=False)
    assert [item.kind for item in read(made, range(2))] == [PageKind.LOST, PageKind.NATIVE]
    assert notes(made) == [("page_timeout", 0), ("page_crashed", 0), ("page_lost", 0)]


@pytest.mark.parametrize(
    ("layer", "mode", "reads_images", "kind", "asked"),
    [
        ("none", OcrMode.AUTO, True, PageKind.OCR, ["ocr"]),
        ("none", OcrMode.AUTO, False, PageKind.LOST, []),
        ("none", OcrMode.TXT, True, PageKind.LOST, []),
        ("blank", OcrMode.AUTO, True, PageKind.BLANK, []),
        ("ocr_layer", OcrMode.AUTO, True, PageKind.OCR_LAYER, ["layer"]),
        ("ocr_layer", OcrMode.OCR, True, PageKind.OCR, ["ocr"]),
        ("ocr_layer", OcrMode.TXT, True, PageKind.OCR_LAYER, ["plain"]),
        ("ocr_layer", OcrMode.AUTO, False, PageKind.OCR_LAYER, ["plain"]),
        ("garbled", OcrMode.AUTO, True, PageKind.OCR, ["ocr"]),
    ],
)
def test_what_a_layer_is_read_with(
    layer: str, mode: OcrMode, reads_images: bool, kind: PageKind, asked: list[str]
) -> None:
    pool = FakePool()
    pool.layers[0] = layer
    pool.ways = {(0, how): read_as(how) for how in ("ocr", "layer", "plain")}
    made = reader(pool, mode=mode, reads_images=reads_images)
    (reading,) = read(made, [0])
    assert reading.kind is kind
    assert [how for how, _ in pool.calls] == asked
    assert notes(made) == ([("ocr_required", 0)] if kind is PageKind.LOST else [])


@pytest.mark.parametrize("poor", [read_as("~~", score=0.3), read_as("x", chars=1)], ids=["unsure", "little"])
def test_poor_ocr_of_a_garbled_page_gives_way_to_its_text(poor: dict[str, Any]) -> None:
    pool = FakePool()
    pool.layers[0] = "garbled"
    pool.ways = {(0, "ocr"): poor, (0, "plain"): read_as("doubtful")}
    made = reader(pool)
    (reading,) = read(made, [0])
    assert (reading.kind, words(reading)) == (PageKind.PLAIN, "doubtful")
    assert notes(made) == [("ocr_poor", 0), ("text_layer_doubtful", 0)]


def test_a_page_that_cannot_be_loaded_is_lost_alone() -> None:
    pool = FakePool()
    pool.layers[1] = None
    made = reader(pool)
    readings = read(made, range(3))
    assert [item.kind for item in readings] == [PageKind.NATIVE, PageKind.LOST, PageKind.NATIVE]
    assert readings[1].size is None
    assert notes(made) == [("page_unreadable", 1)] and pool.calls == []


def test_deadlines_grow_with_the_window_and_with_ocr() -> None:
    pool = FakePool()
    pool.layers[2] = "none"
    pool.ways[2, "ocr"] = read_as("x")
    read(reader(pool), range(3))
    assert pool.deadlines == {"analyze_window": [7.0], "read_page": [15.0]}


def test_a_closed_runtime_is_an_error_of_the_document() -> None:
    pool = FakePool()
    pool.bad[1] = RuntimeStateError("closed")
    with pytest.raises(RuntimeStateError):
        read(reader(pool, window=2), range(6))


def test_what_the_callback_raises_comes_out() -> None:
    pool = FakePool()

    def callback(reading: PageReading) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        read(reader(pool, on_page=callback), range(3))


def test_cancelling_waits_for_the_tasks_in_flight() -> None:
    pool = FakePool()

    async def body() -> None:
        pool.gates = {0: asyncio.Event()}
        task = asyncio.create_task(reader(pool, window=1).read(range(3)))
        await pool.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert pool.running == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(body())


def test_a_password_does_not_show() -> None:
    assert "secret" not in repr(SourceSpec("x.pdf", "key", "pdf", "secret"))


# What only the whole document shows


def block(kind: str, content: str, top: float, height: float = 0.015, **more: Any) -> dict[str, Any]:
    lines = [{"bbox": [0.1, top, 0.9, top + height]}]
    return text(content, bbox=[0.1, top, 0.9, top + height], lines=lines) | {"type": kind} | more


def body_page(number: int) -> list[dict[str, Any]]:
    return [block("text", f"Body of page {number}, which says something of its own.", 0.4, 0.1)]


def test_running_lines_are_recognised_over_windows() -> None:
    pages = [
        [
            block("text", "Annual Report of the Harbour", 0.05),
            *body_page(number),
            block("text", f"Page {number + 1} of 6", 0.95),
        ]
        for number in range(6)
    ]
    join_pages(pages)
    assert {page[0]["type"] for page in pages} == {"header"}
    assert {page[1]["type"] for page in pages} == {"text"}
    assert {page[2]["type"] for page in pages} == {"footer"}


def test_bare_numbers_are_page_numbers_and_known_twins_name_the_kind() -> None:
    pages = [[*body_page(n), block("text", f"- {n + 1} -", 0.95)] for n in range(4)]
    pages += [[*body_page(9), block("page_number", "- 9 -", 0.95)]]
    join_pages(pages)
    assert {page[-1]["type"] for page in pages} == {"page_number"}


@pytest.mark.parametrize(
    "pages",
    [
        [[block("text", "Same words", 0.05)], [block("text", "Same words", 0.05)]],
        [[block("text", "Same words", 0.5)] for _ in range(5)],
        [[block("text", "Same words", 0.02 + 0.02 * number)] for number in range(5)],
        [[block("text", "Same words", 0.02, 0.08)] for _ in range(5)],
        [[block("text", f"Different words {'abcde'[number] * 9}", 0.05)] for number in range(5)],
        [[block("table", "Same words", 0.05)] for _ in range(5)],
        [[block("text", "Same words", 0.05) for _ in range(5)]],
    ],
    ids=["two pages", "mid page", "other places", "tall", "other words", "a table", "one page"],
)
def test_lines_that_do_not_run_stay_as_they_are(pages: list[list[dict[str, Any]]]) -> None:
    before = deepcopy(pages)
    join_pages(pages)
    assert pages == before


def test_roman_numerals_count_as_numbers() -> None:
    pages = [[block("text", f"Preface {roman}", 0.05)] for roman in ("i", "ii", "iii", "iv")]
    join_pages(pages)
    assert {page[0]["type"] for page in pages} == {"header"}


def test_one_page_keeps_the_title() -> None:
    pages = [
        [block("text", "x", 0.4)],
        [block("doc_title", "Title", 0.2), block("doc_title", "of two lines", 0.25)],
        [block("doc_title", "A chapter", 0.2)],
    ]
    join_pages(pages)
    assert [[item["type"] for item in page] for page in pages] == [
        ["text"],
        ["doc_title", "doc_title"],
        ["paragraph_title"],
    ]


@pytest.mark.parametrize(
    ("heading", "level"),
    [
        ("1 Introduction", 2),
        ("2. Method", 2),
        ("2.1 Data", 3),
        ("2.1.3 Cleaning", 4),
        ("1.2.3.4.5 Deep", 6),
        ("A.1 Proofs", 3),
        ("第三章 总则", 2),
        ("第十二条 违约责任", 2),
        ("一、项目概况", 2),
        ("(二)付款方式", 3),
        ("（三）交付", 3),
        ("2024 was a good year", None),
        ("A short heading", None),
        ("3D printing", None),
        ("第三方责任", None),
    ],
)
def test_levels_follow_the_numbering(heading: str, level: int | None) -> None:
    page = [block("paragraph_title", heading, 0.3)]
    join_pages([page])
    assert page[0].get("level") == level


def test_headings_without_number_follow_their_size() -> None:
    page = [
        block("paragraph_title", "1 Big", 0.1, 0.03),
        block("paragraph_title", "1.1 Small", 0.2, 0.015),
        block("paragraph_title", "References", 0.5, 0.029),
        block("paragraph_title", "Funding", 0.6, 0.016),
        block("paragraph_title", "Known", 0.7, 0.016, level=5),
    ]
    join_pages([page])
    assert [item["level"] for item in page] == [2, 3, 2, 3, 5]


def test_no_pages_and_odd_blocks_do_no_harm() -> None:
    join_pages([])
    join_pages([[], [{"type": "paragraph_title"}, {"type": "text", "content": None, "bbox": None}]])


# Text layers


def evidence(content: str = "", **more: Any) -> PageEvidence:
    values: dict[str, Any] = {
        "chars": len(content),
        "sampled": min(400, len(content)),
        "unmapped": 0,
        "private": 0,
        "hidden": 0,
        "image_share": 0.0,
        "objects": 3,
        "text": content,
    }
    return PageEvidence(**values | more)


PROSE = "The harbour office opened at seven, and the first boats (twelve of them) waited at St. John's quay. " * 4
NOISE = "tbe lV~ ^c1 ;:.. x9Zq I|l !1i ' .. -~ %^& ~ f f r t 1l|I ((;; o0O0 qQxZ ,,, rn1 ~^ u v w x" * 5


@pytest.mark.parametrize(
    ("seen", "layer"),
    [
        (evidence(PROSE), TextLayer.GOOD),
        (evidence("Hi"), TextLayer.GOOD),
        (evidence("", objects=0), TextLayer.BLANK),
        (evidence(" \n\t ", objects=0), TextLayer.BLANK),
        (evidence("", image_share=1.0), TextLayer.NONE),
        (evidence("  ", objects=7), TextLayer.NONE),
        (evidence(PROSE, unmapped=100), TextLayer.GARBLED),
        (evidence(PROSE, unmapped=4), TextLayer.GOOD),
        (evidence(PROSE, private=200), TextLayer.GARBLED),
        (evidence(PROSE, private=40), TextLayer.GOOD),
        (evidence(PROSE, hidden=400, image_share=1.0), TextLayer.OCR_LAYER),
        (evidence(NOISE, hidden=400, image_share=1.0), TextLayer.GARBLED),
        (evidence(NOISE), TextLayer.GOOD),
        (evidence(PROSE, hidden=50), TextLayer.GOOD),
        (evidence("本合同由甲乙双方在平等自愿的基础上签订，双方应当严格遵守各项约定。" * 3), TextLayer.GOOD),
        (evidence("本合同".encode("utf-16-le").decode("utf-16-be") * 9), TextLayer.GOOD),
        (evidence("Harbour".encode("utf-16-le").decode("utf-16-be") * 9), TextLayer.GARBLED),
        (evidence("".join(chr(0x3400 + 37 * n) for n in range(60))), TextLayer.GARBLED),
    ],
)
def test_layers_are_judged_by_what_was_seen(seen: PageEvidence, layer: TextLayer) -> None:
    assert judge(seen) is layer


@pytest.mark.parametrize(
    ("content", "plausible"),
    [
        (PROSE, True),
        ("12 March 1863, No. 4. General U. S. GRANT; 1st Div., 3,400 men at 10:30", True),
        ("本合同由甲乙双方签订", True),
        ("", False),
        ("~~ ;; || ^^ ..", False),
        (NOISE, False),
        ("qWrTy zXcVb nMkLp aSdFg", False),
    ],
)
def test_plausible_text(content: str, plausible: bool) -> None:
    assert plausible_text(content) is plausible


# Pictures


def uri(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def test_pictures_go_to_disk_once_and_come_back() -> None:
    spool = ImageSpool()
    blocks: list[dict[str, Any]] = [
        {"type": "image", "image_base64": uri(b"one", "jpeg")},
        {"type": "table", "content": [{"type": "cell", "image_base64": uri(b"one", "jpeg")}, "text"]},
        {"type": "image", "image_base64": uri(b"<svg/>", "svg+xml")},
        {"type": "image", "image_base64": None},
    ]
    spool.take(blocks)
    assert len(spool) == 2 and len(set(spool)) == 2
    path = blocks[0]["image_path"]
    assert path.startswith("images/") and path.endswith(".jpg") and "image_base64" not in blocks[0]
    assert blocks[1]["content"][0]["image_path"] == path
    assert spool[path] == b"one" and spool.data_uri(path) == uri(b"one", "jpeg")
    assert blocks[2]["image_path"].endswith(".svg")
    assert "image_path" not in blocks[3]
    with pytest.raises(KeyError):
        spool["images/none.png"]
    spool.close()
    spool.close()


def test_the_spools_directory_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spool = ImageSpool()
    spool.add(uri(b"one"))
    assert len(list(tmp_path.iterdir())) == 1
    del spool
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "hostile",
    [
        "data:image/../../../../evil;base64,aGk=",
        "data:image/" + "x" * 400 + ";base64,aGk=",
        "data:image/a/b\0c;base64,aGk=",
        "data:image/;base64,aGk=",
        "data:image/png;base64,@@@=a",
        "data:image/png;base64,a",
        "data:image/png",
        "DATA:image/png;base64,aGk=",
        "",
    ],
)
def test_hostile_data_uris_stay_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hostile: str) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spool = ImageSpool()
    spool.take(blocks := [{"type": "image", "image_base64": hostile}])
    assert "image_base64" not in blocks[0]
    for path in spool:
        assert path.count("/") == 1 and len(path) < 100
        assert isinstance(spool[path], bytes)
    assert all(item.name.startswith("mineru-images-") for item in tmp_path.iterdir())
    spool.close()


def test_a_heading_that_becomes_a_running_line_loses_its_level() -> None:
    def heading(content: str, top: float) -> dict[str, Any]:
        box = [0.1, top, 0.6, top + 0.02]
        return {"type": "paragraph_title", "bbox": box, "level": 2, "content": [{"type": "text", "content": content}]}

    pages = [[heading("Annual Report", 0.03), heading("1 Scope", 0.3)] for _ in range(4)]
    join_pages(pages)
    assert [page[0]["type"] for page in pages] == ["header"] * 4
    assert all("level" not in page[0] for page in pages)


def test_a_page_that_breaks_the_protocol_keeps_its_text_and_the_document() -> None:
    from mineru_engine.protocol import Protocol

    good = {"type": "text", "bbox": [0.1, 0.1, 0.9, 0.2], "content": [{"type": "text", "content": "fine"}]}
    bad = {"type": "header", "bbox": [0.1, 0.1, 0.9, 0.2], "level": 2, "content": [{"type": "text", "content": "kept"}]}
    build = Protocol("pdf", [[good], [bad]], [], {}, None)
    middle, _ = build()
    assert build.simplified == [1]
    assert "kept" in middle.to_json() and "fine" in middle.to_json()


def article(kind: str, content: str, top: float, lines: int = 1) -> dict[str, Any]:
    boxes = [[0.1, top + 0.02 * number, 0.6, top + 0.02 * number + 0.015] for number in range(lines)]
    box = [0.1, top, 0.6, boxes[-1][3]]
    spans = [{"type": "text", "content": content}]
    return {"type": kind, "bbox": box, "lines": [{"bbox": box} for box in boxes], "content": spans}


def test_articles_of_a_contract_all_get_their_heading() -> None:
    page = [
        article("paragraph_title", "第一条 合同标的", 0.1),
        article("text", "甲方向乙方采购设备。", 0.15),
        article("paragraph_title", "第二条 合同价款", 0.2),
        article("text", "第三条 付款方式", 0.25),
        article("text", "双方应当协商解决。第四条 争议解决", 0.3, lines=2),
        article("text", "按照第一条 合同标的，乙方应当交货。", 0.4),
    ]
    join_pages([page])
    headings = [plain_text(block) for block in page if block["type"] == "paragraph_title"]
    assert headings == ["第一条 合同标的", "第二条 合同价款", "第三条 付款方式", "第四条 争议解决"]
    assert plain_text(page[4]) == "双方应当协商解决。"
    assert page[5]["bbox"] == [0.1, 0.32, 0.6, 0.335]


def test_one_article_alone_is_no_reason_to_cut_a_paragraph() -> None:
    page = [
        article("paragraph_title", "第一条 合同标的", 0.1),
        article("text", "协商解决。第四条 争议解决", 0.3, lines=2),
    ]
    join_pages([page])
    assert len(page) == 2
