"""A benchmark in a process of its own: ``python -m mineru_cli.bench.child REPORT LABEL``.

The plan comes as one line of JSON on standard input, which stays open: when it is closed, the benchmark ends as after
Ctrl-C. Progress goes to standard error, each line with the label before it; the report goes to a file.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from mineru_cli.bench.live import Board
from mineru_cli.bench.modes import Interrupted, Stop
from mineru_cli.bench.plan import Plan
from mineru_cli.bench.report import save_report
from mineru_cli.bench.session import Hooks, measure
from mineru_cli.errors import reported
from mineru_cli.signals import interrupts

__all__ = ("main",)


def main(report: Path, label: str) -> int:
    """Measure; returns the exit code.

    :raises KeyboardInterrupt: if it was ended before anything was measured.
    """
    os.environ.setdefault("LOGURU_AUTOINIT", "0")
    plan = Plan.model_validate_json(sys.stdin.buffer.readline())
    stop = Stop()
    with interrupts() as signals, Board(label=label) as board:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
        hooks = Hooks(board, stop, ready=lambda: signals.cancels(stop.now))
        try:
            save_report(measure(plan, hooks), report)
        except Interrupted:
            raise KeyboardInterrupt from None
    return signals.exit_code


def _end_with_stdin() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    sys.exit(reported(main)(Path(sys.argv[1]), sys.argv[2]))
