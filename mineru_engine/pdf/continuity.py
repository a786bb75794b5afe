"""What only the whole document shows: running headers and footers, one title, heading levels.

Windows are analysed apart from each other, so a header that a window of few pages could not recognise is
recognised here from its twins on other pages, and a second document title becomes an ordinary heading.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

__all__ = ("as_plain_text", "join_pages", "plain_text")

RawBlock = dict[str, Any]

_MARGIN = 0.12  # share of the page height at top and bottom where running lines stand
_SAME_PLACE = 0.015
_MIN_PAGES = 3
_MANY = 0.25  # share of the pages on which an unknown line must stand to be a running one
_RETYPED = {"text", "paragraph_title", "doc_title", "ref_text", "caption", "page_footnote", "footnote"}
_RUNNING = {"header", "footer", "page_number"}
_NUMBERED = re.compile(r"^\s*(\d{1,2}(?:\.\d{1,2}){0,4})\.?\s+\S")
_APPENDIX = re.compile(r"^\s*([A-Z](?:\.\d{1,2}){1,4})\.?\s+\S")
_CHINESE_PART = re.compile(r"^\s*第[〇零一二三四五六七八九十百\d]+[章篇部编]")
_CHINESE_SECTION = re.compile(r"^\s*第[〇零一二三四五六七八九十百\d]+[节條条]")
_CHINESE_ARTICLE = re.compile(r"第[〇零一二三四五六七八九十百\d]+条[ \u3000]+[^。，；：:,;.]{1,20}$")
_CHINESE_COUNT = re.compile(r"^\s*[一二三四五六七八九十]+、")
_CHINESE_SUBCOUNT = re.compile(r"^\s*[（(][一二三四五六七八九十]+[)）]")
_MIN_ARTICLES = 2
_TOP_LEVEL = 2  # level 1 is the document's title


def join_pages(pages: Sequence[list[RawBlock]]) -> None:
    """Make the pages of one document consistent, in place. Pages are in order."""
    _retype_running_lines(pages)
    _keep_one_title(pages)
    _restore_article_headings(pages)
    _set_heading_levels(pages)


def plain_text(block: RawBlock) -> str:
    """The text of a raw block's inline content."""
    content = block.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = []
    for span in content:
        inner = span.get("content") if isinstance(span, dict) else None
        parts.append(inner if isinstance(inner, str) else plain_text({"content": inner}))
    return "".join(parts)


def as_plain_text(block: RawBlock) -> RawBlock:
    """The block reduced to a paragraph of its text: what is left when its structure cannot be trusted."""
    text = re.sub(r"<[^>]+>", " ", plain_text(block))
    reduced: RawBlock = {"type": "text", "content": [{"type": "text", "content": " ".join(text.split())}]}
    if block.get("bbox"):
        reduced["bbox"] = block["bbox"]
    return reduced


def _signature(block: RawBlock) -> str:
    """The text with its numbers made equal: 'Page 3 of 60' is the same line on every page."""
    return re.sub(r"[\divxlc]*\d[\divxlc]*|\b[ivxlc]+\b", "#", " ".join(plain_text(block).split()).casefold())


def _place(block: RawBlock) -> float | None:
    """Vertical centre if the block stands in the top or bottom margin and is no more than two lines."""
    bbox = block.get("bbox")
    if not bbox or bbox[3] - bbox[1] > _MARGIN / 2:
        return None
    centre = (bbox[1] + bbox[3]) / 2
    return float(centre) if centre < _MARGIN or centre > 1 - _MARGIN else None


def _outermost(blocks: list[RawBlock]) -> list[RawBlock]:
    """The blocks beyond which, towards the page's edge, stand only running lines."""
    boxed = sorted((block for block in blocks if block.get("bbox")), key=lambda block: float(block["bbox"][1]))
    found = []
    for ordered in (boxed, boxed[::-1]):
        edge = next((block for block in ordered if block.get("type") not in _RUNNING), None)
        if edge is not None:
            found.append(edge)
    return found


def _retype_running_lines(pages: Sequence[list[RawBlock]]) -> None:
    """A line becomes a running line if its twins are known as such, or if it stands outermost on many pages."""
    seen: dict[str, list[tuple[int, float, RawBlock]]] = defaultdict(list)
    for number, blocks in enumerate(pages):
        running = [block for block in blocks if block.get("type") in _RUNNING]
        for block in running + [block for block in _outermost(blocks) if block.get("type") in _RETYPED]:
            if (place := _place(block)) is not None and (text := _signature(block)):
                seen[text].append((number, place, block))
    enough = max(_MIN_PAGES, round(_MANY * len(pages)))
    for text, found in seen.items():
        for _, place, block in [item for item in found if item[2]["type"] not in _RUNNING]:
            twins = [item for item in found if abs(item[1] - place) < _SAME_PLACE]
            known = [item[2]["type"] for item in twins if item[2]["type"] in _RUNNING]
            if known or len({item[0] for item in twins}) >= enough:
                block["type"] = _running_type(text, place, known)
                block.pop("level", None)


