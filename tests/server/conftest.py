"""Fixtures of the server's tests; what they start is in serving.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mineru_engine.server.app import create_app
from mineru_engine.settings import Settings
from tests.server.serving import Client, Process, Running


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts ``create_app`` under uvicorn: ``serving()``, ``serving(settings={"server.queue_limit": 3})``."""
    with ExitStack() as stack:

        def start(settings: dict[str, Any] | None = None, *, data_dir: Path | None = None, **kwargs: Any) -> Running:
            loaded = Settings.load(environ={}, overrides=settings)
            return stack.enter_context(Running(create_app(loaded, data_dir=data_dir or tmp_path / "data", **kwargs)))

        yield start


@pytest.fixture
def server(serving: Callable[..., Running]) -> Running:
    """A running application with the default settings."""
    return serving()


@pytest.fixture
def client(server: Running) -> Iterator[Client]:
    """A client of it."""
    with server.client() as client:
        yield client


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """``mineru serve`` as a process, not yet started: ``serve("--grace", "5").start()``."""
    made: list[Process] = []

    def make(*arguments: str, data_dir: Path | None = None, environ: dict[str, str] | None = None) -> Process:
        made.append(Process(data_dir or tmp_path / "data", *arguments, environ=environ))
        return made[-1]

    yield make
    for process in made:
        process.stop()


@pytest.fixture(scope="session")
def small(demo: Path) -> Path:
    """A document that tier ``flash`` reads in a moment."""
    return demo / "contract.pdf"
