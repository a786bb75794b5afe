"""The web page at ``/``: files of the directory ``web``, and what a browser may do with them."""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.staticfiles import StaticFiles

__all__ = ("install",)

WEB = Path(__file__).with_name("web")
_POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "font-src 'self'",
    "img-src 'self' blob: data:",  # pictures are fetched with the caller's key; results carry theirs in themselves
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
)
_HEADERS = {
    "Cache-Control": "no-cache",  # kept, but asked for each time: a new version of the server brings new files
    "Content-Security-Policy": "; ".join(_POLICY),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _Files(StaticFiles):
    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """The file, or 304 for one that the browser has, under our policy."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(_HEADERS)
        return response


def install(app: FastAPI) -> None:
    """Let an application show the page."""
    for suffix, kind in ((".js", "text/javascript"), (".mjs", "text/javascript"), (".woff2", "font/woff2")):
        mimetypes.add_type(kind, suffix)  # Windows takes them from the registry, where anything may stand
    files = _Files(directory=WEB)
    app.mount("/assets", files, name="assets")

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page(request: Request) -> Response:
        return await files.get_response("index.html", request.scope)
