"""Lines of one column to paragraphs: rows, indentation, short last lines, list markers."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from docvortex.content.text import merge_text_line_contents

from mineru_engine.pdf.lines import Box, TextLine, span_overlap, union

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_STOPS: Final = '。．.!?！？:：;；…”"』」)）'
_BULLET: Final = r"[•●○■□▪◆◇★☆➢➤✓·]\s*\S|[-–—*]\s+\S"
_NUMBER: Final = (
    r"[(（]\s*(?:\d{1,3}|[一二三四五六七八九十]{1,3}|[a-zA-Z]|[ivx]{1,4})\s*[)）]"
    r"|\d{1,3}\s*[.．、)）](?!\d)\s*\S|[一二三四五六七八九十]{1,3}、|[①-⑳]|[a-zA-Z][.)]\s+\S"
)
_ARTICLE: Final = r"第[一二三四五六七八九十百零〇\d]+[条款]"
_REFERENCE: Final = r"[\[［〔]\d{1,3}[\]］〕]"
_FIELD: Final = re.compile(r"\s*[^\s：:，。,.]{1,12}\s*[：:]\s*\S")
_ENTRY: Final = re.compile(r"\s*(?:\d+(?:\.\d+)*\s|[A-Z\u4e00-\u9fff]).*[\w)]\s*[.·… ]+\d{1,4}\s*$")
"""An entry of a table of contents: title, leader, page."""
_MARKER: Final = re.compile(rf"\s*(?:{_BULLET}|{_NUMBER}|{_REFERENCE}|{_ARTICLE})")
_LIST_MARKER: Final = re.compile(rf"\s*(?:{_BULLET}|{_NUMBER})")


@dataclass(frozen=True, slots=True)
class Row:
    """One printed line, which the detector may have found in several pieces.

    :ivar size: thickness, close to the font size: unit height, or unit width of a vertical row.
    """

    bbox: Box
    text: str
    size: float
    vertical: bool = False


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Rows that belong together, in reading order."""

    rows: tuple[Row, ...]

    @property
    def bbox(self) -> Box:
        return union(row.bbox for row in self.rows)

    @property
    def text(self) -> str:
        """The joined text: words cut by a hyphen restored, no spaces between Chinese or Japanese lines."""
        return str(merge_text_line_contents([row.text for row in self.rows]))

    @property
    def size(self) -> float:
        return statistics.median(row.size for row in self.rows)


def starts_item(text: str) -> bool:
    """Whether a line opens a list item, a clause or a reference."""
    return _MARKER.match(text) is not None


def is_list_item(text: str) -> bool:
    """Whether a paragraph carries the bullet or the number of a list item."""
    return _LIST_MARKER.match(text) is not None


def join_rows(lines: Iterable[TextLine]) -> list[Row]:
    """Put the pieces of each printed line together, from top to bottom (vertical text: right to left)."""
    ordered = sorted(lines, key=lambda line: -_middle(line) if line.vertical else _middle(line))
    bands: list[list[TextLine]] = []
    for line in ordered:
        band = next((band for band in reversed(bands[-3:]) if _same_band(band[-1], line)), None)
        if band is None:
            bands.append([line])
        else:
            band.append(line)
    return [_join_band(band) for band in bands]


def _middle(line: TextLine) -> float:
    return (line.bbox[0] + line.bbox[2]) / 2 if line.vertical else (line.bbox[1] + line.bbox[3]) / 2


def _same_band(first: TextLine, second: TextLine) -> bool:
    if first.vertical != second.vertical:
        return False
    across = 0 if first.vertical else 1
    along = 1 - across
    a, b = first.bbox, second.bbox
    if span_overlap(a[along], a[along + 2], b[along], b[along + 2]) > 0.3:
        return False
    return span_overlap(a[across], a[across + 2], b[across], b[across + 2]) > 0.55


def _join_band(band: list[TextLine]) -> Row:
    vertical = band[0].vertical
    start = 1 if vertical else 0
    band = sorted(band, key=lambda line: line.bbox[start])
    text = band[0].text
    for before, line in pairwise(band):
        gap = line.bbox[start] - before.bbox[start + 2]
        size = line.size
        # Boxes reach beyond their letters, so only a clear gap between CJK pieces was a blank in print.
        spaced = gap > size * 0.5 or not (_is_cjk(text[-1]) or _is_cjk(line.text[0]))
        text = f"{text}{' ' if spaced else ''}{line.text}"
    longest = max(band, key=lambda line: len(line.text))
    return Row(union(line.bbox for line in band), text, longest.size, vertical)


