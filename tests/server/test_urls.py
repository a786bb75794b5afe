"""Documents and model servers that a client names by address."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from aiohttp.resolver import ThreadedResolver

from mineru_engine.errors import MineruError, OptionError
from mineru_engine.runtime.registry import runtimes
from mineru_engine.server.urls import _is_public, check_server_url
from mineru_engine.settings import Settings
from tests.server.serving import Running

Serving = Callable[..., Running]


class Web(ThreadingHTTPServer):
    """A web server on loopback that answers each path with what a test put there."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.port = self.server_address[1]
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []

    def put(self, path: str, body: bytes = b"", status: int = 200, **headers: str) -> str:
        self.pages[path] = (status, {name.replace("_", "-"): value for name, value in headers.items()}, body)
        return f"http://127.0.0.1:{self.port}{path}"


class Page(BaseHTTPRequestHandler):
    server: Web

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers)))
        status, headers, body = self.server.pages.get(self.path.partition("?")[0], (404, {}, b""))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if headers.get("X-Slow"):
            time.sleep(5)
        try:
            self.wfile.write(body)
        except OSError:  # the client has had enough
            self.close_connection = True

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        yield server
        server.shutdown()


@pytest.fixture
def fetching(serving: Serving, web: Web) -> Callable[..., Running]:
    """A server that may fetch from the web server."""

    def start(**settings: Any) -> Running:
        allowed = {"server.url_hosts": [f"http://127.0.0.1:{web.port}"], "server.private_hosts": ["127.0.0.1"]}
        return serving({**allowed, **{f"server.{name}": value for name, value in settings.items()}})

    return start


def ask(server: Running, *urls: Any, **options: Any) -> Any:
    with server.client() as client:
        return client.post("/v1/jobs", json={"urls": list(urls), "tier": "flash", **options})


