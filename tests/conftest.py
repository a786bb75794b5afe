"""Fixtures of the whole suite."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT.parent / "shared" / "samples"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test sees the settings of the machine it runs on."""
    for name in list(os.environ):
        if name.startswith("MINERU_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "config"))


@pytest.fixture(scope="session", autouse=True)
def _no_leftovers() -> Iterator[None]:
    """The suite ends without worker processes."""
    yield
    from mineru_engine import shutdown_cached_models

    shutdown_cached_models()


@pytest.fixture(scope="session")
def demo() -> Path:
    """Our own sample documents."""
    return ROOT / "demo"


@pytest.fixture(scope="session")
def samples() -> Path:
    """Public documents; the test is skipped where they are not present."""
    if not SAMPLES.is_dir():
        pytest.skip("the public sample documents are not here")
    return SAMPLES
