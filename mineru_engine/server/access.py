"""Who calls: API keys, checked before anything of a request's body is read."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Request
from fastapi.security import HTTPBearer
from starlette.types import ASGIApp, Receive, Scope, Send

from mineru_engine.errors import ErrorCode, MineruError
from mineru_engine.server.problems import RequestError, answer

if TYPE_CHECKING:
    from mineru_engine.server.service import Service

__all__ = ("BEARER", "Access", "Caller", "caller_of", "current_caller")

LOCAL = "local"
BEARER = HTTPBearer(auto_error=False, description="An API key, if the server asks for one: mineru keys add NAME")
"""For OpenAPI, so that its page can send one. What is sent is checked by :class:`Access`, earlier."""
_OPEN = frozenset(["/", "/health", "/ready", "/v1/health", "/docs", "/redoc", "/openapi.json"])
_OPEN_BELOW = ("/assets/", "/docs/")
"""The web page, its files and the descriptions of the API: what is the same for everybody."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request.

    :ivar tenant: whose jobs they see.
    :ivar key: name of their API key; none where none is needed.
    """

    tenant: str = LOCAL
    key: str | None = None


_current: ContextVar[Caller | None] = ContextVar("caller", default=None)


def current_caller() -> Caller:
    """The caller of the request that is being answered."""
    return _current.get() or Caller()


def caller_of(request: Request) -> Caller:
    """:func:`current_caller` for FastAPI."""
    return current_caller()


class Access:
    """ASGI middleware that lets nobody in without a key, as soon as the server has one."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its caller known, or answer 401."""
        if scope["type"] != "http" or _is_open(scope):
            await self._app(scope, receive, send)
            return
        try:
            caller = self._identify(scope)
        except MineruError as exc:
            await answer(Request(scope), exc)(scope, receive, send)
            return
        token = _current.set(caller)
        try:
            await self._app(scope, receive, send)
        finally:
            _current.reset(token)

    def _identify(self, scope: Scope) -> Caller:
        keys = self._service.keys
        if not keys.required:
            return Caller()
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, token = given.decode("latin-1").partition(" ")
        key = keys.find(token.strip()) if scheme.lower() == "bearer" else None
        if key is None:
            self._service.audit.denied((scope.get("client") or ("",))[0], scope["path"])
            raise RequestError(
                "the API key is not valid" if token else "an API key is needed",
                code=ErrorCode.ACCESS_DENIED,
                status=401,
                hint="send the header Authorization: Bearer KEY",
            )
        return Caller(key.tenant, key.name)


def _is_open(scope: Scope) -> bool:
    path = scope["path"]
    return scope["method"] in ("GET", "HEAD") and (path in _OPEN or path.startswith(_OPEN_BELOW))
