"""What the harness itself costs: throughput with a look every tenth of a second, against none.

Usage: python -m benchmarks.sampling_cost sampling-0.1-1.json sampling-0-1.json … [--output REPORT.json]

The reports are `mineru bench` of the same load, made in turn with `--sample-every 0.1` and `0`; benchmarks/reports.sh
makes them.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from benchmarks._vlm import machine
from mineru_cli.bench.report import load_report


def main() -> None:
    """Compare the medians round by round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rates: dict[str, dict[str, float]] = {"0.1": {}, "0": {}}
    for path in options.reports:
        _, every, number = path.stem.split("-")
        rates[every][number] = statistics.median(run.pages_per_s for run in load_report(path).runs)
    ratios = [rates["0.1"][number] / rates["0"][number] for number in sorted(rates["0"])]
    found = {
        "benchmark": "sampling_cost",
        "engine": "simulated engine",
        "machine": machine(),
        "pages_per_s": {f"every {every} s" if every != "0" else "never": values for every, values in rates.items()},
        "ratios": ratios,
        "median_ratio": statistics.median(ratios),
    }
    print(
        f"throughput with sampling over without: {found['median_ratio']:.4f} ({min(ratios):.4f} to {max(ratios):.4f})"
    )
    if options.output is not None:
        options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
