"""From layout regions and text lines to the raw blocks that docvortex post-processes.

A raw block is a dictionary with `type`, `bbox` (unit coordinates), `angle`, `content` and, for text, `lines`;
shape and names follow what `docvortex.analyzers.native.PdfModel` returns for a page with a text layer.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mineru_engine.pdf.furniture import is_footer, is_footnote, is_header, is_page_number, is_reference
from mineru_engine.pdf.layout import LayoutLabel, Region
from mineru_engine.pdf.lines import Box, TextLine, covered, pixel_box, span_overlap, union
from mineru_engine.pdf.order import reading_order
from mineru_engine.pdf.paragraphs import Paragraph, is_list_item, join_rows, split_paragraphs
from mineru_engine.pdf.regions import Group, clean_regions, free_groups, group_lines, join_contents
from mineru_engine.pdf.table_grid import is_filled_grid, table_html
from mineru_engine.pdf.table_rules import find_grid

if TYPE_CHECKING:
    from collections.abc import Sequence

Image = np.ndarray[Any, np.dtype[np.uint8]]
RawBlock = dict[str, Any]

_JPEG_QUALITY: Final = 90
_HEADING_SIZE: Final = 1.25
_TITLE_SIZE: Final = 1.25
_MAX_HEADING: Final = 120
_CAPTION: Final = re.compile(
    r"\s*(?:(?:图|圖|表|图表|続表|续表)\s*[\dA-Z一二三四五六七八九十]|(?:Fig(?:ure)?|Table|Tab|Chart)\.?\s*[\dA-Z])"
)
_SECTION: Final = re.compile(r"\s*(\d{1,2}(?:\.\d{1,2})*)\.?[\s　、]*\D")
_ARTICLE: Final = re.compile(r"\s*第[一二三四五六七八九十百零〇\d]{1,5}[条條章节節篇部编編]")
_STOP: Final = tuple("。.；;，,")
_FURNITURE_FIRST: Final = frozenset({"header"})
_FURNITURE_LAST: Final = frozenset({"page_footnote", "footer"})


@dataclass(slots=True)
class _Item:
    """A block in the making; `paragraph` is None for tables, figures and formulas."""

    type: str
    bbox: Box
    paragraph: Paragraph | None = None
    content: str = ""
    level: int | None = None


def assemble_page(
    image: Image,
    regions: Sequence[Region],
    lines: Sequence[TextLine],
    *,
    first_page: bool = True,
    vertical: bool = False,
) -> list[RawBlock]:
    """Build the raw blocks of an upright page in reading order.

    :param image: RGB page, the source of crops and ruled lines.
    :param first_page: whether the page may carry the title of the document.
    :param vertical: text runs from top to bottom in columns from right to left.
    """
    # The layout model knows no vertical text: it sees figures and tables, at best.
    regions = [] if vertical else _add_ruled_tables(image, clean_regions(regions, lines), lines)
    groups = group_lines(regions, join_contents(lines, regions))
    body = _body_size(groups)
    aspect = image.shape[1] / image.shape[0]
    ordered = [groups[i] for i in reading_order([group.bbox for group in groups], vertical=vertical)]
    items = [item for group in ordered for item in _items(image, group, body, aspect)]
    if not vertical:
        _mark_furniture(items)
    _mark_titles(items, body, first_page=first_page)
    _mark_captions(items)
    first = [item for item in items if item.type in _FURNITURE_FIRST or _is_top_number(item)]
    last = [item for item in items if item.type in _FURNITURE_LAST or (_is_number(item) and item not in first)]
    middle = [item for item in items if item not in first and item not in last]
    return _with_lists([_raw(image, item) for item in (*first, *middle, *last)])


def _is_number(item: _Item) -> bool:
    return item.type == "page_number"


def _is_top_number(item: _Item) -> bool:
    return _is_number(item) and item.bbox[1] < 0.5


def _add_ruled_tables(image: Image, regions: list[Region], lines: Sequence[TextLine]) -> list[Region]:
    """Find fully ruled tables that the model missed. Only where text is free: that keeps good pages fast."""
    free = [line for line in lines if not any(covered(line.bbox, region.bbox) > 0.5 for region in regions)]
    if len(free) < 4:
        return regions
    grid = find_grid(image, union(line.bbox for line in free), free)
    if grid is None or len(grid.cells) < 6 or any(covered(grid.box, region.bbox) > 0.3 for region in regions):
        return regions
    inside = [line for line in free if covered(line.bbox, grid.box) > 0.8]
    if len(inside) < 4 or not is_filled_grid(grid, inside):
        return regions
    outside = [region for region in regions if covered(region.bbox, grid.box) < 0.8]
    return [*outside, Region(grid.box, LayoutLabel.TABLE, 1.0)]


def _body_size(groups: Sequence[Group]) -> float:
    """Height of ordinary lines in unit coordinates, weighted by characters."""
    sizes = sorted((line.size, len(line.text)) for group in groups if group.is_text for line in group.lines)
    half, total = sum(count for _, count in sizes) / 2, 0
    for size, count in sizes:
        total += count
        if total >= half:
            return size
    return 0.0


def _items(image: Image, group: Group, body: float, aspect: float) -> list[_Item]:
    """The blocks of one group, in reading order."""
    label = group.label
    if label is LayoutLabel.TABLE and group.lines:
        markup = table_html(image, group.bbox, group.lines)
        if markup:
            return [_Item("table", union([group.bbox, *(line.bbox for line in group.lines)]), content=markup)]
        parts = free_groups(group.lines)
        order = reading_order([part.bbox for part in parts])
        return [item for i in order for item in _items(image, parts[i], body, aspect)]
    rows = join_rows(group.lines)
    if label is LayoutLabel.FIGURE or (not rows and label is LayoutLabel.TABLE):
        return [_Item("image", group.bbox, content="\n".join(row.text for row in rows))]
    if label is LayoutLabel.EQUATION and not _is_prose([row.text for row in rows]):
        return [_Item("equation", group.bbox)]
    if label is LayoutLabel.TITLE and len(rows) <= 4 and sum(len(row.text) for row in rows) <= 2 * _MAX_HEADING:
        paragraph = Paragraph(tuple(rows))
        return [_Item("paragraph_title", paragraph.bbox, paragraph)]
    kind = "caption" if label in {LayoutLabel.FIGURE_CAPTION, LayoutLabel.TABLE_CAPTION} else "text"
    items = [_text_item(paragraph, kind, body, label) for paragraph in split_paragraphs(rows, aspect)]
    for before, item in pairwise(items):
        # What follows a note in the same small print goes on with it: quotations, verses.
        if before.type == "page_footnote" and item.type == "text":
            item.type = "page_footnote"
    return items


def _is_prose(texts: Sequence[str]) -> bool:
    """Whether what was read in a formula region is a sentence after all."""
    text = " ".join(texts)
    words = re.findall(r"[A-Za-z]{3,}", text)
    return len(words) >= 5 or len(re.findall(r"[\u4e00-\u9fff\u3040-\u30ff]", text)) >= 6


def _text_item(paragraph: Paragraph, kind: str, body: float, label: LayoutLabel | None) -> _Item:
    item = _Item(kind, paragraph.bbox, paragraph)
    if kind == "caption":
        return item
    # The model calls much of what stands at the foot of a page a reference: the words decide.
    if any(row.vertical for row in paragraph.rows):
        if paragraph.bbox[2] < 0.1 or paragraph.bbox[0] > 0.9:
            item.type = "aside_text"
    elif is_reference(paragraph) and label is LayoutLabel.REFERENCE:
        item.type = "ref_text"
    elif is_footnote(paragraph, body, told=label is LayoutLabel.REFERENCE):
        item.type = "page_footnote"
    elif _looks_like_heading(paragraph, body):
        item.type = "paragraph_title"
    elif label is LayoutLabel.HEADER and paragraph.bbox[3] < 0.15:
        item.type = "header"
    elif label is LayoutLabel.FOOTER and paragraph.bbox[1] > 0.85:
        item.type = "footer"
    return item


def _looks_like_heading(paragraph: Paragraph, body: float) -> bool:
    if (
        body <= 0
        or len(paragraph.rows) > (2 if paragraph.size > 1.5 * body else 1)
        or len(paragraph.text) > _MAX_HEADING
    ):
        return False
    text = paragraph.text.rstrip()
    if len(paragraph.rows) == 1 and _ARTICLE.match(text) and len(text) <= 30 and not text.endswith(_STOP):
        return True
    return paragraph.size > _HEADING_SIZE * body and not text.endswith(_STOP) and bool(re.search(r"[^\W\d]{2}", text))


_BODY_ROWS = 5


def _mark_furniture(items: list[_Item]) -> None:
    """Find page numbers, running heads and footers, also where the layout model saw ordinary text."""
    texts = [item for item in items if item.paragraph is not None]
    for item in texts:
        if item.paragraph is not None and is_page_number(item.paragraph):
            item.type = "page_number"
    marks = [item for item in texts if item.type in {"page_number", "header", "footer"}]
    if sum(len(item.paragraph.rows) for item in texts if item.paragraph and not _is_number(item)) < _BODY_ROWS:
        # On a page of a few lines none of them is merely a running one, whatever the layout model says.
        for item in marks:
            item.type = item.type if _is_number(item) else "text"
        return
    for item in texts:
        if item.paragraph is None or item.type not in {"text", "paragraph_title", "page_footnote"}:
            continue
        beside = any(_is_beside(item.bbox, mark.bbox, 0.8 * item.paragraph.size) for mark in marks)
        others = [other.bbox for other in items if other is not item and other.type not in {"page_number", "header"}]
        below = min((box[1] for box in others if box[1] >= item.bbox[3] - 0.005), default=1.0)
        above = max((box[3] for box in others if box[3] <= item.bbox[1] + 0.005), default=0.0)
        if is_header(item.paragraph, below, has_number=beside) and below < 1.0:
            item.type = "header"
        elif is_footer(item.paragraph, above, has_number=beside) and above > 0.0:
            item.type = "footer"


def _is_beside(box: Box, mark: Box, reach: float) -> bool:
    """Whether a box stands beside a running head or page number, or closely under it."""
    if span_overlap(box[1], box[3], mark[1], mark[3]) > 0.3:
        return True
    return 0 <= box[1] - mark[3] < reach and span_overlap(box[0], box[2], mark[0], mark[2]) > 0.5


def _mark_titles(items: list[_Item], body: float, *, first_page: bool) -> None:
    """Give headings their level and pick the title of the document."""
    headings = [item for item in items if item.type == "paragraph_title" and item.paragraph is not None]
    for item in headings:
        text = item.paragraph.text if item.paragraph else ""
        number = _SECTION.match(text)
        deep = number.group(1).count(".") if number else 0
        item.level = min(6, 2 + deep + (1 if re.match(r"\s*第[一二三四五六七八九十\d]+节", text) else 0))
    if not first_page or not headings:
        return
    sizes = {id(item): item.paragraph.size if item.paragraph else 0.0 for item in headings}
    limit = max(_TITLE_SIZE * body, 0.7 * max(sizes.values()))
    large = [item for item in headings if sizes[id(item)] > limit and item.bbox[1] < 0.4]
    if large:
        # Authors or a journal's name may be set as large: the title comes first.
        title = min(large, key=lambda item: item.bbox[1])
        title.type, title.level = "doc_title", None


def _mark_captions(items: list[_Item]) -> None:
    """Text that says that it is a caption, next to a figure or table, is one."""
    visuals = [item for item in items if item.type in {"image", "table"}]
    for item in items:
        if item.type not in {"text", "paragraph_title"} or item.paragraph is None:
            continue
        if not _CAPTION.match(item.paragraph.text) or len(item.paragraph.rows) > 4:
            continue
        reach = 2.5 * item.paragraph.size
        if any(_is_next_to(item.bbox, visual.bbox, reach) for visual in visuals):
            item.type, item.level = "caption", None


def _is_next_to(box: Box, visual: Box, reach: float) -> bool:
    gap = max(visual[1] - box[3], box[1] - visual[3])
    return -0.01 < gap < reach and span_overlap(box[0], box[2], visual[0], visual[2]) > 0.5


def _raw(image: Image, item: _Item) -> RawBlock:
    block: RawBlock = {"type": item.type, "bbox": [round(value, 4) for value in item.bbox], "angle": 0}
    if item.paragraph is None:
        block["content"] = item.content
        block["image_base64"] = _crop_data_uri(image, item.bbox)
        return block
    block["content"] = [{"type": "text", "content": item.paragraph.text}]
    block["lines"] = [{"bbox": [round(value, 4) for value in row.bbox]} for row in item.paragraph.rows]
    if item.level is not None:
        block["level"] = item.level
    return block


def _crop_data_uri(image: Image, box: Box) -> str:
    """A part of the page as a JPEG data URI."""
    import cv2

    height, width = image.shape[:2]
    left, top, right, bottom = pixel_box(box, width, height)
    bgr = cv2.cvtColor(np.ascontiguousarray(image[top:bottom, left:right]), cv2.COLOR_RGB2BGR)
    _, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    return f"data:image/jpeg;base64,{base64.b64encode(data.tobytes()).decode()}"


def _with_lists(blocks: list[RawBlock]) -> list[RawBlock]:
    """Put a list block, which docvortex fills by its box, before each run of list items or references."""
    runs: list[list[RawBlock]] = []
    for block in blocks:
        if runs and _continues_list(runs[-1], block):
            runs[-1].append(block)
        else:
            runs.append([block])
    result: list[RawBlock] = []
    for run in runs:
        if len(run) > 1:
            box = union(tuple(block["bbox"]) for block in run)
            result.append({"type": "list", "bbox": list(box), "angle": 0, "content": []})
        result.extend(run)
    return result


def _continues_list(run: Sequence[RawBlock], block: RawBlock) -> bool:
    before = run[-1]
    if block["type"] != before["type"] or block["type"] not in {"text", "ref_text"}:
        return False
    if block["type"] == "text" and not (_is_item(before) and _is_item(block)):
        return False
    a, b = before["bbox"], block["bbox"]
    return bool(b[1] > a[1] and span_overlap(a[0], a[2], b[0], b[2]) > 0.5)


def _is_item(block: RawBlock) -> bool:
    return is_list_item(block["content"][0]["content"])
