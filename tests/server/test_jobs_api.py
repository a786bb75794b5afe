"""The native API over a real socket."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pytest

from tests.server.serving import Client, Running, wait_until


@pytest.fixture
def slow(demo: Path) -> dict[str, str]:
    """Options with which the scanned demo document takes seconds."""
    return {"tier": "basic", "cache": "false"}


def test_from_upload_to_result(client: Client, demo: Path) -> None:
    content = (demo / "report.pdf").read_bytes()
    created = client.post_job(demo / "report.pdf", formats="md,html,json,content-list", ocr_mode="txt")
    assert created.status_code == 202
    job = created.json()
    assert created.headers["location"] == f"/v1/jobs/{job['id']}" == job["links"]["self"]
    job = client.ended(job["id"])
    assert job["state"] == "completed"
    assert job["options"] == {"tier": "flash", "ocr_mode": "txt"}
    progress = job["progress"]
    assert progress["pages_done"] == progress["pages_total"] > 2
    assert (progress["files_done"], job["attempts"]) == (1, 1)
    file = job["files"][0]
    assert (file["name"], file["bytes"], file["tier"], file["cached"]) == ("report.pdf", len(content), "flash", False)
    assert file["sha256"] == hashlib.sha256(content).hexdigest()

    at = job["links"]["result"]
    whole = client.get(at).json()["files"][0]
    markdown = client.get(at, params={"format": "md"})
    assert markdown.headers["content-type"].startswith("text/markdown")
    assert whole["markdown"] == markdown.text and len(markdown.text) > 500
    assert whole["content_list"] == client.get(at, params={"format": "content-list"}).json()
    with zipfile.ZipFile(BytesIO(client.get(at, params={"format": "zip"}).content)) as archive:
        names = archive.namelist()
        assert archive.read("report/report.md").decode() == markdown.text
    suffixes = (".md", ".html", "_middle.json", "_content_list.json", "_model.json")
    assert {f"report/report{suffix}" for suffix in suffixes} <= set(names)
    image = next(name for name in names if name.startswith("report/images/"))
    single = client.get(f"/v1/jobs/{job['id']}/files/0/{image.removeprefix('report/')}")
    assert single.status_code == 200 and single.headers["content-type"].startswith("image/")
    assert client.get(f"/v1/jobs/{job['id']}/files/0/source").content == content


def test_what_is_not_part_of_a_result_is_not_given_out(client: Client, small: Path) -> None:
    job = client.ended(client.create(small)["id"])
    for path in (".mineru.json", "../input/contract.pdf", "..%2f..%2f..%2fjobs.sqlite3", "nothing"):
        answer = client.get(f"/v1/jobs/{job['id']}/files/0/{path}")
        assert answer.status_code in (400, 404), path
    assert client.get(job["links"]["result"], params={"format": "docx"}).json()["error"]["code"] == "file_not_found"
    assert client.get(job["links"]["result"], params={"format": "xyz"}).status_code == 400
    assert client.get(job["links"]["result"], params={"format": "md", "file": 1}).status_code == 404
    assert client.get("/v1/jobs/none").json()["error"]["code"] == "job_not_found"


def test_a_damaged_file_among_others_makes_the_job_partial(client: Client, small: Path) -> None:
    job = client.ended(
        client.create(small, ("broken.pdf", b"%PDF-1.7 nothing"), ("contract.pdf", small.read_bytes()))["id"]
    )
    assert job["state"] == "partial"
    assert [file["state"] for file in job["files"]] == ["completed", "failed", "completed"]
    assert [file["stem"] for file in job["files"]] == ["contract", "broken", "contract_2"]
    assert job["files"][1]["error"]["code"] in ("file_damaged", "pdf_no_pages")
    result = client.get(job["links"]["result"]).json()
    assert [bool(file["markdown"]) for file in result["files"]] == [True, False, True]


def test_an_unknown_option_names_the_nearest(client: Client, small: Path) -> None:
    answer = client.post_job(small, teir="flash")
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == "teir" and "tier" in error["hint"]
    assert client.post_job(small, tier="fast").json()["error"]["param"] == "tier"
    for pages in ("one to three", "0"):
        assert client.post_job(small, pages=pages).json()["error"]["code"] == "page_range_invalid"
    assert client.post("/v1/jobs", data={"tier": "flash"}).status_code in (400, 415)
    assert client.post_job(("x.pdf", b"")).json()["error"]["code"] == "file_empty"
    assert client.get("/v1/jobs").json()["data"] == []


def test_lists_come_in_pages_and_by_state(client: Client, small: Path) -> None:
    ids = [client.create(small)["id"] for _ in range(3)] + [client.create(("x.pdf", b"%PDF-1.7"))["id"]]
    for job_id in ids:
        client.ended(job_id)
    first = client.get("/v1/jobs", params={"limit": 3}).json()
    assert [job["id"] for job in first["data"]] == ids[:0:-1]
    assert first["has_more"]
    second = client.get("/v1/jobs", params={"limit": 3, "after": first["last_id"]}).json()
    assert [job["id"] for job in second["data"]] == ids[:1]
    assert not second["has_more"]
    failed = client.get("/v1/jobs", params={"state": "failed"}).json()
    assert [job["id"] for job in failed["data"]] == ids[3:]


def test_events_tell_progress_and_the_end(client: Client, demo: Path) -> None:
    job = client.create(demo / "report.pdf")
    with client.stream("GET", job["links"]["events"]) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = list(stream.iter_lines())
    kinds = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    data = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert kinds[-1] == "end" and set(kinds[:-1]) <= {"progress"}
    assert {view["id"] for view in data} == {job["id"]}
    assert data[-1]["state"] == "completed"


def test_cancelling(client: Client, demo: Path, small: Path, slow: dict[str, str], server: Running) -> None:
    running = client.create(demo / "contract_scan.pdf", **slow)
    waiting = client.create(small)
    wait_until(lambda: client.job(running["id"])["state"] == "running")
    assert client.job(waiting["id"])["queue_position"] == 0
    not_ready = client.get(running["links"]["result"])
    assert not_ready.status_code == 409 and not_ready.headers["retry-after"]

    assert client.post(waiting["links"]["cancel"]).json()["state"] == "canceled"
    canceled = client.post(running["links"]["cancel"]).json()
    assert canceled["state"] == "canceled"
    assert [file["state"] for file in canceled["files"]] == ["canceled"]
    service = server.app.state.service
    job = service.queue.live(running["id"])
    assert job is None and service.queue.running == 0
    assert client.get(running["links"]["result"]).status_code == 409
    assert not list(service.storage.root.glob("jobs/*/output/*"))  # it publishes nothing
    assert client.post(running["links"]["cancel"]).json() == canceled  # again changes nothing
    assert client.ended(client.create(small)["id"])["state"] == "completed"  # its slot is free


def test_deleting_leaves_nothing(
    client: Client, demo: Path, small: Path, slow: dict[str, str], server: Running
) -> None:
    ended = client.ended(client.create(small)["id"])
    running = client.create(demo / "contract_scan.pdf", **slow)
    wait_until(lambda: client.job(running["id"])["state"] == "running")
    for job in (running, ended):
        assert client.delete(job["links"]["self"]).json() == {"id": job["id"], "object": "job", "deleted": True}
        assert client.get(job["links"]["self"]).status_code == 404
    assert not list(server.app.state.service.storage.root.glob("jobs/*"))


def test_a_repeated_key_is_one_job(client: Client, small: Path, server: Running) -> None:
    headers = {"Idempotency-Key": "k-1"}
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: client.post_job(small, headers=headers), range(16)))
    assert sorted(answer.status_code for answer in answers) == [200] * 15 + [202]
    assert len({answer.json()["id"] for answer in answers}) == 1
    client.ended(answers[0].json()["id"])
    assert client.post_job(small, headers=headers).json()["id"] == answers[0].json()["id"]
    other = client.post_job(small, headers=headers, pages="1")
    assert (other.status_code, other.json()["error"]["param"]) == (422, "Idempotency-Key")
    assert len(list(server.app.state.service.storage.root.glob("jobs/*"))) == 1
    assert not list(server.app.state.service.storage.incoming.iterdir())


def test_only_a_full_queue_answers_429(
    serving: Callable[..., Running], demo: Path, small: Path, slow: dict[str, str]
) -> None:
    with serving({"server.queue_limit": 2}).client() as client:
        running = client.create(demo / "contract_scan.pdf", **slow)
        wait_until(lambda: client.job(running["id"])["state"] == "running")
        kept = [client.create(small, headers={"Idempotency-Key": str(number)}) for number in range(2)]
        refused = client.post_job(small)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        assert refused.json()["error"]["code"] == "queue_full"
        again = client.post_job(small, headers={"Idempotency-Key": "1"})
        assert (again.status_code, again.json()["id"]) == (200, kept[1]["id"])  # it is in already
        client.post(running["links"]["cancel"])
        assert client.ended(kept[1]["id"])["state"] == "completed"
        client.create(small)


def test_two_applications_share_the_process_and_close_alone(
    serving: Callable[..., Running], demo: Path, tmp_path: Path, slow: dict[str, str]
) -> None:
    first = serving(data_dir=tmp_path / "first")
    with first.client() as client:
        job = client.create(demo / "contract_scan.pdf", **slow)
        with Running(_another(tmp_path / "second")) as second, second.client() as other:
            assert other.ended(other.create(demo / "contract.pdf")["id"])["state"] == "completed"
        assert client.ended(job["id"])["state"] == "completed"


def _another(data_dir: Path) -> object:
    from mineru_engine.server.app import create_app
    from mineru_engine.settings import Settings

    return create_app(Settings.load(environ={}), data_dir=data_dir)
