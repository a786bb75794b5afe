"""vLLM in this process: one ``AsyncLLM``, whose scheduler batches all requests; its engine is a child process.

Written for vLLM 0.19.1 and later; tried with the CPU builds of 0.19.1, 0.29.0 and 0.32.0, not on a GPU.

In all of them ``AsyncLLM.generate`` forgets a request whose caller is cancelled while the request is being sent
(vllm-project/vllm #57061), so requests go through ``add_request`` here and are aborted by id.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib
import io
import multiprocessing
import os
import threading
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing import spawn
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from pydantic import ValidationError

from mineru_engine.errors import (
    EngineDeadError,
    EngineRequestError,
    EngineUnavailableError,
    ErrorCode,
    MineruError,
    OptionError,
)
from mineru_engine.nearest import did_you_mean
from mineru_engine.runtime.cancel import run_to_end
from mineru_engine.vlm.transport import EngineInfo, VlmReply

if TYPE_CHECKING:
    from PIL.Image import Image

    from mineru_engine.vlm.config import VlmConfig
    from mineru_engine.vlm.transport import EncodedImage, Sampling, VlmRequest

__all__ = ("VllmTransport",)

_CLOSED = "vLLM was closed"
_CHILD_MAIN = "mineru_engine.vlm.vllm_child"
_INSTALL = "pip install 'mineru[vllm]'"
_SETTING = "model.vlm.engine_options"
_STOP_S = 10.0  # vLLM itself kills its engine 5 s after asking it to end
_KILL_S = 4.0
_POLL_S = 0.1

_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # standard output is for results
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork of a process with our threads can deadlock
}
"""What vLLM is told unless the user's environment says otherwise."""

_DEFAULTS: Mapping[str, Any] = {
    "limit_mm_per_prompt": {"image": 1},
    "mm_processor_cache_gb": 0,  # every image is seen once
    "disable_log_stats": True,
    "use_tqdm_on_load": False,
}
"""Engine options of ours; each gives way to the user's."""

_UNGUARDED = "this vLLM takes no logits processor: nothing keeps the model from repeating itself until its length limit"
_NO_REPEAT = ("mineru_vl_utils.logits_processor.vllm_v1_no_repeat_ngram", "VllmV1NoRepeatNGramLogitsProcessor")
_PROCESSES = ("EngineCore", "VLLM_DP_Coordinator")

_loading = threading.Lock()  # vLLM measures free memory while it loads: two at once would count each other's


class VllmTransport:
    """Requests to a model that vLLM holds; see :class:`mineru_engine.vlm.transport.Transport`.

    ``engine_options`` go to vLLM's ``AsyncEngineArgs`` by name. ``no_repeat_ngram_size`` is done by the logits
    processor of mineru-vl-utils, unless ``logits_processors`` are given. That processor is for vLLM's V1 model
    runner; where vLLM chooses the V2 runner, sampling goes without (``VLLM_USE_V2_MODEL_RUNNER=0`` brings it back).

    The model has to be on this machine, as a directory or in the Hugging Face cache: nothing is downloaded.
    """

    concurrency: int | None = None

    def __init__(self, config: VlmConfig) -> None:
        self._config = config
        self._loaded: _Loaded | None = None

    async def start(self) -> EngineInfo:
        """Load the model; takes from 20 s to minutes. A cancel ends the engine's processes first.

        :raises OptionError: if an engine option or the device makes no sense.
        :raises EngineUnavailableError: if vLLM or the model is missing, or vLLM does not start.
        """
        load = _Load(self._config)
        try:
            self._loaded = await load.run()
        except asyncio.CancelledError:
            await run_to_end(load.undo())
            raise
        return self._loaded.info

    async def generate(self, request: VlmRequest) -> VlmReply:
        """Run one request; a cancel aborts it by id.

        An image that is being prepared when the cancel comes is prepared to its end, on vLLM's own thread.

        :raises EngineRequestError: if vLLM refuses the request or fails in it.
        :raises EngineDeadError: if the engine is gone or closed.
        """
        if self._loaded is None:
            raise EngineDeadError(_CLOSED)
        engine, running, request_id = self._loaded.engine, self._loaded.running, uuid.uuid4().hex
        running.add(request_id)
        try:
            prompt = await _prompt(engine, request)
            parameters = _parameters(request.sampling)
            # Cancelled half-way, add_request may leave the request in vLLM for ever: let it arrive, then abort it.
            queue = await run_to_end(engine.add_request(request_id, prompt, parameters))
            output = await _last(queue)
        except asyncio.CancelledError:
            await run_to_end(_abort(engine, request_id))
            raise
        except Exception as exc:  # the classes change between versions
            if engine.errored:
                raise EngineDeadError(f"vLLM's engine died: {_line(exc)}") from exc
            await run_to_end(_abort(engine, request_id))
            raise EngineRequestError(f"vLLM: {_line(exc)}") from exc
        finally:
            running.discard(request_id)
        if self._loaded is None:  # then it was we who aborted it
            raise EngineDeadError(_CLOSED)
        return _reply(output)

    async def aclose(self) -> None:
        """End the engine and wait until its processes are gone, 15 s at most. Safe to call twice.

        Requests in flight raise :class:`EngineDeadError`.
        """
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            await run_to_end(loaded.stop())


