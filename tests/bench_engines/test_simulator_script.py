"""Scripts: what is said about which image, and that mineru-vl-utils reads it as meant."""

from __future__ import annotations

import asyncio
import io
import json
import math
from pathlib import Path

import pypdfium2 as pdfium
import pytest
from chat_bodies import data_uri
from mineru_vl_utils import MinerUClient
from mineru_vl_utils.structs import ContentBlock
from PIL import Image

from benchmarks.simulator import DEFAULT_PAGE, Block, Kind, Output, Rule, Script, Simulator, SimulatorConfig
from benchmarks.simulator.images import Fingerprint, RequestImage, image_size
from benchmarks.simulator.layout import layout_text
from benchmarks.simulator.pages import Page, pages_of, script_for
from benchmarks.simulator.script import estimate_tokens, recognise


def extract(simulator: Simulator, images: list[Image.Image], image_analysis: bool = False) -> list[list[ContentBlock]]:
    """What mineru-vl-utils makes of the server's answers."""

    async def body() -> list[list[ContentBlock]]:
        client = MinerUClient(
            backend="http-client", server_url=simulator.url, use_tqdm=False, image_analysis=image_analysis
        )
        try:
            return list(await client.aio_batch_two_step_extract(images))
        finally:
            await client.aclose()

    return asyncio.run(body())


@pytest.mark.parametrize(
    ("file_format", "options", "mode"),
    [
        ("PNG", {}, "RGB"),
        ("JPEG", {"quality": 90}, "RGB"),
        ("JPEG", {"progressive": True, "comment": "x" * 5000}, "L"),
        ("WEBP", {"lossless": True}, "RGB"),
        ("WEBP", {"quality": 80}, "RGB"),
        ("WEBP", {"quality": 80}, "RGBA"),
    ],
)
def test_size_from_the_header(file_format: str, options: dict[str, object], mode: str) -> None:
    buffer = io.BytesIO()
    Image.radial_gradient("L").resize((123, 457)).convert(mode).save(buffer, file_format, **options)
    assert image_size(buffer.getvalue()) == (123, 457)
    assert RequestImage(data_uri(321, 45, file_format)).size == (321, 45)


def test_no_size_from_anything_else() -> None:
    assert image_size(b"GIF89a") is None
    with pytest.raises(ValueError, match="not a PNG"):
        _ = RequestImage("data:image/png;base64,R0lGODlh").size
    with pytest.raises(ValueError, match="data URIs only"):
        RequestImage("http://example.org/a.png")


def test_prompts_of_mineru_vl_utils_are_known() -> None:
    from mineru_vl_utils.mineru_client import DEFAULT_PROMPTS

    kinds = {name: recognise(prompt) for name, prompt in DEFAULT_PROMPTS.items()}
    assert kinds == {
        "[layout]": Kind.LAYOUT,
        "[default]": Kind.TEXT,
        "table": Kind.TABLE,
        "equation": Kind.FORMULA,
        "image": Kind.IMAGE,
        "chart": Kind.IMAGE,
        "[cross_page_table_merge]": Kind.OTHER,  # built at run time
    }
    assert recognise("Please merge the next two tables.\n\n## Table 1") is Kind.MERGE


def test_script_file_round_trip(tmp_path: Path) -> None:
    mark = Fingerprint.of(Image.radial_gradient("L"))
    rules = [
        Rule(kind=Kind.TEXT, output=Output("by hash", 3), sha256="ab"),
        Rule(kind=Kind.TABLE, output=Output("by look", 4), fingerprint=mark),
        Rule(kind=Kind.IMAGE, output=Output("by size", 5), size=(10, 20)),
    ]
    path = tmp_path / "script.json"
    Script(rules).save(path)
    assert Script.load(path) == Script(rules)
    with pytest.raises(ValueError, match="colour"):
        Script.parse({"rules": [{"kind": "text", "text": "", "colour": "red"}]})
    with pytest.raises(ValueError, match="rulez"):
        Script.parse({"rulez": []})


def test_estimated_tokens_of_the_layout_grammar() -> None:
    line = layout_text([Block(type="text", bbox=(1, 2, 3, 4))])
    assert line == "<|box_start|>001 002 003 004<|box_end|><|ref_start|>text<|ref_end|><|rotate_up|>\n"
    assert estimate_tokens(line) == 5 + 12 + 2
    assert estimate_tokens("合同编号") == 4


