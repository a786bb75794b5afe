"""Results in a Redis that servers share. Needs the extra ``redis``; a Redis in trouble is left alone for a while."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from mineru_engine.errors import ErrorCode, OptionError

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ("SharedCache",)

T = TypeVar("T")
_PREFIX = "mineru:result:1:"
_MAX_BYTES = 32 << 20
_DEADLINE_S = 2.0
_PAUSE_S = 30.0
_log = logging.getLogger(__name__)


class SharedCache:
    """Bytes by key. Nothing here raises once it is made: what does not work is a miss, and one line in the log.

    :param url: ``redis://``, ``rediss://`` or ``unix://``, with a password if need be.
    :raises OptionError: if the address makes no sense or the package is not installed.
    """

    max_bytes = _MAX_BYTES

    def __init__(self, url: str) -> None:
        try:
            from redis.asyncio import Redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError:
            raise OptionError(
                "server.cache_url: the Redis client is not installed",
                code=ErrorCode.SETTING_INVALID,
                hint="pip install 'mineru[redis]'",
            ) from None
        try:
            self._redis: Redis = Redis.from_url(url, retry=Retry(NoBackoff(), 0))
        except ValueError:
            raise OptionError(
                "server.cache_url: not an address of a Redis",
                code=ErrorCode.SETTING_INVALID,
                hint="as redis://HOST:6379/0",
            ) from None
        self._paused_until = 0.0

    async def get(self, key: str) -> bytes | None:
        """What lies there."""
        payload = await self._ask(self._redis.getrange(_PREFIX + key, 0, _MAX_BYTES))
        return payload if isinstance(payload, bytes) and 0 < len(payload) <= _MAX_BYTES else None

    async def put(self, key: str, payload: bytes, ttl: float) -> None:
        """Leave something for ``ttl`` seconds."""
        await self._ask(self._redis.set(_PREFIX + key, payload, px=max(1, int(ttl * 1000))))

    async def aclose(self) -> None:
        """End the connections."""
        await self._redis.aclose()

    async def _ask(self, question: Awaitable[T]) -> T | None:
        from redis import RedisError, ResponseError

        if time.monotonic() < self._paused_until:
            question.close()  # type: ignore[attr-defined]
            return None
        try:
            async with asyncio.timeout(_DEADLINE_S):
                return await question
        except ResponseError as exc:  # it is well, only this key or command is not
            _log.warning("the shared cache refused: %s", exc)
        except (RedisError, OSError, TimeoutError) as exc:
            if time.monotonic() >= self._paused_until:
                self._paused_until = time.monotonic() + _PAUSE_S
                reason = str(exc) or "no answer in time"
                _log.warning("the shared cache is left alone for %.0f s: %s", _PAUSE_S, reason)
        return None
