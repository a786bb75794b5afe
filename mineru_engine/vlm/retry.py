"""When to ask a server again, and after how long."""

from __future__ import annotations

import random
import time
from email.utils import parsedate_to_datetime

__all__ = ("BUSY", "pause_s")

BUSY = frozenset({429, 502, 503, 504})
"""Statuses that say: later."""

_FIRST_S = 0.25
_LONGEST_S = 8.0
_LONGEST_ASKED_S = 60.0


def pause_s(failures: int, retry_after: str | None = None) -> float:
    """Seconds until the next try after that many failures: exponential back-off with full jitter.

    :param retry_after: the server's header, seconds or an HTTP date; the jitter comes on top of it, so that all who
        were turned away together do not come back together.
    """
    jitter = random.uniform(0, min(_LONGEST_S, _FIRST_S * 2 ** (failures - 1)))
    return min(_LONGEST_ASKED_S, _asked_s(retry_after or "")) + jitter


def _asked_s(retry_after: str) -> float:
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return 0.0
