"""A script in which each page of a document has its own layout and each block its own content.

``python -m benchmarks.simulator.pages demo/paper.pdf demo/contract_scan.pdf -o script.json``

Blocks are the bands of ink on the page, so no crop is blank; contents are the words of the text layer inside the
block, or a sentence that names document, page and block. Every fourth block is a table, every fifth a formula.
The rules carry fingerprints of the page and of each crop, so they hold for any renderer and image format.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pypdfium2 as pdfium
from PIL import Image

from benchmarks.simulator.images import Fingerprint
from benchmarks.simulator.layout import Block, layout_text
from benchmarks.simulator.script import Kind, Output, Rule, Script, content_kind, estimate_tokens

DPI = 200
MAX_BANDS = 8
MIN_HEIGHT = 20
MAX_HEIGHT = 150  # thousandths; a scan that is not straight has no gaps, so its only band is cut
_SAME = 1.2  # grey levels: crops closer than this look alike and get the same content


@dataclass(frozen=True, slots=True)
class Page:
    """An image and the blocks that the model shall find in it."""

    image: Image.Image
    blocks: Sequence[Block]


def script_for(pages: Iterable[Page]) -> Script:
    """Rules for the layout of each page and the content of each block."""
    rules: list[Rule] = []
    for page in pages:
        _add(rules, Kind.LAYOUT, page.image, layout_text(page.blocks))
        for block in page.blocks:
            if block.content:
                _add(rules, content_kind(block.type), crop(page.image, block), block.content)
    return Script(rules)


def crop(image: Image.Image, block: Block) -> Image.Image:
    """The part of the page that a client sends for a block."""
    x1, y1, x2, y2 = block.bbox
    width, height = image.width / 1000, image.height / 1000
    part = image.crop((round(x1 * width), round(y1 * height), round(x2 * width), round(y2 * height)))
    return part.rotate(block.angle, expand=True) if block.angle else part


def pages_of(path: Path) -> Iterator[Page]:
    """The pages of a PDF with made-up blocks."""
    document = pdfium.PdfDocument(path)
    try:
        for index in range(len(document)):
            page = document[index]
            image = page.render(scale=DPI / 72).to_pil().convert("RGB")
            text = page.get_textpage()
            blocks = list(_blocks(image, f"{path.stem} page {index + 1}"))
            yield Page(image, [_with_words(block, text, page.get_size()) for block in blocks])
    finally:
        document.close()


def _add(rules: list[Rule], kind: Kind, image: Image.Image, text: str) -> None:
    mark = Fingerprint.of(image)
    for rule in rules:
        if rule.kind is kind and rule.fingerprint is not None and rule.fingerprint.distance(mark) < _SAME:
            return
    rules.append(Rule(kind=kind, fingerprint=mark, output=Output(text, estimate_tokens(text))))


def _blocks(image: Image.Image, name: str) -> Iterator[Block]:
    """Blocks on the bands of ink, with types in turn."""
    for number, (y1, y2) in enumerate(_bands(image), start=1):
        box = (60, y1, 940, y2)
        title = f"{name} block {number}"
        if number % 5 == 0:
            yield Block(type="equation", bbox=box, content=f"\\[ x_{{{number}}} = \\text{{{title}}} \\]")
        elif number % 4 == 0:
            yield Block(type="table", bbox=box, content=f"<fcel>{title}<fcel>value<nl><fcel>row<fcel>{number}<nl>")
        elif number == 1:
            yield Block(type="title", bbox=box, content=title)
        else:
            yield Block(type="text", bbox=box, content=f"{title} says what it says.")


def _bands(image: Image.Image) -> list[tuple[int, int]]:
    """Top and bottom, in thousandths, of what stands apart vertically: few enough bands, none very high."""
    grey = np.asarray(image.convert("L").resize((250, 1000), Image.Resampling.BOX))
    inked = (grey < 160).mean(axis=1) > 0.004
    edges = np.flatnonzero(np.diff(np.concatenate(([False], inked, [False])).astype(np.int8)))
    bands = [(int(top), int(bottom)) for top, bottom in zip(edges[::2], edges[1::2], strict=True)]
    while len(bands) > MAX_BANDS or any(bottom - top < 8 for top, bottom in bands[1:]):
        gaps = [after[0] - before[1] for before, after in itertools.pairwise(bands)]
        at = gaps.index(min(gaps))
        bands[at : at + 2] = [(bands[at][0], bands[at + 1][1])]
    bands = [_grow(top, bottom) for top, bottom in bands] or [(100, 900)]
    return [part for top, bottom in bands for part in _cut(top, bottom)]


def _grow(top: int, bottom: int) -> tuple[int, int]:
    """A little white around, and high enough that no client pads the crop."""
    more = max(2, (MIN_HEIGHT - (bottom - top) + 1) // 2)
    return max(0, top - more), min(1000, bottom + more)


def _cut(top: int, bottom: int) -> list[tuple[int, int]]:
    parts = -(-(bottom - top) // MAX_HEIGHT)
    edges = [top + (bottom - top) * part // parts for part in range(parts + 1)]
    return list(itertools.pairwise(edges))


def _with_words(block: Block, text: pdfium.PdfTextPage, size: tuple[float, float]) -> Block:
    """The block with the words of the text layer, if it is plain text and has some."""
    if content_kind(block.type) is not Kind.TEXT:
        return block
    x1, y1, x2, y2 = (value / 1000 for value in block.bbox)
    width, height = size
    words = text.get_text_bounded(x1 * width, (1 - y2) * height, x2 * width, (1 - y1) * height).split()
    return replace(block, content=" ".join(words)) if words else block


def main() -> None:
    """Write the script of some documents."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator.pages", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("documents", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--pages", type=int, help="only the first pages of each document")
    options = parser.parse_args()
    pages = itertools.chain.from_iterable(itertools.islice(pages_of(path), options.pages) for path in options.documents)
    script = script_for(pages)
    script.save(options.output)
    print(f"{options.output}: {len(script.rules)} rules")


if __name__ == "__main__":
    main()
