"""Tables on a scan without a table model: from ruled lines where there are any, else from the text boxes."""

from __future__ import annotations

import html
import statistics
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from docvortex.content.text import merge_text_line_contents

from .lines import Box, TextLine, span_overlap
from .paragraphs import join_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

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


def table_html(image: np.ndarray[Any, np.dtype[np.uint8]], box: Box, lines: Sequence[TextLine]) -> str:
    """Build the HTML of a table.

    :param image: RGB page.
    :param box: the table, unit coordinates.
    :param lines: text lines in the table.
    :return: ``<table>...</table>``, or an empty string where no table with two columns can be made out.
    """
    if not lines:
        return ""
    grid = find_grid(image, box, lines)
    if grid is not None:
        _fill(grid, lines)
    if grid is None or _crowded(grid):
        # A few rules in the heading are no grid: they leave whole rows in one cell.
        grid = cluster_grid(lines)
        if grid is None:
            return ""
        _fill(grid, lines)
    return _render(grid)


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


def cluster_grid(lines: Sequence[TextLine]) -> Grid | None:
    """Rows and columns of an unruled table from the gaps between its text boxes; None for a single column."""
    bands = _bands(lines)
    size = statistics.median(line.height for line in lines)
    gutters = _gutters(bands)
    if len(bands) < 2 or not gutters:
        return None
    xs = (min(line.bbox[0] for line in lines), *gutters, max(line.bbox[2] for line in lines))
    middles = [
        (max(line.bbox[3] for line in above) + min(line.bbox[1] for line in below)) / 2
        for above, below in pairwise(bands)
    ]
    ys = (
        min(line.bbox[1] for line in lines) - size,
        *middles,
        max(line.bbox[3] for line in lines) + size,
    )
    cells: list[Cell] = []
    for row, band in enumerate(bands):
        cells.extend(_band_cells(row, band, xs))
    return Grid(xs, ys, tuple(cells))


def _bands(lines: Sequence[TextLine]) -> list[list[TextLine]]:
    """Lines that stand beside each other, from top to bottom."""
    bands: list[list[TextLine]] = []
    for line in sorted(lines, key=lambda one: one.bbox[1] + one.bbox[3]):
        if bands and any(span_overlap(o.bbox[1], o.bbox[3], line.bbox[1], line.bbox[3]) > 0.5 for o in bands[-1]):
            bands[-1].append(line)
        else:
            bands.append([line])
    return bands


def _gutters(bands: Sequence[Sequence[TextLine]]) -> list[float]:
    """Unit x of the white columns that hardly any row crosses, without the margins."""
    steps = 500
    left = min(line.bbox[0] for band in bands for line in band)
    right = max(line.bbox[2] for band in bands for line in band)
    rows = [band for band in bands if len(band) > 1]
    if not rows or right <= left:
        return []
    used: NDArray[np.int64] = np.zeros(steps, dtype=np.int64)
    for band in rows:
        marks = np.zeros(steps, dtype=bool)
        for line in band:
            a, b = ((edge - left) / (right - left) * steps for edge in (line.bbox[0], line.bbox[2]))
            # Boxes are a little wider than their text.
            marks[round(a) + 1 : max(round(a) + 2, round(b) - 1)] = True
        used += marks
    free = used <= 0.1 * len(rows)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], free, [False]]).astype(np.int8)))
    runs = list(zip(edges[::2], edges[1::2], strict=True))
    return [left + (a + b) / 2 / steps * (right - left) for a, b in runs if a > 0 and b < steps and b - a >= 3]


def _band_cells(row: int, band: Sequence[TextLine], xs: Sequence[float]) -> list[Cell]:
    """Cells of one row: a line that lies across several columns gets a cell as wide."""
    columns = len(xs) - 1
    cells: list[Cell] = []
    column = 0
    while column < columns:
        last = column
        for line in band:
            inside = [c for c in range(columns) if span_overlap(line.bbox[0], line.bbox[2], xs[c], xs[c + 1]) > 0.3]
            if inside and inside[0] <= column <= inside[-1] and not _cuts(line, xs):
                last = max(last, inside[-1])
        cells.append(Cell(row, column, 1, last - column + 1))
        column = last + 1
    return cells


def _cuts(line: TextLine, xs: Sequence[float]) -> bool:
    """Whether a gap in the line's own text falls on a column boundary."""
    return len(_pieces(line, xs)) > 1


