"""Where the time of a scanned page goes, stage by stage.

Usage: python benchmarks/scan_stages.py FILE … [--threads 2] [--pages 2] [--output REPORT.json]

Runs in this process, one page at a time, after one page that loads the models. Seconds are wall time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loguru import logger

from mineru_engine.pdf import scan
from mineru_engine.pdf.source import PdfSource
from mineru_engine.pdf.tasks import scan_long_side

STAGES = {
    "straighten": "find lines, turn, deskew",
    "read_quads": "recognise",
    "detect_layout": "layout",
    "assemble_page": "assemble",
}


@dataclass
class Clock:
    """Adds up the seconds spent in each wrapped function."""

    seconds: dict[str, float] = field(default_factory=dict)

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed under ``name``."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

        return timed


def read_page(source: PdfSource, index: int, threads: int, clock: Clock) -> dict[str, float]:
    """Seconds of each stage for one page."""
    clock.seconds = {}
    started = time.perf_counter()
    pixels = source.render(index, scan_long_side(source.page_size(index)))
    rendered = time.perf_counter() - started
    scan.read_scan_page(pixels, threads=threads)
    total = time.perf_counter() - started
    stages = {STAGES[name]: round(value, 3) for name, value in clock.seconds.items()}
    return {"render": round(rendered, 3), **stages, "total": round(total, 3)}


def main() -> None:
    """Measure the pages and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pages", type=int, default=2)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    logger.disable("docvortex")
    clock = Clock()
    for name in STAGES:
        setattr(scan, name, clock.wrap(name, getattr(scan, name)))
    read_page(PdfSource(args.files[0]), 0, args.threads, clock)
    results = []
    for path in args.files:
        source = PdfSource(path)
        for index in range(min(args.pages, source.page_count)):
            stages = read_page(source, index, args.threads, clock)
            results.append({"document": path.name, "page": index, **stages})
            print(f"{path.name[:36]:36} page {index + 1} " + ", ".join(f"{k} {v:.2f}" for k, v in stages.items()))
    total = sum(item["total"] for item in results)
    print(f"{len(results)} pages, {len(results) / total:.2f} pages/s with {args.threads} threads in one process")
    if args.output:
        report = {"threads": args.threads, "pages": results, "caveats": ["CPU only", "one process"]}
        args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
