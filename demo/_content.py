"""What a demo document says, and how that is written as Markdown.

A document is a list of blocks. ``_pdf`` draws the blocks, ``to_markdown`` writes them down: the PDF and
its ground truth come from the same objects, never from each other. Text uses a small inline markup:
``*emphasis*``, ``**strong**``, ``$LaTeX$`` and ``[^1]`` for a footnote mark.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Align = Literal["l", "c", "r"]
Rules = Literal["grid", "booktabs", "none"]


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the document title."""

    level: int
    text: str


@dataclass(frozen=True)
class Para:
    """A paragraph; ``style`` names a paragraph style of the PDF and changes nothing in the Markdown."""

    text: str
    style: str = "body"


@dataclass(frozen=True)
class Bullets:
    """A flat list, with bullets or with numbers."""

    items: tuple[str, ...]
    ordered: bool = False


@dataclass(frozen=True)
class Cell:
    """A table cell that covers more than one row or column."""

    text: str
    colspan: int = 1
    rowspan: int = 1


@dataclass(frozen=True)
class Table:
    """A table with its caption; every cell is listed once, at its top left corner.

    :param widths: shares of the available width.
    :param rules: a full grid, three horizontal rules, or none at all.
    """

    caption: str
    header: tuple[tuple[str | Cell, ...], ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    widths: tuple[float, ...]
    align: tuple[Align, ...]
    rules: Rules = "grid"


@dataclass(frozen=True)
class Formula:
    """A numbered display formula in the LaTeX subset that ``_math`` draws."""

    latex: str
    number: int


@dataclass(frozen=True)
class Figure:
    """A drawing with its caption. ``series`` are named lists of values, ``labels`` go along the x axis."""

    name: str
    caption: str
    kind: Literal["line", "bar"]
    labels: tuple[str, ...]
    series: tuple[tuple[str, tuple[float, ...]], ...]
    unit: str


@dataclass(frozen=True)
class Footnote:
    """A footnote, drawn at the foot of column ``column`` of page ``page`` (both from 1)."""

    mark: int
    text: str
    page: int
    column: int


@dataclass(frozen=True)
class Contents:
    """The table of contents; the entries (level, text, page) are known once the pages are laid out."""

    entries: tuple[tuple[int, str, int], ...] = ()


@dataclass(frozen=True)
class PageBreak:
    """A forced new page; nothing in the Markdown."""


Block = Heading | Para | Bullets | Table | Formula | Figure | Footnote | Contents | PageBreak

_NOTE_MARK = re.compile(r"\[\^(\d+)\]")


def place_cells(table: Table) -> list[tuple[int, int, Cell]]:
    """The cells of a table with their row and column, header first."""
    taken: set[tuple[int, int]] = set()
    placed: list[tuple[int, int, Cell]] = []
    for row_no, row in enumerate((*table.header, *table.rows)):
        column = 0
        for entry in row:
            cell = entry if isinstance(entry, Cell) else Cell(entry)
            while (row_no, column) in taken:
                column += 1
            placed.append((row_no, column, cell))
            taken.update(
                (row_no + down, column + right) for down in range(cell.rowspan) for right in range(cell.colspan)
            )
    if len(taken) != (len(table.header) + len(table.rows)) * len(table.widths):
        raise ValueError(f"table is not rectangular: {table.caption}")
    return placed


def to_markdown(blocks: Sequence[Block]) -> str:
    """Write the blocks as Markdown, in the given order."""
    parts = [_block_markdown(block) for block in blocks]
    return "\n\n".join(part for part in parts if part) + "\n"


def _block_markdown(block: Block) -> str:
    """One block as Markdown, without running headers, page numbers and other page furniture."""
    match block:
        case Heading():
            return f"{'#' * block.level} {_inline_markdown(block.text)}"
        case Para():
            return _inline_markdown(block.text)
        case Bullets():
            marks: Callable[[int], str] = (lambda n: f"{n}.") if block.ordered else (lambda n: "-")
            return "\n".join(f"{marks(n)} {_inline_markdown(item)}" for n, item in enumerate(block.items, start=1))
        case Table():
            return f"{_inline_markdown(block.caption)}\n\n{_table_html(block)}"
        case Formula():
            return f"$$\n{block.latex} \\tag{{{block.number}}}\n$$"
        case Figure():
            return f"![](images/{block.name}.png)\n\n{_inline_markdown(block.caption)}"
        case Footnote():
            return f"<small><sup>{block.mark}</sup> {_inline_markdown(block.text)}</small>"
        case Contents():
            return "\n".join(
                f"{'    ' * (level - 2)}- {_inline_markdown(text)} {page}" for level, text, page in block.entries
            )
        case PageBreak():
            return ""


def _table_html(table: Table) -> str:
    """The table as one line of HTML, as docvortex writes tables."""
    rows: dict[int, list[str]] = {}
    for row, _, cell in place_cells(table):
        spans = "".join(
            f' {name}="{size}"' for name, size in (("rowspan", cell.rowspan), ("colspan", cell.colspan)) if size > 1
        )
        text = html.escape(_inline_markdown(cell.text), quote=False)
        rows.setdefault(row, []).append(f"<td{spans}>{text}</td>")
    body = "".join(f"<tr>{''.join(rows.get(row, []))}</tr>" for row in range(len(table.header) + len(table.rows)))
    return f"<table><tbody>{body}</tbody></table>"


def _inline_markdown(text: str) -> str:
    """The inline markup is Markdown already, except for footnote marks and hyphenation points."""
    return _NOTE_MARK.sub(r"<sup>\1</sup>", text).replace("\xad", "")
