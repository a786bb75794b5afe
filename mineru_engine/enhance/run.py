"""All questions about one document; the document changes only when all were answered well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from mineru_engine.enhance.language_model import language_model
from mineru_engine.enhance.tables import ask_joins, find_pairs
from mineru_engine.enhance.titles import ask_levels, find_titles
from mineru_engine.errors import EngineError, EngineUnavailableError
from mineru_engine.exchange import ExchangeCallback
from mineru_engine.settings import EnhanceSettings

__all__ = ("enhance",)

RawBlock = dict[str, Any]


async def enhance(
    pages: list[list[RawBlock]],
    numbers: Sequence[int],
    settings: EnhanceSettings,
    note: Callable[[str, str], None],
    on_exchange: ExchangeCallback | None = None,
) -> None:
    """Improve a document in place with what a language model says about it. Never fails because of the model.

    All or nothing: if a question cannot be asked or an answer cannot be used, the document stays as it was and
    ``note`` is called once with ``enhance_failed`` and the reason. Cancelling closes the requests in flight.

    :param pages: the raw blocks of each page, in order.
    :param numbers: zero-based page index of each of them.
    :param note: takes the code and the message of a diagnostic.
    :param on_exchange: hears each question and its answer.
    """
    if not settings.active:
        return
    try:
        await _improve(pages, numbers, settings, on_exchange)
    except EngineError as exc:
        note("enhance_failed", f"title levels and tables stay as they were found: {exc.message}")


async def _improve(
    pages: list[list[RawBlock]],
    numbers: Sequence[int],
    settings: EnhanceSettings,
    on_exchange: ExchangeCallback | None,
) -> None:
    if not settings.server_url:
        raise EngineUnavailableError("no server is set: MINERU_ENHANCE_SERVER_URL")
    titles = find_titles(pages, numbers) if settings.title_levels else []
    pairs = await asyncio.to_thread(find_pairs, pages, numbers) if settings.tables else []
    if not titles and not any(pair.question for pair in pairs):
        return
    async with language_model(settings, on_exchange) as model:
        levels = await ask_levels(model, titles)
        joins = await ask_joins(model, pairs)
    for title, level in zip(titles, levels, strict=True):
        title.set_level(level)
    for join in joins:
        join.apply()
