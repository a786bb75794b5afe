"""How documents are called for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from mineru_cli.bench.feed import Arrival, Feed, Load
from mineru_cli.bench.modes import Interrupted, Round, Stop, order_of_runs, run_round
from mineru_cli.bench.report import Mode
from mineru_engine.errors import ErrorCode, InputError, OptionError, RuntimeStateError

BOTH = pytest.mark.parametrize("mode", list(Mode))


@dataclass
class FakeTarget:
    """Documents of a page each that take a moment; 8 of them block until their lease is closed."""

    seconds: float = 0.0
    errors: dict[int, Exception] = field(default_factory=dict)
    hang: bool = False

    def __post_init__(self) -> None:
        self.calls: list[int] = []
        self.at_once = self.most = 0
        self.cancelled = 0
        self.closed = threading.Event()
        self.lease = SimpleNamespace(aclose=self._close)
        self._lock = threading.Lock()

    async def _close(self) -> None:
        self.closed.set()

    def _begin(self, index: int) -> None:
        with self._lock:
            self.calls.append(index)
            self.at_once += 1
            self.most = max(self.most, self.at_once)

    def _end(self, index: int) -> Any:
        with self._lock:
            self.at_once -= 1
        if index in self.errors:
            raise self.errors[index]
        return SimpleNamespace(page_count=1)

    async def parse_async(self, index: int) -> Any:
        self._begin(index)
        try:
            await asyncio.sleep(3600 if self.hang else self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self._end(index)

    def parse(self, index: int) -> Any:
        self._begin(index)
        if self.hang:
            self.closed.wait()
            raise RuntimeStateError("the runtime was closed")
        time.sleep(self.seconds)
        return self._end(index)


def run(mode: Mode, target: FakeTarget, load: Load, width: int = 3, documents: int = 8, seed: str = "1") -> Round:
    work = Round(target, Feed(documents, load, seed))  # type: ignore[arg-type]
    run_round(mode, width, work, Stop())
    return work


@BOTH
def test_a_batch_is_every_document_once_and_so_many_at_a_time(mode: Mode) -> None:
    target = FakeTarget(seconds=0.02)
    work = run(mode, target, Load())
    assert sorted(target.calls) == sorted(work.results) == list(range(8))
    assert target.most == 3
    assert [sample.error for sample in work.samples] == [None] * 8
    assert all(sample.due_s == 0 for sample in work.samples)
    assert max(sample.queued_s for sample in work.samples) >= 2 * 0.02
    assert work.elapsed_s >= max(sample.queued_s + sample.parse_s for sample in work.samples)


@BOTH
def test_a_batch_can_have_its_documents_several_times(mode: Mode) -> None:
    target = FakeTarget()
    work = run(mode, target, Load(times=3), documents=2)
    assert Counter(target.calls) == {0: 3, 1: 3}
    assert len(work.samples) == 6


def test_the_order_is_that_of_the_seed_in_both_modes() -> None:
    orders = []
    for mode, seed in ((Mode.ASYNC, "1"), (Mode.SYNC_THREAD, "1"), (Mode.ASYNC, "2")):
        target = FakeTarget()
        run(mode, target, Load(), width=1, seed=seed)
        orders.append(target.calls)
    assert orders[0] == orders[1] != orders[2]


@BOTH
def test_at_random_times_no_document_begins_before_it_is_due(mode: Mode) -> None:
    work = run(mode, FakeTarget(seconds=0.01), Load(arrival=Arrival(200.0)), width=1)
    dues = sorted(sample.due_s for sample in work.samples)
    assert len(dues) == 8
    assert all(earlier < later for earlier, later in pairwise(dues))
    assert all(sample.queued_s >= 0 for sample in work.samples)
    assert work.elapsed_s >= dues[-1] + 0.01


def test_random_times_have_the_rate_that_was_asked_for() -> None:
    feed = Feed(1000, Load(arrival=Arrival(50.0)), "1")
    dues = []
    while (due := feed.take()) is not None:
        dues.append(due.due_s)
    assert len(dues) == 1000
    assert dues[-1] == pytest.approx(1000 / 50, rel=0.15)


@BOTH
def test_steady_load_ends_with_the_time(mode: Mode) -> None:
    target = FakeTarget(seconds=0.01)
    work = run(mode, target, Load(duration_s=0.2), documents=2)
    assert len(work.samples) > 6
    assert set(work.results) == {0, 1}
    assert max(sample.due_s for sample in work.samples) < 0.2 <= work.elapsed_s
    assert {0, 1} == set(target.calls[:2])  # all have their turn before one has it again


def test_steady_load_at_random_times_ends_with_the_time_too() -> None:
    work = run(Mode.ASYNC, FakeTarget(), Load(arrival=Arrival(500.0), duration_s=0.1), documents=2)
    assert 10 < len(work.samples) < 100
    assert max(sample.due_s for sample in work.samples) < 0.1


@BOTH
def test_a_document_that_fails_is_a_sample_and_no_more(mode: Mode) -> None:
    target = FakeTarget(errors={2: InputError("no", code=ErrorCode.FILE_EMPTY), 5: ZeroDivisionError()})
    work = run(mode, target, Load())
    assert {sample.input: sample.error for sample in work.samples if sample.error} == {2: "file_empty", 5: "internal"}
    assert len(work.samples) == 8
    assert work.errors.keys() == {2, 5}
    assert set(work.results) == set(range(8)) - {2, 5}


@BOTH
def test_a_stop_ends_what_is_in_progress(mode: Mode) -> None:
    target, stop = FakeTarget(hang=True), Stop()
    feed = Feed(8, Load(), "1")

    def stop_when_all_callers_wait() -> None:
        while target.at_once < 3:
            time.sleep(0.001)
        stop.now()

    stopper = threading.Thread(target=stop_when_all_callers_wait)
    stopper.start()
    with pytest.raises(Interrupted):
        run_round(mode, 3, Round(target, feed), stop)  # type: ignore[arg-type]
    stopper.join()
    assert len(target.calls) == 3
    assert target.cancelled == (3 if mode is Mode.ASYNC else 0)
    assert target.closed.is_set() == (mode is Mode.SYNC_THREAD)


def test_a_stop_does_not_wait_for_the_next_arrival() -> None:
    target, stop = FakeTarget(), Stop()
    feed = Feed(8, Load(arrival=Arrival(0.0001)), "1")
    timer = threading.Timer(0.05, stop.now)
    timer.start()
    with pytest.raises(Interrupted):
        run_round(Mode.SYNC_THREAD, 2, Round(target, feed), stop)  # type: ignore[arg-type]
    timer.join()


@BOTH
def test_a_stop_that_came_before_is_heeded(mode: Mode) -> None:
    stop = Stop()
    stop.now()
    with pytest.raises(Interrupted):
        run_round(mode, 1, Round(FakeTarget(), Feed(2, Load(), "1")), stop)  # type: ignore[arg-type]


def test_only_the_callers_own_loop_has_a_lag() -> None:
    lags = [
        run_round(mode, 1, Round(FakeTarget(seconds=0.05), Feed(2, Load(), "1")), Stop())  # type: ignore[arg-type]
        for mode in (Mode.ASYNC, Mode.SYNC_THREAD)
    ]
    assert lags[0] is not None
    assert lags[1] is None


@pytest.mark.parametrize("text", ["closed", "poisson:2.5"])
def test_arrival_as_text(text: str) -> None:
    assert str(Arrival.parse(text)) == text


@pytest.mark.parametrize("text", ["open", "poisson", "poisson:", "poisson:0", "poisson:-1", "poisson:nan", "uniform:3"])
def test_arrivals_that_make_no_sense(text: str) -> None:
    with pytest.raises(OptionError):
        Arrival.parse(text)


def test_the_order_of_runs_has_them_all_and_is_that_of_the_seed() -> None:
    modes, concurrencies = list(Mode), [1, 2, 4, 8]
    first = order_of_runs(modes, concurrencies, "7/0")
    assert sorted(first) == sorted((mode, concurrency) for mode in modes for concurrency in concurrencies)
    assert first == order_of_runs(modes, concurrencies, "7/0") != order_of_runs(modes, concurrencies, "7/1")
