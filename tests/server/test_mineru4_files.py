"""Uploads and files of MinerU 4.0 over a real socket."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.serving import Client, Process, Running, wait_until


def _announce(client: httpx.Client, content: bytes, **fields: Any) -> Any:
    answer = client.post("/v1/uploads", json={"filename": "a.pdf", "bytes": len(content), **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def _upload(client: httpx.Client, content: bytes, **fields: Any) -> Any:
    upload = _announce(client, content, **fields)
    assert client.put(upload["upload_url"], content=content, headers=upload["upload_headers"]).status_code == 200
    answer = client.post(f"/v1/uploads/{upload['id']}/complete")
    assert answer.status_code == 200, answer.text
    return answer.json()


def _error(answer: httpx.Response) -> tuple[int, str]:
    error = answer.json()["error"]
    assert {"type", "code", "message", "param"} <= set(error)
    return answer.status_code, error["code"]


def test_upload_becomes_a_file(client: Client) -> None:
    content = b"%PDF-1.4 first"
    pending = _announce(client, content)
    assert pending["status"] == "pending"
    assert (pending["object"], pending["upload_method"], pending["file"]) == ("upload", "PUT", None)
    assert pending["id"].startswith("upload_")
    assert len(pending["id"]) == len("upload_") + 24
    assert pending["expires_at"] - pending["created_at"] == 3600
    done = _upload(client, content)
    file = done["file"]
    assert (done["status"], done["upload_url"]) == ("completed", None)
    assert (file["object"], file["bytes"], file["filename"], file["purpose"]) == (
        "file",
        len(content),
        "a.pdf",
        "parse",
    )
    assert file["sha256sum"] == sha256(content).hexdigest()
    assert len(file["id"]) == len("file-") + 24
    assert client.get(f"/v1/files/{file['id']}").json() == file
    assert client.get(f"/v1/uploads/{done['id']}").json() == done
    assert _error(client.get(f"/v1/files/{file['id']}/content")) == (403, "feature_requires_api_key")
    assert client.delete(f"/v1/files/{file['id']}").json() == {"id": file["id"], "object": "file", "deleted": True}
    assert _error(client.get(f"/v1/files/{file['id']}")) == (404, "file_not_found")


def test_same_bytes_are_not_sent_twice(client: Client) -> None:
    content = b"%PDF-1.4 known"
    digest = sha256(content).hexdigest()
    first = _upload(client, content)
    again = _announce(client, content, sha256sum=digest.upper())
    assert again["status"] == "completed"
    assert again["file"]["id"] == first["file"]["id"]
    wrong = client.post("/v1/uploads", json={"filename": "a.pdf", "bytes": 3, "sha256sum": digest})
    assert _error(wrong) == (400, "upload_size_mismatch")
    client.delete(f"/v1/files/{first['file']['id']}")
    assert _announce(client, content, sha256sum=digest)["status"] == "pending"


def test_hash_of_another_tenant_opens_nothing(server: Running, client: Client) -> None:
    content = b"%PDF-1.4 private"
    file = _upload(client, content)["file"]
    token = server.app.state.service.keys.add("other")
    with server.client(headers={"Authorization": f"Bearer {token}"}) as other:
        assert _announce(other, content, sha256sum=sha256(content).hexdigest())["status"] == "pending"
        assert _error(other.get(f"/v1/files/{file['id']}")) == (404, "file_not_found")
        assert other.get("/v1/files").json()["data"] == []
        answer = other.post("/v1/parse/jobs", json={"files": [{"source": {"type": "file_id", "file_id": file["id"]}}]})
        assert _error(answer) == (404, "file_not_found")


@pytest.mark.parametrize("sent", [b"short", b"much longer than it was said to be"])
def test_other_size_than_announced(client: Client, sent: bytes) -> None:
    upload = _announce(client, b"just right")
    assert _error(client.put(upload["upload_url"], content=sent)) == (413, "upload_size_mismatch")
    assert _error(client.post(f"/v1/uploads/{upload['id']}/complete")) == (409, "upload_not_ready")
    assert client.put(upload["upload_url"], content=b"just right").status_code == 200  # may be tried again
    assert client.post(f"/v1/uploads/{upload['id']}/complete").json()["status"] == "completed"


def test_other_hash_than_announced(client: Client) -> None:
    upload = _announce(client, b"some bytes", sha256sum="0" * 64)
    client.put(upload["upload_url"], content=b"some bytes")
    assert _error(client.post(f"/v1/uploads/{upload['id']}/complete")) == (400, "file_hash_mismatch")
    other = _announce(client, b"some bytes")
    client.put(other["upload_url"], content=b"some bytes")
    answer = client.post(f"/v1/uploads/{other['id']}/complete", json={"sha256sum": "1" * 64})
    assert _error(answer) == (400, "file_hash_mismatch")


def test_ended_upload_takes_nothing_more(client: Client) -> None:
    done = _upload(client, b"some bytes")
    cancelled = _announce(client, b"some bytes")
    client.put(cancelled["upload_url"], content=b"some bytes")
    assert client.post(f"/v1/uploads/{cancelled['id']}/cancel").json()["status"] == "cancelled"
    for upload in (done, cancelled):
        at = f"/v1/uploads/{upload['id']}"
        assert _error(client.put(f"{at}/content", content=b"some bytes")) == (409, "upload_already_terminal")
        assert _error(client.post(f"{at}/complete")) == (409, "upload_already_terminal")
        assert _error(client.post(f"{at}/cancel")) == (409, "upload_already_terminal")
    assert _error(client.get("/v1/uploads/upload_nothing")) == (404, "upload_not_found")


@pytest.mark.parametrize(
    "body",
    [
        {"filename": "a.pdf", "bytes": 0},
        {"filename": "a.pdf", "bytes": 1, "extra": 1},
        {"filename": "a.pdf", "bytes": 1, "purpose": "fun"},
        {"filename": "a.pdf", "bytes": 1, "expires_after": {"anchor": "created_at", "seconds": 60}},
        {"bytes": 1},
        [],
    ],
)
def test_malformed_announcements(client: Client, body: Any) -> None:
    assert _error(client.post("/v1/uploads", json=body)) == (400, "invalid_request")


def test_pages_of_the_list(client: Client) -> None:
    ids = [_upload(client, f"%PDF-1.4 {number}".encode())["file"]["id"] for number in range(5)]
    first = client.get("/v1/files", params={"limit": 2, "order": "asc"}).json()
    assert [file["id"] for file in first["data"]] == ids[:2] == [first["first_id"], first["last_id"]]
    assert first["has_more"]
    rest = client.get("/v1/files", params={"limit": 3, "order": "asc", "after": first["last_id"]}).json()
    assert [file["id"] for file in rest["data"]] == ids[2:]
    assert not rest["has_more"]
    assert [file["id"] for file in client.get("/v1/files").json()["data"]] == ids[::-1]
    assert client.get("/v1/files", params={"purpose": "input_image"}).json()["data"] == []
    assert _error(client.get("/v1/files", params={"limit": 0})) == (400, "invalid_request")


def test_what_was_received_survives_a_kill(serve: Callable[..., Process], small: Path) -> None:
    content = small.read_bytes()
    server = serve("--tier", "flash").start()
    with server.client() as client:
        complete = _upload(client, content)
        received = _announce(client, content)
        client.put(received["upload_url"], content=content)
    orphan = server.data_dir / "files" / "upload_orphan"
    orphan.write_bytes(b"nobody knows me")
    server.kill()
    server.start()
    with server.client() as client:
        assert client.get(f"/v1/files/{complete['file']['id']}").json() == complete["file"]
        assert client.post(f"/v1/uploads/{received['id']}/complete").json()["file"]["bytes"] == len(content)
    assert not orphan.exists()


def test_expired_files_are_gone_and_removed(serving: Callable[..., Running]) -> None:
    server = serving({"server.retention_hours": 0.00005})  # 0.18 s
    with server.client() as client:
        upload = _upload(client, b"some bytes")
        blob = server.app.state.service.storage.root / "files" / upload["id"]
        kept = _upload(client, b"more bytes", expires_after={"anchor": "created_at", "seconds": 3600})
        wait_until(lambda: client.get(f"/v1/files/{upload['file']['id']}").status_code == 404)
        _announce(client, b"the next one")
        assert not blob.exists()
        assert client.get(f"/v1/files/{kept['file']['id']}").status_code == 200
