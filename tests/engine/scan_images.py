"""Page images for the tests of the scan path: drawn here, or rendered from our own sample documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pypdfium2 as pdfium
from docvortex.document.pdf.pdfium import pdfium_guard
from PIL import Image, ImageDraw, ImageFont

Pixels = np.ndarray[Any, np.dtype[np.uint8]]


def draw_page(
    lines: list[tuple[int, int, str]], size: tuple[int, int] = (1000, 1400), font_size: int = 28, tilt: float = 0.0
) -> Pixels:
    """White page with black text.

    :param lines: left, top (pixels) and text of each line.
    :param tilt: degrees clockwise by which the page is turned, corners filled with white.
    """
    page = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(page)
    font = ImageFont.load_default(font_size)
    for x, y, text in lines:
        pen.text((x, y), text, fill="black", font=font)
    if tilt:
        page = page.rotate(-tilt, fillcolor="white", resample=Image.Resampling.BICUBIC)
    return np.asarray(page, dtype=np.uint8)


def render_page(path: Path, index: int, side: int = 2200) -> Pixels:
    """One PDF page as an RGB image, its long side `side` pixels."""
    with pdfium_guard():
        document = pdfium.PdfDocument(path)
        page = document[index]
        bitmap = page.render(scale=side / max(page.get_size()), rev_byteorder=True)
        pixels = np.array(bitmap.to_numpy()[:, :, :3], dtype=np.uint8)
        bitmap.close()
        page.close()
        document.close()
    return pixels if pixels.shape[2] == 3 else np.repeat(pixels[:, :, :1], 3, axis=2)
