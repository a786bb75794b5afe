"""Is the text layer of a page worth reading? Decided for every page on its own.

The evidence is a sample of the page's characters and its images. The signs of a useless layer (glyphs
without Unicode, control characters, private-use code points, byte-swapped UTF-16, characters no CJK
character set knows) need no dictionary and no model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

__all__ = ("PageEvidence", "TextLayer", "judge", "plausible_text", "read_evidence")

_SAMPLE = 400
_MAX_SAMPLE_TEXT = 20_000
_FULL_PAGE_IMAGE = 0.8
_HIDDEN_SHARE = 0.25
_GARBLED_SHARE = 0.05
_PRIVATE_SHARE = 0.35
_RARE_CJK_SHARE = 0.3
_CJK_CODECS = ("gb2312", "big5", "shift_jis", "euc_kr")


class TextLayer(StrEnum):
    """What the text layer of a page is good for."""

    GOOD = "good"  # born digital
    OCR_LAYER = "ocr_layer"  # hidden text over or under an image of the page, and it reads like text
    GARBLED = "garbled"  # there is text, but not what the page shows
    NONE = "none"  # something is drawn, no text
    BLANK = "blank"  # nothing is drawn


@dataclass(frozen=True, slots=True)
class PageEvidence:
    """What was seen on one page.

    :ivar chars: characters in the text layer, white space included.
    :ivar sampled: characters looked at for the following counts.
    :ivar unmapped: glyphs without a Unicode value, and control characters.
    :ivar hidden: characters drawn invisibly, or painted over by a full-page image.
    :ivar image_share: share of the page under its largest image, 0..1.
    :ivar objects: drawn objects.
    """

    chars: int
    sampled: int
    unmapped: int
    private: int
    hidden: int
    image_share: float
    objects: int
    text: str


def read_evidence(page: pdfium.PdfPage) -> PageEvidence:
    """Look at one open page. The caller holds the PDFium lock."""
    textpage = page.get_textpage()
    try:
        chars = max(0, textpage.count_chars())
        image_share, cover_index, text_index, objects = _drawn_objects(page)
        painted_over = image_share >= _FULL_PAGE_IMAGE and 0 <= text_index < cover_index
        sampled, unmapped, private, hidden = _sample(textpage, chars)
        text = textpage.get_text_range(0, min(chars, _MAX_SAMPLE_TEXT)) if chars else ""
        return PageEvidence(
            chars, sampled, unmapped, private, sampled if painted_over else hidden, image_share, objects, text
        )
    finally:
        textpage.close()


def judge(evidence: PageEvidence) -> TextLayer:
    """What the layer is good for."""
    visible = len(evidence.text.split()) > 0
    if not visible:
        return TextLayer.NONE if evidence.objects else TextLayer.BLANK
    if _garbled(evidence):
        return TextLayer.GARBLED
    if evidence.hidden > _HIDDEN_SHARE * max(1, evidence.sampled):
        return TextLayer.OCR_LAYER if plausible_text(evidence.text) else TextLayer.GARBLED
    return TextLayer.GOOD


def plausible_text(text: str) -> bool:
    """Whether OCR text reads like a language: mostly letters, words of sensible shape, little noise."""
    words = text.split()
    if not words:
        return False
    solid = [char for char in text if not char.isspace()]
    letters = sum(char.isalnum() for char in solid) / len(solid)
    sane = sum(_sane_word(word) for word in words) / len(words)
    return letters >= 0.75 and sane >= 0.8


_WORD = re.compile(
    r"""[\W_]{0,3}(?:
        \d[\d.,:/%-]*(?:st|nd|rd|th)?      # numbers, dates, ordinals
      | [A-Z]?[^\W\d_A-Z]*(?:['’.-][^\W\d_]+)*   # words in lower case or with a capital
      | [A-Z]{2,}(?:['’-][A-Z]+)*          # words in capitals
      | [A-Z](?:\.[A-Z])*                  # initials
    )[\W_]{0,4}""",
    re.VERBOSE,
)


def _sane_word(word: str) -> bool:
    if not word.isascii():
        return True
    core = word.strip("\"'.,;:!?()[]-")
    if len(core) == 1 and core.isalpha() and core not in "aAIOo":
        return False
    return len(word) <= 30 and _WORD.fullmatch(word) is not None


def _garbled(evidence: PageEvidence) -> bool:
    sampled = max(1, evidence.sampled)
    if evidence.unmapped > _GARBLED_SHARE * sampled or evidence.private > _PRIVATE_SHARE * sampled:
        return True
    solid = [char for char in evidence.text if not char.isspace() and ord(char) < 0x10000]
    wide = [char for char in solid if ord(char) > 0xFF]
    if len(wide) > 0.5 * len(solid) and sum(ord(char) & 0xFF == 0 for char in wide) > 0.5 * len(wide):
        return True  # UTF-16 with its bytes swapped
    han = [char for char in solid if "\u3400" <= char <= "\u9fff"]
    return len(han) >= 20 and sum(not _known_han(char) for char in han) > _RARE_CJK_SHARE * len(han)


def _known_han(char: str) -> bool:
    for codec in _CJK_CODECS:
        try:
            char.encode(codec)
        except UnicodeEncodeError:
            continue
        return True
    return False


def _sample(textpage: pdfium.PdfTextPage, chars: int) -> tuple[int, int, int, int]:
    sampled = unmapped = private = hidden = 0
    for index in range(0, chars, max(1, chars // _SAMPLE)):
        if pdfium_c.FPDFText_IsGenerated(textpage, index) == 1:
            continue
        code = pdfium_c.FPDFText_GetUnicode(textpage, index)
        if code in (9, 10, 13, 32, 0xA0, 0xFFFE, 2):  # white space and PDFium's hyphen marks
            continue
        sampled += 1
        unmapped += code < 32 or code == 0xFFFD or pdfium_c.FPDFText_HasUnicodeMapError(textpage, index) == 1
        private += 0xE000 <= code <= 0xF8FF
        item = pdfium_c.FPDFText_GetTextObject(textpage, index)
        hidden += bool(item) and pdfium_c.FPDFTextObj_GetTextRenderMode(item) == pdfium_c.FPDF_TEXTRENDERMODE_INVISIBLE
    return sampled, unmapped, private, hidden


def _drawn_objects(page: pdfium.PdfPage) -> tuple[float, int, int, int]:
    """Share under the largest image, its paint position, the last text's position, number of objects."""
    width, height = page.get_size()
    share, cover_index, text_index, count = 0.0, -1, -1, 0
    for count, item in enumerate(page.get_objects(max_depth=4), start=1):
        if item.type == pdfium_c.FPDF_PAGEOBJ_TEXT:
            text_index = count
        elif item.type == pdfium_c.FPDF_PAGEOBJ_IMAGE:
            covered = _covered(item, width, height)
            if covered > share:
                share, cover_index = covered, count
    return share, cover_index, text_index, count


def _covered(item: pdfium.PdfObject, width: float, height: float) -> float:
    try:
        left, bottom, right, top = item.get_bounds()
    except pdfium.PdfiumError:
        return 0.0
    area: float = max(0.0, min(right, width) - max(left, 0.0)) * max(0.0, min(top, height) - max(bottom, 0.0))
    return min(1.0, area / max(1.0, width * height))
