"""The byte budget: a limit over threads and loops, first come first served, and nothing lost to cancels."""

from __future__ import annotations

import asyncio
import random
import threading

from mineru_engine.runtime.budget import ByteBudget
from tests.engine.waiting import settle


async def _waits_and_goes_in_order() -> None:
    budget = ByteBudget()
    first = await budget.reserve(60, limit=100)
    order: list[str] = []

    async def want(name: str, size: int) -> None:
        with await budget.reserve(size, limit=100):
            order.append(name)

    tasks = [asyncio.create_task(want(name, size)) for name, size in (("large", 80), ("small", 10))]
    await settle()
    assert order == []  # the small one would fit, but the large one came first
    first.release()
    await asyncio.gather(*tasks)
    assert order == ["large", "small"]
    assert budget.used == 0


def test_who_finds_no_room_waits_and_order_of_arrival_holds() -> None:
    asyncio.run(_waits_and_goes_in_order())


def test_one_reservation_always_fits() -> None:
    async def body() -> None:
        budget = ByteBudget()
        with await budget.reserve(500, limit=100):
            assert budget.used == 500

    asyncio.run(body())


def test_resizing_lets_others_in_and_may_pass_the_limit() -> None:
    async def body() -> None:
        budget = ByteBudget()
        held = await budget.reserve(90, limit=100)
        held.resize(150)
        waiter = asyncio.create_task(budget.reserve(50, limit=100))
        await settle()
        assert not waiter.done()
        held.resize(50)
        assert (await waiter) is not None
        assert budget.used == 100

    asyncio.run(body())


def test_a_cancelled_waiter_leaves_no_trace() -> None:
    async def body() -> None:
        budget = ByteBudget()
        held = await budget.reserve(100, limit=100)
        gone = asyncio.create_task(budget.reserve(80, limit=100))
        next_one = asyncio.create_task(budget.reserve(20, limit=100))
        await settle()
        held.resize(70)
        await settle()
        assert not next_one.done()  # 20 would fit, 80 is before it
        gone.cancel()
        (await next_one).release()
        held.release()
        assert budget.used == 0
        # Granted and cancelled in the same moment.
        held = await budget.reserve(100, limit=100)
        late = asyncio.create_task(budget.reserve(80, limit=100))
        await settle()
        held.release()
        late.cancel()
        await asyncio.wait({late})
        await settle()
        assert budget.used == 0

    asyncio.run(body())


def test_many_threads_share_it_within_the_limit() -> None:
    budget = ByteBudget()
    peak: list[int] = []

    async def body(seed: int) -> None:
        rng = random.Random(seed)

        async def one() -> None:
            reservation = await budget.reserve(rng.randint(1, 40), limit=100)
            with reservation:
                peak.append(budget.used)
                await asyncio.sleep(rng.random() / 1000)

        tasks = [asyncio.create_task(one()) for _ in range(60)]
        for task in rng.sample(tasks, 15):
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    threads = [threading.Thread(target=lambda seed=seed: asyncio.run(body(seed))) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert budget.used == 0
    assert 40 < max(peak) <= 100
