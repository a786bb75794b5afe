"""A transport with a gate before it and counters beside it: what the documents of a runtime share."""

from __future__ import annotations

import asyncio
import copy
import time
from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from mineru_engine.errors import EngineDeadError, EngineError, EngineUnavailableError, MineruError
from mineru_engine.runtime.gate import RequestGate
from mineru_engine.vlm.config import VlmConfig
from mineru_engine.vlm.transport import EngineInfo, Transport, VlmReply, VlmRequest

__all__ = ("EnginePhase", "EngineStatistics", "VlmEngine")

_RECENT = 1000


class EnginePhase(StrEnum):
    """Life of an engine."""

    IDLE = "idle"  # nobody needed it yet
    STARTING = "starting"
    READY = "ready"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """Counters since the engine was made.

    :ivar queued: requests waiting at the gate.
    :ivar latency_p50_s: median seconds of the last requests at the engine, without the wait at the gate; ``None``
        before the first.
    """

    phase: EnginePhase
    limit: int
    in_flight: int
    queued: int
    done: int
    failed: int
    cancelled: int
    latency_p50_s: float | None
    latency_p95_s: float | None
    prompt_tokens: int
    completion_tokens: int


class VlmEngine:
    """Runs the requests of all documents on one transport, fairly and counted. Lives on one loop.

    :ivar info: what is behind it; set when it is ready.
    """

    def __init__(self, config: VlmConfig, transport: Transport) -> None:
        self.config = config
        self.info: EngineInfo | None = None
        self._transport = transport
        self._gate = RequestGate(min(config.max_concurrency, transport.concurrency or config.max_concurrency))
        self._starting: asyncio.Task[EngineInfo] | None = None
        self._error: MineruError | None = None
        self._running: set[asyncio.Task[object]] = set()
        self._abandoned: set[asyncio.Task[object]] = set()
        self._latencies: deque[float] = deque(maxlen=_RECENT)
        self._done = self._failed = self._cancelled = 0
        self._prompt_tokens = self._completion_tokens = 0

    @property
    def phase(self) -> EnginePhase:
        """Where it is in its life."""
        if self._error is not None:
            return EnginePhase.DEAD
        if self.info is not None:
            return EnginePhase.READY
        return EnginePhase.IDLE if self._starting is None else EnginePhase.STARTING

    def statistics(self) -> EngineStatistics:
        """Counters for the server, the benchmark and tests; may be read from any thread."""
        recent = sorted(self._latencies.copy())
        gate = self._gate.statistics()
        return EngineStatistics(
            self.phase,
            gate.limit,
            gate.in_flight,
            gate.waiting,
            self._done,
            self._failed,
            self._cancelled,
            _quantile(recent, 0.5),
            _quantile(recent, 0.95),
            self._prompt_tokens,
            self._completion_tokens,
        )

    async def start(self) -> EngineInfo:
        """Bring the transport up, once for all who wait; its failure reaches all of them.

        Cancelling one who waits leaves the start to the others.

        :raises MineruError: if it does not come up, because of an option or of itself; the engine is dead then.
        """
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name="mineru-engine-start")
        try:
            return await asyncio.shield(self._starting)
        except MineruError as exc:
            raise copy.copy(exc) from exc  # each document writes its name into its own

    async def _start(self) -> EngineInfo:
        try:
            self.info = await self._transport.start()
        except MineruError as exc:
            self._error = exc
            raise
        except Exception as exc:
            self._error = EngineUnavailableError(f"the engine did not start: {type(exc).__name__}: {exc}"[:500])
            raise self._error from exc
        return self.info

    async def ask(self, document: str, request: VlmRequest, length: float = 0.0) -> VlmReply:
        """Run one request when it is the document's turn.

        :param length: how long the answer may be compared with others; long ones of a document go first.

        :raises EngineRequestError: if this request failed.
        :raises EngineDeadError: if the engine is gone, also while this request was in flight.
        :raises EngineUnavailableError: if it refuses us.
        """
        async with self._gate.place(document, length):
            self._check()
            started = time.perf_counter()
            try:
                reply = await self._generate(request)
            except asyncio.CancelledError:
                self._cancelled += 1
                raise
            except EngineError:
                self._failed += 1
                raise
            self._latencies.append(time.perf_counter() - started)
            self._done += 1
            self._prompt_tokens += reply.prompt_tokens or 0
            self._completion_tokens += reply.completion_tokens or 0
            return reply

    async def _generate(self, request: VlmRequest) -> VlmReply:
        """The transport's answer; the death of the engine ends requests that would wait for their time-out."""
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            return await self._transport.generate(request)
        except EngineDeadError as exc:
            self._die(exc)
            raise copy.copy(exc) from exc
        except asyncio.CancelledError:
            if task in self._abandoned and task.uncancel() == 0:
                self._check()
            raise
        finally:
            self._running.discard(task)
            self._abandoned.discard(task)

    def _check(self) -> None:
        if self._error is not None:
            raise copy.copy(self._error)

    def _die(self, error: EngineDeadError) -> None:
        if self._error is not None:
            return
        self._error = error
        for task in self._running - {asyncio.current_task()}:
            self._abandoned.add(task)
            task.cancel()

    async def aclose(self) -> None:
        """End the transport, a start in progress included. Safe to call twice."""
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._starting is not None and not self._starting.cancelled():
            self._starting.exception()  # retrieved: those who waited had their copy
        await self._transport.aclose()
        if self._error is None:
            self._error = EngineDeadError("the engine was closed")


def _quantile(ordered: list[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
