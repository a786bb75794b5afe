"""All questions about one document; the document changes only when all were answered well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from mineru_engine.enhance.language_model import language_model
from mineru_engine.enhance.tables import ask_joins, find_pairs
from mineru_engine.enhance.titles import ask_levels, find_titles
from mineru_engine.errors import EngineError
from mineru_engine.settings import EnhanceSettings

__all__ = ("enhance",)

RawBlock = dict[str, Any]


async def enhance(
    pages: list[list[RawBlock]],
    numbers: Sequence[int],
    settings: EnhanceSettings,
    note: Callable[[str, str], None],
) -> None:
    """Improve a document in place with what a language model says about it. Never fails because of the model.

    All or nothing: if a question cannot be asked or an answer cannot be used, the document stays as it was and
    ``note`` is called once with ``enhance_failed`` and the reason. Cancelling closes the requests in flight.

    :param pages: the raw blocks of each page, in order.
    :param numbers: zero-based page index of each of them.
    :param note: takes the code and the message of a diagnostic.
    """
    await _Enhancement(pages, numbers, settings, note).run()


class _Enhancement:
    def __init__(
        self,
        pages: list[list[RawBlock]],
        numbers: Sequence[int],
        settings: EnhanceSettings,
        note: Callable[[str, str], None],
    ) -> None:
        self._pages = pages
        self._numbers = numbers
        self._settings = settings
        self._note = note

    async def run(self) -> None:
        if not self._settings.active:
            return
        if not self._settings.server_url:
            self._failed("no server is set: MINERU_ENHANCE_SERVER_URL")
            return
        try:
            await self._improve()
        except EngineError as exc:
            self._failed(exc.message)

    def _failed(self, reason: str) -> None:
        self._note("enhance_failed", f"title levels and tables stay as they were found: {reason}")

    async def _improve(self) -> None:
        titles = find_titles(self._pages, self._numbers) if self._settings.title_levels else []
        pairs = await asyncio.to_thread(find_pairs, self._pages, self._numbers) if self._settings.tables else []
        if not titles and not any(pair.question for pair in pairs):
            return
        async with language_model(self._settings) as model:
            levels = await ask_levels(model, titles)
            joins = await ask_joins(model, pairs)
        for title, level in zip(titles, levels, strict=True):
            title.set_level(level)
        for join in joins:
            join.apply()
