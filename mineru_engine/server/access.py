"""Who calls."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

__all__ = ("Caller", "caller_of")

LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request.

    :ivar tenant: whose jobs they see.
    """

    tenant: str = LOCAL


def caller_of(request: Request) -> Caller:
    """The caller of a request, as found out before the route was reached."""
    found: Caller = getattr(request.state, "caller", None) or Caller()
    return found
