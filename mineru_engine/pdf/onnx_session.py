"""ONNX Runtime sessions for the small CPU models that a worker process keeps loaded."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnxruntime


@functools.cache
def open_session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    """Load a model once per process and thread count.

    :param path: model file; never fetched from anywhere.
    :param threads: intra-op threads. Workers share the cores, so the caller decides.
    """
    import cv2
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = max(1, threads)
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # Idle threads must not burn the core that another worker could use.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Inputs change size from page to page: an arena would keep the largest of every shape for ever.
    options.enable_cpu_mem_arena = False
    cv2.setNumThreads(max(1, threads))
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
