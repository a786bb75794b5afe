"""A real vLLM on the CPU with the scripted tiny model, over HTTP."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from chat_bodies import chat_body
from mineru_vl_utils import MinerUClient

from benchmarks.simulator import DEFAULT_OUTPUTS, Kind
from benchmarks.simulator.pages import Page, pages_of, script_for
from benchmarks.tiny_vlm import TinyServer, vllm_python
from benchmarks.tiny_vlm.serve import MODEL_NAME

CHAT = "/v1/chat/completions"


def has_vllm() -> bool:
    """True when the Python for vLLM has it."""
    python = vllm_python()
    if python is None or not python.exists():
        return False
    probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    return subprocess.run([python, "-c", probe], check=False).returncode == 0


pytestmark = [
    pytest.mark.skipif(not has_vllm(), reason="no vLLM here: benchmarks/tiny_vlm/setup.sh installs the CPU build"),
    pytest.mark.timeout(400),
]


@pytest.fixture(scope="module")
def pages() -> list[Page]:
    """Pages of two demo documents."""
    demo = Path(__file__).resolve().parents[2] / "demo"
    return [page for name in ("paper.pdf", "contract_scan.pdf") for page in list(pages_of(demo / name))[:2]]


@pytest.fixture(scope="module")
def server(pages: list[Page], tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyServer]:
    folder = tmp_path_factory.mktemp("tiny_vlm")
    script_for(pages).save(folder / "script.json")
    with TinyServer(folder / "script.json", log=folder / "vllm.log") as started:
        yield started


def tiny_body(prompt: str = "\nText Recognition:", **more: object) -> dict[str, object]:
    return chat_body(prompt, model=MODEL_NAME, **more)  # type: ignore[arg-type]


def metric(server: TinyServer, name: str) -> float:
    """The sum of a metric over its labels."""
    lines = httpx.get(f"{server.url}/metrics", trust_env=False).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))


def test_unknown_images_get_the_default(server: TinyServer) -> None:
    for prompt, kind in (("\nLayout Detection:", Kind.LAYOUT), ("\nTable Recognition:", Kind.TABLE)):
        answer = httpx.post(server.url + CHAT, json=tiny_body(prompt), timeout=60, trust_env=False).json()
        assert answer["choices"][0]["message"]["content"] == DEFAULT_OUTPUTS[kind].text
        assert answer["choices"][0]["finish_reason"] == "stop"


def test_each_page_gets_its_own_blocks(server: TinyServer, pages: list[Page]) -> None:
    async def body() -> None:
        client = MinerUClient(backend="http-client", server_url=server.url, use_tqdm=False, image_analysis=True)
        try:
            results = await client.aio_batch_two_step_extract([page.image for page in pages])
        finally:
            await client.aclose()
        for page, result in zip(pages, results, strict=True):
            assert [block.type for block in result] == [block.type for block in page.blocks]
            for got, wanted in zip(result, page.blocks, strict=True):
                assert [round(value * 1000) for value in got.bbox] == list(wanted.bbox)
                if wanted.type == "text":
                    assert (got.content or "").split() == wanted.content.split()

    asyncio.run(body())


def test_a_client_that_goes_away_stops_the_engine(server: TinyServer) -> None:
    async def body() -> None:
        async with httpx.AsyncClient(base_url=server.url, timeout=60, trust_env=False) as client:
            bodies = [tiny_body("\nLayout Detection:", ignore_eos=True, max_tokens=6000) for _ in range(8)]
            tasks = [asyncio.create_task(client.post(CHAT, json=sent)) for sent in bodies]
            await until(lambda: metric(server, "vllm:num_requests_running") == 8)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await until(lambda: metric(server, "vllm:num_requests_running") == 0)

    async def until(condition: object) -> None:
        assert callable(condition)
        deadline = time.monotonic() + 10
        while not await asyncio.to_thread(condition):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)

    asyncio.run(body())
