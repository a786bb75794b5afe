"""The simulated server over real HTTP: its clock, its cap, and what it does when the client goes away."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from chat_bodies import chat_body, data_uri

from benchmarks.simulator import DEFAULT_OUTPUTS, Kind, Simulator, SimulatorConfig, SimulatorError, Stats

CHAT = "/v1/chat/completions"


@asynccontextmanager
async def running(**settings: float | int | bool | str) -> AsyncIterator[tuple[Simulator, httpx.AsyncClient]]:
    config = SimulatorConfig(**settings)  # type: ignore[arg-type]
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with (
        Simulator(config) as simulator,
        httpx.AsyncClient(base_url=simulator.url, timeout=20, limits=limits, trust_env=False) as client,
    ):
        yield simulator, client


async def until(simulator: Simulator, **wanted: int) -> Stats:
    """The counters once they are as wanted."""
    async with asyncio.timeout(5):
        while True:
            stats = await simulator.astats()
            if all(getattr(stats, name) == value for name, value in wanted.items()):
                return stats
            await asyncio.sleep(0.01)


async def seconds_for(client: httpx.AsyncClient, number: int) -> float:
    """Wall time of that many requests at once."""
    started = time.perf_counter()
    answers = await asyncio.gather(*(client.post(CHAT, json=chat_body()) for _ in range(number)))
    assert all(answer.status_code == 200 for answer in answers)
    return time.perf_counter() - started


def test_answers_each_kind_of_prompt() -> None:
    async def body() -> None:
        async with running() as (simulator, client):
            for prompt, kind in (
                ("\nLayout Detection:", Kind.LAYOUT),
                ("\nText Recognition:", Kind.TEXT),
                ("\nTable Recognition:", Kind.TABLE),
                ("\nFormula Recognition:", Kind.FORMULA),
                ("\nImage Analysis:", Kind.IMAGE),
            ):
                answer = (await client.post(CHAT, json=chat_body(prompt))).json()
                output = DEFAULT_OUTPUTS[kind]
                assert answer["choices"][0]["message"]["content"] == output.text
                assert answer["choices"][0]["finish_reason"] == "stop"
                assert answer["usage"]["completion_tokens"] == output.tokens
            stats = await simulator.astats()
            assert stats.by_kind == {"layout": 1, "text": 1, "table": 1, "formula": 1, "image": 1}
            assert (stats.arrivals, stats.ok, stats.in_flight, stats.tokens) == (5, 5, 0, 770)

    asyncio.run(body())


def test_a_batch_takes_about_the_time_of_one_request() -> None:
    async def body() -> None:
        async with running(step_base_ms=30, step_per_seq_ms=0.2) as (simulator, client):
            await seconds_for(client, 20)  # connections
            assert await seconds_for(client, 1) >= 15 * 0.0302  # 120 tokens, 8 a step
            await simulator.acontrol(reset=True)
            together = await seconds_for(client, 20)
            stats = await simulator.astats()
            assert stats.peak_running == 20
            # In one batch that is 15 steps of 34 ms, and some more where they arrive one after the other;
            # one by one it would be 300 steps, 9 s.
            assert 15 <= stats.steps < 40
            assert stats.busy_s < 1.4 and together < 3

    asyncio.run(body())


def test_the_cap_holds_and_the_rest_waits() -> None:
    async def body() -> None:
        async with running(step_base_ms=4, max_seqs=4) as (simulator, client):
            assert simulator.config.limit_tokens_per_s == 8000
            seconds = await seconds_for(client, 16)
            stats = await simulator.astats()
            assert (stats.peak_running, stats.ok, stats.tokens) == (4, 16, 16 * 120)
            assert stats.peak_waiting >= 8
            assert seconds >= 16 * 120 / 8000
            assert 0.5 < (stats.utilization() or 0) <= 1.0

    asyncio.run(body())


def test_limit_of_the_standard_engine() -> None:
    limit = SimulatorConfig(step_base_ms=20, step_per_seq_ms=1.2, tokens_per_step=8, max_seqs=100).limit_tokens_per_s
    assert limit is not None and round(limit) == 5714


def test_prefill_costs_by_image_size() -> None:
    async def body() -> None:
        async with running(step_base_ms=1, prefill_ms_per_mpixel=200, prefill_ms_per_step=50) as (simulator, client):
            await client.post(CHAT, json=chat_body(uri=data_uri(1000, 1000, "JPEG")))
            stats = await simulator.astats()
            assert stats.mpixels == 1.0
            assert stats.prefill_s == pytest.approx(0.2)
            assert stats.steps == 3 + 15  # the last step of the prefill makes the first tokens
            assert stats.elapsed_s >= 0.2

    asyncio.run(body())


def test_max_tokens_cuts_the_answer() -> None:
    async def body() -> None:
        async with running() as (_, client):
            choice = (await client.post(CHAT, json=chat_body(max_tokens=30))).json()["choices"][0]
            text = DEFAULT_OUTPUTS[Kind.TEXT].text
            assert choice["finish_reason"] == "length"
            assert choice["message"]["content"] == text[: len(text) // 4]

    asyncio.run(body())


def test_streaming_says_the_same() -> None:
    async def body() -> None:
        async with running(step_base_ms=2) as (_, client):
            parts: list[str] = []
            reasons: list[str | None] = []
            async with client.stream("POST", CHAT, json=chat_body(stream=True)) as response:
                lines = [line async for line in response.aiter_lines() if line]
            assert lines.pop() == "data: [DONE]"
            for line in lines:
                choice = json.loads(line.removeprefix("data: "))["choices"][0]
                parts.append(choice["delta"]["content"])
                reasons.append(choice["finish_reason"])
            assert len(parts) > 5
            assert "".join(parts) == DEFAULT_OUTPUTS[Kind.TEXT].text
            assert reasons[-1] == "stop" and set(reasons[:-1]) == {None}

    asyncio.run(body())


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_place(stream: bool) -> None:
    async def body() -> None:
        async with running(step_base_ms=30, max_seqs=4) as (simulator, client):
            tasks = [asyncio.create_task(client.post(CHAT, json=chat_body(stream=stream))) for _ in range(10)]
            await until(simulator, running=4, waiting=6)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            stats = await until(simulator, in_flight=0, running=0, waiting=0)
            assert (stats.cancelled, stats.ok, stats.working_after_disconnect) == (10, 0, 0)
            assert await seconds_for(client, 4) < 1.5  # at once, not behind the ten
            assert (await simulator.astats()).tokens < stats.tokens + 5 * 120

    asyncio.run(body())


def test_a_server_that_does_not_notice_is_counted() -> None:
    async def body() -> None:
        async with running(step_base_ms=20, abort_on_disconnect=False) as (simulator, client):
            task = asyncio.create_task(client.post(CHAT, json=chat_body()))
            await until(simulator, running=1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await until(simulator, working_after_disconnect=1, running=1, cancelled=1)
            assert (await until(simulator, working_after_disconnect=0, running=0)).tokens == 120

    asyncio.run(body())


def test_metrics_health_version_models() -> None:
    async def body() -> None:
        async with running(step_base_ms=20, step_per_seq_ms=1.2) as (_, client):
            await client.post(CHAT, json=chat_body())
            text = (await client.get("/metrics")).text
            assert "simulator_limit_tokens_per_second 5714.2" in text
            assert 'simulator_requests_total{outcome="ok"} 1' in text
            assert "vllm:num_requests_running 0" in text
            assert 'simulator_requests_by_kind_total{kind="text"} 1' in text
            assert (await client.get("/health")).status_code == 200
            assert "version" in (await client.get("/version")).json()
            assert [model["id"] for model in (await client.get("/v1/models")).json()["data"]] == ["mineru-simulator"]
            assert (await client.get("/nowhere")).status_code == 404

    asyncio.run(body())


def test_what_a_server_refuses() -> None:
    async def body() -> None:
        async with running(api_key="secret") as (simulator, client):
            assert (await client.post(CHAT, json=chat_body())).status_code == 401
            client.headers["authorization"] = "Bearer secret"
            assert (await client.post(CHAT, json=chat_body(model="gpt-9"))).status_code == 404
            assert (await client.post(CHAT, content=b"{")).status_code == 400
            assert (await client.post(CHAT, json=chat_body(uri="data:image/png;base64,AAAA"))).status_code == 400
            assert (await client.post(CHAT, json=chat_body())).status_code == 200
            stats = await simulator.astats()
            assert (stats.ok, stats.rejected, stats.with_authorization) == (1, 3, 4)

    asyncio.run(body())


def test_control_resets_and_refuses_what_it_does_not_know() -> None:
    with Simulator() as simulator:
        assert httpx.post(simulator.url + CHAT, json=chat_body(), trust_env=False).status_code == 200
        assert simulator.stats().ok == 1
        assert simulator.log()[0]["kind"] == "text"
        assert simulator.control(reset=True).arrivals == 0
        assert simulator.log() == []
        assert simulator.control(engine={"step_base_ms": 8, "max_seqs": 1}).limit_tokens_per_s == 1000
        with pytest.raises(SimulatorError, match="400"):
            simulator.control(engine={"port": 1})
        url = simulator.url
    with pytest.raises(httpx.ConnectError):
        httpx.get(url + "/health", trust_env=False)
    simulator.close()
