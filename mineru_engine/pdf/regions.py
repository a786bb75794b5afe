"""Bringing layout regions and text lines together: which line belongs to which part of the page."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from mineru_engine.pdf.layout import LayoutLabel, Region
from mineru_engine.pdf.lines import Box, TextLine, area, covered, overlap, span_overlap, union

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_VISUAL: Final = frozenset({LayoutLabel.FIGURE, LayoutLabel.TABLE})
_FLOWING: Final = frozenset({LayoutLabel.TEXT, LayoutLabel.REFERENCE, LayoutLabel.FOOTER, LayoutLabel.HEADER})
_NUMBER: Final = re.compile(r"[ .·…]*\d{1,4}")
_NESTED: Final = 0.8
"""Share of a box from which it counts as lying inside another."""
_PROSE_INK: Final = 0.3
"""Share of a figure that text boxes cover where it is a block of prose. Charts and screenshots stay below."""
_PROSE_LINE: Final = 12
"""Characters in the median line of prose; labels in drawings are shorter."""


@dataclass(slots=True)
class Group:
    """A part of the page with its lines; `label` is None where the layout model saw nothing."""

    label: LayoutLabel | None
    bbox: Box
    lines: list[TextLine] = field(default_factory=list)

    def fit(self) -> Group:
        """The same group cut down to its text."""
        return replace(self, bbox=union(line.bbox for line in self.lines)) if self.lines else self

    @property
    def is_text(self) -> bool:
        return self.label is None or self.label in _FLOWING


def clean_regions(regions: Iterable[Region], lines: Sequence[TextLine]) -> list[Region]:
    """Drop doubles, regions inside figures and tables, and figures that are really columns of prose."""
    kept: list[Region] = []
    candidates = [region for region in regions if not _is_wrong(region, lines)]
    # A table or figure owns what lies in it, however sure the model is of the paragraph it sees there.
    for region in sorted(candidates, key=lambda one: (one.label not in _VISUAL, -one.score)):
        if not any(_is_double(region, other) for other in kept):
            kept.append(region)
    return [region for region in kept if not any(_is_part(region, other) for other in kept if other is not region)]


def _is_wrong(region: Region, lines: Sequence[TextLine]) -> bool:
    """Whether the lines in a region speak against its label."""
    inside = [line for line in lines if covered(line.bbox, region.bbox) > 0.7]
    if region.label is LayoutLabel.FIGURE:
        return len(inside) >= 4 and _is_prose(region, inside)
    return region.label in _FLOWING and len(inside) > 20 and _has_columns(inside)


def _has_columns(lines: Sequence[TextLine]) -> bool:
    """Whether half of the lines have another one beside them: then a paragraph is really several columns."""

    def is_beside(line: TextLine) -> bool:
        top, bottom = line.bbox[1], line.bbox[3]
        return any(o is not line and span_overlap(top, bottom, o.bbox[1], o.bbox[3]) > 0.5 for o in lines)

    return sum(map(is_beside, lines)) > 0.5 * len(lines)


def _is_prose(region: Region, inside: Sequence[TextLine]) -> bool:
    inked = sum(area(line.bbox) for line in inside) / area(region.bbox)
    length = statistics.median(len(line.text) for line in inside)
    # A page full of lines is a page of text, whatever its pictures.
    return (inked > _PROSE_INK or len(inside) > 60) and length >= _PROSE_LINE


def _is_double(region: Region, other: Region) -> bool:
    shared = overlap(region.bbox, other.bbox)
    return shared > 0.6 * (area(region.bbox) + area(other.bbox) - shared)


def _is_part(region: Region, other: Region) -> bool:
    """Whether `region` only repeats a piece of `other`."""
    if covered(region.bbox, other.bbox) < _NESTED or area(region.bbox) >= area(other.bbox):
        return False
    if other.label in _VISUAL:
        return True
    return region.label in _FLOWING and other.label in _FLOWING


def join_contents(lines: Sequence[TextLine], regions: Sequence[Region]) -> list[TextLine]:
    """Put the page numbers of a table of contents, a column of their own to the detector, behind their titles."""
    tables = [region.bbox for region in regions if region.label is LayoutLabel.TABLE]
    numbers = [
        line
        for line in lines
        if _NUMBER.fullmatch(line.text) and not any(covered(line.bbox, box) > 0.5 for box in tables)
    ]
    result = list(lines)
    for number in numbers:
        right, size = number.bbox[2], number.size
        column = [one for one in numbers if abs(one.bbox[2] - right) < size]
        if len(column) < 4:
            continue
        titles = [
            one
            for one in result
            if one not in numbers
            and one.bbox[2] < number.bbox[0] + size
            and span_overlap(one.bbox[1], one.bbox[3], number.bbox[1], number.bbox[3]) > 0.5
        ]
        title = max(titles, key=lambda one: one.bbox[2], default=None)
        if title is not None:
            text = f"{title.text.rstrip(' .·…')} {number.text.lstrip(' .·…')}"
            result[result.index(title)] = TextLine(union([title.bbox, number.bbox]), text, title.score)
            result.remove(number)
    return result


def group_lines(regions: Sequence[Region], lines: Sequence[TextLine]) -> list[Group]:
    """Give each line to one region; lines without one form groups of their own. No line is lost."""
    groups = [Group(region.label, region.bbox) for region in regions]
    free: list[TextLine] = []
    for line in lines:
        owner = _owner(line, groups)
        (owner.lines if owner else free).append(line)
    free = _extend_groups(groups, free)
    visual_or_text = [g if g.label in _VISUAL or g.label is LayoutLabel.EQUATION else g.fit() for g in groups]
    kept = [g for g in visual_or_text if g.lines or g.label in _VISUAL or g.label is LayoutLabel.EQUATION]
    kept.extend(free_groups(free))
    kept = _join_stacked(kept)
    return [part for group in kept for part in _split_around(group, kept)]


def _owner(line: TextLine, groups: Sequence[Group]) -> Group | None:
    """The smallest region among those that hold most of a line."""
    holders = [group for group in groups if covered(line.bbox, group.bbox) >= 0.5]
    return min(holders, key=lambda group: area(group.bbox), default=None)


def _extend_groups(groups: Sequence[Group], free: Sequence[TextLine]) -> list[TextLine]:
    """Let paragraphs grow by the lines that the model cut off at their edges; return what is still free."""
    rest = list(free)
    grown = True
    while grown:
        grown = False
        for line in list(rest):
            group = next((group for group in groups if group.is_text and _continues(group, line)), None)
            if group is not None:
                group.lines.append(line)
                rest.remove(line)
                grown = True
    return rest


def _continues(group: Group, line: TextLine) -> bool:
    """Whether a free line is set directly over, under or beside the lines of a text group."""
    if not group.lines or line.vertical or group.label in {LayoutLabel.HEADER, LayoutLabel.FOOTER}:
        return False
    box = union(one.bbox for one in group.lines)
    size = statistics.median(one.height for one in group.lines)
    if not 0.75 < line.height / size < 1.33:
        return False
    gap = max(box[1] - line.bbox[3], line.bbox[1] - box[3])
    inside = min(line.bbox[2], box[2]) - max(line.bbox[0], box[0])
    return gap < 0.6 * size and inside > 0.8 * (line.bbox[2] - line.bbox[0])


def free_groups(lines: Sequence[TextLine]) -> list[Group]:
    """Cluster lines that no region covers: neighbours of one size, under or close beside each other."""
    clusters: list[list[TextLine]] = []
    for cluster in _stack(lines, _is_under):
        # Columns may hang together by one heading or one box across a gutter.
        wide = len(cluster) > 20 and _has_columns(cluster)
        clusters.extend(_stack(cluster, _is_aligned_under) if wide else [cluster])
    # Only a line that has nothing over or under it may be the rest of one beside it: in a newspaper the
    # columns stand as close together as the words of a loosely set line.
    for cluster in [one for one in clusters if len(one) == 1]:
        partner = next((o for o in clusters if o is not cluster and any(_is_beside(x, cluster[0]) for x in o)), None)
        if partner is not None:
            partner.extend(cluster)
            clusters.remove(cluster)
    return [Group(None, union(line.bbox for line in cluster), cluster) for cluster in clusters]


def _stack(lines: Sequence[TextLine], joins: Callable[[TextLine, TextLine], bool]) -> list[list[TextLine]]:
    """Connected sets of lines; `joins` tells whether two hang together."""
    clusters: list[list[TextLine]] = []
    for line in sorted(lines, key=lambda one: (one.bbox[1], one.bbox[0])):
        touching = [cluster for cluster in clusters if any(joins(one, line) for one in cluster)]
        merged = [line]
        for cluster in touching:
            merged.extend(cluster)
            clusters.remove(cluster)
        clusters.append(merged)
    return clusters


def _is_aligned_under(first: TextLine, second: TextLine) -> bool:
    """Like :func:`_is_under`, for lines of one width or with one margin in common, as a column has."""
    if not _is_under(first, second):
        return False
    a, b, size = _compare(first, second)
    if max(a[2] - a[0], b[2] - b[0]) > 1.7 * min(a[2] - a[0], b[2] - b[0]):
        # A short last line starts where its column starts; a line across two columns ends elsewhere too.
        return abs(a[0] - b[0]) < size and a[2] - a[0] > b[2] - b[0]
    return abs(a[0] - b[0]) < 3 * size or abs(a[2] - b[2]) < 3 * size


def _is_under(first: TextLine, second: TextLine) -> bool:
    a, b, size = _compare(first, second)
    return (
        size > 0
        and span_overlap(a[1], a[3], b[1], b[3]) <= 0.6
        and max(a[1], b[1]) - min(a[3], b[3]) < 0.7 * size
        and span_overlap(a[0], a[2], b[0], b[2]) > 0.5
    )


def _is_beside(first: TextLine, second: TextLine) -> bool:
    a, b, size = _compare(first, second)
    return size > 0 and span_overlap(a[1], a[3], b[1], b[3]) > 0.6 and max(a[0], b[0]) - min(a[2], b[2]) < 1.2 * size


def _compare(first: TextLine, second: TextLine) -> tuple[Box, Box, float]:
    """Both boxes as of horizontal text, and their common size: 0 where they do not belong together."""
    a, b = first.bbox, second.bbox
    if first.vertical:
        a, b = (a[1], a[0], a[3], a[2]), (b[1], b[0], b[3], b[2])
    low, high = sorted((first.size, second.size))
    return a, b, low if first.vertical == second.vertical and high <= 1.4 * low else 0.0


def _join_stacked(groups: Sequence[Group]) -> list[Group]:
    """Join text groups set as one column: the model often cuts a paragraph in two."""
    result: list[Group] = []
    for group in sorted(groups, key=lambda one: one.bbox[1]):
        above = next((one for one in result if _is_stacked(one, group)), None)
        if above is None:
            result.append(group)
        else:
            above.lines.extend(group.lines)
            above.bbox = union([above.bbox, group.bbox])
    return result


def _is_stacked(above: Group, group: Group) -> bool:
    labels = {above.label, group.label}
    if not labels <= {LayoutLabel.TEXT, LayoutLabel.REFERENCE, None} or not above.lines or not group.lines:
        return False
    if above.lines[0].vertical or group.lines[0].vertical:
        return False
    sizes = [statistics.median(line.height for line in one.lines) for one in (above, group)]
    if max(sizes) > 1.2 * min(sizes):
        return False
    a, b = above.bbox, group.bbox
    shared = min(a[2], b[2]) - max(a[0], b[0])
    return -0.5 * sizes[0] < b[1] - a[3] < 0.6 * sizes[0] and shared > 0.8 * min(a[2] - a[0], b[2] - b[0])


def _split_around(group: Group, others: Sequence[Group]) -> list[Group]:
    """Cut a text group where a heading, a formula or a picture stands between its lines."""
    if not group.is_text or len(group.lines) < 2 or group.lines[0].vertical:
        return [group]
    cuts = sorted(
        (other.bbox[1] + other.bbox[3]) / 2
        for other in others
        if other is not group
        and other.lines
        and covered(other.bbox, group.bbox) > 0.6
        # Beside the text, as a box in a form, is not between its lines.
        and not any(span_overlap(one.bbox[1], one.bbox[3], other.bbox[1], other.bbox[3]) > 0.7 for one in group.lines)
    )
    parts: list[list[TextLine]] = [[] for _ in range(len(cuts) + 1)]
    for line in group.lines:
        middle = (line.bbox[1] + line.bbox[3]) / 2
        parts[sum(cut < middle for cut in cuts)].append(line)
    return [replace(group, lines=part).fit() for part in parts if part]
