"""The request gate: a bound over all documents, and turns between them."""

from __future__ import annotations

import asyncio
import random

import pytest

from mineru_engine.runtime.gate import RequestGate
from tests.engine.waiting import settle


class Crowd:
    """Requests that hold their place until told to finish."""

    def __init__(self, gate: RequestGate) -> None:
        self.gate = gate
        self.order: list[str] = []
        self.finish: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.peak = 0

    def add(self, document: str, count: int = 1) -> None:
        self.tasks += [asyncio.create_task(self._request(document)) for _ in range(count)]

    async def _request(self, document: str) -> None:
        async with self.gate.place(document):
            self.order.append(document)
            self.peak = max(self.peak, self.gate.statistics().in_flight)
            done = asyncio.Event()
            self.finish.append(done)
            await done.wait()

    async def run_one_by_one(self) -> None:
        for index in range(len(self.tasks)):
            await settle()
            self.finish[index].set()
        await asyncio.gather(*self.tasks)


def test_the_limit_holds_over_all_documents() -> None:
    async def body() -> None:
        crowd = Crowd(RequestGate(3))
        crowd.add("a", 5)
        crowd.add("b", 5)
        await settle()
        assert crowd.gate.statistics().in_flight == 3
        await crowd.run_one_by_one()
        assert crowd.peak == 3
        assert (crowd.gate.statistics().in_flight, crowd.gate.statistics().waiting) == (0, 0)

    asyncio.run(body())


def test_documents_are_served_in_turn() -> None:
    async def body() -> None:
        crowd = Crowd(RequestGate(1))
        crowd.add("long", 6)
        await settle()
        crowd.add("short", 2)
        crowd.add("other", 1)
        await crowd.run_one_by_one()
        assert crowd.order[0] == "long"
        assert crowd.order[1:6] == ["long", "short", "other", "long", "short"]

    asyncio.run(body())


def test_a_cancelled_waiter_leaves_and_a_cancelled_holder_passes_its_place_on() -> None:
    async def body() -> None:
        crowd = Crowd(RequestGate(1))
        crowd.add("a", 2)
        crowd.add("b", 1)
        await settle()
        crowd.tasks[1].cancel()
        await settle()
        assert (crowd.gate.statistics().waiting, crowd.gate.statistics().documents) == (1, 1)
        crowd.tasks[0].cancel()
        await settle()
        assert crowd.order == ["a", "b"]
        crowd.finish[1].set()
        await asyncio.gather(*crowd.tasks, return_exceptions=True)
        assert crowd.gate.statistics().in_flight == 0

    asyncio.run(body())


def test_a_cancel_in_the_moment_of_the_grant_loses_no_place() -> None:
    async def body() -> None:
        gate = RequestGate(1)
        crowd = Crowd(gate)
        crowd.add("a", 1)
        await settle()
        crowd.add("b", 1)
        await settle()
        crowd.finish[0].set()
        await asyncio.sleep(0)
        crowd.tasks[1].cancel()
        await asyncio.gather(*crowd.tasks, return_exceptions=True)
        crowd.add("c", 1)
        await settle()
        assert crowd.order[-1] == "c"
        crowd.finish[-1].set()
        await crowd.tasks[-1]
        assert gate.statistics().in_flight == 0

    asyncio.run(body())


@pytest.mark.parametrize("seed", range(5))
def test_random_cancels_leave_nothing_behind(seed: int) -> None:
    async def body() -> None:
        rng = random.Random(seed)
        gate = RequestGate(4)

        async def request(document: str) -> None:
            async with gate.place(document):
                assert gate.statistics().in_flight <= 4
                for _ in range(rng.randrange(5)):
                    await asyncio.sleep(0)

        tasks = [asyncio.create_task(request(rng.choice("abc"))) for _ in range(200)]
        while not all(task.done() for task in tasks):
            rng.choice(tasks).cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        state = gate.statistics()
        assert (state.in_flight, state.waiting, state.documents) == (0, 0, 0)

    asyncio.run(body())


def test_within_a_document_long_requests_go_first() -> None:
    async def body() -> None:
        gate, order, go = RequestGate(1), [], asyncio.Event()

        async def ask(name: str, document: str, length: float) -> None:
            async with gate.place(document, length):
                order.append(name)
                await go.wait()

        first = asyncio.create_task(ask("first", "a", 0))
        await settle()
        work = (("short", "a", 1.0), ("long", "a", 9.0), ("other", "b", 0.0), ("long too", "a", 9.0))
        tasks = [asyncio.create_task(ask(*item)) for item in work]
        tasks.append(gone := asyncio.create_task(ask("gone", "a", 99.0)))
        await settle()
        gone.cancel()
        await settle()
        go.set()
        await asyncio.gather(first, *tasks, return_exceptions=True)
        assert [name for name in order if name != "other"] == ["first", "long", "long too", "short"]
        assert order.index("other") == 2  # documents still take turns
        assert gate.statistics().documents == 0

    asyncio.run(body())
