"""The application: routes over a :class:`~mineru_engine.server.service.Service`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from mineru_engine.server import native, problems
from mineru_engine.server.limits import BodyLimit
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
        async with app.state.service:
            yield

    app = FastAPI(
        title="mineru",
        version=__version__,
        description="Documents in, Markdown and its siblings out.",
        lifespan=lifespan,
    )
    app.state.service = Service(effective, data_dir, defaults=defaults, preload=preload)
    problems.install(app)
    app.include_router(native.router)
    app.add_middleware(BodyLimit, max_bytes=effective.server.max_request_mb << 20)
    if effective.server.cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=effective.server.cors_origins, allow_methods=["*"], allow_headers=["*"]
        )
    return app
