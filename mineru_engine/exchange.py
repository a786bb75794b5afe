"""What a model was asked and what it answered, as told to a caller's callback."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ("Exchange", "ExchangeCallback", "telling")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One question to a model, about a page or, with language-model enhancement, about the document.

    :ivar kind: ``layout``, the type of the block asked about, or ``enhance``.
    :ivar prompt: without the image.
    :ivar answer: ``None`` if there was none.
    :ivar error: why there was none.
    :ivar seconds: from asking to the answer, the wait for its turn included.
    :ivar page: zero-based; ``None`` for the whole document.
    :ivar document: its name; that of the attachment where one is read.
    """

    kind: str
    prompt: str
    answer: str | None
    error: str | None
    seconds: float
    page: int | None = None
    document: str = ""


ExchangeCallback = Callable[[Exchange], None]
"""Called on the runtime's thread after each question; must not block."""


@contextmanager
def telling(
    callback: ExchangeCallback | None, kind: str, prompt: str, page: int | None = None
) -> Iterator[Callable[[str], None]]:
    """Tell of the question that is asked inside, also if it fails; the function that it gives takes the answer."""
    answers: list[str] = []
    error, started = None, time.perf_counter()
    try:
        yield answers.append
    except BaseException as exc:
        error = str(exc) or type(exc).__name__  # a cancel has no message
        raise
    finally:
        if callback is not None:
            answer = answers[-1] if answers else None
            callback(Exchange(kind, prompt, answer, error, time.perf_counter() - started, page))
