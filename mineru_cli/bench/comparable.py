"""May two reports be compared, and what was changed on purpose between them?

The code, its dependencies and the version of the engine are what a comparison is about: they are listed, not refused.
Whatever else has a say in the figures must be equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from mineru_cli.bench.conditions import conditions
from mineru_cli.bench.masking import public_options, public_settings
from mineru_cli.bench.report import EngineIdentity, Machine, Report, Source
from mineru_engine.options import ParseOptions
from mineru_engine.settings import Settings

__all__ = ("Named", "changes", "problems", "revision")

_TOLD_ELSEWHERE = {"tier", "ocr_mode"} | {
    f"{prefix}{name}" for prefix in ("", "model.vlm.") for name in ("server_url", "api_key", "engine", "model")
}
_ADDRESSES = {"enhance.server_url", "enhance.api_key"}
"""Settings and options that the workload and the engine's identity tell better, or that are addresses and secrets."""
_SHOWN = 12
"""Digits of a hash in a sentence."""


@dataclass(frozen=True, slots=True)
class Named:
    """A report and what to call it."""

    name: str
    report: Report


def problems(base: Named, new: Named) -> list[str]:
    """One sentence for each thing that forbids the comparison; empty if there is none."""
    return [
        *_whole(base),
        *_whole(new),
        *_inputs(base, new),
        *_model(base, new),
        *_facts(base, new),
        *_common(base, new),
    ]


def changes(base: Named, new: Named) -> list[str]:
    """What is being compared: revision, files, distributions, versions of engine and system."""
    before, after = base.report, new.report
    found = list(_source_changes(before.source, after.source))
    pairs = {
        "engine version": (before.engine.version, after.engine.version),
        "engine location": (before.engine.location, after.engine.location),
        "Python": (before.machine.python, after.machine.python),
        "system": (before.machine.system, after.machine.system),
        "GPU driver": (before.machine.driver, after.machine.driver),
    }
    return found + [f"{what} {_show(old)} → {_show(fresh)}" for what, (old, fresh) in pairs.items() if old != fresh]


def _whole(named: Named) -> Iterator[str]:
    report = named.report
    if not report.intact:
        yield f"{named.name} was changed after it was written: its hash is not that of its content"
    if report.complete:
        yield from _repeats(named)
    else:
        yield f"{named.name} is incomplete: its run was interrupted"
    for run in report.runs:
        if not run.samples:
            yield f"{named.name} has no document in repeat {run.repeat} of mode {run.mode} at {run.concurrency}"


def _repeats(named: Named) -> Iterator[str]:
    load = named.report.workload
    counts = Counter((run.mode, run.concurrency, run.repeat) for run in named.report.runs)
    for mode, concurrency in product(load.modes, load.concurrencies):
        repeats = [count for key, count in counts.items() if key[:2] == (mode, concurrency)]
        where = f"of mode {mode} at concurrency {concurrency}"
        if len(repeats) < load.repeats:
            yield f"{named.name} has {len(repeats)} of {load.repeats} repeats {where}"
        if any(count > 1 for count in repeats):
            yield f"{named.name} has a repeat {where} more than once"


def _inputs(base: Named, new: Named) -> Iterator[str]:
    before = {item.name: item.sha256 for item in base.report.inputs}
    after = {item.name: item.sha256 for item in new.report.inputs}
    for name in before.keys() & after.keys():
        if before[name] != after[name]:
            hashes = f"sha256 {before[name][:_SHOWN]} in {base.name}, {after[name][:_SHOWN]} in {new.name}"
            yield f"the input {name} is another document: {hashes}"
    for named, only in ((base, before.keys() - after.keys()), (new, after.keys() - before.keys())):
        if only:
            yield f"only {named.name} has the inputs {', '.join(sorted(only))}"


