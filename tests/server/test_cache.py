"""The same document with the same options is parsed once: by this server, after its restart, and by its siblings."""

from __future__ import annotations

import logging
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mineru_engine.errors import OptionError
from mineru_engine.manifest import MANIFEST_NAME
from mineru_engine.server.copies import link_result, pack_result, unpack_result
from mineru_engine.server.shared_cache import SharedCache
from tests.server.serving import Client, Running, free_port, wait_until


def parsed(client: Client, *documents: Path, **options: Any) -> Any:
    return client.ended(client.create(*documents, **options)["id"])


def cached(job: Any) -> bool:
    assert job["state"] == "completed"
    return bool(job["files"][0]["cached"])


def markdown(client: Client, job: Any) -> str:
    return client.get(job["links"]["result"], params={"format": "md"}).text


def test_only_the_same_again_is_not_parsed(client: Client, demo: Path) -> None:
    paper = demo / "paper.pdf"
    first = parsed(client, paper)
    assert not cached(first)
    second = parsed(client, paper)
    assert cached(second)
    assert markdown(client, second) == markdown(client, first)
    differing: list[dict[str, Any]] = [{"pages": "1"}, {"formats": "md,html"}, {"ocr_mode": "txt"}]
    for options in differing:
        assert not cached(parsed(client, paper, **options))
    assert not cached(parsed(client, demo / "contract.pdf"))
    client.delete(first["links"]["self"])  # what was linked from it stays
    assert len(markdown(client, second)) > 500
    assert cached(parsed(client, paper))


def test_a_request_can_ask_for_a_fresh_result(client: Client, small: Path) -> None:
    parsed(client, small)
    assert not cached(parsed(client, small, cache="false"))
    assert not cached(parsed(client, small, headers={"Cache-Control": "no-cache"}))
    assert cached(parsed(client, small))


def test_a_result_is_found_again_after_a_restart_until_its_job_is_gone(
    serving: Callable[..., Running], small: Path, tmp_path: Path
) -> None:
    from mineru_engine.server.app import create_app
    from mineru_engine.settings import Settings

    def start() -> Running:
        return Running(create_app(Settings.load(environ={}), data_dir=tmp_path / "data"))

    with start() as server, server.client() as client:
        first = parsed(client, small)
    with start() as server, server.client() as client:
        second = parsed(client, small)
        assert cached(second)
        assert second["files"][0]["pages_done"] == first["files"][0]["pages_done"] > 0
        for job in (first, second):
            client.delete(job["links"]["self"])
    with start() as server, server.client() as client:
        assert not cached(parsed(client, small))


def test_memory_forgets_though_nobody_asks(serving: Callable[..., Running], small: Path) -> None:
    server = serving({"server.cache_ttl": 0.2})
    with server.client() as client:
        for name in ("a.pdf", "b.pdf", "c.pdf"):
            client.ended(client.create((name, small.read_bytes()), cache="false")["id"])
            time.sleep(0.3)
    assert len(server.app.state.service.cache._recent) == 1


def test_no_ttl_is_no_cache(serving: Callable[..., Running], small: Path) -> None:
    with serving({"server.cache_ttl": 0}).client() as client:
        assert not cached(parsed(client, small))
        assert not cached(parsed(client, small))


def a_result(directory: Path) -> Path:
    from mineru_engine.manifest import FileRecord, Manifest

    (directory / "images").mkdir(parents=True)
    records = []
    for name, content in (("x.md", b"text" * 100), ("images/a.jpg", bytes(range(256)))):
        from hashlib import sha256

        (directory / name).write_bytes(content)
        records.append(FileRecord(name, len(content), sha256(content).hexdigest()))
    (directory / MANIFEST_NAME).write_bytes(Manifest("x.pdf", status="success", files=records).to_bytes())
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_copy_is_whole_or_not_there(tmp_path: Path) -> None:
    source = a_result(tmp_path / "source")
    assert link_result(source, tmp_path / "new" / "linked")
    assert contents(tmp_path / "new" / "linked") == contents(source)
    payload = pack_result(source, {"tier": "flash"}, 1 << 20)
    assert payload is not None
    assert unpack_result(payload, tmp_path / "new" / "unpacked") == {"tier": "flash"}
    assert contents(tmp_path / "new" / "unpacked") == contents(source)
    assert pack_result(source, {}, 10) is None

    (source / "images" / "a.jpg").unlink()  # it is being deleted this moment
    assert not link_result(source, tmp_path / "other" / "linked")
    assert pack_result(source, {}, 1 << 20) is None
    assert not any((tmp_path / "other").iterdir())


