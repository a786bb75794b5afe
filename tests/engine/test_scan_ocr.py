"""Reading text on page images: real models, small pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mineru_engine.pdf.ocr import read_lines, read_quads, to_lines
from mineru_engine.pdf.scan import read_scan_page
from mineru_engine.pdf.text_models import Reading, find_quads
from mineru_engine.pdf.upright import _reads_unturned, estimate_skew, straighten, turn_image
from tests.engine.scan_images import draw_page

TEXT = [
    "The quick brown fox jumps over the lazy dog near the river",
    "while seven brave engineers measure the depth of the water",
    "and write their results into a table with four columns.",
    "Nobody knows how many boxes the old ship carried that day.",
]
LINES = [(80, 200 + 60 * i, text) for i, text in enumerate(TEXT)]


def test_lines_are_read_with_their_places(capfd: pytest.CaptureFixture[str]) -> None:
    lines = read_lines(draw_page(LINES), threads=2)
    assert [line.text for line in lines] == TEXT
    assert lines[0].bbox[0] == pytest.approx(0.08, abs=0.01)
    assert lines[0].bbox[1] == pytest.approx(200 / 1400, abs=0.01)
    assert all(line.score > 0.9 and not line.vertical for line in lines)
    assert capfd.readouterr() == ("", "")


def test_character_positions_follow_the_line() -> None:
    line = read_lines(draw_page([(100, 300, "left"), (500, 300, "right")]), threads=2)
    assert [one.text for one in line] == ["left", "right"]
    for one in line:
        assert len(one.centers) == len(one.text)
        assert one.bbox[0] < one.centers[0] < one.centers[-1] < one.bbox[2]


def test_an_empty_page_has_no_lines() -> None:
    assert read_lines(np.full((600, 400, 3), 255, dtype=np.uint8), threads=2) == []


@pytest.mark.parametrize("degrees", [90, 270])
def test_a_page_on_its_side_is_turned_back(degrees: int) -> None:
    page = straighten(turn_image(draw_page(LINES), degrees), threads=2)
    assert page.rotation == 360 - degrees
    readings = read_quads(page.image, page.quads, vertical=False, threads=2)
    assert [line.text for line in to_lines(page.image, page.quads, readings, vertical=False)] == TEXT


@pytest.mark.parametrize("tilt", [-2.5, 0.8])
def test_skew_is_measured_and_taken_out(tilt: float) -> None:
    image = draw_page(LINES, tilt=tilt)
    quads = find_quads(image, threads=2)
    assert estimate_skew(quads, image.shape[1]) == pytest.approx(tilt, abs=0.25)
    page = straighten(image, threads=2)
    assert abs(estimate_skew(page.quads, page.image.shape[1])) < 0.25


def test_boxes_find_their_way_back_from_a_turned_and_tilted_page() -> None:
    upright = draw_page(LINES, tilt=2.0)
    turned = turn_image(upright, 90)
    page = straighten(turned, threads=2)
    assert page.rotation == 270
    readings = read_quads(page.image, page.quads, vertical=False, threads=2)
    line = to_lines(page.image, page.quads, readings, vertical=False)[0]
    box = page.page_box(line.bbox)
    # On the turned page the first line runs down, near the right-hand side.
    expected = next(one for one in read_lines(upright, threads=2) if one.text == TEXT[0]).bbox
    assert box[1] == pytest.approx(expected[0], abs=0.02)
    assert box[3] == pytest.approx(expected[2], abs=0.02)
    assert (box[0] + box[2]) / 2 == pytest.approx(1 - (expected[1] + expected[3]) / 2, abs=0.02)


def test_cells_at_the_ends_of_a_column_are_as_large_as_the_others() -> None:
    crop = np.full((300, 31, 3), 255, dtype=np.uint8)
    reading = Reading("元来日本", 0.9, (0.01, 0.3, 0.6, 0.99))
    assert not _reads_unturned([crop], [reading], threads=2)


@pytest.mark.samples
def test_vertical_japanese_is_read_from_right_to_left(samples: Path) -> None:
    image = np.asarray(Image.open(samples / "143_unstructured_jpn-vert.jpeg").convert("RGB"))
    page = read_scan_page(image, threads=2)
    text = "".join(span["content"] for block in page.blocks for span in block["content"])
    assert page.rotation == 0
    assert text.startswith("元来日本語は漢文に倣い")
    assert text.endswith("横書き不能な書体も存在する。")
