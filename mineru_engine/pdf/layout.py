"""Where the parts of a page are: the bundled PicoDet layout model, run with ONNX Runtime.

The output is decoded as PicoDet's paper (arXiv:2111.00902) and Generalized Focal Loss (arXiv:2006.04388)
define it: four strides, and for each side of a box a distribution over eight distances. Model and licence:
`mineru_engine/models/NOTICE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mineru_engine.pdf.lines import Box, clip_unit
from mineru_engine.pdf.onnx_session import open_session

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MODEL: Final = Path(__file__).parent.parent / "models" / "layout_cdla.onnx"
_INPUT_HEIGHT: Final = 800
_INPUT_WIDTH: Final = 608
_STRIDES: Final = (8, 16, 32, 64)
# ImageNet statistics, applied to BGR: the model was exported that way.
_MEAN: Final = np.array([0.485, 0.456, 0.406], dtype=np.float32)
_STD: Final = np.array([0.229, 0.224, 0.225], dtype=np.float32)
_MIN_SCORE: Final = 0.5
_MAX_IOU: Final = 0.5


class LayoutLabel(StrEnum):
    """The model's classes, in the order of its outputs."""

    TEXT = "text"
    TITLE = "title"
    FIGURE = "figure"
    FIGURE_CAPTION = "figure_caption"
    TABLE = "table"
    TABLE_CAPTION = "table_caption"
    HEADER = "header"
    FOOTER = "footer"
    REFERENCE = "reference"
    EQUATION = "equation"


_LABELS: Final = tuple(LayoutLabel)


@dataclass(frozen=True, slots=True)
class Region:
    """One detected part of a page; `bbox` in unit coordinates, `score` 0..1."""

    bbox: Box
    label: LayoutLabel
    score: float = 1.0


def detect_layout(image: np.ndarray[Any, np.dtype[np.uint8]], *, threads: int = 1) -> list[Region]:
    """Find the regions of an upright page.

    :param image: RGB, H x W x 3.
    :param threads: intra-op threads of the model.
    :return: regions of each class in falling score; they may overlap or nest.
    """
    import cv2

    small = cv2.resize(image, (_INPUT_WIDTH, _INPUT_HEIGHT), interpolation=cv2.INTER_LINEAR)
    tensor = ((small[:, :, ::-1].astype(np.float32) / 255 - _MEAN) / _STD).transpose(2, 0, 1)[None]
    outputs = open_session(_MODEL, threads).run(None, {"image": np.ascontiguousarray(tensor)})
    scores = np.concatenate([np.asarray(out)[0] for out in outputs[: len(_STRIDES)]])
    boxes = np.concatenate(
        [
            _decode_boxes(np.asarray(out)[0], stride)
            for out, stride in zip(outputs[len(_STRIDES) :], _STRIDES, strict=True)
        ]
    )
    regions: list[Region] = []
    for index, label in enumerate(_LABELS):
        candidates = np.flatnonzero(scores[:, index] > _MIN_SCORE)
        for pick in _suppress(boxes[candidates], scores[candidates, index]):
            row = candidates[pick]
            left, top, right, bottom = (float(value) for value in boxes[row])
            regions.append(Region(clip_unit((left, top, right, bottom)), label, float(scores[row, index])))
    return regions


def _decode_boxes(distributions: NDArray[np.float32], stride: int) -> NDArray[np.float32]:
    """Unit boxes of one feature map: centre of each cell minus/plus the expected distances."""
    rows, columns = -(-_INPUT_HEIGHT // stride), -(-_INPUT_WIDTH // stride)
    logits = distributions.reshape(rows * columns, 4, -1)
    weights = np.exp(logits - logits.max(axis=2, keepdims=True))
    steps = np.arange(logits.shape[2], dtype=np.float32)
    reach = (weights @ steps) / weights.sum(axis=2) * stride
    y, x = np.divmod(np.arange(rows * columns), columns)
    x, y = (x + 0.5) * stride, (y + 0.5) * stride
    boxes = np.stack([x - reach[:, 0], y - reach[:, 1], x + reach[:, 2], y + reach[:, 3]], axis=1)
    return np.asarray(boxes / [_INPUT_WIDTH, _INPUT_HEIGHT, _INPUT_WIDTH, _INPUT_HEIGHT], dtype=np.float32)


def _suppress(boxes: NDArray[np.float32], scores: NDArray[np.float32]) -> list[int]:
    """Greedy non-maximum suppression of one class; indices of the boxes kept, best first."""
    sizes = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    order = np.argsort(-scores, kind="stable")
    kept: list[int] = []
    while len(order):
        best, order = int(order[0]), order[1:]
        kept.append(best)
        inner = np.clip(
            np.minimum(boxes[order, 2:], boxes[best, 2:]) - np.maximum(boxes[order, :2], boxes[best, :2]), 0, None
        ).prod(axis=1)
        order = order[inner <= _MAX_IOU * (sizes[order] + sizes[best] - inner)]
    return kept