def _is_cjk(char: str) -> bool:
    return ord(char) >= 0x2E80 and not 0xAC00 <= ord(char) <= 0xD7AF


def split_paragraphs(rows: Sequence[Row], aspect: float) -> list[Paragraph]:
    """Cut the rows of one column into paragraphs.

    :param aspect: page width over page height; unit lengths along x and y differ by it.
    """
    if not rows:
        return []
    frame = _Frame.measure(rows, aspect)
    groups: list[list[Row]] = [[rows[0]]]
    for before, row in pairwise(rows):
        if frame.starts_paragraph(before, row):
            groups.append([])
        groups[-1].append(row)
    return [Paragraph(tuple(group)) for group in groups]


@dataclass(frozen=True, slots=True)
class _Frame:
    """Margins and spacing of a column. `em` is a font size measured along the row, in unit coordinates."""

    base: float
    end: float
    em: float
    pitch: float

    @classmethod
    def measure(cls, rows: Sequence[Row], aspect: float) -> _Frame:
        vertical = rows[0].vertical
        size = statistics.median(row.size for row in rows)
        em = size * aspect if vertical else size / aspect
        starts = sorted(_start(row) for row in rows)
        # The margin is where most rows begin: first lines may stand in, hanging lines may stand out.
        counts = [sum(abs(start - other) < 0.6 * em for other in starts) for start in starts]
        base = starts[counts.index(max(counts))]
        steps = [_step(a, b) for a, b in pairwise(rows)]
        pitch = statistics.median(steps) if steps else size
        ends = sorted(_end(row) for row in rows)
        # One row that sticks out, from a bad box, must not make all others look short.
        return cls(base, ends[-2] if len(ends) > 4 else ends[-1], em, min(pitch, 2.2 * size))

    def starts_paragraph(self, before: Row, row: Row) -> bool:
        """Whether `row` opens a new paragraph after `before`."""
        if _step(before, row) > 1.45 * self.pitch or _differ_in_size(before, row):
            return True
        if _ENTRY.match(before.text) and _ENTRY.match(row.text):
            return True
        if _FIELD.match(before.text) and _FIELD.match(row.text):
            return True
        if self._had_room(before, row):
            return True
        if starts_item(row.text) and (self._is_short(before) or before.text.rstrip()[-1:] in _STOPS):
            return True
        indent, indent_before = _start(row) - self.base, _start(before) - self.base
        stopped = before.text.rstrip()[-1:] in _STOPS
        if indent > 0.9 * self.em and (indent_before < 0.5 * self.em or abs(indent - indent_before) < 0.5 * self.em):
            return stopped or self._is_short(before)
        if indent < -0.9 * self.em <= indent_before:
            return True
        return stopped and self.end - _end(before) > max(3 * self.em, 0.2 * (self.end - self.base))

    def _had_room(self, before: Row, row: Row) -> bool:
        """Whether the next row's first word would have fitted behind `before`: the break was meant."""
        room = self.end - _end(before) - 1.2 * self.em
        word = re.match(r"\s*([\u2e80-\uabff\uf900-\uffef]|[^\s\u2e80-\uabff]+)", row.text)
        if word is None or room <= 0:
            return False
        first = len(word.group(1))
        per_char = (_end(row) - _start(row)) / max(1, len(row.text))
        # A ragged margin, or words that were not told apart, needs a wider gap to be sure.
        return room > (first + 1) * per_char + (0.0 if _is_cjk(row.text[0]) else 0.12 * (self.end - self.base))

    def _is_short(self, row: Row) -> bool:
        return self.end - _end(row) > 2.0 * self.em


def _differ_in_size(first: Row, second: Row) -> bool:
    # The detector draws generous boxes around two or three characters.
    limit = 1.4 if min(len(first.text), len(second.text)) > 5 else 1.8
    return max(first.size, second.size) > limit * min(first.size, second.size)


def _start(row: Row) -> float:
    return row.bbox[1] if row.vertical else row.bbox[0]


def _end(row: Row) -> float:
    return row.bbox[3] if row.vertical else row.bbox[2]


def _step(before: Row, row: Row) -> float:
    """Distance between the middles of two rows, across the reading direction."""
    if row.vertical:
        return abs((before.bbox[0] + before.bbox[2]) - (row.bbox[0] + row.bbox[2])) / 2
    return abs((row.bbox[1] + row.bbox[3]) - (before.bbox[1] + before.bbox[3])) / 2
