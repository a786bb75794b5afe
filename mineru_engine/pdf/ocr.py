"""Reading the text lines of a page image."""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING, Final

import numpy as np

from mineru_engine.pdf.lines import TextLine, clip_unit
from mineru_engine.pdf.text_models import Image, Quad, Reading, crop_quad, find_quads, quad_size, recognize
from mineru_engine.pdf.upright import is_tall, mean_score

if TYPE_CHECKING:
    from collections.abc import Sequence

_MIN_SCORE: Final = 0.5
"""Confidence under which a reading is noise: stamps, ornaments, hatching."""
_CERTAIN: Final = 0.8
_COLUMN: Final = 2.5
"""Height over width from which a box on a horizontal page holds turned text, not one slim character."""
_HEAD: Final = 6.0
_TAIL: Final = 3.0
"""What a glimpse reads of a line's beginning and end, in line heights: 10 to 15 and 5 to 8 Latin letters."""


def read_lines(image: Image, *, threads: int) -> list[TextLine]:
    """Find and read the lines of an upright page.

    :param image: RGB, H x W x 3.
    :param threads: intra-op threads of the models.
    :return: lines in unit coordinates, from top to bottom.
    """
    quads = find_quads(image, threads=threads)
    return to_lines(image, quads, read_quads(image, quads, vertical=False, threads=threads), vertical=False)


def read_quads(image: Image, quads: Sequence[Quad], *, vertical: bool, threads: int) -> list[Reading]:
    """Read the text in each quad.

    :param vertical: the page's text runs from top to bottom, so tall boxes are columns of upright characters.
    """
    crops = [crop_quad(image, quad) for quad in quads]
    tall = [i for i, quad in enumerate(quads) if is_tall(quad)]
    turned = {i: np.ascontiguousarray(np.rot90(crops[i])) for i in tall}
    first = [turned[i] if i in turned and (vertical or _is_column(quads[i])) else crops[i] for i in range(len(crops))]
    readings = recognize(first, threads=threads)
    if vertical:
        return readings
    # A tall box on a horizontal page: a slim character, or text turned to either side. The better reading wins.
    doubtful = [i for i in tall if readings[i].score < _CERTAIN]
    for quarter in (1, 3):
        again = [np.ascontiguousarray(np.rot90(crops[i], quarter)) for i in doubtful]
        for i, reading in zip(doubtful, recognize(again, threads=threads), strict=True):
            readings[i] = max(readings[i], reading, key=lambda one: one.score)
    return readings


def _is_column(quad: Quad) -> bool:
    width, height = quad_size(quad)
    return height > _COLUMN * width


def glimpse_quads(image: Image, quads: Sequence[Quad], *, vertical: bool, threads: int) -> list[Reading]:
    """Like :func:`read_quads` in half the time, but of a long line only the beginning and the end are read.

    Between them the beginning is repeated, to about the right length. Blocks are told apart by bullets, numbers, full
    stops and lengths: all of that is there.
    """
    lengths = [width / max(1.0, height) for width, height in map(quad_size, quads)]
    long = [i for i, length in enumerate(lengths) if length > 1.2 * (_HEAD + _TAIL)]
    parts = list(quads)
    for i in long:
        parts[i] = _section(quads[i], 0.0, _HEAD / lengths[i])
    parts += [_section(quads[i], 1 - _TAIL / lengths[i], 1.0) for i in long]
    readings = read_quads(image, parts, vertical=vertical, threads=threads)
    for i, tail in zip(long, readings[len(quads) :], strict=True):
        readings[i] = _filled_up(readings[i], tail, lengths[i])
    return readings[: len(quads)]


def _section(quad: Quad, start: float, stop: float) -> Quad:
    """The part of a quad between two fractions of its width."""
    left, right = quad[[0, 3]], quad[[1, 2]]
    near, far = left + start * (right - left), left + stop * (right - left)
    return np.stack([near[0], far[0], far[1], near[1]])


def _filled_up(head: Reading, tail: Reading, length: float) -> Reading:
    missing = round(len(head.text) / _HEAD * (length - _HEAD - _TAIL))
    middle = "".join(islice(cycle(head.text), missing))
    return Reading(head.text + middle + tail.text, mean_score([head, tail]))


def to_lines(image: Image, quads: Sequence[Quad], readings: Sequence[Reading], *, vertical: bool) -> list[TextLine]:
    """Keep what was read with confidence, in unit coordinates of `image`, from top to bottom."""
    height, width = image.shape[:2]
    lines: list[TextLine] = []
    for quad, reading in zip(quads, readings, strict=True):
        text = reading.text.strip()
        if not text or reading.score < _MIN_SCORE:
            continue
        # The quad set straight, not its hull: a slight tilt would add to the height of a long line.
        x, y = (float(value) for value in quad.mean(axis=0))
        dx, dy = (side / 2 for side in quad_size(quad))
        left, top, right, bottom = x - dx, y - dy, x + dx, y + dy
        upright = is_tall(quad) and (vertical or _is_column(quad))
        start, length, full = (top, bottom - top, height) if upright else (left, right - left, width)
        skipped = len(reading.text) - len(reading.text.lstrip())
        centers = tuple((start + part * length) / full for part in reading.centers[skipped : skipped + len(text)])
        box = clip_unit((left / width, top / height, right / width, bottom / height))
        lines.append(TextLine(box, text, reading.score, upright, centers))
    return sorted(lines, key=lambda line: (line.bbox[1], line.bbox[0]))
