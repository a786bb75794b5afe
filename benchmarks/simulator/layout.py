"""The layout grammar that mineru-vl-utils parses, and the default page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_ROTATION = {0: "<|rotate_up|>", 90: "<|rotate_right|>", 180: "<|rotate_down|>", 270: "<|rotate_left|>"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a page; the box is in thousandths of the page."""

    type: str
    bbox: tuple[int, int, int, int]
    content: str = ""
    angle: int = 0
    merge_prev: bool = False


def layout_text(blocks: Iterable[Block]) -> str:
    """What the model says to a layout prompt about these blocks."""
    return "".join(_line(block) for block in blocks)


def _line(block: Block) -> str:
    x1, y1, x2, y2 = block.bbox
    box = f"<|box_start|>{x1:03d} {y1:03d} {x2:03d} {y2:03d}<|box_end|>"
    tail = "<|txt_contd_tgt|>" if block.merge_prev else ""
    return f"{box}<|ref_start|>{block.type}<|ref_end|>{_ROTATION[block.angle]}{tail}\n"


DEFAULT_PAGE = tuple(
    Block(type=kind, bbox=(x1, y1, x2, y2))
    for kind, x1, y1, x2, y2 in (
        ("title", 100, 60, 900, 110),
        ("text", 100, 130, 480, 300),
        ("text", 100, 310, 480, 480),
        ("table", 100, 490, 480, 700),
        ("equation", 100, 710, 480, 760),
        ("text", 520, 130, 900, 400),
        ("text", 520, 410, 900, 600),
        ("image", 520, 610, 900, 780),
        ("image_caption", 520, 790, 900, 820),
        ("text", 100, 830, 900, 930),
        ("page_number", 480, 950, 520, 970),
    )
)
