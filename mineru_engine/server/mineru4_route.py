"""What the routes of MinerU 4.0's V1 have in common: the names of errors, and JSON bodies."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from mineru_engine.errors import ErrorCode, MineruError
from mineru_engine.server.intake import json_of
from mineru_engine.server.problems import RequestError, answer

__all__ = ("V1Error", "V1Route", "body_of")

M = TypeVar("M", bound=BaseModel)

_NAMES = {
    ErrorCode.REQUEST_INVALID: "invalid_request",
    ErrorCode.OPTION_INVALID: "invalid_request",
    ErrorCode.FILE_NOT_FOUND: "file_not_found",
    ErrorCode.SERVER_CLOSING: "server_shutting_down",
    ErrorCode.ENGINE_UNAVAILABLE: "quality_tier_unavailable",
}


class V1Error(RequestError):
    """An error for which 4.0 has a name of its own.

    :param name: as ``upload_not_found``.
    """

    def __init__(self, name: str, message: str, *, status: int = 400, param: str | None = None) -> None:
        super().__init__(message, status=status, param=param)
        self.name = name


class V1Route(APIRoute):
    """A route whose errors are named as in 4.0; validation errors are 400, never 422."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler that the application calls."""
        handler = super().get_route_handler()

        async def named(request: Request) -> Response:
            try:
                return await handler(request)
            except MineruError as exc:
                return answer(request, exc, getattr(exc, "name", None) or _NAMES.get(exc.code))
            except RequestValidationError as exc:
                return answer(request, _invalid(exc.errors()[0]), "invalid_request")

        return named


def _invalid(error: dict[str, Any]) -> RequestError:
    where = ".".join(str(part) for part in error["loc"] if part not in ("body", "query", "path"))
    return RequestError(f"{where}: {error['msg']}" if where else error["msg"], param=where or None)


async def body_of(request: Request, model: type[M], max_bytes: int) -> M:
    """A JSON body.

    :raises RequestError: if it is too large or does not fit; names that are not known do not.
    """
    try:
        return await json_of(request, model, max_bytes)
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_input=False)[0]
        if error["type"].startswith("union_tag"):
            raise V1Error("unsupported_source", error["msg"], param="files") from None
        raise _invalid({"loc": error["loc"], "msg": error["msg"]}) from None