def _running_type(text: str, place: float, known: list[str]) -> str:
    if known:
        return max(sorted(set(known)), key=known.count)
    if re.fullmatch(r"[\W_]*#[\W_]*", text):
        return "page_number"
    return "header" if place < 0.5 else "footer"


def _keep_one_title(pages: Sequence[list[RawBlock]]) -> None:
    """Titles on the first page that has one stay; later ones come from windows that saw no better."""
    titled = False
    for blocks in pages:
        titles = [block for block in blocks if block.get("type") == "doc_title"]
        if titled:
            for block in titles:
                block["type"] = "paragraph_title"
        titled = titled or bool(titles)


def _restore_article_headings(pages: Sequence[list[RawBlock]]) -> None:
    """In a contract whose articles have headings ('第十二条 争议解决'), all of them have one.

    A heading that was taken for a paragraph, or for the last line of the one before it, becomes a heading.
    """
    known = sum(
        bool(_CHINESE_ARTICLE.fullmatch(plain_text(block).strip()))
        for blocks in pages
        for block in blocks
        if block.get("type") == "paragraph_title"
    )
    if known < _MIN_ARTICLES:
        return
    for blocks in pages:
        for block in [block for block in blocks if block.get("type") == "text"]:
            if _CHINESE_ARTICLE.fullmatch(plain_text(block).strip()):
                block["type"] = "paragraph_title"
            elif (heading := _split_last_line(block)) is not None:
                blocks.insert(next(i for i, other in enumerate(blocks) if other is block) + 1, heading)


def _split_last_line(block: RawBlock) -> RawBlock | None:
    """Cut an article's heading off the end of a paragraph, if it stands on a line of its own."""
    lines, spans = block.get("lines") or [], block.get("content")
    if len(lines) < 2 or not isinstance(spans, list) or not isinstance(spans[-1].get("content"), str):
        return None
    text = spans[-1]["content"]
    found = _CHINESE_ARTICLE.search(text)
    if found is None or not text[: found.start()].rstrip().endswith(("。", "；", "！", "？")):
        return None
    spans[-1]["content"] = text[: found.start()].rstrip()
    *kept, last = (line["bbox"] for line in lines)
    block["lines"] = lines[:-1]
    block["bbox"] = [*(min(box[i] for box in kept) for i in (0, 1)), *(max(box[i] for box in kept) for i in (2, 3))]
    heading = {"type": "text", "content": found[0]}
    return {"type": "paragraph_title", "bbox": list(last), "lines": lines[-1:], "content": [heading]}


def _set_heading_levels(pages: Sequence[list[RawBlock]]) -> None:
    """Levels from numbering ('2.1', '第三章'); headings without a number follow their looks.

    The line height of an unnumbered heading is compared with those of numbered ones of the same document.
    """
    headings = [block for blocks in pages for block in blocks if block.get("type") == "paragraph_title"]
    heights: dict[int, list[float]] = defaultdict(list)
    open_ones = []
    for block in headings:
        level = _numbered_level(plain_text(block))
        if level is None:
            open_ones.append(block)
        else:
            block["level"] = level
            if (height := _line_height(block)) is not None:
                heights[level].append(height)
    typical = {level: sorted(values)[len(values) // 2] for level, values in heights.items()}
    for block in open_ones:
        if "level" not in block and (height := _line_height(block)) is not None and typical:
            block["level"] = min(typical, key=lambda level: (abs(typical[level] - height), level))


def _numbered_level(text: str) -> int | None:
    for pattern in (_NUMBERED, _APPENDIX):
        if found := pattern.match(text):
            return min(6, _TOP_LEVEL + found[1].count("."))
    if _CHINESE_PART.match(text) or _CHINESE_ARTICLE.match(text.strip()):
        return _TOP_LEVEL
    if _CHINESE_SECTION.match(text) or _CHINESE_COUNT.match(text):
        return _TOP_LEVEL
    if _CHINESE_SUBCOUNT.match(text):
        return _TOP_LEVEL + 1
    return None


def _line_height(block: RawBlock) -> float | None:
    boxes = [line.get("bbox") for line in block.get("lines") or () if isinstance(line, dict)]
    heights = sorted(box[3] - box[1] for box in boxes if box)
    return heights[len(heights) // 2] if heights else None
