"""Peak memory of `mineru parse` against the number of pages.

Usage: python benchmarks/memory_by_pages.py [--pages 100 1000] [--repeats 2] [--output REPORT.json] [FILE …]

Every run is a process of its own; its peak is the resident memory of the whole process tree, sampled every 50 ms
(memory shared between processes counts several times, so the figure is an upper bound). The documents are
demo/report.pdf repeated to the wanted length; FILEs are measured as they are.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from pypdf import PdfReader, PdfWriter

REPORT = Path(__file__).resolve().parents[1] / "demo" / "report.pdf"


def repeat_pages(target: Path, pages: int) -> Path:
    """A PDF of ``pages`` pages made of the demo report's."""
    writer = PdfWriter()
    source = PdfReader(REPORT)
    while len(writer.pages) < pages:
        writer.append(source, pages=(0, min(len(source.pages), pages - len(writer.pages))))
    writer.write(target)
    return target


def measure(document: Path, output: Path) -> dict[str, float]:
    """Run the command once: peak MiB of the tree, of the main process alone, and seconds."""
    command = [sys.executable, "-m", "mineru_cli", "parse", str(document), "--tier", "flash", "-o", str(output), "-q"]
    started = time.perf_counter()
    process = psutil.Popen([*command, "--overwrite"])
    tree = main = 0
    while process.poll() is None:
        try:
            own = process.memory_info().rss
            total = own + sum(child.memory_info().rss for child in process.children(recursive=True))
        except psutil.Error:
            continue
        tree, main = max(tree, total), max(main, own)
        time.sleep(0.05)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return {"tree_mib": tree >> 20, "main_mib": main >> 20, "seconds": round(time.perf_counter() - started, 1)}


def main() -> None:
    """Measure each length in turn, several times over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--pages", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        documents = {f"{pages} pages": repeat_pages(directory / f"{pages}.pdf", pages) for pages in args.pages}
        documents |= {path.name: path for path in args.files}
        runs: dict[str, list[dict[str, float]]] = {label: [] for label in documents}
        for _ in range(args.repeats):
            for label, document in documents.items():
                runs[label].append(measure(document, directory / "output"))
                print(label, runs[label][-1], flush=True)
    for label, results in runs.items():
        print(f"{label}: median peak {statistics.median(item['tree_mib'] for item in results):.0f} MiB")
    if args.output:
        report = {"runs": runs, "caveats": ["CPU only", "shared pages count once per process"]}
        args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
