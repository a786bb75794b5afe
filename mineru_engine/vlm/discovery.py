"""What a model server says about itself."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

import orjson

from mineru_engine.errors import EngineDeadError, EngineError, EngineUnavailableError
from mineru_engine.vlm.chat import BadAnswerError
from mineru_engine.vlm.retry import BUSY
from mineru_engine.vlm.server_address import URL_HINT
from mineru_engine.vlm.server_client import Answer, ConnectionLostError, ServerClient
from mineru_engine.vlm.transport import EngineInfo

__all__ = ("ask_for_models", "discover", "served_models", "software_version")

_MODEL_HINT = "name one with --model or MINERU_MODEL_VLM_MODEL"
_MOST_NAMES = 20


async def discover(client: ServerClient, model: str | None, seconds: float) -> EngineInfo:
    """Find out what is behind an address.

    :param model: the one to use; ``None`` for the only one.
    :param seconds: for each of the two questions.
    :raises EngineUnavailableError: if it is no OpenAI-compatible server, refuses the key or does not serve the model.
    :raises EngineDeadError: if it cannot be reached, or is too busy to say.
    """
    answer = await ask_for_models(client, seconds)
    served = served_models(answer)
    if served is None and not (answer.status == 404 and model):
        raise EngineUnavailableError(
            f"{client.base} answers HTTP {answer.status}, but not as an OpenAI-compatible server", hint=URL_HINT
        )
    chosen = model if served is None and model else _choose(model, served or (), client)
    version = await software_version(client, seconds) or answer.headers.get("Server")
    return EngineInfo("http", chosen, version, client.base, served or ())


async def ask_for_models(client: ServerClient, seconds: float) -> Answer:
    """The answer to ``/v1/models``, for :func:`served_models`.

    :raises EngineUnavailableError: if it cannot be read or refuses the key.
    :raises EngineDeadError: if the server cannot be reached, or is too busy to say.
    """
    try:
        answer = await client.ask("GET", "/v1/models", seconds=seconds, again_on=(ConnectionLostError, TimeoutError))
    except BadAnswerError as exc:
        raise EngineUnavailableError(f"{client.base}: {client.quote(str(exc))}", hint=URL_HINT) from None
    if answer.status in BUSY:
        raise EngineDeadError(f"{client.base} answers every request with HTTP {answer.status}")
    return answer


def served_models(answer: Answer) -> tuple[str, ...] | None:
    """The names in an answer to ``/v1/models``; ``None`` if it is something else."""
    try:
        return tuple(str(entry["id"]) for entry in orjson.loads(answer.body)["data"]) if answer.is_success else None
    except (ValueError, KeyError, TypeError):
        return None


async def software_version(client: ServerClient, seconds: float) -> str | None:
    """The version that vLLM tells; other servers have no such place."""
    try:
        answer = await client.ask_once("GET", "/version", seconds=seconds)
        return str(orjson.loads(answer.body)["version"]) if answer.is_success else None
    except (EngineError, ConnectionLostError, TimeoutError, ValueError, KeyError, TypeError):
        return None


def _choose(model: str | None, served: Sequence[str], client: ServerClient) -> str:
    listed = client.redact(", ".join(served[:_MOST_NAMES]) + ", …" * (len(served) > _MOST_NAMES)) or "none"
    if model in served:
        return str(model)
    if model is not None:
        near = get_close_matches(model, served, n=1)
        hint = f"did you mean {client.redact(near[0])}? {_MODEL_HINT}" if near else _MODEL_HINT
        raise EngineUnavailableError(f"{client.base} does not serve {model}; it serves: {listed}", hint=hint)
    if len(served) != 1:
        what = f"several models: {listed}" if served else "no model"
        raise EngineUnavailableError(f"{client.base} serves {what}", hint=_MODEL_HINT)
    return served[0]
