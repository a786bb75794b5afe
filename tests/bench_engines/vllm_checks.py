"""The vLLM transport with a real vLLM: ``PYTHONPATH=. PYTHON_WITH_VLLM -m pytest tests/bench_engines/vllm_checks.py``.

The model is the tiny scripted one, on the CPU. :mod:`test_vlm_vllm` runs this file in the usual test run. Tests stand
in the order in which they run: those that share an engine come before the one that kills it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import gc
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

from benchmarks.simulator import DEFAULT_OUTPUTS, Kind
from benchmarks.tiny_vlm.build import build
from benchmarks.tiny_vlm.serve import ROOT, vllm_environment
from mineru_engine.errors import (
    EngineDeadError,
    EngineRequestError,
    EngineUnavailableError,
    ErrorCode,
    OptionError,
)
from mineru_engine.options import Engine
from mineru_engine.runtime.loop import LoopThread
from mineru_engine.vlm import vllm as module
from mineru_engine.vlm.config import VlmConfig
from mineru_engine.vlm.transport import EncodedImage, Sampling, VlmReply, VlmRequest
from mineru_engine.vlm.vllm import VllmTransport

pytestmark = [
    pytest.mark.timeout(500),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning"),  # of torch, when it is imported
    pytest.mark.filterwarnings("ignore:Unclosed context:ResourceWarning"),  # vLLM leaves it to the garbage collector
]

TEXT = "\nText Recognition:"
LAYOUT = "\nLayout Detection:"
OPTIONS = {"dtype": "bfloat16", "enforce-eager": True, "max_model_len": 4096}
SCRIPTED = {"logits_processors": ["benchmarks.tiny_vlm.scripted:ScriptedLogits"], "max-num-seqs": 64}
WAIT_S = 120.0


@pytest.fixture(scope="session", autouse=True)
def _environment() -> Iterator[None]:
    """What the engine's processes need; the parent's own environment is theirs."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in vllm_environment().items():
            patch.setenv(name, value)
        patch.delenv("TINY_VLM_SCRIPT", raising=False)
        yield


@pytest.fixture(scope="session")
def model() -> Path:
    return build(Path(os.environ.get("TINY_VLM_MODEL", ROOT / "build" / "tiny_vlm")))


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    """A loop on a thread of its own, as runtimes have one."""
    thread = LoopThread("checks")
    yield thread
    thread.close()


@pytest.fixture(scope="module")
def transport(loop: LoopThread, model: Path) -> Iterator[VllmTransport]:
    made = VllmTransport(config(model, **OPTIONS, **SCRIPTED))
    loop.call(made.start())
    yield made
    loop.call(made.aclose())


def config(path: Path | str, /, *, device: str | None = None, **options: Any) -> VlmConfig:
    return VlmConfig(engine=Engine.VLLM, model=str(path), device=device, options=json.dumps(options))


def question(prompt: str = TEXT, size: tuple[int, int] = (280, 140), **sampling: Any) -> VlmRequest:
    buffer = io.BytesIO()
    Image.new("RGB", size, "white").save(buffer, "PNG")
    image = EncodedImage(base64.b64encode(buffer.getvalue()).decode(), "image/png")
    return VlmRequest(image, prompt, Sampling(**sampling))


