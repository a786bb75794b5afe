"""The application in uvicorn, with a shutdown that loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from types import FrameType

import uvicorn
from fastapi import FastAPI

from mineru_engine.server.connection import impatient
from mineru_engine.server.logs import configure
from mineru_engine.server.service import Service

__all__ = ("serve",)

_CONNECTIONS_S = 5
_SWITCH_S = 0.0005
"""How long a thread that renders a result may hold the interpreter while requests wait; Python's default is ten times
that, for each step of a request anew."""


class _Server(uvicorn.Server):
    """At the first signal no job is taken any more and those that run may end; polls are answered meanwhile. A second
    signal stops them: they wait on the disk for the next start."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, grace: float) -> None:
        super().__init__(config)
        self._app = app
        self._service: Service = app.state.service
        self._grace = grace
        self._draining: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop

    async def serve(self, sockets: object = None) -> None:
        """Until a signal comes and everything is put away.

        The application is opened here, not by uvicorn, which would make a traceback of what is wrong.
        """
        self._loop = asyncio.get_running_loop()
        with self.capture_signals():
            async with self._app.router.lifespan_context(self._app):
                await self._serve()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The signal handler."""
        self._loop.call_soon_threadsafe(self._begin_exit)

    def _begin_exit(self) -> None:
        if not self.started:
            self.should_exit = True
            return
        grace = 0.0 if self._draining else self._grace
        self._draining.append(self._loop.create_task(self._drain(grace)))

    async def _drain(self, grace: float) -> None:
        await self._service.drain(grace)
        self.should_exit = True


def serve(app: FastAPI, host: str, port: int, grace: float, log_format: str) -> bool:
    """Run an application until SIGINT or SIGTERM.

    :param log_format: one of :data:`mineru_engine.server.logs.LOG_FORMATS`.
    :param grace: seconds that running jobs get to end.
    :return: whether it could listen; if not, uvicorn has said why.
    :raises MineruError: if the application cannot start.
    """
    configure(log_format)
    sys.setswitchinterval(_SWITCH_S)
    service: Service = app.state.service
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=impatient(service.settings.server.request_timeout),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=_CONNECTIONS_S,
    )
    server = _Server(config, app, grace)
    with contextlib.suppress(SystemExit):
        server.run()
    return server.started
