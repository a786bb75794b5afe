"""Tables without a table model."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from mineru_engine.pdf.lines import TextLine
from mineru_engine.pdf.table_grid import table_html
from mineru_engine.pdf.table_rules import find_grid
from tests.engine.scan_images import Pixels

SIZE = 1000
PAGE = (0.0, 0.0, 1.0, 1.0)


def line(left: int, top: int, right: int, text: str, *, centers: bool = False) -> TextLine:
    """A line 24 pixels high on a page of 1000 x 1000."""
    width = (right - left) / len(text)
    middles = tuple((left + (i + 0.5) * width) / SIZE for i in range(len(text))) if centers else ()
    return TextLine((left / SIZE, top / SIZE, right / SIZE, (top + 24) / SIZE), text, 1.0, False, middles)


def ruled(xs: list[int], ys: list[int], gaps: list[tuple[int, int, int, int]]) -> Pixels:
    """A page with a full grid of rules, from which the pieces in `gaps` are erased."""
    page = Image.new("RGB", (SIZE, SIZE), "white")
    pen = ImageDraw.Draw(page)
    for x in xs:
        pen.line((x, ys[0], x, ys[-1]), "black", 3)
    for y in ys:
        pen.line((xs[0], y, xs[-1], y), "black", 3)
    for gap in gaps:
        pen.rectangle(gap, "white")
    return np.asarray(page, dtype=np.uint8)


def test_spans_follow_the_missing_rules() -> None:
    # The first row spans two columns; the first column spans the last two rows.
    image = ruled([100, 300, 500, 700], [100, 160, 220, 280], [(495, 105, 505, 155), (105, 215, 295, 225)])
    lines = [
        line(120, 118, 200, "Item"),
        line(420, 118, 560, "Price & tax"),
        line(120, 200, 200, "Pump"),
        line(320, 178, 380, "10"),
        line(520, 178, 600, "<2"),
        line(320, 238, 380, "30"),
        line(520, 238, 600, "4"),
    ]
    assert table_html(image, PAGE, lines) == (
        '<table><tbody><tr><td>Item</td><td colspan="2">Price &amp; tax</td></tr>'
        '<tr><td rowspan="2">Pump</td><td>10</td><td>&lt;2</td></tr>'
        "<tr><td>30</td><td>4</td></tr></tbody></table>"
    )


def test_a_line_across_a_rule_is_cut_at_its_gap() -> None:
    image = ruled([100, 300, 500], [100, 160, 220], [])
    lines = [line(220, 118, 380, "left  right", centers=True), line(120, 178, 200, "a"), line(320, 178, 400, "b")]
    assert table_html(image, PAGE, lines) == (
        "<table><tbody><tr><td>left</td><td>right</td></tr><tr><td>a</td><td>b</td></tr></tbody></table>"
    )


def test_rows_without_rules_are_told_by_their_lines() -> None:
    image = ruled([100, 300, 500, 700], [100, 160, 260], [])
    lines = [line(x, 118, x + 80, text) for x, text in ((120, "A"), (320, "B"), (520, "C"))]
    lines += [line(x, y, x + 80, f"{x}-{y}") for x in (120, 320, 520) for y in (175, 220)]
    assert table_html(image, PAGE, lines) == (
        "<table><tbody><tr><td>A</td><td>B</td><td>C</td></tr>"
        "<tr><td>120-175</td><td>320-175</td><td>520-175</td></tr>"
        "<tr><td>120-220</td><td>320-220</td><td>520-220</td></tr></tbody></table>"
    )


def test_an_unruled_table_is_read_from_its_gutters() -> None:
    blank = np.full((SIZE, SIZE, 3), 255, dtype=np.uint8)
    lines = [line(100, 100, 460, "Heading over both columns")]
    for i, (name, value) in enumerate((("alpha", "1"), ("beta", "22"), ("gamma", "333"))):
        lines += [line(100, 150 + 40 * i, 200, name), line(400, 150 + 40 * i, 460, value)]
    assert table_html(blank, PAGE, lines) == (
        '<table><tbody><tr><td colspan="2">Heading over both columns</td></tr>'
        "<tr><td>alpha</td><td>1</td></tr><tr><td>beta</td><td>22</td></tr>"
        "<tr><td>gamma</td><td>333</td></tr></tbody></table>"
    )


def test_a_paragraph_is_no_table() -> None:
    blank = np.full((SIZE, SIZE, 3), 255, dtype=np.uint8)
    lines = [line(100, 100 + 40 * i, 900, f"line number {i} of a paragraph") for i in range(4)]
    assert table_html(blank, PAGE, lines) == ""
    assert find_grid(blank, PAGE, lines) is None
    assert table_html(blank, PAGE, []) == ""
