"""Levels for the titles of a document, from all of them together."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from mineru_engine.enhance.language_model import LanguageModel
from mineru_engine.errors import EngineRequestError
from mineru_engine.pdf.continuity import plain_text

__all__ = ("Title", "ask_levels", "find_titles")

RawBlock = dict[str, Any]

_PER_QUESTION = 100
_SHOWN_BEFORE = 40
_LONGEST_TEXT = 120
_TOP, _DEEPEST = 2, 6  # level 1 is the document's title
_TASK = """You give the titles of a document their levels, as in a table of contents.
"titles" lists them in order: the text, the number of the page, the height of the lines in thousandths of the page, and
the level that was guessed. "before" lists titles that stand before these, with the levels that they have been given.
Level 1 is the title of the document: the titles that have it keep it, and no other gets it. The others are headings,
from 2 (chapter) to 6. The first heading of the document has level 2. A heading is at most one level deeper than the
one before it. Headings of the same rank have the same level throughout the document; their numbers, their wording and
the height of their lines tell their rank.
Answer with {"levels": [...]}: one whole number for each of "titles", in the same order."""


class _Levels(BaseModel):
    levels: list[int]


@dataclass(frozen=True, slots=True)
class Title:
    """A title block and what the model is told about it."""

    block: RawBlock
    facts: dict[str, Any]

    @property
    def is_heading(self) -> bool:
        """Whether it is something else than the document's title."""
        return bool(self.block["type"] == "paragraph_title")

    def set_level(self, level: int) -> None:
        """Give the heading its level. The document's title has none but 1."""
        if self.is_heading:
            self.block["level"] = level


def find_titles(pages: Sequence[list[RawBlock]], numbers: Sequence[int]) -> list[Title]:
    """All titles, in order; none if there are no two headings that could differ."""
    titles = [
        Title(block, _facts(block, number))
        for blocks, number in zip(pages, numbers, strict=True)
        for block in blocks
        if block.get("type") in ("doc_title", "paragraph_title")
    ]
    return titles if sum(title.is_heading for title in titles) > 1 else []


def _facts(block: RawBlock, number: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"text": " ".join(plain_text(block).split())[:_LONGEST_TEXT], "page": number + 1}
    boxes = [line["bbox"] for line in block.get("lines") or () if line.get("bbox")]
    if boxes:
        facts["height"] = round(1000 * statistics.median(box[3] - box[1] for box in boxes))
    facts["level"] = 1 if block["type"] == "doc_title" else block.get("level", _TOP)
    return facts


async def ask_levels(model: LanguageModel, titles: Sequence[Title]) -> list[int]:
    """A level for each title, in order.

    :raises EngineError: if the model gives none that can be used.
    """
    levels: list[int] = []
    for start in range(0, len(titles), _PER_QUESTION):
        part = titles[start : start + _PER_QUESTION]
        known = list(zip(titles, levels, strict=False))[-_SHOWN_BEFORE:]
        data = {
            "before": [title.facts | {"level": level} for title, level in known],
            "titles": [title.facts for title in part],
        }
        answer = await model.ask(_TASK, data, _Levels)
        if len(answer.levels) != len(part):
            raise EngineRequestError(f"the model gave {len(answer.levels)} levels for {len(part)} titles")
        levels += answer.levels
    _check(titles, levels)
    return list(_without_jumps(levels))


def _check(titles: Sequence[Title], levels: Sequence[int]) -> None:
    deepest = _TOP  # of the first heading
    for title, level in zip(titles, levels, strict=True):
        if not title.is_heading and level != 1:
            raise EngineRequestError(f"the model gave level {level} to the title of the document")
        if title.is_heading and not _TOP <= level <= deepest:
            raise EngineRequestError(f"the model gave level {level} where {_TOP} to {deepest} can be")
        if title.is_heading:
            deepest = _DEEPEST


def _without_jumps(levels: Sequence[int]) -> Iterator[int]:
    """Make each heading at most one deeper than what it stands under; siblings stay siblings."""
    above = [(1, 1)]  # as answered, as given
    for level in levels:
        while len(above) > 1 and above[-1][0] >= level:
            above.pop()
        given = min(level, above[-1][1] + 1)
        above.append((level, given))
        yield given
