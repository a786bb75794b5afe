"""Servers to test against: an application under uvicorn in a thread, and ``mineru serve`` as a process."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

__all__ = ("Client", "Process", "Running", "free_port", "wait_until")

WAIT_S = 60.0


def wait_until(condition: Callable[[], Any], timeout_s: float = WAIT_S) -> Any:
    """The first true value of ``condition``; fails the test if there is none in time."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)
    return value


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Client(httpx.Client):
    """An HTTP client of one server, with the native API's usual calls."""

    def create(
        self, *documents: Path | tuple[str, bytes], headers: dict[str, str] | None = None, **options: Any
    ) -> Any:
        """Create a job and return its view; options default to tier ``flash``."""
        answer = self.post_job(*documents, headers=headers, **options)
        assert answer.status_code in (200, 202), answer.text
        return answer.json()

    def post_job(
        self, *documents: Path | tuple[str, bytes], headers: dict[str, str] | None = None, **options: Any
    ) -> httpx.Response:
        """The answer to a request for a job."""
        pairs = [(item.name, item.read_bytes()) if isinstance(item, Path) else item for item in documents]
        files = [("files", pair) for pair in pairs]
        return self.post("/v1/jobs", files=files, data={"tier": "flash", **options}, headers=headers)

    def job(self, job_id: str) -> Any:
        """A job's view."""
        answer = self.get(f"/v1/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ended(self, job_id: str) -> Any:
        """A job's view once it has ended."""
        return wait_until(lambda: job if (job := self.job(job_id))["state"] not in ("queued", "running") else None)


class _Quiet(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the main thread's."""
        yield


class Running:
    """An application under uvicorn, in a thread of its own; a context manager.

    :ivar url: where it listens.
    """

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = _Quiet(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})

    def __enter__(self) -> Running:
        self._thread.start()
        wait_until(lambda: self._server.started or not self._thread.is_alive())
        assert self._server.started, "the application did not start"
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def client(self, **kwargs: Any) -> Client:
        """A client of it; close it."""
        return Client(base_url=self.url, timeout=WAIT_S, trust_env=False, **kwargs)


class Process:
    """``mineru serve`` on one data directory and port, which can be killed and started again.

    :param arguments: further ones, as ``--grace``.
    """

    def __init__(self, data_dir: Path, *arguments: str, environ: dict[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self.log = data_dir.parent / f"{data_dir.name}.log"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, "-m", "mineru_cli", "serve", "--port", str(self.port)]
        self._command += ["--data-dir", str(data_dir), *arguments]
        self._environ = {**os.environ, **(environ or {})}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Process:
        """Start it and wait until it answers."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, env=self._environ, stdout=log, stderr=log)
        wait_until(self._answers)
        return self

    def _answers(self) -> bool:
        assert self.process is not None and self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, timeout_s: float = WAIT_S) -> int:
        """Its exit status."""
        assert self.process is not None
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """``kill -9``; its workers notice by themselves."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> None:
        """End it, whatever it does."""
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def client(self, **kwargs: Any) -> Client:
        """A client of it; close it."""
        return Client(base_url=self.url, timeout=WAIT_S, trust_env=False, **kwargs)
