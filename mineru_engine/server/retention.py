"""How long ended jobs are kept: by age, and by the room they take together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Self

from mineru_engine.errors import MineruError
from mineru_engine.server.storage import Storage
from mineru_engine.server.store import JobStore
from mineru_engine.settings import ServerSettings

__all__ = ("Retention",)

_EVERY_S = 60.0
_log = logging.getLogger(__name__)


class Retention:
    """Removes ended jobs now and then; an asynchronous context manager."""

    def __init__(self, store: JobStore, storage: Storage, limits: ServerSettings) -> None:
        self._store = store
        self._storage = storage
        self._limits = limits
        self._sizes: dict[str, int] = {}
        self._task: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while True:
            try:
                await self.sweep()
            except (MineruError, OSError) as exc:
                _log.warning("old jobs could not be removed: %s", exc)
            await asyncio.sleep(_EVERY_S)

    async def sweep(self) -> None:
        """Remove what is too old, then the oldest until the rest is small enough."""
        if self._limits.retention_hours:
            for job_id in await self._store.ended(time.time() - self._limits.retention_hours * 3600):
                await self._remove(job_id)
        if not self._limits.retention_gb:
            return
        jobs = await self._store.ended()
        self._sizes = {job_id: await self._size(job_id) for job_id in jobs}
        excess = sum(self._sizes.values()) - self._limits.retention_gb * 1e9
        for job_id in jobs:
            if excess <= 0:
                break
            await self._remove(job_id)
            excess -= self._sizes.pop(job_id)

    async def _size(self, job_id: str) -> int:
        """Looked up once: an ended job does not grow."""
        known = self._sizes.get(job_id)
        return await asyncio.to_thread(self._storage.size, job_id) if known is None else known

    async def _remove(self, job_id: str) -> None:
        await self._store.delete(job_id)
        await asyncio.to_thread(self._storage.delete, job_id)
