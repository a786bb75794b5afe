"""What the ``vlm_…`` benchmarks share: documents, sides, simulated engines, rounds that count, reports."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle, groupby, islice
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

import psutil
import pypdfium2 as pdfium

from benchmarks.simulator import Simulator, SimulatorConfig
from mineru_engine.workers.pool import usable_cores

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (ROOT / "demo" / "paper.pdf", ROOT / "demo" / "report.pdf")

FREE = SimulatorConfig()
"""An engine that costs nothing: what is measured is the client."""
ENGINE_BOUND = SimulatorConfig(step_base_ms=20, step_per_seq_ms=1.2, tokens_per_step=8, max_seqs=100)
"""5,714 tokens/s, about 3.5 pages/s: slower than any client."""
AT_CAP = SimulatorConfig(step_base_ms=12, step_per_seq_ms=0.15, tokens_per_step=8, max_seqs=100)
"""29,630 tokens/s, about 18 pages/s: a large document fills it."""
MODERATE = SimulatorConfig(step_base_ms=30, step_per_seq_ms=0.3, tokens_per_step=16, max_seqs=100)
"""26,667 tokens/s, about 17 pages/s; a request takes half a second or a whole one."""
SLOW_CLOCK = SimulatorConfig(step_base_ms=100, tokens_per_step=400, max_seqs=8)
"""For smoke tests: steps so long that a busy machine does not make it late."""

TRIES = 5
WATCH_EVERY_S = 0.1

Record: TypeAlias = dict[str, Any]


def timing(config: SimulatorConfig) -> dict[str, float]:
    """What tells one engine from another, as ``Simulator.control`` takes it."""
    return {name: getattr(config, name) for name in ("step_base_ms", "step_per_seq_ms", "tokens_per_step", "max_seqs")}


# Documents


def make_document(target: Path, pages: int, first: int = 0) -> Path:
    """A PDF of ``pages`` pages: those of our demo documents, over and over.

    :param first: place in the cycle of pages at which it begins, so that copies differ.
    """
    sources = [pdfium.PdfDocument(path) for path in SOURCES]
    all_pages = [(number, page) for number, source in enumerate(sources) for page in range(len(source))]
    document = pdfium.PdfDocument.new()
    chosen = islice(cycle(all_pages), first % len(all_pages), first % len(all_pages) + pages)
    for number, group in groupby(chosen, key=lambda place: place[0]):
        document.import_pages(sources[number], [page for _, page in group])
    document.save(target)
    for item in (document, *sources):
        item.close()
    return target


def make_documents(directory: Path, count: int, pages: int) -> list[Path]:
    """Documents of ``pages`` pages, each a file of its own with other pages."""
    return [make_document(directory / f"{pages}-{number}.pdf", pages, number * pages) for number in range(count)]


# Sides


@dataclass(frozen=True, slots=True)
class Side:
    """A client under measurement; every round of it is a process of its own."""

    python: Path
    runner: tuple[str, ...]

    def command(self, *arguments: object) -> list[str]:
        """The command line of a round."""
        if not self.python.exists():
            raise SystemExit(f"{self.python.relative_to(ROOT)} is missing: run benchmarks/peers/setup.sh")
        return [str(word) for word in (self.python, *self.runner, *arguments)]


def _ours(image_format: str) -> Side:
    return Side(Path(sys.executable), ("-m", "benchmarks.engine_http", "--image-format", image_format))


def peer(name: str, runner: str) -> Side:
    """Another tool, in its own environment."""
    return Side(ROOT / "build" / "peers" / name / "bin" / "python", (f"benchmarks/peers/{runner}.py",))


OURS = ("png", "jpeg")
PEERS = ("mineru_vl_utils", "mineru_345")
SIDES = {
    "png": _ours("png"),
    "jpeg": _ours("jpeg"),
    "mineru_vl_utils": peer("mineru_vl_utils", "mineru_vl_utils_http"),
    "mineru_345": peer("mineru_345", "mineru_345"),
}


def alternate(sides: Sequence[str], repeats: int) -> Iterator[tuple[int, list[str]]]:
    """Rounds, each with the sides in another order: A B C, B C A, C A B …"""
    for number in range(repeats):
        turn = number % len(sides)
        yield number, [*sides[turn:], *sides[:turn]]


def run_command(command: Sequence[str], watch: Callable[[psutil.Process], None] | None = None) -> Record:
    """Run a client to its end; the last line that it prints is what it measured.

    :param watch: called with the process every tenth of a second.
    :raises RuntimeError: if it fails, with the end of what it said.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MINERU_")}
    environment["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complaints:
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=said, stderr=complaints) as process:
            while watch is not None and process.poll() is None:
                watch(psutil.Process(process.pid))
                time.sleep(WATCH_EVERY_S)
        for stream in (said, complaints):
            stream.seek(0)
        if process.returncode:
            name = " ".join(Path(word).name for word in command[:3])
            raise RuntimeError(f"{name} ended with {process.returncode}:\n{complaints.read()[-2000:]}")
        record: Record = json.loads(said.read().splitlines()[-1])
    return record


