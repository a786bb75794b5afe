"""Waiting inside a request, for as long as there is a client."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from mineru_engine.server.jobs import Job
from mineru_engine.server.service import Service

__all__ = ("gone", "until_ended")


async def gone(request: Request) -> None:
    """Returns when the client has closed the connection; only after its body was read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def until_ended(request: Request, service: Service, job: Job, timeout_s: float | None = None) -> Job:
    """The job once it has ended; as it is after ``timeout_s`` seconds, or when the server goes down.

    A client that goes away meanwhile cancels the job: nobody else knows of it.
    """
    waiting = asyncio.create_task(service.queue.wait(job.id))
    leaving = asyncio.create_task(gone(request))
    try:
        await asyncio.wait({waiting, leaving}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if leaving.done() and not waiting.done():
            return await service.cancel(job)
    finally:
        waiting.cancel()
        leaving.cancel()
    return await service.find(job.id, job.tenant)
