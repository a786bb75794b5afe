"""Jobs and tasks of MinerU 4.0 over a real socket, and the calls of its own client in their order."""

from __future__ import annotations

import io
import json
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.serving import Client, Process, Running, wait_until

TERMINAL = ("completed", "partial", "failed", "canceled")


@pytest.fixture
def flash(serving: Callable[..., Running]) -> Iterator[Client]:
    """A client of a server whose own tier is ``flash``."""
    with serving(defaults={"tier": "flash"}).client() as client:
        yield client


def _inline(path: Path, **fields: Any) -> dict[str, Any]:
    data = b64encode(path.read_bytes()).decode()
    return {"source": {"type": "inline", "name": path.name, "data": data}, **fields}


def _create(client: httpx.Client, *files: dict[str, Any], **fields: Any) -> Any:
    answer = client.post("/v1/parse/jobs", json={"files": files, **fields})
    assert answer.status_code == 202, answer.text
    return answer.json()


def _ended(client: httpx.Client, job_id: str) -> Any:
    def look() -> Any:
        job = client.get(f"/v1/parse/jobs/{job_id}").json()
        return job if job["status"] in TERMINAL else None

    return wait_until(look)


def _error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def _unzipped(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("output", ["zip", "middle_json"])
def test_calls_of_the_parser_client(client: Client, demo: Path, output: str) -> None:
    document = demo / "paper.pdf"
    content = document.read_bytes()
    health = client.get("/v1/health").json()
    assert health["status"] == "ok"
    assert "zip" in health["features"]["output_formats"]
    assert "file_id" in health["features"]["sources"]
    assert "local" not in health["features"]["sources"]
    assert {tier["id"] for tier in client.get("/v1/tiers").json()["data"]} == {"flash", "basic", "standard", "advanced"}
    announced = {
        "filename": document.name,
        "bytes": len(content),
        "mime_type": "application/pdf",
        "purpose": "parse",
        "sha256sum": sha256(content).hexdigest(),
    }
    upload = client.post("/v1/uploads", json=announced).json()
    client.put(upload["upload_url"], content=content, headers=upload["upload_headers"]).raise_for_status()
    file = client.post(f"/v1/uploads/{upload['id']}/complete").raise_for_status().json()["file"]
    asked = {
        "files": [{"source": {"type": "file_id", "file_id": file["id"]}, "page_range": "1-2"}],
        "tier": "flash",
        "ocr_mode": "auto",
        "output_formats": [output],
    }
    job = client.post("/v1/parse/jobs", json=asked).json()
    ended = _ended(client, job["job_id"])
    assert ended["status"] == "completed"
    made = ended["files"][0]["output_files"][output]
    got = client.get(f"/v1/files/{made['file_id']}/content", follow_redirects=True)
    assert got.headers["content-type"] == "application/octet-stream"
    assert len(got.content) == made["bytes"]
    if output == "zip":
        members = _unzipped(got.content)
        assert {"markdown.md", "middle_json.json", "structured_content.json", "model_output.json"} <= set(members)
        middle = json.loads(members["middle_json.json"])
        assert [name for name in members if name.startswith("images/")]
        assert json.loads(members["structured_content.json"])["pages"]
    else:
        middle = json.loads(got.content)
    assert (middle["schema"], middle["schema_version"], len(middle["pages"])) == ("docvortex.middle", "2.0", 2)


def test_job_has_the_shape_of_4_0(flash: Client, small: Path) -> None:
    formats = ["markdown", "structured_content", "zip", "html"]
    job = _create(flash, _inline(small, page_range="all"), output_formats=formats)
    assert len(job["job_id"]) == len("job_") + 24
    ended = _ended(flash, job["job_id"])
    assert set(ended) == {
        *("job_id", "status", "created_at", "started_at", "finished_at", "tier", "output_formats", "access_level"),
        *("progress", "files", "links"),
    }
    assert ended["created_at"].endswith("Z")
    assert (ended["tier"], ended["access_level"]) == ("flash", "anonymous")
    assert ended["progress"] == {"completed": 1, "failed": 0, "total": 1}
    (file,) = ended["files"]
    assert (file["name"], file["status"], file["page_range"], file["error"]) == (
        "contract.pdf",
        "completed",
        None,
        None,
    )
    assert file["parse"]["model_used"] == "native"
    made = file["output_files"]
    assert {name for name, entry in made.items() if entry} == set(formats)
    texts = {name: flash.get(f"/v1/files/{made[name]['file_id']}/content").content for name in formats}
    assert flash.get(f"/v1/jobs/{ended['job_id']}/result", params={"format": "md"}).content == texts["markdown"]
    assert b"<html" in texts["html"]
    assert {name: len(text) for name, text in texts.items()} == {name: made[name]["bytes"] for name in formats}
    about = flash.get(f"/v1/files/{made['zip']['file_id']}").json()
    assert (about["filename"], about["purpose"]) == ("contract.zip", "parse_output")
    assert about["sha256sum"] == sha256(texts["zip"]).hexdigest()
    listed = flash.get("/v1/files", params={"purpose": "parse_output"}).json()["data"]
    assert {entry["id"] for entry in listed} == {entry["file_id"] for entry in made.values() if entry}
    flash.delete(f"/v1/files/{made['zip']['file_id']}")
    assert flash.get(f"/v1/parse/jobs/{ended['job_id']}").json()["files"][0]["output_files"]["zip"] is None
    flash.delete(f"/v1/jobs/{ended['job_id']}")
    assert _error(flash.get(f"/v1/files/{made['markdown']['file_id']}")) == (404, "file_not_found")


def test_one_bad_file_leaves_the_others(flash: Client, small: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pdf"
    bad.write_bytes(b"%PDF-1.4 and nothing else")
    ended = _ended(flash, _create(flash, _inline(small), _inline(bad))["job_id"])
    assert ended["status"] == "partial"
    assert ended["progress"] == {"completed": 1, "failed": 1, "total": 2}
    good, broken = ended["files"]
    assert good["output_files"]["markdown"]["bytes"] > 1000
    assert broken["status"] == "failed"
    assert set(broken["error"]) == {"code", "message"}
    assert not any(broken["output_files"].values())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"files": []}, "invalid_request"),
        ({"tier": "huge"}, "invalid_request"),
        ({"ocr_mode": "maybe"}, "invalid_request"),
        ({"callback": {"url": "https://example.org"}}, "invalid_request"),
        ({"unknown": 1}, "invalid_request"),
        ({"output_formats": ["pptx"]}, "unsupported_output_format"),
        ({"files": [{"source": {"type": "local", "path": "/etc/passwd"}}]}, "unsupported_source"),
        ({"files": [{"source": {"type": "inline", "name": "a.pdf", "data": "?"}}]}, "invalid_request"),
        ({"files": [{"source": {"type": "inline", "name": "a.xyz", "data": "AAAA"}}]}, "file_type_unsupported"),
        ({"page_range": "x-y"}, "page_range_invalid"),
    ],
)
def test_requests_that_make_no_sense(flash: Client, small: Path, change: dict[str, Any], code: str) -> None:
    pages = change.pop("page_range", None)
    body = {"files": [_inline(small, page_range=pages)], **change}
    assert _error(flash.post("/v1/parse/jobs", json=body)) == (400, code)


