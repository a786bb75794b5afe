"""The transport over HTTP, against the simulated server and against servers that behave oddly."""

from __future__ import annotations

import asyncio
import base64
import gc
import gzip
import io
import logging
import random
import ssl
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from PIL import Image
from pydantic import SecretStr
from raw_server import RawServer, Seen, reply

from benchmarks.simulator import Fault, FaultRule, Simulator, SimulatorConfig
from mineru_engine.errors import EngineDeadError, EngineError, EngineRequestError, EngineUnavailableError
from mineru_engine.options import Engine
from mineru_engine.vlm import retry, server_client
from mineru_engine.vlm.chat import BadAnswerError, read_reply, request_body
from mineru_engine.vlm.config import VlmConfig
from mineru_engine.vlm.http import MOST_TURNED_AWAY, HttpTransport
from mineru_engine.vlm.retry import pause_s
from mineru_engine.vlm.server_address import ServerAddress
from mineru_engine.vlm.transport import EncodedImage, Sampling, VlmReply, VlmRequest

CHAT = "/v1/chat/completions"
CANARY = "canary-3f9a"
MODELS = {"data": [{"id": "m"}]}
DONE = {
    "choices": [{"message": {"content": "Hello<|im_end|>"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3},
}


@cache
def image() -> EncodedImage:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 32), "white").save(buffer, "PNG")
    return EncodedImage(base64.b64encode(buffer.getvalue()).decode(), "image/png")


def ask(**sampling: Any) -> VlmRequest:
    return VlmRequest(image(), "\nText Recognition:", Sampling(**sampling))


def config(url: str | None, key: str | None = None, **more: Any) -> VlmConfig:
    return VlmConfig(Engine.HTTP, url, SecretStr(key) if key else None, **more)


class Started:
    """A transport that has started, closed at the end."""

    def __init__(self, url: str, key: str | None = None, **more: Any) -> None:
        self._transport = HttpTransport(config(url, key, **more))

    async def __aenter__(self) -> HttpTransport:
        await self._transport.start()
        return self._transport

    async def __aexit__(self, *_: object) -> None:
        await self._transport.aclose()


def serves(answer: Callable[[Seen], bytes | None] | bytes) -> Callable[[Seen], Awaitable[bytes | None]]:
    """A handler with one model ``m`` and these answers to chat requests."""

    async def handle(seen: Seen) -> bytes | None:
        if seen.target.endswith("/v1/models"):
            return reply(200, MODELS)
        if seen.target.endswith("/version"):
            return reply(404)
        return answer if isinstance(answer, bytes) else answer(seen)

    return handle


def in_turn(*answers: bytes | None) -> Callable[[Seen], bytes | None]:
    """One answer after the other; the last one for ever."""
    left = list(answers)
    return lambda seen: left.pop(0) if len(left) > 1 else left[0]


class Cuts(RawServer):
    """Closes the connection after an answer to a chat request."""

    async def _answer(self, seen: Seen, reader: asyncio.StreamReader) -> bytes | None:
        answer = await super()._answer(seen, reader)
        if answer and seen.method == "POST":
            reader.feed_eof()
        return answer


def chats(server: RawServer) -> list[Seen]:
    return [seen for seen in server.seen if seen.method == "POST"]


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator(SimulatorConfig(step_base_ms=1)) as started:
        yield started


@pytest.fixture(autouse=True)
def _fresh_simulator(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "simulator" in request.fixturenames:
        request.getfixturevalue("simulator").control(reset=True, faults=[])


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str | None]]:
    """No pauses between tries; what they were asked for."""
    asked: list[tuple[int, str | None]] = []

    def none(failures: int, retry_after: str | None = None) -> float:
        asked.append((failures, retry_after))
        return 0.0

    monkeypatch.setattr(server_client, "pause_s", none)
    return asked


async def until(simulator: Simulator, **values: int) -> None:
    """Wait until the simulator's counters are these."""
    async with asyncio.timeout(20):
        while True:
            stats = await simulator.astats()
            if all(getattr(stats, name) == value for name, value in values.items()):
                return
            await asyncio.sleep(0.01)


# the address


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://host:8000", "http://host:8000"),
        ("http://host:8000/", "http://host:8000"),
        ("http://host:8000/v1", "http://host:8000"),
        ("http://host:8000/v1/", "http://host:8000"),
        ("  HTTPS://Host/proxy/team-a/v1  ", "https://host/proxy/team-a"),
        ("https://host/proxy/", "https://host/proxy"),
        ("http://user:pass%40word@host:81/v1", "http://host:81"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
    ],
)
def test_urls_as_people_write_them(url: str, base: str) -> None:
    assert ServerAddress.parse(url, None).base == base


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "nonsense",
        "ftp://host/",
        "unix:///run/vllm.sock",
        "http://",
        "http://host:99999",
        "http://host:port",
        "http://[::bad",
        "http://host\n.example",
        "http://my host:8000",
        f"http://{'a' * 64}.example",
        f"http://host/v1?key={CANARY}",
        f"user:{CANARY}@host:8000",
        f"ftp://user:{CANARY}@host",
        None,
        "",
    ],
)
def test_what_is_no_url_of_a_server(url: str | None) -> None:
    with pytest.raises(EngineUnavailableError) as caught:
        asyncio.run(HttpTransport(config(url)).start())
    assert "MINERU_MODEL_VLM_SERVER_URL" in str(caught.value.hint)
    assert CANARY not in str(caught.value.to_dict())


@pytest.mark.parametrize("key", ["schlüssel", "two\nlines", "nul\0"])
def test_a_key_that_no_header_can_carry(key: str) -> None:
    with pytest.raises(EngineUnavailableError, match="characters") as caught:
        asyncio.run(HttpTransport(config("http://127.0.0.1:9", key)).start())
    assert key not in str(caught.value.to_dict())


# the start


