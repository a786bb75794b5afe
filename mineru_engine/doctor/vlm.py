"""The configured VLM server: is it there, what does it serve, is the key right."""

from __future__ import annotations

from collections.abc import Iterator

from mineru_engine.doctor.finding import Finding, Level, without_credentials
from mineru_engine.settings import VlmSettings

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

    shown = without_credentials(vlm.server_url)
    base = vlm.server_url.rstrip("/").removesuffix("/v1")
    headers = {"Authorization": f"Bearer {vlm.api_key.get_secret_value()}"} if vlm.api_key else {}
    with httpx.Client(timeout=_TIMEOUT_S, headers=headers, follow_redirects=False) as client:
        try:
            answer = client.get(f"{base}/v1/models")
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            reason = str(exc) or type(exc).__name__
            reason = reason.replace(vlm.server_url, shown)
            hint = "is the server running, and is the URL right? (it is the part before /v1)"
            yield Finding(_SUBJECT, Level.BROKEN, f"{shown} does not answer: {reason}", hint)
            return
        yield _judge(vlm, shown, answer, _version(client, base))


def _judge(vlm: VlmSettings, shown: str, answer: object, version: str | None) -> Finding:
    import httpx

    assert isinstance(answer, httpx.Response)
    details: dict[str, object] = {"url": shown, "status": answer.status_code, "version": version}
    if answer.status_code in {401, 403}:
        given = "the API key was refused" if vlm.api_key else "it wants an API key"
        return Finding(_SUBJECT, Level.BROKEN, f"{shown}: {given}", "set MINERU_MODEL_VLM_API_KEY", details)
    models = _models(answer)
    if models is None:
        message = f"{shown} answers HTTP {answer.status_code}, but not as an OpenAI-compatible server"
        return Finding(_SUBJECT, Level.BROKEN, message, "the URL is the part before /v1/models", details)
    details["models"] = models
    listed = ", ".join(models) or "none"
    if vlm.model and vlm.model not in models:
        message = f"{shown} does not serve {vlm.model}; it serves: {listed}"
        return Finding(_SUBJECT, Level.BROKEN, message, "set MINERU_MODEL_VLM_MODEL to one of them", details)
    engine = f", vLLM {version}" if version else ""
    return Finding(_SUBJECT, Level.OK, f"{shown} serves {listed}{engine}", details=details)


def _models(answer: object) -> list[str] | None:
    import httpx

    assert isinstance(answer, httpx.Response)
    try:
        return [str(entry["id"]) for entry in answer.json()["data"]] if answer.is_success else None
    except (ValueError, KeyError, TypeError):
        return None


def _version(client: object, base: str) -> str | None:
    """vLLM's version; other servers have no such place."""
    import httpx

    assert isinstance(client, httpx.Client)
    try:
        answer = client.get(f"{base}/version")
        return str(answer.json()["version"]) if answer.is_success else None
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None
