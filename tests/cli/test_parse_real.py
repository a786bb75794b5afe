"""``mineru parse`` as a process, with the real engine."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from fake_documents import listing

MINERU = [sys.executable, "-m", "mineru_cli"]
ROOT = Path(__file__).parents[2]


def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "tmp"), "CANARY": "canary-password"}


def run(tmp_path: Path, *arguments: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        [*MINERU, "parse", *arguments],
        cwd=tmp_path,
        env=environment(tmp_path),
        input=data,
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert listing(tmp_path / "tmp") == []
    return done


def test_one_document(tmp_path: Path, demo: Path) -> None:
    done = run(tmp_path, str(demo / "paper.pdf"), "--tier", "flash", "--layout", "--json")
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert (line["status"], line["pages"], line["tier"]) == ("success", 3, "flash")
    assert line["output"] == "output/paper"
    assert all((tmp_path / name).stat().st_size for name in line["files"])
    assert (tmp_path / "output/paper/paper_layout.pdf").read_bytes().startswith(b"%PDF-")
    items = json.loads((tmp_path / "output/paper/paper_content_list.json").read_bytes())
    assert {"type", "page_idx", "bbox"} <= set(items[0])


def test_from_stdin_to_stdout(tmp_path: Path, demo: Path) -> None:
    done = run(tmp_path, "-", "-o", "-", "--tier", "flash", "--pages", "1", data=(demo / "paper.pdf").read_bytes())
    assert done.returncode == 0
    assert done.stdout.startswith(b"#")
    assert done.stderr == b""


def test_bad_documents_beside_a_good_one(tmp_path: Path, demo: Path) -> None:
    (tmp_path / "empty.pdf").write_bytes(b"")
    (tmp_path / "none.pdf").write_bytes(b"this is no PDF")
    encrypted = str(demo / "contract_encrypted.pdf")
    paths = ["empty.pdf", "none.pdf", "missing.pdf", encrypted, str(demo / "contract.pdf")]
    done = run(tmp_path, *paths, "--tier", "flash", "--json")
    assert done.returncode == 1
    found = {Path(line["path"]).name: line for line in map(json.loads, done.stdout.splitlines())}
    codes = {name: line["error"]["code"] for name, line in found.items() if line["error"]}
    assert codes == {
        "empty.pdf": "file_empty",
        "none.pdf": "file_damaged",
        "missing.pdf": "file_not_found",
        "contract_encrypted.pdf": "password_required",
    }
    assert found["contract.pdf"]["status"] == "success"
    assert listing(tmp_path / "output") == ["contract"]


def test_a_wrong_password_never_shows(tmp_path: Path, demo: Path) -> None:
    paths = [str(demo / "contract_encrypted.pdf"), "--password-env", "CANARY", "-v", "--json"]
    done = run(tmp_path, *paths)
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["code"] == "password_wrong"
    assert b"canary-password" not in done.stdout + done.stderr


def test_the_built_in_engine_says_that_it_is_no_model(tmp_path: Path, demo: Path) -> None:
    done = run(tmp_path, str(demo / "paper.pdf"), str(demo / "contract.pdf"), "--tier", "xhigh", "--pages", "1")
    assert done.returncode == 0
    assert done.stderr.count(b"engine_builtin") == 1


def test_a_server_that_is_not_there(tmp_path: Path, demo: Path) -> None:
    url = "http://127.0.0.1:9"
    done = run(tmp_path, str(demo / "paper.pdf"), "--tier", "high", "--server-url", url, "--json")
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "engine_dead"
    assert url in error["message"]
    assert error["hint"]


def test_a_file_name_that_is_not_utf8(tmp_path: Path, demo: Path) -> None:
    name = os.fsdecode(b"bad\xff.pdf")
    (tmp_path / name).write_bytes((demo / "contract.pdf").read_bytes())
    done = run(tmp_path, ".", "--tier", "flash")
    assert done.returncode == 0, done.stderr
    assert listing(tmp_path / "output") == ["bad_"]


def children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupts(tmp_path: Path, demo: Path, number: signal.Signals, code: int) -> None:
    process = subprocess.Popen(
        [*MINERU, "parse", str(demo / "report.pdf"), str(demo / "paper.pdf"), "--tier", "flash"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    end = time.monotonic() + 30
    while not (workers := children(process)) and time.monotonic() < end:
        time.sleep(0.05)
    assert workers
    process.send_signal(number)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == code, stderr
    assert b"cleaning up" in stderr
    assert b"Traceback" not in stderr
    psutil.wait_procs(workers, timeout=5)
    assert not [worker for worker in workers if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE]
    assert not (tmp_path / "output").exists()
    assert listing(tmp_path / "tmp") == []


@pytest.mark.skipif(not hasattr(pty, "openpty"), reason="needs a pseudo-terminal")
def test_a_terminal_gets_progress_bars(tmp_path: Path, demo: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*MINERU, "parse", str(demo / "report.pdf"), "--tier", "flash", "--pages", "1-20"],
        cwd=tmp_path,
        env=environment(tmp_path) | {"COLUMNS": "120", "TERM": "xterm"},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 65536):
            seen += chunk
    except OSError:  # Linux says EIO when the other side is gone
        pass
    os.close(ours)
    assert process.wait(60) == 0
    assert b"report.pdf" in seen
    assert b"/20 pages" in seen
    assert b"0/1 documents" in seen
    assert b"1 of 1 documents done" in seen
