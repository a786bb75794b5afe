"""Speed and quality on our own documents: the table in the README.

Usage: python benchmarks/demo_documents.py [--rounds 3] [--output REPORT.json]

Seconds are the median of warm calls of ``mineru_engine.parse`` in one process with the default workers. Quality is
measured against the ground truth that the documents were made from (tests/engine/quality.py).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import mineru_engine as engine  # noqa: E402
from tests.engine.quality import char_similarity, table_similarity  # noqa: E402

CASES = (("paper", "flash"), ("contract", "flash"), ("report", "flash"), ("contract_scan", "basic"))


def main() -> None:
    """Parse every document a few times in turn and print the Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name, _ in CASES}
    results = {name: engine.parse(ROOT / "demo" / f"{name}.pdf", tier=tier) for name, tier in CASES}
    for _ in range(args.rounds):
        for name, tier in CASES:
            started = time.perf_counter()
            engine.parse(ROOT / "demo" / f"{name}.pdf", tier=tier)
            seconds[name].append(time.perf_counter() - started)
    engine.shutdown_cached_models()
    rows = []
    for name, tier in CASES:
        truth = (ROOT / "demo" / "truth" / f"{name}.md").read_text(encoding="utf-8")
        markdown, pages = results[name].markdown(), results[name].page_count
        middle = statistics.median(seconds[name])
        row = {"document": name, "tier": tier, "pages": pages, "seconds": round(middle, 2)}
        row |= {"pages_per_s": round(pages / middle, 2), "characters": round(char_similarity(markdown, truth), 3)}
        row["tables"] = round(table_similarity(markdown, truth), 3)
        rows.append(row)
        print("| " + " | ".join(str(value) for value in row.values()) + " |")
    if args.output:
        report = {"rows": rows, "seconds": seconds, "caveats": ["CPU only"]}
        args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
