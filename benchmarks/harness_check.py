"""Does `mineru bench --against` tell the truth? The same source twice, a slow-down and a speed-up that we put in.

Usage: python -m benchmarks.harness_check [--repetitions 20] [--repeats 6] [--output REPORT.json]

Each repetition is a whole `mineru bench --against` at a simulated engine, seeded by its number, and what
`mineru compare` says of its two reports. The slow-down is a copy of the source in which each document takes 10 %
longer; for the speed-up it is the baseline in which each takes 35 % longer. The baseline is the committed source
(HEAD), installed once, in the way `--against HEAD` does it, and then named as an environment. The engine is slow enough
that the time goes by there and not on the processor, which on a virtual machine is not equally fast from minute to
minute.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._vlm import ROOT, machine, make_documents
from benchmarks.simulator import Simulator, SimulatorConfig
from mineru_cli.bench.baseline import build_baseline
from mineru_engine.options import Engine

ENGINE = SimulatorConfig(step_base_ms=60, step_per_seq_ms=0.1, tokens_per_step=16, max_seqs=100)
DOCUMENTS, PAGES = 4, 2
SLOWER, FASTER = 0.10, 0.35
_CALL = "    analysis = await analyze_source(resources, source, options, settings, on_progress, on_exchange)\n"
_SLOW_CALL = f"{_CALL}    await asyncio.sleep({{share}} * (time.perf_counter() - started))\n"


@dataclass(frozen=True, slots=True)
class Case:
    """What is compared with what, and what should be said of it."""

    name: str
    source: Path
    against: Path
    expected: str
    repetitions: int


def slowed(target: Path, share: float) -> Path:
    """A copy of the source in which each document takes this much longer."""
    subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", str(target)], check=True)
    place = target / "mineru_engine" / "api.py"
    code = place.read_text(encoding="utf-8")
    if code.count(_CALL) != 1:
        raise SystemExit(f"{place.name} has changed: no place to put a delay in")
    place.write_text(code.replace(_CALL, _SLOW_CALL.format(share=share)), encoding="utf-8")
    return target


def repetition(case: Case, number: int, repeats: int, documents: list[Path], directory: Path) -> dict[str, Any]:
    """One benchmark of both sides, and the comparison."""
    report = directory / f"{case.name}-{number}.json"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MINERU_")}
    environment["PYTHONPATH"] = str(case.source)
    python = [str(case.against / "bin" / "python"), "-P", "-m", "mineru_cli"]
    with Simulator(ENGINE) as simulator:
        bench = [*python, "bench", *map(str, documents), "--tier", "xhigh", "--mode", "async", "--concurrency", "1,4"]
        bench += ["--server-url", simulator.url, "--repeats", str(repeats), "--seed", str(number), "--quiet"]
        bench += ["--against", str(case.against), "--output", str(report), "--json"]
        subprocess.run(bench, env=environment, cwd=directory, stdout=subprocess.DEVNULL, check=True)
    both = [str(report.with_suffix(".base.json")), str(report)]
    compare = [*python, "compare", *both, "--json"]
    done = subprocess.run(compare, env=environment, cwd=directory, capture_output=True, text=True, check=False)
    return {"case": case.name, "number": number, "exit_code": done.returncode, **summary(json.loads(done.stdout))}


def summary(comparison: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a comparison."""
    (gates,) = comparison["gates"]
    ratios = {check: gates[check]["ratio"] for check in ("throughput", "p95", "single")}
    figures = {name: [round(ratio[key], 4) for key in ("value", "low", "high")] for name, ratio in ratios.items()}
    return {"difference": comparison["difference"], "verdict": comparison["verdict"], **figures}


def table(runs: list[dict[str, Any]], cases: list[Case]) -> list[dict[str, Any]]:
    """How often each case was judged as expected."""
    rows = []
    for case in cases:
        said = Counter(run["difference"] for run in runs if run["case"] == case.name)
        verdicts = Counter(run["verdict"] for run in runs if run["case"] == case.name)
        right = (verdicts if case.name == "faster" else said)[case.expected]
        rows.append(
            {
                "case": case.name,
                "expected": case.expected,
                "right": right,
                "of": sum(said.values()),
                "differences": dict(said),
                "verdicts": dict(verdicts),
            }
        )
    return rows


def main() -> None:
    """Run all cases, one repetition of each in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=20, help="of the same source twice; a quarter of the others")
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--output", type=Path, default=Path("harness-check.json"))
    options = parser.parse_args()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mineru-harness-")))
        documents = make_documents(place, DOCUMENTS, PAGES)
        slow, slower_base = slowed(place / "slow", SLOWER), slowed(place / "slow-base", FASTER)
        for tree in (slow, slower_base):
            stack.callback(subprocess.run, ["git", "-C", str(ROOT), "worktree", "remove", "--force", str(tree)])
        head = build_baseline("HEAD", Engine.HTTP, stack, print).python.parents[1]
        slow_base = build_baseline(str(slower_base), Engine.HTTP, stack, print).python.parents[1]
        clean = stack.enter_context(tempfile.TemporaryDirectory(prefix="mineru-harness-source-"))
        shutil.copytree(ROOT / "mineru_engine", Path(clean) / "mineru_engine")
        shutil.copytree(ROOT / "mineru_cli", Path(clean) / "mineru_cli")
        few = max(1, options.repetitions // 4)
        cases = [
            Case("same", Path(clean), head, "no difference", options.repetitions),
            Case("slower", slow, head, "worse", few),
            Case("faster", Path(clean), slow_base, "pass", few),
        ]
        runs = []
        for number in range(options.repetitions):
            for case in cases:
                if number < case.repetitions:
                    runs.append(repetition(case, number, options.repeats, documents, place))
                    print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    rows = table(runs, cases)
    for row in rows:
        print(f"{row['case']:8} expected {row['expected']:14} {row['right']} of {row['of']}   {row['differences']}")
    report = {
        "benchmark": "harness_check",
        "machine": machine(),
        "engine": "simulated engine",
        "repeats": options.repeats,
        "injected": {"slower": SLOWER, "faster": FASTER},
        "table": rows,
        "runs": runs,
    }
    options.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
