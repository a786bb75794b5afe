"""A bound on request bodies that holds however the body is sent."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mineru_engine.errors import ErrorCode
from mineru_engine.server.problems import RequestError, answer

__all__ = ("BodyLimit",)


class BodyLimit:
    """ASGI middleware that refuses bodies of more than ``max_bytes``: at once or on the way."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, counting."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen, answered = 0, False

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_bytes:
                raise self._too_large()
            return message

        async def noted(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        try:
            if _announced(scope) > self._max_bytes:
                raise self._too_large()
            await self._app(scope, counted, noted)
        except RequestError as exc:
            if answered or exc.code is not ErrorCode.FILE_TOO_LARGE:
                raise
            from starlette.requests import Request

            response = answer(Request(scope), exc)
            response.headers["Connection"] = "close"  # the rest of the body is not read
            await response(scope, receive, send)

    def _too_large(self) -> RequestError:
        return RequestError(
            f"the request is larger than {self._max_bytes >> 20} MiB",
            code=ErrorCode.FILE_TOO_LARGE,
            hint="send fewer or smaller documents; the operator can raise server.max_request_mb",
        )


def _announced(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0
