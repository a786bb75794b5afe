"""What a simulated server saw, as JSON and as Prometheus text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(slots=True, kw_only=True)
class Stats:
    """Counters since the last reset, and gauges of the moment.

    ``tokens / limit_tokens_per_s / elapsed_s`` is the engine's utilization between the first arrival and the last
    answer. ``working_after_disconnect`` counts requests that still hold a place though their client is gone:
    always 0 a step after an abort. ``late_s`` above 0 means this process was too slow and the measurement is void.
    """

    limit_tokens_per_s: float | None = None
    max_seqs: int = 0
    arrivals: int = 0
    ok: int = 0
    failed: int = 0
    rejected: int = 0
    cancelled: int = 0
    in_flight: int = 0
    peak_in_flight: int = 0
    working_after_disconnect: int = 0
    with_authorization: int = 0
    by_kind: dict[str, int] = field(default_factory=dict)
    by_fault: dict[str, int] = field(default_factory=dict)
    mpixels: float = 0.0
    image_bytes: int = 0
    body_bytes: int = 0
    connections: int = 0
    connections_open: int = 0
    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    running: int = 0
    waiting: int = 0
    peak_running: int = 0
    peak_waiting: int = 0
    tokens: int = 0
    wasted_tokens: int = 0
    steps: int = 0
    busy_s: float = 0.0
    prefill_s: float = 0.0
    late_s: float = 0.0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """From parsed JSON."""
        return cls(**data)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return dataclasses.asdict(self)

    def utilization(self, elapsed_s: float | None = None) -> float | None:
        """Tokens made, over what a full engine makes in the time; None without a limit or before any work."""
        elapsed_s = self.elapsed_s if elapsed_s is None else elapsed_s
        if not self.limit_tokens_per_s or elapsed_s <= 0:
            return None
        return self.tokens / self.limit_tokens_per_s / elapsed_s


_GAUGES = {
    "in_flight": "simulator_requests_in_flight",
    "peak_in_flight": "simulator_requests_in_flight_peak",
    "working_after_disconnect": "simulator_requests_working_after_disconnect",
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "peak_running": "simulator_sequences_running_peak",
    "peak_waiting": "simulator_sequences_waiting_peak",
    "connections_open": "simulator_connections_open",
    "elapsed_s": "simulator_first_arrival_to_last_answer_seconds",
}
_COUNTERS = {
    "arrivals": "simulator_arrivals_total",
    "ok": 'simulator_requests_total{outcome="ok"}',
    "failed": 'simulator_requests_total{outcome="failed"}',
    "rejected": 'simulator_requests_total{outcome="rejected"}',
    "cancelled": 'simulator_requests_total{outcome="cancelled"}',
    "with_authorization": "simulator_requests_with_authorization_total",
    "tokens": "simulator_generation_tokens_total",
    "wasted_tokens": "simulator_wasted_tokens_total",
    "steps": "simulator_steps_total",
    "busy_s": "simulator_busy_seconds_total",
    "prefill_s": "simulator_prefill_seconds_total",
    "late_s": "simulator_late_seconds_total",
    "cpu_s": "simulator_cpu_seconds_total",
    "mpixels": "simulator_image_mpixels_total",
    "image_bytes": "simulator_image_bytes_total",
    "body_bytes": "simulator_body_bytes_total",
    "connections": "simulator_connections_total",
}


def prometheus_text(stats: Stats) -> str:
    """The metrics page."""
    lines: list[str] = []
    limit = stats.limit_tokens_per_s
    _add(lines, "simulator_limit_tokens_per_second", "gauge", "+Inf" if limit is None else limit)
    for kind, names in (("gauge", _GAUGES), ("counter", _COUNTERS)):
        for attribute, name in names.items():
            _add(lines, name, kind, getattr(stats, attribute))
    for name, label, values in (
        ("simulator_requests_by_kind_total", "kind", stats.by_kind),
        ("simulator_faults_total", "fault", stats.by_fault),
    ):
        for value, number in values.items():
            _add(lines, f'{name}{{{label}="{value}"}}', "counter", number)
    return "\n".join(lines) + "\n"


def _add(lines: list[str], name: str, kind: str, value: float | str) -> None:
    header = f"# TYPE {name.partition('{')[0]} {kind}"
    if header not in lines:
        lines.append(header)
    lines.append(f"{name} {value}")