def test_the_one_model_is_found(simulator: Simulator) -> None:
    async def body() -> None:
        transport = HttpTransport(config(simulator.url + "/v1/"))
        info = await transport.start()
        assert (info.engine, info.model, info.models) == ("http", "mineru-simulator", ("mineru-simulator",))
        assert (info.version, info.location) == ("simulator-1", simulator.url)
        assert transport.concurrency is None
        await transport.aclose()

    asyncio.run(body())


async def start_at(answers: dict[str, bytes], **more: Any) -> Any:
    """What ``start`` makes of a server with these answers to GET."""

    async def handle(seen: Seen) -> bytes:
        return answers.get(seen.target, reply(404))

    async with RawServer(handle) as server:
        transport = HttpTransport(config(server.url, **more))
        try:
            info = await transport.start()
            await transport.aclose()
            return info
        finally:
            await server.until(lambda it: it.open == 0)  # a start that fails cleans up by itself


TWO = reply(200, {"data": [{"id": "MinerU2.5"}, {"id": "other"}]})


@pytest.mark.parametrize(
    ("models", "more", "message", "hint"),
    [
        (TWO, {}, "serves several models: MinerU2.5, other", "--model"),
        (TWO, {"model": "mineru2.5"}, "does not serve mineru2.5; it serves: MinerU2.5, other", "mean MinerU2.5?"),
        (TWO, {"model": "zzz"}, "does not serve zzz", "MINERU_MODEL_VLM_MODEL"),
        (reply(200, {"data": [{"id": f"m{n}"} for n in range(99)]}), {}, "m19, …", "--model"),
        (reply(200, {"data": []}), {}, "serves no model", "--model"),
        (reply(404), {}, "HTTP 404, but not as", "before /v1"),
        (reply(200, b"<html>"), {"model": "m"}, "not as an OpenAI-compatible server", "before /v1"),
        (reply(200, []), {}, "not as an OpenAI-compatible server", "before /v1"),
        (reply(200, {"data": 5}), {}, "not as an OpenAI-compatible server", "before /v1"),
        (reply(500), {}, "HTTP 500", "before /v1"),
        (reply(304), {}, "HTTP 304", "before /v1"),
        (reply(200, b"\x1f\x8b, but no gzip", Content_Encoding="gzip"), {}, "cannot be read", "before /v1"),
        (reply(401), {}, "it wants an API key", "MINERU_MODEL_VLM_API_KEY"),
        (reply(403), {"key": CANARY}, "the API key was refused", "MINERU_MODEL_VLM_API_KEY"),
        (reply(302, Location="http://elsewhere.invalid/login?next=v1"), {}, "http://elsewhere.invalid", "before /v1"),
        (reply(301, Location="/v1/models"), {}, "redirects without end", "before /v1"),
    ],
)
def test_servers_that_will_not_do(models: bytes, more: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(EngineUnavailableError) as caught:
        asyncio.run(start_at({"/v1/models": models}, **more))
    assert message in str(caught.value)
    assert hint in str(caught.value.hint)
    assert CANARY not in str(caught.value.to_dict()) and "login" not in str(caught.value)


def test_a_model_among_several() -> None:
    info = asyncio.run(start_at({"/v1/models": TWO}, model="other"))
    assert (info.model, info.models) == ("other", ("MinerU2.5", "other"))


def test_a_server_without_a_list_of_models() -> None:
    info = asyncio.run(start_at({}, model="mine"))
    assert (info.model, info.models, info.version) == ("mine", (), None)


@pytest.mark.parametrize(
    ("version", "headers", "found"),
    [
        (reply(200, {"version": "0.19.1"}), {"Server": "uvicorn"}, "0.19.1"),
        (reply(404), {"Server": "llama.cpp"}, "llama.cpp"),
        (reply(200, b"<html>"), {}, None),
        (reply(200, ["no"]), {}, None),
        (reply(401), {}, None),
        (reply(307, Location="http://elsewhere.invalid"), {}, None),
        (b"no HTTP\r\n\r\n", {}, None),
    ],
)
def test_the_version(version: bytes, headers: dict[str, str], found: str | None) -> None:
    info = asyncio.run(start_at({"/v1/models": reply(200, MODELS, **headers), "/version": version}))
    assert info.version == found


def test_a_version_that_never_comes_is_none() -> None:
    async def body() -> None:
        async def handle(seen: Seen) -> bytes | None:
            return reply(200, MODELS) if seen.target == "/v1/models" else await asyncio.Future()

        async with RawServer(handle) as server:
            transport = HttpTransport(config(server.url, connect_timeout=0.2))
            assert (await transport.start()).version is None
            await transport.aclose()

    asyncio.run(body())


def test_nobody_listens(pauses: list[Any]) -> None:
    async def body() -> None:
        async with RawServer(serves(reply(200))) as server:
            origin = server.origin
        with pytest.raises(EngineDeadError, match=origin) as caught:
            await HttpTransport(config(f"http://user:{CANARY}@{origin}", max_retries=3)).start()
        assert CANARY not in str(caught.value.to_dict())

    asyncio.run(body())
    assert pauses == [(1, None), (2, None), (3, None)]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_somebody_listens_and_says_nothing(pauses: list[Any], scheme: str) -> None:
    async def body() -> None:
        async def handle(seen: Seen) -> bytes | None:
            return await asyncio.Future()

        async with RawServer(handle) as server:
            url = f"{scheme}://{server.origin}"
            with pytest.raises(EngineDeadError, match=r"no (answer|connection) within 0\.2 s"):
                await HttpTransport(config(url, max_retries=1, connect_timeout=0.2)).start()
            assert server.connections == 2
            await server.until(lambda it: it.open == 0)

    asyncio.run(body())
    assert len(pauses) == 1


def test_a_server_that_is_too_busy_to_start_with(pauses: list[Any]) -> None:
    with pytest.raises(EngineDeadError, match="503"):
        asyncio.run(start_at({"/v1/models": reply(503)}, max_retries=2))
    assert len(pauses) == 2


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_cancelled_start_leaves_no_connection(scheme: str) -> None:
    async def body() -> None:
        async def handle(seen: Seen) -> bytes | None:
            return await asyncio.Future()

        async with RawServer(handle) as server:
            task = asyncio.create_task(HttpTransport(config(f"{scheme}://{server.origin}")).start())
            await server.until(lambda it: it.open == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.until(lambda it: it.open == 0)

    asyncio.run(body())


# what is sent


ALL_SAMPLING = {
    "temperature": 0.0,
    "top_p": 0.01,
    "top_k": 1,
    "presence_penalty": 1.0,
    "frequency_penalty": 0.05,
    "repetition_penalty": 1.05,
    "no_repeat_ngram_size": 100,
    "max_new_tokens": 4096,
}
OPENAI_FIELDS = {
    "temperature": 0.0,
    "top_p": 0.01,
    "presence_penalty": 1.0,
    "frequency_penalty": 0.05,
    "max_completion_tokens": 4096,
    "max_tokens": 4096,
}
OPEN_MODEL_FIELDS = {
    "top_k": 1,
    "repetition_penalty": 1.05,
    "vllm_xargs": {"no_repeat_ngram_size": 100},
    "skip_special_tokens": False,
}


@pytest.mark.parametrize(
    ("model", "sampling", "fields"),
    [
        ("m", {}, {"skip_special_tokens": False}),
        ("m", ALL_SAMPLING, OPENAI_FIELDS | OPEN_MODEL_FIELDS),
        ("gpt-4o", ALL_SAMPLING, OPENAI_FIELDS),
        ("GPT-x", {}, {}),
    ],
)
def test_the_fields_of_a_request(model: str, sampling: dict[str, Any], fields: dict[str, Any]) -> None:
    body = orjson.loads(request_body(model, ask(**sampling)))
    assert body.pop("model") == model
    assert body.pop("messages")[-1]["role"] == "user"
    assert body == fields


def test_a_request_arrives_whole() -> None:
    async def body() -> None:
        async with RawServer(serves(reply(200, DONE))) as server, Started(server.url + "/prefix/v1") as transport:
            answer = await transport.generate(ask())
            bare = VlmRequest(image(), "p", system_prompt="")
            await transport.generate(bare)
        assert answer == VlmReply("Hello", 7, 3, False)
        first, second = chats(server)
        assert (first.target, first.headers["content-type"]) == ("/prefix" + CHAT, "application/json")
        assert "authorization" not in first.headers
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image().data}"}}
        assert first.json()["messages"] == [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": [picture, {"type": "text", "text": "\nText Recognition:"}]},
        ]
        assert [message["role"] for message in second.json()["messages"]] == ["user"]

    asyncio.run(body())


@pytest.mark.parametrize(
    ("userinfo", "key", "sent"),
    [
        ("", " key ", "Bearer key"),
        ("user:p%40ss@", None, "Basic " + base64.b64encode(b"user:p@ss").decode()),
        ("user:pass@", "key", "Bearer key"),
    ],
)
def test_credentials(userinfo: str, key: str | None, sent: str) -> None:
    async def body() -> None:
        server = RawServer(serves(reply(200, DONE)))
        async with server, Started(f"http://{userinfo}{server.origin}", key) as transport:
            await transport.generate(ask())
        assert {seen.headers["authorization"] for seen in server.seen} == {sent}

    asyncio.run(body())


# what comes back


def completion(content: Any = "x", reason: Any = "stop", **more: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": content}, "finish_reason": reason}]} | more


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (completion("a<|im_end|><|im_end|>"), VlmReply("a<|im_end|>")),
        (completion("<|im_end|>a "), VlmReply("<|im_end|>a ")),
        (completion(None), VlmReply("")),
        (completion("", "length"), VlmReply("", truncated=True)),
        (completion(usage=None), VlmReply("x")),
        (completion(usage={"prompt_tokens": 0, "completion_tokens": None}), VlmReply("x", 0)),
        (completion(usage=[1]), VlmReply("x")),
    ],
)
def test_a_reply_is_read(answer: object, expected: VlmReply) -> None:
    assert read_reply(orjson.dumps(answer)) == expected


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b'{"choices": [', "no chat completion"),
        (b"\xff", "no chat completion"),
        (b"", "no message"),
        (b"<html>busy</html>", "<html>busy</html>"),
        (b"[]", "no chat completion"),
        (b'{"choices": []}', "no chat completion"),
        (b'{"choices": [7]}', "no chat completion"),
        (b'{"choices": [{"message": {}}]}', "no chat completion"),
        (b'{"error": {"message": "out of memory", "code": 500}}', "out of memory"),
        (b'{"object": "error", "message": "too long"}', "too long"),
        (b'{"error": "plain"}', "plain"),
        (orjson.dumps(completion(["x"])), "no text"),
        (orjson.dumps(completion(reason="content_filter")), "content_filter"),
        (orjson.dumps(completion(reason=None)), "finish_reason is None"),
        (orjson.dumps(completion(reason=["stop"])), "finish_reason"),
    ],
)
def test_an_answer_of_another_shape(answer: bytes, message: str) -> None:
    with pytest.raises(BadAnswerError) as caught:
        read_reply(answer)
    assert message in str(caught.value)


