"""Identical bytes with identical effective options give the stored result at once.

What is remembered is only where a result lies: in the directory of the job that made it, in memory for a while, and in
the job database for as long as the job is kept. It is linked from there, not copied, so that each job can be deleted
without the other's loss. Servers that share a Redis give each other's results too: see :mod:`shared_cache`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from mineru_engine.manifest import fingerprint
from mineru_engine.options import ParseOptions
from mineru_engine.result import OutputFormat
from mineru_engine.runtime.cancel import run_to_end
from mineru_engine.server.copies import link_result, pack_result, unpack_result
from mineru_engine.server.database import StoreError
from mineru_engine.server.jobs import Job, JobFile, JobState
from mineru_engine.server.shared_cache import SharedCache
from mineru_engine.server.storage import Storage
from mineru_engine.server.store import JobStore
from mineru_engine.settings import Settings
from mineru_engine.versions import installed_versions

__all__ = ("ResultCache",)

_FACTS = {"tier": str, "engine": str, "model": str, "done": int, "total": int, "diagnostics": list}
_log = logging.getLogger(__name__)


class ResultCache:
    """Results by what they were made from. No trouble of its own ends a job: then the document is parsed.

    :param storage: where results of jobs lie.
    :param ttl: seconds for which memory and Redis keep a result; 0 for no cache at all.
    :param shared: asked first.
    """

    def __init__(self, storage: Storage, store: JobStore, ttl: float, shared: SharedCache | None = None) -> None:
        self._storage = storage
        self._store = store
        self._ttl = ttl
        self._shared = shared
        self.hits = 0
        self.misses = 0
        self._recent: dict[str, tuple[float, Path, dict[str, Any]]] = {}

    def key(self, job: Job, file: JobFile, settings: Settings) -> str | None:
        """What decides a result: the document's bytes, name and pages, the options in force, the versions.

        And whose it is: that somebody else had the same document parsed is nobody's business.
        """
        if self._ttl <= 0:
            return None
        options = ParseOptions.create(**job.options_of(file))
        formats = [OutputFormat(name) for name in job.formats]
        parts = [
            job.tenant,
            file.sha256,
            file.stored,
            fingerprint(options, settings, formats, layout=False),
            installed_versions(),
        ]
        return sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()

    async def fetch(self, key: str, job: Job, file: JobFile) -> bool:
        """Make a kept result that of a document; whether there was one."""
        target = self._storage.result(job, file)
        for level in (self._from_redis, self._from_memory, self._from_disk):
            facts = await level(key, target)
            if facts is not None:
                break
        else:
            self.misses += 1
            return False
        self.hits += 1
        for name in _FACTS:
            setattr(file, name, facts[name])
        file.cached = True
        await self._remember(key, job, file)
        return True

    async def keep(self, key: str, job: Job, file: JobFile) -> None:
        """Remember a result."""
        await self._remember(key, job, file)
        if self._shared is not None:
            home = self._storage.result(job, file)
            payload = await asyncio.to_thread(pack_result, home, _facts(file), self._shared.max_bytes)
            if payload is not None:
                await self._shared.put(key, payload, self._ttl)

    async def aclose(self) -> None:
        """Leave Redis."""
        if self._shared is not None:
            await self._shared.aclose()

    async def _from_redis(self, key: str, target: Path) -> dict[str, Any] | None:
        payload = None if self._shared is None else await self._shared.get(key)
        if payload is None:
            return None
        try:
            facts = await run_to_end(asyncio.to_thread(unpack_result, payload, target))
            if not all(isinstance(facts[name], kind) for name, kind in _FACTS.items()):
                raise ValueError("its facts are wrong")
        except Exception as exc:  # noqa: BLE001 - what others wrote there may fail in any way
            _log.warning("the shared cache holds something that is no result: %s", exc)
            return None
        return facts

    async def _from_memory(self, key: str, target: Path) -> dict[str, Any] | None:
        self._forget()
        _, home, facts = self._recent.get(key, (0.0, None, {}))
        if home is None or not await run_to_end(asyncio.to_thread(link_result, home, target)):
            return None
        return facts

    def _forget(self) -> None:
        """Drop from memory what was kept long enough: the first ones, as all are kept equally long."""
        now = time.monotonic()
        while self._recent and self._recent[first := next(iter(self._recent))][0] < now:
            del self._recent[first]

    async def _from_disk(self, key: str, target: Path) -> dict[str, Any] | None:
        try:
            found = await self._store.result(key)
        except StoreError as exc:
            _log.warning("the result cache cannot be read: %s", exc.message)
            return None
        if found is None:
            return None
        job, stem = found
        file = next((file for file in job.files if file.stem == stem), None)
        if file is None or file.state is not JobState.COMPLETED:
            return None
        home = self._storage.result(job, file)
        return _facts(file) if await run_to_end(asyncio.to_thread(link_result, home, target)) else None

    async def _remember(self, key: str, job: Job, file: JobFile) -> None:
        """The latest job with a result is the one that will be kept longest."""
        self._forget()
        self._recent.pop(key, None)  # what is new comes last
        self._recent[key] = (time.monotonic() + self._ttl, self._storage.result(job, file), _facts(file))
        try:
            await self._store.keep_result(key, job.id, file.stem)
        except StoreError as exc:
            _log.warning("the result cache cannot be written: %s", exc.message)


def _facts(file: JobFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in _FACTS}
