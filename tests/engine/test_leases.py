"""Runtimes with an engine: one for each configuration, kept by leases, replaced when dead, leaving nothing behind."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from mineru_engine import Lease, Settings, parse, parse_async, preload, preload_async, shutdown_cached_models
from mineru_engine.errors import EngineDeadError, EngineUnavailableError, RuntimeStateError
from mineru_engine.runtime.registry import runtimes
from mineru_engine.runtime.runtime import RuntimeState
from mineru_engine.vlm import transports
from mineru_engine.vlm.config import VlmConfig
from mineru_engine.vlm.transport import Transport, VlmReply, VlmRequest
from tests.engine.scripted_transport import ScriptedTransport

VLM = {"tier": "xhigh", "server_url": "http://127.0.0.1:9"}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    shutdown_cached_models()
    yield
    shutdown_cached_models()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[VlmConfig, ScriptedTransport]]:
    """The engines that were made: transports are scripted, the rest is real."""
    found: list[tuple[VlmConfig, ScriptedTransport]] = []

    def transport(config: VlmConfig, pool: object) -> Transport:
        found.append((config, ScriptedTransport()))
        return found[-1][1]

    monkeypatch.setattr(transports, "_transport", transport)
    return found


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("mineru")]


def test_sync_async_and_preload_share_one_engine(demo: Path, made: list[tuple[VlmConfig, ScriptedTransport]]) -> None:
    preload(**VLM)

    async def both() -> None:
        await preload_async(**VLM)
        await asyncio.gather(*(parse_async(demo / "contract.pdf", pages="1", **VLM) for _ in range(3)))

    asyncio.run(both())
    asyncio.run(both())  # another loop
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: parse(demo / "contract.pdf", pages="1", **VLM), range(4)))
    assert {result.model for result in results} == {"scripted"}
    assert len(made) == 1
    assert made[0][1].starts == 1
    assert len(loop_threads()) == 1
    assert [runtime.state for runtime in runtimes()] == [RuntimeState.READY]


def test_two_configurations_never_share(made: list[tuple[VlmConfig, ScriptedTransport]]) -> None:
    keyed = Settings.load(overrides={"model.vlm.api_key": "canary-1"})
    other = Settings.load(overrides={"model.vlm.api_key": "canary-2"})
    for settings in (keyed, other, keyed):
        preload(settings=settings, **VLM)
    preload(settings=keyed, tier="xhigh", server_url="http://127.0.0.1:10")
    keys = [config.api_key.get_secret_value() if config.api_key else None for config, _ in made]
    assert keys == ["canary-1", "canary-2", "canary-1"]
    assert len(runtimes()) == 3
    assert "canary" not in repr(runtimes()) + repr(made)


def test_a_key_from_the_settings_goes_to_no_other_host() -> None:
    from mineru_engine.options import ParseOptions

    settings = Settings.load(overrides={"model.vlm.api_key": "s", "model.vlm.server_url": "https://ours.example/v1"})

    def key(url: str | None) -> bool:
        return VlmConfig.resolve(settings.model.vlm, ParseOptions.create(server_url=url)).api_key is not None

    assert key(None)
    assert key("https://ours.example")
    assert not key("http://ours.example")
    assert not key("https://ours.example:8443")
    assert not key("https://theirs.example")


def test_tiers_without_a_model_use_a_runtime_that_is_there(demo: Path, made: list[object]) -> None:
    preload(**VLM)
    parse(demo / "contract.pdf", tier="flash", pages="1")
    assert len(runtimes()) == 1
    assert len(made) == 1


def test_an_engine_is_not_started_for_what_does_not_need_it(
    tmp_path: Path, made: list[tuple[VlmConfig, ScriptedTransport]]
) -> None:
    page = tmp_path / "page.html"
    page.write_text("<h1>Title</h1><p>Words.</p>")
    assert "Words." in parse(page, **VLM).markdown()
    assert [transport.starts for _, transport in made] == [0]
    assert runtimes()[0].state is RuntimeState.STARTING


def test_closing_one_lease_leaves_the_other_working(
    demo: Path, made: list[tuple[VlmConfig, ScriptedTransport]]
) -> None:
    async def body() -> None:
        first, second = Lease("first"), Lease("second")
        await preload_async(lease=first, **VLM)
        await preload_async(lease=second, **VLM)
        assert len(made) == 1
        made[0][1].hold.clear()
        job = asyncio.create_task(parse_async(demo / "contract.pdf", pages="1", lease=second, **VLM))
        while not made[0][1].in_flight:
            await asyncio.sleep(0.01)
        await first.aclose()
        made[0][1].hold.set()
        assert (await job).model == "scripted"
        with pytest.raises(RuntimeStateError):
            await parse_async(demo / "contract.pdf", lease=first, **VLM)
        assert made[0][1].closes == 0
        await second.aclose()
        await second.aclose()
        assert made[0][1].closes == 1
        assert runtimes() == []

    asyncio.run(body())
    assert loop_threads() == []


def test_a_lease_outlives_the_process_lease(made: list[tuple[VlmConfig, ScriptedTransport]]) -> None:
    with Lease("server") as lease:
        preload(lease=lease, **VLM)
        preload(**VLM)
        shutdown_cached_models()
        assert made[0][1].closes == 0
        preload(lease=lease, **VLM)
        assert len(made) == 1
    assert made[0][1].closes == 1


def test_the_last_lease_to_go_cancels_what_still_runs(
    demo: Path, made: list[tuple[VlmConfig, ScriptedTransport]]
) -> None:
    preload(**VLM)
    made[0][1].hold.clear()
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(parse, demo / "contract.pdf", **VLM)
        while not made[0][1].in_flight:
            time.sleep(0.01)
        shutdown_cached_models()
        with pytest.raises(RuntimeStateError):
            job.result()
    assert made[0][1].in_flight == 0
    assert loop_threads() == []


def test_a_start_that_fails_reaches_every_caller_and_leaves_no_thread(
    demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[ScriptedTransport] = []

    def transport(config: VlmConfig, pool: object) -> Transport:
        attempts.append(ScriptedTransport())
        attempts[-1].start_error = EngineUnavailableError("no such model")
        return attempts[-1]

    monkeypatch.setattr(transports, "_transport", transport)
    for call in (_sync_failures, _async_failures):
        errors = call(demo / "contract.pdf")
        assert all(isinstance(error, EngineUnavailableError) for error in errors)
        assert {error.document for error in errors if isinstance(error, EngineUnavailableError)} == {"contract.pdf"}
        assert loop_threads() == []
        assert runtimes() == []
    assert all(attempt.closes for attempt in attempts)
    assert psutil.Process().children(recursive=True) == []


def _sync_failures(path: Path) -> list[BaseException | None]:
    with ThreadPoolExecutor(3) as pool:
        return [pool.submit(parse, path, **VLM).exception() for _ in range(3)]


def _async_failures(path: Path) -> list[BaseException | None]:
    async def body() -> list[BaseException | None]:
        outcomes = await asyncio.gather(*(parse_async(path, **VLM) for _ in range(3)), return_exceptions=True)
        return [outcome if isinstance(outcome, BaseException) else None for outcome in outcomes]

    return asyncio.run(body())


def test_a_dead_engine_is_rebuilt_by_the_next_call(demo: Path, made: list[tuple[VlmConfig, ScriptedTransport]]) -> None:
    preload(**VLM)

    def killed(_: VlmRequest) -> VlmReply:
        raise EngineDeadError("the engine process was killed")

    made[0][1].script = killed
    with pytest.raises(EngineDeadError) as caught:
        parse(demo / "contract.pdf", **VLM)
    assert caught.value.document == "contract.pdf"
    assert caught.value.retryable
    assert loop_threads() == []
    assert parse(demo / "contract.pdf", pages="1", **VLM).model == "scripted"
    assert len(made) == 2
    assert made[0][1].closes == 1


def test_other_work_on_a_dead_runtime_finishes(demo: Path, made: list[tuple[VlmConfig, ScriptedTransport]]) -> None:
    preload(**VLM)

    def killed(_: VlmRequest) -> VlmReply:
        raise EngineDeadError("gone")

    made[0][1].script = killed
    with ThreadPoolExecutor(2) as pool:
        plain = pool.submit(parse, demo / "report.pdf", tier="flash")
        doomed = pool.submit(parse, demo / "contract.pdf", **VLM)
        assert isinstance(doomed.exception(), EngineDeadError)
        assert plain.result().page_count > 1
    assert loop_threads() == []


def test_a_child_of_fork_starts_afresh(made: list[object], fork: Callable[[Callable[[], None]], int]) -> None:
    preload(**VLM)

    def child() -> None:
        assert runtimes() == []
        preload(**VLM)
        assert len(made) == 2
        assert runtimes()[0].pid == os.getpid()
        shutdown_cached_models()

    assert fork(child) == 0
    assert [runtime.state for runtime in runtimes()] == [RuntimeState.READY]


@pytest.fixture
def fork() -> Callable[[Callable[[], None]], int]:
    """Run something in a forked child; gives its exit status."""

    def run(work: Callable[[], None]) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                work()
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    return run


def test_repr_tells_the_state_and_no_secret(made: list[object]) -> None:
    preload(settings=Settings.load(overrides={"model.vlm.api_key": "canary"}), **VLM)
    text = repr(runtimes()[0])
    assert "ready" in text
    assert "engine=http" in text
    assert "canary" not in text + repr(runtimes()[0].statistics())
