"""Reading order of boxes on a page: recursive XY-cut that keeps columns whole.

The plain XY-cut (Nagy and Seth, 1984) cuts across columns wherever paragraph gaps happen to line up. Here
neighbouring strips are first joined again as long as one gutter runs through them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from mineru_engine.pdf.lines import Box, span_overlap

if TYPE_CHECKING:
    from collections.abc import Sequence

_SLACK: Final = 0.003
"""Boxes lose this much on each side, in unit coordinates: neighbours may touch or overlap a little."""
_SAME_COLUMN: Final = 0.2
"""Share of the narrower box's width by which boxes of one column overlap at least."""
_MIN_COLUMN: Final = 0.1
"""Unit width under which a stack of boxes is not a column of text."""


def reading_order(boxes: Sequence[Box], *, vertical: bool = False) -> list[int]:
    """Indices of `boxes` in the order a person reads them.

    :param vertical: columns run from top to bottom and follow each other from right to left.
    """
    if vertical:
        # Seen from its right-hand side, a vertical page is a horizontal one.
        boxes = [(top, 1 - right, bottom, 1 - left) for left, top, right, bottom in boxes]
    shrunk = [_shrink(box) for box in boxes]
    return _order(list(range(len(boxes))), shrunk)


def backward_jumps(boxes: Sequence[Box]) -> int:
    """How often a reader who takes the boxes in the given order has to go back: left, or up within a column.

    Going on to the top of the next column is no jump back. The lower number of two orders is the better order.
    """
    return sum(_goes_back(before, after) for before, after in pairwise(boxes))


def _goes_back(before: Box, after: Box) -> bool:
    if span_overlap(before[0], before[2], after[0], after[2]) > _SAME_COLUMN:
        return after[3] <= before[1] + _SLACK
    return after[2] <= before[0] + _SLACK and after[1] < before[3]


def _shrink(box: Box) -> Box:
    dx, dy = min(_SLACK, (box[2] - box[0]) / 4), min(_SLACK, (box[3] - box[1]) / 4)
    return box[0] + dx, box[1] + dy, box[2] - dx, box[3] - dy


def _order(items: list[int], boxes: Sequence[Box]) -> list[int]:
    if len(items) < 2:
        return items
    columns = _split(items, boxes, axis=0)
    if len(columns) > 1 and _are_columns(columns, boxes):
        return [index for column in columns for index in _order(column, boxes)]
    strips = _split(items, boxes, axis=1)
    if len(strips) == 1:
        return _order_tangle(items, boxes, columns)
    return [
        index
        for zone in _join_strips(strips, boxes)
        for index in (_order(zone, boxes) if len(zone) < len(items) else _rows(strips, boxes))
    ]


def _rows(strips: list[list[int]], boxes: Sequence[Box]) -> list[int]:
    return [index for strip in strips for index in _order(strip, boxes)]


def _split(items: Sequence[int], boxes: Sequence[Box], *, axis: int) -> list[list[int]]:
    """Group boxes whose projections on an axis (0: x, 1: y) touch; groups in rising order."""
    groups: list[list[int]] = []
    reach = 0.0
    for index in sorted(items, key=lambda i: boxes[i][axis]):
        if groups and boxes[index][axis] <= reach:
            groups[-1].append(index)
        else:
            groups.append([index])
            reach = boxes[index][axis + 2]
        reach = max(reach, boxes[index][axis + 2])
    return groups


def _are_columns(columns: Sequence[Sequence[int]], boxes: Sequence[Box]) -> bool:
    """Whether groups side by side are columns of text rather than the cells of one row."""
    if all(len(column) == 1 for column in columns):
        return True
    widths = [max(boxes[i][2] for i in column) - min(boxes[i][0] for i in column) for column in columns]
    return sum(width >= _MIN_COLUMN for width in widths) >= 2


def _join_strips(strips: list[list[int]], boxes: Sequence[Box]) -> list[list[int]]:
    """Join neighbouring strips that share a gutter, so that columns are read one after the other."""
    zones: list[list[list[int]]] = []
    for strip in strips:
        if zones:
            zone = [index for part in zones[-1] for index in part]
            columns = _split(zone + strip, boxes, axis=0)
            if len(columns) > 1 and _are_columns(columns, boxes) and _both_fill(zone, strip, columns):
                zones[-1].append(strip)
                continue
            zones.append([*_headings_of(strip, zones[-1], boxes), strip])
        else:
            zones.append([strip])
    return [[index for strip in zone for index in strip] for zone in zones]


def _headings_of(strip: Sequence[int], zone: list[list[int]], boxes: Sequence[Box]) -> list[list[int]]:
    """Take the last strips of a zone that rather belong to the strip under it: alone, and nearer to it."""
    taken: list[list[int]] = []
    below = min(boxes[i][1] for i in strip)
    while len(zone) > 1 and len(zone[-1]) == 1:
        box = boxes[zone[-1][0]]
        if below - box[3] >= box[1] - max(boxes[i][3] for i in zone[-2]):
            break
        below = box[1]
        taken.insert(0, zone.pop())
    return taken


def _both_fill(zone: Sequence[int], strip: Sequence[int], parts: Sequence[Sequence[int]]) -> bool:
    """A gutter counts if at least one of the two strips has text on either side of it."""
    for members in (zone, strip):
        chosen = set(members)
        if sum(not chosen.isdisjoint(part) for part in parts) > 1:
            return True
    return False


def _order_tangle(items: list[int], boxes: Sequence[Box], columns: list[list[int]]) -> list[int]:
    """Boxes that no straight cut separates: take the widest out and order what is above and below it."""
    if len(columns) > 1:
        return [index for column in columns for index in _order(column, boxes)]
    widest = max(items, key=lambda i: boxes[i][2] - boxes[i][0])
    middle = (boxes[widest][1] + boxes[widest][3]) / 2
    above = [i for i in items if i != widest and (boxes[i][1] + boxes[i][3]) / 2 < middle]
    below = [i for i in items if i != widest and i not in above]
    return [*_order(above, boxes), widest, *_order(below, boxes)]
