"""Hostile clients and documents against ``mineru serve``; after each of them the server is as well as before."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.server.serving import Client, Process, wait_until

REQUEST_MB = 32
PATIENCE_S = 1.5
Line = Callable[[], socket.socket]


class Victim:
    """A server that is looked at before and after."""

    def __init__(self, process: Process) -> None:
        self.process = process
        assert process.process is not None
        self.state = psutil.Process(process.process.pid)
        self.incoming = process.data_dir / "incoming"

    def fill_pools(self, small: Path) -> None:
        """Bring up every thread and worker that normal use brings up, so that what comes later is a leak."""
        with self.process.client() as client:
            client.ended(client.create(small)["id"])
        with ThreadPoolExecutor(60) as pool:
            list(pool.map(lambda _: self.alone(lambda client: client.get("/v1/jobs")), range(300)))
            jobs = list(pool.map(lambda _: self.alone(lambda client: client.create(small)), range(20)))
        for job in jobs:
            self.alone(lambda client, job=job: client.ended(job["id"]))
        time.sleep(1)  # until the server has seen that these clients are gone
        self.descriptors, self.threads = self.state.num_fds(), self.state.num_threads()

    def alone(self, ask: Callable[[Client], Any]) -> Any:
        """Ask on a connection of one's own: this server hangs up on idle ones too soon for many to share them."""
        with self.process.client() as client:
            return ask(client)

    @property
    def resident(self) -> int:
        """Bytes of memory of the server itself."""
        return int(self.state.memory_info().rss)

    def is_well(self, small: Path) -> None:
        """Fail unless a normal job works and nothing was left behind."""
        with self.process.client() as client:
            assert client.ended(client.create(small)["id"])["state"] == "completed"
        wait_until(lambda: self.state.num_fds() <= self.descriptors, 20)
        wait_until(lambda: self.state.num_threads() <= self.threads, 20)
        wait_until(lambda: not list(self.incoming.iterdir()), 20)
        log = self.process.log.read_text()
        assert "Traceback" not in log, log


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, small: Path) -> Iterator[Victim]:
    environ = {
        "MINERU_SERVER_REQUEST_TIMEOUT": str(PATIENCE_S),
        "MINERU_SERVER_MAX_REQUEST_MB": str(REQUEST_MB),
        "MINERU_WORKER_MEMORY_MB": "600",
        "MINERU_WORKER_PROCESSES": "1",  # or the number of workers, and of pipes to them, would vary
    }
    process = Process(tmp_path_factory.mktemp("hostile") / "data", environ=environ).start()
    try:
        victim = Victim(process)
        victim.fill_pools(small)
        yield victim
    finally:
        process.stop()


@pytest.fixture
def victim(running: Victim, small: Path) -> Iterator[Victim]:
    yield running
    running.is_well(small)


@pytest.fixture
def client(victim: Victim) -> Iterator[Client]:
    with victim.process.client() as client:
        yield client


@pytest.fixture
def line(victim: Victim) -> Iterator[Line]:
    """Opens raw connections to the server."""
    with contextlib.ExitStack() as stack:

        def connect() -> socket.socket:
            made = socket.create_connection(("127.0.0.1", victim.process.port), timeout=30)
            return stack.enter_context(made)

        yield connect


def head(*headers: str, method: str = "POST", path: str = "/v1/jobs") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode("latin-1")


def answered(line: socket.socket) -> tuple[int, bytes]:
    """Status and everything after it, until the server closes or has said all."""
    data = b""
    with contextlib.suppress(TimeoutError, ConnectionResetError):
        while chunk := line.recv(65536):
            data += chunk
            start, _, body = data.partition(b"\r\n\r\n")
            length = next(
                (row[16:] for row in start.lower().split(b"\r\n") if row.startswith(b"content-length: ")), b""
            )
            if length and len(body) >= int(length):
                break
    return int(data.split(b" ", 2)[1]), data