def problem(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    return error


# --- Fetching ---


def test_documents_are_fetched(fetching: Callable[..., Running], web: Web, small: Path) -> None:
    urls = [
        web.put("/a/contract.pdf", small.read_bytes()),
        web.put("/b", small.read_bytes(), Content_Disposition="attachment; filename*=UTF-8''%e5%90%88%e5%90%8c.pdf"),
        web.put("/c", small.read_bytes(), Content_Disposition='inline; filename="../../../etc/passwd"'),
        web.put("/", small.read_bytes()) + "?token=secret",
    ]
    server = fetching()
    answer = ask(server, *urls, formats=["md"])
    assert answer.status_code == 202, answer.text
    with server.client() as client:
        job = client.ended(answer.json()["id"])
        assert job["state"] == "completed"
        assert [file["name"] for file in job["files"]] == ["contract.pdf", "合同.pdf", "passwd", "document"]
        assert client.get(f"/v1/jobs/{job['id']}/files/0/source").content == small.read_bytes()
    assert len(web.asked) == 4
    for _, headers in web.asked:
        assert not {"Authorization", "Cookie", "Referer"} & headers.keys()


def test_a_repetition_is_recognised(fetching: Callable[..., Running], web: Web, small: Path) -> None:
    url = web.put("/a.pdf", small.read_bytes())
    with fetching().client(headers={"Idempotency-Key": "k"}) as client:
        first, second = (client.post("/v1/jobs", json={"urls": [url], "tier": "flash"}) for _ in range(2))
    assert (first.status_code, second.status_code) == (202, 200)
    assert first.json()["id"] == second.json()["id"]


def test_redirects_within_what_is_allowed(fetching: Callable[..., Running], web: Web, small: Path) -> None:
    web.put("/real.pdf", small.read_bytes())
    url = web.put("/moved", status=302, Location="real.pdf")
    assert ask(fetching(), url).json()["files"][0]["name"] == "real.pdf"


@pytest.mark.parametrize(
    ("location", "status"),
    [
        ("http://169.254.169.254/latest/meta-data/", 403),
        ("http://127.0.0.1:1/", 403),
        ("http://localhost:{port}/real.pdf", 403),
        ("https://127.0.0.1:{port}/real.pdf", 403),
        ("//other.example/x", 403),
        ("file:///etc/passwd", 400),
        ("http://u:p@127.0.0.1:{port}/real.pdf", 400),
        ("http://[::1", 400),
        ("/moved", 400),
    ],
)
def test_redirects_that_are_not_followed(
    fetching: Callable[..., Running], web: Web, small: Path, location: str, status: int
) -> None:
    web.put("/real.pdf", small.read_bytes())
    url = web.put("/moved", status=302, Location=location.format(port=web.port))
    server = fetching()
    assert problem(ask(server, url), status)["param"] == "urls.0"
    assert "/real.pdf" not in [path for path, _ in web.asked]
    assert list(server.app.state.service.storage.incoming.iterdir()) == []


def test_a_host_that_is_not_allowed(serving: Serving, web: Web) -> None:
    server = serving()
    for url in (web.put("/a.pdf", b"x"), "https://example.org/a.pdf"):
        assert problem(ask(server, url), 403)["code"] == "access_denied"
    assert web.asked == []


@pytest.mark.parametrize(
    "url", ["", "x y", "ftp://127.0.0.1/a", "file:///etc/passwd", "http://", "http://a:b@127.0.0.1/"]
)
def test_what_is_no_address(fetching: Callable[..., Running], url: str) -> None:
    assert problem(ask(fetching(), url), 400)["param"] == "urls.0"


@pytest.mark.parametrize("private", [[], ["10.0.0.1"], ["localhost.example"]])
def test_an_allowed_name_may_not_lead_inside(serving: Serving, web: Web, private: list[str]) -> None:
    web.put("/a.pdf", b"x")
    for host in (f"http://localhost:{web.port}", f"http://127.0.0.1:{web.port}"):
        server = serving({"server.url_hosts": [host], "server.private_hosts": private})
        error = problem(ask(server, f"{host}/a.pdf"), 403)
        assert "not public" in error["message"]
        server.__exit__()
    assert web.asked == []


def test_a_name_is_looked_up_once_and_that_address_is_used(
    serving: Serving, web: Web, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that answers with a public address first and a private one later gains nothing."""
    answers = ["127.0.0.1", "203.0.113.1"]
    asked: list[str] = []

    async def resolve(self: object, host: str, port: int = 0, family: int = 0) -> list[dict[str, Any]]:
        asked.append(host)
        entry = {"hostname": host, "host": answers[0], "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}
        return [entry] if len(asked) == 1 else [{**entry, "host": answers[1]}]

    monkeypatch.setattr(ThreadedResolver, "resolve", resolve)
    web.put("/a.pdf", small.read_bytes())
    allowed = f"http://docs.example:{web.port}"
    server = serving({"server.url_hosts": [allowed], "server.private_hosts": ["127.0.0.1"]})
    assert ask(server, f"{allowed}/a.pdf").status_code == 202
    assert asked == ["docs.example"]
    assert web.asked[0][1]["Host"] == f"docs.example:{web.port}"
    answers[1] = "10.0.0.1"
    assert "not public" in problem(ask(server, f"{allowed}/a.pdf"), 403)["message"]
    assert len(web.asked) == 1


def test_https_means_a_valid_certificate(serving: Serving, web: Web) -> None:
    """The web server does not even speak TLS; what matters is that nobody falls back to plain HTTP."""
    server = serving({"server.url_hosts": [f"127.0.0.1:{web.port}"], "server.private_hosts": ["127.0.0.1"]})
    assert problem(ask(server, f"https://127.0.0.1:{web.port}/a.pdf"), 400)["code"] == "file_unreadable"
    assert problem(ask(server, f"http://127.0.0.1:{web.port}/a.pdf"), 403)["code"] == "access_denied"


def test_what_is_not_there(fetching: Callable[..., Running], web: Web) -> None:
    server = fetching()
    error = problem(ask(server, web.put("/gone", status=404)), 400)
    assert error["message"] == "127.0.0.1 answered 404"
    assert problem(ask(server, web.put("/empty", b"")), 400)["code"] == "file_empty"
    web.shutdown()
    web.server_close()
    assert problem(ask(server, web.put("/gone")), 400)["message"] == "the host cannot be reached"


def test_size_is_of_all_documents_together(fetching: Callable[..., Running], web: Web) -> None:
    server = fetching(max_request_mb=1)
    half = web.put("/half", b"x" * 600_000)
    assert ask(server, half).status_code == 202
    assert problem(ask(server, half, half), 413)["param"] == "urls.1"
    bomb = web.put("/bomb", __import__("gzip").compress(bytes(50_000_000)), Content_Encoding="gzip")
    assert problem(ask(server, bomb), 413)["code"] == "file_too_large"
    assert list(server.app.state.service.storage.incoming.iterdir()) == []


def test_time_is_of_all_documents_together(fetching: Callable[..., Running], web: Web) -> None:
    error = problem(ask(fetching(url_timeout=0.3), web.put("/slow", b"x", X_Slow="1")), 400)
    assert error["message"] == "no answer in time"


@pytest.mark.parametrize("body", [{}, {"urls": []}, {"urls": "http://x/"}, {"urls": [1]}, {"urls": [{}]}, [], "x"])
def test_bodies_without_addresses(fetching: Callable[..., Running], body: Any) -> None:
    with fetching().client() as client:
        problem(client.post("/v1/jobs", json=body), 400)


def test_too_many_addresses(fetching: Callable[..., Running]) -> None:
    problem(ask(fetching(max_files=2), *["http://127.0.0.1/"] * 3), 413)


# --- Model servers ---


def settings(**values: Any) -> Settings:
    return Settings.load(environ={}, overrides={f"server.{name}": value for name, value in values.items()})


@pytest.mark.parametrize(
    ("url", "hosts", "private", "code"),
    [
        ("http://127.0.0.1:8000/v1", ["http://127.0.0.1:8000"], ["127.0.0.1"], None),
        ("http://localhost:8000", ["http://LOCALHOST:8000"], ["Localhost"], None),
        ("http://127.0.0.1:8000", ["http://127.0.0.1:8000"], [], "access_denied"),
        ("http://localhost:8000", ["http://localhost:8000"], [], "access_denied"),
        ("http://127.0.0.1:8001", ["http://127.0.0.1:8000"], ["127.0.0.1"], "access_denied"),
        ("https://127.0.0.1:8000", ["http://127.0.0.1:8000"], ["127.0.0.1"], "access_denied"),
        ("http://[::ffff:127.0.0.1]:8000", ["http://[::ffff:127.0.0.1]:8000"], [], "access_denied"),
        ("http://2130706433", ["http://2130706433"], [], "access_denied"),
        ("http://user:pass@127.0.0.1:8000", ["http://127.0.0.1:8000"], ["127.0.0.1"], "request_invalid"),
        ("http://nowhere.invalid", ["http://nowhere.invalid"], [], "file_unreadable"),
    ],
)
def test_model_servers(url: str, hosts: list[str], private: list[str], code: str | None) -> None:
    check = check_server_url(url, settings(vlm_hosts=hosts, private_hosts=private))
    if code is None:
        assert asyncio.run(check) == url
        return
    with pytest.raises(MineruError) as caught:
        asyncio.run(check)
    assert str(caught.value.code) == code


def test_a_job_may_not_name_a_model_server_or_a_model_at_will(serving: Serving, small: Path) -> None:
    with serving().client() as client:
        error = problem(client.post_job(small, tier="high", server_url="http://127.0.0.1:9"), 403)
        assert error["param"] == "server_url"
        problem(client.post_job(small, tier="high", model="/etc/passwd"), 400)


@pytest.mark.parametrize("entry", ["http://a/b", "*.example.org", "ftp://a", "user@host", "a b", "https://"])
def test_entries_that_are_no_hosts(entry: str) -> None:
    with pytest.raises(OptionError):
        settings(url_hosts=[entry])


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.1.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "2002:a00:1::",
        "64:ff9b::a00:1",
        "64:ff9b:1::1",
        "fe80::1",
        "fd00::1",
        "ff02::1",
        "2001:db8::1",
        "fd00:ec2::254",
        "192.0.0.192",
        "198.18.0.1",
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not _is_public(ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_addresses_that_are_public(address: str) -> None:
    assert _is_public(ip_address(address))


def test_a_model_server_of_a_request_is_not_kept(serving: Serving, small: Path) -> None:
    """Each address makes an engine with workers of its own: those must not add up."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        host = f"http://127.0.0.1:{taken.getsockname()[1]}"
    server = serving({"server.vlm_hosts": [host], "server.private_hosts": ["127.0.0.1"]})
    with server.client() as client:
        client.ended(client.create(small)["id"])
        before = runtimes()
        for number in range(2):
            job = client.ended(client.create(small, tier="high", server_url=f"{host}/{number}", model="m")["id"])
            assert job["files"][0]["state"] == "failed"  # nobody listens there
        assert runtimes() == before
