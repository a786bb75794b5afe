"""How far a document has come, as told to a caller's callback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ("Progress", "ProgressCallback")


@dataclass(frozen=True, slots=True)
class Progress:
    """State of one document.

    :ivar done: pages finished.
    :ivar total: pages to do; 0 while unknown.
    """

    document: str
    done: int
    total: int


ProgressCallback = Callable[[Progress], None]
"""Called on the runtime's thread; must not block."""
