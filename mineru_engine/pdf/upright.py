"""Turning a scanned page upright: quarter turns, small skew, and the way back to the page as it came."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mineru_engine.pdf.lines import Box, clip_unit
from mineru_engine.pdf.text_models import Image, Quad, Reading, crop_quad, find_quads, quad_size, recognize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Matrix = np.ndarray[Any, np.dtype[np.float64]]
"""3 x 3, unit coordinates to unit coordinates."""

_PROBES: Final = 5
_TALL: Final = 1.5
_MIN_SKEW: Final = 0.2
_MAX_SKEW: Final = 15.0
_UPRIGHT_SCORE: Final = 0.85


@dataclass(frozen=True, slots=True)
class Upright:
    """A page that stands upright.

    :ivar rotation: degrees clockwise, a multiple of 90, by which the page had to be turned.
    :ivar skew: degrees by which its lines then still fell to the right; already taken out of `image`.
    :ivar vertical: the text runs in columns from top to bottom.
    :ivar to_page: from unit coordinates of `image` to those of the page as it came.
    """

    image: Image
    quads: list[Quad]
    rotation: int
    skew: float
    vertical: bool
    to_page: Matrix

    def page_box(self, box: Box) -> Box:
        """Axis-aligned hull, on the page as it came, of a box on the upright page."""
        return map_box(self.to_page, box)


def map_box(matrix: Matrix, box: Box) -> Box:
    """Axis-aligned hull of a transformed unit box, cut to the page."""
    left, top, right, bottom = box
    corners = np.array([[left, top, 1], [right, top, 1], [right, bottom, 1], [left, bottom, 1]]) @ matrix.T
    low, high = corners.min(axis=0), corners.max(axis=0)
    return clip_unit((float(low[0]), float(low[1]), float(high[0]), float(high[1])))


def straighten(image: Image, *, threads: int) -> Upright:
    """Find the text of a page and turn the page so that it reads from left to right (or is vertical text).

    A page that stands on its head is not seen here: only reading shows it, see :func:`flip`.
    """
    quads = find_quads(image, threads=threads)
    rotation, vertical = upright_rotation(image, quads, threads=threads)
    if rotation:
        image = turn_image(image, rotation)
        quads = find_quads(image, threads=threads)
    skew = 0.0 if vertical else estimate_skew(quads, image.shape[1])
    to_page = _turn_back(rotation)
    if skew:
        image, quads, to_upright = deskew(image, quads, skew)
        to_page = to_page @ to_upright
    return Upright(image, quads, rotation, skew, vertical, to_page)


def flip(page: Upright) -> Upright:
    """The same page turned by another 180 degrees."""
    height, width = page.image.shape[:2]
    corner = np.array([width, height], dtype=np.float32)
    quads = [(corner - quad)[[2, 3, 0, 1]] for quad in page.quads]
    image = turn_image(page.image, 180)
    return Upright(image, quads, (page.rotation + 180) % 360, page.skew, page.vertical, page.to_page @ _turn_back(180))


def is_upside_down(image: Image, quads: Sequence[Quad], readings: Sequence[Reading], *, threads: int) -> bool:
    """Whether badly read lines read better when turned by 180 degrees."""
    ranked = sorted((i for i in range(len(quads)) if readings[i].text), key=lambda i: -max(quad_size(quads[i])))
    picks = ranked[:_PROBES]
    if not picks:
        return False
    before = mean_score([readings[i] for i in picks])
    if before >= _UPRIGHT_SCORE:
        return False
    crops = [np.ascontiguousarray(crop_quad(image, quads[i])[::-1, ::-1]) for i in picks]
    return mean_score(recognize(crops, threads=threads)) > before + 0.1


def mean_score(readings: Sequence[Reading]) -> float:
    """Mean confidence per character, 0 where nothing was read."""
    characters = sum(len(reading.text) for reading in readings)
    return sum(reading.score * len(reading.text) for reading in readings) / characters if characters else 0.0


def is_tall(quad: Quad) -> bool:
    """Whether a quad looks like a column rather than a line."""
    width, height = quad_size(quad)
    return height > _TALL * width


def upright_rotation(image: Image, quads: Sequence[Quad], *, threads: int) -> tuple[int, bool]:
    """Quarter turn that a page with mostly tall boxes needs, judged by reading the longest boxes.

    :return: degrees clockwise (0, 90 or 270) and whether the text is vertical.
    """
    tall = [quad for quad in quads if is_tall(quad)]
    length = sum(max(quad_size(quad)) for quad in quads)
    if len(tall) < 2 or sum(quad_size(quad)[1] for quad in tall) < 0.6 * length:
        return 0, False
    tall.sort(key=lambda quad: -quad_size(quad)[1])
    crops = [crop_quad(image, quad) for quad in tall[:_PROBES]]
    left = recognize([np.ascontiguousarray(np.rot90(crop)) for crop in crops], threads=threads)
    right = recognize([np.ascontiguousarray(np.rot90(crop, 3)) for crop in crops], threads=threads)
    if mean_score(right) > mean_score(left):
        return 90, False
    if _reads_unturned(crops, left, threads=threads):
        return 0, True
    return 270, False


def _reads_unturned(crops: Sequence[Image], readings: Sequence[Reading], *, threads: int) -> bool:
    """Whether the single characters of tall boxes stand upright as they are: vertical CJK text.

    The model reads columns of upright characters lying on their side as well as lines of a turned page, so
    the score does not tell them apart. Cells cut out of the column and set side by side do.
    """
    strips: list[Image] = []
    expected: list[str] = []
    for crop, reading in zip(crops, readings, strict=True):
        height, width = crop.shape[:2]
        if sum(ord(char) >= 0x2E80 for char in reading.text) < 0.5 * len(reading.text):
            continue
        half = width // 2
        if half < 2 or height < 4 * half:
            continue
        # The first and the last cell move inwards, so that all are squares of one size.
        middles = [min(max(round(center * height), half), height - half) for center in reading.centers[:8]]
        cells = [crop[y - half : y + half] for y in middles]
        if len(cells) >= 2:
            strips.append(np.ascontiguousarray(np.concatenate(cells, axis=1)))
            expected.append(reading.text[:8])
    if not strips:
        return False
    seen = recognize(strips, threads=threads)
    matches = [
        difflib.SequenceMatcher(None, text, reading.text, autojunk=False).ratio()
        for text, reading in zip(expected, seen, strict=True)
    ]
    return sum(matches) / len(matches) > 0.4


def estimate_skew(quads: Sequence[Quad], page_width: int) -> float:
    """Degrees by which the lines of a page fall to the right; 0 where that is too little to matter.

    :param page_width: pixels; short boxes say nothing about the angle.
    """
    weighted: list[tuple[float, float]] = []
    for quad in quads:
        width, height = quad_size(quad)
        if width > 4 * height and width > 0.08 * page_width:
            delta = quad[1] - quad[0] + quad[2] - quad[3]
            weighted.append((math.degrees(math.atan2(float(delta[1]), float(delta[0]))), width))
    weighted.sort()
    half, total = sum(weight for _, weight in weighted) / 2, 0.0
    for angle, weight in weighted:
        total += weight
        if total >= half:
            return angle if _MIN_SKEW <= abs(angle) <= _MAX_SKEW else 0.0
    return 0.0


def turn_image(image: Image, degrees: int) -> Image:
    """Turn clockwise by a multiple of 90 degrees."""
    return np.ascontiguousarray(np.rot90(image, -degrees // 90))


def _turn_back(degrees: int) -> Matrix:
    """Unit coordinates of a page turned clockwise by `degrees` to those of the page before."""
    return {
        0: np.eye(3),
        90: np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]),
        180: np.array([[-1.0, 0.0, 1.0], [0.0, -1.0, 1.0], [0.0, 0.0, 1.0]]),
        270: np.array([[0.0, -1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]),
    }[degrees % 360]


def deskew(image: Image, quads: Sequence[Quad], skew: float) -> tuple[Image, list[Quad], Matrix]:
    """Turn by a small angle on a canvas that keeps every corner.

    :return: image, quads, and the matrix from the new unit coordinates to the old ones.
    """
    import cv2

    height, width = image.shape[:2]
    sine, cosine = abs(math.sin(math.radians(skew))), math.cos(math.radians(skew))
    new_width, new_height = math.ceil(width * cosine + height * sine), math.ceil(height * cosine + width * sine)
    turn: NDArray[np.float64] = np.asarray(cv2.getRotationMatrix2D((width / 2, height / 2), skew, 1.0), np.float64)
    turn[:, 2] += (new_width - width) / 2, (new_height - height) / 2
    edge = np.concatenate([image[0], image[-1], image[:, 0], image[:, -1]])
    paper = tuple(float(value) for value in np.median(edge, axis=0))
    turned = cv2.warpAffine(image, turn, (new_width, new_height), flags=cv2.INTER_LINEAR, borderValue=paper)
    moved = [np.asarray(quad @ turn[:, :2].T + turn[:, 2], dtype=np.float32) for quad in quads]
    pixels = np.linalg.inv(np.vstack([turn, [0, 0, 1]]))
    back = np.diag([1 / width, 1 / height, 1.0]) @ pixels @ np.diag([new_width, new_height, 1.0])
    return np.asarray(turned, dtype=np.uint8), moved, np.asarray(back, dtype=np.float64)
