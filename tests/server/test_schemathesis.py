"""Generated requests against the OpenAPI document of a running server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.serving import Process

pytest.importorskip("schemathesis")
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "allow_header_conformance",
)


@pytest.mark.timeout(240)
def test_it_finds_nothing(serve: Callable[..., Process], tmp_path: Path) -> None:
    process = serve().start()
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{process.url}/openapi.json"]
    command += ["--max-time", "20", "--checks", ",".join(CHECKS), "--warnings", "off", "--seed", "1", "--no-color"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    assert "Traceback" not in process.log.read_text()
