"""The configured VLM server: is it there, what does it serve, is the key right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mineru_engine.doctor.finding import Finding, Level
from mineru_engine.errors import EngineUnavailableError
from mineru_engine.settings import VlmSettings

if TYPE_CHECKING:
    import httpx

    from mineru_engine.vlm.server_address import ServerAddress

__all__ = ("server",)

_TIMEOUT_S = 5.0
_SUBJECT = "vlm server"


def server(vlm: VlmSettings) -> Iterator[Finding]:
    """Ask for the model list, with the key; the key never shows."""
    if not vlm.server_url:
        message = "not configured; tiers high and xhigh need one"
        yield Finding(_SUBJECT, Level.NOTE, message, "set MINERU_MODEL_VLM_SERVER_URL")
        return
    import httpx

    from mineru_engine.vlm.server_address import ServerAddress

    try:
        address = ServerAddress.parse(vlm.server_url, vlm.api_key)
    except EngineUnavailableError as exc:
        yield Finding(_SUBJECT, Level.BROKEN, exc.message, exc.hint)
        return
    with httpx.Client(timeout=_TIMEOUT_S, headers=address.headers, follow_redirects=False) as client:
        try:
            answer = client.get(f"{address.base}/v1/models")
        except httpx.HTTPError as exc:
            reason = address.redact(str(exc)) or type(exc).__name__
            hint = "is the server running, and is the URL right? (it is the part before /v1)"
            yield Finding(_SUBJECT, Level.BROKEN, f"{address.base} does not answer: {reason}", hint)
            return
        yield _judge(vlm, address, answer, _version(client, address.base))


def _judge(vlm: VlmSettings, address: ServerAddress, answer: httpx.Response, version: str | None) -> Finding:
    from mineru_engine.vlm.discovery import served_models

    shown = address.base
    details: dict[str, object] = {"url": shown, "status": answer.status_code, "version": version}
    if answer.status_code in {401, 403}:
        return Finding(_SUBJECT, Level.BROKEN, f"{shown}: {address.refusal}", "set MINERU_MODEL_VLM_API_KEY", details)
    models = served_models(answer.content) if answer.is_success else None
    if models is None:
        message = f"{shown} answers HTTP {answer.status_code}, but not as an OpenAI-compatible server"
        return Finding(_SUBJECT, Level.BROKEN, message, "the URL is the part before /v1/models", details)
    details["models"] = list(models)
    listed = ", ".join(models) or "none"
    if vlm.model and vlm.model not in models:
        message = f"{shown} does not serve {vlm.model}; it serves: {listed}"
        return Finding(_SUBJECT, Level.BROKEN, message, "set MINERU_MODEL_VLM_MODEL to one of them", details)
    engine = f", vLLM {version}" if version else ""
    return Finding(_SUBJECT, Level.OK, f"{shown} serves {listed}{engine}", details=details)


def _version(client: httpx.Client, base: str) -> str | None:
    """vLLM's version; other servers have no such place."""
    import httpx

    from mineru_engine.vlm.discovery import software_version

    try:
        answer = client.get(f"{base}/version")
    except httpx.HTTPError:
        return None
    return software_version(answer.content) if answer.is_success else None
