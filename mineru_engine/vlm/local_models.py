"""How each engine that runs in this process loads its model, and what its exceptions mean.

Everything here runs on the thread of the transport. The engines are imported by name because none of them needs to be
installed; nothing is downloaded.
"""

from __future__ import annotations

import inspect
import platform
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from mineru_engine.errors import (
    EngineDeadError,
    EngineError,
    EngineRequestError,
    EngineUnavailableError,
    ErrorCode,
    MineruError,
    OptionError,
)
from mineru_engine.nearest import did_you_mean
from mineru_engine.options import Engine
from mineru_engine.quiet import quiet
from mineru_engine.vlm.config import VlmConfig
from mineru_engine.vlm.transport import VlmReply

__all__ = ("LOCAL_ENGINES", "LocalEngine", "load_error", "request_error")


@dataclass(frozen=True)
class LocalEngine:
    """One engine that runs in this process.

    :ivar package: the distribution that it is.
    :ivar install: the command that installs it.
    :ivar device: name of the device to use; ``auto`` is whatever llama.cpp chooses. Raises what ``load`` raises.
    :ivar load: the client of mineru-vl-utils around a loaded model; what has to be closed goes on the stack.
    """

    package: str
    install: str
    device: Callable[[VlmConfig], str]
    load: Callable[[VlmConfig, str, ExitStack], Any]

    def version(self) -> str:
        """Version of the package."""
        return metadata.version(self.package)


def load_error(config: VlmConfig, exc: Exception) -> MineruError:
    """What an exception means that left :attr:`LocalEngine.device` or :attr:`LocalEngine.load`; without its frames."""
    if isinstance(exc, MineruError):
        return exc.with_traceback(None)
    named = [name for name in config.engine_options if f"'{name}'" in str(exc)]
    if isinstance(exc, TypeError) and named:
        return _unknown_option(config, named[0])
    if isinstance(exc, ImportError):
        text = f"engine {config.engine} lacks a package: {_line(exc)}"
        return EngineUnavailableError(text, hint=LOCAL_ENGINES[config.engine].install)
    text = f"engine {config.engine} could not load {config.local_model}: {_line(exc)}"
    return EngineUnavailableError(text, hint=_MEMORY_HINT if _wants_memory(exc) else None)


def request_error(config: VlmConfig, exc: Exception) -> EngineError:
    """What an exception means that left a call of a model."""
    text = f"{config.engine}: {_line(exc)}"
    if _wants_memory(exc):
        return EngineRequestError(f"out of memory: {text}", hint=_MEMORY_HINT)
    if str(exc).startswith(("CUDA error", "HIP error")):  # torch before 2.8 has no type for it
        return EngineDeadError(text, hint="start the process again: this one cannot use the GPU any more")
    return EngineRequestError(text)


_MEMORY_HINT = "use a device with more memory, or a smaller model"


def _wants_memory(exc: Exception) -> bool:
    """Whether memory ran out; not all of the libraries have a type for it."""
    text = str(exc).lower()
    return isinstance(exc, MemoryError) or "out of memory" in text or "can't allocate memory" in text


def _line(exc: Exception) -> str:
    lines = str(exc).strip().splitlines()
    return f"{type(exc).__name__}: {lines[0]}" if lines else type(exc).__name__


def _model_directory(config: VlmConfig) -> Path:
    name = config.local_model
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    try:
        return Path(import_module("huggingface_hub").snapshot_download(name, local_files_only=True))
    except OSError:
        raise EngineUnavailableError(
            f"model {name} is neither a directory nor in the Hugging Face cache",
            hint=f"run 'hf download {name}' where there is a network, or set MINERU_MODEL_VLM_MODEL to its directory",
        ) from None
    except ValueError:  # not a name that the hub could have
        raise EngineUnavailableError(
            f"no model at {name}", hint="set MINERU_MODEL_VLM_MODEL to the directory of a model, or to its hub name"
        ) from None


def _one_of(*devices: str) -> Callable[[VlmConfig], str]:
    """The engine knows these devices; the first is its default."""

    def device(config: VlmConfig) -> str:
        if config.device is not None and config.device not in devices:
            raise OptionError(
                f"engine {config.engine} has no device {config.device!r}",
                code=ErrorCode.SETTING_INVALID,
                hint=f"known: {', '.join(devices)}",
            )
        return config.device or devices[0]

    return device


def _checked_options(config: VlmConfig, known: Collection[str]) -> dict[str, Any]:
    for name in config.engine_options:
        if name not in known:
            raise _unknown_option(config, name, known)
    return config.engine_options


def _unknown_option(config: VlmConfig, name: str, known: Collection[str] = ()) -> OptionError:
    listed = f"known: {', '.join(sorted(known))}" if known else "known are those of the engine's own loader"
    return OptionError(
        f"engine {config.engine} has no option {name!r}",
        code=ErrorCode.SETTING_INVALID,
        hint=did_you_mean(name, known) or listed,
    )


def _client(backend: str, **engine: Any) -> Any:
    from mineru_vl_utils.vlm_client import new_vlm_client

    return new_vlm_client(backend=backend, allow_truncated_content=True, use_tqdm=False, **engine)


def _torch_device(config: VlmConfig) -> str:
    torch = import_module("torch")
    best = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    device = torch.empty(0, device=config.device or best).device  # fails now if there is no such device
    return "mps" if device.type == "mps" else str(device)


