"""Each fault switch, as a client sees it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator

import httpx
import pytest
from chat_bodies import chat_body

from benchmarks.simulator import Fault, FaultRule, Simulator, SimulatorConfig

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator(SimulatorConfig(step_base_ms=1)) as started:
        yield started


@pytest.fixture
def client(simulator: Simulator) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=simulator.url, timeout=10, trust_env=False) as made:
        yield made
    simulator.control(reset=True, faults=[])


def chat(client: httpx.Client, **more: object) -> httpx.Response:
    return client.post(CHAT, json=chat_body(**more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fault", "status", "retry_after"),
    [
        (Fault.TOO_MANY_REQUESTS, 429, "2.5"),
        (Fault.SERVER_ERROR, 500, None),
        (Fault.UNAVAILABLE, 503, "2.5"),
        (Fault.WRONG_MODEL, 404, None),
    ],
)
def test_error_status(
    simulator: Simulator, client: httpx.Client, fault: Fault, status: int, retry_after: str | None
) -> None:
    simulator.control(faults=[FaultRule(fault=fault, count=1, retry_after_s=2.5)])
    answer = chat(client)
    assert (answer.status_code, answer.headers.get("retry-after")) == (status, retry_after)
    assert answer.json()["error"]["code"] == status
    assert chat(client).status_code == 200  # only the next one was to fail
    stats = simulator.stats()
    assert (stats.failed, stats.ok, stats.by_fault) == (1, 1, {str(fault): 1})


def test_delay(simulator: Simulator, client: httpx.Client) -> None:
    simulator.control(faults=[FaultRule(fault=Fault.DELAY, count=1, delay_s=0.4)])
    started = time.perf_counter()
    assert chat(client).status_code == 200
    assert time.perf_counter() - started >= 0.4


def test_malformed_json(simulator: Simulator, client: httpx.Client) -> None:
    simulator.control(faults=[FaultRule(fault=Fault.MALFORMED_JSON, count=1)])
    answer = chat(client)
    assert answer.status_code == 200
    with pytest.raises(json.JSONDecodeError):
        answer.json()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", [Fault.TRUNCATED_BODY, Fault.CUT_CONNECTION])
def test_broken_answer(simulator: Simulator, client: httpx.Client, fault: Fault, stream: bool) -> None:
    simulator.control(faults=[FaultRule(fault=fault, count=1)])
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        chat(client, stream=stream)
    assert chat(client).status_code == 200
    stats = simulator.stats()
    assert (stats.failed, stats.ok, stats.running) == (1, 1, 0)


def test_trickle(simulator: Simulator, client: httpx.Client) -> None:
    simulator.control(faults=[FaultRule(fault=Fault.TRICKLE, count=1, chunk_bytes=50, interval_s=0.05)])
    started = time.perf_counter()
    with client.stream("POST", CHAT, json=chat_body()) as response:
        sizes = [len(part) for part in response.iter_raw()]
    assert len(sizes) > 5 and time.perf_counter() - started > 0.4


def test_redirect_tells_the_location_only(simulator: Simulator, client: httpx.Client) -> None:
    with Simulator() as elsewhere:
        simulator.control(faults=[FaultRule(fault=Fault.REDIRECT, location=elsewhere.url + CHAT)])
        answer = chat(client)
        assert (answer.status_code, answer.headers["location"]) == (307, elsewhere.url + CHAT)
        client.headers["authorization"] = "Bearer secret"
        answer = client.post(CHAT, json=chat_body(), follow_redirects=True)
        assert answer.status_code == 200
        seen = elsewhere.stats()
        assert (seen.ok, seen.with_authorization) == (1, 0)  # httpx keeps the credential to itself: another origin


def test_hang_until_the_client_gives_up(simulator: Simulator, client: httpx.Client) -> None:
    simulator.control(reset=True, faults=[FaultRule(fault=Fault.HANG, count=1)])
    with pytest.raises(httpx.ReadTimeout):
        client.post(CHAT, json=chat_body(), timeout=0.3)
    deadline = time.monotonic() + 5
    while simulator.stats().in_flight and time.monotonic() < deadline:
        time.sleep(0.02)
    stats = simulator.stats()
    assert (stats.cancelled, stats.in_flight) == (1, 0)


def test_other_model_name(simulator: Simulator, client: httpx.Client) -> None:
    simulator.control(engine={"model": "renamed"})
    try:
        assert client.get("/v1/models").json()["data"][0]["id"] == "renamed"
        assert chat(client).status_code == 404
    finally:
        simulator.control(engine={"model": "mineru-simulator"})


def test_share_is_seeded_and_kinds_and_skip_hold(simulator: Simulator, client: httpx.Client) -> None:
    def outcomes() -> list[int]:
        return [chat(client).status_code for _ in range(20)]

    rule = FaultRule(fault=Fault.SERVER_ERROR, share=0.5, seed=3)
    simulator.control(faults=[rule])
    first = outcomes()
    simulator.control(faults=[rule])
    assert outcomes() == first
    assert 4 <= first.count(500) <= 16

    simulator.control(faults=[FaultRule(fault=Fault.SERVER_ERROR, kinds=("layout",), skip=1, count=1)])
    statuses = [chat(client, prompt=f"\n{name} Recognition:").status_code for name in ("Text", "Table")]
    statuses += [chat(client, prompt="\nLayout Detection:").status_code for _ in range(3)]
    assert statuses == [200, 200, 200, 500, 200]


def test_faults_of_many_at_once(simulator: Simulator) -> None:
    async def body() -> list[int]:
        async with httpx.AsyncClient(base_url=simulator.url, timeout=10, trust_env=False) as client:
            answers = await asyncio.gather(*(client.post(CHAT, json=chat_body()) for _ in range(30)))
            return [answer.status_code for answer in answers]

    simulator.control(reset=True, faults=[FaultRule(fault=Fault.TOO_MANY_REQUESTS, count=10)])
    statuses = asyncio.run(body())
    assert (statuses.count(429), statuses.count(200)) == (10, 20)
    assert simulator.control(reset=True, faults=[]).in_flight == 0
