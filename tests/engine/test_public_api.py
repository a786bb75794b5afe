"""What the packages export is what they say."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import mineru_cli
import mineru_engine


def test_the_public_names_are_sorted_and_real() -> None:
    assert list(mineru_engine.__all__) == sorted(mineru_engine.__all__)
    for name in mineru_engine.__all__:
        assert getattr(mineru_engine, name) is not None


MODULES = [
    info.name
    for package in (mineru_engine, mineru_cli)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not info.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_exports(name: str) -> None:
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", ())
    assert all(hasattr(module, item) for item in exported)


def test_importing_the_engine_is_light() -> None:
    code = "import sys, mineru_engine; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "onnxruntime", "cv2", "torch", "PIL", "docvortex", "httpx", "rich"} & set(loaded)
