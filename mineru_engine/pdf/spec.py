"""How a document is named between the engine and its workers."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ("SourceSpec",)


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """What a worker needs to open a document again.

    :ivar key: names the open document within one run of the engine.
    :ivar kind: ``pdf`` or ``image``.
    """

    path: str
    key: str
    kind: str
    password: str | None = field(default=None, repr=False)
