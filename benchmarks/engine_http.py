"""Our runner: ``parse_async`` at a VLM server, in process and warm, with the options and lines of the peers' runners.

Usage: python -m benchmarks.engine_http \
           --server-url http://127.0.0.1:PORT [--concurrency 4] [--repeat 3] [--warm-up FILE] DOCUMENT …

A document is done when its Markdown is there. Every page must have been read by the model, else the run fails: a page
that took another way would cost the server nothing. Prints one JSON line per round; CPU time and memory are those of
this process and its workers.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from pathlib import Path

import mineru_engine as engine
from benchmarks.peers._measure import common_parser, measure_rounds


def engine_settings(overrides: Mapping[str, object]) -> engine.Settings:
    """Defaults and what the measurement asks for; the environment has no say.

    :param overrides: dotted name → value.
    """
    return engine.Settings.load(environ={}, overrides=overrides)


def check_pages(result: engine.ParseResult) -> None:
    """Every page was read by the model.

    :raises RuntimeError: if not.
    """
    other = {page: str(kind) for page, kind in result.page_kinds.items() if kind is not engine.PageKind.VLM}
    if other:
        raise RuntimeError(f"{result.name}: pages not read by the model: {other}; {list(result.diagnostics)[:3]}")


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


async def main() -> None:
    """Measure."""
    parser = common_parser(__doc__)
    parser.add_argument("--image-format", default="png", choices=["png", "jpeg", "webp"])
    parser.add_argument("--tier", default="xhigh", choices=["high", "xhigh"])
    parser.add_argument("--ocr-mode", default="ocr", choices=[str(mode) for mode in engine.OcrMode])
    parser.add_argument("--set", type=_assignment, action="append", default=[], help="any setting, as NAME=VALUE")
    options = parser.parse_args()
    settings = engine_settings(
        {
            "model.vlm.image_format": options.image_format,
            "model.vlm.max_concurrency": options.max_concurrency,
            **dict(options.set),
        }
    )

    async def parse(path: Path) -> int:
        result = await engine.parse_async(
            path,
            settings=settings,
            tier=options.tier,
            ocr_mode=options.ocr_mode,
            server_url=options.server_url,
            image_analysis=options.image_analysis,
        )
        check_pages(result)
        if not result.markdown():
            raise RuntimeError(f"{path}: no Markdown")
        return result.page_count

    await measure_rounds("engine_http", engine.__version__, options, parse)


if __name__ == "__main__":
    asyncio.run(main())