def _load_transformers(config: VlmConfig, device: str, _: ExitStack) -> Any:
    transformers = import_module("transformers")
    from mineru_vl_utils.transformers_loading import load_transformers_processor

    path = _model_directory(config)
    options = config.engine_options
    options.setdefault("dtype", options.pop("torch_dtype", "auto"))
    with _quiet_loading(transformers.utils.logging):
        model, report = transformers.Qwen2VLForConditionalGeneration.from_pretrained(
            path, output_loading_info=True, **options
        )
    if missing := sorted(report["missing_keys"]):  # transformers would go on with random ones
        raise EngineUnavailableError(
            f"model {path} lacks weights: {', '.join(missing[:3])}",
            hint="it is not a Qwen2-VL, not complete, or too new for the transformers installed",
        )
    if "device_map" not in options:
        model.to(device)
    return _client("transformers", model=model, processor=load_transformers_processor(path))


@contextmanager
def _quiet_loading(logging: Any) -> Iterator[None]:
    """No progress bar and no report of the weights, without changing what the caller's own use of the library shows."""
    bar, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


def _load_llama_cpp(config: VlmConfig, device: str, resources: ExitStack) -> Any:
    llama_cpp = import_module("mineru_llama_cpp")
    options = _checked_options(config, inspect.signature(llama_cpp.Engine).parameters.keys() - {"model"})
    model, projector = _gguf_files(config, options.pop("mmproj", None))
    defaults = {"n_parallel": 1, "verbosity": llama_cpp.LOG_LEVEL_ERROR}
    if device == "cpu":
        defaults["n_gpu_layers"] = 0
    engine = llama_cpp.Engine(model, projector, **defaults | options)
    resources.callback(engine.close)
    client = _client("llama-cpp-engine", llama_cpp_engine=engine)
    client.get_output_content = _whole_reply  # its own keeps only the text
    return client


def _whole_reply(result: Any) -> VlmReply:
    return VlmReply(result.content, result.tokens_evaluated, result.tokens_predicted, result.finish_reason == "length")


def _gguf_files(config: VlmConfig, projector: str | None) -> tuple[Path, Path]:
    """The model and the part of it that sees, which llama.cpp keeps in a file of its own."""
    hint = "set MINERU_MODEL_VLM_MODEL to a .gguf file; its mmproj file lies beside it or is engine option mmproj"
    model = Path(config.local_model).expanduser()
    if model.suffix != ".gguf" or not model.is_file():
        raise EngineUnavailableError(f"engine llama-cpp needs a .gguf file, and {model} is none", hint=hint)
    found = [Path(projector).expanduser()] if projector else sorted(model.parent.glob("*mmproj*.gguf"))
    if len(found) != 1 or not found[0].is_file():
        names = ", ".join(path.name for path in found) or "none"
        raise EngineUnavailableError(f"{model} needs one mmproj file; named or found: {names}", hint=hint)
    return model, found[0]


def _load_lmdeploy(config: VlmConfig, _: str, resources: ExitStack) -> Any:
    """LMDeploy chooses between its two engines; an option that only one of them has makes the choice."""
    lmdeploy = import_module("lmdeploy")
    kinds = (lmdeploy.TurbomindEngineConfig, lmdeploy.PytorchEngineConfig)
    known = [inspect.signature(kind).parameters.keys() for kind in kinds]
    options = _checked_options(config, known[0] | known[1])
    kind = next((kind for kind, names in zip(kinds, known, strict=True) if options.keys() <= names), None)
    if kind is None:
        raise OptionError(
            f"neither engine of lmdeploy has all of the options {', '.join(options)}", code=ErrorCode.SETTING_INVALID
        )
    path = str(_model_directory(config))
    pipeline = lmdeploy.pipeline(path, backend_config=kind(**options) if options else None, log_level="ERROR")
    resources.callback(pipeline.close)
    return _client("lmdeploy-engine", lmdeploy_engine=pipeline)


def _apple_gpu(config: VlmConfig) -> str:
    if sys.platform != "darwin" or platform.machine() != "arm64":
        raise EngineUnavailableError(
            "engine mlx needs a Mac with Apple silicon", hint="use engine transformers or llama-cpp"
        )
    return _one_of("mps")(config)


def _load_mlx(config: VlmConfig, _: str, __: ExitStack) -> Any:
    import_module("mlx_vlm")
    from mineru_vl_utils.mlx_compat import load_mlx_model
    from mineru_vl_utils.vlm_client import SamplingParams

    quiet("mineru_vl_utils")
    model, processor = load_mlx_model(str(_model_directory(config)), **config.engine_options)
    greedy = SamplingParams(temperature=0.0, top_p=1.0, top_k=0)  # mlx-vlm takes no None for what a request leaves open
    return _client("mlx-engine", model=model, processor=processor, sampling_params=greedy)


LOCAL_ENGINES = {
    Engine.TRANSFORMERS: LocalEngine(
        "transformers", "pip install 'mineru[transformers]'", _torch_device, _load_transformers
    ),
    Engine.LLAMA_CPP: LocalEngine(
        "mineru-llama-cpp", "pip install 'mineru[llama-cpp]'", _one_of("auto", "cpu"), _load_llama_cpp
    ),
    Engine.LMDEPLOY: LocalEngine("lmdeploy", "pip install lmdeploy", _one_of("cuda:0"), _load_lmdeploy),
    Engine.MLX: LocalEngine("mlx-vlm", "pip install mlx-vlm", _apple_gpu, _load_mlx),
}
