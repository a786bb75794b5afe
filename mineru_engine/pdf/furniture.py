"""What belongs to the page and not to the text: page numbers, running heads, footers, footnotes, references."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mineru_engine.pdf.paragraphs import Paragraph

_PAGE_NUMBER: Final = re.compile(
    r"(?:[-–—·•.~\[(（]\s*)?(?:\d{1,4}|[ivxlc]{1,7})(?:\s*[-–—·•.~\])）])?"
    r"|\d{1,4}\s*/\s*\d{1,4}"
    r"|第\s*\d{1,4}\s*[页頁]\s*[，,/／]?\s*(?:[（(]?\s*共\s*\d{1,4}\s*[页頁]\s*[）)]?)?"
    r"|(?:page|p\.|seite|página)\s*\d{1,4}(?:\s*(?:of|/|von|de)\s*\d{1,4})?",
    re.IGNORECASE,
)
_HEAD_ZONE: Final = 0.1
_FOOT_ZONE: Final = 0.9
_NOTE_ZONE: Final = 0.6
_NOTE: Final = re.compile(r"\s*(?:[①-⑳*†‡§∗¶]|[\[［〔(（]?\d{1,2}[\]］〕)）]?\s*(?=\D))")
_RAISED: Final = re.compile(r"\s*(?:[①-⑳*†‡§∗¶]|\d{1,2}\s?[A-Z“\"‘《])")
_BIBLIOGRAPHY: Final = re.compile(
    r"\b(?:et al|vol\.|pp?\.\s*\d|proc\.|in proceedings|journal|arxiv|doi|eds?\.|trans\.|conference|press)"
    r"|\[[JMCDNPSR](?:/OL)?\]|出版社|学报|\(?(?:18|19|20)\d\d[a-z]?\)?[.,:，]",
    re.IGNORECASE,
)
_NUMBERED: Final = re.compile(r"\s*[\[［〔(（]?\d{1,3}[\]］〕)）.．]")


def is_page_number(paragraph: Paragraph) -> bool:
    """Whether a short text at the top or the bottom of the page can only be its number."""
    top, bottom = paragraph.bbox[1], paragraph.bbox[3]
    if top > _HEAD_ZONE and bottom < _FOOT_ZONE:
        return False
    return len(paragraph.rows) == 1 and _PAGE_NUMBER.fullmatch(paragraph.text.strip()) is not None


def is_header(paragraph: Paragraph, next_top: float, *, has_number: bool) -> bool:
    """Whether the first text of a page is its running head.

    :param next_top: unit y where the text under it begins.
    :param has_number: a page number stands beside it.
    """
    box = paragraph.bbox
    if len(paragraph.rows) > 2 or box[3] > _HEAD_ZONE + 0.03:
        return False
    gap = next_top - box[3]
    return has_number or (box[3] < 0.08 and gap > 0.9 * paragraph.size)


def is_footer(paragraph: Paragraph, previous_bottom: float, *, has_number: bool) -> bool:
    """Whether the last text of a page is its footer; `previous_bottom` is where the text over it ends."""
    box = paragraph.bbox
    if len(paragraph.rows) > 2 or box[1] < _FOOT_ZONE - 0.02:
        return False
    return has_number or (box[1] > 0.92 and box[1] - previous_bottom > 1.2 * paragraph.size)


def is_footnote(paragraph: Paragraph, body_size: float, *, told: bool) -> bool:
    """Whether a paragraph low on the page is a note: it opens with a mark and is set smaller than the text.

    :param body_size: size of ordinary lines, unit height.
    :param told: the layout model saw a reference here, so any kind of number may be the mark.
    """
    if paragraph.bbox[1] < _NOTE_ZONE or is_reference(paragraph):
        return False
    mark, limit = (_NOTE, 1.02) if told else (_RAISED, 0.95)
    return paragraph.size < limit * body_size and mark.match(paragraph.text) is not None


def is_reference(paragraph: Paragraph) -> bool:
    """Whether a paragraph is an entry of a bibliography, judged by what it says."""
    text = paragraph.text
    signs = {match.group(0).lower() for match in _BIBLIOGRAPHY.finditer(text)}
    return len(signs) >= 2 or (len(signs) == 1 and _NUMBERED.match(text) is not None)
