"""Where a benchmark ran. The doctor knows how to find most of it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from mineru_cli.bench.gpu import installed_gpus
from mineru_cli.bench.report import Machine
from mineru_engine.doctor import machine as doctor

__all__ = ("describe_machine", "load_average")

_CGROUP_2 = Path("/sys/fs/cgroup/cpu.max")
_CGROUP_1 = (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us"))
_MIB = 1 << 20


def describe_machine() -> Machine:
    """This machine, as far as it lets itself be seen."""
    (processor,), (memory,) = doctor.processor(), doctor.memory()
    total, limit = memory.details["total_bytes"], memory.details["container_limit_bytes"]
    gpus, driver = installed_gpus()
    return Machine(
        cpu=str(processor.details["model"]),
        cores_allowed=int(str(processor.details["usable_cores"])),
        memory_mib=int(str(total)) // _MIB,
        memory_limit_mib=None if limit is None else int(str(limit)) // _MIB,
        cpu_limit=_cpu_limit(),
        system=platform.platform(),
        python=platform.python_version(),
        gpus=gpus,
        driver=driver,
    )


def load_average() -> float | None:
    """Processes that wanted a core, over the last minute; ``None`` where the system does not count them."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def _cpu_limit() -> float | None:
    """Cores that the container was granted; ``None`` without a limit."""
    try:
        quota, period = _CGROUP_2.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        try:
            quota, period = (path.read_text(encoding="ascii").strip() for path in _CGROUP_1)
        except OSError:
            return None
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None
