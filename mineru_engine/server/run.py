"""The application in uvicorn, with a shutdown that loses nothing."""

from __future__ import annotations

import asyncio
from types import FrameType

import uvicorn
from fastapi import FastAPI

from mineru_engine.server.service import Service

__all__ = ("serve",)

_CONNECTIONS_S = 5


class _Server(uvicorn.Server):
    """At the first signal no job is taken any more and those that run may end; polls are answered meanwhile. The second
    signal stops them: they wait on the disk for the next start."""

    def __init__(self, config: uvicorn.Config, service: Service, grace: float) -> None:
        super().__init__(config)
        self._service = service
        self._grace = grace
        self._draining: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop

    async def serve(self, sockets: object = None) -> None:
        """Until a signal comes and everything is put away."""
        self._loop = asyncio.get_running_loop()
        await super().serve()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The signal handler."""
        self._loop.call_soon_threadsafe(self._begin_exit)

    def _begin_exit(self) -> None:
        if self._draining is not None or not self.started:
            self.should_exit = True
            return
        self._draining = self._loop.create_task(self._drain())

    async def _drain(self) -> None:
        await self._service.drain(self._grace)
        self.should_exit = True


def serve(app: FastAPI, host: str, port: int, grace: float) -> bool:
    """Run an application until SIGINT or SIGTERM.

    :param grace: seconds that running jobs get to end.
    :return: whether it ran at all; if not, uvicorn has said why.
    """
    config = uvicorn.Config(
        app, host=host, port=port, log_level="info", access_log=False, timeout_graceful_shutdown=_CONNECTIONS_S
    )
    server = _Server(config, app.state.service, grace)
    server.run()
    return server.started
