"""Peer: MinerUClient with a short document in the middle of a long one; one client, one limit of requests.

Usage: build/peers/mineru_vl_utils/bin/python benchmarks/peers/mineru_vl_utils_fairness.py \
           --server-url http://127.0.0.1:PORT [--repeat 3] [--middle 600] SHORT LONG

Pages are rendered as by mineru_vl_utils_http.py. Prints one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.metadata import version
from pathlib import Path

from _fairness import measure_fairness
from _measure import common_parser
from loguru import logger
from mineru_vl_utils import MinerUClient
from mineru_vl_utils_http import render

WINDOW = 64


async def main() -> None:
    """Measure."""
    parser = common_parser(__doc__)
    parser.add_argument("--middle", type=int, default=600, help="answered requests after which the long one is running")
    options = parser.parse_args()
    short, long = options.documents
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    limit = options.max_concurrency
    client = MinerUClient(
        backend="http-client", server_url=options.server_url, max_concurrency=limit, use_tqdm=False, image_analysis=True
    )
    requests, pdfium_lock = asyncio.Semaphore(limit), asyncio.Lock()

    async def parse(path: Path) -> None:
        first = 0
        while True:
            async with pdfium_lock:
                images = await asyncio.to_thread(render, path, first, WINDOW)
            if not images:
                return
            await client.aio_batch_two_step_extract(images, semaphore=requests)
            first += len(images)

    try:
        found = await measure_fairness(
            options.server_url, parse, short, long, repeats=options.repeat, middle=options.middle
        )
    finally:
        await client.aclose()
    print(json.dumps({"version": version("mineru-vl-utils"), **found}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
