"""Tiers high and xhigh over a scripted model: what is asked, what comes out, and every way down when it fails."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mineru_engine import ParseResult, Settings, parse, parse_async, shutdown_cached_models
from mineru_engine.errors import EngineDeadError, EngineRequestError, EngineUnavailableError, NothingReadError
from mineru_engine.exchange import Exchange
from mineru_engine.pdf.pipeline import PageReader
from mineru_engine.result import PageKind
from mineru_engine.runtime.budget import page_images
from mineru_engine.runtime.registry import runtimes
from mineru_engine.vlm import transports
from mineru_engine.vlm.transport import VlmReply, VlmRequest
from tests.engine.scripted_transport import LAYOUT, ScriptedTransport, answer, kind_of, layout

Script = Callable[[VlmRequest], VlmReply]


@pytest.fixture(scope="module")
def transport() -> Iterator[ScriptedTransport]:
    """One transport for all tests: starting workers anew for each would take most of the time."""
    shutdown_cached_models()
    transport = ScriptedTransport()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transports, "_transport", lambda config, pool: transport)
        yield transport
        shutdown_cached_models()


@pytest.fixture
def model(transport: ScriptedTransport) -> Iterator[ScriptedTransport]:
    """The transport with nothing asked yet."""
    transport.script, transport.seen = answer, []
    transport.hold.set()
    yield transport
    assert page_images.used == 0
    assert transport.in_flight == 0


def read(path: Path, tier: str = "xhigh", **options: Any) -> ParseResult:
    return parse(path, tier=tier, server_url="http://127.0.0.1:9", **options)


def asked(model: ScriptedTransport) -> Counter[str]:
    return Counter(kind_of(request) for request in model.seen)


def codes(result: ParseResult) -> list[str]:
    return [item.code for item in result.diagnostics]


def failing(*kinds: str, error: Exception | None = None) -> Script:
    def script(request: VlmRequest) -> VlmReply:
        if kind_of(request) in kinds:
            raise error or EngineRequestError("the server answered 500")
        return answer(request)

    return script


def test_two_steps_on_a_scan_ask_for_every_block(demo: Path, model: ScriptedTransport) -> None:
    result = read(demo / "contract_scan.pdf", pages="1")
    assert asked(model) == {"Layout": 1, "Text": 4, "Table": 1, "Formula": 1, "Image": 1}
    assert result.page_kinds == {0: PageKind.VLM}
    assert (result.engine, result.model, result.tier) == ("http", "scripted", "xhigh")
    text = result.markdown()
    assert "# Some words with $x^2$ in them." in text
    assert "E = mc^2" in text
    assert "| 1 | 2 |" in text
    assert "A hill." in text
    assert len(result.assets) >= 2  # the picture, the table, the formula as they look
    assert codes(result) == []


def test_pictures_sent_are_lossless_squares_and_crops(demo: Path, model: ScriptedTransport) -> None:
    read(demo / "contract_scan.pdf", pages="1")
    for request in model.seen:
        assert request.image.media_type == "image/png"
        image = Image.open(io.BytesIO(request.image.decode()))
        image.load()
        if kind_of(request) == "Layout":
            assert image.size == (1036, 1036)
    sampling = {kind_of(request): request.sampling for request in model.seen}
    assert sampling["Layout"].temperature == 0.0
    assert sampling["Table"].presence_penalty == 1.0


def test_the_format_of_pictures_can_be_chosen(demo: Path, model: ScriptedTransport) -> None:
    settings = Settings.load(overrides={"model.vlm.image_format": "jpeg"})
    read(demo / "contract_scan.pdf", pages="1", settings=settings)
    assert "image/jpeg" in {request.image.media_type for request in model.seen}
    for request in model.seen:
        image = Image.open(io.BytesIO(request.image.decode()))
        assert request.image.media_type == f"image/{image.format}".lower()


def test_a_text_layer_gives_the_text_and_the_model_the_rest(demo: Path, model: ScriptedTransport) -> None:
    result = read(demo / "paper.pdf", pages="1")
    assert asked(model)["Text"] < 4
    assert asked(model)["Formula"] == 1
    assert "Abstract" in result.markdown()


def test_ocr_mode_ocr_leaves_the_text_layer_alone(demo: Path, model: ScriptedTransport) -> None:
    result = read(demo / "paper.pdf", pages="1", ocr_mode="ocr")
    assert asked(model)["Text"] == 4
    assert "Abstract" not in result.markdown()


def test_the_image_switch(demo: Path, model: ScriptedTransport) -> None:
    result = read(demo / "contract_scan.pdf", pages="1", image_analysis=False)
    assert asked(model)["Image"] == 0
    assert "A hill." not in result.markdown()
    assert "](images/" in result.markdown()


def test_a_native_table_comes_before_the_model(demo: Path, model: ScriptedTransport) -> None:
    from mineru_engine.pdf.native import analyze_native
    from mineru_engine.pdf.source import PdfSource

    source = PdfSource(demo / "report.pdf")
    pages = analyze_native(source, list(range(source.page_count)))
    page, box = next(
        (index, block["bbox"]) for index, blocks in pages.items() for block in blocks if block["type"] == "table"
    )
    spot = tuple(round(1000 * value) for value in box)
    model.script = lambda _: VlmReply(layout([("table", spot)]))  # type: ignore[list-item]
    result = read(demo / "report.pdf", pages=str(page + 1))
    assert asked(model) == {"Layout": 1}
    assert "| a | b |" not in result.markdown()
    assert "|" in result.markdown() or "<table" in result.markdown()


def test_high_reads_native_pages_natively_and_asks_for_formulas_and_pictures(
    demo: Path, model: ScriptedTransport
) -> None:
    plain = parse(demo / "paper.pdf", tier="flash")
    result = read(demo / "paper.pdf", tier="high")
    assert set(asked(model)) <= {"Formula", "Image", "Table"}
    assert asked(model)["Formula"] >= 1
    assert set(result.page_kinds.values()) == {PageKind.NATIVE}
    assert "E = mc^2" in result.markdown()
    assert [len(page.blocks) for page in result.middle_json.pages] == [
        len(page.blocks) for page in plain.middle_json.pages
    ]


def test_high_finds_the_blocks_of_a_scan_by_itself(demo: Path, model: ScriptedTransport) -> None:
    result = read(demo / "contract_scan.pdf", tier="high", pages="1")
    assert asked(model)["Layout"] == 0
    assert asked(model)["Text"] >= 3
    assert result.page_kinds == {0: PageKind.VLM}


def test_a_block_without_an_answer_is_read_by_ocr(demo: Path, model: ScriptedTransport) -> None:
    first: list[VlmRequest] = []

    def script(request: VlmRequest) -> VlmReply:
        if kind_of(request) == "Text":
            first.append(request)
            if len(first) == 2:
                raise EngineRequestError("the server answered 500")
        return answer(request)

    model.script = script
    result = read(demo / "contract_scan.pdf", pages="1")
    assert codes(result) == ["vlm_blocks_failed", "vlm_blocks_rescued"]
    assert "1 by OCR" in result.diagnostics[1].message
    assert result.page_kinds == {0: PageKind.VLM}
    assert result.status == "success"


def test_a_formula_without_an_answer_stays_a_picture(demo: Path, model: ScriptedTransport) -> None:
    model.script = failing("Formula")
    result = read(demo / "contract_scan.pdf", pages="1")
    assert "E = mc^2" not in result.markdown()
    assert "1 by picture" in result.diagnostics[-1].message
    assert result.markdown().count("](images/") == 2


def test_a_caller_hears_what_was_asked_and_answered(demo: Path, model: ScriptedTransport) -> None:
    heard: list[Exchange] = []
    model.script = failing("Formula")
    read(demo / "contract_scan.pdf", pages="2", on_exchange=heard.append)
    assert sorted(one.prompt for one in heard) == sorted(request.prompt for request in model.seen)
    assert {(one.document, one.page) for one in heard} == {("contract_scan.pdf", 1)}
    (first, *_), failed = heard, [one for one in heard if one.answer is None]
    assert first.kind == "layout" and first.answer is not None and "<|box_start|>" in first.answer
    assert [(one.kind, one.error) for one in failed] == [("equation", "the server answered 500")]
    assert all(one.error is None and one.seconds >= 0 for one in heard if one not in failed)


def test_a_page_without_a_layout_falls_back_to_its_text_layer(demo: Path, model: ScriptedTransport) -> None:
    model.script = failing("Layout")
    result = read(demo / "paper.pdf", pages="1-2")
    assert set(result.page_kinds.values()) == {PageKind.NATIVE}
    assert codes(result) == ["vlm_page_failed"] * 2
    assert "Abstract" in result.markdown()


def test_a_scan_without_a_layout_falls_back_to_ocr(demo: Path, model: ScriptedTransport) -> None:
    model.script = failing("Layout")
    result = read(demo / "contract_scan.pdf", pages="1")
    assert result.page_kinds == {0: PageKind.OCR}
    assert len(result.markdown()) > 500


@pytest.mark.parametrize("said", ["I am sorry, I cannot do that.", "{}", "<|box_start|>5 5 5 5<|box_end|>"])
def test_a_model_that_speaks_no_layout_is_not_believed(demo: Path, model: ScriptedTransport, said: str) -> None:
    model.script = lambda request: VlmReply(said)
    result = read(demo / "contract_scan.pdf", pages="1")
    assert result.page_kinds == {0: PageKind.OCR}
    assert codes(result)[0] == "vlm_page_failed"


async def _nothing(*_: object) -> None:
    return None


def test_the_last_way_is_the_picture_of_the_page(
    demo: Path, model: ScriptedTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PageReader, "_try", _nothing)  # neither OCR nor the text layer
    model.script = failing("Layout")
    with pytest.raises(NothingReadError):
        read(demo / "contract_scan.pdf")

    def second_page_only(request: VlmRequest) -> VlmReply:
        if kind_of(request) == "Layout" and len(asked_layouts(model)) == 1:
            raise EngineRequestError("the server answered 500")
        return answer(request)

    model.seen, model.script = [], second_page_only
    result = read(demo / "contract_scan.pdf")
    assert sorted(result.page_kinds.values()) == [PageKind.PICTURE] + [PageKind.VLM] * (result.page_count - 1)
    assert result.status == "partial"
    assert "page_picture" in codes(result)


def asked_layouts(model: ScriptedTransport) -> list[VlmRequest]:
    return [request for request in model.seen if kind_of(request) == "Layout"]


def test_an_empty_answer_for_an_empty_scan_is_an_empty_page(tmp_path: Path, model: ScriptedTransport) -> None:
    Image.new("RGB", (400, 600), "white").save(tmp_path / "white.png")
    model.script = lambda request: VlmReply("")
    result = read(tmp_path / "white.png")
    assert result.markdown().strip() == ""


def test_a_truncated_answer_is_kept_and_told(demo: Path, model: ScriptedTransport) -> None:
    model.script = lambda request: VlmReply(answer(request).text, truncated=kind_of(request) == "Table")
    result = read(demo / "contract_scan.pdf", pages="1")
    assert codes(result) == ["vlm_answer_truncated"]
    assert "| 1 | 2 |" in result.markdown()


@pytest.mark.parametrize("error", [EngineDeadError("killed"), EngineUnavailableError("wrong key")])
def test_the_engine_gone_is_the_documents_failure(demo: Path, model: ScriptedTransport, error: Exception) -> None:
    model.script = failing("Text", error=error)
    with pytest.raises(type(error)) as caught:
        read(demo / "contract_scan.pdf")
    assert caught.value.document == "contract_scan.pdf"  # type: ignore[attr-defined]


def test_pages_keep_their_order_whatever_answers_first(demo: Path, model: ScriptedTransport) -> None:
    plain = read(demo / "report.pdf", ocr_mode="auto")
    again = read(demo / "report.pdf", ocr_mode="auto", window_size=1)
    assert plain.markdown() == again.markdown()
    assert [page.page_idx for page in plain.middle_json.pages] == list(range(plain.page_count))


def test_sync_and_async_give_the_same_bytes(demo: Path, model: ScriptedTransport) -> None:
    async def many() -> list[ParseResult]:
        work = (parse_async(demo / "paper.pdf", tier="xhigh", server_url="http://127.0.0.1:9") for _ in range(4))
        return list(await asyncio.gather(*work))

    alone = read(demo / "paper.pdf")
    results = asyncio.run(many())
    assert {result.export("json") for result in results} == {alone.export("json")}
    assert {result.markdown() for result in results} == {alone.markdown()}


def test_a_small_budget_only_slows_down(demo: Path, model: ScriptedTransport) -> None:
    settings = Settings.load(overrides={"processing.image_budget_mb": 8, "worker.processes": 1})
    result = read(demo / "report.pdf", ocr_mode="ocr", settings=settings)
    assert set(result.page_kinds.values()) == {PageKind.VLM}


def test_a_killed_worker_costs_nothing_but_time(demo: Path, model: ScriptedTransport) -> None:
    killed: list[int] = []

    def script(request: VlmRequest) -> VlmReply:
        if kind_of(request) == "Text" and not killed:
            killed.extend(runtimes()[0].worker_pids())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
        return answer(request)

    model.script = script
    result = read(demo / "report.pdf", ocr_mode="ocr")
    assert killed
    assert result.status == "success"
    assert len(result.page_kinds) == result.page_count


def test_a_cancel_leaves_nothing(demo: Path, model: ScriptedTransport, tmp_path: Path) -> None:
    async def body() -> None:
        model.hold.clear()
        task = asyncio.create_task(
            parse_async(demo / "report.pdf", tier="xhigh", ocr_mode="ocr", server_url="http://127.0.0.1:9")
        )
        while model.in_flight < 3:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert model.in_flight == 0
        statistics = runtimes()[0].statistics()
        assert statistics.jobs == 0
        assert statistics.pool.busy == 0
        assert statistics.engine is not None
        assert (statistics.engine.in_flight, statistics.engine.queued) == (0, 0)
        assert page_images.used == 0
        model.hold.set()
        later = await parse_async(demo / "contract.pdf", tier="xhigh", server_url="http://127.0.0.1:9")
        assert later.status == "success"

    asyncio.run(body())


def test_layout_blocks_of_the_script_are_all_different() -> None:
    assert len({box for _, box in LAYOUT}) == len(LAYOUT)
