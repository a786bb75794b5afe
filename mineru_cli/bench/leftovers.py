"""What there is of a process and its runtimes at a moment: counted before and after a cancel, to see what it left."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from mineru_engine.runtime.registry import runtimes

if TYPE_CHECKING:
    from mineru_engine.runtime.runtime import Resources

__all__ = ("Present", "look", "runtime_tasks", "scratch_directory")


@dataclass(frozen=True, slots=True)
class Present:
    """Counts; ``None`` is what cannot be seen.

    :ivar requests: in flight or queued at engines.
    :ivar tasks: on this loop and on those of the runtimes.
    :ivar fds: file descriptors that are no TCP connections.
    :ivar files: temporary ones.
    """

    requests: int | None
    tasks: int
    threads: int
    fds: int | None
    files: int


async def look(scratch: Path) -> Present:
    """Count.

    :param scratch: see :func:`scratch_directory`.
    """
    gc.collect()
    me = psutil.Process()
    engines = [engine for runtime in runtimes() if (engine := runtime.statistics().engine) is not None]
    return Present(
        requests=sum(engine.in_flight + engine.queued for engine in engines) if engines else None,
        tasks=len(asyncio.all_tasks()) + sum([await runtime.arun(runtime_tasks) for runtime in runtimes()]),
        threads=threading.active_count(),
        fds=_descriptors(me),
        files=_files(scratch),
    )


def _descriptors(process: psutil.Process) -> int | None:
    """Without TCP connections: how many an engine's pool keeps open depends on the moment of the cancel."""
    if not hasattr(process, "num_fds"):  # Windows
        return None
    return int(process.num_fds()) - len(process.net_connections(kind="tcp"))


def _files(directory: Path) -> int:
    return sum(1 for path in directory.rglob("*") if path.is_file())


async def runtime_tasks(resources: Resources) -> int:
    """Tasks on the runtime's loop, without this one and those that read the messages of a worker."""
    return len(asyncio.all_tasks()) - 1 - len(resources.pool.pids())


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Where this process and its workers put temporary files for now, so that what is left can be counted."""
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(prefix="mineru-bench-", ignore_cleanup_errors=True) as name:
        tempfile.tempdir = os.environ["TMPDIR"] = name
        try:
            yield Path(name)
        finally:
            tempfile.tempdir = before[0]
            del os.environ["TMPDIR"]
            os.environ.update({"TMPDIR": before[1]} if before[1] is not None else {})
