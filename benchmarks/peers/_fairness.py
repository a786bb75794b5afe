"""How long a short document takes alone, and in the middle of a long one: the same for every client.

Runs in the peers' virtual environments too, so it needs nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

LOOK_EVERY_S = 0.05


async def measure_fairness(
    server_url: str, parse: Callable[[Path], Awaitable[object]], short: Path, long: Path, *, repeats: int, middle: int
) -> dict[str, Any]:
    """Seconds of the short document, several times alone, then one after the other inside the long one.

    Those that end before the long one count; the first counts in any case: it began in the middle.

    :param repeats: the most short documents of each kind.
    :param middle: answered requests of the long document after which it counts as running.
    :raises RuntimeError: if the long document ended before it was in the middle.
    """
    await parse(short)
    alone = [await _seconds(parse(short)) for _ in range(repeats)]
    answered = await _answered(server_url)
    running = asyncio.create_task(_seconds(parse(long)))
    while not running.done():
        if await _answered(server_url) - answered >= middle:
            break
        await asyncio.sleep(LOOK_EVERY_S)
    inside: list[float] = []
    while len(inside) < repeats and not running.done():
        seconds = await _seconds(parse(short))
        if not inside or not running.done():
            inside.append(seconds)
    long_s = await running
    if not inside:
        raise RuntimeError(f"{long.name} ended too early")
    return {"alone_s": alone, "inside_s": inside, "long_s": long_s}


async def _seconds(work: Awaitable[object]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


async def _answered(server_url: str) -> int:
    """Requests that the simulated engine has answered."""
    return int((await asyncio.to_thread(_stats, server_url))["ok"])


def _stats(server_url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{server_url}/stats", timeout=10) as answer:
        stats: dict[str, Any] = json.load(answer)
    return stats
