"""Asking one HTTP server: timeouts, redirects, tries again; every failure as an error that may be shown."""

from __future__ import annotations

import asyncio
import itertools
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakSet

import aiohttp
import certifi
from aiohttp.http_exceptions import ContentEncodingError
from yarl import URL

from mineru_engine.errors import EngineDeadError, EngineUnavailableError
from mineru_engine.vlm.chat import BadAnswerError
from mineru_engine.vlm.config import VlmConfig
from mineru_engine.vlm.retry import BUSY, pause_s
from mineru_engine.vlm.server_address import ENVIRONMENT_HINT, KEY_HINT, URL_HINT, ServerAddress

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

__all__ = ("Answer", "ConnectionLostError", "ServerClient")

_REFUSED = frozenset({401, 403})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEEP_THE_METHOD = frozenset({307, 308})
_MOST_REDIRECTS = 3
_LARGEST_ANSWER_MB = 64
_KEPT_S = 4.0  # uvicorn, and so vLLM and SGLang, closes idle connections after 5 s
_LONGEST_QUOTE = 200
_UNREACHABLE_HINT = "is the server running, and is MINERU_MODEL_VLM_SERVER_URL right?"


class ConnectionLostError(Exception):
    """Not made, refused, reset, or closed before the whole answer was there. The message may quote the server."""


class _KeptConnectionLostError(ConnectionLostError):
    """A connection that had been idle, lost before any byte of an answer: the server may have closed it long ago."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the server did what it was asked for."""
        return 200 <= self.status < 300


