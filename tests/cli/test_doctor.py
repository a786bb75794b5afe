"""``mineru doctor`` and the checks behind it."""

from __future__ import annotations

import http.server
import importlib.metadata
import json
import struct
import sys
import threading
import tomllib
import types
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mineru_cli.app import app
from mineru_engine import Settings
from mineru_engine.doctor import Finding, Level, machine, packages, vlm, weights, without_credentials
from mineru_engine.settings import VlmSettings, WorkerSettings


class FakeServer(http.server.BaseHTTPRequestHandler):
    """An OpenAI-compatible server with one model and, maybe, a key."""

    key: str | None = None
    replies: dict[str, tuple[int, bytes]]
    seen: list[str | None]

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("Authorization"))
        status, body = self.replies.get(self.path, (404, b"{}"))
        if self.key is not None and self.headers.get("Authorization") != f"Bearer {self.key}":
            status, body = 401, b'{"error": "bad key"}'
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers = []

    def start(replies: dict[str, tuple[int, bytes]], key: str | None = None) -> str:
        handler = type("Handler", (FakeServer,), {"replies": replies, "key": key, "seen": []})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


MODELS = {"/v1/models": (200, b'{"data": [{"id": "m1"}, {"id": "m2"}]}')}
VLLM = MODELS | {"/version": (200, b'{"version": "0.19.1"}')}


def check(**values: Any) -> Finding:
    (finding,) = vlm.server(VlmSettings(**values))
    return finding


def test_no_server_is_a_note() -> None:
    assert check().level is Level.NOTE


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
def test_a_server_tells_models_and_version(serve: Serve, ending: str) -> None:
    finding = check(server_url=serve(VLLM) + ending, model="m2")
    assert finding.level is Level.OK
    assert finding.details["models"] == ["m1", "m2"]
    assert finding.details["version"] == "0.19.1"


def test_a_server_without_a_version(serve: Serve) -> None:
    finding = check(server_url=serve(MODELS))
    assert (finding.level, finding.details["version"]) == (Level.OK, None)


def test_a_model_that_is_not_served(serve: Serve) -> None:
    finding = check(server_url=serve(MODELS), model="m3")
    assert finding.level is Level.BROKEN
    assert "m1, m2" in finding.message


@pytest.mark.parametrize(("key", "message"), [(None, "it wants an API key"), ("canary", "the API key was refused")])
def test_a_refused_key(serve: Serve, key: str | None, message: str) -> None:
    finding = check(server_url=serve(MODELS, key="right"), api_key=key)
    assert finding.level is Level.BROKEN
    assert message in finding.message
    assert "canary" not in json.dumps(finding.to_dict())


def test_the_right_key(serve: Serve) -> None:
    assert check(server_url=serve(MODELS, key="right"), api_key="right").level is Level.OK


@pytest.mark.parametrize("reply", [(404, b"{}"), (200, b"<html>"), (200, b"[]"), (302, b""), (500, b"")])
def test_something_else_answers(serve: Serve, reply: tuple[int, bytes]) -> None:
    assert check(server_url=serve({"/v1/models": reply})).level is Level.BROKEN


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://user:canary@127.0.0.1:9", "nonsense", "http://[::bad"])
def test_nobody_answers(url: str) -> None:
    finding = check(server_url=url)
    assert finding.level is Level.BROKEN
    assert "canary" not in json.dumps(finding.to_dict())


def test_without_credentials() -> None:
    assert without_credentials("https://a:b@h/p@q") == "https://***@h/p@q"
    assert without_credentials("https://h/p@q") == "https://h/p@q"
    assert without_credentials("m@x") == "m@x"


def test_the_requirements_table_is_that_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert list(packages.REQUIREMENTS) == project["dependencies"]


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("1.2", ">=1.2,<2", True),
        ("1.2.0", ">=1.2", True),
        ("2.0.0", "<2", False),
        ("1.10", ">=1.9", True),
        ("1.9", ">=1.10", False),
        ("2.0rc1", ">=2,<3", True),
        ("1.4.5", "~=1.4.2", True),
        ("1.5.0", "~=1.4.2", False),
        ("1.2", "==1.2.0", True),
        ("1.2", "!=1.2", False),
        ("v2", ">1", True),
        ("1", "", True),
        ("1", "nonsense", False),
    ],
)
def test_satisfies(version: str, wanted: str, fits: bool) -> None:
    assert packages.satisfies(version, wanted) is fits


