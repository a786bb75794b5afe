"""Page ranges as users write them: ``1-5,8,r3-r1``; one-based, ``r`` counts from the end."""

from __future__ import annotations

import re

from mineru_engine.errors import ErrorCode, OptionError

__all__ = ("check_pages", "parse_pages")

_MOST_PAGES = 100_000
_PART = re.compile(r"(r?\d{1,9})(?:-(r?\d{1,9})?)?")


def parse_pages(text: str, count: int) -> list[int]:
    """Zero-based page indices, increasing and without repetition.

    Pages past the end are left out as long as some page remains; ``3-`` runs to the last page.

    :param text: the range; empty or ``all`` means every page.
    :param count: number of pages.
    :raises OptionError: if the range cannot be read or names no existing page.
    """
    if text.strip().lower() in ("", "all"):
        return list(range(count))
    chosen: set[int] = set()
    for part in text.replace(" ", "").split(","):
        found = _PART.fullmatch(part)
        if found is None:
            raise OptionError(
                f"page range {text!r}: {part!r} is not a page or range",
                code=ErrorCode.PAGE_RANGE_INVALID,
                hint="write for example 1-5,8,r3-r1 (r1 is the last page)",
            )
        first = _number(found[1], count)
        last = first if "-" not in part else _number(found[2] or "r1", count)
        chosen.update(range(max(1, min(first, last)), min(count, max(first, last)) + 1))
    if not chosen:
        raise OptionError(
            f"page range {text!r} names no page of a document of {count}", code=ErrorCode.PAGE_RANGE_INVALID
        )
    return [page - 1 for page in sorted(chosen)]


def check_pages(text: str) -> None:
    """See whether a document could have such pages, before it is opened.

    :raises OptionError: if none could.
    """
    parse_pages(text or "1", _MOST_PAGES)


def _number(text: str, count: int) -> int:
    return count + 1 - int(text[1:]) if text.startswith("r") else int(text)