def test_not_json_and_unknown_names(flash: Client, tmp_path: Path) -> None:
    assert _error(flash.post("/v1/parse/jobs", content=b"{")) == (400, "invalid_request")
    assert _error(flash.post("/v1/parse/jobs", content=b"[" * 100_000)) == (400, "invalid_request")
    file_id = {"source": {"type": "file_id", "file_id": "file-0"}}
    assert _error(flash.post("/v1/parse/jobs", json={"files": [file_id]})) == (404, "file_not_found")
    url = {"source": {"type": "url", "url": "https://example.org/a.pdf"}}
    assert flash.post("/v1/parse/jobs", json={"files": [url]}).status_code == 403
    table = tmp_path / "a.csv"
    table.write_text("1,2")
    assert _error(flash.post("/v1/parse/jobs", json={"files": [_inline(table, page_range="1")]})) == (
        400,
        "page_range_invalid",
    )
    large = tmp_path / "large.pdf"
    large.write_bytes(b"%PDF-1.4" + bytes(1 << 20))
    assert _error(flash.post("/v1/parse/jobs", json={"files": [_inline(large)]})) == (413, "file_too_large")
    for path in ("/v1/parse/jobs/job_0", "/v1/tasks/job_0", "/v1/tasks/job_0/result"):
        assert _error(flash.get(path)) == (404, "job_not_found")