@dataclasses.dataclass(frozen=True, slots=True)
class _Loaded:
    """A running engine.

    :ivar engine: vLLM's ``AsyncLLM``.
    :ivar processes: its direct children.
    :ivar running: ids of the requests in flight.
    """

    engine: Any
    processes: frozenset[BaseProcess]
    info: EngineInfo
    running: set[str] = dataclasses.field(default_factory=set)

    async def answer(self) -> None:
        """Wait for the engine's first answer; without one it is stopped.

        vLLM would ask in the first request, and wait for ever if the engine died just then.
        """
        question = asyncio.ensure_future(self.engine.get_supported_tasks())
        try:
            while not question.done() and all(process.is_alive() for process in self.processes):
                await asyncio.wait({question}, timeout=_POLL_S)
        finally:
            answered = not question.cancel() and question.exception() is None
        if not answered:
            await self.stop()
            raise EngineUnavailableError("vLLM's engine ended as soon as it had started")

    async def stop(self) -> None:
        """Ask vLLM to end its engine, then make sure of it."""
        await _abort(self.engine, *self.running)
        if self.engine.output_handler is not None:
            self.engine.output_handler.cancel()  # it would log the end of its engine as a failure
        thread = asyncio.ensure_future(asyncio.to_thread(self._shutdown))
        await asyncio.wait({thread}, timeout=_STOP_S)
        if not thread.done():
            _kill(self.processes)
            await asyncio.wait({thread}, timeout=_KILL_S)

    def _shutdown(self) -> None:
        with contextlib.suppress(Exception):  # what it could not end is killed below
            self.engine.shutdown()
        _kill(self.processes, wait_s=_KILL_S)


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """A start whose settings make sense.

    :ivar arguments: vLLM's ``AsyncEngineArgs``.
    :ivar options: the user's engine options among them.
    """

    arguments: Any
    options: Mapping[str, Any]
    info: EngineInfo


class _Load:
    """Builds the engine on worker threads. The loop may call it off meanwhile."""

    def __init__(self, config: VlmConfig) -> None:
        self._config = config
        self._called_off = threading.Event()
        self._others: frozenset[BaseProcess] | None = None
        self._building: asyncio.Future[_Loaded] | None = None

    async def run(self) -> _Loaded:
        """When it raises anything but ``CancelledError``, nothing is left behind; after that call :meth:`undo`."""
        loop = asyncio.get_running_loop()
        # vLLM keeps errors of its imports for ever, and with them all frames below: nothing in those holds the engine.
        plan = await loop.run_in_executor(None, _plan, self._config)
        self._building = loop.run_in_executor(None, self._build, plan)
        loaded = await asyncio.shield(self._building)
        await loaded.answer()
        return loaded

    async def undo(self) -> None:
        """End what :meth:`run` has begun; without its processes, the thread that builds the engine ends soon."""
        self._called_off.set()
        if self._building is None:
            return
        while not self._building.done():
            _kill(self._processes())
            await asyncio.wait({self._building}, timeout=_POLL_S)
        if self._building.exception() is None:
            await self._building.result().stop()

    def _build(self, plan: _Plan) -> _Loaded:
        with self._turn():
            self._others = _engine_processes()
            try:
                engine, limits = _engine(plan, self._check)
            except BaseException:
                _kill(self._processes(), wait_s=_KILL_S)
                raise
            return _Loaded(engine, self._processes(), dataclasses.replace(plan.info, limits=limits))

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        while not _loading.acquire(timeout=_POLL_S):
            self._check()
        try:
            self._check()
            yield
        finally:
            _loading.release()

    def _check(self) -> None:
        if self._called_off.is_set():
            raise EngineUnavailableError("the start of vLLM was called off")  # nobody waits for it

    def _processes(self) -> frozenset[BaseProcess]:
        return frozenset() if self._others is None else _engine_processes() - self._others