# Rounds


@dataclass(frozen=True, slots=True)
class Case:
    """Some documents, so many at a time, at an engine."""

    name: str
    simulator: SimulatorConfig
    documents: Sequence[Path]
    width: int


def run_case(case: Case, side: Side, warm_up: Path, watch: Callable[[psutil.Process], None] | None = None) -> Record:
    """One round of one side: a fresh client at a fresh engine, warmed up by a document that is not counted.

    ``tokens`` and ``requests`` are those of the documents alone, ``late_s`` is of the whole round.
    """
    options = ["--concurrency", case.width, "--max-concurrency", case.simulator.max_seqs, "--warm-up", warm_up]
    with Simulator(case.simulator) as simulator:
        said = run_command(side.command("--server-url", simulator.url, *options, *case.documents), watch)
        counted = measured_requests(simulator.log(), page_count(warm_up))
        late_s = simulator.stats().late_s
    del said["config"]
    return {**said, "tokens": sum(entry["tokens"] for entry in counted), "requests": len(counted), "late_s": late_s}


def page_count(path: Path) -> int:
    """Pages of a PDF."""
    with pdfium.PdfDocument(path) as document:
        return len(document)


def measured_requests(log: Iterable[Record], warm_up_pages: int) -> list[Record]:
    """Requests after the warm-up: it had ended, and each page begins with its layout, so that one more than it has
    pages is the first that counts.

    :raises RuntimeError: if one of them failed.
    """
    arrived = sorted(log, key=lambda entry: entry["arrived_s"])
    layouts = [entry["arrived_s"] for entry in arrived if entry.get("kind") == "layout"]
    counted = [entry for entry in arrived if entry["arrived_s"] >= layouts[warm_up_pages]]
    bad = [entry for entry in counted if entry["outcome"] != "ok"]
    if bad:
        raise RuntimeError(f"{len(bad)} requests did not go well, the first: {bad[0]}")
    return counted


def valid(measure: Callable[[], Record]) -> Record:
    """A round in which the engine kept its clock; others are void and made again.

    Adds ``load_before`` (one-minute average) and ``void_tries``.

    :raises SystemExit: if it never did: then nothing may be reported.
    """
    for tries in range(TRIES):
        load = os.getloadavg()[0]
        record = measure()
        if not record["late_s"]:
            return {**record, "load_before": round(load, 2), "void_tries": tries}
        print(f"void: the simulated engine lost {record['late_s']:.3f} s", file=sys.stderr, flush=True)
    raise SystemExit(f"void: {TRIES} rounds in which the simulated engine could not keep its clock; no report")


class Named(Protocol):
    """A case that a report can name."""

    @property
    def name(self) -> str:
        """Of the case."""


C = TypeVar("C", bound=Named)


