"""The configured VLM server: is it there, what does it serve, is the key right."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mineru_engine.doctor.finding import Finding, Level
from mineru_engine.errors import EngineError
from mineru_engine.options import Engine
from mineru_engine.settings import VlmSettings

if TYPE_CHECKING:
    from mineru_engine.vlm.server_client import Answer

__all__ = ("server",)

_TIMEOUT_S = 5.0
_SUBJECT = "vlm server"


def server(vlm: VlmSettings) -> Iterator[Finding]:
    """Ask for the model list, with the key; the key never shows."""
    if not vlm.server_url:
        message = "not configured; tiers high and xhigh use a local engine, or the built-in models"
        yield Finding(_SUBJECT, Level.NOTE, message, "set MINERU_MODEL_VLM_SERVER_URL")
        return
    try:
        yield asyncio.run(_ask(vlm))
    except EngineError as exc:
        yield Finding(_SUBJECT, Level.BROKEN, exc.message, exc.hint)


async def _ask(vlm: VlmSettings) -> Finding:
    """Ask as the engine does, but once."""
    from mineru_engine.vlm.config import VlmConfig
    from mineru_engine.vlm.discovery import ask_for_models, software_version
    from mineru_engine.vlm.server_client import ServerClient

    config = VlmConfig(
        Engine.HTTP,
        vlm.server_url,
        vlm.api_key,
        connect_timeout=_TIMEOUT_S,
        max_retries=0,
        proxy_from_env=vlm.proxy_from_env,
    )
    client = ServerClient(config)
    try:
        answer = await ask_for_models(client, _TIMEOUT_S)
        return _judge(vlm, client.base, answer, await software_version(client, _TIMEOUT_S))
    finally:
        await client.aclose()


def _judge(vlm: VlmSettings, shown: str, answer: Answer, version: str | None) -> Finding:
    from mineru_engine.vlm.discovery import served_models

    details: dict[str, object] = {"url": shown, "status": answer.status, "version": version}
    models = served_models(answer)
    if models is None:
        message = f"{shown} answers HTTP {answer.status}, but not as an OpenAI-compatible server"
        return Finding(_SUBJECT, Level.BROKEN, message, "the URL is the part before /v1/models", details)
    details["models"] = list(models)
    listed = ", ".join(models) or "none"
    if vlm.model and vlm.model not in models:
        message = f"{shown} does not serve {vlm.model}; it serves: {listed}"
        return Finding(_SUBJECT, Level.BROKEN, message, "set MINERU_MODEL_VLM_MODEL to one of them", details)
    engine = f", vLLM {version}" if version else ""
    return Finding(_SUBJECT, Level.OK, f"{shown} serves {listed}{engine}", details=details)
