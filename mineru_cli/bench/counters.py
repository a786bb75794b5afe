"""What the engine of this process has done, and is doing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mineru_cli.bench.report import RequestCounts
from mineru_engine.runtime.registry import runtimes

if TYPE_CHECKING:
    from mineru_cli.bench.sampling import Samples
    from mineru_cli.bench.server_metrics import ServerMetrics

__all__ = ("Counters", "requests_in_flight")


@dataclass(frozen=True, slots=True)
class Counters:
    """What an engine has done so far; ``None`` where there is none, or it does not count."""

    done: int | None = None
    failed: int | None = None
    completion_tokens: int | None = None
    busy_s: float | None = None

    @classmethod
    def read(cls, server: ServerMetrics) -> Counters:
        """Of the engine that this process has."""
        for runtime in runtimes():
            engine = runtime.statistics().engine
            if engine is not None:
                return cls(engine.done, engine.failed, engine.completion_tokens, server.busy_s())
        return cls()

    def since(self, before: Counters) -> Counters:
        """The difference; unknown if the engine was replaced meanwhile, as it then counts from 0."""
        pairs = [(getattr(self, name), getattr(before, name)) for name in self.__dataclass_fields__]
        if any(now is not None and then is not None and now < then for now, then in pairs):
            return Counters()
        return Counters(*(None if None in pair else pair[0] - pair[1] for pair in pairs))

    def report(self, samples: Samples, elapsed_s: float) -> RequestCounts:
        """As the report wants it. An engine that makes text without counting tokens does not tell them."""
        tokens = self.completion_tokens or None
        return RequestCounts(
            done=self.done,
            failed=self.failed,
            requests_per_s=None if self.done is None else self.done / elapsed_s,
            completion_tokens=tokens,
            tokens_per_s=None if tokens is None else tokens / elapsed_s,
            mean_in_flight=samples.mean_in_flight(),
            peak_in_flight=samples.peak_in_flight(),
            busy_s=self.busy_s,
        )


def requests_in_flight() -> int | None:
    """Of the engine that this process has; ``None`` if there is none."""
    found = [engine.in_flight for runtime in runtimes() if (engine := runtime.statistics().engine) is not None]
    return sum(found) if found else None