def test_a_page_image_may_be_larger_than_a_mebibyte() -> None:
    async def body() -> None:
        large = EncodedImage("A" * (3 << 20), "image/png")
        async with RawServer(serves(reply(200, DONE))) as server, Started(server.url) as transport:
            assert (await transport.generate(VlmRequest(large, "p"))).text == "Hello"
            assert len(chats(server)[0].body) > 3 << 20

    asyncio.run(body())


def test_an_answer_may_be_compressed() -> None:
    async def body() -> None:
        answer = reply(200, gzip.compress(orjson.dumps(DONE)), Content_Encoding="gzip")
        async with RawServer(serves(answer)) as server, Started(server.url) as transport:
            assert (await transport.generate(ask())).text == "Hello"

    asyncio.run(body())


@pytest.mark.parametrize("packed", [False, True])
def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    monkeypatch.setattr(server_client, "_LARGEST_ANSWER_MB", 1)
    endless = orjson.dumps(completion("x" * (2 << 20)))
    answer = reply(200, gzip.compress(endless), Content_Encoding="gzip") if packed else reply(200, endless)

    async def body() -> None:
        async with RawServer(serves(answer)) as server, Started(server.url) as transport:
            with pytest.raises(EngineRequestError, match="larger than 1 MiB"):
                await transport.generate(ask())
            await server.until(lambda it: it.open == 0)

    asyncio.run(body())


