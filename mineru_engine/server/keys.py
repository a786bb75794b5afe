"""API keys and what each tenant may use: ``DATA/keys.sqlite3``, written by ``mineru keys``, read by the server.

Of a key only its SHA-256 is kept. It is 256 random bits, so there is nothing to guess and nothing that a slow hash with
salt would protect, as it does for passwords. Revoked keys stay in the table: a server that once had keys never opens up
again because the last one went.
"""

from __future__ import annotations

import re
import secrets
import sqlite3
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Any, Self

from mineru_engine.errors import ErrorCode, MineruError, OptionError
from mineru_engine.server.database import StoreError

__all__ = ("FILE_NAME", "Key", "Keys", "TenantLimits")

FILE_NAME = "keys.sqlite3"
_PREFIX = "mineru_"  # so that people and scanners recognise one where it should not be
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TABLES = """
CREATE TABLE IF NOT EXISTS keys (
    id      TEXT PRIMARY KEY,
    name    TEXT NOT NULL,
    tenant  TEXT NOT NULL,
    digest  TEXT NOT NULL UNIQUE,
    created REAL NOT NULL,
    revoked REAL
);
CREATE UNIQUE INDEX IF NOT EXISTS keys_name ON keys (name) WHERE revoked IS NULL;
CREATE TABLE IF NOT EXISTS tenants (
    tenant          TEXT PRIMARY KEY,
    jobs_per_minute INTEGER NOT NULL DEFAULT 0,
    pages_per_day   INTEGER NOT NULL DEFAULT 0,
    running         INTEGER NOT NULL DEFAULT 0
);
"""


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """What all keys of a tenant may use together; 0 for any number.

    :ivar running: jobs that wait or run at the same time.
    """

    jobs_per_minute: int = 0
    pages_per_day: int = 0
    running: int = 0


@dataclass(frozen=True, slots=True)
class Key:
    """One API key, without the key.

    :ivar created: seconds since 1970; so is ``revoked``.
    """

    id: str
    name: str
    tenant: str
    created: float
    revoked: float | None
    limits: TenantLimits

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


class Keys:
    """The table of keys; a context manager. A running server sees what another process changes with the next request.

    Calls take microseconds and may be made on an event loop.

    :param path: of the database; made if it is not there.
    :raises StoreError: if it cannot be read; nobody may be let in then.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: int | None = None
        self._known: list[tuple[str, Key]] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=5, check_same_thread=False)
            self._connection.executescript(f"BEGIN IMMEDIATE;{_TABLES}COMMIT;")
        except (OSError, sqlite3.Error) as exc:
            raise _broken(exc) from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._connection.close()

    def add(self, name: str, tenant: str | None = None, limits: dict[str, int] | None = None) -> str:
        """Make a key.

        :param tenant: whose jobs it sees; default one of its own.
        :param limits: those fields of the tenant's :class:`TenantLimits` that change.
        :return: the key. It is not kept and cannot be shown again.
        :raises OptionError: if the name is taken or none.
        """
        owner = tenant or name
        for text in (name, owner):
            if not _NAME.fullmatch(text):
                raise OptionError(f"{text!r}: a name has letters, digits, dots, dashes and underscores, at most 64")
        token = _PREFIX + secrets.token_urlsafe(32)
        row = (secrets.token_hex(4), name, owner, _digest(token), time.time())
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.execute("INSERT INTO keys VALUES (?,?,?,?,?,NULL)", row)
                self._connection.execute("INSERT OR IGNORE INTO tenants (tenant) VALUES (?)", (owner,))
                for column, value in (limits or {}).items():
                    self._connection.execute(f"UPDATE tenants SET {column}=? WHERE tenant=?", (value, owner))
        except sqlite3.IntegrityError:
            raise OptionError(f"there is a key {name!r} already", hint=f"mineru keys revoke {name}") from None
        except sqlite3.Error as exc:
            raise _broken(exc) from exc
        self._version = None
        return token

    def revoke(self, name: str) -> Key:
        """Make a key worthless.

        :param name: or its id.
        :raises OptionError: if there is none.
        """
        found = [key for _, key in self._current() if key.revoked is None and name in (key.name, key.id)]
        if len(found) != 1:
            raise OptionError(f"no key {name!r}", hint="mineru keys list")
        self._run("UPDATE keys SET revoked=? WHERE id=?", (time.time(), found[0].id))
        self._version = None
        return found[0]

    def all(self) -> list[Key]:
        """All keys, revoked ones too, the oldest first."""
        return [key for _, key in self._current()]

    @property
    def required(self) -> bool:
        """Whether callers need a key."""
        return bool(self._current())

    def find(self, token: str) -> Key | None:
        """Whose key this is. The time it takes does not tell how nearly right a wrong one is."""
        digest, found = _digest(token), None
        for known, key in self._current():
            if compare_digest(known, digest) and key.revoked is None:
                found = key
        return found

    def limits(self, tenant: str) -> TenantLimits:
        """What a tenant may use."""
        return next((key.limits for _, key in self._current() if key.tenant == tenant), TenantLimits())

    def _current(self) -> list[tuple[str, Key]]:
        """Digests and keys; read again only if another process wrote, which SQLite tells without reading them."""
        version = self._run("PRAGMA data_version")[0][0]
        if version != self._version:
            rows = self._run(
                "SELECT digest, id, name, tenant, created, revoked, jobs_per_minute, pages_per_day, running"
                " FROM keys JOIN tenants USING (tenant) ORDER BY created"
            )
            self._known = [
                (digest, Key(key_id, name, tenant, created, revoked, TenantLimits(*limits)))
                for digest, key_id, name, tenant, created, revoked, *limits in rows
            ]
            self._version = version
        return self._known

    def _run(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        try:
            with closing(self._connection.execute(statement, values)) as cursor:
                return cursor.fetchall()
        except sqlite3.Error as exc:
            raise _broken(exc) from exc


def _digest(token: str) -> str:
    return sha256(token.encode(errors="surrogateescape")).hexdigest()


def _broken(exc: Exception) -> MineruError:
    return StoreError(f"the keys cannot be read or written: {type(exc).__name__}", code=ErrorCode.OUTPUT_NOT_WRITABLE)
