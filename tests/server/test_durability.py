"""What survives the end of the process, however it comes."""

from __future__ import annotations

import errno
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mineru_engine.server import intake
from mineru_engine.server.storage import Storage
from tests.server.serving import Process, Running, wait_until

SCAN = {"tier": "basic", "cache": "false"}


def test_after_kills_every_accepted_job_has_one_end(serve: Callable[..., Process], demo: Path) -> None:
    from benchmarks.server_kill import run

    report = run(
        serve("--concurrency", "2"),
        [demo / "contract.pdf", demo / "paper.pdf"],
        jobs=12,
        kills=3,
        seed=1,
        every=(0.2, 2.0),
    )
    assert (report.jobs, report.lost, report.twice) == (12, [], 0)
    assert report.results_per_job == {1: 12 - report.interrupted}


def test_with_attempts_enough_whatever_was_killed_is_done_in_the_end(serve: Callable[..., Process], demo: Path) -> None:
    from benchmarks.server_kill import run

    report = run(
        serve("--concurrency", "2", environ={"MINERU_SERVER_MAX_ATTEMPTS": "9"}),
        [demo / "contract.pdf"],
        jobs=6,
        kills=4,
        seed=2,
        every=(0.1, 1.0),
        max_attempts=9,
    )
    assert (report.states, report.results_per_job) == ({"completed": 6}, {1: 6})


def test_the_second_crash_ends_the_job_that_ran_each_time(serve: Callable[..., Process], demo: Path) -> None:
    server = serve().start()
    with server.client() as client:
        job = client.create(demo / "contract_scan.pdf", **SCAN)
        waiting = client.create(demo / "contract.pdf")
        for attempt in (1, 2):
            wait_until(lambda: client.job(job["id"])["state"] == "running")
            assert client.job(job["id"])["attempts"] == attempt
            server.kill()
            server.start()
        ended = client.ended(job["id"])
        assert ended["state"] == "failed"
        assert ended["error"]["code"] == ended["files"][0]["error"]["code"] == "job_interrupted"
        assert client.ended(waiting["id"])["state"] == "completed"


def test_a_signal_lets_running_jobs_end(serve: Callable[..., Process], demo: Path) -> None:
    server = serve("--grace", "60").start()
    with server.client() as client:
        job = client.create(demo / "contract_scan.pdf", **SCAN)
        waiting = client.create(demo / "contract.pdf")
        wait_until(lambda: client.job(job["id"])["state"] == "running")
        server.signal(signal.SIGTERM)
        refused = wait_until(
            lambda: answer if (answer := client.post_job(demo / "paper.pdf")).status_code == 503 else 0
        )
        assert refused.json()["error"]["code"] == "server_closing" and refused.headers["retry-after"]
        assert client.get("/ready").status_code == 503
        assert server.wait() == 0
        server.start()
        done = client.job(job["id"])
        assert (done["state"], done["attempts"]) == ("completed", 1)
        assert client.ended(waiting["id"])["state"] == "completed"


def test_the_grace_ends_and_a_second_signal_ends_it_at_once(serve: Callable[..., Process], demo: Path) -> None:
    for grace, signals in (("0.2", 1), ("600", 2)):
        server = serve("--grace", grace).start()
        with server.client() as client:
            job = client.create(demo / "contract_scan.pdf", **SCAN)
            wait_until(lambda client=client, job=job: client.job(job["id"])["state"] == "running")
            for _ in range(signals):
                server.signal(signal.SIGTERM)
                wait_until(lambda client=client: _closing(client))
            assert server.wait(30) == 0
            server.start()
            ended = client.ended(job["id"])
            assert (ended["state"], ended["attempts"]) == ("completed", 1)  # cut off, and run anew
        server.kill()


def _closing(client: object) -> bool:
    import httpx

    try:
        return client.get("/ready").status_code == 503  # type: ignore[attr-defined]
    except httpx.TransportError:
        return True


def test_half_received_uploads_and_half_written_results_are_gone(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "data")
    storage.open()
    (storage.new_upload() / "half.pdf").write_bytes(b"%PDF")
    partial = storage.root / "jobs" / "known" / "output" / ".mineru-0.partial"
    stranger = storage.root / "jobs" / "unknown" / "input"
    for path in (partial, stranger):
        path.mkdir(parents=True)
    storage.close()
    storage.open()
    storage.sweep({"known"})
    storage.close()
    assert not list(storage.incoming.iterdir())
    assert not partial.exists() and not stranger.parent.exists() and partial.parent.exists()


def test_one_server_at_a_time_uses_a_directory(serve: Callable[..., Process], tmp_path: Path) -> None:
    serve().start()
    second = serve()
    with pytest.raises(AssertionError, match="another server uses the data directory"):
        second.start()
    assert second.wait() == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_disk_that_really_is_full(
    serve: Callable[..., Process], small_disk: Path, small: Path, tmp_path: Path
) -> None:
    data, filler = tmp_path / "data", small_disk / "filler"
    (small_disk / "data").mkdir()
    data.symlink_to(small_disk / "data")  # the log, which is beside it, has room
    server = serve(environ={"MINERU_SERVER_MIN_FREE_MB": "0"}).start()

    def leave(free: int) -> None:
        filler.write_bytes(bytes(max(0, shutil.disk_usage(small_disk).free + filler.stat().st_size - free)))

    filler.touch()
    formats = ["md", "json", "html", "docx", "pdf", "epub"]
    with server.client() as client:
        leave(100 << 10)  # for the upload, not for the results
        failed = client.ended(client.create(small, formats=formats, cache="false")["id"])
        assert (failed["state"], failed["files"][0]["error"]["code"]) == ("failed", "disk_full")
        leave(0)
        refused = client.post_job(small)
        assert (refused.status_code, refused.json()["error"]["code"]) == (507, "disk_full")
        assert client.get(f"/v1/jobs/{failed['id']}").status_code == 200
        leave(4 << 20)
        assert client.ended(client.create(small, formats=formats, cache="false")["id"])["state"] == "completed"
    left = [path for path in data.rglob(".*") if path.is_dir()]
    assert not left
    server.signal(signal.SIGTERM)
    assert server.wait() == 0


def test_a_full_disk_is_an_error_of_the_job(
    serving: Callable[..., Running], small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mineru_engine import output

    with serving().client() as client:
        write, copy = output._write, intake._copy

        def full(*args: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device", "/secret/path")

        monkeypatch.setattr(output, "_write", full)
        failed = client.ended(client.create(small)["id"])
        assert failed["state"] == "failed"
        assert failed["files"][0]["error"]["code"] == "disk_full"
        monkeypatch.setattr(output, "_write", write)
        monkeypatch.setattr(intake, "_copy", full)
        refused = client.post_job(small)
        assert (refused.status_code, refused.json()["error"]["code"]) == (507, "disk_full")
        assert "secret" not in str(failed) + refused.text
        monkeypatch.setattr(intake, "_copy", copy)
        assert client.ended(client.create(small)["id"])["state"] == "completed"
