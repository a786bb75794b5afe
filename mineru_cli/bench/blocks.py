"""What is said about a report, made once, and its forms for a terminal and for a pull request.

:mod:`mineru_cli.bench.html` has the third form.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from mineru_cli.errors import one_line

__all__ = ("Block", "Headline", "Lines", "Table", "markdown", "number", "plain")

NOT_MEASURED = "–"


@dataclass(frozen=True, slots=True)
class Headline:
    """The one sentence that a reader looks for.

    :ivar tone: ``good``, ``bad`` or ``open``.
    """

    text: str
    tone: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Short sentences under a heading.

    :ivar detail: left out on a terminal, folded in a pull request.
    """

    heading: str
    lines: Sequence[str]
    detail: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a heading; the columns named in ``words`` are text, the others are numbers."""

    heading: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: frozenset[str] = frozenset()
    detail: bool = False

    def told(self) -> Table:
        """Without the columns in which nothing was measured."""
        kept = [at for at in range(len(self.header)) if any(row[at] != NOT_MEASURED for row in self.rows)]
        rows = [[row[at] for at in kept] for row in self.rows]
        return Table(self.heading, [self.header[at] for at in kept], rows, self.words, self.detail)


Block: TypeAlias = Headline | Lines | Table


def number(value: float | None) -> str:
    """With three digits that count."""
    if value is None:
        return NOT_MEASURED
    size = abs(value)
    return f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3}f}"


def plain(blocks: Iterable[Block]) -> str:
    """For a terminal: the short form."""
    parts = [_plain(block) for block in blocks if isinstance(block, Headline) or not block.detail]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown(blocks: Iterable[Block]) -> str:
    """For a pull request: everything, with the details folded."""
    return "\n\n".join(filter(None, map(_markdown, blocks))) + "\n"


def _plain(block: Block) -> str:
    if isinstance(block, Headline):
        return one_line(block.text)
    body = _grid(block) if isinstance(block, Table) else [f"  {one_line(line)}" for line in block.lines]
    return "\n".join([one_line(f"{block.heading}:"), *body]) if body else ""


def _grid(table: Table) -> list[str]:
    if not table.rows:
        return []
    rows = [[one_line(cell) for cell in row] for row in (table.header, *table.rows)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(table.header))]
    justify = [str.ljust if name in table.words else str.rjust for name in table.header]
    return [
        "  " + "  ".join(put(cell, width) for put, cell, width in zip(justify, row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _markdown(block: Block) -> str:
    if isinstance(block, Headline):
        return f"### {_marked(block.text)}"
    body = _markdown_table(block) if isinstance(block, Table) else [f"- {_marked(line)}" for line in block.lines]
    if not body:
        return ""
    if block.detail:
        heading = f"<details><summary>{escape(block.heading)}</summary>"
        return "\n".join([heading, "", *body, "", "</details>"])
    return "\n".join([f"**{_marked(block.heading)}**", "", *body])


def _markdown_table(table: Table) -> list[str]:
    if not table.rows:
        return []
    rule = [":--" if name in table.words else "--:" for name in table.header]
    rows = [[_marked(cell) for cell in row] for row in (table.header, *table.rows)]
    return [f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:])]


def _marked(text: str) -> str:
    """Text in which nothing is taken for markup."""
    return "".join(f"\\{char}" if char in "\\`*_|<>[]#~" else char for char in one_line(text))
