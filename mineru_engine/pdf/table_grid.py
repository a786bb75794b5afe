"""Tables on a scan without a table model: from ruled lines where there are any, else from the text boxes."""

from __future__ import annotations

import html
import statistics
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from docvortex.content.text import merge_text_line_contents

from mineru_engine.pdf.lines import Box, TextLine, span_overlap
from mineru_engine.pdf.paragraphs import join_rows
from mineru_engine.pdf.table_rules import Cell, Grid, find_grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell as it is written: spans are counted from 1."""

    text: str
    row_span: int = 1
    column_span: int = 1


def table_html(image: np.ndarray[Any, np.dtype[np.uint8]], box: Box, lines: Sequence[TextLine]) -> str:
    """Build the HTML of a table; parameters as for :func:`table_rows`.

    :return: ``<table>...</table>``, or an empty string where no table with two columns can be made out.
    """
    rows = table_rows(image, box, lines)
    body = "".join(f"<tr>{''.join(map(_cell_html, row))}</tr>" for row in rows)
    return f"<table><tbody>{body}</tbody></table>" if rows else ""


def table_rows(
    image: np.ndarray[Any, np.dtype[np.uint8]], box: Box, lines: Sequence[TextLine]
) -> list[list[TableCell]]:
    """Find the cells of a table.

    :param image: RGB page.
    :param box: the table, unit coordinates.
    :param lines: text lines in the table.
    :return: the cells that begin in each row; empty where no table with two columns can be made out.
    """
    if not lines:
        return []
    grid = find_grid(image, box, lines)
    if grid is not None:
        _fill(grid, lines)
    if grid is None or _crowded(grid):
        # A few rules in the heading are no grid: they leave whole rows in one cell.
        grid = cluster_grid(lines)
        if grid is None:
            return []
        _fill(grid, lines)
    return _written_rows(grid)


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
        if cut is None or line.centers[cut - 1] > x:
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


def is_filled_grid(grid: Grid, lines: Sequence[TextLine]) -> bool:
    """Whether rules found on a page hold a table: few lines to a cell. Those of a newspaper hold articles."""
    _fill(grid, lines)
    counts = [len(cell.lines) for cell in grid.cells if cell.lines]
    filled = not _crowded(grid) and len(counts) >= 4 and max(counts) <= 12 and statistics.median(counts) <= 3
    for cell in grid.cells:
        cell.lines.clear()
    return filled


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


def _written_rows(grid: Grid) -> list[list[TableCell]]:
    rows: list[list[TableCell]] = []
    for index in range(len(grid.ys) - 1):
        cells = [cell for cell in grid.cells if cell.row == index]
        if len(cells) == 1 and not cells[0].lines and cells[0].column_span == len(grid.xs) - 1:
            # A double rule or a frame around the table, not a row.
            continue
        reaching = any(cell.row < index < cell.row + cell.row_span for cell in grid.cells)
        written = ([] if reaching else _inner_rows(cells)) or [[_cell_text(cell) for cell in cells]]
        rows.extend([_as_written(*pair) for pair in zip(cells, texts, strict=True)] for texts in written)
    return rows


def _as_written(cell: Cell, text: str) -> TableCell:
    return TableCell(text, cell.row_span, cell.column_span)


def _cell_html(cell: TableCell) -> str:
    spans = f' rowspan="{cell.row_span}"' if cell.row_span > 1 else ""
    spans += f' colspan="{cell.column_span}"' if cell.column_span > 1 else ""
    return f"<td{spans}>{html.escape(cell.text, quote=False)}</td>"


def _cell_text(cell: Cell) -> str:
    return str(merge_text_line_contents([row.text for row in join_rows(cell.lines)]))


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
