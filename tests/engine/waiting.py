"""Letting an event loop come to rest."""

from __future__ import annotations

import asyncio


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)
