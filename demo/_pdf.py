"""Draw the blocks of a document with reportlab.

Every build is deterministic: ``invariant`` drops dates and random identifiers from the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from reportlab.lib.colors import HexColor, black, grey
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    CondPageBreak,
    Flowable,
    KeepTogether,
    PageTemplate,
    Paragraph,
)
from reportlab.platypus import PageBreak as NewPage
from reportlab.platypus import Table as Grid
from reportlab.platypus.tableofcontents import TableOfContents

from _content import Block, Bullets, Contents, Figure, Footnote, Formula, Heading, PageBreak, Para, Table, place_cells
from _math import DisplayMath, inline_markup

Styles = Mapping[str, ParagraphStyle]
_INLINE = re.compile(r"\$(?P<math>[^$]+)\$|\*\*(?P<strong>[^*]+)\*\*|\*(?P<em>[^*]+)\*|\[\^(?P<note>\d+)\]")
_COLOURS = (HexColor("#1f4e79"), HexColor("#b03a2e"), HexColor("#4d7c3a"))
_ROOM_BELOW_HEADING = {1: 0, 2: 7, 3: 5, 4: 4}
_ALIGNMENT = {"l": 0, "c": 1, "r": 2}


@dataclass(frozen=True)
class Layout:
    """The look of a document: its styles, the width of a column and the size of display formulas."""

    styles: Styles
    width: float
    math_size: float = 9.5


def inline_xml(text: str) -> str:
    """Inline markup of ``_content`` as the XML of a reportlab paragraph."""

    def piece(match: re.Match[str]) -> str:
        if match["math"]:
            return inline_markup(match["math"])
        if match["note"]:
            return f"<super>{match['note']}</super>"
        return f"<b>{escape(match['strong'])}</b>" if match["strong"] else f"<i>{escape(match['em'])}</i>"

    out, end = [], 0
    for match in _INLINE.finditer(text):
        out += [escape(text[end : match.start()], quote=False), piece(match)]
        end = match.end()
    return "".join([*out, escape(text[end:], quote=False)])


class BlockText(Paragraph):  # type: ignore[misc]
    """A paragraph that knows its block, also after it was split over columns or pages."""

    block: Block | None = None

    def split(self, available_width: float, available_height: float) -> list[Flowable]:
        """Split as reportlab does and hand the block on to both parts."""
        parts: list[Flowable] = super().split(available_width, available_height)
        for part in parts:
            part.block = self.block
        return parts


class DemoDocument(BaseDocTemplate):  # type: ignore[misc]
    """Records where each block starts and feeds the table of contents."""

    def __init__(
        self, path: Path, templates: Sequence[PageTemplate], pagesize: tuple[float, float], title: str
    ) -> None:
        super().__init__(
            str(path), pagesize=pagesize, pageTemplates=list(templates), invariant=1, pageCompression=1, title=title
        )
        self.starts: dict[int, tuple[int, int]] = {}

    def beforeDocument(self) -> None:
        """Forget the positions of the pass before."""
        self.starts = {}

    def afterFlowable(self, flowable: Flowable) -> None:
        """Note page and column of the first piece of every block; tell the contents about headings."""
        block = getattr(flowable, "block", None)
        if block is None or id(block) in self.starts:
            return
        columns = [frame for frame in self.pageTemplate.frames if frame.id != "title"]
        column = columns.index(self.frame) + 1 if self.frame in columns else 0
        self.starts[id(block)] = (self.page, column)
        if isinstance(block, Heading) and block.level in (2, 3):
            self.notify("TOCEntry", (block.level - 2, escape(block.text), self.page))


def flowables(blocks: Iterable[Block], layout: Layout) -> list[Flowable]:
    """The blocks as reportlab flowables; footnotes are left to the page templates."""
    story: list[Flowable] = []
    for block in blocks:
        for flowable in _draw_block(block, layout):
            if not isinstance(flowable, KeepTogether):
                flowable.block = block
            story.append(flowable)
    return story


def _draw_block(block: Block, layout: Layout) -> list[Flowable]:
    """One block as flowables."""
    styles = layout.styles
    match block:
        case Heading():
            room = CondPageBreak(styles["body"].leading * _ROOM_BELOW_HEADING[block.level])
            return [room, BlockText(inline_xml(block.text), styles[f"h{block.level}"])]
        case Para():
            return [BlockText(inline_xml(block.text), styles[block.style])]
        case Bullets():
            return [_list_item(item, n, block, layout) for n, item in enumerate(block.items, start=1)]
        case Table():
            return _draw_table(block, layout)
        case Formula():
            return [DisplayMath(block.latex, block.number, layout.math_size)]
        case Figure():
            caption = BlockText(inline_xml(block.caption), styles["figure_caption"])
            caption.block = block
            return [KeepTogether([Chart(block, layout.width, styles["cell"].fontName), caption])]
        case Contents():
            contents = TableOfContents(levelStyles=[styles["toc1"], styles["toc2"]], dotsMinLevel=0)
            return [contents]
        case PageBreak():
            return [NewPage()]
        case Footnote():
            return []


def _list_item(item: str, number: int, block: Bullets, layout: Layout) -> Flowable:
    """One item with its bullet or number hanging to the left."""
    last = number == len(block.items)
    style = layout.styles["last_item" if last else "item"]
    return BlockText(inline_xml(item), style, bulletText=f"{number}." if block.ordered else "•")


def _draw_table(table: Table, layout: Layout) -> list[Flowable]:
    """Caption and grid; header rows are repeated on every page the table runs over."""
    cell_style, columns = layout.styles["cell"], len(table.widths)
    data: list[list[Any]] = [[""] * columns for _ in range(len(table.header) + len(table.rows))]
    commands: list[tuple[Any, ...]] = [("VALIGN", (0, 0), (-1, -1), "MIDDLE")]
    commands += [(edge, (0, 0), (-1, -1), 2.2) for edge in ("TOPPADDING", "BOTTOMPADDING")]
    commands += [(edge, (0, 0), (-1, -1), 4) for edge in ("LEFTPADDING", "RIGHTPADDING")]
    for row, column, cell in place_cells(table):
        is_header = row < len(table.header)
        alignment = 1 if is_header and cell.colspan > 1 else _ALIGNMENT[table.align[column]]
        style = ParagraphStyle(
            "cell", parent=layout.styles["header_cell"] if is_header else cell_style, alignment=alignment
        )
        data[row][column] = Paragraph(inline_xml(cell.text), style)
        if cell.colspan > 1 or cell.rowspan > 1:
            commands.append(("SPAN", (column, row), (column + cell.colspan - 1, row + cell.rowspan - 1)))
    last_header = len(table.header) - 1
    if table.rules == "grid":
        commands.append(("GRID", (0, 0), (-1, -1), 0.5, black))
    elif table.rules == "booktabs":
        commands += [
            ("LINEABOVE", (0, 0), (-1, 0), 0.9, black),
            ("LINEBELOW", (0, last_header), (-1, last_header), 0.5, black),
            ("LINEBELOW", (0, -1), (-1, -1), 0.9, black),
        ]
    widths = [share * layout.width for share in table.widths]
    grid = Grid(data, colWidths=widths, style=commands, repeatRows=len(table.header), spaceAfter=8)
    caption = BlockText(inline_xml(table.caption), layout.styles["caption"])
    if len(table.rows) > 30:
        return [caption, grid]
    caption.block = table
    return [KeepTogether([caption, grid])]


class Chart(Flowable):  # type: ignore[misc]
    """A line or bar chart in vector graphics."""

    def __init__(self, figure: Figure, width: float, font: str) -> None:
        super().__init__()
        self._figure, self.width, self.height, self._font = figure, width, min(0.62 * width, 170.0), font
        self.spaceBefore = 4.0

    def wrap(self, available_width: float, available_height: float) -> tuple[float, float]:
        """The fixed size of the chart."""
        return self.width, self.height

    def draw(self) -> None:
        """Draw axes, data and legend."""
        figure, canvas = self._figure, self.canv
        top = 1.5 * max(max(values) for _, values in figure.series)
        left, bottom, right, upper = 28.0, 18.0, self.width - 4, self.height - 14
        step = (right - left) / len(figure.labels)
        centres = [left + (i + 0.5) * step for i in range(len(figure.labels))]

        def to_y(value: float) -> float:
            return bottom + (upper - bottom) * value / top

        self._draw_axes(canvas, (left, bottom, right, upper), top, centres)
        for number, (name, values) in enumerate(figure.series):
            colour = _COLOURS[number]
            canvas.setStrokeColor(colour)
            canvas.setFillColor(colour)
            points = [(x, to_y(value)) for x, value in zip(centres, values, strict=True)]
            if figure.kind == "bar":
                for x, y in points:
                    canvas.rect(x - 0.3 * step, bottom, 0.6 * step, y - bottom, stroke=0, fill=1)
                continue
            canvas.setLineWidth(1.1)
            for (x1, y1), (x2, y2) in pairwise(points):
                canvas.line(x1, y1, x2, y2)
            for x, y in points:
                canvas.circle(x, y, 1.6, stroke=0, fill=1)
            canvas.drawString(left + 8, upper - 12 - 9 * number, name)

    def _draw_axes(
        self, canvas: Canvas, area: tuple[float, float, float, float], top: float, centres: Sequence[float]
    ) -> None:
        """Frame, grid lines, numbers and labels."""
        left, bottom, right, upper = area
        canvas.setFont(self._font, 7)
        canvas.setLineWidth(0.3)
        canvas.setStrokeColor(grey)
        ticks = 5
        canvas.rect(left, bottom, right - left, upper - bottom)
        for tick in range(ticks + 1):
            y = bottom + (upper - bottom) * tick / ticks
            canvas.line(left, y, left - 2, y)
            canvas.drawRightString(left - 4, y - 2, f"{top * tick / ticks:.1f}")
        for x, label in zip(centres, self._figure.labels, strict=True):
            canvas.drawCentredString(x, bottom - 9, label)
        canvas.saveState()
        canvas.rotate(90)
        canvas.drawCentredString((bottom + upper) / 2, -6, self._figure.unit)
        canvas.restoreState()


def draw_footnotes(
    canvas: Canvas, notes: Sequence[Footnote], style: ParagraphStyle, x: float, y: float, width: float
) -> None:
    """Draw footnotes upwards from ``y`` at the foot of a column, with the usual short rule above."""
    for note in reversed(notes):
        paragraph = Paragraph(f"<super>{note.mark}</super> {inline_xml(note.text)}", style)
        _, height = paragraph.wrap(width, 200)
        paragraph.drawOn(canvas, x, y)
        y += height
    canvas.setLineWidth(0.4)
    canvas.line(x, y + 4, x + 60, y + 4)


def fill_contents(blocks: Sequence[Block], starts: Mapping[int, tuple[int, int]]) -> list[Block]:
    """Give the table of contents its entries: the headings of level 2 and 3 with their pages."""
    entries = tuple((b.level, b.text, starts[id(b)][0]) for b in blocks if isinstance(b, Heading) and b.level in (2, 3))
    return [Contents(entries) if isinstance(block, Contents) else block for block in blocks]


def footnotes_in_reading_order(
    blocks: Sequence[Block], notes: Sequence[Footnote], starts: Mapping[int, tuple[int, int]]
) -> list[Block]:
    """Put each footnote after the last block that starts in its column, where a reader meets it."""
    out: list[Block] = list(blocks)
    for note in notes:
        before = [i for i, b in enumerate(out) if starts.get(id(b), (10_000, 0)) <= (note.page, note.column)]
        out.insert(before[-1] + 1, note)
    return out