async def until(condition: Callable[[], Awaitable[bool] | bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        met = condition()
        if met if isinstance(met, bool) else await met:
            return
        assert time.monotonic() < deadline, "the state did not come"
        await asyncio.sleep(0.02)


def engine_processes() -> set[psutil.Process]:
    """vLLM's processes below this one, by name or, before they have it, by command."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            command = " ".join(child.cmdline())
            if "VLLM::" in command or "spawn_main" in command:
                found.add(child)
    return found


def vllm_threads() -> int:
    """How many threads are neither ours, nor asyncio's, nor the one that pyzmq keeps for the process."""
    ours = ("MainThread", "checks", "asyncio_", "pytest_timeout")
    others = [thread for thread in threading.enumerate() if not thread.name.startswith(ours)]
    return sum(type(thread).__name__ != "GarbageCollectorThread" for thread in others)


async def without_leftovers(body: Awaitable[None]) -> None:
    """Processes are gone when the body ends, threads soon after."""
    processes, threads = engine_processes(), vllm_threads()
    await body
    assert engine_processes() == processes
    gc.collect()
    await until(lambda: vllm_threads() <= threads)


def internals(transport: VllmTransport) -> Any:
    """vLLM's ``AsyncLLM``."""
    assert transport._loaded is not None
    return transport._loaded.engine


async def idle(transport: VllmTransport) -> None:
    """Wait until neither side of vLLM knows a request."""
    engine = internals(transport)
    processor = engine.output_processor
    await until(lambda: not processor.has_unfinished_requests() and not processor.request_states)

    async def scheduler_empty() -> bool:
        return not await engine.engine_core.call_utility_async("has_work")

    await until(scheduler_empty)


class TestBeforeLoading:
    """What is refused before the model is touched."""

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"max_model_length": 4096}, ("max_model_length", "'max_model_len'")),
            ({"tensor-parallel": 2}, ("tensor-parallel", "'tensor_parallel_size'")),
            ({"model": "other"}, ("not an engine option", "model.vlm.model")),
            ({"dtype": "bfloat17"}, ("engine_options.dtype", "'bfloat16'")),
            ({"gpu-memory-utilization": 7}, ("engine_options.gpu_memory_utilization", "less than or equal to 1")),
        ],
    )
    def test_options_that_make_no_sense(
        self, loop: LoopThread, model: Path, options: dict[str, Any], words: tuple[str, ...]
    ) -> None:
        with pytest.raises(OptionError) as caught:
            loop.call(VllmTransport(config(model, **options)).start())
        assert caught.value.code is ErrorCode.SETTING_INVALID
        for word in words:
            assert word in f"{caught.value} {caught.value.hint}"

    def test_options_that_contradict_the_model(self, loop: LoopThread, model: Path) -> None:
        with pytest.raises(EngineUnavailableError, match=r"max_model_len .* is greater"):
            loop.call(VllmTransport(config(model, max_model_len=10**7)).start())

    @pytest.mark.parametrize("device", ["cuda", "cpu:1"])
    def test_a_device_that_vllm_does_not_take(self, loop: LoopThread, model: Path, device: str) -> None:
        with pytest.raises(OptionError, match=f"on cpu here .* not {device}") as caught:
            loop.call(VllmTransport(config(model, device=device)).start())
        assert "CUDA_VISIBLE_DEVICES" in str(caught.value.hint)

    @pytest.mark.parametrize("name", ["no-such/model", "/no/such/directory", "no such"])
    def test_a_model_that_is_not_here(self, loop: LoopThread, name: str) -> None:
        with pytest.raises(EngineUnavailableError, match="neither a directory nor in the Hugging Face cache") as caught:
            loop.call(VllmTransport(config(name)).start())
        assert f"hf download {name}" in str(caught.value.hint)

    def test_a_model_of_the_cache(self, model: Path, tmp_path: Path) -> None:
        snapshot = tmp_path / "models--some--model" / "snapshots" / "0123"
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").touch()
        reference = tmp_path / "models--some--model" / "refs" / "main"
        reference.parent.mkdir()
        reference.write_text("0123")
        assert module._local("some/model", {"download_dir": str(tmp_path)}) == str(snapshot)


