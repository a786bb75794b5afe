"""The vLLM transport: what needs no vLLM, and the checks with a real one in the Python that has it."""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import subprocess
import sys
import time
from collections import defaultdict
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from test_tiny_vlm import has_vllm

from benchmarks.tiny_vlm import vllm_python
from benchmarks.tiny_vlm.serve import ROOT, vllm_environment
from mineru_engine.errors import EngineUnavailableError
from mineru_engine.options import Engine
from mineru_engine.vlm import vllm as module
from mineru_engine.vlm.config import VlmConfig
from mineru_engine.vlm.transport import EngineInfo
from mineru_engine.vlm.vllm import VllmTransport

CHECKS = Path(__file__).with_name("vllm_checks.py")
INFO = EngineInfo("vllm", "model")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transport sets these; here they go away again."""
    for name, value in module._ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def process() -> Any:
    """In the place of vLLM's engine. Forked: a spawned one starts Python's resource tracker, which stays as a child."""
    started = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
    started.start()
    yield started
    started.kill()
    started.join()


def test_without_vllm_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(EngineUnavailableError, match="vLLM is not installed") as caught:
        asyncio.run(VllmTransport(VlmConfig(Engine.VLLM)).start())
    assert caught.value.hint == "pip install 'mineru[vllm]'"


def test_a_broken_vllm_is_not_a_missing_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("raise ImportError('libcudart.so.12: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    with pytest.raises(EngineUnavailableError, match=r"cannot be imported: libcudart\.so\.12"):
        asyncio.run(VllmTransport(VlmConfig(Engine.VLLM)).start())


def test_an_engine_that_ends_before_its_first_answer(process: BaseProcess) -> None:
    stopped = []

    async def body() -> None:
        silent = asyncio.get_running_loop().create_future()
        engine = SimpleNamespace(
            get_supported_tasks=lambda: silent, output_handler=None, shutdown=lambda: stopped.append(True)
        )
        process.kill()
        with pytest.raises(EngineUnavailableError, match="as soon as it had started"):
            await module._Loaded(engine, frozenset({process}), INFO).answer()

    asyncio.run(body())
    assert stopped


def test_an_engine_that_does_not_end_is_killed(process: BaseProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STOP_S", 0.1)
    transport = VllmTransport(VlmConfig(Engine.VLLM))
    engine = SimpleNamespace(output_handler=None, shutdown=process.join)
    transport._loaded = module._Loaded(engine, frozenset({process}), INFO)
    asyncio.run(transport.aclose())
    assert not process.is_alive()


@pytest.mark.parametrize(
    ("options", "second_runner", "left"),
    [({}, False, "ours"), ({}, True, None), ({"logits_processors": ["theirs"]}, True, "ours")],
)
def test_our_logits_processor_is_for_the_first_model_runner(
    options: dict[str, Any], second_runner: bool, left: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SimpleNamespace(use_v2_model_runner=second_runner, model_config=SimpleNamespace(logits_processors="ours"))
    arguments = SimpleNamespace(create_engine_config=lambda: config, disable_log_stats=True, enable_log_requests=False)
    made = SimpleNamespace(AsyncLLM=SimpleNamespace(from_vllm_config=lambda config, **_: config))
    monkeypatch.setattr(module, "_library", lambda _: made)
    engine, limits = module._engine(module._Plan(arguments, options, INFO), lambda: None)
    assert engine.model_config.logits_processors == left
    assert limits == (() if left else (module._UNGUARDED,))


@pytest.fixture(scope="module")
def troubles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Name of each check that ran, and what went wrong in it. They run once, together: an engine boots for a minute."""
    report = tmp_path_factory.mktemp("vllm") / "report.xml"
    command = [str(vllm_python()), "-m", "pytest", str(CHECKS), "-p", "no:cacheprovider", f"--junitxml={report}"]
    done = subprocess.run(
        command, cwd=ROOT, env=vllm_environment(), capture_output=True, text=True, timeout=1500, check=False
    )
    assert report.exists(), done.stdout + done.stderr
    found: dict[str, list[str]] = defaultdict(list)
    for case in ElementTree.parse(report).iter("testcase"):
        found[case.attrib["name"].partition("[")[0]] += [
            f"{case.attrib['name']}\n{trouble.text}" for kind in ("failure", "error") for trouble in case.iter(kind)
        ]
    return found


@pytest.mark.skipif(not has_vllm(), reason="no vLLM here: benchmarks/tiny_vlm/setup.sh installs the CPU build")
@pytest.mark.timeout(1600)
@pytest.mark.parametrize("name", re.findall(r"def (test_\w+)", CHECKS.read_text(encoding="utf-8")))
def test_with_vllm(name: str, troubles: dict[str, list[str]]) -> None:
    assert name in troubles, f"it did not run; those that did: {', '.join(troubles)}"
    assert not troubles[name], "\n\n".join(troubles[name])