def _pieces(line: TextLine, xs: Sequence[float]) -> list[TextLine]:
    """Cut a line where a column boundary runs through a gap in its text."""
    if len(line.centers) != len(line.text) or line.vertical:
        return [line]
    pitch = statistics.median(b - a for a, b in pairwise(line.centers)) if len(line.centers) > 2 else 0.0
    parts: list[TextLine] = []
    start = 0
    for x in xs[1:-1]:
        cut = next((i for i in range(start + 1, len(line.centers)) if line.centers[i] > x), None)
        if cut is None or line.centers[cut - 1] >= x:
            continue
        blank = " " in line.text[cut - 1 : cut + 1]
        if not blank and line.centers[cut] - line.centers[cut - 1] < 2.0 * pitch:
            continue
        parts.append(_part(line, start, cut))
        start = cut
    parts.append(_part(line, start, len(line.text)))
    return [part for part in parts if part.text]


def _part(line: TextLine, start: int, stop: int) -> TextLine:
    if start == 0 and stop == len(line.text):
        return line
    left = line.bbox[0] if start == 0 else (line.centers[start] + line.centers[start - 1]) / 2
    right = line.bbox[2] if stop == len(line.text) else (line.centers[stop] + line.centers[stop - 1]) / 2
    box = (left, line.bbox[1], right, line.bbox[3])
    return TextLine(box, line.text[start:stop].strip(), line.score)


def _fill(grid: Grid, lines: Sequence[TextLine]) -> None:
    """Give every line, or every piece of it, to the cell that it lies in; nothing is dropped."""
    for line in lines:
        for piece in _pieces(line, grid.xs):
            x, y = (piece.bbox[0] + piece.bbox[2]) / 2, (piece.bbox[1] + piece.bbox[3]) / 2
            min(grid.cells, key=lambda cell: _distance(grid, cell, x, y)).lines.append(piece)


def _crowded(grid: Grid) -> bool:
    """Whether many lines stand side by side, well apart, inside one cell."""
    beside = total = 0
    for cell in grid.cells:
        for band in _bands(cell.lines):
            total += len(band)
            ordered = sorted(band, key=lambda line: line.bbox[0])
            if any(b.bbox[0] - a.bbox[2] > 0.3 * a.height for a, b in pairwise(ordered)):
                beside += len(band)
    return beside > 0.25 * total


def _distance(grid: Grid, cell: Cell, x: float, y: float) -> float:
    left, right = grid.xs[cell.column], grid.xs[cell.column + cell.column_span]
    top, bottom = grid.ys[cell.row], grid.ys[cell.row + cell.row_span]
    return max(left - x, 0.0, x - right) + max(top - y, 0.0, y - bottom)


def _render(grid: Grid) -> str:
    rows: list[str] = []
    for index in range(len(grid.ys) - 1):
        cells = [cell for cell in grid.cells if cell.row == index]
        reaching = any(cell.row < index < cell.row + cell.row_span for cell in grid.cells)
        for texts in ([] if reaching else _inner_rows(cells)) or [[_cell_text(cell) for cell in cells]]:
            parts: list[str] = []
            for cell, text in zip(cells, texts, strict=True):
                spans = f' rowspan="{cell.row_span}"' if cell.row_span > 1 else ""
                spans += f' colspan="{cell.column_span}"' if cell.column_span > 1 else ""
                parts.append(f"<td{spans}>{html.escape(text, quote=False)}</td>")
            rows.append(f"<tr>{''.join(parts)}</tr>")
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def _cell_text(cell: Cell) -> str:
    return merge_text_line_contents([row.text for row in join_rows(cell.lines)])


def _inner_rows(cells: Sequence[Cell]) -> list[list[str]]:
    """Rows that no rule divides: every cell holds the same number of lines, side by side. Else empty."""
    stacks = [join_rows(cell.lines) for cell in cells]
    filled = [stack for stack in stacks if stack]
    count = len(filled[0]) if filled else 0
    if count < 2 or len(filled) < 2 or len(filled) + count < 5 or any(len(stack) != count for stack in filled):
        return []
    if any(cell.row_span > 1 for cell in cells):
        return []
    for level in zip(*filled, strict=True):
        middles = [(row.bbox[1] + row.bbox[3]) / 2 for row in level]
        if max(middles) - min(middles) > 0.5 * level[0].size:
            return []
    return [[stack[i].text if stack else "" for stack in stacks] for i in range(count)]