def is_closed(line: socket.socket) -> bool:
    """Whether the server has hung up."""
    with contextlib.suppress(ConnectionResetError):
        while line.recv(65536):
            pass
    return True


BOUNDARY = "Content-Type: multipart/form-data; boundary=b"


def part(name: str, content: bytes = b"x", field: str = "files") -> bytes:
    return (
        f'--b\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n\r\n'.encode() + content + b"\r\n"
    )


# --- Names ---


@pytest.mark.parametrize(
    "name",
    [
        "../../../../tmp/evil.pdf",
        "..\\..\\evil.pdf",
        "/etc/passwd",
        "C:\\windows\\evil.pdf",
        "..",
        ".",
        "nul\0byte.pdf",
        "new\nline.pdf",
        "x" * 3_000 + ".pdf",
        "ü" * 1_500 + ".pdf",
        "a.pdf" + "." * 300,
        "con.pdf",
        ".hidden",
        "a.pdf/../../b.pdf",
        "<script>alert(1)</script>.pdf",
        "‮fdp.exe",
        "$(touch evil).pdf",
        "%2e%2e%2fevil.pdf",
    ],
)
def test_file_names(client: Client, victim: Victim, small: Path, name: str) -> None:
    body = part(name.replace("\n", "%0A"), small.read_bytes()) + part(name.replace("\n", "%0A"), small.read_bytes())
    body += b'--b\r\nContent-Disposition: form-data; name="tier"\r\n\r\nflash\r\n--b--\r\n'
    answer = client.post("/v1/jobs", content=body, headers={"Content-Type": "multipart/form-data; boundary=b"})
    assert answer.status_code == 202, answer.text
    job = client.ended(answer.json()["id"])
    home = victim.process.data_dir / "jobs" / job["id"]
    stems = [file["stem"] for file in job["files"]]
    assert len(set(stems)) == 2
    assert {path.parent for path in home.rglob("*") if path.is_dir()} <= {home, home / "output"} | {
        home / "output" / stem for stem in stems
    }
    assert len(list((home / "input").iterdir())) == 2
    for file in job["files"]:
        assert len(file["name"]) <= 255
        assert file["name"].isprintable()
        assert client.get(f"/v1/jobs/{job['id']}/files/{file['index']}/source").content == small.read_bytes()
    found = victim.process.data_dir.parent.rglob("*evil*")
    assert [path for path in found if home.parent not in path.parents] == []
    assert not Path("/tmp/evil.pdf").exists()


