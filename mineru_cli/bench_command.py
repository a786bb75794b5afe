"""``mineru bench``: how fast, how big and how well-behaved, in a report that others can check."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand

from mineru_cli.errors import UsageProblem, reported
from mineru_cli.options import ConfigOption, EngineOption, ModelOption, OcrModeOption, ServerUrlOption, TierOption

__all__ = ("EPILOG", "BenchCommand", "bench")

EPILOG = (
    "Exit codes: 0 measured, 1 documents failed or their results differed, 2 usage, "
    "130 interrupted (143 by SIGTERM): what was measured is kept. "
    "The table goes to stdout, progress to stderr."
)
_MODES = {"async": ("async",), "sync-thread": ("sync-thread",), "both": ("async", "sync-thread")}
_NUMBERS = re.compile(r"[0-9]+(?:,[0-9]+)*")
_LIST_OPTION = "--concurrency"

_Text = str | None


class BenchCommand(TyperCommand):
    """Lets ``--concurrency`` take several words.

    All words behind it that are numbers belong to it; a document whose name is a number is written ``./8``.
    """

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Remember the words as typed, and join the numbers to one."""
        ctx.meta[_LIST_OPTION] = tuple(args)
        return super().parse_args(ctx, _joined(args))


def _joined(words: list[str]) -> list[str]:
    """``--concurrency 1 2 4`` and ``--concurrency=1 2 4`` become ``--concurrency 1,2,4``."""
    joined: list[str] = []
    values: list[str] | None = None  # of the option that is being read
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if values is not None and _NUMBERS.fullmatch(word):
            values.append(word)
            continue
        joined += [",".join(values)] if values else []
        values = None
        if word == "--":
            return joined + words[number:]
        if name == _LIST_OPTION:
            values = [value] if equals else []
            word = name
        joined.append(word)
    return joined + ([",".join(values)] if values else [])


@reported
def bench(
    ctx: typer.Context,
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATHS]...", help="Documents, directories, globs, or a workload file (.toml)."),
    ] = None,
    concurrency: Annotated[
        list[str] | None,
        typer.Option(metavar="N ...", help="Documents at a time: 1 2 4 8, or 1,2,4,8. Default: 1 4."),
    ] = None,
    mode: Annotated[
        str, typer.Option(metavar="async|sync-thread|both", help="Tasks on one event loop, blocking threads, or both.")
    ] = "both",
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Of each mode and concurrency.")] = 4,
    warmup: Annotated[int, typer.Option(min=0, metavar="N", help="Rounds before anything counts.")] = 1,
    duration: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="Steady load for so long, instead of a batch.")
    ] = None,
    arrival: Annotated[
        str, typer.Option(metavar="closed|poisson:RATE", help="One after the other, or RATE documents/s at random.")
    ] = "closed",
    cancel_after: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="SECONDS", help="Also cancel documents after so long, and see what is left."),
    ] = None,
    tier: TierOption = None,
    ocr_mode: OcrModeOption = None,
    engine: EngineOption = None,
    server_url: ServerUrlOption = None,
    model: ModelOption = None,
    window_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Pages per window. Default: from the settings.")
    ] = None,
    against: Annotated[
        _Text,
        typer.Option(metavar="REF|DIR|WHEEL", help="Also measure this baseline, in turn, and compare with it."),
    ] = None,
    peer: Annotated[_Text, typer.Option(metavar="NAME", help="Measure another tool of benchmarks/peers.")] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Report. Default: bench-TIME.json in this directory.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the report as one HTML page.")] = None,
    save_results: Annotated[Path | None, typer.Option(metavar="DIR", help="Also write what the warm-up read.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown on stdout instead of the table.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON on stdout instead of the table.")] = False,
    config: ConfigOption = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of all that is random; the report tells it.")] = 0,
    sample_every: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Time between looks at memory and load; 0 for no looks.")
    ] = 0.1,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress and no report path on stderr.")] = False,
) -> None:
    """Measure documents/s, latency, memory and more; without paths, on the demo documents.

    All numbers behind --concurrency belong to it: write a document that is called 8 as ./8.
    """
    _check(mode, against, peer, markdown=markdown, as_json=as_json)
    options = {
        "tier": tier,
        "ocr_mode": ocr_mode,
        "engine": engine,
        "server_url": server_url,
        "model": model,
        "window_size": window_size,
    }
    from mineru_cli.bench.report import Mode
    from mineru_cli.bench.run import BenchJob, run_bench

    job = BenchJob(
        paths=tuple(paths or ()),
        output=output or Path(f"bench-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"),
        options={name: value for name, value in options.items() if value is not None},
        modes=tuple(Mode(name) for name in _MODES[mode]),
        concurrencies=_numbers(concurrency or ["1,4"]),
        repeats=repeats,
        warmup=warmup,
        duration_s=duration,
        arrival=arrival,
        cancel_after_s=cancel_after,
        sample_every_s=sample_every,
        seed=seed,
        save_results=save_results,
        html=html,
        config=config,
        against=against,
        peer=peer,
        markdown=markdown,
        as_json=as_json,
        quiet=quiet,
        command=("mineru", "bench", *ctx.meta[_LIST_OPTION]),
    )
    raise typer.Exit(run_bench(job))


def _numbers(values: list[str]) -> tuple[int, ...]:
    words = [word for value in values for word in value.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) for word in words):
        raise UsageProblem(f"--concurrency {' '.join(values)}", "write numbers from 1 on: --concurrency 1 2 4 8")
    return tuple(dict.fromkeys(map(int, words)))


def _check(mode: str, against: str | None, peer: str | None, *, markdown: bool, as_json: bool) -> None:
    if mode not in _MODES:
        raise UsageProblem(f"unknown mode {mode!r}", f"modes are {', '.join(_MODES)}")
    if against is not None and peer is not None:
        raise UsageProblem("--against and --peer exclude each other", "compare two reports with `mineru compare`")
    if markdown and as_json:
        raise UsageProblem("--markdown and --json both write to stdout", "choose one of them")