# faults: with each of them the transport does this, and then goes on working


FAULTS: dict[Fault, tuple[FaultRule, type[EngineError] | None]] = {
    Fault.DELAY: (FaultRule(fault=Fault.DELAY, count=1, delay_s=0.2), None),
    Fault.TOO_MANY_REQUESTS: (FaultRule(fault=Fault.TOO_MANY_REQUESTS, count=2), None),
    Fault.UNAVAILABLE: (FaultRule(fault=Fault.UNAVAILABLE, count=2), None),
    Fault.TRUNCATED_BODY: (FaultRule(fault=Fault.TRUNCATED_BODY, count=2), None),
    Fault.CUT_CONNECTION: (FaultRule(fault=Fault.CUT_CONNECTION, count=2), None),
    Fault.TRICKLE: (FaultRule(fault=Fault.TRICKLE, count=1, chunk_bytes=100, interval_s=0.02), None),
    Fault.SERVER_ERROR: (FaultRule(fault=Fault.SERVER_ERROR, count=1), EngineRequestError),
    Fault.MALFORMED_JSON: (FaultRule(fault=Fault.MALFORMED_JSON, count=1), EngineRequestError),
    Fault.HANG: (FaultRule(fault=Fault.HANG, count=1), EngineRequestError),
    Fault.WRONG_MODEL: (FaultRule(fault=Fault.WRONG_MODEL, count=1), EngineUnavailableError),
    Fault.REDIRECT: (FaultRule(fault=Fault.REDIRECT, count=1), EngineUnavailableError),
}


@pytest.mark.parametrize("fault", list(Fault))
def test_faults(simulator: Simulator, pauses: list[Any], fault: Fault) -> None:
    rule, error = FAULTS[fault]

    async def body() -> None:
        async with Started(simulator.url, http_timeout=2.0) as transport:
            await simulator.acontrol(reset=True, faults=[rule])
            if error is None:
                assert "Lorem ipsum" in (await transport.generate(ask())).text
            else:
                with pytest.raises(error) as caught:
                    await transport.generate(ask())
                assert type(caught.value) is error
            await until(simulator, in_flight=0)
            assert "Lorem ipsum" in (await transport.generate(ask())).text
            stats = await simulator.astats()
            assert stats.by_fault == {str(fault): rule.count}
            assert stats.arrivals == (rule.count or 0) + (2 if error is None and fault in TRIED_AGAIN else 1)

    asyncio.run(body())
    assert len(pauses) <= 2


TRIED_AGAIN = {Fault.TOO_MANY_REQUESTS, Fault.UNAVAILABLE, Fault.TRUNCATED_BODY, Fault.CUT_CONNECTION}


@pytest.mark.parametrize("fault", sorted(TRIED_AGAIN))
def test_faults_that_outlast_the_tries(simulator: Simulator, pauses: list[Any], fault: Fault) -> None:
    async def body() -> None:
        async with Started(simulator.url, max_retries=2) as transport:
            await simulator.acontrol(reset=True, faults=[FaultRule(fault=fault, retry_after_s=7)])
            with pytest.raises(EngineRequestError):  # the server still tells its models: it is not gone
                await transport.generate(ask())

    asyncio.run(body())
    assert [failures for failures, _ in pauses] == [1, 2]
    if fault in (Fault.TOO_MANY_REQUESTS, Fault.UNAVAILABLE):
        assert [asked for _, asked in pauses] == ["7", "7"]


@pytest.mark.parametrize("fault", [Fault.HANG, Fault.TRICKLE])
def test_no_whole_answer_in_time(simulator: Simulator, pauses: list[Any], fault: Fault) -> None:
    async def body() -> None:
        async with Started(simulator.url, http_timeout=0.3, connect_timeout=0.3) as transport:
            pauses.clear()
            await simulator.acontrol(reset=True, faults=[FaultRule(fault=fault)])
            with pytest.raises(EngineRequestError, match=r"within 0\.3 s") as caught:
                await transport.generate(ask())
            assert "MINERU_MODEL_VLM_HTTP_TIMEOUT" in str(caught.value.hint)
            await until(simulator, in_flight=0, arrivals=1)

    asyncio.run(body())
    assert pauses == []


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_busy_servers_are_asked_again(pauses: list[Any], status: int) -> None:
    async def body() -> None:
        answers = in_turn(reply(status), reply(status, Retry_After="3"), reply(200, DONE))
        async with RawServer(serves(answers)) as server, Started(server.url, max_retries=2) as transport:
            assert (await transport.generate(ask())).text == "Hello"

    asyncio.run(body())
    assert pauses == [(1, None), (2, "3")]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, EngineRequestError),
        (408, EngineRequestError),
        (413, EngineRequestError),
        (422, EngineRequestError),
        (500, EngineRequestError),
        (501, EngineRequestError),
        (401, EngineUnavailableError),
        (403, EngineUnavailableError),
        (404, EngineUnavailableError),
        (304, EngineUnavailableError),
    ],
)
def test_other_servers_are_asked_once(pauses: list[Any], status: int, error: type[EngineError]) -> None:
    async def body() -> None:
        answer = reply(status, b"" if status == 304 else {"error": {"message": "because " * 100}})
        async with RawServer(serves(answer)) as server, Started(server.url) as transport:
            with pytest.raises(error) as caught:
                await transport.generate(ask())
            assert type(caught.value) is error
            assert len(chats(server)) == 1
            if status in {401, 403}:
                assert "MINERU_MODEL_VLM_API_KEY" in str(caught.value.hint)
            elif status != 304:
                assert "because because" in str(caught.value)
                assert len(str(caught.value)) < 260

    asyncio.run(body())
    assert pauses == []


