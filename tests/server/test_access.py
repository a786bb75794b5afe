"""API keys, tenants and quotas, over a real socket."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mineru_cli.app import app as cli
from mineru_engine.errors import OptionError
from mineru_engine.server.jobs import Job, JobFile, JobState
from mineru_engine.server.keys import FILE_NAME, Keys, TenantLimits
from mineru_engine.server.problems import RequestError
from mineru_engine.server.quotas import Quotas
from tests.server.serving import Client, Process, Running, wait_until

Serving = Callable[..., Running]


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[Keys]:
    """The table of keys, as another process holds it while the server runs."""
    with Keys(tmp_path / "data" / FILE_NAME) as keys:
        yield keys


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# --- Keys ---


def test_a_running_server_heeds_the_first_key_and_every_change(serving: Serving, keys: Keys) -> None:
    with serving().client() as client:
        assert client.get("/v1/jobs").status_code == 200
        token = keys.add("anna")
        assert client.get("/v1/jobs").status_code == 401
        assert client.get("/v1/jobs", headers=bearer(token)).status_code == 200
        assert client.get("/v1/jobs", headers={"Authorization": f"bearer  {token}"}).status_code == 200
        second = keys.add("ben")
        assert client.get("/v1/jobs", headers=bearer(second)).status_code == 200
        keys.revoke("anna")
        assert client.get("/v1/jobs", headers=bearer(token)).status_code == 401
        keys.revoke("ben")  # the last one: nobody is let in, rather than everybody
        assert client.get("/v1/jobs").status_code == 401
        assert client.get("/v1/jobs", headers=bearer(second)).status_code == 401


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer wrong", "Basic {token}", "{token}", "Bearer {token}x", "Bearer \xff"]
)
def test_what_is_no_valid_key(serving: Serving, keys: Keys, header: str) -> None:
    token = keys.add("anna")
    with serving().client() as client:
        answer = client.get("/v1/jobs", headers={"Authorization": header.format(token=token).encode("latin-1")})
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("authentication_error", "access_denied")
    assert token not in answer.text


def test_the_body_of_a_refusal_follows_the_path(serving: Serving, keys: Keys) -> None:
    keys.add("anna")
    with serving().client() as client:
        assert client.get("/nowhere").json() == {"detail": "an API key is needed"}
        assert client.get("/v1/nowhere").json()["error"]["message"] == "an API key is needed"


def test_what_needs_no_key(serving: Serving, keys: Keys) -> None:
    keys.add("anna")
    with serving().client() as client:
        for path in ("/", "/health", "/ready", "/v1/health", "/docs", "/openapi.json", "/assets/x.js"):
            assert client.get(path).status_code != 401, path
            assert client.post(path).status_code == 401, path
        for path in ("/metrics", "/v1/jobs", "/assets", "/health/", "/%2e%2e/v1/jobs", "/docsx", "/V1/health"):
            assert client.get(path).status_code == 401, path


def test_the_description_of_the_api_says_how_a_key_is_sent(client: Client) -> None:
    description = client.get("/openapi.json").json()
    assert description["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    assert description["paths"]["/v1/jobs"]["get"]["security"] == [{"HTTPBearer": []}]


def test_a_body_without_a_key_is_not_read(serving: Serving, keys: Keys) -> None:
    keys.add("anna")
    server = serving()
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30) as line:
        line.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 400000000\r\n\r\n")
        assert line.recv(100).startswith(b"HTTP/1.1 401 ")  # and not a byte of the body was sent


def test_a_table_of_keys_that_cannot_be_read_lets_nobody_in(serving: Serving, keys: Keys, tmp_path: Path) -> None:
    token = keys.add("anna")
    with serving().client() as client:
        assert client.get("/v1/jobs", headers=bearer(token)).status_code == 200
        (tmp_path / "data" / FILE_NAME).write_bytes(b"\x00" * 40_000)
        for headers in ({}, bearer(token)):
            assert client.get("/v1/jobs", headers=headers).status_code == 500


def test_a_key_is_kept_nowhere(serve: Callable[..., Process], keys: Keys, small: Path, tmp_path: Path) -> None:
    token = keys.add("anna")
    process = serve().start()
    with process.client(headers=bearer(token)) as client:
        job = client.create(small)
        client.ended(job["id"])
        assert client.get(f"/nowhere?key={token}").status_code == 404
    with process.client() as client:
        assert client.get("/v1/jobs", headers=bearer(token + "x")).status_code == 401
    process.kill()
    secret = token.encode()
    written = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert len(written) > 5
    assert [path for path in (*written, process.log) if secret in path.read_bytes()] == []
    assert (tmp_path / "data" / FILE_NAME).stat().st_mode & 0o077 == 0


def test_names_of_keys(keys: Keys) -> None:
    first, second = keys.add("anna"), keys.add("ben", "anna")
    assert first != second
    assert len(first) > 43
    with pytest.raises(OptionError, match="already"):
        keys.add("anna")
    for name in ("", "-x", "a b", "ä", "a/b", "x" * 65, "a\n"):
        with pytest.raises(OptionError, match="a name has"):
            keys.add(name)
        with pytest.raises(OptionError, match="no key"):
            keys.revoke(name)
    keys.revoke(keys.all()[0].id)
    assert keys.add("anna") != first  # the name is free again, the old key stays worthless
    assert keys.find(first) is None
    assert [(key.name, key.tenant, key.revoked is None) for key in keys.all()] == [
        ("anna", "anna", False),
        ("ben", "anna", True),
        ("anna", "anna", True),
    ]


def test_the_command(tmp_path: Path) -> None:
    runner, place = CliRunner(), ["--data-dir", str(tmp_path / "data")]
    assert json.loads(runner.invoke(cli, ["keys", "list", "--json", *place]).stdout) == []
    added = runner.invoke(cli, ["keys", "add", "anna", "--tenant", "lab", "--running", "3", *place])
    assert added.exit_code == 0
    token = added.stdout.strip()
    with Keys(tmp_path / "data" / FILE_NAME) as keys:
        assert keys.find(token) == keys.all()[0]
    runner.invoke(cli, ["keys", "add", "ben", "--tenant", "lab", "--pages-per-day", "9", *place])
    listed = json.loads(runner.invoke(cli, ["keys", "list", "--json", *place]).stdout)
    assert [(key["name"], key["tenant"]) for key in listed] == [("anna", "lab"), ("ben", "lab")]
    assert listed[0]["limits"] == {"jobs_per_minute": 0, "pages_per_day": 9, "running": 3}
    assert runner.invoke(cli, ["keys", "revoke", "anna", *place]).exit_code == 0
    assert runner.invoke(cli, ["keys", "revoke", "anna", *place]).exit_code == 2
    shown = runner.invoke(cli, ["keys", "list", *place]).stdout
    assert re.search(r"anna +lab +0 +9 +3 +\d{4}-\d\d-\d\d \d\d:\d\d +\d{4}", shown)
    assert token not in shown + json.dumps(listed)


@pytest.mark.parametrize(("host", "key", "warned"), [("0.0.0.0", False, True), ("0.0.0.0", True, False)])
def test_a_warning_when_anybody_may_come(
    serve: Callable[..., Process], keys: Keys, host: str, key: bool, warned: bool
) -> None:
    if key:
        keys.add("anna")
    process = serve("--host", host).start()
    process.kill()
    assert ("it has no API keys" in process.log.read_text()) is warned


def test_no_warning_on_loopback(serve: Callable[..., Process]) -> None:
    process = serve().start()
    process.kill()
    assert "API keys" not in process.log.read_text()


# --- Tenants ---


def filled(path: str, job_id: str) -> str:
    """A path with a job's id in it, and plausible values for what else it asks for."""
    values = {"index": "0", "path": "contract.md", "file_id": "0", "number": "0"}
    return re.sub(r"\{(\w+)(:\w+)?\}", lambda found: values.get(found[1], job_id), path)


