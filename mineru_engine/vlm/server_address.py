"""Where a model server is, the way to it, and what opens both."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from urllib.parse import quote
from urllib.request import getproxies, proxy_bypass

from pydantic import SecretStr
from yarl import URL

from mineru_engine.errors import EngineUnavailableError

__all__ = ("ENVIRONMENT_HINT", "KEY_HINT", "URL_HINT", "ServerAddress")

KEY_HINT = "set MINERU_MODEL_VLM_API_KEY to the server's key"
URL_HINT = "set MINERU_MODEL_VLM_SERVER_URL as http://HOST:PORT; it is the part before /v1"
ENVIRONMENT_HINT = "check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"


@dataclass(frozen=True, slots=True, repr=False)
class ServerAddress:
    """Where a server is, the way to it, and what opens both. Only ``base`` may be shown.

    :ivar base: the URL before ``/v1``, without credentials and without a slash at its end.
    :ivar proxy: with its credentials.
    """

    base: str
    _key: str
    _user: str
    _password: str
    proxy: URL | None

    @classmethod
    def parse(cls, url: str | None, api_key: SecretStr | None, *, proxy_from_env: bool = False) -> ServerAddress:
        """Read a URL as people write it: with or without ``/v1``, a slash, a prefix or ``user:password@``.

        :raises EngineUnavailableError: if it is no URL of a server, the key is none that HTTP can carry, or the
            environment's proxy is no HTTP proxy.
        """
        if not url:
            raise EngineUnavailableError("no VLM server is configured", hint=URL_HINT)
        parsed = _parse(url.strip())
        if parsed is None:
            raise EngineUnavailableError(f"{_without_secrets(url)!r} is not the URL of a server", hint=URL_HINT)
        key = api_key.get_secret_value().strip() if api_key else ""
        if not (key.isascii() and key.isprintable()):
            raise EngineUnavailableError("the API key has characters that HTTP cannot carry", hint=KEY_HINT)
        path = parsed.raw_path.rstrip("/").removesuffix("/v1").rstrip("/")
        base = str(parsed.origin()) + path
        proxy = _environment_proxy(parsed, base) if proxy_from_env else None
        return cls(base, key, parsed.user or "", parsed.password or "", proxy)

    def __repr__(self) -> str:
        return f"<ServerAddress {self.base}>"

    @property
    def headers(self) -> dict[str, str]:
        """The ``Authorization``, if there is one. A key is stronger than a user and password in the URL."""
        if self._key:
            return {"Authorization": f"Bearer {self._key}"}
        if self._user or self._password:
            return {"Authorization": f"Basic {_basic(self._user, self._password)}"}
        return {}

    @property
    def uses_tls(self) -> bool:
        """Whether certificates are needed, for the server or for the proxy."""
        return self.base.startswith("https:") or (self.proxy is not None and self.proxy.scheme == "https")

    @property
    def refusal(self) -> str:
        """What a 401 or 403 means."""
        return "the API key was refused" if self.headers else "it wants an API key"

    def redact(self, text: str) -> str:
        """``text`` with every credential in it blackened; servers like to repeat what they were sent."""
        secrets = {self._key, self._user, self._password, _basic(self._user, self._password)}
        if self.proxy is not None:
            user, password = self.proxy.user or "", self.proxy.password or ""
            secrets |= {user, password, _basic(user, password)}
        secrets |= {quote(secret, safe="") for secret in secrets}
        for secret in sorted(filter(None, secrets), key=len, reverse=True):  # the longest first: one may hold another
            text = text.replace(secret, "***")
        return text


def _basic(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def _parse(text: str) -> URL | None:
    try:
        url = URL(text)
        host = url.host or ""
        host.encode("idna")  # as the resolver will
    except ValueError:  # UnicodeError is one
        return None
    is_server = url.scheme in {"http", "https"} and host and " " not in host and text.isprintable()
    return url if is_server and not url.raw_query_string and not url.raw_fragment else None


def _environment_proxy(server: URL, base: str) -> URL | None:
    """The proxy that the environment names for a server; aiohttp's own search would read ``.netrc`` as well."""
    proxies = getproxies()
    text = proxies.get(server.scheme) or proxies.get("all")
    if not text or proxy_bypass(str(server.host)) or proxy_bypass(f"{server.host}:{server.port}"):
        return None
    proxy = _parse(text if "://" in text else f"http://{text}")
    if proxy is None:
        reason = f"connections to {base} cannot be set up: the proxy is none for HTTP"
        raise EngineUnavailableError(reason, hint=ENVIRONMENT_HINT)
    return proxy


def _without_secrets(url: str) -> str:
    """Of what may be no URL at all: nothing that a password or a query could be."""
    text = url.partition("?")[0]
    return f"***@{text.rpartition('@')[2]}" if "@" in text else text