def test_what_was_tampered_with_is_not_taken(tmp_path: Path) -> None:
    import zipfile
    from io import BytesIO

    import orjson

    source = a_result(tmp_path / "source")
    payload = pack_result(source, {}, 1 << 20)
    assert payload is not None
    with zipfile.ZipFile(BytesIO(payload)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}

    def changed(**values: bytes) -> bytes:
        buffer = BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, content in (entries | {name.replace("__", "/"): value for name, value in values.items()}).items():
                archive.writestr(name, content)
        return buffer.getvalue()

    manifest = orjson.loads(entries[f"result/{MANIFEST_NAME}"])
    manifest["files"][0]["path"] = "../../escaped.md"
    wrong = [
        b"",
        b"garbage" * 1000,
        payload[: len(payload) // 2],
        changed(**{"result__x.md": b"other"}),
        changed(**{f"result__{MANIFEST_NAME}": b"{}"}),
        changed(**{f"result__{MANIFEST_NAME}": orjson.dumps(manifest), "result__../../escaped.md": b"text" * 100}),
        changed(**{"facts.json": b"{"}),
    ]
    for number, bad in enumerate(wrong):
        with pytest.raises(Exception):  # noqa: B017 - of whatever kind
            unpack_result(bad, tmp_path / "out" / str(number))
    assert not [path for path in tmp_path.rglob("*") if "escaped" in path.name]
    assert not any((tmp_path / "out").iterdir())


class RedisServer:
    """A real redis-server of our own."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._directory = directory
        self.start()

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self.process = subprocess.Popen(
            [*command, "--appendonly", "no", "--dir", str(self._directory)], stdout=subprocess.DEVNULL
        )
        wait_until(self._answers)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server here")
    server = RedisServer(tmp_path)
    yield server
    server.kill()


def test_servers_share_results_in_redis(
    redis_server: RedisServer, serving: Callable[..., Running], demo: Path, tmp_path: Path
) -> None:
    import redis

    settings = {"server.cache_url": redis_server.url, "server.cache_ttl": 50}
    one, two = (serving(settings, data_dir=tmp_path / name) for name in ("one", "two"))
    with one.client() as first, two.client() as second, redis.Redis(port=redis_server.port) as store:
        made = parsed(first, demo / "report.pdf")
        assert not cached(made)
        (key,) = store.keys("*")
        assert 0 < store.ttl(key) <= 50
        got = parsed(second, demo / "report.pdf")
        assert cached(got)
        assert markdown(second, got) == markdown(first, made)
        assert second.get(got["links"]["result"], params={"format": "zip"}).status_code == 200
        names = ("tier", "engine", "pages_done", "diagnostics", "sha256")
        assert [got["files"][0][name] for name in names] == [made["files"][0][name] for name in names]


def test_no_trouble_of_redis_ends_a_job(
    redis_server: RedisServer,
    serving: Callable[..., Running],
    demo: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    import redis

    caplog.set_level(logging.WARNING)
    server = serving({"server.cache_url": redis_server.url})
    with server.client() as client, redis.Redis(port=redis_server.port) as store:
        parsed(client, demo / "contract.pdf")
        (key,) = store.keys("*")
        store.set(key, b"garbage")
        assert parsed(client, demo / "contract.pdf")["state"] == "completed"
        assert sum("no result" in record.message for record in caplog.records) == 1
        store.delete(key)
        store.rpush(key, "a list")
        assert parsed(client, demo / "contract.pdf")["state"] == "completed"

        redis_server.kill()
        for pages in ("1", "2", "1-2"):
            assert not cached(parsed(client, demo / "contract.pdf", pages=pages))
        assert cached(parsed(client, demo / "contract.pdf", pages="1"))  # our own levels still work
        assert sum("left alone" in record.message for record in caplog.records) == 1


def test_a_slow_redis_is_not_waited_for(
    serving: Callable[..., Running], small: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mineru_engine.server import shared_cache

    monkeypatch.setattr(shared_cache, "_DEADLINE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        url = f"redis://:canary@127.0.0.1:{silent.getsockname()[1]}/0"
        with serving({"server.cache_url": url}).client() as client:
            for pages in ("1", "2"):
                assert parsed(client, small, pages=pages)["state"] == "completed"
    told = [record.getMessage() for record in caplog.records if "left alone" in record.message]
    assert len(told) == 1
    assert "canary" not in caplog.text


def test_an_address_that_is_none_is_refused_without_telling_it() -> None:
    with pytest.raises(OptionError, match="not an address") as caught:
        SharedCache("http://user:canary@host")
    assert "canary" not in str(caught.value.to_dict())
