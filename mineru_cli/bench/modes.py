"""How documents are called for: by tasks on one event loop, or by blocking threads."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from mineru_cli.bench.report import DocumentSample, LoopLag, Mode
from mineru_cli.bench.sampling import LagProbe
from mineru_cli.errors import show_traceback
from mineru_engine import api
from mineru_engine.errors import ErrorCode, MineruError

if TYPE_CHECKING:
    from mineru_cli.bench.feed import Due, Feed
    from mineru_cli.bench.workload import BenchDocument
    from mineru_engine.result import ParseResult
    from mineru_engine.runtime.registry import Lease
    from mineru_engine.settings import Settings

__all__ = (
    "Interrupted",
    "Round",
    "Stop",
    "Target",
    "order_of_runs",
    "run_round",
    "run_stoppable",
)

T = TypeVar("T")


class Interrupted(Exception):
    """The user wants to end; what is in progress does not count."""


class Stop:
    """The user's wish to end, and what makes the work in progress end. :meth:`now` is for signal handlers."""

    def __init__(self) -> None:
        self.requested = False
        self._end: Callable[[], object] | None = None

    def now(self) -> None:
        """End what is in progress, soon."""
        self.requested = True
        if self._end is not None:
            self._end()

    @contextmanager
    def ends(self, end: Callable[[], object]) -> Iterator[None]:
        """Inside the block a stop calls ``end``, which must be quick.

        :raises Interrupted: at the end of the block if a stop was requested, even one that came before it.
        """
        self._end = end
        try:
            if self.requested:
                end()
            yield
        finally:
            self._end = None
        self.check()

    def check(self) -> None:
        """:raises Interrupted: if a stop was requested."""
        if self.requested:
            raise Interrupted


@dataclass(frozen=True, slots=True)
class Target:
    """What is called: documents with the settings and options of all of them.

    :ivar options: fields of ``ParseOptions``.
    """

    documents: Sequence[BenchDocument]
    settings: Settings
    lease: Lease
    options: Mapping[str, Any] = field(repr=False)

    async def parse_async(self, index: int) -> ParseResult:
        """Parse one document."""
        return await api.parse_async(self.documents[index].path, **self._arguments(index))

    def parse(self, index: int) -> ParseResult:
        """Parse one document and block for the result."""
        return api.parse(self.documents[index].path, **self._arguments(index))

    def _arguments(self, index: int) -> dict[str, Any]:
        pages = self.documents[index].pages
        return {"settings": self.settings, "lease": self.lease, **self.options, "pages": pages}


class Round:
    """Documents of one run, and what became of them.

    :ivar feed: its clock is that of the run.
    :ivar samples: in the order in which the documents were finished.
    :ivar results: the first result of each document; what more a long run makes would only fill the memory.
    :ivar errors: the first of each document.
    :ivar elapsed_s: from the start to the end of the last document.
    """

    def __init__(self, target: Target, feed: Feed) -> None:
        self.samples: list[DocumentSample] = []
        self.results: dict[int, ParseResult] = {}
        self.errors: dict[int, Exception] = {}
        self.elapsed_s = 0.0
        self._target = target
        self.feed = feed

    async def by_tasks(self, width: int) -> None:
        """Call from ``width`` tasks, to the end of all documents."""
        self.feed.start()
        async with asyncio.TaskGroup() as group:
            for _ in range(width):
                group.create_task(self._call_async())
        self.elapsed_s = self.feed.elapsed()

    async def _call_async(self) -> None:
        while (due := self.feed.take()) is not None:
            await asyncio.sleep(due.due_s - self.feed.elapsed())
            begun = self.feed.elapsed()
            try:
                outcome: ParseResult | Exception = await self._target.parse_async(due.document)
            except Exception as exc:  # noqa: BLE001 - one document's failure is a figure of the run
                outcome = exc
            self._note(due, begun, outcome)

    def by_threads(self, width: int) -> None:
        """Call from ``width`` threads, to the end of all documents."""
        threads = [threading.Thread(target=self._call, name=f"mineru-bench-{number}") for number in range(width)]
        self.feed.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.elapsed_s = self.feed.elapsed()

    async def end_threads(self) -> None:
        """Blocking calls have no cancel of their own: closing what they run on ends them."""
        self.feed.close()
        await self._target.lease.aclose()

    def _call(self) -> None:
        while (due := self.feed.take()) is not None:
            self.feed.wait(due)
            begun = self.feed.elapsed()
            try:
                outcome: ParseResult | Exception = self._target.parse(due.document)
            except Exception as exc:  # noqa: BLE001 - one document's failure is a figure of the run
                outcome = exc
            self._note(due, begun, outcome)

    def _note(self, due: Due, begun: float, outcome: ParseResult | Exception) -> None:
        ended, error, pages = self.feed.elapsed(), None, 0
        if isinstance(outcome, Exception):
            show_traceback(outcome)
            error = str(outcome.code if isinstance(outcome, MineruError) else ErrorCode.INTERNAL)
            self.errors.setdefault(due.document, outcome)
        else:
            pages = outcome.page_count
            self.results.setdefault(due.document, outcome)
        self.samples.append(
            DocumentSample(
                input=due.document,
                due_s=due.due_s,
                queued_s=max(0.0, begun - due.due_s),
                parse_s=ended - begun,
                pages=pages,
                error=error,
            )
        )


def run_round(mode: Mode, width: int, work: Round, stop: Stop) -> LoopLag | None:
    """Call for all documents, at most ``width`` at a time; returns how late the caller's loop was.

    :raises Interrupted: if a stop was requested; the documents in progress have been cancelled.
    """
    return run_stoppable(_tasks(work, width) if mode is Mode.ASYNC else _threads(work, width), stop)


def run_stoppable(work: Coroutine[Any, Any, T], stop: Stop) -> T:
    """Run ``work`` on a loop of its own; a stop cancels it, and its clean-up is awaited.

    :raises Interrupted: if a stop was requested.
    """

    async def main() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
        with stop.ends(lambda: loop.call_soon_threadsafe(task.cancel)):
            return await task

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise Interrupted from None


async def _tasks(work: Round, width: int) -> LoopLag | None:
    async with LagProbe() as probe:
        await work.by_tasks(width)
    return probe.summary()


async def _threads(work: Round, width: int) -> None:
    threads = asyncio.ensure_future(asyncio.to_thread(work.by_threads, width))
    try:
        await asyncio.shield(threads)
    except asyncio.CancelledError:
        await work.end_threads()
        await threads
        raise


def order_of_runs(modes: Sequence[Mode], concurrencies: Sequence[int], seed: str) -> list[tuple[Mode, int]]:
    """Every mode at every concurrency, in an order that the seed decides: a drift of the machine hits none of them
    more than the others.
    """
    order = [(mode, concurrency) for mode in modes for concurrency in concurrencies]
    random.Random(seed).shuffle(order)
    return order
