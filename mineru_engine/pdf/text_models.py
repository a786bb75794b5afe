"""Text detection and recognition with the PP-OCRv6 small models that the `rapidocr` package ships.

Only the model files are used: running them here gives control over threads, memory and batch shapes, saves
1.5 s of imports, and nothing can be downloaded behind the user's back. Pre-processing constants come from
rapidocr's `config.yaml`; the box decoding is the one of the DBNet paper (arXiv:1911.08947, section 3.5).
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mineru_engine.pdf.onnx_session import open_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnxruntime
    from numpy.typing import NDArray

Image = np.ndarray[Any, np.dtype[np.uint8]]
"""RGB, H x W x 3."""
Quad = np.ndarray[Any, np.dtype[np.float32]]
"""Four corners in pixels: top-left, top-right, bottom-right, bottom-left."""

_DETECT_MODEL: Final = "PP-OCRv6_det_small.onnx"
_READ_MODEL: Final = "PP-OCRv6_rec_small.onnx"
COARSE_PIXELS: Final = 1_160_000
"""Area of the detector's input: an A4 page 1280 pixels high. 0.5 s on two cores, against 2.0 s at 2200."""
FINE_PIXELS: Final = 3_400_000
"""The same for small print: an A4 page 2200 pixels high."""
_SMALL_PRINT: Final = 13.0
"""Height in the detector's input, pixels, under which it starts to miss lines (newspaper 068)."""
_PIXEL_THRESHOLD: Final = 0.3
_BOX_THRESHOLD: Final = 0.5
_UNCLIP_RATIO: Final = 1.6
_MIN_SIDE: Final = 3.0
_READ_HEIGHT: Final = 48
_READ_MIN_WIDTH: Final = 160
_READ_MAX_WIDTH: Final = 3200
_BATCH_WIDTH: Final = 1600
"""Summed width of one recognition batch. Its output is (width / 8) x 18,710 floats, and the time per column of
pixels does not fall with larger batches (52 us from 1 x 320 to 12 x 160 and 4 x 1600), so small ones win."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the recogniser saw in one crop; `centers` are character positions as fractions of its width."""

    text: str
    score: float
    centers: tuple[float, ...] = ()


def model_dir() -> Path:
    """Where the installed `rapidocr` package keeps its models (the package itself is not imported).

    :raises FileNotFoundError: the package or its models are missing.
    """
    spec = importlib.util.find_spec("rapidocr")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(root) / "models"
        if (folder / _DETECT_MODEL).is_file() and (folder / _READ_MODEL).is_file():
            return folder
    raise FileNotFoundError(f"OCR models not found: install rapidocr>=3.10 (needs {_DETECT_MODEL}, {_READ_MODEL})")