def rounds(
    sides: Sequence[str],
    repeats: int,
    cases: Sequence[C],
    measure: Callable[[C, str], Record],
    told: Callable[[Record], str],
) -> list[Record]:
    """All rounds of all cases: in each the sides take turns at the front, and each is valid.

    :param measure: one round of a case and a side.
    :param told: what to print of a round.
    """
    runs: list[Record] = []
    for number, order in alternate(sides, repeats):
        for case in cases:
            for side in order:
                run = valid(partial(measure, case, side))
                runs.append({"side": side, "case": case.name, "round": number, **run})
                print(f"round {number}: {case.name}, {side}: {told(run)}", flush=True)
    return runs


def values(runs: Iterable[Record], side: str, case: str, key: str) -> list[float]:
    """A figure of one side in the order of the rounds."""
    return [run[key] for run in runs if (run["side"], run["case"]) == (side, case)]


# Reports


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and most of some rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Of at least one value."""
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[0], ordered[-1])

    @classmethod
    def ratio(cls, values: Iterable[float], others: Iterable[float]) -> Spread:
        """Of one side to the other, round by round."""
        return cls.of(value / other for value, other in zip(values, others, strict=True))

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.least:.3g}..{self.most:.3g})"


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure should be."""

    name: str
    value: Spread
    limit: float
    at_most: bool = True

    @property
    def met(self) -> bool:
        """Whether the median is good enough."""
        return self.value.median <= self.limit if self.at_most else self.value.median >= self.limit

    def __str__(self) -> str:
        sign = "<=" if self.at_most else ">="
        return f"{self.name}: {self.value}, goal {sign} {self.limit:.3g}: {'met' if self.met else 'MISSED'}"


Figures: TypeAlias = Mapping[str, Mapping[str, Spread | float]]
"""What came out: name of the case → name of the figure → value."""


def arguments(
    doc: str | None, *, repeats: int, sides: Sequence[str] = (), choices: Iterable[str] = SIDES
) -> argparse.ArgumentParser:
    """The options that all have.

    :param sides: those compared unless told otherwise; none for a program with one side.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="report as JSON")
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--quick", action="store_true", help="smallest sizes: shows that it works, measures nothing")
    if sides:
        parser.add_argument("--sides", nargs="+", choices=list(choices), default=list(sides))
    return parser


def report(
    options: argparse.Namespace,
    *,
    benchmark: str,
    engines: Iterable[SimulatorConfig],
    figures: Figures,
    goals: Sequence[Goal],
    runs: Sequence[Record],
    caveats: Sequence[str] = (),
) -> None:
    """Print figures and goals; write them and the raw rounds to ``options.output``, if given."""
    print(f"{benchmark}, simulated engine{', quick: no measurement' if options.quick else ''}")
    for label, row in figures.items():
        print(f"  {label:<40} " + ", ".join(f"{name} {_short(value)}" for name, value in row.items()))
    for goal in goals:
        print(f"  {goal}")
    if options.output is None:
        return
    asked = {name: value for name, value in vars(options).items() if name not in ("output", "quick")}
    document = {
        "benchmark": benchmark,
        "engine": "simulated engine",
        "engines": [{**timing(config), "limit_tokens_per_s": config.limit_tokens_per_s} for config in engines],
        "options": asked,
        "quick": options.quick,
        "machine": machine(),
        "figures": {label: {name: _plain(value) for name, value in row.items()} for label, row in figures.items()},
        "goals": [{**asdict(goal), "met": goal.met} for goal in goals],
        "runs": list(runs),
        "caveats": ["simulated engine: no model and no GPU took part", *caveats],
    }
    options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def machine() -> Record:
    """What the figures depend on."""
    return {
        "cpus": os.cpu_count(),
        "usable_cpus": usable_cores(),
        "memory_mib": psutil.virtual_memory().total >> 20,
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _short(value: Spread | float) -> str:
    return str(value) if isinstance(value, Spread) else f"{value:.3g}"


def _plain(value: Spread | float) -> Any:
    return asdict(value) if isinstance(value, Spread) else value
