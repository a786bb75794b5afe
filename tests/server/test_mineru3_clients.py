"""Requests of the clients that are in use, with exactly the fields they send, and what they read from the answer."""

from __future__ import annotations

import io
import json
import zipfile
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.serving import Client, Running, wait_until


@pytest.fixture
def server_client(serving: Callable[..., Running]) -> Iterator[Client]:
    """A client of a server with the default settings and a quick tier of its own."""
    with serving(defaults={"tier": "flash"}).client() as client:
        yield client


def _names(content: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.namelist()


def test_open_webui(server_client: Client, small: Path) -> None:
    params = {"enable_ocr": "True", "language": "en", "enable_formula": "True", "backend": "pipeline"}
    with small.open("rb") as stream:
        answer = server_client.post(
            "/file_parse",
            data={"return_md": "true", **params},
            files={"files": (small.name, stream, "application/octet-stream")},
        )
    answer.raise_for_status()
    body = answer.json()
    first = next(iter(body["results"].values()))
    assert first["md_content"]
    assert (body["backend"], bool(body["version"])) == ("pipeline", True)


def test_ragflow_python(server_client: Client, demo: Path) -> None:
    assert server_client.head("/openapi.json").status_code == 200
    data = {
        "output_dir": "./output",
        "lang_list": "latin",
        "backend": "pipeline",
        "parse_method": "auto",
        "formula_enable": True,
        "table_enable": True,
        "server_url": None,
        "return_md": True,
        "return_middle_json": True,
        "return_model_output": True,
        "return_content_list": True,
        "return_images": True,
        "response_format_zip": True,
        "start_page_id": 0,
        "end_page_id": 99999,
    }
    form = {name: str(value) for name, value in data.items() if value is not None}
    with (demo / "paper.pdf").open("rb") as stream:
        answer = server_client.post(
            "/file_parse",
            files={"files": ("paper.pdf", stream, "application/pdf")},
            data=form,
            headers={"Accept": "application/json"},
        )
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        inner = {name.removeprefix("paper/"): archive.read(name) for name in archive.namelist()}
    (found,) = [name for name in inner if name.rpartition("/")[2] == "paper_content_list.json"]
    for item in json.loads(inner[found]):
        assert item["type"]
        assert len(item["bbox"]) == 4
        assert item["page_idx"] in (0, 1, 2)
        if item.get("img_path"):
            assert f"{found.rpartition('/')[0]}/{item['img_path']}" in inner


def test_ragflow_go(server_client: Client, small: Path) -> None:
    files = {"files": ("upload_document.pdf", small.read_bytes())}
    answer = server_client.post(
        "/file_parse", files=files, data={"backend": "pipeline"}, headers={"Authorization": "Bearer x"}
    )
    task_id = answer.json()["task_id"]
    result = wait_until(
        lambda: got if (got := server_client.get(f"/tasks/{task_id}/result")).status_code == 200 else None
    )
    assert result.json()["results"]["upload_document"]["md_content"]


def test_dify(server_client: Client, demo: Path) -> None:
    assert server_client.get("/docs").status_code == 200
    data = {
        "parse_method": "auto",
        "return_md": True,
        "return_model_output": False,
        "return_content_list": True,
        "lang_list": ["auto"],
        "return_images": True,
        "backend": "pipeline",
        "formula_enable": True,
        "table_enable": True,
        "server_url": "",
        "return_middle_json": False,
    }
    answer = server_client.post(
        "/file_parse", data=data, files={"files": ("paper.pdf", (demo / "paper.pdf").read_bytes())}
    )
    assert answer.status_code == 200
    result = answer.json()["results"]["paper"]
    assert result["md_content"]
    assert json.loads(result["content_list"])
    for uri in result["images"].values():
        assert b64decode(uri.split(",")[1])


def test_fastgpt(server_client: Client, small: Path) -> None:
    files = [("files", (name, small.read_bytes(), "application/pdf")) for name in ("a.pdf", "b.pdf")]
    data = {
        "server_url": "",
        "lang_list": "ch",
        "backend": "pipeline",
        "parse_method": "auto",
        "formula_enable": "true",
        "table_enable": "true",
        "return_md": "true",
        "return_content_list": "true",
        "return_images": "true",
    }
    answer = server_client.post("/file_parse", files=files, data=data, headers={"Authorization": "Bearer x"})
    assert answer.status_code == 200
    assert list(answer.json()["results"]) == ["a", "b"]
    for result in answer.json()["results"].values():
        assert result["md_content"]
        assert isinstance(result["content_list"], str)
        assert isinstance(result["images"], dict)


def test_cherry_studio(server_client: Client, small: Path) -> None:
    data = {"return_md": "true", "response_format_zip": "true"}
    answer = server_client.post("/file_parse", files={"files": (small.name, small.read_bytes())}, data=data)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/zip"
    assert [name for name in _names(answer.content) if name.endswith(".md")] == ["contract/hybrid_auto/contract.md"]


def test_lightrag(server_client: Client, small: Path) -> None:
    returns = ("md", "middle_json", "model_output", "content_list", "images", "original_file")
    data = {
        "lang_list": "ch",
        "backend": "hybrid-auto-engine",
        "parse_method": "auto",
        "formula_enable": "true",
        "table_enable": "true",
        "image_analysis": "false",
        **{f"return_{name}": "true" for name in returns},
        "response_format_zip": "true",
        "start_page_id": "0",
        "end_page_id": "99999",
    }
    answer = server_client.post("/tasks", files={"files": (small.name, small.read_bytes())}, data=data)
    task_id = answer.json()["task_id"]
    wait_until(lambda: server_client.get(f"/tasks/{task_id}").json()["status"] == "completed")
    result = server_client.get(f"/tasks/{task_id}/result")
    assert any(name.endswith("_content_list.json") for name in _names(result.content))


def test_mineru_web(server_client: Client, small: Path) -> None:
    assert server_client.get("/health").json()["status"] == "healthy"
    data = {
        "backend": "hybrid-engine",
        "effort": "medium",
        "parse_method": "auto",
        "lang_list": "ch",
        "formula_enable": "true",
        "table_enable": "true",
        "return_md": "true",
        "return_middle_json": "true",
        "return_model_output": "false",
        "return_content_list": "true",
        "return_images": "true",
        "response_format_zip": "false",
    }
    created = server_client.post("/tasks", files={"files": (small.name, small.read_bytes())}, data=data).json()
    wait_until(lambda: server_client.get(created["status_url"]).json()["status"] == "completed")
    assert server_client.get(created["result_url"]).json()["results"]["contract"]["md_content"]


def test_old_mcp_server(server_client: Client, small: Path) -> None:
    answer = server_client.post(
        "/tasks", files={"files": (small.name, small.read_bytes())}, data={"parse_method": "auto"}
    )
    assert answer.status_code == 202

    def result() -> httpx.Response | None:
        got = server_client.get(f"/tasks/{answer.json()['task_id']}/result")
        assert got.status_code in (200, 202)
        return got if got.status_code == 200 else None

    body = wait_until(result).json()
    assert "error" not in body
    assert body["results"]["contract"]["md_content"]
