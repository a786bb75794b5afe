"""The API of MinerU 3.x over a real socket: names, defaults, status codes, layouts."""

from __future__ import annotations

import io
import json
import zipfile
from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.datastructures import FormData

from mineru_engine.server.mineru3_form import read_form
from tests.server.serving import Client, Process, Running, wait_until

FLASH = {"tier": "flash"}


@pytest.fixture
def flash(serving: Callable[..., Running]) -> Iterator[Client]:
    """A client of ``mineru serve --tier flash``: requests that name no backend are quick."""
    with serving(defaults=FLASH).client() as client:
        yield client


def _send(client: httpx.Client, path: str, *documents: Path, **fields: Any) -> httpx.Response:
    files = [("files", (document.name, document.read_bytes())) for document in documents]
    return client.post(path, files=files, data=fields)


def _ended(client: httpx.Client, task: dict[str, Any]) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        status: dict[str, Any] = client.get(task["status_url"]).json()
        return status if status["status"] in ("completed", "failed") else None

    found: dict[str, Any] = wait_until(look)
    return found


def _unzipped(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_health_has_what_a_client_of_protocol_2_checks(flash: Client) -> None:
    answer = flash.get("/health")
    body = answer.json()
    assert answer.status_code == 200
    assert (body["status"], body["protocol_version"]) == ("healthy", 2)
    counts = ("queued_tasks", "processing_tasks", "completed_tasks", "failed_tasks")
    ints = (
        "max_concurrent_requests",
        "processing_window_size",
        "task_retention_seconds",
        "task_cleanup_interval_seconds",
    )
    assert {name: type(body[name]) for name in (*counts, *ints)} == dict.fromkeys((*counts, *ints), int)
    assert body["max_concurrent_requests"] > 0
    assert isinstance(body["version"], str)


def test_the_description_of_the_api_answers_head(flash: Client) -> None:
    assert flash.head("/openapi.json").status_code == 200
    assert flash.get("/docs").status_code == 200


def test_task_from_submission_to_result(flash: Client, small: Path) -> None:
    answer = _send(flash, "/tasks", small)
    task = answer.json()
    assert answer.status_code == 202
    assert task["message"] == "Task submitted successfully"
    assert task["status"] in ("pending", "processing", "completed")
    assert task["backend"] == "hybrid-engine"
    assert task["file_names"] == ["contract"]
    assert isinstance(task["queued_ahead"], int)
    assert task["error"] is None
    assert task["status_url"] == f"{flash.base_url}/tasks/{task['task_id']}".replace("//tasks", "/tasks")
    assert task["result_url"] == task["status_url"] + "/result"
    status = _ended(flash, task)
    assert status["status"] == "completed"
    assert status["queued_ahead"] == 0
    assert datetime.fromisoformat(status["created_at"]) <= datetime.fromisoformat(status["completed_at"])
    result = flash.get(task["result_url"])
    assert result.status_code == 200
    body = result.json()
    assert set(body) == {"backend", "version", "results"}
    assert list(body["results"]["contract"]) == ["md_content"]  # the only thing asked for by default
    assert len(body["results"]["contract"]["md_content"]) > 1000


def test_synchronous_call_gives_task_and_result_in_one(flash: Client, small: Path, demo: Path) -> None:
    everything = {f"return_{name}": "True" for name in ("md", "middle_json", "model_output", "content_list", "images")}
    answer = _send(flash, "/file_parse", demo / "paper.pdf", **everything)
    body = answer.json()
    assert answer.status_code == 200
    assert body["status"] == "completed"
    assert "queued_ahead" not in body
    found = body["results"]["paper"]
    assert set(found) == {"md_content", "middle_json", "model_output", "content_list", "images"}
    middle, items = json.loads(found["middle_json"]), json.loads(found["content_list"])  # strings, not objects
    assert (set(middle), middle["_backend"]) == ({"pdf_info", "_backend", "_version_name"}, "hybrid")
    assert {item["page_idx"] for item in items} == {0, 1, 2}
    assert json.loads(found["model_output"])["pages"]
    pictures = {item["img_path"] for item in items if item.get("img_path")}
    assert pictures == {f"images/{name}" for name in found["images"]}
    for uri in found["images"].values():
        head, _, payload = uri.partition(",")
        assert head == "data:image/jpeg;base64"
        assert b64decode(payload).startswith(b"\xff\xd8")


@pytest.mark.parametrize(
    ("backend", "method", "directory", "family"),
    [
        ("pipeline", "auto", "auto", "pipeline"),
        ("pipeline", "txt", "txt", "pipeline"),
        (None, "txt", "hybrid_txt", "hybrid"),
    ],
)
def test_zip_has_the_layout_that_the_client_recomputes(
    flash: Client, demo: Path, backend: str | None, method: str, directory: str, family: str
) -> None:
    fields = {"backend": backend} if backend else {}
    asked = ("md", "middle_json", "model_output", "content_list", "images", "original_file")
    answer = _send(
        flash,
        "/file_parse",
        demo / "paper.pdf",
        **fields,
        parse_method=method,
        response_format_zip="true",
        **{f"return_{name}": "true" for name in asked},
    )
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/zip"
    task_id = answer.headers["X-MinerU-Task-Id"]
    assert answer.headers["X-MinerU-Task-Status"] == "completed"
    assert answer.headers["X-MinerU-Task-Result-Url"].endswith(f"/tasks/{task_id}/result")
    assert answer.headers["content-disposition"] == f'attachment; filename="{task_id}.zip"'
    found = _unzipped(answer.content)
    at = f"paper/{directory}"
    named = {name for name in found if not name.startswith(f"{at}/images/")}
    endings = (".md", "_middle.json", "_model.json", "_content_list.json", "_content_list_v2.json", "_origin.pdf")
    assert named == {f"{at}/paper{ending}" for ending in endings}
    assert found[f"{at}/paper_origin.pdf"] == (demo / "paper.pdf").read_bytes()
    assert json.loads(found[f"{at}/paper_middle.json"])["_backend"] == family
    pictures = {name.removeprefix(f"{at}/") for name in set(found) - named}
    assert pictures
    assert all(
        picture in found[f"{at}/paper.md"].decode()
        for picture in pictures
        if picture.encode() in found[f"{at}/paper.md"]
    )
    assert {
        item["img_path"] for item in json.loads(found[f"{at}/paper_content_list.json"]) if item.get("img_path")
    } == pictures


def test_office_documents_lie_in_their_own_directory(flash: Client, tmp_path: Path) -> None:
    table = tmp_path / "prices.csv"
    table.write_text("pen,3\nink,4\n")
    answer = _send(flash, "/file_parse", table, response_format_zip="true", return_middle_json="1", start_page_id="1")
    found = _unzipped(answer.content)
    assert set(found) == {"prices/office/prices.md", "prices/office/prices_middle.json"}
    assert json.loads(found["prices/office/prices_middle.json"])["_backend"] == "office"
    assert b"ink" in found["prices/office/prices.md"]


def test_files_of_one_task_are_told_apart(flash: Client, small: Path) -> None:
    content = small.read_bytes()
    names = ("dir/my doc.pdf", "My Doc.pdf", "合同.pdf")
    answer = flash.post("/file_parse", files=[("files", (name, content)) for name in names])
    assert answer.status_code == 200, answer.text
    assert list(answer.json()["results"]) == ["my doc", "My Doc_2", "合同"]


def test_pages_are_counted_as_the_client_cut_them(flash: Client, demo: Path) -> None:
    fields = {"return_content_list": "true", "return_middle_json": "true", "start_page_id": "1", "end_page_id": "2"}
    found = _send(flash, "/file_parse", demo / "report.pdf", **fields).json()["results"]["report"]
    assert {item["page_idx"] for item in json.loads(found["content_list"])} == {0, 1}
    assert [page["page_idx"] for page in json.loads(found["middle_json"])["pdf_info"]] == [0, 1]
    whole = _send(
        flash, "/file_parse", demo / "paper.pdf", return_content_list="true", start_page_id="0", end_page_id="99"
    )
    assert {item["page_idx"] for item in json.loads(whole.json()["results"]["paper"]["content_list"])} == {0, 1, 2}


def test_what_is_generated_at_the_client(flash: Client, small: Path) -> None:
    answer = _send(flash, "/file_parse", small, client_side_output_generation="true", return_content_list="true")
    assert set(answer.json()["results"]["contract"]) == {"middle_json", "model_output", "images"}


@pytest.mark.parametrize(
    ("sent", "now"),
    [
        ("vlm-transformers", "vlm-engine"),
        ("vlm-sglang-engine", "vlm-engine"),
        ("vlm-vllm-engine", "vlm-engine"),
        ("vlm-vllm-async-engine", "vlm-engine"),
        ("vlm-lmdeploy-engine", "vlm-engine"),
        ("vlm-mlx-engine", "vlm-engine"),
        ("vlm-auto-engine", "vlm-engine"),
        ("vlm-sglang-client", "vlm-http-client"),
        ("hybrid-auto-engine", "hybrid-engine"),
    ],
)
def test_names_of_former_backends_are_accepted(sent: str, now: str) -> None:
    fields = [
        ("backend", sent),
        ("lang_list", "en"),
        ("lang_list", "ch_lite"),
        ("output_dir", "./x"),
        ("server_url", ""),
    ]
    task = read_form(FormData(fields))
    assert (task.backend, task.server_url) == (now, None)


@pytest.mark.parametrize(
    ("fields", "tier"),
    [
        ({}, "flash"),  # the server's own
        ({"backend": "hybrid-auto-engine", "effort": "medium"}, "flash"),
        ({"backend": "pipeline"}, "basic"),
        ({"backend": "hybrid-http-client"}, "high"),
        ({"backend": "hybrid-engine", "effort": "high"}, "xhigh"),
        ({"backend": "vlm-auto-engine"}, "xhigh"),
    ],
)
def test_backend_chooses_the_tier(fields: dict[str, str], tier: str) -> None:
    assert read_form(FormData(fields)).options(FLASH)["tier"] == tier


def test_empty_fields_mean_the_default_and_the_last_of_several_counts() -> None:
    fields = [
        ("return_md", ""),
        ("end_page_id", ""),
        ("parse_method", "ocr"),
        ("parse_method", "txt"),
        ("return_images", "True"),
    ]
    task = read_form(FormData(fields))
    assert (task.return_md, task.end_page_id, task.parse_method, task.return_images) == (True, 99999, "txt", True)


@pytest.mark.parametrize(
    ("start", "end", "pages"),
    [(0, 99999, ""), (0, 0, "1-1"), (3, 7, "4-8"), (3, 99999, "4-"), (3, -1, "4-"), (0, -1, "")],
)
def test_page_ids_become_a_range(start: int, end: int, pages: str) -> None:
    task = read_form(FormData({"start_page_id": str(start), "end_page_id": str(end)}))
    assert task.pages("a.pdf") == task.pages("a.PNG") == pages
    assert task.pages("a.docx") == ""


def test_without_a_tier_of_the_server_the_default_backend_is_high(client: Client, small: Path) -> None:
    task = _send(client, "/tasks", small, parse_method="txt").json()
    options = client.get(f"/v1/jobs/{task['task_id']}").json()["options"]
    assert options == {"tier": "high", "ocr_mode": "txt", "image_analysis": True}


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"backend": "vlm"}, "Invalid backend. Allowed values: pipeline, vlm-engine,"),
        ({"parse_method": "magic"}, "Invalid parse_method. Allowed values: auto, ocr, txt"),
        ({"effort": "low"}, "Invalid effort. Allowed values: medium, high"),
        ({"start_page_id": "5", "end_page_id": "2"}, "start_page_id"),
    ],
)
def test_values_that_are_not_allowed(flash: Client, small: Path, fields: dict[str, str], detail: str) -> None:
    answer = _send(flash, "/tasks", small, **fields)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith(detail)


