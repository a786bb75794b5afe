"""The GPUs of this machine, for the report."""

from __future__ import annotations

from typing import Any

from mineru_cli.bench.report import Gpu
from mineru_engine.gpu import has_mig

__all__ = ("installed_gpus",)

_MIB = 1 << 20


def installed_gpus() -> tuple[list[Gpu], str | None]:
    """The GPUs that the driver shows, and the driver's version; nothing where there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return [], None
    try:
        count = int(pynvml.nvmlDeviceGetCount())
        return [_gpu(pynvml, pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)], _driver(pynvml)
    except pynvml.NVMLError:
        return [], _driver(pynvml)
    finally:
        pynvml.nvmlShutdown()


def _driver(nvml: Any) -> str | None:
    try:
        return str(nvml.nvmlSystemGetDriverVersion())
    except nvml.NVMLError:
        return None


def _gpu(nvml: Any, handle: Any) -> Gpu:
    return Gpu(
        name=str(nvml.nvmlDeviceGetName(handle)),
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        memory_mib=int(nvml.nvmlDeviceGetMemoryInfo(handle).total) // _MIB,
        mig=has_mig(nvml, handle),
    )
