"""Progress bars on stderr: one for each running document and one for all."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mineru_cli.errors import one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ("Board",)

_DELAY_S = 0.4  # a short run is over before bars are worth importing
_INTERVAL_S = 0.2


@dataclass(slots=True)
class _State:
    label: str
    done: int = 0
    total: int = 0
    finished: bool = False
    started: float = field(default_factory=time.monotonic)


class Board:
    """Collects the state of all documents and draws it now and then.

    :meth:`advance` may be called from any thread; the drawing happens in :meth:`show`.
    """

    def __init__(self, documents: int, *, enabled: bool) -> None:
        self._documents = documents
        self._enabled = enabled and sys.stderr.isatty()
        self._states: dict[int, _State] = {}
        self._started = time.monotonic()

    def start(self, key: int, label: str) -> None:
        """A document's turn has come."""
        self._states[key] = _State(label)

    def advance(self, key: int, done: int, total: int) -> None:
        """Pages of a document are finished."""
        state = self._states[key]
        state.done, state.total = done, total

    def finish(self, key: int) -> None:
        """A document has ended, one way or the other."""
        if key in self._states:
            self._states[key].finished = True

    async def show(self) -> None:
        """Draw until cancelled; returns at once when stderr is not a terminal."""
        if not self._enabled:
            return
        await asyncio.sleep(_DELAY_S)
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(16), TextColumn("{task.fields[note]}"))
        with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bars:
            whole = bars.add_task("all", total=None, note="")
            running: dict[int, TaskID] = {}
            while True:
                self._draw(bars, whole, running)
                await asyncio.sleep(_INTERVAL_S)

    def _draw(self, bars: Progress, whole: TaskID, running: dict[int, TaskID]) -> None:
        for key, state in list(self._states.items()):
            if state.finished:
                if key in running:
                    bars.remove_task(running.pop(key))
                continue
            if key not in running:
                running[key] = bars.add_task(one_line(state.label)[-24:], total=None, note="")
            speed = state.done / max(0.001, time.monotonic() - state.started)
            note = _note(state.done, state.total, speed, state.total - state.done)
            bars.update(running[key], completed=state.done, total=state.total or None, note=note)
        done, total = self._pages()
        speed = done / max(0.001, time.monotonic() - self._started)
        ended = sum(state.finished for state in self._states.values())
        note = f"{ended}/{self._documents} documents, {_note(done, total, speed, total - done)}"
        bars.update(whole, completed=done, total=total or None, note=note)
        bars.refresh()

    def _pages(self) -> tuple[int, int]:
        """Pages done and pages to do; documents not yet opened count as long as the average one."""
        known = [state.total for state in self._states.values() if state.total]
        done = sum(state.done for state in self._states.values())
        unopened = self._documents - len(self._states)
        return done, sum(known) + (unopened * sum(known) // len(known) if known else 0)


def _note(done: int, total: int, speed: float, left: int) -> str:
    pages = f"{done}/{total or '?'} pages"
    if not done or not speed:
        return pages
    minutes, seconds = divmod(round(left / speed), 60)
    return f"{pages}, {speed:.1f} pages/s, {minutes}:{seconds:02d} left"
