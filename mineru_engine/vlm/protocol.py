"""The MinerU protocol: what to ask a model about a page or a block, and what its answers mean.

Prompts, sampling parameters, the grammar of layout answers, the choice of blocks to ask about and the
post-processing are those of mineru-vl-utils; this module is the only one that knows that library.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from mineru_engine.vlm.transport import EncodedImage, Sampling, VlmRequest

if TYPE_CHECKING:
    from mineru_vl_utils.mineru_client import MinerUClientHelper
    from PIL.Image import Image

__all__ = ("LAYOUT", "LAYOUT_SIDE", "crop_blocks", "finish_blocks", "parse_layout", "request")

LAYOUT = "[layout]"
"""Asked about a whole page; other questions are named by the type of the block."""
LAYOUT_SIDE = 1036
"""Both sides in pixels of the image that layout is asked about; the page is squashed into it."""
_MIN_EDGE = 28
_MAX_EDGE_RATIO = 50

Block = dict[str, Any]


def request(question: str, image: EncodedImage) -> VlmRequest:
    """The request for a page (:data:`LAYOUT`) or for a block of the type ``question``."""
    prompt, sampling = _question(question)
    return VlmRequest(image, prompt, sampling)


@functools.cache
def _question(question: str) -> tuple[str, Sampling]:
    from mineru_vl_utils.mineru_client import DEFAULT_PROMPTS, DEFAULT_SAMPLING_PARAMS

    prompt = DEFAULT_PROMPTS.get(question) or DEFAULT_PROMPTS["[default]"]
    params = DEFAULT_SAMPLING_PARAMS.get(question) or DEFAULT_SAMPLING_PARAMS["[default]"]
    return prompt, Sampling(**{name: getattr(params, name) for name in Sampling.__dataclass_fields__})


@functools.cache
def _helper() -> MinerUClientHelper:
    from mineru_vl_utils.mineru_client import DEFAULT_PROMPTS, DEFAULT_SAMPLING_PARAMS, MinerUClientHelper

    return MinerUClientHelper(
        backend="",  # pictures come as they are: we encode them
        prompts=DEFAULT_PROMPTS,
        sampling_params=DEFAULT_SAMPLING_PARAMS,
        layout_image_size=(LAYOUT_SIDE, LAYOUT_SIDE),
        min_image_edge=_MIN_EDGE,
        max_image_edge_ratio=_MAX_EDGE_RATIO,
        simple_post_process=False,
        handle_equation_block=True,
        abandon_list=False,
        abandon_paratext=False,
        image_analysis=True,
        debug=False,
    )


def parse_layout(answer: str) -> list[Block]:
    """Blocks of a page in reading order: ``type``, ``bbox`` (unit coordinates), ``angle`` (degrees or ``None``).

    What is not of the grammar is left out, so the list may be empty.
    """
    return list(_helper().parse_layout_output(answer))


def crop_blocks(page: Image, blocks: list[Block], *, image_analysis: bool) -> list[tuple[int, str, Image]]:
    """The blocks to ask about, each with an upright picture of it.

    Changes ``blocks``: captions inside pictures go, pictures inside tables are replaced by a mark in the table.

    :param page: the page in RGB.
    :return: index into ``blocks``, its type, the picture; containers, tiny pictures and (without
        ``image_analysis``) all pictures are left out.
    """
    pictures, _, _, indices = _helper().prepare_for_extract(page, _content_blocks(blocks), None, image_analysis)
    return [(index, blocks[index]["type"], picture) for index, picture in zip(indices, pictures, strict=True)]


def finish_blocks(blocks: list[Block]) -> list[Block]:
    """Answers made whole: tables as HTML, formulas mended, contents of charts and pictures sorted out."""
    return list(_helper().post_process(_content_blocks(blocks)))


def _content_blocks(blocks: list[Block]) -> list[Block]:
    """The same list, its blocks as the library's own kind, which crossing a process border made plain again."""
    from mineru_vl_utils.structs import ContentBlock

    for place, block in enumerate(blocks):
        if not isinstance(block, ContentBlock):
            own = ContentBlock(block["type"], list(block["bbox"]))
            own.update(block)
            blocks[place] = own
    return blocks
