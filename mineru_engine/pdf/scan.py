"""A scanned page, from its image to structured blocks. Runs inside a worker process, one page at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mineru_engine.pdf.assemble import RawBlock, assemble_page
from mineru_engine.pdf.layout import detect_layout
from mineru_engine.pdf.lines import Box, clip_unit
from mineru_engine.pdf.ocr import glimpse_quads, read_quads, to_lines
from mineru_engine.pdf.upright import Upright, flip, is_upside_down, straighten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mineru_engine.pdf.lines import TextLine

Image = np.ndarray[Any, np.dtype[np.uint8]]

_MAX_SIDE: Final = 3600
"""Longest side in pixels that is worked on: 300 dpi of an A4 page. More only costs memory."""


@dataclass(frozen=True, slots=True)
class ScanPage:
    """What was found on a scanned page.

    :ivar blocks: raw blocks in reading order; boxes in unit coordinates of the page as it came.
    :ivar rotation: degrees clockwise (0, 90, 180, 270) by which the page had to be turned to be read.
    :ivar skew: degrees by which its lines then fell to the right.
    :ivar score: mean confidence 0..1 of everything recognised, weighted by length; 1 for text known before.
    :ivar chars: characters recognised.
    """

    blocks: list[RawBlock]
    rotation: int
    skew: float
    score: float
    chars: int


def read_scan_page(
    image: Image,
    lines: Sequence[TextLine] | None = None,
    *,
    threads: int,
    first_page: bool = True,
    glimpse: bool = False,
) -> ScanPage:
    """Read a page image.

    :param image: RGB, H x W x 3, uint8.
    :param lines: the page's text where it is known already (a good text layer): then nothing is recognised
        and the page is taken to be upright.
    :param threads: intra-op threads of the models.
    :param first_page: whether the page may carry the title of the document.
    :param glimpse: read only the ends of long lines: enough to tell what a block is, not what it says.
    """
    image = _shrink(image)
    if lines is not None:
        vertical = sum(line.vertical for line in lines) > len(lines) / 2
        regions = detect_layout(image, threads=threads)
        blocks = assemble_page(image, regions, lines, first_page=first_page, vertical=vertical)
        return ScanPage(blocks, 0, 0.0, 1.0, sum(len(line.text) for line in lines))
    read = glimpse_quads if glimpse else read_quads
    page = straighten(image, threads=threads)
    readings = read(page.image, page.quads, vertical=page.vertical, threads=threads)
    if is_upside_down(page.image, page.quads, readings, threads=threads):
        page = flip(page)
        readings = read(page.image, page.quads, vertical=page.vertical, threads=threads)
    found = to_lines(page.image, page.quads, readings, vertical=page.vertical)
    regions = detect_layout(page.image, threads=threads)
    blocks = assemble_page(page.image, regions, found, first_page=first_page, vertical=page.vertical)
    chars = sum(len(reading.text) for reading in readings)
    score = sum(reading.score * len(reading.text) for reading in readings) / chars if chars else 0.0
    placed = [_to_page(page, block) for block in blocks]
    return ScanPage(placed, page.rotation, page.skew, score, sum(len(line.text) for line in found))


def _shrink(image: Image) -> Image:
    import cv2

    longest = max(image.shape[:2])
    if longest <= _MAX_SIDE:
        return image
    scale = _MAX_SIDE / longest
    size = max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)


def _to_page(page: Upright, block: RawBlock) -> RawBlock:
    """Move a block from the upright page to the page as it came."""
    if not page.rotation and not page.skew:
        return block
    moved = {**block, "bbox": _rounded(page.page_box(tuple(block["bbox"])))}
    if page.rotation % 180:
        # Turned lines look like vertical text to the search for continued paragraphs: better none than wrong.
        moved.pop("lines", None)
    elif "lines" in block:
        moved["lines"] = [{"bbox": _rounded(_moved_line(page, tuple(line["bbox"])))} for line in block["lines"]]
    return moved


def _moved_line(page: Upright, box: Box) -> Box:
    """A line keeps its size and only moves: the hull of a tilted line would be several lines high."""
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    moved = page.to_page @ np.array([x, y, 1.0])
    half_width, half_height = (box[2] - box[0]) / 2, (box[3] - box[1]) / 2
    x, y = float(moved[0]), float(moved[1])
    return clip_unit((x - half_width, y - half_height, x + half_width, y + half_height))


def _rounded(box: Box) -> list[float]:
    return [round(value, 4) for value in box]
