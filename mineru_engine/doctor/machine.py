"""Processor, memory, disk, GPU, and whether a worker process starts."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mineru_engine.doctor.finding import Finding, Level
from mineru_engine.settings import Settings
from mineru_engine.workers.pool import usable_cores

__all__ = ("disk", "gpus", "memory", "processor", "worker")

_GIB = 1 << 30
_LITTLE_MEMORY_GIB = 2.0
_LITTLE_DISK_GIB = 1.0
_WORKER_DEADLINE_S = 60.0


def processor() -> Iterator[Finding]:
    """Cores this process may use."""
    usable, total = usable_cores(), os.cpu_count() or 1
    details = {"usable_cores": usable, "cores": total, "machine": platform.machine(), "model": _processor_model()}
    yield Finding("processor", Level.OK, f"{usable} of {total} cores usable, {details['model']}", details=details)


def _processor_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def memory() -> Iterator[Finding]:
    """Memory, and the limit of the container if there is one."""
    import psutil

    state = psutil.virtual_memory()
    limit = _container_limit()
    total = min(state.total, limit) if limit else state.total
    free = min(state.available, total)
    details = {"total_bytes": total, "available_bytes": free, "container_limit_bytes": limit}
    message = f"{free / _GIB:.1f} GiB of {total / _GIB:.1f} GiB available"
    if free < _LITTLE_MEMORY_GIB * _GIB:
        hint = "set worker.processes = 1 in mineru.toml, or MINERU_WORKER_PROCESSES=1"
        yield Finding("memory", Level.WARNING, message, hint, details)
        return
    yield Finding("memory", Level.OK, message, details=details)


def _container_limit() -> int | None:
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < 1 << 60:
            return int(text)
    return None


def disk(directory: Path) -> Iterator[Finding]:
    """Free space for results and for temporary files."""
    import tempfile

    for subject, place in (("disk", directory.absolute()), ("temporary disk", Path(tempfile.gettempdir()))):
        here = next(path for path in (place, *place.parents) if path.exists())
        free = shutil.disk_usage(here).free
        details = {"directory": str(here), "free_bytes": free}
        little = free < _LITTLE_DISK_GIB * _GIB
        hint = f"free some space below {here}" if little else None
        message = f"{free / _GIB:.1f} GiB free at {here}"
        yield Finding(subject, Level.WARNING if little else Level.OK, message, hint, details)


def gpus() -> Iterator[Finding]:
    """NVIDIA devices as the driver's management library sees them."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as exc:
        message = "no GPU (no NVIDIA driver found); tiers flash and basic need none"
        yield Finding("gpu", Level.NOTE, message, details={"reason": str(exc), "devices": []})
        return
    try:
        yield from _devices(pynvml)
    finally:
        pynvml.nvmlShutdown()


def _devices(nvml: Any) -> Iterator[Finding]:
    count = int(nvml.nvmlDeviceGetCount())
    driver = _text(nvml.nvmlSystemGetDriverVersion())
    cuda = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
    versions = {"driver": driver, "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}"}
    if count == 0:
        yield Finding("gpu", Level.NOTE, f"no GPU (driver {driver} is there, but no device)", details=versions)
        return
    for index in range(count):
        facts = versions | _device(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
        speed = facts["bandwidth_gb_s"]
        message = (
            f"{facts['name']}, {int(facts['memory_bytes']) / _GIB:.0f} GiB, "
            f"{'bandwidth unknown' if speed is None else f'{speed:.0f} GB/s'}, driver {driver}, CUDA {versions['cuda']}"
        )
        yield Finding(f"gpu {index}", Level.OK, message, details=facts)


def _device(nvml: Any, handle: Any) -> dict[str, Any]:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    facts: dict[str, Any] = {
        "name": _text(nvml.nvmlDeviceGetName(handle)),
        "memory_bytes": int(memory.total),
        "free_bytes": int(memory.free),
        "bandwidth_gb_s": None,
    }
    try:
        bits = int(nvml.nvmlDeviceGetMemoryBusWidth(handle))
        megahertz = int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM))
    except nvml.NVMLError:
        return facts
    # Peak: two transfers a clock, the bus width in bytes each.
    bandwidth = 2 * megahertz * 1e6 * bits / 8 / 1e9
    return facts | {"bus_width_bits": bits, "memory_clock_mhz": megahertz, "bandwidth_gb_s": round(bandwidth, 1)}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def worker(settings: Settings) -> Iterator[Finding]:
    """Start a worker process of our own, give it a task, and end it."""
    import asyncio
    import time

    import psutil

    from mineru_engine.errors import MineruError
    from mineru_engine.workers.pool import WorkerPool

    async def ask() -> object:
        pool = WorkerPool(settings.worker)
        try:
            return await pool.run("platform:python_version", {}, deadline_s=_WORKER_DEADLINE_S)
        finally:
            await pool.aclose()

    started = time.perf_counter()
    try:
        asyncio.run(ask())
    except (MineruError, OSError, psutil.Error) as exc:
        hint = "worker processes run `python -m mineru_engine.workers`; see whether that starts here"
        yield Finding("worker process", Level.BROKEN, f"does not work: {exc}", hint)
        return
    seconds = time.perf_counter() - started
    yield Finding("worker process", Level.OK, f"starts and answers in {seconds:.1f} s", details={"seconds": seconds})
