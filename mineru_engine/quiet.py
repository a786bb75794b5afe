"""Library chatter stays out of the user's terminal unless asked for."""

from __future__ import annotations

import functools
import os

__all__ = ("quiet_docvortex",)


@functools.cache
def quiet_docvortex() -> None:
    """docvortex logs DEBUG to stderr through loguru: switch off its messages and nobody else's.

    Set ``MINERU_DEBUG=1`` to hear them.
    """
    if os.environ.get("MINERU_DEBUG"):
        return
    from loguru import logger

    logger.disable("docvortex")