class ServerClient:
    """Sends requests to one server and to no other. Lives on the event loop of its first request.

    :raises EngineUnavailableError: if the address, the key or the environment's proxy cannot be used.
    """

    def __init__(self, config: VlmConfig) -> None:
        self._address = ServerAddress.parse(config.server_url, config.api_key, proxy_from_env=config.proxy_from_env)
        self.base = self._address.base
        self._connect_timeout = config.connect_timeout
        self._max_retries = config.max_retries
        self._tls = self._tls_context() if self._address.uses_tls else True
        self._session: aiohttp.ClientSession | None = None
        self._in_flight: set[asyncio.Timeout] = set()
        self._none_in_flight = asyncio.Event()
        self._closed = asyncio.Event()

    def _tls_context(self) -> ssl.SSLContext:
        file, directory = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
        try:
            return ssl.create_default_context(
                cafile=file or (None if directory else certifi.where()), capath=directory or None
            )
        except OSError as exc:
            reason = f"connections to {self.base} cannot be set up: {self.quote(str(exc))}"
            raise EngineUnavailableError(reason, hint=ENVIRONMENT_HINT) from None

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        seconds: float,
        again_on: tuple[type[Exception], ...] = (ConnectionLostError,),
    ) -> Answer:
        """The complete answer, whatever its status; after all tries also a busy one.

        :param seconds: for the answer, once connected.
        :raises EngineDeadError: if each try ended with one of ``again_on``, or the client was closed.
        :raises EngineUnavailableError: if the server refuses the key or sends us to another server.
        :raises TimeoutError: if there was no answer in time.
        :raises BadAnswerError: if it cannot be read.
        """
        for failures in itertools.count(1):
            retry_after = None
            try:
                answer = await self.ask_once(method, path, body, seconds=seconds)
                if answer.status in _REFUSED:
                    raise EngineUnavailableError(f"{self.base}: {self._address.refusal}", hint=KEY_HINT)
                if answer.status not in BUSY or failures > self._max_retries:
                    return answer
                retry_after = answer.headers.get("Retry-After")
            except again_on as exc:
                if failures > self._max_retries:
                    reason = self.quote(str(exc)) or f"no answer within {seconds:g} s"
                    message = f"{self.base} cannot be reached: {reason}"
                    raise EngineDeadError(message, hint=_UNREACHABLE_HINT) from None
            await self._pause(pause_s(failures, retry_after))
        raise AssertionError("counted to the end")

    async def ask_once(self, method: str, path: str, body: bytes | None = None, *, seconds: float) -> Answer:
        """:meth:`ask` with one try. A kept connection that is lost is replaced, which counts as none.

        :raises ConnectionLostError: instead of trying again.
        """
        try:
            return await self._try(method, path, body, seconds, new=False)
        except _KeptConnectionLostError:
            return await self._try(method, path, body, seconds, new=True)

    async def _try(self, method: str, path: str, body: bytes | None, seconds: float, *, new: bool) -> Answer:
        url = URL(self.base + path)
        async with self._open(self._connect_timeout + seconds) as session:
            for _ in range(1 + _MOST_REDIRECTS):
                answer = await self._exchange(session, method, url, body, seconds, new)
                onward = self._onward(method, url, answer)
                if onward is None:
                    return answer
                url = onward
        raise EngineUnavailableError(f"{self.base} redirects without end", hint=URL_HINT)

    @asynccontextmanager
    async def _open(self, seconds: float) -> AsyncIterator[aiohttp.ClientSession]:
        """The session, for ``seconds`` altogether: no answer that trickles takes longer."""
        self._check()
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Connector(self._tls),
                headers=self._address.headers,
                proxy=self._address.proxy,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        try:
            async with asyncio.timeout(seconds) as limit:
                self._in_flight.add(limit)
                self._none_in_flight.clear()
                try:
                    yield self._session
                finally:
                    self._in_flight.discard(limit)
                    if not self._in_flight:
                        self._none_in_flight.set()
        except TimeoutError:
            self._check()
            raise

    def _check(self) -> None:
        if self._closed.is_set():
            raise EngineDeadError("the connections to the server were closed")

    async def _exchange(
        self, session: aiohttp.ClientSession, method: str, url: URL, body: bytes | None, seconds: float, new: bool
    ) -> Answer:
        way = _Way(new)
        token = _WAY.set(way)
        try:
            async with session.request(
                method,
                url,
                data=None if body is None else _Body(body),
                timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_timeout, sock_read=seconds),
                allow_redirects=False,
            ) as response:
                return Answer(response.status, response.headers, await _read(response))
        except aiohttp.ClientError as exc:
            raise self._failure(exc, way) from None
        finally:
            _WAY.reset(token)
            if way.transport is not None and way.transport.is_closing():
                way.transport.abort()  # aiohttp would wait until the server has taken all that was to be sent

    def _failure(self, exc: aiohttp.ClientError, way: _Way) -> Exception:
        reason = _reason(exc)
        if isinstance(exc, aiohttp.ConnectionTimeoutError):
            return ConnectionLostError(f"no connection within {self._connect_timeout:g} s")
        if isinstance(exc, TimeoutError):
            return TimeoutError()
        if isinstance(exc, aiohttp.InvalidURL):
            return EngineUnavailableError(f"{self.base} cannot be asked: {self.quote(reason)}", hint=URL_HINT)
        if isinstance(exc.__cause__, ContentEncodingError):
            return BadAnswerError(f"the answer cannot be read: {reason}")
        if way.kept and isinstance(exc, aiohttp.ClientConnectionError):  # later it would be a ClientPayloadError
            return _KeptConnectionLostError(reason)
        return ConnectionLostError(reason)

    def _onward(self, method: str, url: URL, answer: Answer) -> URL | None:
        """Where a redirect leads, if it is one: the same request, at the same server. The key goes nowhere else."""
        location = answer.headers.get("Location")
        if answer.status not in _REDIRECTS or location is None:
            return None
        try:
            target = url.join(URL(location)).with_user(None)
            origin = target.origin()
        except ValueError:
            raise BadAnswerError("the answer cannot be read: it redirects to what is no URL") from None
        if origin != url.origin() or (method != "GET" and answer.status not in _KEEP_THE_METHOD):
            raise EngineUnavailableError(f"{self.base} redirects {method} to {self.quote(str(origin))}", hint=URL_HINT)
        return target

    async def _pause(self, seconds: float) -> None:
        """Wait, but not longer than until all is closed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), seconds)

    def redact(self, text: str) -> str:
        """``text`` without our credentials; servers like to repeat what they were sent."""
        return self._address.redact(text)

    def quote(self, text: str) -> str:
        """What others said, for a message: redacted, on one line, the beginning of it."""
        line = " ".join(self.redact(text).split())
        return line if len(line) <= _LONGEST_QUOTE else line[: _LONGEST_QUOTE - 1] + "…"

    async def aclose(self) -> None:
        """Close all connections; requests in flight and pauses end with EngineDeadError. Safe to call twice."""
        self._closed.set()
        for limit in self._in_flight:
            if not limit.expired():
                limit.reschedule(0.0)
        if self._in_flight:
            await self._none_in_flight.wait()
        if self._session is not None:
            await self._session.close()


@dataclass(slots=True)
class _Way:
    """The connection that a request goes over.

    :ivar new: wanted is one that was not used before.
    :ivar kept: it was used before.
    """

    new: bool
    kept: bool = False
    transport: asyncio.Transport | None = None


_WAY: ContextVar[_Way] = ContextVar("_WAY")


class _Connector(aiohttp.TCPConnector):
    """Tells a request about its connection, and gives it a new one if it wants that; aiohttp does neither."""

    def __init__(self, tls: ssl.SSLContext | bool) -> None:
        super().__init__(
            limit=0,  # how many there are is up to the gate
            keepalive_timeout=_KEPT_S,
            ssl=tls,
            resolver=aiohttp.ThreadedResolver(),
            use_dns_cache=False,  # what fills the cache outlives a cancel
        )
        self._used: WeakSet[ResponseHandler] = WeakSet()

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - as aiohttp calls it
    ) -> Connection:
        way = _WAY.get()
        way.kept = False
        connection = await super().connect(req, traces, timeout)
        while way.new and connection.protocol in self._used:
            connection.close()  # it is as old as the one that was lost
            connection = await super().connect(req, traces, timeout)
        assert connection.protocol is not None
        way.kept, way.transport = connection.protocol in self._used, connection.transport
        self._used.add(connection.protocol)
        return connection


class _Body(aiohttp.Payload):
    """JSON in memory. aiohttp's own class for bytes warns of more than 1 MiB, which the image of a page may have."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body, content_type="application/json")
        self._body = body
        self._size = len(body)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._body.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        await writer.write(self._body)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > _LARGEST_ANSWER_MB << 20:
            raise BadAnswerError(f"the answer is larger than {_LARGEST_ANSWER_MB} MiB")
        parts.append(part)
    return b"".join(parts)


def _reason(exc: aiohttp.ClientError) -> str:
    if isinstance(exc, aiohttp.ClientConnectorError):
        return str(exc.args[1])  # in 3.11 not all of them have an os_error
    if isinstance(exc, aiohttp.ClientResponseError):
        return exc.message
    return str(exc) or f"connection lost ({type(exc).__name__})"