def test_packages_outside_their_range_are_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = ["typer (>=0.16)", "rich>=99", "no-such-thing>=1", 'vllm>=0.1; extra == "vllm"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: declared)
    levels = {finding.subject: finding.level for finding in packages.required()}
    assert levels == {"typer": Level.OK, "rich": Level.BROKEN, "no-such-thing": Level.BROKEN}


def test_opencv_without_libgl_says_exactly_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "cv2":
                raise ImportError("libGL.so.1: cannot open shared object file: No such file or directory")

    monkeypatch.delitem(sys.modules, "cv2", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    (finding,) = packages.opencv()
    assert finding.level is Level.BROKEN
    assert finding.hint is not None
    assert "pip install opencv-python-headless" in finding.hint


@pytest.mark.parametrize(("gui", "level"), [("QT5", Level.WARNING), ("NONE", Level.OK)])
def test_opencv_with_a_window_system(monkeypatch: pytest.MonkeyPatch, gui: str, level: Level) -> None:
    fake = types.SimpleNamespace(__version__="4", getBuildInformation=lambda: f"\n  GUI:      {gui}\n    QT: YES\n")
    monkeypatch.setitem(sys.modules, "cv2", fake)  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "platform", "linux")
    (finding,) = packages.opencv()
    assert finding.level is level


def test_bundled_models_have_their_sums() -> None:
    layout, ocr = packages.models()
    assert (layout.level, ocr.level) == (Level.OK, Level.OK)
    sums = ocr.details["sha256"]
    assert isinstance(sums, dict)
    assert all(len(digest) == 64 for digest in sums.values())


def test_a_damaged_bundled_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "LAYOUT_SHA256", "0" * 64)
    layout, _ = packages.models()
    assert layout.level is Level.BROKEN


class FakeNvml:
    """The management library as an H200's driver answers."""

    NVML_CLOCK_MEM = 2

    class NVMLError(Exception):
        pass

    def __init__(self, *, devices: int = 1, driver: bool = True, bus: bool = True) -> None:
        self.devices, self.driver, self.bus, self.open = devices, driver, bus, False

    def nvmlInit(self) -> None:
        if not self.driver:
            raise self.NVMLError("NVML Shared Library Not Found")
        self.open = True

    def nvmlShutdown(self) -> None:
        self.open = False

    def nvmlDeviceGetCount(self) -> int:
        return self.devices

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"575.57"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 12090

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return types.SimpleNamespace(total=141 << 30, free=100 << 30)

    def nvmlDeviceGetMemoryBusWidth(self, handle: int) -> int:
        if not self.bus:
            raise self.NVMLError("Not Supported")
        return 6144

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:
        assert kind == self.NVML_CLOCK_MEM
        return 3201


def gpus(monkeypatch: pytest.MonkeyPatch, fake: FakeNvml) -> list[Finding]:
    monkeypatch.setitem(sys.modules, "pynvml", fake)  # type: ignore[arg-type]
    found = list(machine.gpus())
    assert not fake.open
    return found


def test_a_gpu_with_its_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = gpus(monkeypatch, FakeNvml())
    assert finding.details["bandwidth_gb_s"] == 4916.7
    assert "NVIDIA H200, 141 GiB, 4917 GB/s, driver 575.57, CUDA 12.9" in finding.message


def test_a_gpu_that_does_not_tell_its_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = gpus(monkeypatch, FakeNvml(bus=False))
    assert "bandwidth unknown" in finding.message


@pytest.mark.parametrize("fake", [FakeNvml(driver=False), FakeNvml(devices=0)])
def test_no_gpu_is_clearly_said_and_no_fault(monkeypatch: pytest.MonkeyPatch, fake: FakeNvml) -> None:
    (finding,) = gpus(monkeypatch, fake)
    assert finding.level is Level.NOTE
    assert finding.message.startswith("no GPU")


def test_a_worker_process_starts() -> None:
    (finding,) = machine.worker(Settings(worker=WorkerSettings(processes=1)))
    assert finding.level is Level.OK