def test_pages_of_the_list(flash: Client, small: Path) -> None:
    ids = [_create(flash, _inline(small))["job_id"] for _ in range(3)]
    for job_id in ids:
        _ended(flash, job_id)
    first = flash.get("/v1/parse/jobs", params={"limit": 2, "order": "asc", "status": "completed,failed"}).json()
    assert [job["job_id"] for job in first["data"]] == ids[:2]
    assert set(first["data"][0]) == {"job_id", "status", "created_at", "file_count"}
    rest = flash.get("/v1/parse/jobs", params={"order": "asc", "after": first["last_id"]}).json()
    assert ([job["job_id"] for job in rest["data"]], first["has_more"], rest["has_more"]) == (ids[2:], True, False)
    assert flash.get("/v1/parse/jobs", params={"status": "queued"}).json()["data"] == []
    later = {"created_after": "2999-01-01T00:00:00Z"}
    assert flash.get("/v1/parse/jobs", params=later).json()["data"] == []
    assert _error(flash.get("/v1/parse/jobs", params={"status": "lost"})) == (400, "invalid_request")


def test_cancel(flash: Client, demo: Path) -> None:
    files = {"files": ("scan.pdf", (demo / "contract_scan.pdf").read_bytes())}
    running, waiting = (flash.post("/v1/tasks", params={"tier": "basic"}, files=files).json() for _ in range(2))
    assert flash.delete(waiting["status_url"]).json()["status"] == "canceled"
    job_id = running["task_id"]
    answer = flash.delete(f"/v1/parse/jobs/{job_id}")
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["job_id"]) == ("canceled", job_id)
    assert answer.json()["canceled_at"].endswith("Z")
    assert _error(flash.delete(f"/v1/parse/jobs/{job_id}")) == (409, "job_already_terminal")
    assert _error(flash.get(running["result_url"])) == (409, "task_canceled")
    assert flash.get(f"/v1/parse/jobs/{job_id}").json()["status"] == "canceled"


def test_task_in_three_kinds_of_body(flash: Client, small: Path) -> None:
    content = small.read_bytes()
    query = {"output_formats": ["markdown", "middle_json"], "page_range": "1"}
    form = flash.post("/v1/tasks", params=query, files={"files": (small.name, content)})
    octets = flash.post(
        "/v1/tasks",
        params={**query, "filename": small.name, "sha256sum": sha256(content).hexdigest()},
        content=content,
        headers={"Content-Type": "application/octet-stream"},
    )
    wanted = {"files": [_inline(small, page_range="1")], "output_formats": query["output_formats"]}
    as_json = flash.post("/v1/tasks", json=wanted)
    results = []
    for answer in (form, octets, as_json):
        task = answer.json()
        assert answer.status_code == 202, answer.text
        assert "job_id" not in task
        assert task["result_url"] == f"{task['status_url']}/result" == f"/v1/tasks/{task['task_id']}/result"
        _ended(flash, task["task_id"])
        results.append(flash.get(task["result_url"]).json()["files"][0]["content"])
    assert set(results[0]) == {"markdown", "middle_json"}
    assert len(results[0]["middle_json"]["pages"]) == 1
    assert results[0]["markdown"] == results[1]["markdown"] == results[2]["markdown"] != ""