def test_nobody_sees_or_stops_anothers_jobs(serving: Serving, keys: Keys, small: Path) -> None:
    anna, ben = bearer(keys.add("anna")), bearer(keys.add("ben"))
    server = serving()
    with server.client(headers=anna) as client:
        job = client.create(small, headers={"Idempotency-Key": "same"})
        client.ended(job["id"])
        with server.client(headers=ben) as other:
            paths = {path: methods for path, methods in server.app.openapi()["paths"].items() if "{" in path}
            tried = [(method, filled(path, job["id"])) for path, methods in paths.items() for method in methods]
            assert len(tried) >= 7
            for method, path in tried:
                answer = other.request(method, path)
                assert answer.status_code in (404, 405, 422), (method, path, answer.text)
                assert small.name not in answer.text
            assert other.get("/v1/jobs").json()["data"] == []
            assert other.get("/v1/jobs", params={"after": job["id"]}).json()["data"] == []
            assert other.create(small, headers={"Idempotency-Key": "same"})["id"] != job["id"]
        assert client.job(job["id"])["state"] == "completed"
        assert [entry["id"] for entry in client.get("/v1/jobs").json()["data"]] == [job["id"]]


def test_all_keys_of_a_tenant_see_its_jobs(serving: Serving, keys: Keys, small: Path) -> None:
    first, second = bearer(keys.add("one", "lab")), bearer(keys.add("two", "lab"))
    server = serving()
    with server.client(headers=first) as client, server.client(headers=second) as other:
        job = client.create(small)
        assert other.ended(job["id"])["state"] == "completed"