def test_a_server_that_turns_everybody_away_counts_as_gone(pauses: list[Any]) -> None:
    async def body() -> None:
        answers = in_turn(
            *[reply(503)] * (MOST_TURNED_AWAY - 1), reply(200, DONE), *[reply(503)] * MOST_TURNED_AWAY, reply(200, DONE)
        )
        async with RawServer(serves(answers)) as server, Started(server.url, max_retries=0) as transport:
            outcomes = []
            for _ in range(2 * MOST_TURNED_AWAY):
                try:
                    await transport.generate(ask())
                    outcomes.append("ok")
                except EngineError as exc:
                    outcomes.append(type(exc).__name__)
            one_less = ["EngineRequestError"] * (MOST_TURNED_AWAY - 1)
            assert outcomes == [*one_less, "ok", *one_less, "EngineDeadError"]

    asyncio.run(body())


# pauses


def test_pauses_grow_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry.random, "uniform", lambda low, high: high)
    assert [pause_s(failures) for failures in range(1, 9)] == [0.25, 0.5, 1, 2, 4, 8, 8, 8]
    monkeypatch.setattr(retry.random, "uniform", lambda low, high: low)
    assert [pause_s(failures) for failures in range(1, 9)] == [0] * 8


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3), ("0", 0), ("600", 60), ("-5", 0), ("²", 0), ("soon", 0), ("", 0), ("Mon, 99 Foo 2026", 0)],
)
def test_retry_after_in_seconds(monkeypatch: pytest.MonkeyPatch, header: str, seconds: float) -> None:
    monkeypatch.setattr(retry.random, "uniform", lambda low, high: low)
    assert pause_s(1, header) == seconds


@pytest.mark.parametrize(("ahead", "low", "high"), [(30, 25, 30), (3000, 60, 60), (-30, 0, 0)])
def test_retry_after_as_a_date(monkeypatch: pytest.MonkeyPatch, ahead: float, low: float, high: float) -> None:
    monkeypatch.setattr(retry.random, "uniform", lambda low, high: low)
    assert low <= pause_s(1, formatdate(time.time() + ahead, usegmt=True)) <= high


def test_retry_after_is_waited_for() -> None:
    async def body() -> None:
        answers = in_turn(reply(429, Retry_After="1"), reply(200, DONE))
        async with RawServer(serves(answers)) as server, Started(server.url) as transport:
            await transport.generate(ask())
            first, second = chats(server)
            assert second.at - first.at >= 0.99

    asyncio.run(body())


# connections


def test_connections_are_kept(simulator: Simulator) -> None:
    async def body() -> None:
        async with Started(simulator.url) as transport:
            before = (await simulator.acontrol(reset=True)).connections
            for _ in range(5):
                await transport.generate(ask())
            await asyncio.gather(*(transport.generate(ask()) for _ in range(8)))
            await asyncio.gather(*(transport.generate(ask()) for _ in range(8)))
            stats = await simulator.astats()
            assert (stats.ok, stats.connections - before) == (21, 7 + 1)  # one was there, one asks for the counters

    asyncio.run(body())


def test_a_kept_connection_that_the_server_closed_costs_no_try(pauses: list[Any]) -> None:
    def answer(seen: Seen) -> bytes | None:
        """Takes one chat on each connection, and closes it when the next one is on its way."""
        before = [other for other in server.seen if other.connection == seen.connection]
        return reply(200, DONE) if len(before) == 1 or before[-2].method == "GET" else None

    async def body() -> None:
        nonlocal server
        async with RawServer(serves(answer)) as server, Started(server.url, max_retries=0) as transport:
            for _ in range(3):
                assert (await transport.generate(ask())).text == "Hello"
            assert [seen.connection for seen in chats(server)] == [0, 0, 1, 1, 2]

    server: RawServer
    asyncio.run(body())
    assert pauses == []


def test_after_a_restart_of_the_server_the_other_kept_connections_are_not_tried(pauses: list[Any]) -> None:
    def answer(seen: Seen) -> bytes | None:
        stale = restarted and seen.connection < 3
        return None if stale else reply(200, DONE)

    async def body() -> None:
        nonlocal restarted
        async with RawServer(serves(answer)) as server, Started(server.url, max_retries=0) as transport:
            await asyncio.gather(*(transport.generate(ask()) for _ in range(3)))
            restarted = True
            assert (await transport.generate(ask())).text == "Hello"
            assert server.connections == 4

    restarted = False
    asyncio.run(body())


def test_a_connection_that_was_lost_twice_is_no_kept_one(pauses: list[Any]) -> None:
    async def body() -> None:
        async with RawServer(serves(lambda seen: None)) as server, Started(server.url, max_retries=0) as transport:
            with pytest.raises(EngineRequestError, match="disconnected"):
                await transport.generate(ask())
            assert len(chats(server)) == 2

    asyncio.run(body())


