"""What is there while documents are parsed, and what must be gone after a cancel."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from pathlib import Path

import psutil

import mineru_engine as engine
from benchmarks._vlm import Record
from benchmarks.engine_http import check_pages, engine_settings
from benchmarks.simulator import Simulator
from mineru_cli.bench.leftovers import runtime_tasks
from mineru_engine.runtime.registry import runtimes

LOOK_EVERY_S = 0.01
SERVER_PATIENCE_S = 10.0
NONE_LEFT = ("requests", "working_after_disconnect", "jobs", "caller_tasks", "runtime_tasks", "temporary_files")
MAY_DIFFER = ("threads", "file_descriptors", "connections", "rss_mib")


class Scene:
    """One runtime at one engine, and what can be counted there."""

    def __init__(self, simulator: Simulator, directory: Path) -> None:
        self._simulator = simulator
        self._directory = directory
        self._settings = engine_settings({"model.vlm.max_concurrency": simulator.config.max_seqs})

    def start(self, path: Path) -> asyncio.Task[str]:
        """Parse a document; the Markdown comes out."""
        return asyncio.create_task(self._parse(path))

    async def _parse(self, path: Path) -> str:
        result = await engine.parse_async(
            path, tier="xhigh", ocr_mode="ocr", server_url=self._simulator.url, settings=self._settings
        )
        check_pages(result)
        return result.markdown()

    async def until_in_flight(self, requests: int, task: asyncio.Task[str]) -> None:
        """Wait until the engine works on so many."""
        while (await self._simulator.astats()).in_flight < requests:
            if task.done():
                raise RuntimeError(f"the document ended before: {task.result()[:100]!r}")
            await asyncio.sleep(LOOK_EVERY_S)

    async def left(self) -> Record:
        """What there is; the engine gets some time to see that its clients are gone, ``server_s`` of it were needed."""
        started = time.perf_counter()
        stats = await self._simulator.astats()
        while stats.in_flight and time.perf_counter() - started < SERVER_PATIENCE_S:
            await asyncio.sleep(LOOK_EVERY_S)
            stats = await self._simulator.astats()
        server_s = time.perf_counter() - started
        gc.collect()
        me = psutil.Process()
        tree = [me, *me.children(recursive=True)]
        simulator = psutil.Process(self._simulator.pid)
        return {
            "requests": stats.in_flight,
            "working_after_disconnect": stats.working_after_disconnect,
            "server_s": server_s,
            "caller_tasks": len(asyncio.all_tasks()) - 1,
            "runtime_tasks": sum([await runtime.arun(runtime_tasks) for runtime in runtimes() if runtime.usable]),
            "jobs": sum(runtime.statistics().jobs for runtime in runtimes()),
            "temporary_files": sum(1 for _ in self._directory.rglob("*")),
            "threads": threading.active_count(),
            "file_descriptors": me.num_fds(),
            "connections": stats.connections_open,
            "rss_mib": sum(process.memory_info().rss for process in tree if process != simulator) / 2**20,
        }
