"""``python -m benchmarks.simulator --port 0 --step-base-ms 20 --step-per-seq-ms 1.2``.

Prints one line of JSON when it listens: url, port, pid, model and the engine's limit in tokens per second.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
import json
import os
import signal
import sys
from typing import get_type_hints

from benchmarks.simulator.config import SimulatorConfig
from benchmarks.simulator.server import SimulatorServer


def parse_arguments() -> tuple[SimulatorConfig, bool]:
    """The settings, and whether to end with the parent process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator", description=SimulatorConfig.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--config", help="all settings as one JSON object, instead of the options below")
    parser.add_argument("--watch-stdin", action="store_true", help="end when standard input is closed")
    types = get_type_hints(SimulatorConfig)
    for field in dataclasses.fields(SimulatorConfig):
        option = "--" + field.name.replace("_", "-")
        if types[field.name] is bool:
            parser.add_argument(option, action=argparse.BooleanOptionalAction, default=field.default)
        else:
            kind = types[field.name] if types[field.name] in (int, float) else str
            parser.add_argument(option, type=kind, default=field.default, help=f"default: {field.default}")
    values = vars(parser.parse_args())
    text, watch = values.pop("config"), values.pop("watch_stdin")
    return (SimulatorConfig.from_json(text) if text else SimulatorConfig(**values)), watch


async def serve(config: SimulatorConfig, watch_stdin: bool) -> None:
    """Serve until a signal comes or the parent is gone."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if watch_stdin:
        loop.add_reader(sys.stdin.fileno(), stop.set)
    server = SimulatorServer(config)
    async with server.serve() as port:
        ready = {
            "url": f"http://{config.host}:{port}",
            "port": port,
            "pid": os.getpid(),
            "model": config.model,
            "limit_tokens_per_s": config.limit_tokens_per_s,
        }
        print(json.dumps(ready), flush=True)
        gc.freeze()
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(serve(*parse_arguments()))
