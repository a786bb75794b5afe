"""Tables that go on across a page break.

docvortex marks such a table itself (``continues_prev``) where structure, width and caption leave no doubt, and its
renderers join what is marked, without a header row that is repeated word for word. The model is asked about the rest.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

from mineru_engine.enhance.language_model import LanguageModel
from mineru_engine.pdf.continuity import plain_text
from mineru_engine.protocol import Protocol

__all__ = ("Join", "Pair", "ask_joins", "find_pairs")

RawBlock = dict[str, Any]

_CAPTIONS = ("caption", "table_caption")
_ROWS_SHOWN = 3
_LONGEST_CELL = 80
_SAME_HEADER = 0.8  # likeness from which a row may be a misread copy of the header; below, it holds data
_TASK = """You judge whether the first table, at the end of a page, goes on as the second, at the top of the next page.
"first" holds the header row of the first table and its last rows, "second" the first rows of the second table,
"caption" what stands above the second table, if anything does.
Answer with {"continues": true or false, "repeats_header": true or false}.
"continues": the second table is the rest of the first, not a table of its own.
"repeats_header": the first row of the second table is the header row of the first one again, perhaps misread."""


class _Answer(BaseModel):
    continues: bool
    repeats_header: bool


_SURE = _Answer(continues=True, repeats_header=False)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two tables with nothing but a page break, and perhaps a caption, between them.

    :ivar page: all blocks of the second one's page.
    :ivar marked: docvortex will mark the second as the rest of the first.
    :ivar question: what the model is asked; ``None`` where its answer could not change anything.
    """

    first: RawBlock
    second: RawBlock
    page: list[RawBlock]
    marked: bool
    question: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Join:
    """One change to the document.

    :ivar table: gets ``content``.
    :ivar absorbed: a table whose rows are in ``content`` now, and the page it goes from; its picture stays there.
    """

    table: RawBlock
    content: str
    absorbed: tuple[list[RawBlock], RawBlock] | None = None

    def apply(self) -> None:
        """Change the document."""
        self.table["content"] = self.content
        if self.absorbed is not None:
            page, block = self.absorbed
            place = next(place for place, other in enumerate(page) if other is block)
            page[place : place + 1] = _picture(block)


def _picture(table: RawBlock) -> list[RawBlock]:
    if not table.get("image_path"):
        return []
    picture: RawBlock = {name: table[name] for name in ("bbox", "angle", "image_path") if name in table}
    return [picture | {"type": "image", "content": ""}]


def find_pairs(pages: Sequence[list[RawBlock]], numbers: Sequence[int]) -> list[Pair]:
    """All pairs of tables that may be one, in order.

    :param numbers: zero-based page index of each page; only neighbours can share a table.
    """
    breaks = zip(pairwise(pages), pairwise(numbers), strict=True)
    found = [_pair(page, following) for (page, following), (left, right) in breaks if right == left + 1]
    return [pair for pair in found if pair is not None]


def _pair(page: list[RawBlock], following: list[RawBlock]) -> Pair | None:
    from docvortex.content.table import can_merge_by_structure

    first, (second, caption) = _last_table(page), _first_table(following)
    if first is None or second is None:
        return None
    upper, lower = _state(first), _state(second)
    if upper is None or lower is None or not can_merge_by_structure(lower, upper):
        return None
    header, *rows = (_cells(row) for row in upper.rows)
    question = {
        "first": {"header": header, "last_rows": rows[-_ROWS_SHOWN:]},
        "caption": caption,
        "second": [_cells(row) for row in lower.rows[:_ROWS_SHOWN]],
    }
    marked = _is_marked(page, following)
    is_open = not marked or _may_be_misread(upper.rows[0], lower.rows[0])
    return Pair(first, second, following, marked, question if is_open else None)


def _body(page: list[RawBlock]) -> list[RawBlock]:
    from docvortex.schema import MERGE_TRANSPARENT_BLOCK_TYPES

    return [block for block in page if block.get("type") not in MERGE_TRANSPARENT_BLOCK_TYPES]


