"""Waiting for a job inside a request."""

from __future__ import annotations

import asyncio
import math

from starlette.requests import Request

from mineru_engine.server.jobs import Job
from mineru_engine.server.service import Service

__all__ = ("until_ended",)

_LOOK_S = 0.5


async def until_ended(request: Request, service: Service, job: Job, timeout_s: float = math.inf) -> Job:
    """The job once it has ended; as it is after ``timeout_s`` seconds, or when the server goes down.

    A client that goes away meanwhile cancels the job: nobody else knows of it.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    waiting = loop.create_task(service.queue.wait(job.id))
    try:
        while not waiting.done() and (left := end - loop.time()) > 0:
            await asyncio.wait({waiting}, timeout=min(left, _LOOK_S))
            if not waiting.done() and await request.is_disconnected():
                return await service.cancel(job)
    finally:
        waiting.cancel()
    return await service.find(job.id, job.tenant)
