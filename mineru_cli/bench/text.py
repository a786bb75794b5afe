"""What a report and a comparison say, in blocks, and both as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from mineru_cli.bench.blocks import NOT_MEASURED, Block, Headline, Lines, Table, markdown, number, plain
from mineru_cli.bench.comparable import revision
from mineru_cli.bench.compare import CancellationRow, Comparison, ConditionRow, Difference, left_behind
from mineru_cli.bench.conditions import Condition, conditions
from mineru_cli.bench.gates import Check, Gates, Verdict
from mineru_cli.bench.report import Report
from mineru_cli.bench.statistics import Ratio, percentile

__all__ = (
    "comparison_blocks",
    "comparison_markdown",
    "comparison_table",
    "ratio_text",
    "report_blocks",
    "report_markdown",
    "report_table",
    "reproduction",
)

_WORDS = frozenset({"mode", "report", "document", "left behind", "gate", "target", "verdict", "why", "figure"})
_MOST_CHANGES = 20
_DIFFERENCES = {
    Difference.BETTER: "the new one is better",
    Difference.WORSE: "the new one is worse",
    Difference.NONE: "no difference",
    Difference.UNSETTLED: "the difference is not settled",
    Difference.MIXED: "better in one figure, worse in another",
}
_TONES = {Verdict.PASS: "good", Verdict.FAIL: "bad", Verdict.INCONCLUSIVE: "open"}
_MET = {Verdict.PASS: "met", Verdict.FAIL: "missed", Verdict.INCONCLUSIVE: "open"}
_GATES = ("throughput", "or P95", "   at equal throughput", "and single document")
_BESIDE = ("cpu", "peak rss", "peak vram", "loop lag p99")


def report_table(report: Report) -> str:
    """The short table for a terminal."""
    return plain(report_blocks(report))


def report_markdown(report: Report) -> str:
    """For a pull request."""
    return markdown(report_blocks(report))


def comparison_table(comparisons: Sequence[Comparison]) -> str:
    """For a terminal: a comparison with its verdict, or a table of several against the same base."""
    return plain(comparison_blocks(comparisons))


def comparison_markdown(comparisons: Sequence[Comparison]) -> str:
    """For a pull request."""
    return markdown(comparison_blocks(comparisons))


# one report


def report_blocks(report: Report) -> list[Block]:
    """All of it, the short things first."""
    load = report.workload
    documents = f"{len(report.inputs)} documents, {sum(item.pages for item in report.inputs)} pages"
    return [
        Headline(f"{load.name}, tier {load.tier}: {documents}, {_engine(report)}", "open"),
        Table(_load_heading(report), _HEADER, [_row(found) for found in conditions(report).values()], _WORDS).told(),
        Table(
            "Cancelled documents",
            ("at once", "after s", "cancelled", "return p50 s", "return p95 s", "return max s", "left behind"),
            list(_cancellations(report)),
            _WORDS,
        ).told(),
        Lines("Caveats", [caveat.text for caveat in report.caveats]),
        reproduction(report),
    ]


def reproduction(report: Report, name: str = "this report") -> Lines:
    """Command, source, machine and documents."""
    return Lines(f"How to reproduce {name}", list(_reproduce(report)), detail=True)


_HEADER = (
    "mode",
    "at once",
    "repeats",
    "documents/s",
    "pages/s",
    "spread %",
    "p50 s",
    "p90 s",
    "p95 s",
    "p99 s",
    "lag p99 ms",
    "CPU ms/page",
    "RSS MiB",
    "VRAM MiB",
    "in flight",
    "failed",
)


def _row(found: Condition) -> list[str]:
    spread = found.throughput_spread
    in_flight = [run.requests.mean_in_flight for run in found.runs if run.requests.mean_in_flight is not None]
    return [
        str(found.mode),
        str(found.concurrency),
        str(len(found.runs)),
        number(found.mean("documents")),
        number(found.mean("throughput")),
        NOT_MEASURED if spread is None else f"{spread * 100:.1f}",
        *(number(found.latency(percent)) for percent in (50, 90, 95, 99)),
        *(number(found.mean(name)) for name in ("loop lag p99", "cpu", "peak rss", "peak vram")),
        number(sum(in_flight) / len(in_flight) if in_flight else None),
        str(found.errors) if found.errors else NOT_MEASURED,
    ]


def _cancellations(report: Report) -> Iterator[list[str]]:
    groups = dict.fromkeys((found.concurrency, found.after_s) for found in report.cancellation)
    for key in groups:
        found = [item for item in report.cancellation if (item.concurrency, item.after_s) == key]
        times = [value for item in found for value in item.return_s]
        figures = [number(percentile(times, percent)) for percent in (50, 95, 100)]
        yield [str(key[0]), number(key[1]), str(len(times)), *figures, _left_text(left_behind(found))]


def _left_text(found: dict[str, int]) -> str:
    return ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in found.items() if value) or "nothing"


def _load_heading(report: Report) -> str:
    load = report.workload
    kind = "a batch" if load.duration_s is None else f"{load.duration_s:g} s of steady load"
    return f"{kind}, arrival {load.arrival}, seed {load.seed}"


def _engine(report: Report) -> str:
    engine = report.engine
    name = " ".join(filter(None, (engine.engine, engine.version)))
    model = f", model {engine.model}" if engine.model else ""
    return f"engine {name}{' (simulated)' if engine.simulated else ''} on {engine.device}{model}"


def _reproduce(report: Report) -> Iterator[str]:
    machine, source = report.machine, report.source
    yield f"command: {shlex.join(report.command)}"
    yield f"source: revision {revision(source)}, {len(source.files)} files, tree sha256 {source.tree_sha256}"
    yield f"dependencies: {len(source.distributions)} distributions, lock sha256 {source.lock_sha256 or 'unknown'}"
    yield f"machine: {machine.cpu}, {machine.cores_allowed} cores, {machine.memory_mib} MiB, {machine.system}"
    yield f"Python {machine.python}, GPU {_gpus(report)}"
    yield f"measured {report.created_at} in {report.duration_s:.0f} s; report sha256 {report.report_sha256}"
    for item in report.inputs:
        yield f"input {item.name}: {item.pages} pages, {item.bytes} bytes, sha256 {item.sha256}"


def _gpus(report: Report) -> str:
    names = ", ".join(f"{gpu.name} ({gpu.memory_mib} MiB{', MIG' if gpu.mig else ''})" for gpu in report.machine.gpus)
    return f"{names}, driver {report.machine.driver}" if names else "none"


# comparisons


def comparison_blocks(comparisons: Sequence[Comparison]) -> list[Block]:
    """One comparison with gates and verdict; several as a table of all against the first report."""
    return _pair_blocks(comparisons[0]) if len(comparisons) == 1 else _many_blocks(comparisons)


def _pair_blocks(found: Comparison) -> list[Block]:
    rows = [_pair_row(row) for row in found.conditions]
    return [
        _verdict(found),
        Lines(f"{found.base} and {found.new} cannot be compared", found.problems),
        Lines(f"What changed from {found.base} to {found.new}", found.changed),
        Table(f"Change, with 95 % interval ({_repeats(found)} repeats)", _PAIR_HEADER, rows, _WORDS),
        Lines("Also changed", list(_beside(found))),
        *(_gates(gates) for gates in found.gates),
        Table("Cancelled documents", _CANCEL_HEADER, [_cancel_row(row) for row in found.cancellation], _WORDS),
        Lines("Documents that fail now", found.failures),
        Lines(_changes_heading(found), _changes(found)),
        Lines("Caveats", found.caveats),
        Table("Single documents", _DOCUMENT_HEADER, list(_document_rows(found)), _WORDS, detail=True),
        Table("All figures", _FIGURE_HEADER, list(_figure_rows(found)), _WORDS, detail=True),
    ]


def _verdict(found: Comparison) -> Headline:
    if found.verdict is None:
        return Headline("no verdict: the reports are not comparable", "open")
    details = [_DIFFERENCES[found.difference]] if found.difference else []
    details += ["documents fail"] if found.failures else []
    details += ["results differ"] if found.result_changes and not found.result_changes_allowed else []
    details += [f"not a GPU acceptance: {found.not_acceptance}"] if found.not_acceptance else []
    return Headline("; ".join([f"verdict: {found.verdict}", *details]), _TONES[found.verdict])


_PAIR_HEADER = ("mode", "at once", "pages/s", "change", "p95 s", "change of p95")


def _pair_row(row: ConditionRow) -> list[str]:
    cells = [str(row.mode), str(row.concurrency)]
    for name in ("throughput", "p95"):
        effect = row.effect(name)
        cells += [f"{number(effect.base)} → {number(effect.new)}", ratio_text(effect.ratio)]
    return cells


def _repeats(found: Comparison) -> str:
    counts = dict.fromkeys(row.repeats for row in found.conditions)
    return ", ".join(f"{base} and {new}" for base, new in counts)


def _beside(found: Comparison) -> Iterator[str]:
    """Memory and the like, where it changed."""
    for row in found.conditions:
        for effect in map(row.effect, _BESIDE):
            if effect.difference in (Difference.BETTER, Difference.WORSE):
                figures = f"{number(effect.base)} → {number(effect.new)} {effect.unit}, {ratio_text(effect.ratio)}"
                yield f"{effect.name} of mode {row.mode}, {row.concurrency} at once: {figures}, {effect.difference}"


def _gates(gates: Gates) -> Table:
    at = f", {gates.concurrency} at once" if gates.concurrency else ""
    rows = [_gate_row(name, check) for name, check in zip(_GATES, gates.checks, strict=True)]
    header = ("gate", "target", "change", "verdict", "why")
    return Table(f"Gates of mode {gates.mode}{at}: {gates.verdict}", header, rows, _WORDS).told()


def _gate_row(name: str, check: Check) -> list[str]:
    return [name, check.target, ratio_text(check.ratio), _MET[check.verdict], check.reason or NOT_MEASURED]


_CANCEL_HEADER = ("at once", "after s", "return p95 s", "change", "left behind")


def _cancel_row(row: CancellationRow) -> list[str]:
    effect = row.effect
    left = " → ".join(_left_text(dict(side)) for side in row.left_behind)
    times = f"{number(effect.base)} → {number(effect.new)}"
    return [str(row.concurrency), number(row.after_s), times, ratio_text(effect.ratio), left]


def _changes_heading(found: Comparison) -> str:
    return "Results that differ" + (" (allowed)" if found.result_changes_allowed else "")


def _changes(found: Comparison) -> list[str]:
    lines = [change.text for change in found.result_changes[:_MOST_CHANGES]]
    more = len(found.result_changes) - len(lines)
    return [*lines, f"and {more} more: --json lists all"] if more else lines


_DOCUMENT_HEADER = ("mode", "at once", "document", "base s", "new s", "change")


def _document_rows(found: Comparison) -> Iterator[list[str]]:
    for row in found.documents:
        figures = [number(row.effect.base), number(row.effect.new), ratio_text(row.effect.ratio)]
        yield [str(row.mode), str(row.concurrency), row.document, *figures]


_FIGURE_HEADER = ("mode", "at once", "figure", "base", "new", "change", "difference")


def _figure_rows(found: Comparison) -> Iterator[list[str]]:
    for row in found.conditions:
        for effect in row.effects:
            if effect.base is None and effect.new is None:
                continue
            figures = [number(effect.base), number(effect.new), ratio_text(effect.ratio)]
            difference = str(effect.difference or NOT_MEASURED)
            yield [str(row.mode), str(row.concurrency), f"{effect.name} ({effect.unit})", *figures, difference]


_MANY_HEADER = ("mode", "at once", "report", "pages/s", "change", "p95 s", "change of p95", "RSS MiB", "change of RSS")


def _many_blocks(comparisons: Sequence[Comparison]) -> list[Block]:
    base = comparisons[0].base
    caveats = dict.fromkeys(text for found in comparisons for text in found.caveats)
    return [
        Headline(f"{len(comparisons)} reports against {base}; a verdict needs two reports", "open"),
        *(Lines(f"{base} and {found.new} cannot be compared", found.problems) for found in comparisons),
        Table(f"Change against {base}, with 95 % interval", _MANY_HEADER, list(_many_rows(comparisons)), _WORDS),
        *(Lines(f"Results of {found.new} that differ", _changes(found)) for found in comparisons),
        Lines("Caveats", list(caveats)),
    ]


def _many_rows(comparisons: Sequence[Comparison]) -> Iterator[list[str]]:
    keys = dict.fromkeys((row.mode, row.concurrency) for found in comparisons for row in found.conditions)
    for key in sorted(keys):
        based = False
        for found in comparisons:
            for row in found.conditions:
                if (row.mode, row.concurrency) != key:
                    continue
                effects = [row.effect(name) for name in ("throughput", "p95", "peak rss")]
                where = [str(row.mode), str(row.concurrency)]
                if not based:
                    yield [*where, found.base, *(cell for effect in effects for cell in (number(effect.base), ""))]
                    based = True
                cells = (cell for effect in effects for cell in (number(effect.new), ratio_text(effect.ratio)))
                yield [*where, found.new, *cells]


def ratio_text(ratio: Ratio | None) -> str:
    """As a change in percent, with its interval."""
    if ratio is None:
        return NOT_MEASURED
    if ratio.low is None or ratio.high is None:
        return f"{_percent(ratio.value)} %"
    return f"{_percent(ratio.value)} % ({_percent(ratio.low)} to {_percent(ratio.high)})"


def _percent(ratio: float) -> str:
    return f"{round((ratio - 1) * 100, 1) + 0.0:+}"  # + 0.0 so that there is no -0.0
