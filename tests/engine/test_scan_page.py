"""A whole scanned page: image in, raw blocks out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from docvortex.postprocess.document import model_json_to_middle_json
from docvortex.schema import ModelJson
from rapidfuzz.distance import Levenshtein

from mineru_engine.pdf import upright
from mineru_engine.pdf.assemble import assemble_page
from mineru_engine.pdf.layout import LayoutLabel, Region
from mineru_engine.pdf.lines import TextLine
from mineru_engine.pdf.scan import ScanPage, read_scan_page
from mineru_engine.pdf.upright import turn_image
from tests.engine.scan_images import draw_page, render_page

WHITE = np.full((1400, 1000, 3), 255, dtype=np.uint8)


def text_of(blocks: list[dict[str, Any]]) -> str:
    parts: list[str] = []
    for block in blocks:
        content = block["content"]
        parts.append(content if isinstance(content, str) else "".join(span["content"] for span in content))
    return "\n".join(parts)


def plain(text: str) -> str:
    return re.sub(r"[\s#|*-]+", "", re.sub(r"<[^>]+>", "", text))


@pytest.fixture(scope="module")
def contract() -> ScanPage:
    path = Path(__file__).resolve().parents[2] / "demo" / "contract_scan.pdf"
    return read_scan_page(render_page(path, 0), threads=2)


def test_the_contract_reads_like_its_truth(contract: ScanPage, demo: Path) -> None:
    truth = plain((demo / "truth" / "contract_scan.md").read_text(encoding="utf-8"))
    body = [block for block in contract.blocks if block["type"] != "page_number"]
    read = plain(text_of(body))
    # The file holds three pages: compare with as much of it as one page has.
    assert Levenshtein.normalized_similarity(read, truth[: len(read)]) > 0.98
    assert contract.rotation == 0
    assert contract.skew == pytest.approx(-0.8, abs=0.2)


def test_the_contract_has_its_structure(contract: ScanPage) -> None:
    kinds = [block["type"] for block in contract.blocks]
    assert kinds[0] == "doc_title"
    assert kinds.count("paragraph_title") == 3
    assert kinds[-1] == "page_number"
    assert kinds.index("caption") < kinds.index("table")
    table = next(block for block in contract.blocks if block["type"] == "table")
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in table["content"].split("<tr>")[1:]]
    assert len(rows) == 6 and {len(row) for row in rows} == {5}
    assert rows[3] == ["第三期", "安装调试完毕并验收合格", "验收后十五个工作日内", "25%", "34,350.00"]
    assert table["image_base64"].startswith("data:image/jpeg;base64,")


def test_docvortex_accepts_the_blocks(contract: ScanPage) -> None:
    model = ModelJson.model_validate(
        {
            "schema": "docvortex.model",
            "metadata": {"file_suffix": "pdf", "producer": {"name": "test", "version": "1"}},
            "pages": [contract.blocks],
            "page_index_map": [],
        }
    )
    page = model_json_to_middle_json(model).pages[0]
    kinds = [str(block.type) for block in page.blocks]
    # The caption has gone into its table.
    assert "table" in kinds and "caption" not in kinds


def test_a_page_on_its_head_is_read() -> None:
    text = ["A page that somebody fed into the scanner upside down", "still has to be read from its first line on."]
    page = draw_page([(80, 200 + 60 * i, line) for i, line in enumerate(text)])
    result = read_scan_page(turn_image(page, 180), threads=2)
    assert result.rotation == 180
    assert text_of(result.blocks) == " ".join(text)
    assert result.blocks[0]["bbox"][3] > 0.8


def test_given_lines_are_not_recognised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("OCR ran")

    monkeypatch.setattr(upright, "find_quads", forbidden)
    result = read_scan_page(WHITE, [TextLine((0.1, 0.1, 0.6, 0.12), "known already")], threads=2)
    assert text_of(result.blocks) == "known already"
    assert read_scan_page(WHITE, [], threads=2).blocks == []


def column(left: float, right: float, words: str) -> list[TextLine]:
    return [TextLine((left, 0.2 + 0.02 * i, right, 0.215 + 0.02 * i), f"{words} {i}") for i in range(6)]


def test_columns_without_a_layout_are_read_one_after_the_other() -> None:
    lines = sorted(column(0.1, 0.45, "left") + column(0.55, 0.9, "right"), key=lambda line: line.bbox[1])
    blocks = assemble_page(WHITE, [], lines)
    assert [text_of([block]) for block in blocks] == [
        " ".join(f"left {i}" for i in range(6)),
        " ".join(f"right {i}" for i in range(6)),
    ]


def test_no_text_is_lost_whatever_the_regions_say() -> None:
    lines = column(0.1, 0.45, "some words of the left column") + column(0.55, 0.9, "right column")
    regions = [
        Region((0.1, 0.2, 0.45, 0.25), LayoutLabel.TEXT, 0.9),
        Region((0.1, 0.2, 0.45, 0.24), LayoutLabel.TEXT, 0.8),
        Region((0.5, 0.18, 0.95, 0.35), LayoutLabel.FIGURE, 0.9),
        Region((0.1, 0.26, 0.45, 0.29), LayoutLabel.EQUATION, 0.6),
    ]
    read = text_of(assemble_page(WHITE, regions, lines))
    for line in lines:
        assert read.count(line.text) == 1, line.text


def test_a_figure_full_of_prose_is_text() -> None:
    lines = column(0.1, 0.9, "a long line of ordinary prose in a box")
    figure = Region((0.09, 0.19, 0.91, 0.32), LayoutLabel.FIGURE, 0.9)
    assert [block["type"] for block in assemble_page(WHITE, [figure], lines)] == ["text"]
    labels = [TextLine((0.2, 0.2, 0.25, 0.21), "Axis")]
    blocks = assemble_page(WHITE, [figure], labels)
    assert [(block["type"], block["content"]) for block in blocks] == [("image", "Axis")]


def test_list_items_get_a_list_around_them() -> None:
    lines = [TextLine((0.1, 0.2 + 0.03 * i, 0.7, 0.215 + 0.03 * i), f"{i + 1}. item of a list") for i in range(3)]
    blocks = assemble_page(WHITE, [], lines)
    assert [block["type"] for block in blocks] == ["list", "text", "text", "text"]
    assert blocks[0]["bbox"] == pytest.approx([0.1, 0.2, 0.7, 0.275])


def test_page_numbers_of_a_table_of_contents_follow_their_titles() -> None:
    titles = ["1 Summary", "2 Method", "2.1 Data", "3 Outlook"]
    lines = [TextLine((0.1, 0.2 + 0.02 * i, 0.3, 0.215 + 0.02 * i), f"{text} . .") for i, text in enumerate(titles)]
    lines += [TextLine((0.86, 0.2 + 0.02 * i, 0.9, 0.215 + 0.02 * i), f". {i + 10}") for i in range(4)]
    assert text_of(assemble_page(WHITE, [], lines)).split("\n") == [f"{t} {i + 10}" for i, t in enumerate(titles)]
