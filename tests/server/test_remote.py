"""``mineru parse --api-url``: the same as without it, done by a server."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mineru_engine.manifest import MANIFEST_NAME
from tests.server.serving import Client, Process, Running, free_port, wait_until


def mineru(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mineru_cli", "parse", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environ}, timeout=100)


def outcomes(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def contents(directory: Path) -> dict[str, bytes]:
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != MANIFEST_NAME]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_the_output_is_that_of_a_local_run(server: Running, demo: Path, tmp_path: Path) -> None:
    documents = [demo / "report.pdf", demo / "paper.pdf", tmp_path / "x.pdf"]
    documents[2].write_bytes(b"%PDF-1.7 nothing")
    options = ["--tier", "flash", "--format", "md,json,content-list,html", "--json", "--pages", "1-2"]
    local = mineru(*documents, "-o", tmp_path / "local", *options)
    remote = mineru(*documents, "-o", tmp_path / "remote", *options, MINERU_API_URL=server.url)
    assert (local.returncode, remote.returncode) == (1, 1), remote.stderr
    assert contents(tmp_path / "remote") == contents(tmp_path / "local")
    assert len(contents(tmp_path / "remote")) > 8
    for mine, theirs in zip(
        *(sorted(outcomes(done), key=lambda line: str(line["path"])) for done in (local, remote)), strict=True
    ):
        for name in ("path", "status", "pages", "tier", "engine", "diagnostics"):
            assert theirs[name] == mine[name], name
    assert len(list(server.app.state.service.storage.root.glob("jobs/*"))) == 3


def test_resume_and_layout_work_as_locally(server: Running, small: Path, tmp_path: Path) -> None:
    arguments = [small, "-o", tmp_path / "out", "--tier", "flash", "--api-url", server.url, "--json", "--resume"]
    first = mineru(*arguments, "--layout")
    assert (tmp_path / "out" / "contract" / "contract_layout.pdf").read_bytes().startswith(b"%PDF")
    assert outcomes(first)[0]["status"] == "success"
    assert outcomes(mineru(*arguments, "--layout"))[0]["status"] == "skipped"
    assert len(list(server.app.state.service.storage.root.glob("jobs/*"))) == 1


def test_a_password_goes_along(server: Running, demo: Path) -> None:
    encrypted = demo / "contract_encrypted.pdf"
    without = mineru(encrypted, "-o", "-", "--tier", "flash", "--api-url", server.url)
    assert without.returncode == 1 and "password_required" in without.stderr
    arguments = [encrypted, "-o", "-", "--tier", "flash", "--api-url", server.url, "--password-env", "SECRET"]
    wrong = mineru(*arguments, SECRET="wrong")
    assert "password_wrong" in wrong.stderr


def test_an_interrupt_cancels_the_remote_jobs(server: Running, demo: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mineru_cli", "parse", demo / "contract_scan.pdf", demo / "report.pdf"]
    command += ["-o", tmp_path / "out", "--tier", "basic", "--api-url", server.url]
    with server.client() as client:
        process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
        wait_until(lambda: {job["state"] for job in _jobs(client)} >= {"running", "queued"})
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
        assert process.returncode == 130, told
        assert [job["state"] for job in _jobs(client)] == ["canceled", "canceled"]
    assert not contents(tmp_path / "out")


def _jobs(client: Client) -> list[Any]:
    data: list[Any] = client.get("/v1/jobs").json()["data"]
    return data


def test_a_full_queue_is_waited_for(serving: Callable[..., Running], demo: Path, tmp_path: Path) -> None:
    server = serving({"server.queue_limit": 1})
    documents = [tmp_path / f"d{number}.pdf" for number in range(4)]
    for document in documents:
        document.write_bytes((demo / "contract.pdf").read_bytes())
    with server.client() as client:
        scan = client.create(demo / "contract_scan.pdf", tier="basic")
        wait_until(lambda: client.job(scan["id"])["state"] == "running")
        done = mineru(*documents, "-o", tmp_path / "out", "--tier", "flash", "--json", "--api-url", server.url)
    assert [line["status"] for line in outcomes(done)] == ["success"] * 4


def test_a_server_that_is_killed_meanwhile_is_waited_for(
    serve: Callable[..., Process], demo: Path, tmp_path: Path
) -> None:
    server = serve().start()
    command = [sys.executable, "-m", "mineru_cli", "parse", demo / "contract_scan.pdf", "-o", tmp_path / "out"]
    with server.client() as client:
        process = subprocess.Popen(
            [*map(str, command), "--tier", "basic", "--json", "--api-url", server.url], stdout=subprocess.PIPE
        )
        wait_until(lambda: [job["state"] for job in _jobs(client)] == ["running"])
        server.kill()
        server.start()
        answer, _ = process.communicate(timeout=100)
        assert (process.returncode, json.loads(answer)["status"]) == (0, "success")
        assert len(_jobs(client)) == 1


@contextmanager
def _stranger(status: int, body: bytes) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on the terminal."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_server_that_is_not_ours_or_not_there_is_told(small: Path, tmp_path: Path) -> None:
    arguments = [small, "-o", tmp_path / "out", "--json", "--tier", "flash", "--api-url"]
    for status, body in ((200, b"<html>"), (404, b"not found"), (200, b'{"object": "list"}')):
        with _stranger(status, body) as url:
            (line,) = outcomes(mineru(*arguments, url))
            assert "is not a mineru job server" in line["error"]["message"]
    (line,) = outcomes(mineru(*arguments, f"http://127.0.0.1:{free_port()}"))
    assert "does not answer" in line["error"]["message"]
    wrong = mineru(*arguments, "ftp://host")
    assert wrong.returncode == 2 and "not an address" in wrong.stderr
    both = mineru(*arguments, "http://127.0.0.1:1", "--engine", "onnx")
    assert both.returncode == 2 and "--engine" in both.stderr
