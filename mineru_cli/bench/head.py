"""What every report of a run begins with: when, where, with which code, settings and documents.

It is looked up once, at the start, however many reports are written while the run goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mineru_cli.bench.caveats import caveats_of
from mineru_cli.bench.machine import describe_machine, load_average
from mineru_cli.bench.masking import public_command, public_options, public_settings
from mineru_cli.bench.report import (
    Cancellation,
    Caveat,
    DocumentResult,
    EngineIdentity,
    Input,
    Report,
    Run,
    Source,
)
from mineru_engine.manifest import hash_file

if TYPE_CHECKING:
    from mineru_cli.bench.plan import Plan
    from mineru_engine.options import ParseOptions
    from mineru_engine.settings import Settings

__all__ = ("Head",)


class Head:
    """The clock starts when it is made.

    :param source: tells of the code that is measured; called once.
    """

    def __init__(self, plan: Plan, settings: Settings, options: ParseOptions, source: Callable[[], Source]) -> None:
        self._began, self._load_before = time.perf_counter(), load_average()
        self._created_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._source = source()
        self._machine = describe_machine()
        self._command = public_command(plan.command)
        self._settings, self._options = public_settings(settings), public_options(options)
        self._workload = plan.workload(str(options.effective_tier(settings.model.vlm)))
        self._inputs = [
            Input(name=document.name, sha256=hash_file(document.path), pages=0, bytes=document.path.stat().st_size)
            for document in plan.documents.documents
        ]

    def report(
        self,
        engine: EngineIdentity,
        pages: Sequence[int],
        runs: Sequence[Run],
        results: Sequence[DocumentResult],
        *,
        complete: bool,
        cancellation: Sequence[Cancellation] = (),
        caveats: Sequence[Caveat] = (),
    ) -> Report:
        """The report of what there is by now, sealed.

        :param pages: of each document.
        :param caveats: that stand before those which the figures themselves call for.
        """
        inputs = [item.model_copy(update={"pages": count}) for item, count in zip(self._inputs, pages, strict=True)]
        report = Report(
            schema="mineru.bench-report",
            schema_version=1,
            created_at=self._created_at,
            duration_s=round(time.perf_counter() - self._began, 3),
            command=self._command,
            complete=complete,
            source=self._source,
            machine=self._machine,
            settings=self._settings,
            options=self._options,
            engine=engine,
            workload=self._workload,
            inputs=inputs,
            runs=list(runs),
            cancellation=list(cancellation),
            results=list(results),
            caveats=[],
        )
        found = [*caveats, *caveats_of(report, load_before=self._load_before)]
        return report.model_copy(update={"caveats": found}).sealed()