class TestEngine:
    """One engine, many requests."""

    def test_signals_are_left_alone(self, transport: VllmTransport) -> None:
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    def test_answers_word_for_word(self, loop: LoopThread, transport: VllmTransport) -> None:
        for prompt, kind in ((TEXT, Kind.TEXT), (LAYOUT, Kind.LAYOUT), ("\nTable Recognition:", Kind.TABLE)):
            reply = loop.call(transport.generate(question(prompt, temperature=0.0, no_repeat_ngram_size=100)))
            assert reply.text == DEFAULT_OUTPUTS[kind].text
            assert not reply.truncated

    def test_counts_tokens(self, loop: LoopThread, transport: VllmTransport) -> None:
        small, large = (loop.call(transport.generate(question(size=size))) for size in ((140, 140), (280, 280)))
        assert large.prompt_tokens - small.prompt_tokens == (280 // 28) ** 2 - (140 // 28) ** 2
        assert small.completion_tokens == len(small.text) + 1  # one token a byte, and the end of the turn

    def test_an_answer_without_its_own_limit_may_be_long(self, loop: LoopThread, transport: VllmTransport) -> None:
        reply = loop.call(transport.generate(question(LAYOUT)))
        assert reply.completion_tokens is not None
        assert reply.completion_tokens > 100

    def test_an_answer_at_its_limit_is_truncated(self, loop: LoopThread, transport: VllmTransport) -> None:
        reply = loop.call(transport.generate(question(max_new_tokens=10)))
        assert (reply.text, reply.truncated) == (DEFAULT_OUTPUTS[Kind.TEXT].text[:10], True)

    def test_many_at_once(self, loop: LoopThread, transport: VllmTransport) -> None:
        async def body() -> list[VlmReply]:
            return await asyncio.gather(*(transport.generate(question(prompt)) for prompt in [TEXT, LAYOUT] * 20))

        texts = [reply.text for reply in loop.call(body())]
        assert texts == [DEFAULT_OUTPUTS[kind].text for kind in [Kind.TEXT, Kind.LAYOUT] * 20]

    @pytest.mark.parametrize(
        ("bad", "words"),
        [
            (question("x" * 5000), "4096"),
            (question(top_p=7.0), "top_p"),
            (VlmRequest(EncodedImage("bm8gcGljdHVyZQ==", "image/png"), TEXT), "cannot identify image"),
            (VlmRequest(EncodedImage("!", "image/png"), TEXT), "vLLM: "),
        ],
    )
    def test_a_bad_request_harms_nobody_else(
        self, loop: LoopThread, transport: VllmTransport, bad: VlmRequest, words: str
    ) -> None:
        async def body() -> VlmReply:
            good = asyncio.create_task(transport.generate(question()))
            with pytest.raises(EngineRequestError, match=words):
                await transport.generate(bad)
            return await good

        assert loop.call(body()).text == DEFAULT_OUTPUTS[Kind.TEXT].text
        loop.call(idle(transport))

    def test_an_ending_of_another_kind_is_an_error(self, loop: LoopThread, transport: VllmTransport) -> None:
        async def body() -> None:
            engine = internals(transport)
            task = asyncio.create_task(transport.generate(question(LAYOUT)))
            await until(lambda: bool(engine.output_processor.request_states))
            await engine.abort(list(engine.output_processor.external_req_ids))
            with pytest.raises(EngineRequestError, match="abort"):
                await task

        loop.call(body())

    def test_cancels_at_any_point_leave_nothing(self, loop: LoopThread, transport: VllmTransport) -> None:
        async def body() -> None:
            dice = random.Random(7)
            for number in range(200):
                task = asyncio.create_task(transport.generate(question(LAYOUT)))
                for _ in range(number % 10):  # 0: before its first step
                    await asyncio.sleep(dice.random() * 0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await idle(transport)

        loop.call(body())
        assert loop.call(transport.generate(question())).text == DEFAULT_OUTPUTS[Kind.TEXT].text

    def test_cancels_while_a_request_is_sent_leave_nothing(self, loop: LoopThread, transport: VllmTransport) -> None:
        """vLLM's own ``generate`` forgets each of these."""

        async def body() -> None:
            with slow_sends(transport) as sends:
                for number in range(1, 21):
                    task = asyncio.create_task(transport.generate(question(LAYOUT)))
                    await sends.begun.wait()
                    sends.begun.clear()
                    task.cancel()
                    if number % 2:
                        await asyncio.sleep(0)
                        task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                    assert sends.done == number
                    await idle(transport)

        loop.call(body())
        assert loop.call(transport.generate(question())).text == DEFAULT_OUTPUTS[Kind.TEXT].text

    def test_a_cancel_ends_the_request_at_the_engine(self, loop: LoopThread, transport: VllmTransport) -> None:
        async def body() -> None:
            engine = internals(transport)
            tasks = [asyncio.create_task(transport.generate(question(LAYOUT))) for _ in range(8)]
            await until(lambda: len(engine.output_processor.request_states) == 8)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert not engine.output_processor.request_states
            await idle(transport)

        loop.call(body())

    def test_ctrl_c_at_the_terminal_is_not_for_the_engine(self, loop: LoopThread, transport: VllmTransport) -> None:
        processes = engine_processes()
        assert processes
        for process in processes:
            process.send_signal(signal.SIGINT)
        for _ in range(3):
            assert loop.call(transport.generate(question())).text == DEFAULT_OUTPUTS[Kind.TEXT].text

    def test_a_killed_engine_fails_its_requests(self, loop: LoopThread, transport: VllmTransport) -> None:
        async def body() -> None:
            tasks = [asyncio.create_task(transport.generate(question(LAYOUT))) for _ in range(8)]
            await until(lambda: len(internals(transport).output_processor.request_states) == 8)
            assert transport._loaded is not None
            (core,) = transport._loaded.processes
            core.kill()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(outcome, EngineDeadError)
            with pytest.raises(EngineDeadError):
                await transport.generate(question())
            await transport.aclose()
            with pytest.raises(EngineDeadError, match="closed"):
                await transport.generate(question())
            await transport.aclose()
            await until(lambda: engine_processes() == set())

        loop.call(body())


@dataclasses.dataclass
class Sends:
    begun: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    done: int = 0


@contextlib.contextmanager
def slow_sends(transport: VllmTransport) -> Iterator[Sends]:
    """Sending a request to the engine takes a moment, as with a full socket."""
    core, sends = internals(transport).engine_core, Sends()
    original = core.add_request_async

    async def slow(request: Any) -> None:
        sends.begun.set()
        await asyncio.sleep(0.05)
        await original(request)
        sends.done += 1

    core.add_request_async = slow
    try:
        yield sends
    finally:
        del core.add_request_async


class TestLives:
    """Starts and ends of other engines."""

    def test_a_fresh_engine_after_the_killed_one(
        self, loop: LoopThread, model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It has our own options, so the model babbles, and repeats itself unless told not to."""

        async def body() -> None:
            fresh = VllmTransport(config(model, **OPTIONS))
            info = await fresh.start()
            assert (info.engine, info.model, info.location) == ("vllm", str(model), "cpu")
            assert info.version == sys.modules["vllm"].__version__
            babble: dict[str, Any] = {"temperature": 0.0, "max_new_tokens": 500}
            with monkeypatch.context() as patch:  # tokens, because some of the babble is no text
                patch.setattr(module, "_reply", lambda output: list(output.outputs[0].token_ids))
                free = await fresh.generate(question(**babble))
                guarded = await fresh.generate(question(**babble, no_repeat_ngram_size=2))
            assert has_repeats(free)
            assert not has_repeats(guarded)
            late = [asyncio.create_task(fresh.generate(question(max_new_tokens=3000))) for _ in range(4)]
            await until(lambda: bool(internals(fresh).output_processor.request_states))
            await fresh.aclose()
            for outcome in await asyncio.gather(*late, return_exceptions=True):
                assert isinstance(outcome, EngineDeadError)

        loop.call(without_leftovers(body()))

    @pytest.mark.parametrize("moment", ["at once", "waiting for another load", "engine process there"])
    def test_a_start_that_is_cancelled(
        self, loop: LoopThread, model: Path, moment: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module._Loaded, "stop", lambda _: pytest.fail("the load ran to its end"))

        async def body() -> None:
            others, waits = engine_processes(), moment == "waiting for another load"
            with module._loading if waits else contextlib.nullcontext():
                task = asyncio.create_task(VllmTransport(config(model, **OPTIONS)).start())
                if moment == "engine process there":
                    await until(lambda: engine_processes() != others)
                elif waits:
                    await until(waiting_for_turn)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

        loop.call(without_leftovers(body()))

    def test_an_engine_that_dies_while_it_loads(self, loop: LoopThread, model: Path) -> None:
        async def body() -> None:
            others = engine_processes()
            task = asyncio.create_task(VllmTransport(config(model, **OPTIONS)).start())
            await until(lambda: engine_processes() != others)
            for process in engine_processes() - others:
                process.kill()
            with pytest.raises(EngineUnavailableError, match="vLLM does not start: "):
                await task

        loop.call(without_leftovers(body()))

    def test_a_plain_script_without_a_main_guard(self, model: Path, tmp_path: Path) -> None:
        script = tmp_path / "script.py"
        script.write_text(SCRIPT.format(model=str(model), options=json.dumps(OPTIONS | SCRIPTED)))
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=400, check=False)
        assert done.stdout.splitlines() == ["top level", DEFAULT_OUTPUTS[Kind.TEXT].text, "engines: 0"], done.stderr
        assert "Traceback" not in done.stderr
        assert done.returncode == 0

    def test_the_engine_of_a_killed_parent_ends(self, loop: LoopThread, model: Path, tmp_path: Path) -> None:
        script = tmp_path / "script.py"
        script.write_text(SCRIPT.format(model=str(model), options=json.dumps(OPTIONS)))
        parent = psutil.Popen([sys.executable, script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        orphans: list[psutil.Process] = []

        def engine_is_named() -> bool:
            orphans[:] = [child for child in parent.children(recursive=True) if child.name() == "VLLM::EngineCore"]
            return orphans != []

        try:
            loop.call(until(engine_is_named))
        finally:
            parent.kill()
            parent.wait()
        loop.call(until(lambda: ended(orphans[0])))


SCRIPT = """
print("top level", flush=True)
import base64, gc, io
from PIL import Image
from mineru_engine.options import Engine
from mineru_engine.runtime.loop import LoopThread
from mineru_engine.vlm.config import VlmConfig
from mineru_engine.vlm.transport import EncodedImage, VlmRequest
from mineru_engine.vlm.vllm import VllmTransport

buffer = io.BytesIO()
Image.new("RGB", (280, 140)).save(buffer, "PNG")
image = EncodedImage(base64.b64encode(buffer.getvalue()).decode(), "image/png")
loop = LoopThread("script")
transport = VllmTransport(VlmConfig(Engine.VLLM, model={model!r}, options={options!r}))
loop.call(transport.start())
print(loop.call(transport.generate(VlmRequest(image, "\\nText Recognition:"))).text)
loop.call(transport.aclose())
loop.close()
gc.collect()
print("engines:", sum(type(thing).__name__ == "AsyncLLM" for thing in gc.get_objects()))
"""


def ended(process: psutil.Process) -> bool:
    """Whether it has ended, reaped or not."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def waiting_for_turn() -> bool:
    """Whether some thread waits until it may load."""
    code = module._Load._turn.__wrapped__.__code__
    return any(frame.f_code is code for top in sys._current_frames().values() for frame, _ in traceback.walk_stack(top))


def has_repeats(tokens: Any) -> bool:
    """Whether two tokens follow each other twice."""
    pairs = list(itertools.pairwise(tokens))
    return len(set(pairs)) < len(pairs)