def _last_table(page: list[RawBlock]) -> RawBlock | None:
    body = _body(page)
    return body[-1] if body and body[-1].get("type") == "table" else None


def _first_table(page: list[RawBlock]) -> tuple[RawBlock | None, str | None]:
    """The table that begins a page, and its caption if that stands above it."""
    from docvortex.content.table.rules import is_table_continuation_text

    body, caption = _body(page), None
    if body and body[0].get("type") != "table":
        head = body.pop(0)
        caption = " ".join(plain_text(head).split())
        if head.get("type") not in _CAPTIONS and not is_table_continuation_text(caption):
            return None, None
    return (body[0], caption) if body and body[0].get("type") == "table" else (None, None)


def _is_marked(page: list[RawBlock], following: list[RawBlock]) -> bool:
    middle, _ = Protocol("pdf", [page, following], [], {}, None)()
    return any(getattr(block, "continues_prev", False) for block in middle.pages[1].blocks if block.type == "table")


def _state(table: RawBlock) -> Any:
    from docvortex.content.table import build_table_state_from_html

    html = table.get("content")
    return build_table_state_from_html(html) if isinstance(html, str) else None


def _cells(row: Any) -> list[str]:
    return [cell.get_text(" ", strip=True)[:_LONGEST_CELL] for cell in row.find_all(["td", "th"])]


def _may_be_misread(header: Any, row: Any) -> bool:
    """Whether a row is like the header, but not the same."""
    cells, others = _cells(header), _cells(row)
    text, other = ("".join("".join(texts).split()) for texts in (cells, others))
    return len(cells) == len(others) and _SAME_HEADER <= SequenceMatcher(None, text, other).ratio() < 1


async def ask_joins(model: LanguageModel, pairs: Sequence[Pair]) -> list[Join]:
    """What is to be changed, in order.

    :raises EngineError: if a question is not answered.
    """
    answers = [_SURE if pair.question is None else await model.ask(_TASK, pair.question, _Answer) for pair in pairs]
    return await asyncio.to_thread(_plan, pairs, answers)


def _plan(pairs: Sequence[Pair], answers: Sequence[_Answer]) -> list[Join]:
    joins: list[Join] = []
    grown: dict[int, tuple[RawBlock, str]] = {}  # id of a second table → where its rows go, and all that is there
    for pair, answer in zip(pairs, answers, strict=True):
        target, above = grown.get(id(pair.first), (pair.first, pair.first["content"]))
        content = pair.second["content"]
        if not answer.continues:
            continue
        if answer.repeats_header:
            content = _with_header(above, content)
        if pair.marked and target is pair.first:
            grown[id(pair.second)] = pair.second, content
            joins.append(Join(pair.second, content))
        elif (whole := _appended(above, content, pair.second.get("cell_merge"))) is not None:
            grown[id(pair.second)] = target, whole
            joins.append(Join(target, whole, (pair.page, pair.second)))
    return joins


def _with_header(above: str, html: str) -> str:
    """The table with its first row worded like the header above, so that docvortex sees that it is one."""
    from docvortex.content.table import build_table_state_from_html

    header, rest = (build_table_state_from_html(text) for text in (above, html))
    if not _may_be_misread(header.rows[0], rest.rows[0]):
        return html
    cells = (row.find_all(["td", "th"]) for row in (header.rows[0], rest.rows[0]))
    for right, misread in zip(*cells, strict=True):
        misread.clear()
        misread.extend([copy.copy(child) for child in right.contents])
    return str(rest.soup)


def _appended(above: str, html: str, cell_merge: list[int] | None) -> str | None:
    """Both tables as one, without a repeated header; ``None`` if docvortex finds no way."""
    from docvortex.content.table import merge_table_content

    first, second = (
        # the same place for both: that their widths differ has been judged already
        {"type": "table", "bbox": [0, 0, 1, 1], "content": [{"type": "table_body", "index": 0, "content": text}]}
        for text in (above, html)
    )
    merged = merge_table_content(first, second | {"cell_merge": cell_merge})
    return None if merged is None else str(merged["content"][0]["content"])
