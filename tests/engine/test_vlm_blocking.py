"""Blocking engines: one thread, one call at a time on a device, and cancels that wait for it. No model is loaded."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import os
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from mineru_vl_utils.vlm_client import RequestError, SamplingParams, ServerError
from PIL import Image

from mineru_engine.errors import (
    EngineDeadError,
    EngineRequestError,
    EngineUnavailableError,
    ErrorCode,
    MineruError,
    OptionError,
)
from mineru_engine.options import Engine
from mineru_engine.runtime.device import device_lock
from mineru_engine.vlm import blocking, local_models
from mineru_engine.vlm.blocking import BlockingTransport
from mineru_engine.vlm.config import DEFAULT_MODEL, VlmConfig
from mineru_engine.vlm.local_models import LOCAL_ENGINES, LocalEngine
from mineru_engine.vlm.transport import EncodedImage, EngineInfo, Sampling, VlmReply, VlmRequest
from tests.engine.waiting import settle

PATIENCE = 60.0
"""Seconds after which a test that waits for a state fails."""
TRANSFORMERS = LOCAL_ENGINES[Engine.TRANSFORMERS]
"""The real one; the tests have their own in its place."""


class Model:
    """Stands for the weights: an object whose end can be seen, and part of a cycle as models are."""

    def __init__(self) -> None:
        self.itself = self


class Client:
    """A client whose calls end when they are let go."""

    def __init__(self) -> None:
        self.model = Model()
        self.system_prompt = ""
        self.answer: Callable[[str], Any] = lambda prompt: f"answer to {prompt}"
        self.entered = threading.Semaphore(0)
        self.let_go = threading.Semaphore(0)
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.threads: set[str] = set()
        self.seen: tuple[tuple[int, int], SamplingParams, str] | None = None

    def predict(self, image: Image.Image, prompt: str, sampling: SamplingParams) -> Any:
        self.begun.append(prompt)
        self.threads.add(threading.current_thread().name)
        self.seen = (image.size, sampling, self.system_prompt)
        self.entered.release()
        assert self.let_go.acquire(timeout=PATIENCE)
        self.ended.append(prompt)
        return self.answer(prompt)

    async def until_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=PATIENCE)


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def closed() -> list[str]:
    """Names of the threads on which an engine was closed."""
    return []


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch, client: Client, closed: list[str]) -> None:
    """Engine transformers is the client above."""

    def load(config: VlmConfig, device: str, resources: ExitStack) -> Client:
        client.threads.add(threading.current_thread().name)
        resources.callback(lambda: closed.append(threading.current_thread().name))
        return client

    use(monkeypatch, load)


def use(monkeypatch: pytest.MonkeyPatch, load: Callable[[VlmConfig, str, ExitStack], Any]) -> None:
    engine = LocalEngine("pytest", "pip install something", lambda config: config.device or "cpu", load)
    monkeypatch.setitem(LOCAL_ENGINES, Engine.TRANSFORMERS, engine)


def config(engine: Engine = Engine.TRANSFORMERS, **values: Any) -> VlmConfig:
    options = json.dumps(values.pop("options", {}))
    return VlmConfig(engine, options=options, **values)


def ask(prompt: str = "a", **values: Any) -> VlmRequest:
    file = BytesIO()
    Image.new("RGB", (30, 20)).save(file, "PNG")
    image = EncodedImage(base64.b64encode(file.getvalue()).decode(), "image/png")
    return VlmRequest(image, prompt, **values)


def run(body: Callable[[BlockingTransport], Awaitable[None]], **values: Any) -> None:
    """Run a test with a transport that has started, and close it."""

    async def whole() -> None:
        transport = BlockingTransport(config(**values))
        await transport.start()
        try:
            await body(transport)
        finally:
            await transport.aclose()

    asyncio.run(whole())


def own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("mineru-transformers")]


# Device locks


def test_a_device_has_one_lock() -> None:
    assert device_lock("cuda:0") is device_lock("cuda:0")
    assert device_lock("cuda:0") is not device_lock("cuda:1")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is needed")
def test_a_forked_child_has_fresh_locks() -> None:
    code = """
