"""What vLLM's engine processes run in place of the caller's script; see :func:`mineru_engine.vlm.vllm._own_main`."""

from __future__ import annotations

import os
import signal
import threading
import time

_POLL_S = 1.0


def _end_with(parent: int) -> None:
    """vLLM's engine would outlive a parent that is killed, and keep the GPU's memory."""
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__mp_main__":
    os.dup2(2, 1)  # standard output is for our results; native libraries of vLLM's write to it
    # Ctrl-C reaches the whole process group; the parent decides when the engine ends.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with, args=(os.getppid(),), name="mineru-parent", daemon=True).start()
