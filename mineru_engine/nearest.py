"""A name that nobody knows, and the one that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ("did_you_mean",)


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint that names the nearest of the names that exist; ``None`` if none is near."""
    near = get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else None