@pytest.mark.parametrize("begun", [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", b"no HTTP\r\n\r\n"])
def test_a_connection_that_is_lost_after_an_answer_has_begun_counts_as_a_try(pauses: list[Any], begun: bytes) -> None:
    def answer(seen: Seen) -> bytes | None:
        return begun if len(chats(server)) == 1 else reply(200, DONE)

    async def body() -> None:
        nonlocal server
        async with Cuts(serves(answer)) as server, Started(server.url) as transport:
            assert (await transport.generate(ask())).text == "Hello"
            assert [seen.connection for seen in chats(server)] == [0, 1]

    server: RawServer
    asyncio.run(body())
    assert pauses == [(1, None)]


def test_a_server_that_cuts_every_request_counts_as_gone(pauses: list[Any]) -> None:
    async def body() -> None:
        async with RawServer(serves(lambda seen: None)) as server, Started(server.url, max_retries=0) as transport:
            for _ in range(MOST_TURNED_AWAY - 1):
                with pytest.raises(EngineRequestError):
                    await transport.generate(ask())
            with pytest.raises(EngineDeadError):
                await transport.generate(ask())

    asyncio.run(body())


def test_idle_connections_are_closed_before_the_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        monkeypatch.setattr(server_client, "_KEPT_S", 0.1)
        async with RawServer(serves(reply(200, DONE))) as server, Started(server.url) as transport:
            await asyncio.gather(*(transport.generate(ask()) for _ in range(4)))
            made = server.connections
            await server.until(lambda it: it.open == 0)
            await transport.generate(ask())
            assert server.connections == made + 1

    asyncio.run(body())


def test_closing_twice_and_asking_afterwards() -> None:
    async def body() -> None:
        async with RawServer(serves(reply(200, DONE))) as server, Started(server.url) as transport:
            await transport.generate(ask())
            await transport.aclose()
            await transport.aclose()
            await server.until(lambda it: it.open == 0)
            with pytest.raises(EngineDeadError, match="closed"):
                await transport.generate(ask())
        await HttpTransport(config("http://127.0.0.1:9")).aclose()

    asyncio.run(body())


def test_closing_ends_what_is_in_flight_and_what_waits_for_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        async def handle(seen: Seen) -> bytes | None:
            if seen.method == "GET":
                return reply(200, MODELS)
            return reply(429) if seen is chats(server)[0] else await asyncio.Future()

        waits = asyncio.Event()
        monkeypatch.setattr(server_client, "pause_s", lambda *_: waits.set() or 60.0)
        async with RawServer(handle) as server, Started(server.url) as transport:
            tasks = [asyncio.create_task(transport.generate(ask())) for _ in range(3)]
            await server.until(lambda it: len(chats(it)) == 3)
            await waits.wait()
            async with asyncio.timeout(20):
                await transport.aclose()
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [EngineDeadError] * 3
            await server.until(lambda it: it.open == 0)

    asyncio.run(body())


# cancels


@pytest.mark.parametrize("times", [1, 3])
def test_a_cancel_closes_the_request(simulator: Simulator, times: int) -> None:
    async def body() -> None:
        async with Started(simulator.url) as transport:
            await simulator.acontrol(reset=True, faults=[FaultRule(fault=Fault.HANG, count=1)])
            task = asyncio.create_task(transport.generate(ask()))
            await until(simulator, in_flight=1)
            for _ in range(times):
                task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert asyncio.all_tasks() == {asyncio.current_task()}
            await until(simulator, cancelled=1, in_flight=0)
            assert (await transport.generate(ask())).text

    asyncio.run(body())


def test_a_cancelled_connection_is_not_used_again() -> None:
    async def body() -> None:
        async def handle(seen: Seen) -> bytes | None:
            if seen.method == "GET":
                return reply(200, MODELS)
            return await asyncio.Future() if len(chats(server)) == 1 else reply(200, DONE)

        async with RawServer(handle) as server, Started(server.url) as transport:
            task = asyncio.create_task(transport.generate(ask()))
            await server.until(lambda it: len(chats(it)) == 1)
            task.cancel()
            await asyncio.wait([task])
            await server.until(lambda it: it.open == 0)
            await transport.generate(ask())
            first, second = chats(server)
            assert first.connection != second.connection

    asyncio.run(body())


def test_a_cancel_in_a_tls_handshake_closes_the_connection() -> None:
    async def body() -> None:
        greeted, gone = asyncio.Event(), asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(1 << 16):
                greeted.set()
            gone.set()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        task = asyncio.create_task(HttpTransport(config(url)).start())
        async with asyncio.timeout(20):
            await greeted.wait()
            task.cancel()
            await asyncio.wait([task])
            await gone.wait()
        server.close()

    gc.collect()
    gc.disable()  # it would close what was forgotten
    try:
        asyncio.run(body())
    finally:
        gc.enable()


def test_a_cancel_does_not_wait_until_the_server_takes_what_is_to_be_sent() -> None:
    async def body() -> None:
        asked, cancelled = asyncio.Event(), asyncio.Event()
        taken: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /v1/models"):
                writer.write(reply(200, MODELS))
                await reader.readuntil(b"\r\n\r\n")
                writer.write(reply(404))
                await reader.readuntil(b"\r\n\r\n")
            asked.set()
            await cancelled.wait()
            size = 0
            with suppress(ConnectionError):
                while part := await reader.read(1 << 20):
                    size += len(part)
            taken.set_result(size)
            writer.close()

        server = await asyncio.start_server(slow, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        large = EncodedImage("A" * (64 << 20), "image/png")
        async with asyncio.timeout(60), Started(url) as transport:
            task = asyncio.create_task(transport.generate(VlmRequest(large, "p")))
            await asked.wait()
            task.cancel()
            await asyncio.wait([task])
            cancelled.set()
            assert await taken < 64 << 20
        server.close()

    asyncio.run(body())


def test_a_cancel_ends_the_wait_for_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        waits = asyncio.Event()
        monkeypatch.setattr(server_client, "pause_s", lambda *_: waits.set() or 60.0)
        async with RawServer(serves(reply(429))) as server, Started(server.url) as transport:
            task = asyncio.create_task(transport.generate(ask()))
            await waits.wait()
            task.cancel()
            async with asyncio.timeout(10):
                await asyncio.wait([task])
            assert task.cancelled() and len(chats(server)) == 1

    asyncio.run(body())


@pytest.mark.parametrize("seed", range(4))
def test_cancels_at_any_moment_cost_no_place(simulator: Simulator, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    places, dice = 8, random.Random(seed)
    monkeypatch.setattr(server_client, "_KEPT_S", 0.02)  # connections run out in between as well

    async def cancel_one(transport: HttpTransport, gate: asyncio.Semaphore) -> None:
        async with gate:
            task = asyncio.create_task(transport.generate(ask()))
            for _ in range(dice.randrange(60)):
                await asyncio.sleep(0)
            if dice.random() < 0.5:
                await asyncio.sleep(dice.random() * 0.03)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled() or task.result().text

    async def body() -> None:
        async with Started(simulator.url, max_concurrency=places) as transport:
            gate = asyncio.Semaphore(places)
            await asyncio.gather(*(cancel_one(transport, gate) for _ in range(200)))
            assert asyncio.all_tasks() == {asyncio.current_task()}
            await until(simulator, in_flight=0)
            async with asyncio.timeout(20):
                replies = await asyncio.gather(*(transport.generate(ask()) for _ in range(places)))
            assert all(answer.text for answer in replies)
            assert (await simulator.astats()).connections_open <= places + 1
        await until(simulator, connections_open=1)  # the one that asks

    asyncio.run(body())


# redirects


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_to_the_same_server_is_followed(status: int) -> None:
    def answer(seen: Seen) -> bytes:
        there = seen.target == CHAT + "/"
        return reply(200, DONE) if there else reply(status, Location=f"{server.url}{CHAT}/")

    async def body() -> None:
        nonlocal server
        async with RawServer(serves(answer)) as server, Started(server.url, "key") as transport:
            assert (await transport.generate(ask())).text == "Hello"
            first, second = chats(server)
            assert (second.target, second.body) == (CHAT + "/", first.body)
            assert second.headers["authorization"] == "Bearer key"

    server: RawServer
    asyncio.run(body())


def test_the_key_never_follows_a_redirect_to_another_server(simulator: Simulator, pauses: list[Any]) -> None:
    async def body(elsewhere: Simulator) -> None:
        async with Started(simulator.url, CANARY) as transport:
            away = f"{elsewhere.url}{CHAT}?token={CANARY}"
            await simulator.acontrol(faults=[FaultRule(fault=Fault.REDIRECT, location=away)])
            with pytest.raises(EngineUnavailableError) as caught:
                await transport.generate(ask())
            assert str(caught.value).endswith(f"redirects POST to {elsewhere.url}")
            stats = await elsewhere.astats()
            assert (stats.connections, stats.arrivals) == (1, 0)  # the one that asks
            assert (await simulator.astats()).with_authorization > 0

    with Simulator() as elsewhere:
        asyncio.run(body(elsewhere))


@pytest.mark.parametrize(
    "location",
    [
        "https://{origin}/x",
        "http://localhost:{port}/x",
        "http://127.0.0.1:9/x",
        "http://127.0.0.1@elsewhere.invalid:{port}/x",
        "//elsewhere.invalid/x",
        "ftp://x/y",
    ],
)
def test_another_scheme_host_or_port_is_another_server(location: str) -> None:
    async def body() -> None:
        async with RawServer(serves(lambda seen: reply(308, Location=target))) as server:
            target = location.format(origin=server.origin, port=server.origin.partition(":")[2])
            async with Started(server.url) as transport:
                with pytest.raises(EngineUnavailableError, match="redirects POST to"):
                    await transport.generate(ask())
            assert len(chats(server)) == 1

    asyncio.run(body())


def test_a_user_in_a_redirect_to_the_same_server_is_ignored() -> None:
    def answer(seen: Seen) -> bytes:
        there = seen.target == CHAT + "/"
        return reply(200, DONE) if there else reply(307, Location=f"http://user:other@{server.origin}{CHAT}/")

    async def body() -> None:
        nonlocal server
        async with RawServer(serves(answer)) as server, Started(server.url, "key") as transport:
            assert (await transport.generate(ask())).text == "Hello"
            assert {seen.headers["authorization"] for seen in server.seen} == {"Bearer key"}

    server: RawServer
    asyncio.run(body())


@pytest.mark.parametrize("location", ["http://[::bad", "mailto:x", "http://x:99999/"])
def test_a_redirect_to_no_url(location: str) -> None:
    async def body() -> None:
        async with RawServer(serves(reply(307, Location=location))) as server, Started(server.url) as transport:
            with pytest.raises(EngineRequestError, match="no URL"):
                await transport.generate(ask())
            assert len(chats(server)) == 1

    asyncio.run(body())


@pytest.mark.parametrize("answer", [reply(302, Location=CHAT + "/"), reply(307, Location=CHAT)])
def test_redirects_that_lead_nowhere(answer: bytes) -> None:
    """A 302 makes a GET of a POST, and 307 to the same place goes round in circles."""

    async def body() -> None:
        chat = serves(lambda seen: answer if seen.method == "POST" else reply(200, DONE))
        async with RawServer(chat) as server, Started(server.url) as transport:
            with pytest.raises(EngineUnavailableError, match="redirects"):
                await transport.generate(ask())
            assert len(server.seen) < 8

    asyncio.run(body())


# the environment


def test_the_environment_is_left_alone_unless_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text(f"default login user password {CANARY}\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("no_proxy", "")

    async def body() -> None:
        async with RawServer(serves(reply(200, DONE))) as proxy, RawServer(serves(reply(200, DONE))) as server:
            for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
                monkeypatch.setenv(name, proxy.url)
            async with Started(server.url) as transport:
                await transport.generate(ask())
            assert proxy.seen == []
            assert not any("authorization" in seen.headers for seen in server.seen)

            async with Started(server.url, proxy_from_env=True) as transport:
                await transport.generate(ask())
            assert chats(proxy)[0].target == server.url + CHAT
            assert len(chats(server)) == 1
            assert not any("authorization" in seen.headers for seen in proxy.seen)

            monkeypatch.setenv("no_proxy", f"elsewhere.invalid,{server.origin}")
            async with Started(server.url, proxy_from_env=True) as transport:
                await transport.generate(ask())
            assert (len(chats(proxy)), len(chats(server))) == (1, 2)

    asyncio.run(body())


def test_a_proxy_gets_its_own_credentials_and_a_server_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        async with RawServer(serves(reply(418, {"error": f"no, {CANARY}"}))) as proxy:
            monkeypatch.setenv("http_proxy", f"user:{CANARY}@{proxy.origin}")
            monkeypatch.setenv("no_proxy", "")
            async with Started("http://server.invalid", "key", proxy_from_env=True) as transport:
                with pytest.raises(EngineRequestError, match=r"418: no, \*\*\*"):
                    await transport.generate(ask())
            secret = base64.b64encode(f"user:{CANARY}".encode()).decode()
            assert {seen.headers["proxy-authorization"] for seen in proxy.seen} == {f"Basic {secret}"}
            assert {seen.headers["authorization"] for seen in proxy.seen} == {"Bearer key"}

    asyncio.run(body())


@pytest.mark.parametrize("answer", [reply(407), b"HTTP/9 nonsense\r\n\r\n", None])
def test_a_proxy_that_makes_no_tunnel(monkeypatch: pytest.MonkeyPatch, pauses: list[Any], answer: bytes | None) -> None:
    async def body() -> None:
        async with RawServer(serves(answer) if answer else serves(lambda seen: None)) as proxy:
            monkeypatch.setenv("https_proxy", f"http://user:{CANARY}@{proxy.origin}")
            monkeypatch.setenv("no_proxy", "")
            with pytest.raises(EngineDeadError, match="cannot be reached") as caught:
                await HttpTransport(config("https://server.invalid", "key", proxy_from_env=True, max_retries=1)).start()
            assert CANARY not in str(caught.value.to_dict())
            first = proxy.seen[0]
            assert (first.method, first.target) == ("CONNECT", "server.invalid:443")
            assert "authorization" not in first.headers
            await proxy.until(lambda it: it.open == 0)

    asyncio.run(body())
    assert len(pauses) == 1


@pytest.mark.parametrize("proxy", [f"gopher://user:{CANARY}@host", f"socks5://user:{CANARY}@host", "http://[::bad"])
def test_a_proxy_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(EngineUnavailableError, match="cannot be set up") as caught:
        asyncio.run(HttpTransport(config("http://127.0.0.1:9", proxy_from_env=True)).start())
    assert "ALL_PROXY" in str(caught.value.hint)
    assert CANARY not in str(caught.value.to_dict())


def test_certificates_that_are_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(EngineUnavailableError, match="cannot be set up"):
        asyncio.run(HttpTransport(config("https://127.0.0.1:9")).start())


# secrets


LEAKS = [
    reply(400, {"error": {"message": f"bad key {CANARY}"}}),
    reply(401, {"error": {"message": f"bad key {CANARY}"}}),
    reply(404, {"detail": f"{CANARY} is no model"}),
    reply(422, {"detail": [{"input": CANARY}]}),
    reply(500, f"Bearer {CANARY}".encode()),
    reply(500, ("x" * 190 + CANARY).encode()),  # across the place where the message is cut
    reply(503, CANARY.encode(), Retry_After=CANARY),
    reply(200, CANARY.encode()),
    reply(200, completion(reason=CANARY)),
    reply(200, {"error": {"message": CANARY}}),
    reply(307, Location=f"http://{CANARY}.invalid/{CANARY}"),
    b"HTTP/1.1 200 OK\r\n" + CANARY.encode() + b"\r\n\r\n",
    b"HTTP/9 " + CANARY.encode() + b"\r\n\r\n",
]


@pytest.mark.parametrize("where", ["key", "password", "user"])
@pytest.mark.parametrize("answer", LEAKS)
def test_no_secret_in_errors_and_logs(
    caplog: pytest.LogCaptureFixture, pauses: list[Any], answer: bytes, where: str
) -> None:
    caplog.set_level(logging.DEBUG)
    userinfo = {"key": "", "password": f"user:{CANARY}@", "user": f"{CANARY}@"}[where]
    key = CANARY if where == "key" else None

    async def body() -> None:
        server = RawServer(serves(answer))
        async with server, Started(f"http://{userinfo}{server.origin}", key, max_retries=1) as transport:
            with pytest.raises(EngineError) as caught:
                await transport.generate(ask())
            shown = "".join(traceback.format_exception(caught.value))
            assert "canary" not in f"{caught.value!r} {caught.value.to_dict()} {shown}"

    asyncio.run(body())
    assert "canary" not in caplog.text


@pytest.mark.parametrize(
    "models",
    [
        reply(200, {"data": [{"id": CANARY}, {"id": "m"}]}),
        reply(401, {"error": CANARY}),
        reply(302, Location=f"http://{CANARY}.invalid/"),
        b"HTTP/9 " + CANARY.encode() + b"\r\n\r\n",
    ],
)
def test_no_secret_in_errors_of_the_start(pauses: list[Any], models: bytes) -> None:
    with pytest.raises(EngineError) as caught:
        asyncio.run(start_at({"/v1/models": models}, key=CANARY, max_retries=1))
    assert CANARY not in f"{caught.value!r} {caught.value.to_dict()}"


def test_one_secret_inside_another_is_blackened_whole() -> None:
    address = ServerAddress.parse("http://u:abc@host", SecretStr("abcdef"))
    assert address.redact("abcdef abc") == "*** ***"
    assert repr(address) == "<ServerAddress http://host>"


# TLS


def certificate(directory: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate for 127.0.0.1 that nobody has signed, and a server's context with it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = directory / "certificate.pem"
    path.write_bytes(made.public_bytes(Encoding.PEM))
    secret = directory / "key.pem"
    secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, secret)
    return path, context


def test_certificates_are_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pauses: list[Any]) -> None:
    path, context = certificate(tmp_path)

    async def body() -> None:
        async with RawServer(serves(reply(200, DONE)), context) as server:
            url = f"https://{server.origin}"
            with pytest.raises(EngineDeadError, match="CERTIFICATE_VERIFY_FAILED"):
                await HttpTransport(config(url, CANARY)).start()
            assert server.seen == []
            monkeypatch.setenv("SSL_CERT_FILE", str(path))
            async with Started(url, CANARY) as transport:
                assert (await transport.generate(ask())).text == "Hello"
                assert server.connections == 1
            await server.until(lambda it: it.open == 0)

    asyncio.run(body())
