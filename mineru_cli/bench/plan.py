"""What one process is to measure. Travels as JSON, so that it can be another process with another version."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from mineru_cli.bench.report import Mode, Workload
from mineru_cli.bench.sampling import SAMPLE_EVERY_S
from mineru_cli.bench.workload import Documents
from mineru_engine.options import ParseOptions

__all__ = ("Plan",)


class Plan(BaseModel):
    """Documents, how they are called for, and how often.

    :ivar options: of every parse; may hold a URL with a password, so that a plan is no matter for a command line.
    :ivar config: settings file; ``None`` for the usual places.
    :ivar first_repeat: number of the first repeat, where several processes share them.
    :ivar source_state: revision and dirty flag of the code, where it is known to who made the plan.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    documents: Documents
    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    config: Path | None = None
    modes: tuple[Mode, ...] = (Mode.ASYNC, Mode.SYNC_THREAD)
    concurrencies: tuple[int, ...] = (1,)
    repeats: int = 1
    first_repeat: int = 0
    warmup: int = 1
    duration_s: float | None = None
    arrival: str = "closed"
    cancel_after_s: float | None = None
    seed: int = 0
    sample_every_s: float = SAMPLE_EVERY_S
    save_results: Path | None = None
    command: tuple[str, ...] = ()
    source_state: tuple[str | None, bool | None] | None = None

    @property
    def times(self) -> int:
        """How often a batch has each document: enough that the most callers there are all have one."""
        return math.ceil(max(self.concurrencies) / len(self.documents.documents))

    def workload(self, tier: str) -> Workload:
        """How the report tells of it.

        :param tier: the one that ``auto`` stands for.
        """
        return Workload(
            name=self.documents.name,
            tier=tier,
            ocr_mode=str(ParseOptions.create(**self.options).ocr_mode),
            modes=list(self.modes),
            concurrencies=list(self.concurrencies),
            repeats=self.repeats,
            warmup=self.warmup,
            duration_s=self.duration_s,
            arrival=self.arrival,
            seed=self.seed,
            single_document=self.documents.single if 1 in self.concurrencies else None,
        )
