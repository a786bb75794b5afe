"""A worker process: runs one task at a time until its parent closes the pipe.

The process is started by command, never by importing the caller's main module, so scripts without a
main guard, notebooks and servers can all use it. It ends by itself when the parent is gone.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from mineru_engine.errors import ErrorCode, MineruError
from mineru_engine.workers.protocol import decode, encode, read_frame_blocking, valid_unicode

__all__ = ("main",)

_NICE = 5
_WARM_MODULES = ("mineru_engine.pdf.tasks", "docvortex.analyzers.native.pdf.pipeline")


def _step_back() -> None:
    """Let the process that asks go first: what it does between two tasks is short, and others wait for it."""
    if hasattr(os, "nice"):
        os.nice(_NICE)
    with contextlib.suppress(OSError):  # Linux may weigh sessions, of which a worker is one, before processes
        Path("/proc/self/autogroup").write_text(str(_NICE))


def main() -> None:
    """Serve tasks from standard input until it closes."""
    _step_back()
    source, sink = _take_protocol_pipes()
    _quiet_libraries()
    inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(source, inbox), name="mineru-worker-reader", daemon=True).start()
    _warm(inbox)
    _tune_garbage_collector()
    while True:
        message = inbox.get()
        if message.get("drop"):
            _drop(message["drop"])
        if "task" in message:
            sink.write(_encode(_answer(message)))
            sink.flush()


def _encode(reply: dict[str, Any]) -> bytes:
    """A reply that can be written as UTF-8 later on, whatever strings the document holds."""
    try:
        return encode(reply, strict=True)
    except TypeError:
        return encode(valid_unicode(reply))


def _take_protocol_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Keep the pipes for ourselves: whatever a library prints goes to stderr instead of into a frame."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return source, sink


def _read(source: BinaryIO, inbox: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Pass messages on; leave at once when the parent is gone, whatever the main thread is doing."""
    while (body := read_frame_blocking(source)) is not None:
        inbox.put(decode(body))
    os._exit(0)


def _warm(inbox: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Import what most tasks need while there is nothing else to do."""
    for name in _WARM_MODULES:
        if inbox.empty():
            importlib.import_module(name)


def _tune_garbage_collector() -> None:
    """Native analysis makes millions of short-lived objects: collecting after every 700 costs a sixth of its time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def _quiet_libraries() -> None:
    """Only warnings of our own reach stderr; the libraries' chatter would fill the parent's log."""
    import logging
    import warnings

    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("pypdfium2").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")


def _drop(keys: list[str]) -> None:
    module = sys.modules.get("mineru_engine.pdf.source")
    if module is not None:
        module.forget(keys)


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    reply: dict[str, Any] = {"id": message["id"]}
    try:
        reply["value"] = _resolve(message["task"])(**message["args"])
    except MineruError as exc:
        reply["error"] = exc.to_dict()
    except MemoryError:
        reply["error"] = MineruError("the worker ran out of memory", code=ErrorCode.WORKER_CRASHED).to_dict()
    except Exception as exc:  # noqa: BLE001 - the border of the process: everything becomes a typed error
        traceback.print_exc()
        reply["error"] = MineruError(f"{type(exc).__name__}: {exc}"[:500]).to_dict()
    reply["seconds"] = time.perf_counter() - started
    return reply


def _resolve(task: str) -> Callable[..., Any]:
    module, _, name = task.partition(":")
    return cast("Callable[..., Any]", getattr(importlib.import_module(module), name))
