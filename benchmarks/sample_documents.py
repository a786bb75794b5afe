"""Parse every public sample document and set the outcome beside the best peer's.

Usage: python benchmarks/sample_documents.py SAMPLES_DIR [--tier basic] [--only PREFIX …] [--output REPORT.json]

Writes a JSON report and prints a Markdown table. Memory is the peak resident memory of this process and its
workers, sampled every 50 ms while the document is parsed. Word recall is the share of the words PDFium finds in
the file that stand in our Markdown, as in the peer's column; it says nothing for scans.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import re
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

import mineru_engine as engine


class PeakMemory:
    """Highest resident memory of the process tree while the block runs, MiB."""

    def __enter__(self) -> PeakMemory:
        self.mib = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(0.05):
            total = 0
            for process in (me, *me.children(recursive=True)):
                try:
                    total += process.memory_info().rss
                except psutil.Error:
                    continue
            self.mib = max(self.mib, total >> 20)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def words(text: str) -> Counter[str]:
    """Words of a text, CJK by character; markup and punctuation are left out."""
    plain = re.sub(r"<[^>]+>|!\[[^\]]*\]\([^)]*\)", " ", text)
    cjk = _CJK.findall(plain)
    rest = re.findall(r"[^\W_]+", _CJK.sub(" ", plain).lower())
    return Counter(cjk + rest)


def recall(reference: str, found: str) -> float | None:
    """Share of the reference's words that are found, counted with repetition."""
    wanted, have = words(reference), words(found)
    total = sum(wanted.values())
    return sum(min(count, have[word]) for word, count in wanted.items()) / total if total else None


def pdfium_text(path: Path, password: str | None) -> str:
    """All text PDFium sees; read in a child of its own, since some of these files are hostile."""
    import subprocess

    code = (
        "import sys, pypdfium2 as p\n"
        "d = p.PdfDocument(sys.argv[1], password=sys.argv[2] or None)\n"
        "for i in range(len(d)):\n"
        "    try: sys.stdout.buffer.write(d[i].get_textpage().get_text_range().encode('utf-8', 'ignore') + b'\\n')\n"
        "    except p.PdfiumError: pass\n"
    )
    run = subprocess.run([sys.executable, "-c", code, str(path), password or ""], capture_output=True, timeout=120)
    return run.stdout.decode("utf-8", "replace")


def password_of(row: dict[str, str]) -> str | None:
    """The tested password; the index writes characters beyond ASCII as JSON escapes."""
    value = row["password"]
    return str(json.loads(f'"{value}"')) if value else None


def parse_one(path: Path, row: dict[str, str], tier: str) -> dict[str, Any]:
    """One document's outcome."""
    password = password_of(row)
    record: dict[str, Any] = {"name": path.name, "peer": row["peer_cli_outcome"], "peer_s": row["peer_cli_secs"]}
    record |= {"peer_recall": row["peer_word_recall"], "peer_rss_mb": row["peer_cli_rss_mb"]}
    record |= {"peer_text": row["peer_cli_text"]}
    started = time.perf_counter()
    with PeakMemory() as memory:
        try:
            result = engine.parse(path, tier=tier, **({"password": password} if password else {}))
            markdown = result.markdown()
            record |= {"outcome": str(result.status), "engine": result.engine, "pages": result.page_count}
            record |= {"text": len(re.sub(r"\s", "", re.sub(r"<[^>]+>", "", markdown)))}
            record |= {
                "tables": markdown.count("<table"),
                "diagnostics": [item.to_dict() for item in result.diagnostics],
            }
            record["kinds"] = dict(Counter(str(kind) for kind in result.page_kinds.values()))
            record["attachments"] = len(result.attachments)
        except engine.MineruError as exc:
            markdown = ""
            record |= {"outcome": str(exc.code), "error": exc.message, "hint": exc.hint}
    record["seconds"] = round(time.perf_counter() - started, 2)
    record["rss_mb"] = memory.mib
    if path.suffix == ".pdf" and markdown:
        value = recall(pdfium_text(path, password), markdown)
        record["recall"] = None if value is None else round(value, 3)
    return record


def table(records: list[dict[str, Any]]) -> str:
    """The records as a Markdown table."""
    columns = ["document", "ours", "pages", "text", "recall", "s", "MiB", "notes"]
    columns += ["peer", "peer text", "peer recall", "peer s", "peer MiB"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for item in records:
        notes = sorted({entry["code"] for entry in item.get("diagnostics", [])})
        kinds = ", ".join(f"{kind} {count}" for kind, count in item.get("kinds", {}).items())
        note = "; ".join(filter(None, [kinds, ", ".join(notes), item.get("error", "")]))
        cells = [
            item["name"][:40],
            item["outcome"],
            item.get("pages", ""),
            item.get("text", ""),
            item.get("recall", ""),
        ]
        cells += [item["seconds"], item["rss_mb"], note, item["peer"], item["peer_text"], item["peer_recall"]]
        cells += [item["peer_s"], item["peer_rss_mb"]]
        lines.append("| " + " | ".join("" if cell is None else str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run over the index and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=Path)
    parser.add_argument("--tier", default="basic")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    with (args.samples / "index.tsv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    if args.only:
        rows = [row for row in rows if row["name"].startswith(tuple(args.only))]
    records = []
    for row in rows:
        records.append(parse_one(args.samples / row["name"], row, args.tier))
        print(table(records).splitlines()[-1], file=sys.stderr, flush=True)
    engine.shutdown_cached_models()
    print(table(records))
    if args.output:
        machine = {
            "python": platform.python_version(),
            "cores": len(psutil.Process().cpu_affinity() or []),
            "gpu": None,
        }
        report = {"command": " ".join([sys.argv[0], "SAMPLES", *sys.argv[2:]]), "tier": args.tier, "machine": machine}
        report["caveats"] = [
            "CPU only",
            "peer figures were measured earlier on the same kind of machine, not in this run",
        ]
        report["documents"] = records
        args.output.write_text(json.dumps(report, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
