"""Versions of the parts that make a result what it is."""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, version

from mineru_engine.version import __version__

__all__ = ("installed_versions",)

_DISTRIBUTIONS = ("docvortex", "pypdfium2", "rapidocr", "onnxruntime", "mineru-vl-utils")


@functools.cache
def _cached() -> tuple[tuple[str, str], ...]:
    found = [("mineru", __version__)]
    for name in _DISTRIBUTIONS:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return tuple(found)


def installed_versions() -> dict[str, str]:
    """Distribution name → version."""
    return dict(_cached())