@pytest.mark.parametrize("letter", ["x", "ü"])
def test_a_file_name_of_10_kb(client: Client, letter: str) -> None:
    body = part(letter * 10_000 + ".pdf") + b"--b--\r\n"
    answer = client.post("/v1/jobs", content=body, headers={"Content-Type": "multipart/form-data; boundary=b"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "request_invalid")


@pytest.mark.parametrize(
    "path",
    [
        "../../input/contract.pdf",
        "..%2f..%2finput%2fcontract.pdf",
        "%2e%2e/%2e%2e/%2e%2e/%2e%2e/jobs.sqlite3",
        "/etc/passwd",
        "..\\..\\jobs.sqlite3",
        "contract.md/../../../input/contract.pdf",
        "contract.md%00",
        "manifest.json%0a",
    ],
)
def test_paths_of_results(client: Client, line: Line, small: Path, path: str) -> None:
    job = client.ended(client.create(small)["id"])
    raw = line()
    raw.sendall(head("Connection: close", method="GET", path=f"/v1/jobs/{job['id']}/files/0/{path}"))
    assert answered(raw)[0] in (400, 404)


# --- Sizes ---


def test_an_announced_body_of_2_gb(line: Line) -> None:
    raw = line()
    raw.sendall(head(BOUNDARY, f"Content-Length: {2 << 30}"))
    status, data = answered(raw)
    assert status == 413
    assert b"file_too_large" in data
    assert is_closed(raw)


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/x/cancel", "/nowhere"])
def test_2_gb_of_zeros(line: Line, victim: Victim, path: str) -> None:
    before, highest, sent = victim.resident, 0, 0
    raw = line()
    raw.sendall(head(BOUNDARY, "Transfer-Encoding: chunked", path=path))
    zeros = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    start = part("a.pdf")[:-3]
    raw.sendall(f"{len(start):x}\r\n".encode() + start + b"\r\n")
    with contextlib.suppress(OSError):  # the server hangs up
        while sent < 2 << 30:
            raw.sendall(zeros)
            sent += 1 << 20
            highest = max(highest, victim.resident)
            if path != "/v1/jobs" and sent >= 64 << 20:
                break
    if path == "/v1/jobs":
        assert sent <= (REQUEST_MB + 16) << 20  # what the kernel's buffers hold comes on top
        assert answered(raw)[0] == 413
    else:
        assert answered(raw)[0] == 404  # answered before; what comes then is dropped
    assert highest - before < 24 << 20


@pytest.mark.parametrize("length", ["10", "0", "-1", "1e3", "9" * 30, "5, 6", "٣"])
def test_a_content_length_that_lies(line: Line, length: str) -> None:
    raw = line()
    raw.sendall(head(BOUNDARY).removesuffix(b"\r\n") + f"Content-Length: {length}\r\n\r\n".encode())
    raw.sendall(part("a.pdf", bytes(1000)) + b"--b--\r\n")
    assert 400 <= answered(raw)[0] < 500


def test_a_length_and_chunks_at_once(line: Line) -> None:
    raw = line()
    raw.sendall(head(BOUNDARY, "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n")
    assert 400 <= answered(raw)[0] < 500


@pytest.mark.parametrize("kind", ["multipart", "urlencoded"])
def test_10000_fields(client: Client, kind: str) -> None:
    fields = {f"f{number}": "1" for number in range(10_000)}
    if kind == "multipart":
        answer = client.post("/v1/jobs", data=fields, files={"files": ("a.pdf", b"x")})
    else:
        answer = client.post("/v1/jobs", data=fields)
    assert answer.status_code == 400
    assert "Too many fields" in answer.json()["error"]["message"]


def test_a_field_of_10_mb(client: Client) -> None:
    answer = client.post("/v1/jobs", data={"pages": "1" * 10_000_000}, files={"files": ("a.pdf", b"x")})
    assert answer.status_code == 400


def test_10000_files(client: Client) -> None:
    answer = client.post("/v1/jobs", files=[("files", ("a.pdf", b"x"))] * 10_000)
    assert answer.status_code in (400, 413)


@pytest.mark.parametrize("opened", ["[", '{"a":', '{"urls":['])
def test_json_100000_deep(client: Client, opened: str) -> None:
    answer = client.post("/v1/jobs", content=opened * 100_000, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "request_invalid")


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded", "APPLICATION/JSON; x=y"])
def test_text_of_20_mb(client: Client, kind: str) -> None:
    answer = client.post("/v1/jobs", content=b"[" + b"1," * 10_000_000, headers={"Content-Type": kind})
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "body", [b'{"urls": [NaN]}', b"\xff\xfe", b'{"urls": ["\\ud800"]}', b'{"a":1,"a":2}', b"null", b""]
)
def test_json_that_is_none(client: Client, body: bytes) -> None:
    answer = client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400


@pytest.mark.parametrize(
    "bomb",
    [
        head(f"X: {'x' * 1_000_000}"),
        head(*(f"X-{number}: {'y' * 100}" for number in range(10_000))),
        head(path="/" + "x" * 1_000_000),
    ],
    ids=["one", "many", "path"],
)
def test_headers(line: Line, bomb: bytes) -> None:
    raw = line()
    with contextlib.suppress(OSError):
        raw.sendall(bomb)
    assert answered(raw)[0] in (400, 414, 431)
    assert is_closed(raw)


@pytest.mark.parametrize(
    "kind",
    [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=other",
        "multipart/form-data; boundary=" + "b" * 5000,
        'multipart/form-data; boundary="',
        "text/plain",
        "multipart/mixed; boundary=b",
        "",
    ],
)
def test_boundaries(client: Client, kind: str) -> None:
    body = part("a.pdf") + b"--b--\r\n"
    answer = client.post("/v1/jobs", content=body, headers={"Content-Type": kind} if kind else None)
    assert answer.status_code in (400, 415), answer.text
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        part("a.pdf"),  # no end
        b"--b\r\n\r\nx\r\n--b--\r\n",  # no disposition
        b'--b\r\nContent-Disposition: form-data; filename="a"\r\n\r\nx\r\n--b--\r\n',  # no name
        b"--b\r\n" + b"X" * 100_000 + b"\r\n--b--\r\n",
        b"\0" * 1000,
    ],
)
def test_broken_forms(client: Client, body: bytes) -> None:
    answer = client.post("/v1/jobs", content=body, headers={"Content-Type": "multipart/form-data; boundary=b"})
    assert 400 <= answer.status_code < 500, answer.text