def test_task_bodies_that_are_refused(flash: Client, small: Path) -> None:
    content = small.read_bytes()
    fields = flash.post("/v1/tasks", data={"tier": "flash"}, files={"files": (small.name, content)})
    assert _error(fields) == (400, "invalid_request")
    assert "Too many fields" in fields.json()["error"]["message"]
    octets = {"Content-Type": "application/octet-stream"}
    assert _error(flash.post("/v1/tasks", content=content, headers=octets)) == (400, "invalid_request")
    named = {"filename": "a.pdf"}
    chunked = flash.post("/v1/tasks", params=named, content=iter([content]), headers=octets)
    assert _error(chunked) == (411, "invalid_request")
    wrong = {**named, "sha256sum": "0" * 64}
    assert _error(flash.post("/v1/tasks", params=wrong, content=content, headers=octets)) == (400, "file_hash_mismatch")


def test_file_parse_gives_the_result(flash: Client, small: Path) -> None:
    files = [("files", (name, small.read_bytes())) for name in ("a.pdf", "b.pdf")]
    answer = flash.post("/v1/file_parse", files=files)
    assert answer.status_code == 200
    assert [list(file["content"]) for file in answer.json()["files"]] == [["markdown"], ["markdown"]]
    zipped = flash.post("/v1/file_parse", params={"response_format": "zip", "output_formats": "zip"}, files=files)
    assert zipped.headers["content-type"] == "application/zip"
    names = set(_unzipped(zipped.content))
    assert {"manifest.json", "0001/markdown.md", "0002/middle_json.json"} <= names
    refused = flash.post("/v1/file_parse", params={"response_format": "zip"}, files=files)
    assert _error(refused) == (400, "unsupported_output_format")
    broken = flash.post("/v1/file_parse", files={"files": ("bad.pdf", b"%PDF-1.4 nothing")})
    assert broken.status_code == 409
    assert "bad.pdf" in broken.json()["error"]["message"]


def test_file_parse_that_takes_too_long_goes_on(flash: Client, demo: Path) -> None:
    document = demo / "contract_scan.pdf"
    query = {"wait_timeout": 1, "tier": "basic"}
    answer = flash.post("/v1/file_parse", params=query, files={"files": (document.name, document.read_bytes())})
    task = answer.json()
    assert answer.status_code == 202
    assert task["status"] == "running"
    assert flash.get(task["result_url"]).status_code == 202
    assert _ended(flash, task["task_id"])["status"] == "completed"
    assert flash.get(task["result_url"]).json()["files"][0]["content"]["markdown"]


def test_client_of_file_parse_that_goes_away_cancels(flash: Client, demo: Path) -> None:
    document = demo / "contract_scan.pdf"
    files = {"files": (document.name, document.read_bytes())}
    with pytest.raises(httpx.ReadTimeout):
        flash.post("/v1/file_parse", params={"tier": "basic"}, files=files, timeout=httpx.Timeout(30, read=0.2))
    ended = wait_until(lambda: flash.get("/v1/parse/jobs", params={"status": "canceled,completed"}).json()["data"])
    assert [job["status"] for job in ended] == ["canceled"]


def test_outputs_are_there_after_a_restart(serve: Callable[..., Process], small: Path) -> None:
    server = serve("--tier", "flash").start()
    with server.client() as client:
        before = _ended(client, _create(client, _inline(small), output_formats=["zip", "markdown"])["job_id"])
    server.kill()
    server.start()
    with server.client() as client:
        after = client.get(f"/v1/parse/jobs/{before['job_id']}").json()
        assert after == before
        made = after["files"][0]["output_files"]["zip"]
        assert len(client.get(f"/v1/files/{made['file_id']}/content").content) == made["bytes"]


def test_models_and_usage(flash: Client, small: Path) -> None:
    (model,) = flash.get("/v1/models").json()["data"]
    assert flash.get(f"/v1/models/{model['id']}").json() == model
    assert _error(flash.get("/v1/models/other")) == (404, "model_not_found")
    job = _ended(flash, _create(flash, _inline(small))["job_id"])
    usage = flash.get("/v1/usage").json()
    pages = flash.get(f"/v1/jobs/{job['job_id']}").json()["progress"]["pages_done"]
    assert usage["current"] == {"pages_processed": pages, "files_processed": 1, "jobs_created": 1}
    assert usage["limits"]["max_files_per_job"] == 100