def test_values_of_the_wrong_type_are_listed(flash: Client, small: Path) -> None:
    answer = _send(flash, "/tasks", small, return_md="perhaps", start_page_id="one")
    assert answer.status_code == 422
    assert [error["loc"] for error in answer.json()["detail"]] == [["body", "return_md"], ["body", "start_page_id"]]
    missing = flash.post("/file_parse", data={"backend": "pipeline"}, files={"file": ("a.pdf", b"%PDF-1.4")})
    assert missing.status_code == 422
    assert missing.json()["detail"][0]["loc"] == ["body", "files"]


@pytest.mark.parametrize("name", ["notes.txt", "broken.pdf", "noname"])
def test_files_that_nobody_reads_are_refused_at_once(flash: Client, name: str) -> None:
    answer = flash.post("/file_parse", files={"files": (name, b"only words")})
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("Unsupported file type:")


def test_server_url_needs_an_allowed_host(flash: Client, small: Path) -> None:
    fields = {"backend": "vlm-http-client", "server_url": "http://127.0.0.1:9"}
    answer = _send(flash, "/file_parse", small, **fields)
    assert answer.status_code in (400, 403)
    assert isinstance(answer.json()["detail"], str)
    ignored = _send(flash, "/tasks", small, backend="pipeline", server_url="http://127.0.0.1:9")
    assert ignored.status_code == 202  # as ever: only the http clients have a server


