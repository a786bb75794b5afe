"""Spans of jobs and their documents for OpenTelemetry. Needs the extra ``otel``; off unless the environment says where
they go (``OTEL_EXPORTER_OTLP_ENDPOINT``)."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mineru_engine.server.jobs import Job, JobFile
from mineru_engine.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

__all__ = ("Tracing",)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_log = logging.getLogger(__name__)


class Tracing:
    """One span for each job that was begun, and one below it for each document.

    :param provider: where they go; ``None`` for nowhere.
    """

    def __init__(self, provider: TracerProvider | None) -> None:
        self._provider = provider
        self._spans: dict[str, Span] = {}

    @classmethod
    def from_environment(cls) -> Tracing:
        """As OpenTelemetry's own variables say."""
        if not any(os.environ.get(name) for name in _ENDPOINTS):
            return cls(None)
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            _log.warning("no spans are sent: pip install 'mineru[otel]'")
            return cls(None)
        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "mineru")})
        provider = TracerProvider(resource=resource)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return cls(provider)

    @contextmanager
    def document(self, job: Job, file: JobFile) -> Iterator[None]:
        """Around the work on one document."""
        if self._provider is None:
            yield
            return
        from opentelemetry.trace import set_span_in_context

        tracer = self._provider.get_tracer("mineru", __version__)
        whole = self._spans.get(job.id)
        if whole is None:
            whole = self._spans[job.id] = tracer.start_span("job", start_time=_nanoseconds(job.started))
        span = tracer.start_span("document", context=set_span_in_context(whole))
        try:
            yield
        except BaseException as exc:
            _mark_failed(span, str(getattr(exc, "code", type(exc).__name__)))
            raise
        finally:
            for name in ("tier", "engine", "done", "size", "cached"):
                span.set_attribute(f"mineru.{name}", getattr(file, name))
            span.end()

    def ended(self, job: Job) -> None:
        """A job has ended."""
        span = self._spans.pop(job.id, None)
        if span is None:
            return
        span.set_attributes({"mineru.job": job.id, "mineru.state": str(job.state), "mineru.pages": job.done})
        span.set_attribute("mineru.wait_seconds", max(0.0, (job.started or job.created) - job.created))
        if not job.state.has_result:
            _mark_failed(span, str(job.state))
        span.end()

    def close(self) -> None:
        """Send what is left. Blocks."""
        for span in self._spans.values():  # jobs that go on after the next start
            span.end()
        self._spans.clear()
        if self._provider is not None:
            with contextlib.suppress(Exception):  # the collector is gone: nothing more can be done
                self._provider.shutdown()


def _mark_failed(span: Span, why: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, why))


def _nanoseconds(moment: float | None) -> int | None:
    return None if moment is None else int(moment * 1e9)
