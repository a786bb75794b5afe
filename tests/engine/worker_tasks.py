"""Tasks that misbehave, run inside worker processes by the tests."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any


def echo(value: Any) -> Any:
    return value


def pid() -> int:
    return os.getpid()


def sleep(seconds: float, mark: str | None = None) -> str:
    time.sleep(seconds)
    if mark is not None:
        Path(mark).write_text("finished")
    return "slept"


def spin_holding_gil() -> None:
    """A hang inside native code that never lets another Python thread run."""
    import re

    re.match(r"(a+)+$", "a" * 64 + "b")


def crash() -> None:
    os.kill(os.getpid(), 11)


def eat_memory(mib: int) -> int:
    hoard = [bytearray(b"x" * (1 << 20)) for _ in range(mib)]
    time.sleep(30)
    return len(hoard)


def chatter() -> str:
    """What a library prints must not end up in the protocol."""
    print("noise on stdout")
    os.write(1, b"raw noise on fd 1\n")
    print("noise on stderr", file=sys.stderr)
    return "clean"


def fail() -> None:
    raise ZeroDivisionError("on purpose")


def big(mib: int) -> str:
    return "x" * (mib << 20)
