"""Bounds on request bodies that hold however a body is sent: how large it is, and how slowly it may come."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mineru_engine.errors import ErrorCode
from mineru_engine.server.problems import RequestError, answer

__all__ = ("BodyLimit",)

_TEXT_BYTES = 2 << 20  # MinerU 4.0 may send a document of 1 MiB inside JSON, as base64
_TEXT_KINDS = (b"application/json", b"application/x-www-form-urlencoded")
"""Bodies that are held and parsed in memory."""
_SLOWEST = 10 << 10  # bytes per second, once a client's patience is used up


class BodyLimit:
    """ASGI middleware that refuses bodies that are too large or too slow: at once or on the way.

    :param max_bytes: of a body; JSON has a limit of its own.
    :param patience: seconds that a body may take on top of what 10 KiB per second need.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, patience: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._patience = patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, counting."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        is_text = headers.get(b"content-type", b"").partition(b";")[0].strip().lower() in _TEXT_KINDS
        max_bytes = min(self._max_bytes, _TEXT_BYTES) if is_text else self._max_bytes
        exchange = _Exchange(receive, send, max_bytes, self._patience)
        announced = headers.get(b"content-length", b"")
        try:
            if announced.isdigit() and int(announced[:20]) > exchange.max_bytes:
                raise exchange.refuse_size()
            await self._app(scope, exchange.receive, exchange.send)
        except ClientDisconnect:  # nobody is left who could be answered
            return
        except Exception:
            if not exchange.must_answer:
                raise
        if exchange.must_answer and exchange.refusal is not None:
            response = answer(Request(scope), exchange.refusal)
            response.headers["Connection"] = "close"  # the rest of the body is not read
            await response(scope, receive, send)


class _Exchange:
    """One request and its answer. Once the body is refused, what the application answers to that is dropped."""

    def __init__(self, receive: Receive, send: Send, max_bytes: int, patience: float) -> None:
        self._receive = receive
        self._send = send
        self.max_bytes = max_bytes
        self._patience = patience
        self.refusal: RequestError | None = None
        self._answered = False
        self._complete = False
        self._seen = 0
        self._began: float | None = None

    @property
    def must_answer(self) -> bool:
        """Whether the body was refused and the client was not told yet."""
        return self.refusal is not None and not self._answered

    async def receive(self) -> Message:
        """The next piece of the body; after the last one there is no hurry."""
        if self._complete:
            return await self._receive()
        now = asyncio.get_running_loop().time()
        self._began = now if self._began is None else self._began
        try:
            async with asyncio.timeout_at(self._began + self._patience + self._seen / _SLOWEST):
                message = await self._receive()
        except TimeoutError:
            raise self._refuse("the request came too slowly", ErrorCode.DEADLINE_EXCEEDED, 408) from None
        self._seen += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self._seen > self.max_bytes:
            raise self.refuse_size()
        return message

    async def send(self, message: Message) -> None:
        """Pass on what the application answers."""
        if not self.must_answer:
            self._answered = True
            await self._send(message)

    def refuse_size(self) -> RequestError:
        """The error of a body that is too large."""
        limit = self.max_bytes >> 20
        return self._refuse(f"the request is larger than {limit} MiB", ErrorCode.FILE_TOO_LARGE, 413)

    def _refuse(self, message: str, code: ErrorCode, status: int) -> RequestError:
        hint = "send fewer or smaller documents; the operator can raise server.max_request_mb"
        self.refusal = RequestError(message, code=code, status=status, hint=hint if status == 413 else None)
        return self.refusal
