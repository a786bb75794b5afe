"""The real vLLM on the CPU, in process: one engine for all callers, the same bytes always, and what batching gives.

``build/venvs/vllm/bin/python -m benchmarks.vlm_embedded --output reports/vlm-embedded.json``

Runs with the Python that has vLLM. The model is the tiny scripted one, so tokens are scripted and everything else
(scheduler, image encoder, batching, aborts) is vLLM's own; a CPU stands in for no GPU. Each side runs in a process of
its own: ours, and MinerUClient of mineru-vl-utils over the same kind of engine (``vllm-async-engine``).
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.tiny_vlm.build import build
from benchmarks.tiny_vlm.serve import ROOT, vllm_environment

OPTIONS: dict[str, Any] = {
    "dtype": "bfloat16",
    "enforce_eager": True,
    "max_model_len": 8192,
    "max_num_seqs": 64,
    "logits_processors": ["benchmarks.tiny_vlm.scripted:ScriptedLogits"],
}
DOCUMENT = ROOT / "demo" / "contract_scan.pdf"  # no text layer: the model reads every block
CONCURRENCIES = (1, 2, 4, 8)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--side", choices=["ours", "client"], help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        measured = _ours(options.model, options.repeats) if options.side == "ours" else _client(options.model)
        print("RESULT " + json.dumps(measured), flush=True)
        return
    report = _compare(options.repeats)
    print(json.dumps({name: value for name, value in report.items() if name != "rounds"}, indent=1))
    if options.output is not None:
        options.output.write_text(json.dumps(report, indent=1) + "\n")


def _compare(repeats: int) -> dict[str, Any]:
    model = build(ROOT / "build" / "tiny_vlm")
    with tempfile.TemporaryDirectory(prefix="mineru-bench-") as directory:
        script = Path(directory) / "script.json"
        pages = [sys.executable, "-m", "benchmarks.simulator.pages", str(DOCUMENT), "-o", str(script)]
        subprocess.run(pages, check=True, cwd=ROOT)
        rounds = [_round(side, model, script, repeats) for side in ("client", "ours", "ours", "client")]
    ours = [part for part in rounds if part["side"] == "ours"]
    client = [part for part in rounds if part["side"] == "client"]
    single, plain = (statistics.median(x for part in parts for x in part["single_s"]) for parts in (ours, client))
    hashes = {text for part in ours for text in part["hashes"]}
    return {
        "what": "embedded vLLM on the CPU with the scripted tiny model; no GPU, no trained model",
        "document": DOCUMENT.name,
        "single_s": {"ours": single, "client": plain, "ratio": single / plain, "target": 1.05},
        "throughput_8_over_1": statistics.median(part["pages_per_s"]["8"] / part["pages_per_s"]["1"] for part in ours),
        "different_results": len(hashes),
        "engine_processes": max(part["engine_processes"] for part in ours),
        "rounds": rounds,
    }


def _round(side: str, model: Path, script: Path, repeats: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.vlm_embedded", "--side", side, "--model", str(model)]
    done = subprocess.run(
        [*command, "--repeats", str(repeats)],
        cwd=ROOT,
        env={**vllm_environment(script), "VLLM_LOGGING_LEVEL": "ERROR"},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    return {"side": side, "load_before": os.getloadavg()[0], **json.loads(line.removeprefix("RESULT "))}


def _ours(model: Path, repeats: int) -> dict[str, Any]:
    import mineru_engine as engine

    values = {"model.vlm.engine": "vllm", "model.vlm.model": str(model), "model.vlm.engine_options": OPTIONS}
    settings = engine.Settings.load(environ={}, overrides=values)
    call: dict[str, Any] = {"tier": "xhigh", "ocr_mode": "ocr", "settings": settings}
    hashes: list[str] = []

    def keep(result: engine.ParseResult) -> engine.ParseResult:
        hashes.append(hashlib.sha256(result.export("json")).hexdigest())
        return result

    started = time.perf_counter()
    engine.preload(settings=settings, tier="xhigh")
    boot_s = time.perf_counter() - started
    keep(engine.parse(DOCUMENT, **call))  # warm
    single, throughput = [], {}
    for _ in range(repeats * 2):
        started = time.perf_counter()
        result = engine.parse(DOCUMENT, **call)
        single.append(time.perf_counter() - started)
        keep(result)
    for width in CONCURRENCIES:
        rates = []
        for number in range(repeats):
            started = time.perf_counter()
            run = _threads if number % 2 else _tasks
            results = run(width, call)
            rates.append(sum(result.page_count for result in results) / (time.perf_counter() - started))
            for result in results:
                keep(result)
        throughput[str(width)] = statistics.median(rates)
    processes = _engine_processes()
    engine.shutdown_cached_models()
    return {
        "boot_s": boot_s,
        "single_s": single,
        "pages_per_s": throughput,
        "hashes": hashes,
        "engine_processes": processes,
        "engine_processes_after": _engine_processes(),
    }


def _tasks(width: int, call: dict[str, Any]) -> list[Any]:
    from mineru_engine import parse_async

    async def body() -> list[Any]:
        return await asyncio.gather(*(parse_async(DOCUMENT, **call) for _ in range(width)))

    return asyncio.run(body())


def _threads(width: int, call: dict[str, Any]) -> list[Any]:
    from mineru_engine import parse

    with ThreadPoolExecutor(width) as pool:
        return list(pool.map(lambda _: parse(DOCUMENT, **call), range(width)))


def _engine_processes() -> int:
    """EngineCore processes among our children; vLLM names them so."""
    import psutil

    children = psutil.Process().children(recursive=True)
    return sum("EngineCore" in " ".join(child.cmdline()) or "EngineCore" in child.name() for child in children)


def _client(model: Path) -> dict[str, Any]:
    import pypdfium2 as pdfium
    from mineru_vl_utils import MinerUClient
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    async def body() -> list[float]:
        arguments = {**OPTIONS, "limit_mm_per_prompt": {"image": 1}, "disable_log_stats": True}
        llm = AsyncLLM.from_engine_args(AsyncEngineArgs(model=str(model), **arguments))
        client = MinerUClient(
            backend="vllm-async-engine", vllm_async_llm=llm, image_analysis=True, use_tqdm=False, max_concurrency=100
        )
        times = []
        try:
            for _ in range(7):
                started = time.perf_counter()
                with pdfium.PdfDocument(DOCUMENT) as document:
                    images = [page.render(scale=200 / 72).to_pil().convert("RGB") for page in document]
                results = await client.aio_batch_two_step_extract(images)
                if not all(results):
                    raise RuntimeError("a page came back empty")
                times.append(time.perf_counter() - started)
        finally:
            llm.shutdown()
        return times[1:]

    return {"single_s": asyncio.run(body())}


if __name__ == "__main__":
    main()
