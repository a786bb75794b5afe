"""One thing the doctor found out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ("Finding", "Level", "without_credentials")


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    NOTE = "note"  # nothing wrong, but worth knowing
    WARNING = "warning"  # works, but not as it should
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check.

    :ivar subject: what was checked.
    :ivar hint: what to do about it.
    :ivar details: further facts, as plain JSON values.
    """

    subject: str
    level: Level
    message: str
    hint: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """The finding as plain JSON values."""
        return {
            "subject": self.subject,
            "level": str(self.level),
            "message": self.message,
            "hint": self.hint,
            "details": dict(self.details),
        }


def without_credentials(url: str) -> str:
    """A URL without the user name and password it may carry."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    if not separator or "@" not in host:
        return url
    return f"{scheme}://***@{host.rpartition('@')[2]}{slash}{path}"
