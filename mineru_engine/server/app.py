"""The application: routes over a :class:`~mineru_engine.server.service.Service`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.middleware.cors import CORSMiddleware

from mineru_engine.server import mineru3, mineru4, native, operation, page, pages, problems
from mineru_engine.server.access import BEARER, Access
from mineru_engine.server.limits import BodyLimit
from mineru_engine.server.mineru4_files import FileStore
from mineru_engine.server.service import Service
from mineru_engine.settings import Settings
from mineru_engine.version import __version__

__all__ = ("create_app",)


def create_app(
    settings: Settings | None = None,
    *,
    data_dir: Path,
    defaults: Mapping[str, Any] | None = None,
    preload: bool = False,
) -> FastAPI:
    """A server application; several may live in one process, each with its own directory and lease.

    :param data_dir: where jobs and results are kept.
    :param defaults: options in force where a request says nothing, as ``tier``.
    :param preload: start the engine with the application.
    """
    effective = settings or Settings.load()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with app.state.service, app.state.files:
            yield

    app = FastAPI(
        title="mineru",
        version=__version__,
        description="Documents in, Markdown and its siblings out.",
        lifespan=lifespan,
        dependencies=[Depends(BEARER)],
    )
    app.state.service = Service(effective, data_dir, defaults=defaults, preload=preload)
    app.state.files = FileStore(app.state.service.storage)
    problems.install(app)
    for router in (operation.router, mineru3.router):
        app.include_router(router, responses=problems.PLAIN_RESPONSES)
    for router in (pages.router, native.router, *mineru4.routers):  # the more special path first
        app.include_router(router, responses=problems.RESPONSES)
    page.install(app)
    limits = effective.server
    app.add_middleware(BodyLimit, max_bytes=limits.max_request_mb << 20, patience=limits.request_timeout)
    app.add_middleware(Access, service=app.state.service)
    if effective.server.cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=effective.server.cors_origins, allow_methods=["*"], allow_headers=["*"]
        )
    return app
