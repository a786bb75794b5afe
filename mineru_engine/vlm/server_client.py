"""Asking one HTTP server: timeouts, redirects, tries again; every failure as an error that may be shown."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Callable

import httpx

from mineru_engine.errors import EngineDeadError, EngineUnavailableError
from mineru_engine.vlm.chat import BadAnswerError
from mineru_engine.vlm.config import VlmConfig
from mineru_engine.vlm.connections import Connection, Connections
from mineru_engine.vlm.retry import BUSY, CONNECTION_LOST, pause_s
from mineru_engine.vlm.server_address import KEY_HINT, URL_HINT, ServerAddress

__all__ = ("ServerClient",)

_REFUSED = frozenset({httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN})
_MOST_REDIRECTS = 3
_LONGEST_QUOTE = 200
_UNREACHABLE_HINT = "is the server running, and is MINERU_MODEL_VLM_SERVER_URL right?"


class ServerClient:
    """Sends requests to one server and to no other.

    :raises EngineUnavailableError: if the address, the key or the environment's proxy cannot be used.
    """

    def __init__(self, config: VlmConfig) -> None:
        self._address = ServerAddress.parse(config.server_url, config.api_key)
        self.base = self._address.base
        self._connect_timeout = config.connect_timeout
        self._max_retries = config.max_retries
        self._connections = Connections(self._client_maker(config))

    def _client_maker(self, config: VlmConfig) -> Callable[[], httpx.AsyncClient]:
        """What opens connections; tried out once, because the environment takes part in it."""
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=None)

        def make() -> httpx.AsyncClient:
            return httpx.AsyncClient(
                headers=self._address.headers, verify=certificates, trust_env=config.proxy_from_env, limits=limits
            )

        try:
            certificates: ssl.SSLContext = httpx.create_ssl_context()
            make()
        except (ImportError, OSError, ValueError, httpx.InvalidURL) as exc:
            raise EngineUnavailableError(
                f"connections to {self.base} cannot be set up: {self.quote(str(exc))}",
                hint="check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR",
            ) from None
        return make

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        seconds: float,
        again_on: tuple[type[Exception], ...] = CONNECTION_LOST,
    ) -> httpx.Response:
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
                if answer.status_code in _REFUSED:
                    raise EngineUnavailableError(f"{self.base}: {self._address.refusal}", hint=KEY_HINT)
                if answer.status_code not in BUSY or failures > self._max_retries:
                    return answer
                retry_after = answer.headers.get("Retry-After")
            except again_on as exc:
                if failures > self._max_retries:
                    raise self._unreachable(exc, seconds) from None
            await self._connections.pause(pause_s(failures, retry_after))
        raise AssertionError("counted to the end")

    async def ask_once(self, method: str, path: str, body: bytes | None = None, *, seconds: float) -> httpx.Response:
        """:meth:`ask` with one try. A kept connection that is lost is replaced, which counts as none.

        :raises httpx.TransportError: one of ``CONNECTION_LOST``.
        """
        most = self._connect_timeout + seconds  # for all of it: no read of an answer that trickles takes too long
        try:
            async with self._connections.lend(most) as connection:
                return await self._send(connection, method, path, body, seconds)
        except CONNECTION_LOST:
            if connection.used_at is None:
                raise
        async with self._connections.lend(most, new=True) as connection:
            return await self._send(connection, method, path, body, seconds)

    async def _send(
        self, connection: Connection, method: str, path: str, body: bytes | None, seconds: float
    ) -> httpx.Response:
        client = connection.client
        timeout = httpx.Timeout(seconds, connect=self._connect_timeout, pool=None)
        headers = None if body is None else {"Content-Type": "application/json"}
        request = client.build_request(
            method,
            self.base + path,
            content=body,
            headers=headers,
            timeout=timeout,
            extensions={"trace": connection.watch},
        )
        try:
            for _ in range(1 + _MOST_REDIRECTS):
                answer = await client.send(request)
                if answer.next_request is None:
                    return answer
                request = self._redirected(request, answer.next_request)
        except (httpx.ReadTimeout, httpx.WriteTimeout):
            raise TimeoutError from None
        except CONNECTION_LOST:
            raise
        except httpx.HTTPError as exc:
            raise BadAnswerError(f"the answer cannot be read: {_reason(exc)}") from None
        raise EngineUnavailableError(f"{self.base} redirects without end", hint=URL_HINT)

    def _redirected(self, request: httpx.Request, onward: httpx.Request) -> httpx.Request:
        """The request to follow a redirect with: the same one, at the same server. The key goes nowhere else."""
        if _origin(onward.url) != _origin(request.url) or onward.method != request.method:
            target = self.quote(f"{onward.url.scheme}://{onward.url.netloc.decode()}")
            raise EngineUnavailableError(f"{self.base} redirects {request.method} to {target}", hint=URL_HINT)
        return onward

    def _unreachable(self, exc: Exception, seconds: float) -> EngineDeadError:
        if isinstance(exc, httpx.ConnectTimeout):
            reason = f"no connection within {self._connect_timeout:g} s"
        elif isinstance(exc, TimeoutError):
            reason = f"no answer within {seconds:g} s"
        else:
            reason = self.quote(_reason(exc))
        return EngineDeadError(f"{self.base} cannot be reached: {reason}", hint=_UNREACHABLE_HINT)

    def redact(self, text: str) -> str:
        """``text`` without our credentials; servers like to repeat what they were sent."""
        return self._address.redact(text)

    def quote(self, text: str) -> str:
        """What others said, for a message: redacted, on one line, the beginning of it."""
        line = " ".join(self.redact(text).split())
        return line if len(line) <= _LONGEST_QUOTE else line[: _LONGEST_QUOTE - 1] + "…"

    async def aclose(self) -> None:
        """Close all connections; requests in flight fail. Safe to call twice."""
        await self._connections.aclose()


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _reason(exc: Exception) -> str:
    return str(exc) or f"connection lost ({type(exc).__name__})"
