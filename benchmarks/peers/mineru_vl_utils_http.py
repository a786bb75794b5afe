"""Peer: MinerUClient of mineru-vl-utils, HTTP, two steps a page, over PDFs or page images.

Usage: build/peers/mineru_vl_utils/bin/python benchmarks/peers/mineru_vl_utils_http.py \
           --server-url http://127.0.0.1:PORT [--concurrency 4] [--repeat 3] [--warm-up FILE] DOCUMENT …

One client and one limit of requests for all documents. Pages are rendered at 200 dpi, a window of 64 at a time, as
MinerU does; the library itself starts with images. Prints one JSON line per round.
"""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version
from pathlib import Path

import pypdfium2 as pdfium
from _measure import common_parser, measure_rounds
from loguru import logger
from mineru_vl_utils import MinerUClient
from PIL import Image

DPI = 200


def render(path: Path, first: int, count: int) -> list[Image.Image]:
    """Images of some pages; none past the end."""
    if path.suffix.lower() != ".pdf":
        return [Image.open(path).convert("RGB")] if first == 0 else []
    document = pdfium.PdfDocument(path)
    try:
        numbers = range(first, min(first + count, len(document)))
        return [document[number].render(scale=DPI / 72).to_pil().convert("RGB") for number in numbers]
    finally:
        document.close()


async def main() -> None:
    """Measure."""
    parser = common_parser(__doc__)
    parser.add_argument("--window", type=int, default=64, help="pages rendered before their requests are sent")
    options = parser.parse_args()
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    client = MinerUClient(
        backend="http-client",
        server_url=options.server_url,
        max_concurrency=options.max_concurrency,
        image_analysis=options.image_analysis,
        use_tqdm=False,
    )
    requests = asyncio.Semaphore(options.max_concurrency)
    pdfium_lock = asyncio.Lock()

    async def parse(path: Path) -> int:
        pages = 0
        while True:
            async with pdfium_lock:
                images = await asyncio.to_thread(render, path, pages, options.window)
            if not images:
                return pages
            results = await client.aio_batch_two_step_extract(images, semaphore=requests)
            if not all(results):
                raise RuntimeError(f"{path}: a page came back empty")
            pages += len(images)

    try:
        await measure_rounds("mineru_vl_utils_http", version("mineru-vl-utils"), options, parse)
    finally:
        await client.aclose()


if __name__ == "__main__":
    asyncio.run(main())
