"""Errors as answers: one status and one body for each, without a path or a stack trace.

The body of everything below ``/v1`` is ``{"error": {"type", "code", "message", "param", "hint"}}``; the paths of
MinerU 3.x answer ``{"detail": message}``.
"""

from __future__ import annotations

import logging
from http import HTTPMethod, HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from mineru_engine.errors import ErrorCode, MineruError, OutputError
from mineru_engine.output import NO_SPACE

__all__ = ("PLAIN_RESPONSES", "RESPONSES", "RequestError", "answer", "install", "problem_body", "told")

_STATUS = {
    ErrorCode.JOB_NOT_FOUND: 404,
    ErrorCode.FILE_NOT_FOUND: 404,
    ErrorCode.RESULT_NOT_READY: 409,
    ErrorCode.FILE_TOO_LARGE: 413,
    ErrorCode.FILE_TYPE_UNSUPPORTED: 400,
    ErrorCode.OPTION_INVALID: 400,
    ErrorCode.PAGE_RANGE_INVALID: 400,
    ErrorCode.REQUEST_INVALID: 400,
    ErrorCode.FILE_EMPTY: 400,
    ErrorCode.ACCESS_DENIED: 403,
    ErrorCode.QUEUE_FULL: 429,
    ErrorCode.QUOTA_EXCEEDED: 429,
    ErrorCode.SERVER_CLOSING: 503,
    ErrorCode.ENGINE_DEAD: 503,
    ErrorCode.ENGINE_UNAVAILABLE: 503,
    ErrorCode.DISK_FULL: 507,
}
_TEXT = {"type": "string"}
_OPTIONAL = {"type": ["string", "null"]}
_FIELDS = {"type": _TEXT, "code": _TEXT, "message": _TEXT, "param": _OPTIONAL, "hint": _OPTIONAL}
_PROBLEM = {"error": {"type": "object", "required": list(_FIELDS), "properties": _FIELDS}}
_PLAIN = {"detail": {"anyOf": [_TEXT, {"type": "array", "items": {"type": "object"}}]}}


def _responses(body: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    content = {"application/json": {"schema": {"type": "object", "required": list(body), "properties": body}}}
    return {
        "4XX": {"description": "The request cannot be served; the error says why.", "content": content},
        "5XX": {"description": "The server cannot serve it now; the error says why.", "content": content},
    }


RESPONSES = _responses(_PROBLEM)
"""What every route below ``/v1`` may answer, for OpenAPI."""
PLAIN_RESPONSES = _responses(_PLAIN)
"""What every other route may answer."""
_TYPES = {401: "authentication_error", 403: "permission_error"}
_RETRY_S = 5
_log = logging.getLogger(__name__)


class RequestError(MineruError):
    """A request that makes no sense.

    :param param: the field or header that is wrong.
    :param status: of the answer, where the code alone does not decide it.
    :param retry_after: seconds after which the same request may do better.
    """

    code = ErrorCode.REQUEST_INVALID

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        hint: str | None = None,
        param: str | None = None,
        status: int | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.param = param
        self.status = status
        self.retry_after = retry_after


def told(exc: Exception) -> MineruError:
    """What a client may know of an exception: no path of the server."""
    if getattr(exc, "code", None) is ErrorCode.DISK_FULL or (isinstance(exc, OSError) and exc.errno in NO_SPACE):
        return MineruError("the server's disk is full", code=ErrorCode.DISK_FULL, hint="tell whoever runs it")
    if isinstance(exc, OutputError):
        return MineruError("the server cannot write the result", code=exc.code)
    if isinstance(exc, MineruError):
        return exc
    return MineruError("internal error; the server's log says more")


def problem_body(
    status: int, code: str, message: str, *, param: str | None = None, hint: str | None = None
) -> dict[str, Any]:
    """The body of an error below ``/v1``."""
    kind = _TYPES.get(status) or ("invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "api_error")
    return {"error": {"type": kind, "code": code, "message": message, "param": param, "hint": hint}}


def answer(request: Request, exc: MineruError, name: str | None = None) -> JSONResponse:
    """The answer to an error, in the manner of the path that was asked.

    :param name: what the API that was asked calls the error, if it is not the error's code.
    """
    status = getattr(exc, "status", None) or _STATUS.get(exc.code, 500)
    headers = {}
    wait = getattr(exc, "retry_after", None)
    if wait or exc.code in (ErrorCode.QUEUE_FULL, ErrorCode.SERVER_CLOSING):
        headers["Retry-After"] = str(wait or _RETRY_S)
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return _json(request, status, name or str(exc.code), exc.message, getattr(exc, "param", None), exc.hint, headers)


def _json(
    request: Request,
    status: int,
    code: str,
    message: str,
    param: str | None = None,
    hint: str | None = None,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    if request.url.path.startswith("/v1"):
        return JSONResponse(problem_body(status, code, message, param=param, hint=hint), status, headers)
    return JSONResponse({"detail": message}, status, headers)


def _allowed(request: Request) -> list[str]:
    """The methods of a path. Starlette names those of the first route only, and a path may have several."""
    routes = request.app.router.routes
    return [
        method
        for method in HTTPMethod
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    ]


def install(app: FastAPI) -> None:
    """Let an application answer with these errors."""

    @app.exception_handler(MineruError)
    async def ours(request: Request, exc: MineruError) -> JSONResponse:
        return answer(request, exc)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, exc: RequestValidationError) -> JSONResponse:
        if not request.url.path.startswith("/v1"):
            detail = [{"type": e["type"], "loc": e["loc"], "msg": e["msg"]} for e in exc.errors()]
            return JSONResponse({"detail": detail}, 422)
        first = exc.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return _json(request, 400, str(ErrorCode.REQUEST_INVALID), f"{where}: {first['msg']}", where or None)

    @app.exception_handler(OSError)
    async def full(request: Request, exc: OSError) -> JSONResponse:
        if exc.errno not in NO_SPACE:
            raise exc
        return answer(request, told(exc))

    @app.exception_handler(HTTPException)
    async def plain(request: Request, exc: HTTPException) -> JSONResponse:
        code = "not_found" if exc.status_code == HTTPStatus.NOT_FOUND else str(ErrorCode.REQUEST_INVALID)
        headers = dict(exc.headers or {})
        if exc.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(_allowed(request))
        return _json(request, exc.status_code, code, str(exc.detail), headers=headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, exc: Exception) -> JSONResponse:
        _log.error("%s %s", request.method, request.url.path, exc_info=exc)
        return _json(request, 500, str(ErrorCode.INTERNAL), "internal error; the server's log says more")
