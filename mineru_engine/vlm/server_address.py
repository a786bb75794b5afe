"""Where a model server is and what opens it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from urllib.parse import quote

import httpx
from pydantic import SecretStr

from mineru_engine.errors import EngineUnavailableError

__all__ = ("KEY_HINT", "URL_HINT", "ServerAddress")

KEY_HINT = "set MINERU_MODEL_VLM_API_KEY to the server's key"
URL_HINT = "set MINERU_MODEL_VLM_SERVER_URL as http://HOST:PORT; it is the part before /v1"


@dataclass(frozen=True, slots=True, repr=False)
class ServerAddress:
    """Where a server is and what opens it. Only ``base`` may be shown.

    :ivar base: the URL before ``/v1``, without credentials and without a slash at its end.
    """

    base: str
    _key: str
    _user: str
    _password: str

    @classmethod
    def parse(cls, url: str | None, api_key: SecretStr | None) -> ServerAddress:
        """Read a URL as people write it: with or without ``/v1``, a slash, a prefix or ``user:password@``.

        :raises EngineUnavailableError: if it is no URL of a server, or the key is none that HTTP can carry.
        """
        if not url:
            raise EngineUnavailableError("no VLM server is configured", hint=URL_HINT)
        parsed = _parse(url.strip())
        if parsed is None:
            raise EngineUnavailableError(f"{_without_secrets(url)!r} is not the URL of a server", hint=URL_HINT)
        key = api_key.get_secret_value().strip() if api_key else ""
        if not (key.isascii() and key.isprintable()):
            raise EngineUnavailableError("the API key has characters that HTTP cannot carry", hint=KEY_HINT)
        path = parsed.path.rstrip("/").removesuffix("/v1").rstrip("/")
        base = str(parsed.copy_with(userinfo=b"", path=path or "/")).rstrip("/")
        return cls(base, key, parsed.username, parsed.password)

    def __repr__(self) -> str:
        return f"<ServerAddress {self.base}>"

    @property
    def headers(self) -> dict[str, str]:
        """The ``Authorization``, if there is one. A key is stronger than a user and password in the URL."""
        if self._key:
            return {"Authorization": f"Bearer {self._key}"}
        return {"Authorization": f"Basic {self._basic}"} if self._user or self._password else {}

    @property
    def refusal(self) -> str:
        """What a 401 or 403 means."""
        return "the API key was refused" if self.headers else "it wants an API key"

    @property
    def _basic(self) -> str:
        return base64.b64encode(f"{self._user}:{self._password}".encode()).decode()

    def redact(self, text: str) -> str:
        """``text`` with every credential in it blackened; servers like to repeat what they were sent."""
        secrets = {self._key, self._user, self._password, self._basic}
        secrets |= {quote(secret, safe="") for secret in secrets}
        for secret in sorted(filter(None, secrets), key=len, reverse=True):  # the longest first: one may hold another
            text = text.replace(secret, "***")
        return text


def _parse(text: str) -> httpx.URL | None:
    try:
        url = httpx.URL(text)
        url.host.encode("idna")  # as the resolver will; its UnicodeError is none of httpx's errors
    except (httpx.InvalidURL, UnicodeError):
        return None
    is_server = url.scheme in {"http", "https"} and url.host and (url.port or 1) < 1 << 16
    return url if is_server and not url.query and not url.fragment else None


def _without_secrets(url: str) -> str:
    """Of what may be no URL at all: nothing that a password or a query could be."""
    text = url.partition("?")[0]
    return f"***@{text.rpartition('@')[2]}" if "@" in text else text
