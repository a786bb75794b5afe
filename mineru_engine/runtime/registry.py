"""Which runtime serves a call: one per process and effective configuration."""

from __future__ import annotations

import atexit
import os
import threading

from mineru_engine.errors import RuntimeStateError
from mineru_engine.runtime.runtime import Runtime, RuntimeState
from mineru_engine.settings import Settings, WorkerSettings

__all__ = ("get_runtime", "shutdown_cached_models")

_lock = threading.Lock()
_runtimes: dict[WorkerSettings, Runtime] = {}


def get_runtime(settings: Settings) -> Runtime:
    """The process's runtime for these settings, started if need be.

    After ``fork`` the child starts with an empty registry: threads and pipes do not survive a fork.
    """
    with _lock:
        runtime = _runtimes.get(settings.worker)
        if runtime is None or runtime.state is RuntimeState.CLOSED or runtime.pid != os.getpid():
            runtime = _runtimes[settings.worker] = Runtime(settings.worker)
        return runtime


def shutdown_cached_models() -> None:
    """End all worker processes, models and runtime threads of this process. The next call starts new ones."""
    with _lock:
        runtimes = {key: runtime for key, runtime in _runtimes.items() if runtime.pid == os.getpid()}
        _runtimes.clear()
    for key, runtime in runtimes.items():
        try:
            runtime.close()
        except RuntimeStateError:  # called from its own thread: it stays
            with _lock:
                _runtimes.setdefault(key, runtime)
            raise


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # the parent may have held it
    _runtimes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
# The workers and the temporary files must not outlive the process.
atexit.register(shutdown_cached_models)
