"""From the blocks of the MinerU protocol to docvortex's raw blocks."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

from docvortex.content import normalize_pdf_model_text
from docvortex.content.spans import append_equation_span, append_text_span, strip_span_dicts

__all__ = ("TEXT_TYPES", "VISUAL_TYPES", "raw_page")

RawBlock = dict[str, Any]

_TYPES: Final = {
    "table_caption": "caption",
    "image_caption": "caption",
    "code_caption": "caption",
    "table_footnote": "footnote",
    "image_footnote": "footnote",
    "phonetic": "text",
    "list_item": "text",
    "unknown": "image",
}
TEXT_TYPES: Final = frozenset(
    {
        *("text", "title", "doc_title", "paragraph_title", "ref_text", "aside_text", "phonetic", "list_item"),
        *("header", "footer", "page_number", "page_footnote", "caption", "footnote"),
        *("table_caption", "image_caption", "code_caption", "table_footnote", "image_footnote"),
    }
)
"""Types whose text a text layer can give."""
VISUAL_TYPES: Final = frozenset({"image", "chart", "table", "equation", "unknown"})
"""Types that keep a picture of themselves."""
_WITH_LINES: Final = frozenset({"text", "ref_text", "doc_title", "paragraph_title", "caption", "footnote"})
_SPANS: Final = _WITH_LINES | {"aside_text", "header", "footer", "page_number", "page_footnote"}
_INLINE_FORMULA: Final = re.compile(r"\\\((.*?)\\\)", re.DOTALL)
_GLYPH_WIDTH: Final = 0.5
"""Mean width of a character as a share of its height."""


def raw_page(blocks: Sequence[RawBlock], size: tuple[float, float], *, first_page: bool) -> list[RawBlock]:
    """Raw blocks of one page, in the same order.

    A block may bring ``lines`` (unit boxes of its printed lines) and its picture; what the protocol has but docvortex
    does not is left out, and so is text without a visible character.

    :param size: of the page in points.
    :param first_page: the largest title may be the document's.
    """
    page = [raw for block in blocks if (raw := _raw(block, size)) is not None]
    _mark_title(page, size, first_page=first_page)
    normalize_pdf_model_text([page])
    return page


def _raw(block: RawBlock, size: tuple[float, float]) -> RawBlock | None:
    kind = _TYPES.get(block["type"], block["type"])
    if kind == "title":
        kind = "paragraph_title"
    content = block.get("content") or ""
    raw: RawBlock = {"type": kind, "bbox": [round(value, 4) for value in block["bbox"]], "angle": block["angle"] or 0}
    if kind in _SPANS:
        if not content.strip():
            return None
        raw["content"] = _spans(content)
    elif kind == "index":
        raw["content"] = _spans(content)
    elif kind in ("list", "image_block", "equation_block"):
        raw["content"] = []
    elif kind in ("code", "algorithm"):
        spans = _spans(content)
        has_formula = any(span["type"] == "equation_inline" for span in spans)
        raw["type"], raw["content"] = ("algorithm", spans) if has_formula or kind == "algorithm" else ("code", content)
    else:
        raw["content"] = _formula(content) if kind == "equation" else content
    if kind in _WITH_LINES:
        raw["lines"] = block.get("lines") or _guessed_lines(kind, block["bbox"], content, size)
    for name in ("sub_type", "cell_merge", "image_base64", "image_path", "score"):
        if block.get(name) is not None:
            raw[name] = block[name]
    return raw


def _spans(text: str) -> list[dict[str, Any]]:
    """Text with formulas in ``\\(…\\)`` as spans."""
    spans: list[dict[str, Any]] = []
    end = 0
    for match in _INLINE_FORMULA.finditer(text):
        append_text_span(spans, text[end : match.start()])
        append_equation_span(spans, match.group(1))
        end = match.end()
    append_text_span(spans, text[end:])
    stripped: list[dict[str, Any]] = strip_span_dicts(spans)
    return stripped


def _formula(text: str) -> str:
    return text.strip().removeprefix("\\[").removesuffix("\\]").strip()


def _guessed_lines(kind: str, bbox: Sequence[float], text: str, size: tuple[float, float]) -> list[dict[str, Any]]:
    """The printed lines of a block that only its box is known of: of a heading as many as its text must need."""
    left, top, right, bottom = bbox
    count = 1
    if kind in ("doc_title", "paragraph_title"):
        width, height = (right - left) * size[0], (bottom - top) * size[1]
        count = max(1, round(math.sqrt(len(text) * _GLYPH_WIDTH * height / max(1.0, width))))
    step = (bottom - top) / count
    return [{"bbox": [left, top + step * row, right, top + step * (row + 1)]} for row in range(count)]


def _mark_title(page: Sequence[RawBlock], size: tuple[float, float], *, first_page: bool) -> None:
    """Unless the model told the titles apart, the largest one on top is the document's."""
    headings = [block for block in page if block["type"] == "paragraph_title"]
    if not first_page or not headings or any(block["type"] == "doc_title" for block in page):
        return
    heights = [_line_height(block) for block in headings]
    largest = max(heights)
    title = next(block for block, height in zip(headings, heights, strict=True) if height >= 0.9 * largest)
    if title is headings[0] or largest > 1.2 * heights[0]:
        title["type"] = "doc_title"


def _line_height(block: RawBlock) -> float:
    heights = sorted(line["bbox"][3] - line["bbox"][1] for line in block["lines"])
    return float(heights[len(heights) // 2])