def find_quads(image: Image, *, threads: int) -> list[Quad]:
    """Find text lines, looking closer where the print is small.

    :return: quads in pixels of `image`, unordered.
    """
    quads = detect_quads(image, threads=threads)
    scale = _grid_scale(image, COARSE_PIXELS)
    if quads and scale < 0.9:
        heights = sorted(min(quad_size(quad)) * scale for quad in quads)
        if heights[len(heights) // 4] < _SMALL_PRINT:
            return detect_quads(image, threads=threads, pixels=FINE_PIXELS)
    return quads


def _grid_scale(image: Image, pixels: int) -> float:
    return min(1.0, math.sqrt(pixels / (image.shape[0] * image.shape[1])))


def detect_quads(image: Image, *, threads: int, pixels: int = COARSE_PIXELS) -> list[Quad]:
    """Run the detector once.

    :param pixels: largest area of its input.
    :return: quads in pixels of `image`, unordered.
    """
    import cv2

    height, width = image.shape[:2]
    scale = _grid_scale(image, pixels)
    # The network halves its input five times.
    grid_w, grid_h = (max(32, round(length * scale / 32) * 32) for length in (width, height))
    small = cv2.resize(image, (grid_w, grid_h), interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    # The models were trained on BGR images scaled to -1..1.
    tensor = small[:, :, ::-1].astype(np.float32).transpose(2, 0, 1)[None] * (2 / 255) - 1
    session = open_session(model_dir() / _DETECT_MODEL, threads)
    heat = np.asarray(session.run(None, {"x": tensor.astype(np.float32)})[0])[0, 0]
    ratio = np.array([width / grid_w, height / grid_h], dtype=np.float32)
    return [quad * ratio for quad in _decode_heat(heat)]


def _decode_heat(heat: NDArray[np.float32]) -> list[Quad]:
    """Turn the probability map into expanded rectangles, in pixels of the map."""
    import cv2

    mask = cv2.dilate((heat > _PIXEL_THRESHOLD).astype(np.uint8), np.ones((2, 2), np.uint8))
    contours, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    quads: list[Quad] = []
    for contour in contours:
        center, (side_a, side_b), angle = cv2.minAreaRect(contour)
        if min(side_a, side_b) < _MIN_SIDE:
            continue
        if _mean_inside(heat, cv2.boxPoints((center, (side_a, side_b), angle))) < _BOX_THRESHOLD:
            continue
        # Growing a rectangle by `reach` with round joins and boxing it again is adding 2 * reach to its sides.
        reach = side_a * side_b * _UNCLIP_RATIO / (2 * (side_a + side_b))
        grown = cv2.boxPoints((center, (side_a + 2 * reach, side_b + 2 * reach), angle))
        quads.append(_order_corners(np.asarray(grown, dtype=np.float32)))
    return quads


def _mean_inside(heat: NDArray[np.float32], corners: Any) -> float:
    import cv2

    x0, y0 = np.maximum(np.floor(corners.min(axis=0)).astype(int), 0)
    x1, y1 = np.ceil(corners.max(axis=0)).astype(int) + 1
    window = heat[y0:y1, x0:x1]
    mask = np.zeros(window.shape, np.uint8)
    cv2.fillPoly(mask, [np.round(corners - (x0, y0)).astype(np.int32)], 1)
    return float(cv2.mean(window, mask)[0])


def _order_corners(corners: Quad) -> Quad:
    """Clockwise from the top-left corner, for rectangles turned by less than 45 degrees."""
    total, diff = corners.sum(axis=1), corners[:, 0] - corners[:, 1]
    return corners[[int(total.argmin()), int(diff.argmax()), int(total.argmax()), int(diff.argmin())]]


def quad_size(quad: Quad) -> tuple[float, float]:
    """Width and height of a quad along its own axes, in pixels."""
    return float(np.linalg.norm(quad[1] - quad[0])), float(np.linalg.norm(quad[3] - quad[0]))


def crop_quad(image: Image, quad: Quad) -> Image:
    """Cut a quad out as an upright rectangle of the same size in pixels."""
    import cv2

    width, height = (max(1, round(side)) for side in quad_size(quad))
    target = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=np.float32)
    matrix = cv2.getPerspectiveTransform(quad.astype(np.float32), target)
    crop = cv2.warpPerspective(image, matrix, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(crop, dtype=np.uint8)


def recognize(crops: Sequence[Image], *, threads: int) -> list[Reading]:
    """Read single-line crops; the result has the order of `crops`."""
    session = open_session(model_dir() / _READ_MODEL, threads)
    widths = [_read_width(crop) for crop in crops]
    readings = [Reading("", 0.0)] * len(crops)
    order = sorted(range(len(crops)), key=widths.__getitem__)
    while order:
        batch = [order.pop()]
        batch_width = max(_READ_MIN_WIDTH, widths[batch[0]])
        # Similar widths together: padding is computed like text.
        while order and batch_width * (len(batch) + 1) <= _BATCH_WIDTH and widths[order[-1]] * 1.3 >= batch_width:
            batch.append(order.pop())
        for index, reading in zip(batch, _read_batch(session, [crops[i] for i in batch], batch_width), strict=True):
            readings[index] = reading
    return readings


def _read_width(crop: Image) -> int:
    """Width in pixels at which a crop is read.

    Narrowing long lines to 0.8 of it saved a sixth of the time and cost 0.2 to 0.5 % of the characters.
    """
    return min(_READ_MAX_WIDTH, max(8, int(_READ_HEIGHT * crop.shape[1] / max(1, crop.shape[0]) + 0.5)))


def _read_batch(session: onnxruntime.InferenceSession, crops: list[Image], width: int) -> list[Reading]:
    import cv2

    tensor = np.zeros((len(crops), 3, _READ_HEIGHT, width), dtype=np.float32)
    used: list[int] = []
    for row, crop in enumerate(crops):
        crop_width = _read_width(crop)
        line = cv2.resize(crop, (crop_width, _READ_HEIGHT), interpolation=cv2.INTER_AREA)
        tensor[row, :, :, :crop_width] = line[:, :, ::-1].astype(np.float32).transpose(2, 0, 1) * (2 / 255) - 1
        used.append(crop_width)
    scores = np.asarray(session.run(None, {"x": tensor})[0])
    best = scores.argmax(axis=2)
    peak = np.take_along_axis(scores, best[:, :, None], axis=2)[:, :, 0]
    return [_decode_ctc(best[row], peak[row], used[row] / width, session) for row in range(len(crops))]


def _decode_ctc(
    best: NDArray[np.int64], peak: NDArray[np.float32], fill: float, session: onnxruntime.InferenceSession
) -> Reading:
    """Greedy CTC: drop repeats, then blanks (class 0). `fill` is the share of the width that is not padding."""
    fresh = np.ones(len(best), dtype=bool)
    fresh[1:] = best[1:] != best[:-1]
    steps = np.flatnonzero(fresh & (best != 0))
    if not len(steps):
        return Reading("", 0.0)
    alphabet = _alphabet(session)
    centers = tuple(float(min(1.0, (step + 0.5) / (len(best) * fill))) for step in steps)
    return Reading("".join(alphabet[i] for i in best[steps]), float(peak[steps].mean()), centers)


_ALPHABETS: dict[int, list[str]] = {}


def _alphabet(session: onnxruntime.InferenceSession) -> list[str]:
    """Characters by class number: blank, the model's own list, space."""
    key = id(session)
    if key not in _ALPHABETS:
        listed = session.get_modelmeta().custom_metadata_map["character"].splitlines()
        _ALPHABETS[key] = ["", *listed, " "]
    return _ALPHABETS[key]
