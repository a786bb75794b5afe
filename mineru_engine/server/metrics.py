"""How the server is doing, in figures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mineru_engine.gpu import GpuProbe
from mineru_engine.processes import Tree
from mineru_engine.server.jobs import Job, JobState

if TYPE_CHECKING:
    from mineru_engine.server.service import Service
    from mineru_engine.vlm.engine import EngineStatistics

__all__ = ("Metrics",)

_MIB = 1 << 20
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)


class Metrics(Collector):
    """The figures of one application. What happens is counted as it happens, the rest is looked up when asked for."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registry = CollectorRegistry()
        self._seen: list[Metric] = []
        self._registry.register(self)
        self._duration = Histogram(
            "mineru_job_duration_seconds",
            "From acceptance to the end.",
            ["state"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._waiting = Histogram(
            "mineru_job_wait_seconds", "From acceptance to start.", buckets=_SECONDS, registry=self._registry
        )
        self._pages = Counter(
            "mineru_pages", "Pages of documents with a result.", ["tier", "cached"], registry=self._registry
        )

    def ended(self, job: Job) -> None:
        """A job has ended."""
        if job.finished is not None:
            self._duration.labels(job.state).observe(max(0.0, job.finished - job.created))
        if job.started is not None:
            self._waiting.observe(max(0.0, job.started - job.created))
        for file in job.files:
            if file.state.has_result:
                self._pages.labels(file.tier, str(file.cached).lower()).inc(file.done)

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        yield from self._seen

    async def render(self) -> bytes:
        """All figures in Prometheus's format."""
        counts = await self._service.store.counts()
        memory, video = await asyncio.to_thread(_memory)
        self._seen = [
            *self._of_queue(counts),
            *self._of_cache(),
            *_of_engines([engine for engine in self._engines() if engine is not None]),
            GaugeMetricFamily("mineru_memory_bytes", "Resident memory of the server and all its processes.", memory),
            GaugeMetricFamily("mineru_disk_free_bytes", "Room left for jobs.", self._service.storage.free_bytes()),
        ]
        if video is not None:
            self._seen.append(
                GaugeMetricFamily("mineru_gpu_memory_bytes", "Memory of these processes on all GPUs.", video)
            )
        return generate_latest(self._registry)

    def _of_queue(self, counts: Mapping[JobState, int]) -> Iterator[Metric]:
        queue = self._service.queue
        yield GaugeMetricFamily("mineru_queue_length", "Jobs that wait.", queue.waiting)
        yield GaugeMetricFamily("mineru_jobs_running", "Jobs that run.", queue.running)
        jobs = GaugeMetricFamily("mineru_jobs", "Jobs that are kept.", labels=["state"])
        for state in JobState:
            jobs.add_metric([state], counts.get(state, 0))
        yield jobs

    def _of_cache(self) -> Iterator[Metric]:
        cache = self._service.cache
        yield CounterMetricFamily("mineru_cache_hits", "Documents answered from the cache.", cache.hits)
        yield CounterMetricFamily("mineru_cache_misses", "Documents that it did not have.", cache.misses)

    def _engines(self) -> Iterator[EngineStatistics | None]:
        for runtime in self._service.lease.runtimes():
            yield runtime.statistics().engine


def _of_engines(engines: list[EngineStatistics]) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "mineru_vlm_in_flight", "Requests at the vision-language model.", sum(e.in_flight for e in engines)
    )
    yield GaugeMetricFamily("mineru_vlm_queued", "Requests that wait for their turn.", sum(e.queued for e in engines))
    requests = CounterMetricFamily("mineru_vlm_requests", "Requests that have ended.", labels=["outcome"])
    for outcome in ("done", "failed", "cancelled"):
        requests.add_metric([outcome], sum(getattr(engine, outcome) for engine in engines))
    yield requests
    tokens = CounterMetricFamily("mineru_vlm_tokens", "Tokens, where the model tells.", labels=["kind"])
    tokens.add_metric(["prompt"], sum(engine.prompt_tokens for engine in engines))
    tokens.add_metric(["completion"], sum(engine.completion_tokens for engine in engines))
    yield tokens


def _memory() -> tuple[int, float | None]:
    """Bytes in memory, and on GPUs where the driver tells; of this process and all below it. Blocks."""
    tree = Tree()
    tree.refresh()
    memory = tree.look()
    with GpuProbe() as gpu:
        video, _ = gpu.look(tree.pids())
    return round((memory[0] if memory else 0.0) * _MIB), None if video is None else video * _MIB