def test_a_worker_process_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (finding,) = machine.worker(Settings(worker=WorkerSettings(processes=1)))
    assert finding.level is Level.BROKEN


def shard(path: Path, *tensors: str) -> str:
    entries = {
        name: {"dtype": "U8", "shape": [4], "data_offsets": [4 * i, 4 * i + 4]} for i, name in enumerate(tensors)
    }
    header = json.dumps(entries | {"__metadata__": {"format": "pt"}}).encode()
    content = struct.pack("<Q", len(header)) + header + bytes(4 * len(tensors))
    path.write_bytes(content)
    return sha256(content).hexdigest()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weight_map = {"a": "m-1.safetensors", "b": "m-1.safetensors", "c": "m-2.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    shard(tmp_path / "m-1.safetensors", "a", "b")
    shard(tmp_path / "m-2.safetensors", "c")
    return tmp_path


def levels(directory: Path) -> list[Level]:
    return [finding.level for finding in weights.local_model(str(directory))]


def test_a_whole_model(model: Path) -> None:
    first, second = weights.local_model(str(model))
    assert (first.level, second.level) == (Level.OK, Level.OK)
    assert first.details["sha256"] == sha256((model / "m-1.safetensors").read_bytes()).hexdigest()


def test_a_missing_a_cut_and_a_wrong_shard(model: Path) -> None:
    (model / "m-2.safetensors").unlink()
    assert levels(model) == [Level.OK, Level.BROKEN]
    shard(model / "m-2.safetensors", "d")
    assert levels(model) == [Level.OK, Level.BROKEN]
    content = (model / "m-1.safetensors").read_bytes()
    (model / "m-1.safetensors").write_bytes(content[:-1])
    shard(model / "m-2.safetensors", "c")
    assert levels(model) == [Level.BROKEN, Level.OK]
    (model / "m-1.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert levels(model) == [Level.BROKEN, Level.OK]


def test_a_blob_that_is_called_by_another_sum(tmp_path: Path) -> None:
    digest = shard(tmp_path / "blob", "a")
    for name, level in ((digest, Level.OK), ("0" * 64, Level.BROKEN)):
        directory = tmp_path / name[:4]
        directory.mkdir()
        (tmp_path / "blob").rename(tmp_path / name)
        (directory / "model.safetensors").symlink_to(tmp_path / name)
        assert levels(directory) == [level]
        (tmp_path / name).rename(tmp_path / "blob")


def test_models_that_are_not_local_are_left_alone(tmp_path: Path) -> None:
    assert levels(tmp_path) == [Level.BROKEN]
    (tmp_path / "model.safetensors.index.json").write_text("{")
    assert levels(tmp_path) == [Level.BROKEN]
    assert list(weights.local_model("name/of-a-model")) == []
    assert list(weights.local_model(None)) == []


def test_the_command_in_full(serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINERU_WORKER_PROCESSES", "1")
    monkeypatch.setenv("MINERU_MODEL_VLM_API_KEY", "canary")
    monkeypatch.setenv("MINERU_MODEL_VLM_SERVER_URL", serve(VLLM, key="canary"))
    done = CliRunner().invoke(app, ["doctor", "--json"])
    report = json.loads(done.stdout)
    subjects = [finding["subject"] for finding in report["findings"]]
    assert {"python", "docvortex", "opencv", "layout model", "memory", "disk", "worker process", "vlm server"} <= set(
        subjects
    )
    assert done.exit_code == (1 if report["broken"] else 0)
    assert "canary" not in done.output
    text = CliRunner().invoke(app, ["doctor"])
    assert "canary" not in text.output
    assert "serves m1, m2, vLLM 0.19.1" in text.stdout


def test_something_broken_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Iterator[Finding]:
        yield Finding("thing", Level.BROKEN, "it is", "mend it")

    def crashing() -> Iterator[Finding]:
        raise RuntimeError("oops")
        yield

    for name in ("python", "required", "opencv", "models"):
        monkeypatch.setattr(packages, name, lambda: iter(()))
    monkeypatch.setattr(packages, "optional", broken)
    monkeypatch.setattr(machine, "worker", lambda settings: crashing())
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 1
    assert "broken   thing: it is\n           mend it\n" in done.stdout
    assert "RuntimeError: oops" in done.stdout
    assert "2 broken" in done.stdout
