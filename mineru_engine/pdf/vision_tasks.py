"""What worker processes do for pages that a vision-language model reads: images out, answers in.

A page goes through :func:`look_at_page` (its layout image), :func:`cut_page` (crops of its blocks) and
:func:`finish_page` (raw blocks). Nothing is kept in between: a worker may die, another takes over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from docvortex.analyzers.pdf import PDFTableRecoveryError, prepare_table_page, recover_table_region
from docvortex.assets import encode_crop_as_jpeg_data_uri
from docvortex.geometry import normalize_quarter_turn_angle

from mineru_engine.options import ImageFormat
from mineru_engine.pdf.encode import encode_image, without_colour
from mineru_engine.pdf.lines import area, covered, pixel_box
from mineru_engine.pdf.native import layer_lines
from mineru_engine.pdf.paragraphs import Paragraph, join_rows
from mineru_engine.pdf.pixels_image import PixelsImage, pixels_of
from mineru_engine.pdf.source import PdfSource, open_source
from mineru_engine.pdf.spec import SourceSpec
from mineru_engine.pdf.tasks import judge_page
from mineru_engine.pdf.textlayer import TextLayer
from mineru_engine.vlm import protocol
from mineru_engine.vlm.blocks import TEXT_TYPES, VISUAL_TYPES, raw_page

if TYPE_CHECKING:
    from mineru_engine.pdf.lines import Box, TextLine
    from mineru_engine.pdf.pages import PageSource, Pixels

__all__ = ("cut_blocks", "cut_page", "finish_blocks", "finish_page", "look_at_page", "page_picture")

RawBlock = dict[str, Any]

_DPI: Final = 200
_MAX_SIDE: Final = 4000
_PICTURE_SIDE: Final = 2000
_WORDS: Final = (TextLayer.GOOD, TextLayer.OCR_LAYER, TextLayer.GARBLED)
_TEXT, _LINES, _TABLE = "_text", "_lines", "_table"  # what the page itself gave, kept apart from the model's answers
_FORMULA_SIGNS: Final = frozenset("∂∇∑∏√∞∫≤≥≠≈∈∉⊂⊆∪∩∀∃→⇒↦×⊗⊕∝±")


def look_at_page(source: dict[str, Any], page: int, image_format: str, ocr_mode: str) -> dict[str, Any]:
    """Judge the page and draw it for the layout question.

    :return: ``index``, ``size`` (points), ``layer``, ``chars``, ``problem``, ``fill`` (the text layer may be used)
        and, unless the page is blank or cannot be loaded, ``image``.
    """
    document = open_source(SourceSpec(**source))
    item = judge_page(document, page, use_layer=ocr_mode != "ocr")
    del item["text"]  # what is to be used of it is read when the blocks are known
    layer = item["layer"]
    item["fill"] = ocr_mode != "ocr" and (layer == TextLayer.GOOD or (ocr_mode == "txt" and layer in _WORDS))
    if layer is not None and layer != TextLayer.BLANK:
        pixels = document.render_square(page, protocol.LAYOUT_SIDE)
        item["image"] = _sent(pixels, image_format)
    return item


def cut_page(
    source: dict[str, Any],
    page: int,
    answer: str | None,
    fill: bool,
    ask_formulas: bool,
    image_analysis: bool,
    image_format: str,
    threads: int,
) -> dict[str, Any]:
    """Blocks of the page and the questions to ask about them.

    :param answer: the model's answer to the layout question; ``None`` for the bundled layout model's.
    :param fill: take text and tables from the page's text layer where it has them.
    :param ask_formulas: ask about text with formulas in it all the same: the text layer garbles them.
    :return: ``blocks`` and ``questions``: ``block`` (index), ``type``, ``image``.
    """
    document = open_source(SourceSpec(**source))
    size = document.page_size(page)
    pixels = _drawn(document, page)
    if answer is None:
        from mineru_engine.vlm.onnx_tasks import layout_answer

        answer = layout_answer(pixels, threads=threads)
    blocks = protocol.parse_layout(answer)
    if fill:
        assert isinstance(document, PdfSource)
        _fill_text(blocks, layer_lines(document, page), ask_formulas=ask_formulas)
        _fill_tables(blocks, document, page, size)
    return _cut(pixels, blocks, image_analysis, image_format)


def cut_blocks(
    source: dict[str, Any], page: int, blocks: list[RawBlock], image_analysis: bool, image_format: str
) -> dict[str, Any]:
    """The same for blocks found by native analysis, of which the model reads what has no text: formulas, pictures.

    :param blocks: ``type``, ``bbox``, ``angle`` and whatever else shall come back.
    """
    document = open_source(SourceSpec(**source))
    return _cut(_drawn(document, page), blocks, image_analysis, image_format, pictures=False)


def _drawn(document: PageSource, page: int) -> Pixels:
    """The page at the size of which blocks are cut out."""
    return document.render(page, round(min(_MAX_SIDE, max(document.page_size(page)) * _DPI / 72)))


def _sent(pixels: Pixels, image_format: str) -> dict[str, str]:
    image = encode_image(pixels, ImageFormat(image_format))
    return {"data": image.data, "media_type": image.media_type}


def _cut(
    pixels: Pixels, blocks: list[RawBlock], image_analysis: bool, image_format: str, *, pictures: bool = True
) -> dict[str, Any]:
    asked = protocol.crop_blocks(PixelsImage(without_colour(pixels)), blocks, image_analysis=image_analysis)
    questions = [
        {"block": index, "type": kind, "image": _sent(pixels_of(crop), image_format)}
        for index, kind, crop in asked
        if not (_TEXT in blocks[index] or _TABLE in blocks[index])
    ]
    if pictures:
        for block in blocks:
            if block["type"] in VISUAL_TYPES:
                block["image_base64"] = _picture(pixels, tuple(block["bbox"]), block.get("angle") or 0)
    return {"blocks": blocks, "questions": questions}


def _picture(pixels: Pixels, box: Box, angle: int) -> str | None:
    """A part of the page, upright, as a JPEG data URI; ``None`` where it cannot be encoded."""
    height, width = pixels.shape[:2]
    upright = normalize_quarter_turn_angle(angle)
    picture: str | None = encode_crop_as_jpeg_data_uri(pixels, pixel_box(box, width, height), upright)
    return picture or None


def _fill_text(blocks: list[RawBlock], lines: Sequence[TextLine], *, ask_formulas: bool) -> None:
    """Give each line to the smallest block around it, and blocks of text the text of their lines."""
    owned: dict[int, list[TextLine]] = {}
    for line in lines:
        holders = [at for at, block in enumerate(blocks) if covered(line.bbox, tuple(block["bbox"])) > 0.5]
        if holders:
            owned.setdefault(min(holders, key=lambda at: area(tuple(blocks[at]["bbox"]))), []).append(line)
    for at, found in owned.items():
        block = blocks[at]
        if block["type"] not in TEXT_TYPES or block.get("angle"):
            continue
        rows = join_rows(found)
        text = Paragraph(tuple(rows)).text
        if ask_formulas and _has_formula(text):
            continue
        block[_TEXT] = text
        block[_LINES] = [{"bbox": [round(value, 4) for value in row.bbox]} for row in rows]


def _has_formula(text: str) -> bool:
    return any(char in _FORMULA_SIGNS or "\U0001d400" <= char <= "\U0001d7ff" for char in text)


def _fill_tables(blocks: list[RawBlock], document: PdfSource, page: int, size: tuple[float, float]) -> None:
    """Tables whose cells the text layer and the drawn rules give exactly."""
    tables = [block for block in blocks if block["type"] == "table"]
    if not tables:
        return
    prepared = prepare_table_page(document.document[page])
    width, height = size
    for block in tables:
        left, top, right, bottom = block["bbox"]
        if any(other["type"] in ("image", "chart") and _inside(other, block) for other in blocks):
            continue  # the model knows how to speak of pictures in cells
        region = (left * width, top * height, right * width, bottom * height)
        try:
            found = recover_table_region(prepared, region, angle=block.get("angle") or 0)
        except PDFTableRecoveryError:
            continue
        if found is not None and found.html.strip():
            block[_TABLE] = found.html


def _inside(inner: RawBlock, outer: RawBlock) -> bool:
    return covered(tuple(inner["bbox"]), tuple(outer["bbox"])) > 0.5


def finish_page(
    source: dict[str, Any], page: int, blocks: list[RawBlock], failed: list[int], fill: bool, first: bool, threads: int
) -> dict[str, Any]:
    """Raw blocks of a page from the model's answers (in ``content``) and what the page itself gave.

    :param failed: indices of blocks whose question had no answer: they are read from the text layer, else by OCR,
        else they stay a picture.
    :param first: the page may carry the document's title.
    :return: ``blocks``, and ``rescued``: how each failed block was read (``text layer``, ``OCR`` or ``picture``).
    """
    document = open_source(SourceSpec(**source))
    rescued = _rescue(document, page, [blocks[at] for at in failed], fill=fill, threads=threads)
    finished = protocol.finish_blocks(blocks)
    for block in finished:
        block["content"] = block.get(_TEXT) or block.get(_TABLE) or block["content"]
        block["lines"] = block.get(_LINES)
    return {"blocks": raw_page(finished, document.page_size(page), first_page=first), "rescued": rescued}


def finish_blocks(blocks: list[RawBlock]) -> list[RawBlock]:
    """Answers about blocks of a native page made whole; private keys come back as they went."""
    return protocol.finish_blocks(blocks)


def _rescue(document: PageSource, page: int, blocks: list[RawBlock], *, fill: bool, threads: int) -> list[str]:
    if not blocks:
        return []
    from mineru_engine.pdf.ocr import read_lines

    lines = layer_lines(document, page) if fill and isinstance(document, PdfSource) else []
    pixels: Pixels | None = None
    how = []
    for block in blocks:
        box = tuple(block["bbox"])
        found, way = [line for line in lines if covered(line.bbox, box) > 0.5], "text layer"
        if not found and block["type"] not in ("image", "chart", "equation"):
            pixels = _drawn(document, page) if pixels is None else pixels
            found, way = read_lines(_crop(pixels, box), threads=threads), "OCR"
        if found:
            block[_TEXT] = Paragraph(tuple(join_rows(found))).text
            block["type"] = "text" if block["type"] in ("table", "equation", "unknown") else block["type"]
        how.append(way if found else "picture")
    return how


def _crop(pixels: Pixels, box: Box) -> Pixels:
    height, width = pixels.shape[:2]
    left, top, right, bottom = pixel_box(box, width, height)
    return np.ascontiguousarray(pixels[top:bottom, left:right])


def page_picture(source: dict[str, Any], page: int) -> list[RawBlock]:
    """The page as one picture: what is kept of a page that nothing could read."""
    document = open_source(SourceSpec(**source))
    pixels = document.render(page, _PICTURE_SIDE)
    picture = _picture(pixels, (0.0, 0.0, 1.0, 1.0), 0)
    return [{"type": "image", "bbox": [0.0, 0.0, 1.0, 1.0], "angle": 0, "content": "", "image_base64": picture}]
