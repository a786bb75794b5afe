"""Memory of processes on GPUs: the real ``pynvml`` on a driver library that is compiled here."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")
ROOT = Path(__file__).parents[2]

LOOK = r"""
import json, os, subprocess, sys
from mineru_engine import gpu
from mineru_engine.processes import Tree

{before}
idle = "import sys; sys.stdin.read()"
nested = f"import subprocess, sys\nprint(subprocess.Popen([sys.executable, '-c', {idle!r}]).pid, flush=True)\n{idle}"
pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
with subprocess.Popen([sys.executable, "-c", nested], **pipes) as child:
    grandchild = int(child.stdout.readline())
    names = dict(ME=os.getpid(), CHILD=child.pid, CORE=grandchild, INIT=1, STRANGER=2**22 + 7)
    os.environ["FAKE_PROCESSES"] = os.environ.get("FAKE_PROCESSES", "").format(**names)
    tree = Tree()
    tree.refresh()
    with gpu.GpuProbe() as probe:
        looks = [probe.look(tree.pids()) for _ in range(2)]
    print(json.dumps(dict(memory=looks[-1][0], utilization=looks[-1][1], reason=probe.reason)))
"""
IN_CONTAINER = "gpu.in_container = lambda: True"
ON_THE_HOST = "gpu.in_container = lambda: False"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Compiles the library with some flags; returns its directory."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler (cc)")

    @functools.cache
    def build(flag: str = "") -> Path:
        directory = tmp_path_factory.mktemp("nvml")
        target = directory / "libnvidia-ml.so.1"
        flags = [flag] if flag else []
        subprocess.run([compiler, "-shared", "-fPIC", *flags, "-o", str(target), str(SOURCE)], check=True)
        return directory

    return build


def run(directory: Path, code: str, **environment: str) -> Any:
    """The last line that a process prints which has the library."""
    path = {"LD_LIBRARY_PATH": str(directory), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | path | environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def look(directory: Path, *processes: str, before: str = ON_THE_HOST, **environment: str) -> Mapping[str, Any]:
    environment["FAKE_PROCESSES"] = "\n".join(processes)
    return run(directory, LOOK.replace("{before}", before), **environment)


def mib(number: int) -> int:
    return number << 20


def test_the_tree_counts_and_nobody_else(compiled: Any) -> None:
    found = look(
        compiled(),
        f"0 c {{ME}} {mib(100)}",
        f"0 c {{CHILD}} {mib(20)}",
        f"0 c {{CORE}} {mib(3000)}",
        f"0 c {{INIT}} {mib(7)}",
    )
    assert found == {"memory": 3120, "utilization": 30, "reason": None}


def test_several_gpus_and_the_utilization_of_those_in_use(compiled: Any) -> None:
    lines = [f"1 c {{CORE}} {mib(10)}", f"2 c {{CORE}} {mib(5)}", f"0 c {{INIT}} {mib(7)}"]
    assert look(compiled(), *lines, FAKE_DEVICES="3") == {"memory": 15, "utilization": 90, "reason": None}


def test_a_process_with_both_contexts_counts_once(compiled: Any) -> None:
    lines = [f"0 c {{ME}} {mib(10)}", f"0 g {{ME}} {mib(10)}", f"0 g {{CHILD}} {mib(1)}"]
    assert look(compiled(), *lines)["memory"] == 11


def test_no_process_of_ours_is_no_memory(compiled: Any) -> None:
    assert look(compiled(), f"0 c {{INIT}} {mib(10)}", FAKE_DEVICES="2") == {
        "memory": 0,
        "utilization": 50,
        "reason": None,
    }


def test_mig_instances_are_asked_each(compiled: Any) -> None:
    lines = [f"10 c {{ME}} {mib(10)}", f"11 c {{ME}} {mib(20)}", f"21 c {{CHILD}} {mib(5)}", f"0 c {{ME}} {mib(999)}"]
    found = look(compiled(), *lines, FAKE_DEVICES="2", FAKE_MIG="2/7")
    assert found == {"memory": 35, "utilization": None, "reason": None}


def test_memory_that_is_not_available_is_no_figure(compiled: Any) -> None:
    found = look(compiled(), f"0 c {{ME}} {mib(10)}", "0 c {CHILD} -1")
    assert found["memory"] is None
    assert "tells no memory of single processes" in found["reason"]


def test_host_numbers_in_a_container_are_no_figure(compiled: Any) -> None:
    lines = [f"0 c {{STRANGER}} {mib(10)}", f"0 c {{ME}} {mib(99)}"]  # one of the host's numbers may be ours by chance
    found = look(compiled(), *lines, before=IN_CONTAINER)
    assert found["memory"] is None
    assert "the host's numbers" in found["reason"]


def test_a_container_that_is_shown_nothing_has_no_figure(compiled: Any) -> None:
    found = look(compiled(), before=IN_CONTAINER)
    assert found["memory"] is None
    assert "shows this container no processes" in found["reason"]


def test_a_container_whose_own_numbers_are_used_has_a_figure(compiled: Any) -> None:
    found = look(compiled(), f"0 c {{CORE}} {mib(10)}", before=IN_CONTAINER)
    assert (found["memory"], found["reason"]) == (10, None)


def test_a_process_that_has_just_ended_is_no_stranger(compiled: Any) -> None:
    """It was listed, but not any more when we looked for it; the next look does not list it."""
    code = LOOK.replace("{before}", IN_CONTAINER).replace(
        "looks = [probe.look(tree.pids()) for _ in range(2)]",
        "looks = [probe.look(tree.pids())]\n        assert probe.reason is None, probe.reason",
    )
    lines = f"0 c {{STRANGER}} {mib(10)}\n0 c {{ME}} {mib(1)}"
    assert run(compiled(), code, FAKE_PROCESSES=lines)["memory"] == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [("4", "does not permit"), ("3", "tells no memory of single processes"), ("999", "the driver refuses")],
)
def test_a_driver_that_refuses(compiled: Any, error: str, reason: str) -> None:
    found = look(compiled(), FAKE_ERROR=error)
    assert found["memory"] is None
    assert reason in found["reason"]
    assert found["utilization"] == 30


def test_an_older_driver_is_asked_in_the_older_way(compiled: Any) -> None:
    found = look(compiled("-DOLD"), f"0 c {{ME}} {mib(10)}")
    assert (found["memory"], found["reason"]) == (10, None)


def test_a_driver_without_the_functions_is_too_old(compiled: Any) -> None:
    found = look(compiled("-DANCIENT"), f"0 c {{ME}} {mib(10)}")
    assert found["memory"] is None
    assert "too old" in found["reason"]


def test_a_driver_that_does_not_start(compiled: Any) -> None:
    found = look(compiled(), FAKE_INIT="9")
    assert (found["memory"], found["utilization"]) == (None, None)
    assert "does not answer" in found["reason"]


def test_a_driver_without_a_gpu(compiled: Any) -> None:
    assert look(compiled(), FAKE_DEVICES="0") == {"memory": None, "utilization": None, "reason": "no GPU"}


def test_no_driver_at_all(tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a driver here")
    assert look(tmp_path) == {"memory": None, "utilization": None, "reason": "no NVIDIA driver"}


def test_a_server_is_not_looked_for(compiled: Any) -> None:
    code = (
        "import json\nfrom mineru_engine.gpu import GpuProbe\n"
        "with GpuProbe(served=True) as probe:\n    print(json.dumps([*probe.look({1}), probe.reason]))"
    )
    memory, utilization, reason = run(compiled(), code)
    assert (memory, utilization) == (None, None)
    assert "the engine is a server" in reason


def test_the_machine_lists_gpus_and_driver(compiled: Any) -> None:
    code = "from mineru_cli.bench.machine import describe_machine\nprint(describe_machine().model_dump_json())"
    found = run(compiled(), code, FAKE_DEVICES="2", FAKE_MIG="1/7")
    gpu = {"name": "Fake GPU", "memory_mib": 80 << 10, "mig": True}
    assert found["gpus"] == [gpu | {"uuid": "GPU-0"}, gpu | {"uuid": "GPU-1"}]
    assert found["driver"] == "999.1"


def test_a_run_has_the_memory_over_time(compiled: Any, demo: Path, tmp_path: Path) -> None:
    """The whole way: every process is listed, also the workers that start later."""
    code = f"""
import os, threading, time
import psutil
from mineru_cli.app import main
import sys

def keep_listing():
    while True:
        pids = [os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]
        os.environ["FAKE_PROCESSES"] = "\\n".join(f"0 c {{pid}} {{10 << 20}}" for pid in pids)
        time.sleep(0.05)

os.environ["FAKE_PROCESSES"] = f"0 c {{os.getpid()}} {{10 << 20}}"
threading.Thread(target=keep_listing, daemon=True).start()
sys.argv = ["mineru", "bench", {str(demo / "contract.pdf")!r}, "--tier", "flash", "--repeats", "1", "--mode", "async"]
sys.argv += ["--concurrency", "1", "--json", "--output", {str(tmp_path / "x.json")!r}]
main()
"""
    report = run(compiled(), code)
    (bench,) = report["runs"]
    assert bench["gpu"]["peak_vram_mib"] >= 20
    assert bench["gpu"]["vram_reason"] is None
    assert bench["gpu"]["mean_utilization_percent"] == 30
    assert None not in bench["series"]["vram_mib"]
    assert report["machine"]["gpus"][0]["name"] == "Fake GPU"
