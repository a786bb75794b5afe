"""Pages with a good text layer: docvortex's native analysis, and simple text when that is not to be had."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from docvortex.analyzers.native import PdfModel
from docvortex.assets import encode_crop_as_jpeg_data_uri
from docvortex.document.pdf import PDFDocument, get_lines_from_chars
from docvortex.document.pdf.constants import MODEL_JSON_VISUAL_BLOCK_TYPES
from docvortex.document.pdf.pdfium import safe_rewrite_pdf_bytes_with_pdfium_result
from docvortex.geometry import normalize_quarter_turn_angle

from mineru_engine.pdf.lines import TextLine, area, clip_unit, union
from mineru_engine.pdf.order import backward_jumps, reading_order

if TYPE_CHECKING:
    from mineru_engine.pdf.source import PdfSource

__all__ = ("analyze_native", "layer_lines")

RawBlock = dict[str, Any]

_MARGINAL = {"header", "footer", "page_number", "page_footnote", "aside_text"}
_CROP_DPI = 200
_MAX_LONG_SIDE = 4000
_HYPHENS = str.maketrans({"\x02": "-", "\ufffe": "-"})  # how PDFium reports a hyphen that ends a line
_INVISIBLE = 3  # ISO 32000-2, table 104: neither fill nor stroke
_COLUMN_GAP = 1.2  # line heights between two spans of one baseline that belong to different columns


def analyze_native(source: PdfSource, pages: Sequence[int]) -> dict[int, list[RawBlock]]:
    """Raw blocks of the pages, seen together so that running headers and body sizes are recognised.

    :param pages: increasing page indices.
    :return: page index → docvortex raw blocks, with pictures cut out as JPEG data URIs.
    """
    data, kept = source.data, list(pages)
    if len(kept) != source.page_count:
        rewritten = safe_rewrite_pdf_bytes_with_pdfium_result(data, page_indices=kept)
        if not rewritten.used_original:
            data, kept = rewritten.pdf_bytes, rewritten.retained_page_indices or kept
    with PDFDocument(data) as document:
        analysed: list[list[RawBlock]] = PdfModel().predict(document)
    blocks = dict(zip(kept, analysed, strict=True))
    for index, page_blocks in blocks.items():
        _mend_order(page_blocks)
        _cut_pictures(source, index, page_blocks)
    return blocks


def _mend_order(blocks: list[RawBlock]) -> None:
    """Take our own reading order where it makes the reader go back less often than docvortex's.

    docvortex's order is the better one on most pages; on pages of two columns it sometimes puts a table or the
    end of the left column behind the right one.
    """
    places = [place for place, block in enumerate(blocks) if block.get("bbox") and block["type"] not in _MARGINAL]
    body = [blocks[place] for place in places]
    boxes = [tuple(block["bbox"]) for block in body]
    order = reading_order(boxes)
    if backward_jumps([boxes[index] for index in order]) < backward_jumps(boxes):
        for place, index in zip(places, order, strict=True):
            blocks[place] = body[index]


def _cut_pictures(source: PdfSource, index: int, blocks: list[RawBlock]) -> None:
    """Put the picture of every visual block into it, upright, as a JPEG data URI."""
    visual = [block for block in blocks if block.get("type") in MODEL_JSON_VISUAL_BLOCK_TYPES and block.get("bbox")]
    if not visual:
        return
    dpi = min(_CROP_DPI, 72 * _MAX_LONG_SIDE / max(source.page_size(index)))
    regions = source.render_regions(index, [tuple(block["bbox"]) for block in visual], dpi)
    for block, pixels in zip(visual, regions, strict=True):
        height, width = pixels.shape[:2]
        angle = normalize_quarter_turn_angle(block.get("angle", 0))
        if payload := encode_crop_as_jpeg_data_uri(pixels, (0, 0, width, height), angle):
            block["image_base64"] = payload


def layer_lines(source: PdfSource, index: int, *, visible_only: bool = False) -> list[TextLine]:
    """Lines of the page's text layer, in unit coordinates.

    PDFium's reading joins what lies on one baseline; a wide gap starts a new line, so that columns stay apart.

    :param visible_only: leave out lines whose text is drawn invisibly.
    """
    width, height = source.page_size(index)
    chars = source.document.get_page_chars(index)
    if visible_only:
        chars = [char for char in chars if char.get("text_render_mode") != _INVISIBLE]
    lines = get_lines_from_chars(chars)
    place = _Placer(chars, width, height)
    found: list[TextLine] = []
    for line in lines:
        turned = abs(line["rotation"]) > 1
        found += [place.line(part) for part in ([line["spans"]] if turned else _split_at_gaps(line["spans"]))]
    return [line for line in found if line.text]


def _split_at_gaps(spans: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    parts: list[list[dict[str, Any]]] = []
    before = None
    for span in spans:
        left, top, right, bottom = span["bbox"]
        if not span["text"].strip():
            if parts:
                parts[-1].append(span)
            continue
        # Right-to-left lines come in the order they are read: the next span lies to the left.
        if before is not None and max(left - before[2], before[0] - right) < _COLUMN_GAP * (bottom - top):
            parts[-1].append(span)
        else:
            parts.append([span])
        before = span["bbox"]
    return parts


class _Placer:
    """Makes lines of spans, in unit coordinates of a page of ``width`` x ``height`` points."""

    def __init__(self, chars: list[dict[str, Any]], width: float, height: float) -> None:
        self._chars = chars
        self._width = width
        self._height = height

    def line(self, spans: list[dict[str, Any]]) -> TextLine:
        """One line; its text is empty if nothing visible is left of it."""
        boxes = [span["bbox"] for span in spans if span["text"].strip()]
        if not boxes:
            return TextLine((0.0, 0.0, 0.0, 0.0), "")
        left, top, right, bottom = union([tuple(box) for box in boxes])
        box = clip_unit((left / self._width, top / self._height, right / self._width, bottom / self._height))
        text, centers = self._text(spans)
        if area(box) == 0:
            return TextLine(box, "")
        return TextLine(box, text, centers=() if _reads_right_to_left(text) else centers)

    def _text(self, spans: list[dict[str, Any]]) -> tuple[str, tuple[float, ...]]:
        """Text with single spaces, and the unit x of the middle of each of its characters."""
        text: list[str] = []
        centers: list[float] = []
        for span in spans:
            for char in self._chars[span["char_start_idx"] : span["char_end_idx"] + 1]:
                middle = (char["bbox"][0] + char["bbox"][2]) / 2 / self._width
                for letter in char["char"].translate(_HYPHENS):
                    if not letter.isspace():
                        text.append(letter)
                        centers.append(middle)
                    elif text and text[-1] != " ":
                        text.append(" ")
                        centers.append(middle)
        if text and text[-1] == " ":
            text.pop()
            centers.pop()
        return "".join(text), tuple(centers)


def _reads_right_to_left(text: str) -> bool:
    letters = [unicodedata.bidirectional(char) for char in text if char.isalpha()]
    return sum(kind in ("R", "AL") for kind in letters) * 2 > len(letters)
