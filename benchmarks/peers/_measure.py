"""What every peer runner shares: options, warm-up, measuring, and one JSON line per round.

Runs inside the peer's own virtual environment, so it needs nothing but psutil.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

SAMPLE_EVERY_S = 0.1
LOOK_FOR_CHILDREN_EVERY = 5  # samples


@dataclass(frozen=True, slots=True)
class PeerResult:
    """One measured round; ``config`` holds what else must be known to repeat it.

    :ivar samples: of each document in turn: ``began_s`` from the start of the round, ``seconds``, ``pages``.
    """

    peer: str
    version: str
    documents: int
    pages: int
    seconds: float
    cpu_s: float
    peak_rss_mb: float
    samples: list[dict[str, Any]]
    config: dict[str, Any]


class Meter:
    """CPU seconds and peak resident memory of this process and its children while the block runs.

    Memory shared between processes counts in each of them. The meter's own CPU time is taken off.
    """

    def __enter__(self) -> Self:
        self.peak_rss_mb = 0.0
        self.cpu_s = 0.0
        self._own_s = 0.0
        self._me = psutil.Process()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._cpu_before = self._cpu_of_tree()
        self._started = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._started
        self._stop.set()
        self._thread.join()
        self.cpu_s = self._cpu_of_tree() - self._cpu_before - self._own_s

    def _watch(self) -> None:
        began = time.thread_time()
        children: list[psutil.Process] = []
        number = 0
        while True:
            if number % LOOK_FOR_CHILDREN_EVERY == 0:
                children = self._me.children(recursive=True)
            number += 1
            total = sum(_rss(process) for process in (self._me, *children))
            self.peak_rss_mb = max(self.peak_rss_mb, total / 2**20)
            if self._stop.wait(SAMPLE_EVERY_S):
                break
        self._own_s = time.thread_time() - began

    def _cpu_of_tree(self) -> float:
        times = os.times()
        total = times.user + times.system + times.children_user + times.children_system
        for process in self._me.children(recursive=True):
            try:
                child = process.cpu_times()
            except psutil.Error:
                continue
            total += child.user + child.system + child.children_user + child.children_system
        return total


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def common_parser(doc: str | None) -> argparse.ArgumentParser:
    """The options that all runners have."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", nargs="+", type=Path)
    parser.add_argument("--server-url", required=True)
    parser.add_argument("--concurrency", type=int, default=1, help="documents at a time")
    parser.add_argument("--max-concurrency", type=int, default=100, help="requests at a time, for each client")
    parser.add_argument("--repeat", type=int, default=1, help="measured rounds in this process")
    parser.add_argument("--warm-up", type=Path, help="document parsed once before the clock starts")
    parser.add_argument("--image-analysis", action=argparse.BooleanOptionalAction, default=True)
    return parser


async def measure_rounds(
    name: str, version: str, options: argparse.Namespace, parse: Callable[[Path], Awaitable[int]]
) -> None:
    """Parse all documents, ``concurrency`` at a time, and print a line for each round.

    :param parse: parses one document and returns its number of pages.
    """
    if options.warm_up is not None:
        await parse(options.warm_up)
    for number in range(options.repeat):
        with Meter() as meter:
            samples = await _all(options.documents, options.concurrency, parse)
        config = {key: str(value) for key, value in vars(options).items() if key != "documents"}
        result = PeerResult(
            peer=name,
            version=version,
            documents=len(options.documents),
            pages=sum(sample["pages"] for sample in samples),
            seconds=meter.seconds,
            cpu_s=meter.cpu_s,
            peak_rss_mb=meter.peak_rss_mb,
            samples=samples,
            config={**config, "round": number, "cpus": os.cpu_count()},
        )
        print(json.dumps(asdict(result)), flush=True)


async def _all(documents: Sequence[Path], width: int, parse: Callable[[Path], Awaitable[int]]) -> list[dict[str, Any]]:
    slots, started = asyncio.Semaphore(width), time.perf_counter()

    async def one(path: Path) -> dict[str, Any]:
        async with slots:
            began = time.perf_counter()
            pages = await parse(path)
            return {"began_s": began - started, "seconds": time.perf_counter() - began, "pages": pages}

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(path)) for path in documents]
    return [task.result() for task in tasks]