import os
from mineru_engine.runtime.device import device_lock
with device_lock("cpu"):
    child = os.fork()
    if child == 0:
        os._exit(0 if device_lock("cpu").acquire(blocking=False) else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not device_lock("cpu").acquire(blocking=False)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


# The thread


def test_load_calls_and_close_are_on_one_thread(client: Client, closed: list[str]) -> None:
    async def body(transport: BlockingTransport) -> None:
        client.let_go.release(2)
        for prompt in ("a", "b"):
            assert await transport.generate(ask(prompt)) == VlmReply(f"answer to {prompt}")

    run(body)
    assert closed == list(client.threads)
    assert len(client.threads) == 1
    assert threading.main_thread().name not in client.threads
    assert own_threads() == []


def test_start_says_what_runs() -> None:
    async def body() -> None:
        transport = BlockingTransport(config(device="cuda:7"))
        version = LOCAL_ENGINES[Engine.TRANSFORMERS].version()
        assert await transport.start() == EngineInfo("transformers", DEFAULT_MODEL, version, "cuda:7")
        await transport.aclose()

    asyncio.run(body())


def test_a_request_arrives_whole(client: Client) -> None:
    sampling = Sampling(temperature=0.5, top_p=0.4, top_k=3, no_repeat_ngram_size=9, max_new_tokens=7)

    async def body(transport: BlockingTransport) -> None:
        client.let_go.release()
        await transport.generate(ask(sampling=sampling, system_prompt="Be brief."))

    run(body)
    wanted = SamplingParams(temperature=0.5, top_p=0.4, top_k=3, no_repeat_ngram_size=9, max_new_tokens=7)
    assert client.seen == ((30, 20), wanted, "Be brief.")


def test_a_reply_with_counts_is_kept(client: Client) -> None:
    reply = VlmReply("text", 10, 20, truncated=True)
    client.answer = lambda prompt: reply

    async def body(transport: BlockingTransport) -> None:
        client.let_go.release()
        assert await transport.generate(ask()) == reply

    run(body)


def test_models_on_one_device_take_turns(client: Client) -> None:
    async def body(first: BlockingTransport) -> None:
        second = BlockingTransport(config())
        await second.start()
        tasks = [asyncio.create_task(transport.generate(ask())) for transport in (first, second)]
        for finished in range(2):
            await client.until_entered()
            await settle()
            assert len(client.begun) == len(client.ended) + 1 == finished + 1
            client.let_go.release()
        await asyncio.gather(*tasks)
        await second.aclose()

    run(body)


def test_models_on_two_devices_run_at_once(client: Client) -> None:
    async def body(first: BlockingTransport) -> None:
        second = BlockingTransport(config(device="cuda:1"))
        await second.start()
        tasks = [asyncio.create_task(transport.generate(ask())) for transport in (first, second)]
        await client.until_entered()
        await client.until_entered()
        client.let_go.release(2)
        await asyncio.gather(*tasks)
        await second.aclose()

    run(body)


# Cancels


def test_a_cancel_waits_for_the_call_in_flight(client: Client) -> None:
    async def body(transport: BlockingTransport) -> None:
        task = asyncio.create_task(transport.generate(ask("a")))
        await client.until_entered()
        for _ in range(3):  # more cancels do not shorten it
            task.cancel()
            await settle()
            assert not task.done()
        assert client.ended == []
        client.let_go.release()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client.ended == ["a"]
        client.let_go.release()
        assert (await transport.generate(ask("b"))).text == "answer to b"

    run(body)


def test_a_call_that_fails_after_its_cancel_is_a_cancel(client: Client) -> None:
    def fail(prompt: str) -> None:
        raise RequestError("too late")

    client.answer = fail

    async def body(transport: BlockingTransport) -> None:
        task = asyncio.create_task(transport.generate(ask()))
        await client.until_entered()
        task.cancel()
        client.let_go.release()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(body)


def test_a_cancelled_call_in_the_queue_never_starts(client: Client) -> None:
    async def body(transport: BlockingTransport) -> None:
        first = asyncio.create_task(transport.generate(ask("a")))
        await client.until_entered()
        second = asyncio.create_task(transport.generate(ask("b")))
        await settle()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second  # at once: the first is still in flight
        client.let_go.release(2)
        await first
        await transport.generate(ask("c"))
        assert client.begun == ["a", "c"]

    run(body)


def test_a_cancelled_call_that_waits_for_its_device_never_starts(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, device = threading.Event(), threading.Lock()

    @contextlib.contextmanager
    def watched(name: str) -> Iterator[None]:
        waiting.set()
        with device:
            yield

    async def body(transport: BlockingTransport) -> None:
        monkeypatch.setattr(blocking, "device_lock", watched)
        with device:
            task = asyncio.create_task(transport.generate(ask("a")))
            assert await asyncio.to_thread(waiting.wait, PATIENCE)
            task.cancel()
            await settle()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client.begun == []

    run(body)


# Failures


@pytest.mark.parametrize(
    ("raised", "wanted", "text"),
    [
        (RequestError("Unsupported image format."), EngineRequestError, "RequestError: Unsupported image format."),
        (ValueError("one\ntwo"), EngineRequestError, "transformers: ValueError: one"),
        (ServerError("decode failed"), EngineRequestError, "ServerError: decode failed"),
        (KeyError(), EngineRequestError, "transformers: KeyError"),
        (MemoryError(), EngineRequestError, "out of memory: transformers: MemoryError"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), EngineRequestError, "out of memory: "),
        (RuntimeError("MPS backend out of memory"), EngineRequestError, "out of memory: "),
        (RuntimeError("CUDA error: device-side assert triggered\nmore"), EngineDeadError, "assert triggered"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_what_a_call_raises_is_told_apart(
    client: Client, raised: Exception, wanted: type[MineruError], text: str
) -> None:
    def fail(prompt: str) -> None:
        raise raised

    client.answer = fail

    async def body(transport: BlockingTransport) -> None:
        client.let_go.release(2)
        with pytest.raises(MineruError) as caught:
            await transport.generate(ask())
        assert type(caught.value) is wanted
        assert text in caught.value.message
        assert "\n" not in caught.value.message
        client.answer = lambda prompt: "well"
        assert (await transport.generate(ask())).text == "well"

    run(body)


def test_a_damaged_picture_fails_its_request_only(client: Client) -> None:
    async def body(transport: BlockingTransport) -> None:
        with pytest.raises(EngineRequestError, match="UnidentifiedImageError"):
            await transport.generate(VlmRequest(EncodedImage("AAAA", "image/png"), "a"))
        client.let_go.release()
        assert (await transport.generate(ask("b"))).text == "answer to b"

    run(body)


def test_an_error_does_not_hold_what_the_call_held(client: Client) -> None:
    tensors: list[weakref.ref[Model]] = []

    def fail(prompt: str) -> None:
        tensor = Model()
        tensors.append(weakref.ref(tensor))
        raise RuntimeError("CUDA out of memory.")

    client.answer = fail

    async def body(transport: BlockingTransport) -> None:
        client.let_go.release()
        with pytest.raises(EngineRequestError) as caught:
            await transport.generate(ask())
        gc.collect()
        assert tensors[0]() is None
        assert caught.value.hint

    run(body)


# Start and close


def test_a_load_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[weakref.ref[Model]] = []
    closed: list[str] = []
    failures: list[Exception] = [OSError("no file named model.safetensors"), EngineUnavailableError("no weights")]

    def load(config: VlmConfig, device: str, resources: ExitStack) -> Client:
        model = Model()
        models.append(weakref.ref(model))
        resources.callback(lambda: closed.append("closed"))
        raise failures.pop()

    use(monkeypatch, load)

    async def body() -> None:
        for text in ("no weights", "engine transformers could not load a/b: OSError: no file named"):
            transport = BlockingTransport(config(model="a/b"))
            with pytest.raises(EngineUnavailableError, match=text):
                await transport.start()
            assert own_threads() == []
            assert models.pop()() is None
            assert closed.pop() == "closed"
            with pytest.raises(EngineDeadError):
                await transport.generate(ask())

    asyncio.run(body())


def test_a_cancelled_start_waits_for_the_load_and_drops_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    loading, go_on = threading.Event(), threading.Event()
    models: list[weakref.ref[Model]] = []

    def load(config: VlmConfig, device: str, resources: ExitStack) -> Client:
        client = Client()
        models.append(weakref.ref(client.model))
        loading.set()
        assert go_on.wait(PATIENCE)
        return client

    use(monkeypatch, load)

    async def body() -> None:
        transport = BlockingTransport(config())
        task = asyncio.create_task(transport.start())
        assert await asyncio.to_thread(loading.wait, PATIENCE)
        for _ in range(3):
            task.cancel()
            await settle()
            assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert own_threads() == []
        assert models[0]() is None

    asyncio.run(body())


def test_close_waits_for_the_call_in_flight_and_refuses_the_others(client: Client, closed: list[str]) -> None:
    async def body(transport: BlockingTransport) -> None:
        first = asyncio.create_task(transport.generate(ask("a")))
        await client.until_entered()
        second = asyncio.create_task(transport.generate(ask("b")))
        await settle()
        closing = [asyncio.create_task(transport.aclose()) for _ in range(2)]
        await settle()
        assert not any(task.done() for task in closing)
        client.let_go.release()
        assert (await first).text == "answer to a"
        with pytest.raises(EngineDeadError):
            await second
        await asyncio.gather(*closing)
        await transport.aclose()
        assert (client.begun, len(closed)) == (["a"], 1)
        with pytest.raises(EngineDeadError):
            await transport.generate(ask("c"))

    run(body)


def test_a_cancel_does_not_interrupt_close(client: Client, closed: list[str]) -> None:
    async def body(transport: BlockingTransport) -> None:
        call = asyncio.create_task(transport.generate(ask("a")))
        await client.until_entered()
        closing = asyncio.create_task(transport.aclose())
        await settle()
        closing.cancel()
        await settle()
        assert not closing.done()
        client.let_go.release()
        await call
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert len(closed) == 1
        assert own_threads() == []

    run(body)


def test_close_empties_the_cache_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied: list[str] = []

    def gpu(name: str, there: bool) -> types.SimpleNamespace:
        return types.SimpleNamespace(
            is_initialized=lambda: there, is_available=lambda: there, empty_cache=lambda: emptied.append(name)
        )

    async def body(transport: BlockingTransport) -> None:
        torch = types.SimpleNamespace(cuda=gpu("cuda", True), mps=gpu("mps", False))
        torch.backends = types.SimpleNamespace(mps=torch.mps)
        monkeypatch.setitem(sys.modules, "torch", torch)

    run(body)
    assert emptied == ["cuda"]


# What is refused before a model is loaded


@pytest.mark.parametrize(
    ("engine", "package", "command"),
    [
        (Engine.TRANSFORMERS, "torch", "pip install 'mineru[transformers]'"),
        (Engine.LLAMA_CPP, "mineru_llama_cpp", "pip install 'mineru[llama-cpp]'"),
        (Engine.LMDEPLOY, "lmdeploy", "pip install lmdeploy"),
        (Engine.MLX, "mlx_vlm", "pip install mlx-vlm"),
    ],
)
def test_a_missing_package_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, package: str, command: str
) -> None:
    monkeypatch.setitem(LOCAL_ENGINES, Engine.TRANSFORMERS, TRANSFORMERS)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(local_models.platform, "machine", lambda: "arm64")
    with pytest.raises(EngineUnavailableError, match=package) as caught:
        asyncio.run(BlockingTransport(config(engine)).start())
    assert caught.value.hint == command


def test_mlx_is_for_apple_silicon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(EngineUnavailableError, match="Apple silicon"):
        asyncio.run(BlockingTransport(config(Engine.MLX)).start())


def test_a_device_that_the_engine_does_not_have_is_refused() -> None:
    with pytest.raises(OptionError, match="no device 'cuda:0'") as caught:
        asyncio.run(BlockingTransport(config(Engine.LLAMA_CPP, device="cuda:0")).start())
    assert (caught.value.code, caught.value.hint) == (ErrorCode.SETTING_INVALID, "known: auto, cpu")


def test_an_option_that_the_loader_does_not_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(config: VlmConfig, device: str, resources: ExitStack) -> Client:
        def from_pretrained(path: str) -> Client:
            return Client()

        return from_pretrained("model", **config.engine_options)  # type: ignore[arg-type]

    use(monkeypatch, load)
    with pytest.raises(OptionError, match="no option 'attn'") as caught:
        asyncio.run(BlockingTransport(config(options={"attn": "sdpa"})).start())
    assert caught.value.code is ErrorCode.SETTING_INVALID


def test_memory_that_does_not_suffice_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(config: VlmConfig, device: str, resources: ExitStack) -> Client:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB.\nSee documentation")

    use(monkeypatch, load)
    with pytest.raises(EngineUnavailableError, match="out of memory") as caught:
        asyncio.run(BlockingTransport(config()).start())
    assert "memory" in str(caught.value.hint)
    assert "See documentation" not in caught.value.message


# llama.cpp: its module is a stand-in here; the real one is in tests/bench_engines


class LlamaEngine:
    """Takes what ``mineru_llama_cpp.Engine`` 0.2.0 takes."""

    made: tuple[Path, Path, dict[str, int]]
    closed = 0

    def __init__(
        self, model: Path, mmproj: Path, *, n_ctx_seq: int = 0, n_gpu_layers: int = 99, n_parallel: int = 4,
        verbosity: int = 2, n_threads: int = -1,
    ) -> None:  # fmt: skip
        values = {"n_ctx_seq": n_ctx_seq, "n_gpu_layers": n_gpu_layers, "n_parallel": n_parallel}
        type(self).made = (model, mmproj, values | {"verbosity": verbosity, "n_threads": n_threads})

    def generate(self, messages: list[dict[str, Any]], sampling: Any) -> Any:
        text = messages[-1]["content"][-1]["text"]
        return types.SimpleNamespace(content=text, tokens_evaluated=5, tokens_predicted=2, finish_reason="length")

    def close(self) -> None:
        type(self).closed += 1


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory with a model; the engine writes nothing and loads nothing."""
    module = types.ModuleType("mineru_llama_cpp")
    names = {"EngineError": RuntimeError, "InvalidRequestError": ValueError, "SamplingParams": dict}
    vars(module).update(names, Engine=LlamaEngine, LOG_LEVEL_ERROR=1)
    monkeypatch.setitem(sys.modules, "mineru_llama_cpp", module)
    monkeypatch.setattr(LlamaEngine, "closed", 0)
    monkeypatch.setattr(LocalEngine, "version", lambda self: "0.2.0")
    for name in ("model.gguf", "mmproj-model-f16.gguf"):
        (tmp_path / name).touch()
    return tmp_path


def start_llama(**values: Any) -> EngineInfo:
    async def body() -> EngineInfo:
        transport = BlockingTransport(config(Engine.LLAMA_CPP, **values))
        try:
            return await transport.start()
        finally:
            await transport.aclose()

    return asyncio.run(body())


def test_llama_cpp_finds_the_projector_beside_the_model(llama: Path) -> None:
    model = llama / "model.gguf"
    assert start_llama(model=str(model)) == EngineInfo("llama-cpp", str(model), "0.2.0", "auto")
    assert LlamaEngine.made[:2] == (model, llama / "mmproj-model-f16.gguf")
    assert LlamaEngine.made[2] == {
        "n_ctx_seq": 0, "n_gpu_layers": 99, "n_parallel": 1, "verbosity": 1, "n_threads": -1,
    }  # fmt: skip
    assert LlamaEngine.closed == 1


def test_llama_cpp_takes_options_and_the_cpu(llama: Path) -> None:
    other = llama / "other.gguf"
    other.touch()
    start_llama(model=str(llama / "model.gguf"), device="cpu", options={"mmproj": str(other), "n_threads": 3})
    assert LlamaEngine.made[1] == other
    assert (LlamaEngine.made[2]["n_gpu_layers"], LlamaEngine.made[2]["n_threads"]) == (0, 3)


def test_llama_cpp_tells_tokens_and_truncation(llama: Path) -> None:
    async def body(transport: BlockingTransport) -> None:
        assert await transport.generate(ask("\nText:")) == VlmReply("\nText:", 5, 2, truncated=True)

    run(body, engine=Engine.LLAMA_CPP, model=str(llama / "model.gguf"))


def test_llama_cpp_names_the_option_that_was_meant(llama: Path) -> None:
    with pytest.raises(OptionError, match="no option 'n_thread'") as caught:
        start_llama(model=str(llama / "model.gguf"), options={"n_thread": 3})
    assert (caught.value.code, caught.value.hint) == (ErrorCode.SETTING_INVALID, "did you mean 'n_threads'?")


@pytest.mark.parametrize("model", [None, "no.gguf", "."])
def test_llama_cpp_needs_a_gguf_file(llama: Path, model: str | None) -> None:
    with pytest.raises(EngineUnavailableError, match=r"needs a \.gguf file") as caught:
        start_llama(model=model and str(llama / model))
    assert "mmproj" in str(caught.value.hint)


def test_llama_cpp_needs_one_projector(llama: Path) -> None:
    model = str(llama / "model.gguf")
    (llama / "mmproj-second.gguf").touch()
    with pytest.raises(EngineUnavailableError, match=r"mmproj-model-f16\.gguf, mmproj-second\.gguf"):
        start_llama(model=model)
    with pytest.raises(EngineUnavailableError, match=r"named or found: gone\.gguf"):
        start_llama(model=model, options={"mmproj": str(llama / "gone.gguf")})
    for file in llama.glob("mmproj*"):
        file.unlink()
    with pytest.raises(EngineUnavailableError, match="named or found: none"):
        start_llama(model=model)