def test_unknown_task(flash: Client) -> None:
    for path in ("/tasks/nothing", "/tasks/nothing/result"):
        answer = flash.get(path)
        assert (answer.status_code, answer.json()) == (404, {"detail": "Task not found"})
    assert flash.get("/tasks").status_code == 405


def test_task_fails_as_a_whole_and_says_why(flash: Client, small: Path) -> None:
    files = [("files", ("good.pdf", small.read_bytes())), ("files", ("bad.pdf", b"%PDF-1.4 and nothing else"))]
    answer = flash.post("/file_parse", files=files)
    body = answer.json()
    assert answer.status_code == 409
    assert (body["status"], body["message"]) == ("failed", "Task execution failed")
    assert body["error"].startswith("bad.pdf: ")
    assert flash.get(body["status_url"]).status_code == 200
    assert flash.get(body["result_url"]).status_code == 409


def test_cancelled_task_reads_failed(flash: Client, demo: Path) -> None:
    task = _send(flash, "/tasks", demo / "contract_scan.pdf", backend="pipeline").json()
    waiting = _send(flash, "/tasks", demo / "contract_scan.pdf", backend="pipeline").json()
    early = flash.get(waiting["result_url"])
    assert (early.status_code, early.json()["message"]) == (202, "Task result is not ready yet")
    for each in (waiting, task):
        assert flash.post(f"/v1/jobs/{each['task_id']}/cancel").status_code == 200
        status = flash.get(each["status_url"]).json()
        assert status["status"] == "failed"
        assert status["error"] == "the task was cancelled"
        assert flash.get(each["result_url"]).status_code == 409


