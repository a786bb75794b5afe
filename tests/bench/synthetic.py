"""Reports with known effects, made of random numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mineru_cli.bench.report import (
    Cancellation,
    Caveat,
    DocumentResult,
    DocumentSample,
    EngineIdentity,
    Gpu,
    GpuUse,
    Input,
    Leftovers,
    LoopLag,
    Machine,
    Mode,
    Report,
    RequestCounts,
    Resources,
    Run,
    Series,
    Source,
    Workload,
)

DOCUMENTS = {"letter.pdf": (1, 0.2), "paper.pdf": (12, 2.0), "report.pdf": (8, 1.4), "table.pdf": (3, 0.6)}
"""Name → pages, seconds alone."""
BLOCKS = [["a1", "a2", "a3"], ["b1", "b2"]]


@dataclass(frozen=True)
class Effect:
    """What the new source is like: factors on the time under load, on its longest times, and on the time alone."""

    load: float = 1.0
    tail: float = 1.0
    single: float = 1.0


def make_report(
    seed: int = 0,
    effect: Effect = Effect(),
    *,
    noise: float = 0.01,
    repeats: int = 6,
    concurrencies: Sequence[int] = (1, 4),
    modes: Sequence[Mode] = (Mode.ASYNC,),
    **changes: Any,
) -> Report:
    """A sealed report.

    :param noise: standard deviation between repeats, and of each document, as a share.
    :param changes: fields of the report to replace.
    """
    chance = random.Random(seed)
    runs = [
        _run(chance, mode, concurrency, repeat, effect, noise)
        for mode in modes
        for concurrency in concurrencies
        for repeat in range(repeats)
    ]
    values: dict[str, Any] = {
        "schema": "mineru.bench-report",
        "schema_version": 1,
        "created_at": "2026-01-02T03:04:05+00:00",
        "duration_s": 60.0,
        "command": ["mineru", "bench", "--seed", str(seed)],
        "complete": True,
        "source": SOURCE,
        "machine": MACHINE,
        "settings": {"processing.window_size": 8, "model.vlm.server_url": "http://localhost:8000/v1"},
        "options": {"tier": "high", "image_analysis": True},
        "engine": ENGINE,
        "workload": Workload(
            name="synthetic",
            tier="high",
            ocr_mode="auto",
            modes=list(modes),
            concurrencies=list(concurrencies),
            repeats=repeats,
            warmup=1,
            duration_s=None,
            arrival="closed",
            seed=seed,
            single_document=None,
        ),
        "inputs": [
            Input(name=name, sha256=f"{number:064x}", pages=pages, bytes=1000 * pages)
            for number, (name, (pages, _)) in enumerate(DOCUMENTS.items())
        ],
        "runs": runs,
        "cancellation": [],
        "results": [
            DocumentResult(input=number, sha256=f"{number:064x}", blocks=BLOCKS, variants=1)
            for number in range(len(DOCUMENTS))
        ],
        "caveats": [],
    }
    return Report.model_validate(values | changes).sealed()


SOURCE = Source(
    revision="0123456789abcdef",
    dirty=False,
    tree_sha256="0" * 64,
    files={"mineru_engine/api.py": "1" * 64},
    distributions={"numpy": "2.4.6"},
    lock_sha256=None,
)
MACHINE = Machine(
    cpu="Some CPU",
    cores_allowed=16,
    memory_mib=65536,
    memory_limit_mib=None,
    cpu_limit=None,
    system="Linux",
    python="3.11.9",
    gpus=[Gpu(name="Some GPU", uuid="GPU-1", memory_mib=143360)],
    driver="580.1",
)
ENGINE = EngineIdentity(engine="vllm", model="MinerU2.5", version="0.32.0", location="cuda:0", device="gpu")


def _run(chance: random.Random, mode: Mode, concurrency: int, repeat: int, effect: Effect, noise: float) -> Run:
    weather = chance.gauss(1, noise)
    factor = effect.single if concurrency == 1 else effect.load
    samples = [
        DocumentSample(
            input=number,
            due_s=0.0,
            queued_s=0.1 * number,
            parse_s=seconds
            * concurrency**0.5
            * weather
            * chance.gauss(1, noise)
            * factor
            * _tail(seconds, effect, concurrency),
            pages=pages,
        )
        for number, (pages, seconds) in enumerate(DOCUMENTS.values())
        for _ in range(2)
    ]
    pages = sum(sample.pages for sample in samples)
    elapsed_s = sum(seconds for _, seconds in DOCUMENTS.values()) * 2 / concurrency**0.5 * weather * factor
    return Run(
        mode=mode,
        concurrency=concurrency,
        repeat=repeat,
        elapsed_s=elapsed_s,
        pages=pages,
        documents_per_s=len(samples) / elapsed_s,
        pages_per_s=pages / elapsed_s,
        samples=samples,
        loop_lag=LoopLag(p50_ms=0.2, p99_ms=1.0 * weather, max_ms=3.0) if mode is Mode.ASYNC else None,
        resources=Resources(
            peak_rss_mib=900 * weather, peak_threads=20, peak_fds=60, cpu_s=5.0, cpu_ms_per_page=40 * weather
        ),
        requests=RequestCounts(
            done=100,
            failed=0,
            requests_per_s=10.0,
            completion_tokens=5000,
            tokens_per_s=500.0,
            mean_in_flight=3.5,
            peak_in_flight=8,
            busy_s=None,
        ),
        gpu=GpuUse(peak_vram_mib=20000.0, vram_reason=None, mean_utilization_percent=80.0),
        series=Series(
            t_s=[0.0, 0.1, 0.2], rss_mib=[700.0, 850.0, 900.0], in_flight=[0, 8, 2], vram_mib=[None, 19000.0, 20000.0]
        ),
    )


def _tail(seconds: float, effect: Effect, concurrency: int) -> float:
    """The longest documents alone may get faster under load."""
    return effect.tail if concurrency > 1 and seconds > 1 else 1.0


def cancellation(return_s: list[float], **left: int) -> Cancellation:
    """Documents cancelled after half a second."""
    nothing = dict.fromkeys(
        ("requests_in_flight", "requests_at_server", "tasks", "threads", "fds", "temporary_files"), 0
    )
    leftovers = Leftovers(server_reason=None, **(nothing | left))
    return Cancellation(concurrency=4, after_s=0.5, repeat=0, return_s=return_s, finished_before=0, leftovers=leftovers)


def caveat(text: str) -> Caveat:
    """One that a report could hold."""
    return Caveat(code="some_code", text=text)