# --- Time ---


def test_a_slow_head(line: Line) -> None:
    raw = line()
    raw.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n")
    closed = threading.Thread(target=is_closed, args=(raw,))
    closed.start()
    with contextlib.suppress(OSError):
        for number in range(600):  # a header every now and then, and never the end of them
            raw.sendall(f"X-{number}: y\r\n".encode())
            time.sleep(0.1)
            if not closed.is_alive():
                break
    closed.join(1)
    assert not closed.is_alive()


def test_a_connection_that_says_nothing(line: Line) -> None:
    raw = line()
    assert raw.recv(1) == b""


def test_a_second_request_that_does_not_end(line: Line) -> None:
    raw = line()
    raw.sendall(head("Content-Length: 0", method="GET"))
    assert answered(raw)[0] == 200
    raw.sendall(b"GET / HTTP/1.1\r\nHo")
    assert is_closed(raw)


def test_a_slow_body(line: Line) -> None:
    raw = line()
    raw.sendall(head(BOUNDARY, "Content-Length: 1000000") + part("a.pdf")[:-3])
    status, data = answered(raw)
    assert status == 408
    assert b"deadline_exceeded" in data
    assert is_closed(raw)


def test_a_body_that_goes_on_after_the_answer(line: Line) -> None:
    raw = line()
    raw.sendall(head("Content-Length: 1000000", path="/nowhere"))
    assert answered(raw)[0] == 404
    assert is_closed(raw)


def test_200_slow_clients_do_not_hold_up_others(line: Line, client: Client) -> None:
    for _ in range(200):
        line().sendall(b"POST /v1/jobs HTTP/1.1\r\nX-")
    assert client.get("/v1/jobs").status_code == 200


@pytest.mark.parametrize("after", [0, 10, 200, 500_000])
def test_half_a_body_and_gone(line: Line, client: Client, after: int) -> None:
    before = client.get("/v1/jobs").json()["data"]
    for _ in range(10):
        with line() as raw:
            raw.sendall(head(BOUNDARY, "Content-Length: 2000000") + (part("a.pdf", bytes(3_000_000)))[:after])
    assert client.get("/v1/jobs").json()["data"] == before


def test_a_reader_that_does_not_read(victim: Victim, client: Client, demo: Path) -> None:
    job = client.create(demo / "report.pdf")
    raws = []
    for _ in range(20):
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        raw.connect(("127.0.0.1", victim.process.port))
        raw.sendall(head(method="GET", path=f"/v1/jobs/{job['id']}/events"))
        raw.sendall(head(method="GET", path=f"/v1/jobs/{job['id']}/files/0/source") * 20)
        raws.append(raw)
    before = victim.resident
    assert client.ended(job["id"])["state"] == "completed"
    assert victim.resident - before < 64 << 20
    for raw in raws:
        raw.close()


