"""What a worker process does for the built-in engine: it answers the MinerU protocol's prompts with bundled models.

Prompts, layout grammar and OTSL are those of mineru-vl-utils (``mineru_client.py``, ``post_process/otsl2html.py``).
"""

from __future__ import annotations

import base64
import io
import math
import statistics
from typing import TYPE_CHECKING, Final

import numpy as np

from mineru_engine.errors import MineruError
from mineru_engine.pdf.image_source import ImageSource
from mineru_engine.pdf.ocr import read_quads, to_lines
from mineru_engine.pdf.paragraphs import join_rows, split_paragraphs
from mineru_engine.pdf.scan import read_scan_page
from mineru_engine.pdf.table_grid import TableCell, table_rows
from mineru_engine.pdf.text_models import find_quads
from mineru_engine.pdf.upright import deskew, estimate_skew

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mineru_engine.pdf.lines import Box, TextLine
    from mineru_engine.pdf.text_models import Image

__all__ = ("answer", "layout_answer", "table_answer", "text_answer", "to_otsl")

_MAX_SIDE: Final = 3600
"""Longest side in pixels that is worked on, as for scanned pages."""
_FRAME: Final = 32
"""Pixels of paper set around a block: the detector misses letters at the edge of an image, single ones above all."""
_CUT_SCORE: Final = 0.93
"""Share of the usual score that a line at the edge of a block reaches at least if it is whole."""
_TURNED: Final = {0: "up", 90: "left", 180: "down", 270: "right"}
"""Where the top of the text points, by the degrees clockwise that the page must be turned to be read."""


def answer(image: str, prompt: str, threads: int) -> str:
    """Answer a prompt about an image.

    :param image: base64 of an image file.
    :param threads: intra-op threads of the models.
    :return: in the protocol's grammar; empty for what the bundled models cannot read: formulas and pictures.
    :raises MineruError: the prompt is not of the protocol, or the image cannot be decoded.
    """
    read = _READERS.get(prompt.strip())
    if read is None:
        raise MineruError(f"the built-in engine has no answer to the prompt {prompt[:60]!r}")
    return read(ImageSource(io.BytesIO(base64.b64decode(image))).render(0, _MAX_SIDE), threads=threads)


def layout_answer(image: Image, *, threads: int) -> str:
    """The blocks of a page in reading order, one a line; empty for a blank page.

    :param image: RGB page in any proportions, also squashed to a square.
    """
    page = read_scan_page(image, threads=threads, glimpse=True)
    turned = _TURNED[page.rotation]
    return "\n".join(
        f"<|box_start|>{_coordinates(block['bbox'])}<|box_end|><|ref_start|>{block['type']}<|ref_end|><|rotate_{turned}|>"
        for block in page.blocks
    )


def _coordinates(box: Box) -> str:
    """A unit box in thousandths, never smaller than it was."""
    left, top, right, bottom = (1000 * value for value in box)
    return f"{math.floor(left)} {math.floor(top)} {math.ceil(right)} {math.ceil(bottom)}"


def text_answer(image: Image, *, threads: int) -> str:
    """The text of a block; an empty line stands between paragraphs."""
    image, lines = _read_block(image, threads)
    rows = join_rows(lines)
    return "\n\n".join(paragraph.text for paragraph in split_paragraphs(rows, image.shape[1] / image.shape[0]))


def table_answer(image: Image, *, threads: int) -> str:
    """A table as OTSL; lines that form no columns become rows of one cell."""
    image, lines = _read_block(image, threads)
    rows = table_rows(image, (0.0, 0.0, 1.0, 1.0), lines)
    return to_otsl(rows or [[TableCell(row.text)] for row in join_rows(lines)])


def to_otsl(rows: Sequence[Sequence[TableCell]]) -> str:
    """Write a table as OTSL: a token for every place of the grid, also for those under a span."""
    grid: dict[tuple[int, int], str] = {}
    for top, row in enumerate(rows):
        left = 0
        for cell in row:
            while (top, left) in grid:
                left += 1
            for down in range(cell.row_span):
                for across in range(cell.column_span):
                    grid[top + down, left + across] = _token(cell, down, across)
    width = max((column for _, column in grid), default=-1) + 1
    return "".join(
        "".join(grid.get((index, column), "<ecel>") for column in range(width)) + "<nl>" for index in range(len(rows))
    )


def _token(cell: TableCell, down: int, across: int) -> str:
    if down or across:
        return "<xcel>" if down and across else "<ucel>" if down else "<lcel>"
    return f"<fcel>{cell.text}" if cell.text else "<ecel>"


def _unread(image: Image, *, threads: int) -> str:
    return ""


_READERS: Final[dict[str, Callable[..., str]]] = {
    "Layout Detection:": layout_answer,
    "Text Recognition:": text_answer,
    "Table Recognition:": table_answer,
    "Formula Recognition:": _unread,
    "Image Analysis:": _unread,
}


def _read_block(image: Image, threads: int) -> tuple[Image, list[TextLine]]:
    """The block set straight on a margin of paper, and the lines in it.

    The box around a slanting block holds pieces of its neighbours too, over one end and under the other: lines whose
    middle does not lie in the block itself are left out, and so are lines that its edge cuts in two.
    """
    framed = _framed(image)
    quads = find_quads(framed, threads=threads)
    skew = estimate_skew(quads, framed.shape[1])
    straight, moved, _ = deskew(framed, quads, skew)
    middle, reach = straight.shape[0] / 2, _inner_height(image, skew) / 2
    own = [i for i, quad in enumerate(moved) if abs(quad[:, 1].mean() - middle) < reach] or range(len(quads))
    # Read from the image as it came: letters that are resampled twice read worse.
    readings = read_quads(framed, [quads[i] for i in own], vertical=False, threads=threads)
    lines = to_lines(straight, [moved[i] for i in own], readings, vertical=False)
    height = straight.shape[0]
    return straight, _uncut(lines, (middle - reach) / height, (middle + reach) / height)


def _uncut(lines: list[TextLine], top: float, bottom: float) -> list[TextLine]:
    """Drop lines that reach over the edges of a block and read worse than those within: half of them is missing."""
    within = [line for line in lines if top <= line.bbox[1] and line.bbox[3] <= bottom]
    if not within:
        return lines
    limit = _CUT_SCORE * statistics.median(line.score for line in within)
    return [line for line in lines if line in within or line.score >= limit]


def _inner_height(image: Image, skew: float) -> float:
    """Height in pixels of a block that slants by `skew` degrees, from the box around it."""
    height, width = image.shape[:2]
    angle = abs(math.radians(skew))
    return float((height * math.cos(angle) - width * math.sin(angle)) / math.cos(2 * angle))


def _framed(image: Image) -> Image:
    import cv2

    edge = np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]])
    paper = tuple(float(value) for value in np.median(edge, axis=0))
    framed = cv2.copyMakeBorder(image, _FRAME, _FRAME, _FRAME, _FRAME, cv2.BORDER_CONSTANT, value=paper)
    return np.asarray(framed, dtype=np.uint8)
