"""Start a simulated server in a process of its own and ask it what it saw."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.simulator.config import FaultRule, SimulatorConfig
from benchmarks.simulator.stats import Stats

ROOT = Path(__file__).resolve().parents[2]


class SimulatorError(RuntimeError):
    """The server did not start, or refused an order."""


class Simulator:
    """A simulated server; a context manager, synchronous or asynchronous::

    async with Simulator(SimulatorConfig(step_base_ms=20, step_per_seq_ms=1.2)) as simulator:
        ...  # talk to simulator.url
        print((await simulator.astats()).peak_running)
    """

    def __init__(self, config: SimulatorConfig | None = None) -> None:
        config = config or SimulatorConfig()
        self.config = replace(config, script=str(Path(config.script).absolute())) if config.script else config
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.port = 0

    @property
    def pid(self) -> int:
        """The server's process id, to keep its CPU time apart from the client's."""
        if self._process is None:
            raise SimulatorError("the simulator is not running")
        return self._process.pid

    def start(self) -> Self:
        """Start the process and wait until it listens."""
        command = [sys.executable, "-m", "benchmarks.simulator", "--config", self.config.to_json(), "--watch-stdin"]
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._process = process
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            self.close()
            raise SimulatorError("the simulator ended before it was ready; see its messages above")
        ready = json.loads(line)
        self.url, self.port = ready["url"], ready["port"]
        return self

    def close(self) -> None:
        """Stop the process; safe to call twice."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def stats(self) -> Stats:
        """Counters since the last reset."""
        return Stats.from_dict(self._ask("GET", "/stats"))

    def log(self) -> list[dict[str, Any]]:
        """One entry per finished chat request: arrived_s, left_s, kind, tokens, outcome."""
        entries = self._ask("GET", "/log")
        return list(entries)

    def control(
        self,
        *,
        reset: bool = False,
        faults: Iterable[FaultRule] | None = None,
        engine: Mapping[str, float | int | str | bool] | None = None,
        script: str | Path | None = None,
    ) -> Stats:
        """Reset the counters, replace the faults (an empty list clears them), change the engine or the script."""
        orders: dict[str, Any] = {"reset": reset}
        if faults is not None:
            orders["faults"] = [rule.to_dict() for rule in faults]
        if engine is not None:
            orders["engine"] = dict(engine)
        if script is not None:
            orders["script"] = str(Path(script).absolute())
        return Stats.from_dict(self._ask("POST", "/control", orders))

    async def astats(self) -> Stats:
        """``stats()`` without blocking the loop."""
        return await asyncio.to_thread(self.stats)

    async def acontrol(
        self,
        *,
        reset: bool = False,
        faults: Iterable[FaultRule] | None = None,
        engine: Mapping[str, float | int | str | bool] | None = None,
    ) -> Stats:
        """``control()`` without blocking the loop."""
        return await asyncio.to_thread(self.control, reset=reset, faults=faults, engine=engine)

    def _ask(self, method: str, path: str, orders: Mapping[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection(self.config.host, self.port, timeout=10)
        try:
            connection.request(method, path, json.dumps(orders) if orders is not None else None)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise SimulatorError(f"{path}: {response.status} {body.decode(errors='replace')}")
        return json.loads(body)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)