# --- Documents ---


def docx(*document: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "[Content_Types].xml",
            '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override '
            'PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.'
            'wordprocessingml.document.main+xml"/></Types>',
        )
        archive.writestr(
            "_rels/.rels",
            '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" '
            'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
            'Target="word/document.xml"/></Relationships>',
        )
        with archive.open("word/document.xml", "w", force_zip64=True) as inner:
            for piece in document:
                inner.write(piece)
    return stream.getvalue()


def word(text: str) -> bytes:
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    return (
        f'<w:document xmlns:w="{space}"><w:body><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:body></w:document>'
    ).encode()


def test_the_document_that_bombs_are_made_from(client: Client) -> None:
    assert client.ended(client.create(("a.docx", docx(word("hello"))))["id"])["state"] == "completed"


def test_a_zip_bomb(client: Client, victim: Victim) -> None:
    before_it, after_it = word("|").split(b"|")
    bomb = docx(before_it, *[b"a" * (1 << 20)] * 1024, after_it)
    assert len(bomb) < 8 << 20
    before = victim.resident
    job = client.ended(client.create(("bomb.docx", bomb))["id"])
    assert job["state"] == "failed", job["files"]
    assert job["files"][0]["error"]["message"]
    assert victim.resident - before < 64 << 20


def test_billions_of_laughs(client: Client) -> None:
    entities = '<!ENTITY a0 "haha">' + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    document = word("&a9;").replace(b"<w:document", f"<!DOCTYPE x [{entities}]><w:document".encode(), 1)
    job = client.ended(client.create(("laughs.docx", docx(document)))["id"])
    text = ""
    if job["state"] == "completed":  # the entities are not expanded
        text = client.get(f"/v1/jobs/{job['id']}/result", params={"format": "md"}).text
    assert "hahahaha" not in text


def test_a_page_may_not_look_around(client: Client, victim: Victim, tmp_path: Path) -> None:
    """An HTML document that names files of the server and addresses behind it gets neither."""
    picture = b"\x89PNG\r\n\x1a\n" + b"\0" * 100
    (tmp_path / "private.png").write_bytes(picture)
    with socket.create_server(("127.0.0.1", 0)) as inside:
        inside.settimeout(0.5)
        sources = [
            f"file://{tmp_path}/private.png",
            f"{tmp_path}/private.png",
            "../../../keys.sqlite3",
            f"http://127.0.0.1:{inside.getsockname()[1]}/x.png",
        ]
        page = "<html><body><p>text</p>" + "".join(f'<img src="{source}">' for source in sources) + "</body></html>"
        job = client.ended(client.create(("page.html", page.encode()))["id"])
        with pytest.raises(TimeoutError):
            inside.accept()
    home = victim.process.data_dir / "jobs" / job["id"] / "output"
    assert [path for path in home.rglob("*") if path.suffix in (".png", ".sqlite3")] == []


def test_nothing_of_the_server_is_told(client: Client, victim: Victim) -> None:
    job = client.ended(client.create(("a.pdf", b"%PDF-1.7 nothing"), ("b.docx", b"PK\3\4"), ("c.xyz", b"?"))["id"])
    told = json.dumps(job)
    assert job["state"] == "failed"
    assert str(victim.process.data_dir) not in told
    assert "Traceback" not in told
    assert "site-packages" not in told


def test_methods_and_paths(client: Client) -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "BREW"):
        for path in (
            "/v1/jobs",
            "/v1/jobs/x",
            "/v1/jobs/%00",
            "/v1/jobs/" + "x" * 5000,
            "/%ff",
            "/v1/jobs/x/files/-1/a",
        ):
            answer: Any = client.request(method, path)
            assert answer.status_code < 500, (method, path)
    assert client.put("/v1/jobs").headers["Allow"] == "GET, POST"
