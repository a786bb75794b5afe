"""The runners for other tools print what the harness reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.simulator import Simulator

ROOT = Path(__file__).resolve().parents[2]
KEYS = {"peer", "version", "documents", "pages", "seconds", "cpu_s", "peak_rss_mb", "samples", "config"}


@pytest.mark.parametrize("peer", ["mineru_vl_utils", "mineru_345"])
def test_runner(peer: str, demo: Path) -> None:
    python = ROOT / "build" / "peers" / peer / "bin" / "python"
    if not python.exists():
        if peer == "mineru_345":
            pytest.skip("benchmarks/peers/setup.sh has not been run")
        python = Path(sys.executable)  # the library is a dependency of ours
    name = {"mineru_vl_utils": "mineru_vl_utils_http"}.get(peer, peer)
    runner = ROOT / "benchmarks" / "peers" / f"{name}.py"
    documents = [demo / "contract.pdf", demo / "contract_scan.pdf"]
    with Simulator() as simulator:
        options = ["--server-url", simulator.url, "--concurrency", "2"]
        command = [str(word) for word in (python, runner, *options, *documents)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
        requests = simulator.stats()
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert result.keys() == KEYS
    assert (result["peer"], result["documents"], result["pages"]) == (name, 2, 6)
    assert min(result["seconds"], result["cpu_s"], result["peak_rss_mb"]) > 0
    assert requests.ok == 6 * 12
