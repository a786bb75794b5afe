"""Library chatter stays out of the user's terminal unless asked for."""

from __future__ import annotations

import functools
import os

__all__ = ("quiet",)


@functools.cache
def quiet(library: str) -> None:
    """docvortex and mineru-vl-utils log DEBUG to stderr through loguru: switch off the messages of one of them.

    Set ``MINERU_DEBUG=1`` to hear them.

    :param library: name of its package.
    """
    if os.environ.get("MINERU_DEBUG"):
        return
    from loguru import logger

    logger.disable(library)