def test_fingerprints_know_a_page_from_another_renderer_and_codec(demo: Path) -> None:
    script = script_for(pages_of(demo / "paper.pdf"))
    with pdfium.PdfDocument(demo / "paper.pdf") as document:
        for index, page in enumerate(document):
            small = page.render(scale=1.3).to_pil().convert("RGB").resize((1036, 1036), Image.Resampling.BICUBIC)
            buffer = io.BytesIO()
            small.save(buffer, "JPEG", quality=85)
            mark = Fingerprint.of(Image.open(buffer))
            layouts = [rule.fingerprint for rule in script.rules if rule.kind is Kind.LAYOUT]
            distances = [known.distance(mark) for known in layouts if known]
            assert distances.index(min(distances)) == index
            assert min(distances) < 2 < 3 < sorted(distances)[1]
    wide = Fingerprint.of(Image.new("L", (500, 100)))
    assert wide.distance(Fingerprint.of(Image.new("L", (100, 100)))) == math.inf


def test_mineru_client_reads_the_default_page() -> None:
    with Simulator(SimulatorConfig(step_base_ms=1)) as simulator:
        (blocks,) = extract(simulator, [Image.new("RGB", (1240, 1754), "white")])
        stats = simulator.stats()
    assert [block.type for block in blocks] == [block.type for block in DEFAULT_PAGE]
    boxes = [tuple(round(value * 1000) for value in block.bbox) for block in blocks]
    assert boxes == [block.bbox for block in DEFAULT_PAGE]
    contents = {block.type: block.content for block in blocks}
    assert contents["table"] == "<table><tr><td>a</td><td>b</td></tr><tr><td>1</td><td>2</td></tr></table>"
    assert contents["equation"] == "\\[\nE = mc^2\n\\]"
    assert (stats.by_kind, stats.ok) == ({"layout": 1, "text": 8, "table": 1, "formula": 1}, 11)


def test_mineru_client_gets_the_blocks_of_each_demo_page(demo: Path, tmp_path: Path) -> None:
    pages = [page for name in ("paper.pdf", "contract_scan.pdf") for page in pages_of(demo / name)]
    script_for(pages).save(tmp_path / "script.json")
    with Simulator(SimulatorConfig(script=str(tmp_path / "script.json"))) as simulator:
        results = extract(simulator, [page.image for page in pages])
    for page, result in zip(pages, results, strict=True):
        assert [block.type for block in result] == [block.type for block in page.blocks]
        for got, wanted in zip(result, page.blocks, strict=True):
            assert [round(value * 1000) for value in got.bbox] == list(wanted.bbox)
            if wanted.type == "text":
                assert (got.content or "").split() == wanted.content.split()
            else:
                name = wanted.content.partition("page")[0].split("{")[-1].split(">")[-1].strip()
                assert name in (got.content or "")


def test_rotated_blocks_pictures_and_continued_text(tmp_path: Path) -> None:
    picture = Image.radial_gradient("L").resize((800, 1000)).convert("RGB")
    analysis = "<|class_start|>natural_image<|class_end|><|caption_start|>Rings<|caption_end|>"
    blocks = [
        Block(type="text", bbox=(100, 100, 200, 500), angle=90, content="turned"),
        Block(type="image", bbox=(300, 100, 900, 500), content=analysis),
        Block(type="text", bbox=(100, 600, 900, 800), merge_prev=True, content="goes on"),
        Block(type="list", bbox=(100, 850, 900, 900)),
    ]
    script_for([Page(picture, blocks)]).save(tmp_path / "script.json")
    with Simulator(SimulatorConfig(script=str(tmp_path / "script.json"))) as simulator:
        (result,) = extract(simulator, [picture], image_analysis=True)
        kinds = simulator.stats().by_kind
    assert [(block.type, block.angle) for block in result] == [("text", 90), ("image", 0), ("text", 0), ("list", 0)]
    assert result[0].content == "turned"
    assert "Rings" in json.dumps(result[1])
    assert (result[2].content, result[2].merge_prev) == ("goes on", True)
    assert kinds == {"layout": 1, "text": 2, "image": 1}
