"""The ruled lines of a table on a page image, and the cells between them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mineru_engine.pdf.lines import Box, TextLine

if TYPE_CHECKING:
    from collections.abc import Sequence

Mask = np.ndarray[Any, np.dtype[np.uint8]]

_MIN_RULE: Final = 0.5
"""Share of a cell's side that must be inked for the side to count as ruled."""


@dataclass(slots=True)
class Cell:
    """A table cell; rows and columns are counted from 0, spans from 1."""

    row: int
    column: int
    row_span: int = 1
    column_span: int = 1
    lines: list[TextLine] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Grid:
    """Positions of the rules of a table, in unit coordinates of the page, and the cells between them."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]
    cells: tuple[Cell, ...]

    @property
    def box(self) -> Box:
        return self.xs[0], self.ys[0], self.xs[-1], self.ys[-1]


def find_grid(image: np.ndarray[Any, np.dtype[np.uint8]], box: Box, lines: Sequence[TextLine]) -> Grid | None:
    """Read the ruled lines of a table; None where they do not form rows and columns.

    :param lines: the text in the table: what lies inside a line of text is no horizontal rule.
    """
    import cv2

    height, width = image.shape[:2]
    pad = 6
    left, top = max(0, int(box[0] * width) - pad), max(0, int(box[1] * height) - pad)
    right, bottom = min(width, int(box[2] * width) + pad), min(height, int(box[3] * height) + pad)
    if right - left < 40 or bottom - top < 40:
        return None
    gray = cv2.cvtColor(np.ascontiguousarray(image[top:bottom, left:right]), cv2.COLOR_RGB2GRAY)
    ink = cv2.adaptiveThreshold(gray, 255, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY_INV, 31, 12)
    # Longer than any stroke of a letter.
    text_height = statistics.median(line.height for line in lines) * height if lines else 0.013 * height
    reach = max(25, round(1.5 * text_height))
    down = _rules(ink, (1, reach))
    for line in lines:
        trim = 0.2 * line.height
        y0, y1 = ((edge * height - top) for edge in (line.bbox[1] + trim, line.bbox[3] - trim))
        x0, x1 = ((edge * width - left) for edge in (line.bbox[0], line.bbox[2]))
        ink[max(0, round(y0)) : max(0, round(y1)), max(0, round(x0)) : max(0, round(x1))] = 0
    across = _rules(ink, (reach, 1))
    ys = _positions(_find_rules(across, axis=1), right - left)
    xs = _positions([r for r in _find_rules(down, axis=0) if _ends_on_rules(r, ys, bottom - top)], bottom - top)
    if len(ys) < 3 or len(xs) < 3:
        return None
    cells = _cells(across, down, xs, ys)
    if len(cells) < 4:
        return None
    unit_xs = tuple((x + left) / width for x in xs)
    unit_ys = tuple((y + top) / height for y in ys)
    return Grid(unit_xs, unit_ys, tuple(cells))


def _rules(ink: Mask, kernel: tuple[int, int]) -> Mask:
    """Keep straight runs of ink at least as long as the kernel (width, height), bridging small breaks."""
    import cv2

    bridge = np.ones((1, 5) if kernel[1] == 1 else (5, 1), np.uint8)
    closed = cv2.morphologyEx(ink, cv2.MORPH_CLOSE, bridge)
    # A rule that climbs one pixel in forty would be lost to an opening one pixel thick.
    thick = cv2.dilate(closed, np.ones((1, 3) if kernel[0] == 1 else (3, 1), np.uint8))
    opened = cv2.morphologyEx(thick, cv2.MORPH_OPEN, np.ones(kernel[::-1], np.uint8))
    return np.asarray(opened, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class _Rule:
    """A straight run of ink, in pixels of the crop: where it lies and from where to where it runs."""

    position: float
    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start


def _find_rules(rules: Mask, *, axis: int) -> list[_Rule]:
    """The runs of a mask of rules; `axis` is the coordinate that stays the same along them (1: y)."""
    import cv2

    count, _, stats, centers = cv2.connectedComponentsWithStats(rules, connectivity=8)
    along = 1 - axis
    return [
        _Rule(float(centers[i][axis]), int(stats[i][along]), int(stats[i][along] + stats[i][along + 2]))
        for i in range(1, count)
        # A filled cell or a photo is as thick as it is long.
        if stats[i][axis + 2] < 0.3 * stats[i][along + 2]
    ]


def _ends_on_rules(rule: _Rule, ys: Sequence[float], extent: int) -> bool:
    """Whether an upright rule joins the rules across: the strokes of stacked letters do not."""
    if rule.length > 0.6 * extent:
        return True
    return all(any(abs(end - y) < 16 for y in ys) for end in (rule.start, rule.stop))


def _positions(rules: Sequence[_Rule], extent: int) -> list[float]:
    """Where the rules lie, merging pieces and double rules."""
    merged: list[list[_Rule]] = []
    for rule in sorted(rules, key=lambda one: one.position):
        if merged and rule.position - merged[-1][-1].position <= 10:
            merged[-1].append(rule)
        else:
            merged.append([rule])
    totals = [(group, sum(rule.length for rule in group)) for group in merged]
    return [
        sum(rule.position * rule.length for rule in group) / total for group, total in totals if total > 0.04 * extent
    ]


def _cells(across: Mask, down: Mask, xs: Sequence[float], ys: Sequence[float]) -> list[Cell]:
    """Cells between the rules; neighbours without a rule between them become one."""
    rows, columns = len(ys) - 1, len(xs) - 1
    owner = {(r, c): (r, c) for r in range(rows) for c in range(columns)}

    def root(key: tuple[int, int]) -> tuple[int, int]:
        while owner[key] != key:
            key = owner[key]
        return key

    for r in range(rows):
        for c in range(columns):
            if c + 1 < columns and _inked(down, xs[c + 1], ys[r], ys[r + 1], axis=0) < _MIN_RULE:
                owner[root((r, c + 1))] = root((r, c))
            if r + 1 < rows and _inked(across, ys[r + 1], xs[c], xs[c + 1], axis=1) < _MIN_RULE:
                owner[root((r + 1, c))] = root((r, c))
    groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for key in owner:
        groups.setdefault(root(key), []).append(key)
    cells: list[Cell] = []
    for members in groups.values():
        r0, r1 = min(r for r, _ in members), max(r for r, _ in members)
        c0, c1 = min(c for _, c in members), max(c for _, c in members)
        if (r1 - r0 + 1) * (c1 - c0 + 1) == len(members):
            cells.append(Cell(r0, c0, r1 - r0 + 1, c1 - c0 + 1))
        else:
            # Not a rectangle, so a rule was missed: better too many cells than cells on top of each other.
            cells.extend(Cell(r, c) for r, c in members)
    return sorted(cells, key=lambda cell: (cell.row, cell.column))


def _inked(rules: Mask, position: float, start: float, stop: float, *, axis: int) -> float:
    """Share of the way from start to stop along a rule at `position` that carries ink nearby, 0..1."""
    trim = 0.1 * (stop - start)
    low, high = round(start + trim), max(round(start + trim) + 1, round(stop - trim))
    near, far = max(0, round(position) - 7), round(position) + 8
    band = rules[low:high, near:far] if axis == 0 else rules[near:far, low:high].T
    return float((band.max(axis=1) > 0).mean()) if band.size else 0.0
