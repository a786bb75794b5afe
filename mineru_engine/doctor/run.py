"""All checks, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from mineru_engine.doctor import machine, packages, vlm, weights
from mineru_engine.doctor.finding import Finding, Level
from mineru_engine.settings import Settings

__all__ = ("examine",)


def examine(settings: Settings, output: Path) -> Iterator[Finding]:
    """Check the installation; findings come one by one, since some take seconds.

    :param output: a directory on the disk whose free space matters.
    """
    checks: list[Callable[[], Iterator[Finding]]] = [
        packages.python,
        packages.required,
        packages.optional,
        packages.opencv,
        packages.models,
        machine.processor,
        machine.memory,
        lambda: machine.disk(output),
        machine.gpus,
        lambda: machine.worker(settings),
        lambda: vlm.server(settings.model.vlm),
        lambda: weights.local_model(settings.model.vlm.model),
    ]
    for check in checks:
        try:
            yield from check()
        except Exception as exc:  # noqa: BLE001 - a failing check is a finding, and the others still run
            name = getattr(check, "__name__", "check")
            yield Finding(name.strip("<>"), Level.BROKEN, f"the check itself failed: {type(exc).__name__}: {exc}")
