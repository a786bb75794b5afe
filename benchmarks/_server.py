"""What the benchmarks of the job server share."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

DEMO = Path(__file__).resolve().parents[1] / "demo"


def arguments(doc: str | None, jobs: int) -> argparse.ArgumentParser:
    """The options that all have."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=jobs)
    parser.add_argument("--output", type=Path)
    return parser


def publish(report: Any, output: Path | None) -> None:
    """Print a report, which is a dataclass, and write it if asked for."""
    text = json.dumps(asdict(report), indent=2)
    print(text)
    if output:
        output.write_text(text + "\n")
