"""What became of each document, as a JSON line and as a row of the closing table."""

from __future__ import annotations

import json
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from mineru_cli.errors import one_line

__all__ = ("Outcome", "Status", "print_json_line", "print_notices", "print_table")


class Status(StrEnum):
    """How a document ended."""

    SUCCESS = "success"
    PARTIAL = "partial"  # a result, but some page was lost
    SKIPPED = "skipped"  # complete and unchanged (--resume)
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class Outcome:
    """How one document ended. ``error`` and ``diagnostics`` are plain JSON values."""

    path: str
    status: Status
    pages: int | None = None
    tier: str | None = None
    engine: str | None = None
    seconds: float | None = None
    output: Path | None = None
    files: Sequence[Path] = ()
    error: dict[str, object] | None = None
    diagnostics: list[dict[str, object]] = field(default_factory=list)


def print_json_line(outcome: Outcome) -> None:
    """One line of JSON on stdout."""
    values = {
        "path": outcome.path,
        "status": str(outcome.status),
        "error": outcome.error and {name: outcome.error.get(name) for name in ("code", "message", "hint")},
        "pages": outcome.pages,
        "tier": outcome.tier,
        "engine": outcome.engine,
        "seconds": None if outcome.seconds is None else round(outcome.seconds, 3),
        "output": None if outcome.output is None else str(outcome.output),
        "files": [str(path) for path in outcome.files],
        "diagnostics": outcome.diagnostics,
    }
    # A file name that is not UTF-8 becomes a JSON escape instead of an encoding error.
    line = json.dumps(values, ensure_ascii=False).encode("utf-8", "backslashreplace")
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def print_table(outcomes: Sequence[Outcome]) -> None:
    """Document, pages, tier, engine, seconds and output on stderr; for a failure, the reason."""
    rows = [("document", "pages", "tier", "engine", "seconds", "output")]
    rows += [_row(outcome) for outcome in outcomes]
    room = max(20, shutil.get_terminal_size((120, 24)).columns // 3)
    rows = [(_shorten(row[0], room), *row[1:]) for row in rows]
    widths = [max(_width(row[column]) for row in rows) for column in range(5)]
    for row, outcome in zip(rows, (None, *outcomes), strict=True):
        cells = [_pad(row[0], widths[0]), row[1].rjust(widths[1])]
        cells += [_pad(row[2], widths[2]), _pad(row[3], widths[3]), row[4].rjust(widths[4]), row[5]]
        _say("  ".join(cells))
        if outcome is not None and outcome.error and outcome.error.get("hint"):
            _say(f"    hint: {one_line(str(outcome.error['hint']))}")
    _say(_totals(outcomes))


def _row(outcome: Outcome) -> tuple[str, str, str, str, str, str]:
    pages = "" if outcome.pages is None else str(outcome.pages)
    seconds = "" if outcome.seconds is None else f"{outcome.seconds:.2f}"
    if outcome.error is not None:
        last = f"{outcome.status}: {outcome.error['message']} ({outcome.error['code']})"
    elif outcome.status is Status.CANCELLED:
        last = "cancelled"
    else:
        note = {Status.SKIPPED: " (complete, skipped)", Status.PARTIAL: " (pages lost)"}.get(outcome.status, "")
        last = f"{outcome.output or '-'}{note}"
    cells = (outcome.path, pages, outcome.tier or "", outcome.engine or "", seconds, last)
    return tuple(one_line(cell) for cell in cells)  # type: ignore[return-value]


def _totals(outcomes: Sequence[Outcome]) -> str:
    counts = {status: sum(outcome.status is status for outcome in outcomes) for status in Status}
    done = counts[Status.SUCCESS] + counts[Status.PARTIAL]
    others = [f"{counts[status]} {status}" for status in Status if status is not Status.SUCCESS and counts[status]]
    return ", ".join([f"{done} of {len(outcomes)} documents done", *others])


_SAID_ONCE = {"engine_builtin"}
"""Notices about the run: the same for all its documents."""


def print_notices(outcomes: Sequence[Outcome], *, limit: int) -> None:
    """What a reader of the results should know: lost pages, fallbacks, notices.

    :param limit: most lines for one document.
    """
    everywhere = {str(item["code"]): item for outcome in outcomes for item in outcome.diagnostics}
    for code in _SAID_ONCE & everywhere.keys():
        _say(one_line(f"{everywhere[code]['message']} ({code})"))
    for outcome in outcomes:
        told = [item for item in outcome.diagnostics if item["code"] not in _SAID_ONCE]
        for code, found in _by_code(told)[:limit]:
            pages = sorted({item["page"] for item in found if isinstance(item["page"], int)})
            where = f" page {_ranges([page + 1 for page in pages])}" if pages else ""
            _say(one_line(f"{outcome.path}{where}: {found[0]['message']} ({code})"))


def _by_code(diagnostics: Sequence[dict[str, object]]) -> list[tuple[str, list[dict[str, object]]]]:
    groups: dict[str, list[dict[str, object]]] = {}
    for item in diagnostics:
        groups.setdefault(str(item["code"]), []).append(item)
    return list(groups.items())


def _ranges(numbers: Sequence[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _say(line: str) -> None:
    print(line.rstrip(), file=sys.stderr)  # noqa: T201


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _pad(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _shorten(text: str, room: int) -> str:
    """Cut at the front: the end of a path says more."""
    if _width(text) <= room:
        return text
    while _width(text) > room - 1:
        text = text[1:]
    return "…" + text
