"""What of settings, options and the command line may be shown: everything but secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

if TYPE_CHECKING:
    from mineru_engine.options import ParseOptions
    from mineru_engine.settings import Settings

__all__ = ("masked", "public_command", "public_options", "public_settings")

_MASK = "********"
_SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:api)?(?:key|token|secret|password|credentials?|authorization)(?:$|[_-])", re.IGNORECASE
)


def masked(value: Any) -> Any:
    """A plain value of it: secrets, credentials of URLs and whatever is named like a secret are blackened."""
    if isinstance(value, SecretStr):
        return _MASK
    if isinstance(value, str):
        return _without_credentials(value)
    if isinstance(value, Mapping):
        return {name: _MASK if _is_secret(name, child) else masked(child) for name, child in value.items()}
    return [masked(child) for child in value] if isinstance(value, list | tuple) else value


def _is_secret(name: object, value: object) -> bool:
    return isinstance(value, str) and _SECRET_NAME.search(str(name)) is not None


def _without_credentials(text: str) -> str:
    """Of a URL all before the last ``@``, even if that is more than its user and password; and its query."""
    head, separator, rest = text.partition("://")
    if not separator:
        return text
    rest = f"***@{rest.rpartition('@')[2]}" if "@" in rest else rest
    address, query, _ = rest.partition("?")
    return f"{head}://{address}{'?***' if query else ''}"


def public_settings(settings: Settings) -> dict[str, Any]:
    """Dotted name → value of all settings in force, but those of the job server, which is not measured."""
    return {name: masked(value) for name, value in settings.leaves() if not name.startswith("server.")}


def public_options(options: ParseOptions) -> dict[str, Any]:
    """What every parse of the benchmark was asked for; the pages are those of the inputs."""
    values: dict[str, Any] = masked(options.fingerprint() | {"window_size": options.window_size})
    del values["pages"]
    return values


def public_command(words: Sequence[str]) -> list[str]:
    """The command as typed."""
    return [_without_credentials(word) for word in words]
