"""One recognised line of text and the few box operations that reading a page needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Box = tuple[float, float, float, float]
"""Left, top, right, bottom in unit coordinates: 0..1 of the page, origin top-left."""


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line of text on an upright page.

    :ivar bbox: unit coordinates of the upright page.
    :ivar score: mean confidence 0..1 of the characters; 1 for text that was not guessed.
    :ivar vertical: characters run from top to bottom.
    :ivar centers: unit x of each character of `text` (y where vertical), empty where unknown. Needed to cut
        a line that runs across table columns.
    """

    bbox: Box
    text: str
    score: float = 1.0
    vertical: bool = False
    centers: tuple[float, ...] = ()

    @property
    def height(self) -> float:
        """Unit height."""
        return self.bbox[3] - self.bbox[1]

    @property
    def size(self) -> float:
        """Thickness, close to the font size: unit height, or unit width of vertical text."""
        return self.bbox[2] - self.bbox[0] if self.vertical else self.height


def union(boxes: Iterable[Box]) -> Box:
    """Smallest box around all of `boxes`.

    :raises ValueError: there is none.
    """
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def area(box: Box) -> float:
    """Area of a box, 0 where it is empty."""
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def overlap(first: Box, second: Box) -> float:
    """Area that two boxes share."""
    return area(
        (max(first[0], second[0]), max(first[1], second[1]), min(first[2], second[2]), min(first[3], second[3]))
    )


def pixel_box(box: Box, width: int, height: int) -> tuple[int, int, int, int]:
    """The pixels of a unit box in an image of `width` × `height`: at least one, all inside the image."""
    left, top = (min(max(0, int(box[at] * size)), size - 1) for at, size in ((0, width), (1, height)))
    right, bottom = max(left + 1, min(width, round(box[2] * width))), max(top + 1, min(height, round(box[3] * height)))
    return left, top, right, bottom


def covered(inner: Box, outer: Box) -> float:
    """Share 0..1 of `inner` that lies in `outer`."""
    size = area(inner)
    return overlap(inner, outer) / size if size else 0.0


def span_overlap(a0: float, a1: float, b0: float, b1: float) -> float:
    """Shared part of two intervals as a share of the shorter one, 0..1."""
    shorter = min(a1 - a0, b1 - b0)
    return max(0.0, min(a1, b1) - max(a0, b0)) / shorter if shorter > 0 else 0.0


def clip_unit(box: Box) -> Box:
    """Cut a box to the page."""
    left, top, right, bottom = (min(1.0, max(0.0, value)) for value in box)
    return left, top, right, bottom
