"""What native analysis loses on a page, put back from the page's own text layer.

Three kinds of loss are common enough to look for on every page, and cheap to see: a table whose number column
was glued into one cell, a table that fell apart into one block a number, and text that stands nowhere in the
result (oblique labels of a drawing, say).
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from docvortex.content.text import merge_text_line_contents

from mineru_engine.pdf.lines import Box, TextLine, union

if TYPE_CHECKING:
    from mineru_engine.pdf.pages import Pixels
    from mineru_engine.pdf.source import PdfSource

__all__ = ("mend_page", "text_blocks")

RawBlock = dict[str, Any]

_LOST_SHARE = 0.1
_LOST_WORDS = 6
_GLUED_CELL = 40  # characters of figures in one cell
_FIGURE_MARKS = set(".,-–−()%*$€£¥+")
_LEADER = re.compile(r"\s*(?:\.\s?){4,}\s*(?=\S)")
_SOUP = 12  # loose blocks of figures on one page
_TABLE_CAPTION = re.compile(r"\s*(?:Table|TABLE|Tab\.|表)\s*(?:\d|[A-Z]\b|[IVX]+\b|[一二三四五六七八九十])")
_CELL_CHARS = 40
_MIN_PIECES = 6
_MIN_ROWS = 3
_LOOSE = {"text", "code", "paragraph_title", "list", "equation"}
_PICTURES = {"image", "image_block", "chart"}
_VISUAL = _PICTURES | {"table"}
_MARGINAL = {"header", "footer", "page_number", "aside_text"}
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
)  # CJK by character
_TAG = re.compile(r"<[^>]+>")
_CELL = re.compile(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", re.DOTALL)
_TABLE_LONG_SIDE = 1800


def mend_page(source: PdfSource, index: int, text: str, blocks: list[RawBlock]) -> None:
    """Repair the raw blocks of one page in place.

    :param text: the page's text as PDFium reads it.
    """
    tables = [block for block in blocks if block.get("type") == "table" and _has_glued_column(block)]
    soup = _find_figure_soup(blocks)
    scattered = [] if soup else _find_scattered_tables(blocks)
    lost = _lost_words(text, blocks)
    if not (tables or soup or scattered or lost):
        return
    from mineru_engine.pdf.native import layer_lines

    lines = layer_lines(source, index, visible_only=True)
    if tables:
        _rebuild_tables(source, index, tables, lines)
    if soup:
        _collect_soup(source, index, blocks, soup, lines)
    for caption, pieces in scattered:
        if _replace_by_table(source, index, blocks, pieces, lines):
            caption["type"] = "caption"
    if lost:
        _put_back(blocks, lines)


def _strings(value: Any) -> str:
    """All text inside raw blocks, markup removed."""
    if isinstance(value, str):
        return _TAG.sub(" ", value)
    if isinstance(value, dict):
        return " ".join(_strings(item) for key, item in value.items() if key not in {"type", "image_base64"})
    return " ".join(_strings(item) for item in value) if isinstance(value, list) else ""


def _words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.casefold()))


def _lost_words(text: str, blocks: list[RawBlock]) -> bool:
    wanted = _words(text)
    missing = wanted - _words(_strings(blocks))
    return missing.total() >= _LOST_WORDS and missing.total() > _LOST_SHARE * wanted.total()


def _has_glued_column(block: RawBlock) -> bool:
    content = block.get("content")
    if not isinstance(content, str):
        return False
    return any(_is_glued(_TAG.sub("", cell)) for cell in _CELL.findall(content))


def _is_glued(cell: str) -> bool:
    return len("".join(cell.split())) >= _GLUED_CELL and _is_figures(cell)


def _rebuild_tables(source: PdfSource, index: int, tables: Sequence[RawBlock], lines: Sequence[TextLine]) -> None:
    """Place every line of the text layer in a grid made from the drawn rules or the gaps between lines."""
    pixels = source.render(index, _TABLE_LONG_SIDE)
    for block in tables:
        html = _table_of(pixels, tuple(block["bbox"]), lines)
        if html.count("<tr") > str(block["content"]).count("<tr"):
            block["content"] = html


def _table_of(pixels: Pixels, box: Box, lines: Sequence[TextLine]) -> str:
    """The table that the lines inside ``box`` make up; empty if none can be made out."""
    from mineru_engine.pdf.table_grid import table_html

    return table_html(pixels, box, [part for line in lines if _inside(line.bbox, box) for part in _split_figures(line)])


def _split_figures(line: TextLine) -> list[TextLine]:
    """Cells of a line: leader dots part a label from its figures; figures are cells however narrow the gaps."""
    if len(line.centers) != len(line.text):
        return [line]
    if leader := _LEADER.search(line.text):
        label = [_cut(line, 0, leader.start())] if leader.start() else []
        return [*label, *_split_figures(_cut(line, leader.end(), len(line.text)))]
    if any(char.isalpha() for char in line.text):
        return [line]
    return [_cut(line, *found.span()) for found in re.finditer(r"\S+", line.text)]


def _cut(line: TextLine, start: int, stop: int) -> TextLine:
    half = (line.bbox[2] - line.bbox[0]) / len(line.text) / 2
    centers = line.centers[start:stop]
    box = (min(centers) - half, line.bbox[1], max(centers) + half, line.bbox[3])
    return TextLine(box, line.text[start:stop], line.score, centers=centers)


def _find_figure_soup(blocks: Sequence[RawBlock]) -> list[RawBlock]:
    """Blocks of a table that fell apart: many blocks on one page that hold figures only."""
    soup = [block for block in blocks if block.get("type") in _LOOSE and _is_figures(_strings(block.get("content")))]
    if len(soup) < _SOUP:
        return []
    first_column = min(block["bbox"][2] for block in soup)
    further = sum(block["bbox"][0] > first_column for block in soup)
    return soup if further >= _SOUP // 2 else []  # one column of figures is line numbers, not a table


def _is_figures(text: str) -> bool:
    solid = [char for char in text if not char.isspace()]
    digits = sum(char.isdigit() for char in solid)
    marks = sum(char in _FIGURE_MARKS for char in solid)
    return digits > 0.3 * len(solid) and digits + marks > 0.8 * len(solid)


def _collect_soup(
    source: PdfSource, index: int, blocks: list[RawBlock], soup: Sequence[RawBlock], lines: Sequence[TextLine]
) -> None:
    """Replace the pieces of a table that fell apart, and the labels beside them, by one table."""
    spread = union([tuple(block["bbox"]) for block in soup])
    margin = [tuple(block["bbox"]) for block in blocks if block.get("type") in _MARGINAL and block.get("bbox")]
    body = [line for line in lines if not any(_inside(line.bbox, box) for box in margin)]
    box = union([spread, *(line.bbox for line in body if spread[1] <= _middle(line) <= spread[3])])
    pieces = [block for block in blocks if block.get("bbox") and _inside(tuple(block["bbox"]), box)]
    if any(block.get("type") in _PICTURES for block in pieces):
        return  # the axis labels of a chart
    _replace_by_table(source, index, blocks, pieces, body)


def _find_scattered_tables(blocks: Sequence[RawBlock]) -> list[tuple[RawBlock, list[RawBlock]]]:
    """Tables without rules that became loose blocks: a caption 'Table 4', then short blocks in rows and columns."""
    found = []
    for place, caption in enumerate(blocks):
        if not _is_table_caption(caption):
            continue
        pieces = list(takewhile(functools.partial(_may_be_cell, caption), blocks[place + 1 :]))
        rows = {round(block["bbox"][1], 2) for block in pieces}
        if len(pieces) >= _MIN_PIECES and len(rows) >= _MIN_ROWS and _columns(pieces) >= 2:
            found.append((caption, pieces))
    return found


def _is_table_caption(block: RawBlock) -> bool:
    text = _strings(block.get("content"))
    return block.get("type") in _LOOSE | {"caption"} and _TABLE_CAPTION.match(text) is not None


def _may_be_cell(caption: RawBlock, block: RawBlock) -> bool:
    box = block.get("bbox")
    if block.get("type") not in _LOOSE or box is None or len(block.get("lines") or ()) > 2:
        return False
    return bool(box[1] >= caption["bbox"][3] - 0.005 and len(_strings(block.get("content"))) <= _CELL_CHARS)


def _columns(pieces: Sequence[RawBlock]) -> int:
    """How many pieces stand side by side at most, counting each gap once."""
    edges = sorted((block["bbox"][0], block["bbox"][2]) for block in pieces)
    count, right = 0, -1.0
    for start, end in edges:
        count += start > right
        right = max(right, end)
    return count


def _replace_by_table(
    source: PdfSource, index: int, blocks: list[RawBlock], pieces: Sequence[RawBlock], lines: Sequence[TextLine]
) -> bool:
    """Put one table where the pieces were, made of the lines that lie among them; whether that worked."""
    box = union(tuple(block["bbox"]) for block in pieces)
    html = _table_of(source.render(index, _TABLE_LONG_SIDE), box, lines)
    if html.count("<tr") < _MIN_ROWS:
        return False
    place = next(i for i, block in enumerate(blocks) if any(block is piece for piece in pieces))
    blocks[:] = [block for block in blocks if all(block is not piece for piece in pieces)]
    blocks.insert(place, {"type": "table", "bbox": list(box), "content": html})
    return True


def _middle(line: TextLine) -> float:
    return (line.bbox[1] + line.bbox[3]) / 2


def _inside(inner: Box, outer: Box) -> bool:
    x, y = (inner[0] + inner[2]) / 2, (inner[1] + inner[3]) / 2
    return outer[0] <= x <= outer[2] and outer[1] <= y <= outer[3]


def _put_back(blocks: list[RawBlock], lines: Sequence[TextLine]) -> None:
    """Add lines that stand nowhere in the blocks as text, where they belong on the page."""
    visual = [tuple(block["bbox"]) for block in blocks if block.get("type") in _VISUAL and block.get("bbox")]
    known = _words(_strings(blocks))
    run = "".join(_WORD.findall(_strings(blocks).casefold()))
    lost: list[TextLine] = []
    for line in lines:
        words = _WORD.findall(line.text.casefold())
        missing = Counter(words) - known
        known -= Counter(words)
        if missing.total() * 2 > len(words) and "".join(words) not in run:
            lost += [] if any(_inside(line.bbox, box) for box in visual) else [line]
    for block in text_blocks(lost):
        below = (place for place, other in enumerate(blocks) if _is_below(other, block["bbox"]))
        blocks.insert(next(below, len(blocks)), block)


def text_blocks(lines: Sequence[TextLine]) -> list[RawBlock]:
    """Paragraphs of lines that follow each other closely, in the order given; time grows with their number only."""
    return [
        {
            "type": "text",
            "bbox": list(union(line.bbox for line in group)),
            "content": [{"type": "text", "content": merge_text_line_contents([line.text for line in group])}],
            "lines": [{"bbox": list(line.bbox)} for line in group],
        }
        for group in _stack(lines)
    ]


def _is_below(block: RawBlock, box: Sequence[float]) -> bool:
    bbox = block.get("bbox")
    return bbox is not None and bool(bbox[1] >= box[3] and bbox[0] < box[2] and bbox[2] > box[0])


def _stack(lines: Sequence[TextLine]) -> list[list[TextLine]]:
    """Lines that follow each other closely, one below the other."""
    groups: list[list[TextLine]] = []
    for line in lines:
        above = groups[-1][-1] if groups else None
        gap = line.bbox[1] - above.bbox[3] if above else 1.0
        if above and -line.height < gap < line.height and abs(above.bbox[0] - line.bbox[0]) < 2 * line.height:
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups
