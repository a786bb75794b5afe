"""Peer: MinerU 3.4.5 with ``-b vlm-http-client``, in process and warm.

Usage: build/peers/mineru_345/bin/python benchmarks/peers/mineru_345.py \
           --server-url http://127.0.0.1:PORT [--concurrency 4] [--repeat 3] [--warm-up FILE] DOCUMENT …

Calls ``aio_do_parse``, what the command and its API server call for each document; documents beside each other are
tasks on one loop, as in the API server. It writes Markdown and middle JSON, no pictures of the layout. Prints one
JSON line per round.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from importlib.metadata import version
from itertools import count
from pathlib import Path

os.environ.setdefault("MINERU_MODEL_SOURCE", "local")

import pypdfium2 as pdfium
from _measure import common_parser, measure_rounds
from loguru import logger
from mineru.cli.common import aio_do_parse, read_fn


async def main() -> None:
    """Measure."""
    options = common_parser(__doc__).parse_args()
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    numbers = count()

    with tempfile.TemporaryDirectory(prefix="mineru-peer-") as output:

        async def parse(path: Path) -> int:
            name = f"{path.stem}-{next(numbers)}"
            data = await asyncio.to_thread(read_fn, path)
            await aio_do_parse(
                output_dir=output,
                pdf_file_names=[name],
                pdf_bytes_list=[data],
                p_lang_list=["ch"],
                backend="vlm-http-client",
                server_url=options.server_url,
                max_concurrency=options.max_concurrency,
                image_analysis=options.image_analysis,
                f_draw_layout_bbox=False,
                f_draw_span_bbox=False,
                f_dump_orig_pdf=False,
                f_dump_model_output=False,
                f_dump_content_list=False,
            )
            markdown = Path(output) / name / "vlm" / f"{name}.md"
            if not markdown.stat().st_size:
                raise RuntimeError(f"{path}: no Markdown")
            with pdfium.PdfDocument(data) as document:
                return len(document)

        await measure_rounds("mineru_345", version("mineru"), options, parse)


if __name__ == "__main__":
    asyncio.run(main())
