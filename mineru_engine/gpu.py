"""Memory of a process tree on NVIDIA GPUs, and how busy they are, as the driver's management library (NVML) tells.

The driver lists processes by their numbers; which numbers it uses, and what it tells, depends on container, MIG,
driver and permissions. Where the memory of our processes is not known for sure there is no figure, but a reason.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

__all__ = ("GpuProbe", "has_mig", "in_container")

_INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO of Linux: the same number on every host
_MIB = 1 << 20

_CONTAINER = (
    "the driver lists processes by the host's numbers, and this container has its own; "
    "start it in the host's PID namespace to see them"
)
_SERVER = "the engine is a server; its memory is not that of our processes"
_NO_FIGURES = "the driver tells no memory of single processes here"


class GpuProbe:
    """Looks at the GPUs; a context manager. Every look may come from another thread, one at a time.

    :param served: the engine is a server: then there is nothing of ours on a GPU.
    :ivar reason: why there is no figure of the memory; ``None`` if there is one.
    """

    def __init__(self, *, served: bool = False) -> None:
        self.reason: str | None = _SERVER if served else None
        self._served = served
        self._nvml: Any = None
        self._devices: list[_Device] = []
        self._strangers: set[int] = set()

    def __enter__(self) -> Self:
        if self._served:
            return self
        import pynvml

        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as exc:
            self.reason = _no_driver(pynvml, exc)
            return self
        self._nvml = pynvml
        try:
            self._devices = list(_devices(pynvml))
        except pynvml.NVMLError as exc:
            self.reason = f"the driver does not list its devices: {exc}"
        else:
            self.reason = None if self._devices else "no GPU"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._nvml is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
            self._nvml, self._devices = None, []

    def look(self, pids: set[int]) -> tuple[float | None, float | None]:
        """MiB of these processes on all GPUs, and the mean utilization in percent of the GPUs that they are on.

        Without a process of ours on any, the mean is over all GPUs.
        """
        if not self._devices:
            return None, None
        try:
            used = [device.processes() for device in self._devices]
        except self._nvml.NVMLError as exc:
            self.reason = _refusal(self._nvml, exc)
            return None, self._utilization(self._devices)
        ours = [device for device, found in zip(self._devices, used, strict=True) if pids & found.keys()]
        return self._memory(pids, used), self._utilization(ours or self._devices)

    def _memory(self, pids: set[int], used: list[dict[int, int | None]]) -> float | None:
        listed = {pid for found in used for pid in found}
        # A process may end between the driver's answer and our look: only one that is twice unknown is a stranger.
        unknown = {pid for pid in listed - pids if not psutil.pid_exists(pid)}
        strangers, self._strangers = unknown & self._strangers, unknown
        values = [memory for found in used for pid, memory in found.items() if pid in pids]
        self.reason = None
        if in_container() and (strangers or not listed):
            self.reason = _CONTAINER if strangers else "the driver shows this container no processes"
        elif None in values:
            self.reason = _NO_FIGURES
        return sum(filter(None, values)) / _MIB if self.reason is None else None

    def _utilization(self, devices: list[_Device]) -> float | None:
        values = [value for device in devices if (value := device.utilization()) is not None]
        return sum(values) / len(values) if values else None


class _Device:
    """A GPU, or each of its MIG instances."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._instances = list(_instances(nvml, handle))

    def processes(self) -> dict[int, int | None]:
        """Process → bytes; ``None`` where the driver does not tell.

        :raises NVMLError: if it refuses.
        """
        found: dict[int, int | None] = {}
        for handle in self._instances or [self._handle]:
            for process in _running(self._nvml, handle):
                before = found.get(process.pid, 0)
                known = before is not None and process.usedGpuMemory is not None
                found[process.pid] = before + process.usedGpuMemory if known else None
        return found

    def utilization(self) -> float | None:
        """Percent of the last moments in which something ran; ``None`` where the driver does not tell, as with MIG."""
        try:
            return float(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu)
        except self._nvml.NVMLError:
            return None


def _devices(nvml: Any) -> Iterator[_Device]:
    for index in range(int(nvml.nvmlDeviceGetCount())):
        yield _Device(nvml, nvml.nvmlDeviceGetHandleByIndex(index))


def has_mig(nvml: Any, handle: Any) -> bool:
    """Whether a GPU is divided into instances."""
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:  # a GPU or a driver without it
        return False


def _instances(nvml: Any, handle: Any) -> Iterator[Any]:
    if not has_mig(nvml, handle):
        return
    for index in range(int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))):
        try:
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError_NotFound:  # a place without an instance
            continue


def _running(nvml: Any, handle: Any) -> list[Any]:
    """Processes with a compute or a graphics context; one with both is listed once, its memory being the same."""
    found: dict[int, Any] = {}
    for kind in ("Compute", "Graphics"):
        for process in _listed(nvml, handle, kind):
            found.setdefault(process.pid, process)
    return list(found.values())


def _listed(nvml: Any, handle: Any, kind: str) -> list[Any]:
    """The driver's answer in the newest form that it knows.

    :raises NVMLError: if it knows none, or refuses.
    """
    names = [f"nvmlDeviceGet{kind}RunningProcesses_v{version}" for version in (3, 2)]
    known: list[Callable[[Any], list[Any]]] = [getattr(nvml, name) for name in names if hasattr(nvml, name)]
    for number, ask in enumerate(known):
        try:
            return ask(handle)
        except nvml.NVMLError_FunctionNotFound:
            if number == len(known) - 1:
                raise
    return []


def _no_driver(nvml: Any, exc: Exception) -> str:
    return (
        "no NVIDIA driver" if isinstance(exc, nvml.NVMLError_LibraryNotFound) else f"the driver does not answer: {exc}"
    )


def _refusal(nvml: Any, exc: Exception) -> str:
    if isinstance(exc, nvml.NVMLError_NoPermission):
        return "the driver does not permit it to this user"
    if isinstance(exc, nvml.NVMLError_FunctionNotFound):
        return "the driver is too old to list processes"
    if isinstance(exc, nvml.NVMLError_NotSupported):
        return _NO_FIGURES
    return f"the driver refuses: {exc}"


def in_container() -> bool:
    """Whether this process has process numbers of its own, other than those of the machine."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino != _INITIAL_PID_NAMESPACE
    except OSError:  # no Linux
        return False
