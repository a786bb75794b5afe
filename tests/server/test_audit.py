"""The audit log."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from mineru_engine.server.audit import Audit
from mineru_engine.server.jobs import Job, JobFile
from mineru_engine.server.keys import FILE_NAME, Keys
from tests.server.serving import Running, wait_until


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_life_of_a_job(serving: Callable[..., Running], small: Path, tmp_path: Path) -> None:
    with Keys(tmp_path / "data" / FILE_NAME) as keys:
        token = keys.add("laptop", "lab")
    server = serving()
    with server.client(headers={"Authorization": f"Bearer {token}"}) as client:
        job = client.ended(client.create(small, ("broken.pdf", b"%PDF-1.7 nothing"))["id"])
        client.delete(f"/v1/jobs/{job['id']}")
    with server.client() as client:
        for _ in range(3):  # one line a minute
            client.get("/v1/jobs?secret=1")
    log = tmp_path / "data" / "audit.jsonl"
    accepted, ended, deleted, denied = lines(log)
    for line in (accepted, ended, deleted):
        assert (line["tenant"], line["key"], line["job"], line["api"]) == ("lab", "laptop", job["id"], "native")
        assert line["sha256"][0] == sha256(small.read_bytes()).hexdigest()
    assert [line["event"] for line in (accepted, ended, deleted, denied)] == ["accepted", "ended", "deleted", "denied"]
    assert accepted["tier"] == "flash"
    assert ended["outcome"] == "partial"
    assert ended["pages"] == job["progress"]["pages_done"] > 0
    assert ended["seconds"] > 0
    assert ended["errors"][0] is None
    assert ended["errors"][1] is not None
    assert (denied["client"], denied["path"], denied["count"]) == ("127.0.0.1", "/v1/jobs", 1)
    text = log.read_text()
    assert small.name not in text
    assert "broken" not in text
    assert token not in text
    assert log.stat().st_mode & 0o077 == 0


def test_it_can_be_switched_off(serving: Callable[..., Running], small: Path, tmp_path: Path) -> None:
    with serving({"server.audit": False}).client() as client:
        client.ended(client.create(small)["id"])
    assert not (tmp_path / "data" / "audit.jsonl").exists()


def test_questions_and_answers_are_kept_if_wanted(serving: Callable[..., Running], demo: Path, tmp_path: Path) -> None:
    log = tmp_path / "data" / "exchanges.jsonl"
    with serving({"server.audit_exchanges": True}).client() as client:
        job = client.ended(client.create(demo / "contract_scan.pdf", tier="xhigh", pages="1", ocr_mode="ocr")["id"])
    wait_until(lambda: "合同标的" in log.read_text())  # another thread writes it
    layout, *blocks = lines(log)
    assert {line["job"] for line in (layout, *blocks)} == {job["id"]}
    assert (layout["event"], layout["kind"], layout["page"], layout["error"]) == ("exchange", "layout", 0, None)
    assert layout["sha256"] == sha256((demo / "contract_scan.pdf").read_bytes()).hexdigest()
    assert "Layout" in layout["prompt"] and "<|box_start|>" in layout["answer"] and layout["seconds"] > 0
    assert any("合同标的" in line["answer"] for line in blocks if line["answer"])
    assert log.stat().st_mode & 0o077 == 0
    assert "contract_scan" not in log.read_text()


def job() -> Job:
    return Job("1", "lab", {}, (), [JobFile("a.pdf", "a", "a.pdf", "0" * 64, 1)])


def test_rotation(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl", 1000)
    for _ in range(100):
        audit.deleted(job())
    audit.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 11
    assert all(path.stat().st_size <= 1000 and lines(path) for path in files)
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_disk_that_takes_nothing_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit(Path("/dev/full"), 1000)
    audit.deleted(job())
    audit.close()
    assert "the audit log cannot be written" in caplog.text
