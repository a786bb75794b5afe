"""Documents that are cancelled after a time: how soon their calls return, and what is left behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mineru_cli.bench.leftovers import Present, look
from mineru_cli.bench.modes import run_stoppable
from mineru_cli.bench.report import Cancellation, Leftovers

if TYPE_CHECKING:
    from mineru_cli.bench.modes import Stop, Target
    from mineru_cli.bench.server_metrics import ServerMetrics

__all__ = ("CancelStep", "run_cancel")

_SERVER_PATIENCE_S = 5.0
_LOOK_EVERY_S = 0.05
_NO_SERVER = "the engine is not a server"
_SILENT_SERVER = "the server does not tell what it works on"


@dataclass(frozen=True, slots=True)
class CancelStep:
    """One such run.

    :ivar documents: those that are called for, all at once.
    """

    documents: Sequence[int]
    after_s: float
    repeat: int


def run_cancel(step: CancelStep, target: Target, server: ServerMetrics, scratch: Path, stop: Stop) -> Cancellation:
    """Start the documents, cancel them after a time, wait until all have returned, and look around.

    What was there before they started does not count as left; a pool that has fewer processes than before has none
    left either.

    :param scratch: where this process and its workers put temporary files.
    :raises Interrupted: if a stop was requested.
    """
    before = run_stoppable(look(scratch), stop)
    returned, after = run_stoppable(_cancel(step, target, scratch), stop)
    at_server, reason = _server(server)
    return Cancellation(
        concurrency=len(step.documents),
        after_s=step.after_s,
        repeat=step.repeat,
        return_s=[round(seconds, 6) for seconds in returned],
        finished_before=len(step.documents) - len(returned),
        leftovers=Leftovers(
            requests_in_flight=after.requests,
            requests_at_server=at_server,
            server_reason=reason,
            tasks=max(0, after.tasks - before.tasks),
            threads=max(0, after.threads - before.threads),
            fds=None if after.fds is None or before.fds is None else max(0, after.fds - before.fds),
            temporary_files=max(0, after.files - before.files),
        ),
    )


async def _cancel(step: CancelStep, target: Target, scratch: Path) -> tuple[list[float], Present]:
    tasks = [asyncio.create_task(target.parse_async(index)) for index in step.documents]
    ended, running = await asyncio.wait(tasks, timeout=step.after_s)
    began = time.perf_counter()
    returned: list[float] = []
    for task in running:
        task.add_done_callback(lambda _: returned.append(time.perf_counter() - began))
        task.cancel()
    if running:
        await asyncio.wait(running)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # retrieved: how a document ended before does not matter here
    del tasks, ended, running
    return returned, await look(scratch)


def _server(server: ServerMetrics) -> tuple[int | None, str | None]:
    """Requests that the server still has after some seconds to notice that nobody waits for them."""
    if not server.known:
        return None, _NO_SERVER
    deadline = time.perf_counter() + _SERVER_PATIENCE_S
    while (number := server.in_flight()) and time.perf_counter() < deadline:
        time.sleep(_LOOK_EVERY_S)
    return number, None if number is not None else _SILENT_SERVER