def _engine_processes() -> frozenset[BaseProcess]:
    return frozenset(child for child in multiprocessing.active_children() if child.name.startswith(_PROCESSES))


def _kill(processes: Iterable[BaseProcess], *, wait_s: float = 0.0) -> None:
    """End the processes and their children; those that have ended are no trouble."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        process.kill()
        process.join(wait_s)


def _library(name: str) -> Any:
    """A module of vLLM or of what comes with it; imported only here, because that takes seconds.

    :raises EngineUnavailableError: if it is missing or broken.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name and exc.name == name.partition(".")[0]:
            raise EngineUnavailableError("vLLM is not installed", hint=_INSTALL) from exc
        raise EngineUnavailableError(f"vLLM cannot be imported: {_line(exc)}", hint=_INSTALL) from exc
    except Exception as exc:
        raise EngineUnavailableError(f"vLLM cannot be imported: {_line(exc)}", hint=_INSTALL) from exc


def _plan(config: VlmConfig) -> _Plan:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    location = _device(config.device)
    options = _options(config.engine_options)
    model = config.local_model
    arguments = _arguments(_local(model, options), options)
    return _Plan(arguments, options, EngineInfo("vllm", model, str(_library("vllm").__version__), location))


def _device(asked: str | None) -> str:
    """The kind of device that the installed vLLM runs on, as ``cuda`` or ``cpu``."""
    kind = str(_library("vllm.platforms").current_platform.device_type)
    if not kind:
        raise EngineUnavailableError("vLLM finds no device to run on", hint="is there a GPU, and does its driver work?")
    if asked not in {None, kind, f"{kind}:0"}:
        raise OptionError(
            f"model.vlm.device: vLLM runs on {kind} here and takes the first device it sees, not {asked}",
            code=ErrorCode.SETTING_INVALID,
            hint=f"leave it out; CUDA_VISIBLE_DEVICES chooses devices, {_SETTING}.tensor_parallel_size their number",
        )
    return kind


