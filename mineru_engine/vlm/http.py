"""A vision-language model behind any OpenAI-compatible server: vLLM, SGLang, LMDeploy, llama.cpp and others."""

from __future__ import annotations

from mineru_engine.errors import EngineDeadError, EngineError, EngineRequestError, EngineUnavailableError
from mineru_engine.runtime.cancel import run_to_end
from mineru_engine.vlm.chat import BadAnswerError, error_message, read_reply, request_body
from mineru_engine.vlm.config import VlmConfig
from mineru_engine.vlm.discovery import discover
from mineru_engine.vlm.retry import BUSY
from mineru_engine.vlm.server_client import Answer, ConnectionLostError, ServerClient
from mineru_engine.vlm.transport import EngineInfo, VlmReply, VlmRequest

__all__ = ("MOST_TURNED_AWAY", "HttpTransport")

MOST_TURNED_AWAY = 32
"""Requests in a row that a server may turn away, each at all its tries, before it counts as gone."""

_NOT_FOUND_HINT = "does the server still serve the model, and is the server URL the part before /v1?"


class HttpTransport:
    """Asks a server; how a :class:`mineru_engine.vlm.transport.Transport` behaves is said there.

    Tries again after 429, 502, 503, 504 and lost connections, ``config.max_retries`` times.
    """

    concurrency: int | None = None

    def __init__(self, config: VlmConfig) -> None:
        self._config = config
        self._client: ServerClient | None = None
        self._model = ""
        self._turned_away = 0

    async def start(self) -> EngineInfo:
        """Find the server, its model and its version."""
        self._client = ServerClient(self._config)
        try:
            info = await discover(self._client, self._config.model, self._config.connect_timeout)
        except BaseException:
            await self.aclose()
            raise
        self._model = info.model
        return info

    async def generate(self, request: VlmRequest) -> VlmReply:
        """Run one request; ``config.http_timeout`` seconds for each try. Cancelling closes its connection."""
        client, seconds = self._client, self._config.http_timeout
        assert client is not None, "start() comes first"
        body = request_body(self._model, request)
        try:
            answer = await self._ask(client, body)
            if not answer.is_success:
                raise self._failure(client, answer)
            self._turned_away = 0
            return read_reply(answer.body)
        except BadAnswerError as exc:
            raise EngineRequestError(f"{client.base}: {client.quote(str(exc))}") from None
        except TimeoutError:
            raise EngineRequestError(
                f"{client.base} did not answer within {seconds:g} s",
                hint="MINERU_MODEL_VLM_HTTP_TIMEOUT sets how long a request may take",
            ) from None

    async def _ask(self, client: ServerClient, body: bytes) -> Answer:
        try:
            return await client.ask("POST", "/v1/chat/completions", body, seconds=self._config.http_timeout)
        except EngineDeadError as exc:
            if not await self._still_there(client) or self._turned_away_again():
                raise
            # It is this request that the server cannot bear.
            raise EngineRequestError(f"the connection was lost each time: {exc.message}") from None

    def _turned_away_again(self) -> bool:
        self._turned_away += 1
        return self._turned_away >= MOST_TURNED_AWAY

    async def _still_there(self, client: ServerClient) -> bool:
        try:
            await client.ask_once("GET", "/v1/models", seconds=self._config.connect_timeout)
        except (EngineError, BadAnswerError, TimeoutError, ConnectionLostError):
            return False
        return True

    def _failure(self, client: ServerClient, answer: Answer) -> EngineError:
        status = answer.status
        said = f"{client.base} answers HTTP {status}: {client.quote(error_message(answer.body))}"
        if status in BUSY and self._turned_away_again():
            return EngineDeadError(f"{client.base} answers every request with {status}")
        if status == 404 or status < 400:
            return EngineUnavailableError(said, hint=_NOT_FOUND_HINT)
        return EngineRequestError(said)

    async def aclose(self) -> None:
        """Close all connections. Safe to call twice."""
        if self._client is not None:
            await run_to_end(self._client.aclose())
