"""Pixels that a library may treat as a Pillow image, copied only when it really does something with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from mineru_engine.pdf.pages import Pixels

__all__ = ("PixelsImage", "pixels_of")


class PixelsImage(Image.Image):
    """An RGB image over an array of shape (height, width, 3), or (height, width) for a grey one.

    A crop is a view of the same array. Made as Pillow's file plugins are: mode and size are known, the pixels are
    loaded when asked for.
    """

    def __init__(self, pixels: Pixels) -> None:
        super().__init__()
        self.pixels = pixels
        self._mode = "RGB"
        self._size = (pixels.shape[1], pixels.shape[0])

    def load(self) -> Any:
        """Make it an ordinary image."""
        if self._im is None:
            self.im = Image.fromarray(np.ascontiguousarray(self.pixels)).convert("RGB").im
        return super().load()

    def crop(self, box: Any = None) -> Image.Image:
        """The pixels in a box of (left, top, right, bottom), rounded as Pillow does; what lies outside is cut off."""
        if box is None:
            return self
        left, top, right, bottom = (max(0, round(value)) for value in box)
        return PixelsImage(self.pixels[top:bottom, left:right])


def pixels_of(image: Image.Image) -> Pixels:
    """An image's pixels, shape (height, width, 3) or, where the array behind it is grey, (height, width)."""
    pixels: Pixels = image.pixels if isinstance(image, PixelsImage) else np.asarray(image, dtype=np.uint8)
    return pixels
