"""Two commands as whole processes, in turn: A B A B …

Usage: python benchmarks/two_commands.py 'COMMAND A' 'COMMAND B' [--rounds 7] [--output REPORT.json]

Each command runs once uncounted. The report keeps the wall seconds of every run and the ratio A / B pair by pair.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import time
from pathlib import Path


def seconds(command: str) -> float:
    """Wall seconds of one run.

    :raises subprocess.CalledProcessError: if it fails.
    """
    started = time.perf_counter()
    subprocess.run(shlex.split(command), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    """Run the rounds and print medians and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    commands = {"a": args.first, "b": args.second}
    for command in commands.values():
        seconds(command)
    runs: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(args.rounds):
        for name, command in commands.items():
            runs[name].append(round(seconds(command), 3))
    ratios = [round(a / b, 3) for a, b in zip(runs["a"], runs["b"], strict=True)]
    for name, values in runs.items():
        print(f"{name}: median {statistics.median(values):.2f} s ({min(values):.2f}..{max(values):.2f})")
    print(f"a / b: median {statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})")
    if args.output:
        shown = {name: " ".join(Path(word).name for word in shlex.split(text)) for name, text in commands.items()}
        report = {"commands": shown, "seconds": runs, "ratios": ratios, "caveats": ["CPU only"]}
        args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