def test_nobody_learns_that_another_had_the_same_document(serving: Serving, keys: Keys, small: Path) -> None:
    anna, ben = bearer(keys.add("anna")), bearer(keys.add("ben"))
    server = serving()
    cached = []
    for headers in (anna, anna, ben):
        with server.client(headers=headers) as client:
            cached.append(client.ended(client.create(small)["id"])["files"][0]["cached"])
    assert cached == [False, True, False]


# --- Quotas ---


def refused(answer: Any) -> int:
    """The seconds to wait that a refusal for a used-up quota tells."""
    assert answer.status_code == 429, answer.text
    assert answer.json()["error"]["code"] == "quota_exceeded"
    return int(answer.headers["Retry-After"])


def test_jobs_per_minute(serving: Serving, keys: Keys, small: Path) -> None:
    token = keys.add("anna", limits={"jobs_per_minute": 2})
    with serving().client(headers=bearer(token)) as client:
        client.create(small)
        assert client.post("/v1/jobs", data={"tier": "flash"}).status_code == 400  # a bad request costs nothing
        client.create(small)
        assert 50 < refused(client.post_job(small)) <= 61
        assert client.get("/v1/jobs").status_code == 200
        keys.add("ben", "anna", {"jobs_per_minute": 3})
        client.create(small)


def test_pages_per_day_outlast_the_server_and_the_job(serving: Serving, keys: Keys, small: Path) -> None:
    token = keys.add("anna", limits={"pages_per_day": 1})
    server = serving()
    with server.client(headers=bearer(token)) as client:
        job = client.ended(client.create(small)["id"])
        assert job["progress"]["pages_done"] >= 1
        assert client.delete(f"/v1/jobs/{job['id']}").status_code == 200
        assert refused(client.post_job(small)) > 80_000
    server.__exit__()
    with serving().client(headers=bearer(token)) as client:
        assert refused(client.post_job(small)) > 80_000


