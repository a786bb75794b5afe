"""One model call at a time on a device, whichever engine makes it."""

from __future__ import annotations

import os
import threading

__all__ = ("device_lock",)

_locks: dict[str, threading.Lock] = {}


def device_lock(device: str) -> threading.Lock:
    """The process's lock of a device.

    Two models that share a device would only slow each other down and need their memory at the same moment. Only
    threads that run a model take it, for one call at a time; it is never held across an ``await``. After ``fork``
    the child has fresh locks.

    :param device: as ``cpu``, ``cuda:0`` or ``mps``; two spellings of a device are two locks.
    """
    return _locks.setdefault(device, threading.Lock())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_locks.clear)  # the parent may have held them
