"""Pages with a good text layer: docvortex's native analysis, and simple text when that is not to be had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from docvortex.analyzers.native import PdfModel
from docvortex.document.pdf import PDFDocument
from docvortex.document.pdf.constants import MODEL_JSON_VISUAL_BLOCK_TYPES
from docvortex.document.pdf.pdfium import safe_rewrite_pdf_bytes_with_pdfium_result
from docvortex.document.pdf.visuals import attach_visual_block_images

from mineru_engine.pdf.lines import TextLine
from mineru_engine.pdf.order import backward_jumps, reading_order

if TYPE_CHECKING:
    from mineru_engine.pdf.source import PdfSource

__all__ = ("analyze_native", "layer_lines")

RawBlock = dict[str, Any]

_MARGINAL = {"header", "footer", "page_number", "page_footnote", "aside_text"}
_CROP_DPI = 200
_MAX_LONG_SIDE = 4000
_HYPHENS = str.maketrans({"\x02": "-", "\ufffe": "-"})  # how PDFium reports a hyphen that ends a line
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
    """One page at a time: a page image lives only as long as its crops are being made."""
    if not any(block.get("type") in MODEL_JSON_VISUAL_BLOCK_TYPES for block in blocks):
        return
    from PIL import Image

    size = source.page_size(index)
    pixels = source.render(index, min(_MAX_LONG_SIDE, round(max(size) * _CROP_DPI / 72)))
    with Image.fromarray(pixels) as image:
        attach_visual_block_images([blocks], [{"img_pil": image}], index)


def layer_lines(source: PdfSource, index: int) -> list[TextLine]:
    """Lines of the page's text layer, hidden text included, in unit coordinates.

    PDFium's reading joins what lies on one baseline; a wide gap starts a new line, so that columns stay apart.
    """
    width, height = source.page_size(index)
    with PDFDocument(source.data) as document:
        lines = document.get_page_lines(index)
    found: list[TextLine] = []
    for line in lines:
        if abs(line["rotation"]) > 1:
            found += [_text_line(line["spans"], width, height)]
        else:
            found += [_text_line(part, width, height) for part in _split_at_gaps(line["spans"])]
    return [line for line in found if line.text]


def _split_at_gaps(spans: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    parts: list[list[dict[str, Any]]] = []
    edge = None
    for span in spans:
        left, top, right, bottom = span["bbox"]
        if not span["text"].strip():
            if parts:
                parts[-1].append(span)
            continue
        if edge is not None and -1 < left - edge < _COLUMN_GAP * (bottom - top):
            parts[-1].append(span)
        else:
            parts.append([span])
        edge = right
    return parts


def _text_line(spans: list[dict[str, Any]], width: float, height: float) -> TextLine:
    boxes = [tuple(span["bbox"]) for span in spans if span["text"].strip()] or [(0.0, 0.0, 0.0, 0.0)]
    left, top = min(box[0] for box in boxes), min(box[1] for box in boxes)
    right, bottom = max(box[2] for box in boxes), max(box[3] for box in boxes)
    text = " ".join("".join(span["text"] for span in spans).translate(_HYPHENS).split())
    unit = (_unit(left / width), _unit(top / height), _unit(right / width), _unit(bottom / height))
    return TextLine(bbox=unit, text=text if unit[2] > unit[0] and unit[3] > unit[1] else "")


def _unit(value: float) -> float:
    return min(1.0, max(0.0, value))