def test_running_jobs(serving: Serving, keys: Keys, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def held(*args: object, **kwargs: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("mineru_engine.server.work.parse_async", held)
    tokens = keys.add("anna", limits={"running": 2}), keys.add("ben")
    server = serving()
    with server.client(headers=bearer(tokens[0])) as client, server.client(headers=bearer(tokens[1])) as other:
        jobs = [client.create(small)["id"] for _ in range(2)]
        assert refused(client.post_job(small)) > 0
        other.create(small)  # others have room
        client.post(f"/v1/jobs/{jobs[0]}/cancel")
        client.create(small)


class Clock:
    """A clock to turn."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def ended(pages: int, *, cached: bool = False) -> Job:
    file = JobFile("a.pdf", "a", "a.pdf", "0" * 64, 1, done=pages, cached=cached, state=JobState.COMPLETED)
    return Job("job", "lab", {}, (), [file])


def test_windows_of_time(tmp_path: Path) -> None:
    clock, limits = Clock(), TenantLimits(jobs_per_minute=2, pages_per_day=100)
    quotas = Quotas(tmp_path / "usage", lambda tenant: limits, lambda tenant: 0, clock)

    def wait() -> int | None:
        try:
            quotas.check("lab")
        except RequestError as exc:
            return exc.retry_after
        return None

    for _ in range(2):
        with quotas.entering("lab"):
            pass
        clock.now += 20
    assert wait() == 21
    clock.now += 21
    assert wait() is None
    with pytest.raises(ZeroDivisionError), quotas.entering("lab"):
        _ = 1 / 0
    assert wait() is None  # what failed to enter does not count
    quotas.ended(ended(60))
    quotas.ended(ended(500, cached=True))
    clock.now += 3600
    quotas.ended(ended(50))
    assert wait() == 86400 - 3600 + 1
    clock.now += 86400 - 3600 + 1
    assert wait() is None
    quotas.ended(ended(50))
    assert wait() == 3600  # the 50 of before leave then
    quotas.close()
    again = Quotas(tmp_path / "usage", lambda tenant: limits, lambda tenant: 0, clock)
    with pytest.raises(RequestError, match="100 pages per day"):
        again.check("lab")
    again.check("another")
    again.close()


def test_jobs_that_come_at_the_same_moment(tmp_path: Path) -> None:
    quotas = Quotas(tmp_path / "usage", lambda tenant: TenantLimits(running=1), lambda tenant: 0)
    with (
        quotas.entering("lab"),
        pytest.raises(RequestError, match="1 jobs wait or run already"),
        quotas.entering("lab"),
    ):
        pass
    quotas.close()


def test_a_usage_table_that_is_none_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "usage").write_bytes(b"nothing" * 1000)
    with pytest.raises(Exception, match="used pages cannot be read") as caught:
        Quotas(tmp_path / "usage", lambda tenant: TenantLimits(), lambda tenant: 0)
    assert isinstance(caught.value.__cause__, sqlite3.Error)


# --- Room ---


def test_too_little_room_on_the_disk(serving: Serving, small: Path) -> None:
    server = serving({"server.min_free_mb": 1 << 40})
    with server.client() as client:
        answer = client.post_job(small)
        assert (answer.status_code, answer.json()["error"]["code"]) == (507, "disk_full")
    assert wait_until(lambda: not list(server.app.state.service.storage.incoming.iterdir()))


def test_pages_of_a_document(serving: Serving, demo: Path) -> None:
    with serving({"processing.max_pages": 2}).client() as client:
        job = client.ended(client.create(demo / "report.pdf")["id"])
        assert job["state"] == "failed"
        assert job["files"][0]["error"]["code"] == "file_too_large"
        assert job["files"][0]["pages_done"] == 0
        assert client.ended(client.create(demo / "report.pdf", pages="1-2")["id"])["state"] == "completed"


def test_documents_of_a_job(serving: Serving, small: Path) -> None:
    with serving({"server.max_files": 2}).client() as client:
        assert client.post_job(small, small).status_code == 202
        assert client.post_job(small, small, small).status_code == 413
        assert client.post_job(small, small, small, small).status_code in (400, 413)
