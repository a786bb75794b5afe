"""The command line of MinerU 3.4.5 against our server, and against its own where that needs no models."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from benchmarks.simulator import Simulator
from tests.server.serving import Running, free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / "build" / "peers" / "mineru_345" / "bin"
FILES = (
    ".md",
    "_middle.json",
    "_model.json",
    "_content_list.json",
    "_content_list_v2.json",
    "_origin.pdf",
    "_layout.pdf",
)

pytestmark = pytest.mark.skipif(not (BIN / "mineru").exists(), reason="benchmarks/peers/setup.sh has not been run")


def _environ() -> dict[str, str]:
    return {**os.environ, "MINERU_MODEL_SOURCE": "local", "NO_PROXY": "*", "HF_HUB_OFFLINE": "1"}


def _mineru(url: str, document: Path, output: Path, *arguments: str) -> dict[str, Path]:
    """Run the command; what it wrote, by relative path."""
    command = [BIN / "mineru", "-p", document, "-o", output, "--api-url", url, *arguments]
    done = subprocess.run([str(word) for word in command], env=_environ(), capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.relative_to(output).as_posix(): path for path in output.rglob("*") if path.is_file()}


@contextlib.contextmanager
def _own_server(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    command = [str(BIN / "mineru-api"), "--host", "127.0.0.1", "--port", str(port)]
    with (tmp_path / "own.log").open("wb") as log:
        process = subprocess.Popen(command, env=_environ(), cwd=tmp_path, stdout=log, stderr=log)

        def answers() -> bool:
            assert process.poll() is None, (tmp_path / "own.log").read_text()
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200
            return False

        try:
            wait_until(answers)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _without_pictures(found: dict[str, Path]) -> set[str]:
    return {name for name in found if "/images/" not in name}


def test_text_pages(serving: Callable[..., Running], demo: Path, tmp_path: Path) -> None:
    document = demo / "paper.pdf"
    server = serving()
    found = _mineru(server.url, document, tmp_path / "out", "-b", "pipeline", "-m", "txt")
    at = "paper/txt"
    assert _without_pictures(found) == {f"{at}/paper{ending}" for ending in (*FILES, "_span.pdf")}
    with server.client() as client:
        (job,) = client.get("/v1/jobs").json()["data"]
        assert job["options"]["tier"] == "basic"
        result = client.get(f"/v1/jobs/{job['id']}/result").json()["files"][0]
    assert found[f"{at}/paper.md"].read_text() == result["markdown"]
    items = json.loads(found[f"{at}/paper_content_list.json"].read_text())
    assert items == result["content_list"]
    assert {f"{at}/{item['img_path']}" for item in items if item.get("img_path")} == set(found) - _without_pictures(
        found
    )
    assert found[f"{at}/paper_origin.pdf"].read_bytes() == document.read_bytes()
    assert found[f"{at}/paper_layout.pdf"].read_bytes().startswith(b"%PDF-")  # the client drew our blocks


def test_chosen_pages_and_a_word_document(serving: Callable[..., Running], demo: Path, tmp_path: Path) -> None:
    from docx import Document

    source = tmp_path / "in"
    source.mkdir()
    (source / "a report.pdf").write_bytes((demo / "report.pdf").read_bytes())
    word = Document()
    word.add_paragraph("Only one sentence.")
    word.save(str(source / "letter.docx"))
    found = _mineru(serving(defaults={"tier": "flash"}).url, source, tmp_path / "out", "-s", "4", "-e", "5")
    assert {name.rpartition("/")[0] for name in _without_pictures(found)} == {"a report/hybrid_auto", "letter/office"}
    items = json.loads(found["a report/hybrid_auto/a report_content_list.json"].read_text())
    assert {item["page_idx"] for item in items} == {0, 1}
    assert "Only one sentence." in found["letter/office/letter.md"].read_text()
    assert "letter/office/letter_origin.docx" in found


def test_same_as_from_its_own_server(serving: Callable[..., Running], tmp_path: Path) -> None:
    """Both servers ask the same model about a scanned page; what it said must come out of both alike."""
    document = _scan(tmp_path / "scan.pdf")
    with Simulator() as simulator, _own_server(tmp_path) as own_url:
        options = ("-b", "vlm-http-client", "-u", simulator.url)
        own = _mineru(own_url, document, tmp_path / "own", *options)
        settings = {"server.vlm_hosts": [simulator.url], "server.private_hosts": ["127.0.0.1"]}
        url = serving(settings).url
        ours = _mineru(url, document, tmp_path / "ours", *options)
        made = _mineru(url, document, tmp_path / "made", *options, "--client-side-output-generation", "true")
    assert _without_pictures(ours) == _without_pictures(own) == {f"scan/vlm/scan{ending}" for ending in FILES}
    assert len(ours) == len(own)
    for ending in ("_content_list.json", "_content_list_v2.json", "_middle.json"):
        name = f"scan/vlm/scan{ending}"
        one, other = (json.loads(found[name].read_text()) for found in (ours, own))
        assert _comparable(one) == _comparable(other)
        for box, same in zip(_boxes(one), _boxes(other), strict=True):
            assert box == pytest.approx(same, abs=2)  # points, or thousandths of the page
    name = "scan/vlm/scan.md"
    assert _without_tables(_lines(ours[name])) == _without_tables(_lines(own[name]))
    assert _lines(made[name]) == _lines(own[name])  # what the client itself makes of our middle.json


def _scan(path: Path) -> Path:
    """A page without a text layer and without a blank spot; what stands on it the simulated model makes up."""
    noise = Image.frombytes("L", (1240, 1754), random.Random(1).randbytes(1240 * 1754))
    noise.save(path, resolution=150)
    return path


_UNLIKE = {
    *("_version_name", "preproc_blocks"),
    *("bbox", "img_path", "image_path", "path"),  # boxes are compared apart; pictures are cut out by other code
    *("angle", "index", "level", "text_level", "merge_prev"),
}


def _comparable(value: Any) -> Any:
    """What both servers must say alike."""
    if isinstance(value, dict):
        return {key: _comparable(item) for key, item in value.items() if key not in _UNLIKE}
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    return value.strip() if isinstance(value, str) else value


def _boxes(value: Any) -> list[list[int]]:
    if isinstance(value, list):
        return [box for item in value for box in _boxes(item)]
    if not isinstance(value, dict):
        return []
    own = [value["bbox"]] if "bbox" in value else []
    return own + [box for key in sorted(value) if key != "preproc_blocks" for box in _boxes(value[key])]


def _lines(path: Path) -> list[str]:
    """Markdown, with pictures called alike."""
    lines = [re.sub(r"images/\w+", "images/x", line).rstrip() for line in path.read_text().splitlines()]
    return [line for line in lines if line]


def _without_tables(lines: list[str]) -> list[str]:
    """Without what one writes as HTML and the other with bars."""
    return [line for line in lines if not line.startswith(("|", "<table"))]
