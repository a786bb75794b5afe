"""Identical bytes with identical effective options give the stored result at once.

What is remembered is only where a result lies: in the directory of the job that made it. It is linked from there, not
copied, so that each job can be deleted without the other's loss.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from mineru_engine.manifest import fingerprint, read_manifest
from mineru_engine.options import ParseOptions
from mineru_engine.result import OutputFormat
from mineru_engine.server.jobs import Job, JobFile
from mineru_engine.server.storage import Storage
from mineru_engine.settings import Settings
from mineru_engine.versions import installed_versions

__all__ = ("ResultCache",)

_FACTS = ("tier", "engine", "model", "done", "total", "diagnostics")


class ResultCache:
    """Results by what they were made from.

    :param storage: where results of jobs lie.
    :param ttl: seconds for which a result is given again; 0 for never.
    """

    def __init__(self, storage: Storage, ttl: float) -> None:
        self._storage = storage
        self._ttl = ttl
        self.hits = 0
        self.misses = 0
        self._known: dict[str, tuple[float, Path, dict[str, Any]]] = {}

    def key(self, job: Job, file: JobFile, settings: Settings) -> str | None:
        """What decides a result: the document's bytes, name and pages, the options in force, the versions."""
        if self._ttl <= 0:
            return None
        options = ParseOptions.create(**{**job.options, **({"pages": file.pages} if file.pages else {})})
        formats = [OutputFormat(name) for name in job.formats]
        parts = [file.sha256, file.stored, fingerprint(options, settings, formats, layout=False), installed_versions()]
        return sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()

    async def fetch(self, key: str, job: Job, file: JobFile) -> bool:
        """Make a kept result that of a document; whether there was one."""
        self._forget_old()
        known = self._known.get(key)
        target = self._storage.result(job, file)
        if known is None or not await asyncio.to_thread(_link, known[1], target):
            self.misses += 1
            return False
        for name, value in known[2].items():
            setattr(file, name, value)
        file.cached = True
        self.hits += 1
        return True

    async def keep(self, key: str, job: Job, file: JobFile) -> None:
        """Remember a result."""
        facts = {name: getattr(file, name) for name in _FACTS}
        self._known[key] = (time.monotonic() + self._ttl, self._storage.result(job, file), facts)

    def _forget_old(self) -> None:
        now = time.monotonic()
        for key in [key for key, (end, _, _) in self._known.items() if end < now]:
            del self._known[key]


def _link(source: Path, target: Path) -> bool:
    if read_manifest(source) is None:
        return False
    shutil.rmtree(target, ignore_errors=True)
    try:
        shutil.copytree(source, target, copy_function=_link_or_copy)
    except OSError:  # the job it belongs to was deleted this moment, or the disk is full
        shutil.rmtree(target, ignore_errors=True)
        return False
    return True


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