def _model(base: Named, new: Named) -> Iterator[str]:
    before, after = base.report.engine, new.report.engine
    if before.weights_sha256 and after.weights_sha256:
        same = before.weights_sha256 == after.weights_sha256
    else:
        revisions = {before.revision, after.revision} - {None}
        same = before.model == after.model and len(revisions) < 2
    if not same:
        yield f"the models differ: {_model_name(before)} in {base.name}, {_model_name(after)} in {new.name}"


def _facts(base: Named, new: Named) -> Iterator[str]:
    before, after, defaults = _facts_of(base.report), _facts_of(new.report), _defaults()
    for what in sorted(before.keys() | after.keys()):
        old, fresh = (facts.get(what, defaults.get(what)) for facts in (before, after))
        if old != fresh:
            yield f"{what}: {_show(old)} in {base.name}, {_show(fresh)} in {new.name}"


def _defaults() -> dict[str, object]:
    """What a setting or option is taken to be in a report of a version that did not have it."""
    settings, options = public_settings(Settings()), public_options(ParseOptions())
    return {
        **{f"setting {name}": value for name, value in _leaves(settings)},
        **{f"option {name}": value for name, value in _leaves(options)},
    }


def _common(base: Named, new: Named) -> Iterator[str]:
    before, after = base.report.workload.single_document, new.report.workload.single_document
    if before and after and before != after:  # a report without concurrency 1 has none
        yield f"the single documents differ: {before} in {base.name}, {after} in {new.name}"
    if not conditions(base.report).keys() & conditions(new.report).keys():
        yield f"{base.name} and {new.name} have no mode and concurrency in common"


def _facts_of(report: Report) -> dict[str, object]:
    """Everything that must be equal, with the words for it."""
    load, engine = report.workload, report.engine
    return {
        "tier": load.tier,
        "OCR mode": load.ocr_mode,
        "warm-up rounds": load.warmup,
        "duration": load.duration_s,
        "arrival of documents": load.arrival,
        "engine": engine.engine,
        "device of the engine": engine.device,
        "simulated engine": engine.simulated,
        **_machine_class(report.machine),
        **{f"setting {name}": value for name, value in _leaves(report.settings)},
        **{f"option {name}": value for name, value in _leaves(report.options)},
    }


def _machine_class(machine: Machine) -> dict[str, object]:
    return {
        "CPU": machine.cpu,
        "cores": machine.cores_allowed,
        "CPU limit of the container": machine.cpu_limit,
        "GPUs": sorted(f"{gpu.name}, {gpu.memory_mib} MiB{', MIG' if gpu.mig else ''}" for gpu in machine.gpus),
    }


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if f"{prefix}{name}" in _TOLD_ELSEWHERE | _ADDRESSES:
            continue
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _model_name(engine: EngineIdentity) -> str:
    details = (engine.revision, engine.weights_sha256 and f"weights {engine.weights_sha256[:_SHOWN]}")
    known = ", ".join(detail for detail in details if detail)
    return f"{engine.model} ({known})" if known else engine.model


def _source_changes(before: Source, after: Source) -> Iterator[str]:
    if (before.revision, before.dirty) != (after.revision, after.dirty):
        yield f"revision {revision(before)} → {revision(after)}"
    paths = before.files.keys() | after.files.keys()
    differing = sorted(path for path in paths if before.files.get(path) != after.files.get(path))
    if differing:
        yield f"{len(differing)} source files, as {', '.join(differing[:3])}"
    for name in sorted(before.distributions.keys() | after.distributions.keys()):
        old, fresh = before.distributions.get(name), after.distributions.get(name)
        if old != fresh:
            yield f"{name} {_show(old)} → {_show(fresh)}"


def revision(source: Source) -> str:
    return f"{(source.revision or 'unknown')[:_SHOWN]}{' with local changes' if source.dirty else ''}"


def _show(value: object) -> str:
    match value:
        case None | []:
            return "none"
        case bool():
            return "yes" if value else "no"
        case list():
            return "; ".join(map(str, value))
        case _:
            return str(value)
