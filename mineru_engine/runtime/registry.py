"""Which runtime serves a call, and who keeps it alive.

There is one runtime for each effective configuration of the process. It lives as long as somebody holds a lease on
it: an application (a server) its own, everybody else the process's. The last lease to go closes it.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mineru_engine.errors import ErrorCode, RuntimeStateError
from mineru_engine.runtime.loop import reentered
from mineru_engine.runtime.runtime import Runtime
from mineru_engine.settings import WorkerSettings

if TYPE_CHECKING:
    from mineru_engine.vlm.config import VlmConfig
    from mineru_engine.vlm.engine import VlmEngine
    from mineru_engine.workers.pool import WorkerPool

__all__ = ("Lease", "process_lease", "runtimes", "shutdown_cached_models")

Key = tuple[WorkerSettings, "VlmConfig | None"]

_lock = threading.Lock()
_runtimes: dict[Key, Runtime] = {}
_leases: set[Lease] = set()


class Lease:
    """One application's hold on the runtimes it uses; a context manager.

    Closing it closes the runtimes that nobody else holds and leaves the others alone.
    """

    def __init__(self, name: str = "application") -> None:
        self.name = name
        self._keys: set[Key] = set()
        self._open = True
        with _lock:
            _leases.add(self)

    def __repr__(self) -> str:
        return f"<Lease {self.name!r} {'open' if self._open else 'closed'} runtimes={len(self._keys)}>"

    def runtime(
        self, workers: WorkerSettings, vlm: VlmConfig | None, make_engine: Callable[[WorkerPool], VlmEngine] | None
    ) -> Runtime:
        """The runtime of a configuration, made if need be; a dead one is replaced.

        Without a model any runtime with the same workers will do.

        :raises RuntimeStateError: if the lease is closed.
        """
        with _lock:
            if not self._open:
                raise RuntimeStateError(f"the lease {self.name!r} is closed", code=ErrorCode.RUNTIME_CLOSED)
            key = _find(workers, vlm)
            if key is None:
                key = (workers, vlm)
                _runtimes[key] = Runtime(workers, make_engine)
            self._keys.add(key)
            return _runtimes[key]

    def runtimes(self) -> list[Runtime]:
        """The runtimes that it holds and that were not closed."""
        with _lock:
            return [_runtimes[key] for key in self._keys if key in _runtimes]

    def close(self) -> None:
        """Let go of everything. Safe to call twice.

        :raises RuntimeStateError: if called from the thread of a runtime that would have to be closed.
        """
        for runtime in self._release(for_good=True):
            runtime.close()

    async def aclose(self) -> None:
        """:meth:`close` without blocking the caller's loop."""
        for runtime in self._release(for_good=True):
            await runtime.aclose()

    def _release(self, *, for_good: bool) -> list[Runtime]:
        """Give up all keys; returns the runtimes that are nobody's now."""
        with _lock:
            held_by_others = {key for lease in _leases if lease is not self for key in lease._keys}
            mine = [key for key in self._keys - held_by_others if key in _runtimes]
            ending = [runtime for key in mine if (runtime := _runtimes[key]).pid == os.getpid()]
            if any(runtime.is_own_thread() for runtime in ending):
                raise reentered()
            for key in mine:
                del _runtimes[key]
            self._keys.clear()
            if for_good:
                self._open = False
                _leases.discard(self)
        return ending

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _find(workers: WorkerSettings, vlm: VlmConfig | None) -> Key | None:
    """Key of a usable runtime; those that are not are forgotten."""
    for key in [key for key, runtime in _runtimes.items() if not runtime.usable]:
        del _runtimes[key]
    if vlm is not None:
        return (workers, vlm) if (workers, vlm) in _runtimes else None
    return next((key for key in _runtimes if key[0] == workers), None)


_process = Lease("process")


def process_lease() -> Lease:
    """The lease of calls that bring none of their own."""
    return _process


def runtimes() -> list[Runtime]:
    """All runtimes of this process that are in use or could be."""
    with _lock:
        return [runtime for runtime in _runtimes.values() if runtime.usable]


def shutdown_cached_models() -> None:
    """End the models, workers and threads that stand-alone calls use. The next call starts new ones.

    Runtimes that an application holds by a lease of its own go on.
    """
    for runtime in _process._release(for_good=False):
        runtime.close()


def _after_fork() -> None:
    """Threads and pipes do not survive a fork: the child starts with nothing."""
    global _lock
    _lock = threading.Lock()  # the parent may have held it
    _runtimes.clear()
    for lease in _leases:
        lease._keys.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
# The workers and the temporary files must not outlive the process.
atexit.register(shutdown_cached_models)