def _options(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The user's engine options under the names that vLLM gives them."""
    known = {field.name for field in dataclasses.fields(_library("vllm.engine.arg_utils").AsyncEngineArgs)}
    return {_option(name, known): value for name, value in asked.items()}


def _option(asked: str, known: set[str]) -> str:
    name = asked.replace("-", "_")
    if name == "model":
        problem, hint = "the model is not an engine option", "set model.vlm.model"
    elif name in known:
        return name
    else:
        problem = f"vLLM has no option {asked!r}"
        hint = did_you_mean(name, known) or "they are the fields of vLLM's AsyncEngineArgs"
    raise OptionError(f"{_SETTING}: {problem}", code=ErrorCode.SETTING_INVALID, hint=hint)


def _arguments(model: str, options: Mapping[str, Any]) -> Any:
    """``AsyncEngineArgs`` for the model in a directory."""
    arguments = _library("vllm.engine.arg_utils").AsyncEngineArgs
    known = {field.name for field in dataclasses.fields(arguments)}
    ours = {name: value for name, value in _DEFAULTS.items() if name in known}
    try:
        return arguments(model=model, **(ours | {"logits_processors": _no_repeat()} | dict(options)))
    except (TypeError, ValueError) as exc:
        raise _refusal(exc, options) from exc


def _no_repeat() -> list[str] | None:
    """The logits processor for ``no_repeat_ngram_size``, where the installed vLLM still has its interface."""
    module, name = _NO_REPEAT
    try:
        importlib.import_module(module)
    except ImportError:
        return None
    return [f"{module}:{name}"]


def _local(model: str, options: Mapping[str, Any]) -> str:
    """The directory of a model."""
    path = Path(model).expanduser()
    if path.exists():
        return str(path)
    try:
        found: str = _library("huggingface_hub").snapshot_download(
            model, revision=options.get("revision"), cache_dir=options.get("download_dir"), local_files_only=True
        )
    except (OSError, ValueError) as exc:
        raise EngineUnavailableError(
            f"the model {model} is neither a directory nor in the Hugging Face cache",
            hint=f"fetch it with `hf download {model}`, or set model.vlm.model to its directory",
        ) from exc
    return found


def _engine(plan: _Plan, check: Callable[[], None]) -> tuple[Any, tuple[str, ...]]:
    """Start the engine: vLLM's ``AsyncLLM.from_engine_args`` in its two steps.

    :param check: raises if the engine is no longer wanted.
    :return: the engine, and what it does not do (:attr:`EngineInfo.limits`).
    """
    asynchronous, arguments = _library("vllm.v1.engine.async_llm").AsyncLLM, plan.arguments
    try:
        config = arguments.create_engine_config()
        if "logits_processors" not in plan.options and getattr(config, "use_v2_model_runner", False):
            config.model_config.logits_processors = None  # ours is for the V1 runner, the V2 runner refuses it
        check()
        with _own_main():
            engine = asynchronous.from_vllm_config(
                config, disable_log_stats=arguments.disable_log_stats, enable_log_requests=arguments.enable_log_requests
            )
        return engine, () if config.model_config.logits_processors else (_UNGUARDED,)
    except Exception as exc:
        _release_frames(exc)
        raise _refusal(exc, plan.options) from exc


@contextlib.contextmanager
def _own_main() -> Iterator[None]:
    """Processes that this thread spawns import a module of ours for their main module, not the caller's script.

    ``multiprocessing`` imports the main module in every child, for objects of it that travel there. None does here,
    and a script without a main guard would start the engine again in each.
    """
    original, thread = spawn.get_preparation_data, threading.get_ident()

    def prepared(name: str) -> dict[str, Any]:
        data = original(name)
        if threading.get_ident() == thread:
            data.pop("init_main_from_path", None)
            data["init_main_from_name"] = _CHILD_MAIN
        return data

    spawn.get_preparation_data = prepared
    try:
        yield
    finally:
        spawn.get_preparation_data = original


def _release_frames(exc: BaseException) -> None:
    """Let go of the half-built engine, which the frames of the traceback hold with its threads."""
    error: BaseException | None = exc
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def _refusal(exc: Exception, options: Mapping[str, Any]) -> MineruError:
    """What vLLM says against its configuration; an option's fault where vLLM names one that was given."""
    message = _line(exc)
    if isinstance(exc, ValidationError):
        error = exc.errors(include_url=False, include_input=False)[0]
        message = _line(error["msg"])
        name = str(error["loc"][0]) if error["loc"] else ""
        if name in options:
            return OptionError(f"{_SETTING}.{name}: {message}", code=ErrorCode.SETTING_INVALID)
    hint = f"vLLM's own messages say more; {_SETTING} go to it, as gpu_memory_utilization and max_model_len"
    return EngineUnavailableError(f"vLLM does not start: {message}", hint=hint)


def _line(what: object) -> str:
    """The first line of a message; the name of an exception that has none."""
    return str(what).strip().partition("\n")[0] or type(what).__name__


async def _prompt(engine: Any, request: VlmRequest) -> Any:
    """Template, image and tokens, prepared on threads: in ``add_request`` they would hold up the loop."""
    text, image = await asyncio.to_thread(_material, engine.tokenizer, request)
    (prompt,) = await engine.renderer.render_cmpl_async([{"prompt": text, "multi_modal_data": {"image": image}}])
    return prompt


def _material(tokenizer: Any, request: VlmRequest) -> tuple[str, Image]:
    messages = [
        {"role": "system", "content": request.system_prompt},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": request.prompt}]},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return text, _decoded(request.image)


def _decoded(image: EncodedImage) -> Image:
    from PIL import Image as pillow

    with pillow.open(io.BytesIO(image.decode())) as opened:
        return opened.convert("RGB")


def _parameters(sampling: Sampling) -> Any:
    """vLLM's ``SamplingParams``; without a limit of its own an answer may fill the model's context."""
    module = _library("vllm.sampling_params")
    values = {name: value for name, value in dataclasses.asdict(sampling).items() if value is not None}
    limit = values.pop("max_new_tokens", None)
    ngram = values.pop("no_repeat_ngram_size", None)
    return module.SamplingParams(
        **values,
        max_tokens=limit,
        skip_special_tokens=False,
        output_kind=module.RequestOutputKind.FINAL_ONLY,
        extra_args=None if ngram is None else {"no_repeat_ngram_size": ngram},
    )


async def _last(queue: Any) -> Any:
    while True:
        output = await queue.get()
        if output.finished:
            return output


async def _abort(engine: Any, *request_ids: str) -> None:
    """Make the engine forget requests, as far as it knows them."""
    with contextlib.suppress(Exception):  # the engine may die meanwhile, and then it has forgotten all
        await engine.abort(request_ids)


def _reply(output: Any) -> VlmReply:
    choice = output.outputs[0]
    if choice.finish_reason not in {"stop", "length"}:
        raise EngineRequestError(f"vLLM ended the request early: {choice.finish_reason}")
    return VlmReply(
        text=choice.text,
        prompt_tokens=len(output.prompt_token_ids),
        completion_tokens=len(choice.token_ids),
        truncated=choice.finish_reason == "length",
    )
