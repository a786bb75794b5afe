"""The engine: started once, counted, bounded, and when it dies everybody hears of it."""

from __future__ import annotations

import asyncio

import pytest

from mineru_engine.errors import EngineDeadError, EngineRequestError, EngineUnavailableError
from mineru_engine.vlm.engine import EnginePhase
from mineru_engine.vlm.protocol import LAYOUT, request
from mineru_engine.vlm.transport import EncodedImage, VlmReply, VlmRequest
from tests.engine.scripted_transport import ScriptedTransport, answer, engine
from tests.engine.waiting import settle

QUESTION = request(LAYOUT, EncodedImage("", "image/png"))


def test_all_who_wait_share_one_start() -> None:
    async def body() -> None:
        transport = ScriptedTransport()
        transport.start_hold.clear()
        one = engine(transport)
        assert one.phase is EnginePhase.IDLE
        waiting = [asyncio.create_task(one.start()) for _ in range(5)]
        await settle()
        assert one.phase is EnginePhase.STARTING
        waiting[0].cancel()  # the others still get it
        await settle()
        transport.start_hold.set()
        infos = await asyncio.gather(*waiting[1:])
        assert {info.model for info in infos} == {"scripted"}
        assert waiting[0].cancelled()
        assert transport.starts == 1
        assert one.phase is EnginePhase.READY

    asyncio.run(body())


def test_a_failed_start_reaches_all_who_wait_each_with_an_error_of_its_own() -> None:
    async def body() -> None:
        transport = ScriptedTransport()
        transport.start_error = EngineUnavailableError("no such model", hint="name another")
        one = engine(transport)
        errors = await asyncio.gather(*(one.start() for _ in range(3)), return_exceptions=True)
        assert all(isinstance(error, EngineUnavailableError) and error.hint == "name another" for error in errors)
        assert len({id(error) for error in errors}) == 3  # each document writes its name into its own
        assert one.phase is EnginePhase.DEAD
        await one.aclose()

    asyncio.run(body())


def test_counters_and_bound() -> None:
    async def body() -> None:
        transport = ScriptedTransport()
        one = engine(transport, max_concurrency=3)
        await one.start()
        transport.hold.clear()
        tasks = [asyncio.create_task(one.ask("a", QUESTION)) for _ in range(8)]
        await settle()
        assert transport.in_flight == 3
        seen = one.statistics()
        assert (seen.in_flight, seen.queued, seen.limit, seen.done) == (3, 5, 3, 0)
        assert seen.latency_p50_s is None
        tasks[0].cancel()
        tasks[7].cancel()
        transport.hold.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        seen = one.statistics()
        assert (seen.in_flight, seen.queued, seen.done) == (0, 0, 6)
        assert seen.cancelled == 1  # the other one had not left the gate
        assert seen.prompt_tokens == 60
        assert seen.latency_p95_s is not None and seen.latency_p95_s >= (seen.latency_p50_s or 0)

    asyncio.run(body())


def test_a_transport_of_lower_width_lowers_the_bound() -> None:
    transport = ScriptedTransport()
    transport.concurrency = 1
    assert engine(transport).statistics().limit == 1


def test_a_failed_request_is_only_its_own() -> None:
    def script(asked: VlmRequest) -> VlmReply:
        if asked.prompt == "bad":
            raise EngineRequestError("too long")
        return answer(asked)

    async def body() -> None:
        one = engine(ScriptedTransport(script))
        await one.start()
        with pytest.raises(EngineRequestError):
            await one.ask("a", VlmRequest(QUESTION.image, "bad"))
        assert (await one.ask("a", QUESTION)).text
        assert (one.statistics().failed, one.statistics().done) == (1, 1)

    asyncio.run(body())


def test_death_ends_what_is_in_flight_and_refuses_what_comes() -> None:
    async def body() -> None:
        transport = ScriptedTransport()
        one = engine(transport, max_concurrency=4)
        await one.start()
        transport.hold.clear()
        waiting = [asyncio.create_task(one.ask(str(number), QUESTION)) for number in range(9)]
        await settle()

        async def dying(_: VlmRequest) -> VlmReply:
            raise EngineDeadError("the process was killed")

        waiting[0].cancel()  # leaves a place for the one that finds the engine dead
        await settle()
        transport.generate = dying  # type: ignore[method-assign]
        waiting[1].cancel()
        errors = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(error) for error in errors[:2]] == [asyncio.CancelledError] * 2
        assert all(isinstance(error, EngineDeadError) for error in errors[2:])
        assert transport.in_flight == 0
        assert one.phase is EnginePhase.DEAD
        with pytest.raises(EngineDeadError):
            await one.ask("late", QUESTION)

    asyncio.run(body())


def test_closing_ends_a_start_in_progress() -> None:
    async def body() -> None:
        transport = ScriptedTransport()
        transport.start_hold.clear()
        one = engine(transport)
        waiting = asyncio.create_task(one.start())
        await settle()
        await one.aclose()
        await one.aclose()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert transport.closes == 2
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(body())