def test_client_that_goes_away_cancels_its_task(flash: Client, demo: Path) -> None:
    document = demo / "contract_scan.pdf"
    with pytest.raises(httpx.ReadTimeout):
        flash.post(
            "/file_parse",
            files={"files": (document.name, document.read_bytes())},
            data={"backend": "pipeline"},
            timeout=httpx.Timeout(30, read=0.2),
        )
    ended = wait_until(lambda: [job for job in flash.get("/v1/jobs").json()["data"] if job["finished_at"]])
    assert [job["state"] for job in ended] == ["canceled"]


def test_result_is_there_after_a_restart(serve: Callable[..., Process], small: Path) -> None:
    server = serve("--tier", "flash").start()
    with server.client() as client:
        task = _send(client, "/tasks", small).json()
        assert _ended(client, task)["status"] == "completed"
        before = client.get(task["result_url"]).json()
    server.kill()
    server.start()
    with server.client() as client:
        assert client.get(task["status_url"]).json()["status"] == "completed"
        assert client.get(task["result_url"]).json() == before


def test_waiting_task_says_how_many_are_before_it(flash: Client, demo: Path, small: Path) -> None:
    tasks = [_send(flash, "/tasks", demo / "contract_scan.pdf", backend="pipeline").json()]
    tasks += [_send(flash, "/tasks", small).json() for _ in range(3)]
    ahead = [flash.get(task["status_url"]).json()["queued_ahead"] for task in tasks]
    assert ahead == [0, 0, 1, 2]
    assert [_ended(flash, task)["status"] for task in tasks] == ["completed"] * 4
