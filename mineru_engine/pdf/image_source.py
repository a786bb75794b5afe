"""An image file as pages."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from mineru_engine.detect import READER_ERRORS
from mineru_engine.errors import DamagedDocumentError, ErrorCode
from mineru_engine.pdf.pages import MAX_PIXELS, PageSource

if TYPE_CHECKING:
    from PIL.Image import Image

    from mineru_engine.pdf.pages import Pixels

__all__ = ("ImageSource",)

_IMAGE_DPI = 200.0


class ImageSource(PageSource):
    """An image file, on disk or in memory; every frame of a multi-page TIFF (or GIF, WebP) is a page."""

    def __init__(self, file: Path | BinaryIO) -> None:
        _register_heif()
        from PIL import Image

        try:
            self.image: Image.Image = Image.open(file)
            self.page_count = int(getattr(self.image, "n_frames", 1))
        except Image.DecompressionBombError as exc:
            raise DamagedDocumentError("the image is too large to decode", code=ErrorCode.FILE_TOO_LARGE) from exc
        except READER_ERRORS as exc:
            raise DamagedDocumentError("the image cannot be decoded") from exc

    def page_size(self, index: int) -> tuple[float, float]:
        """Size in points, at the resolution the file declares or 200 dpi."""
        width, height = self._frame(index).size
        return width * 72 / _IMAGE_DPI, height * 72 / _IMAGE_DPI

    def _frame(self, index: int) -> Image:
        """One frame, turned as its EXIF orientation says; sizes are checked before pixels are decoded."""
        from PIL import Image, ImageOps

        try:
            self.image.seek(index)
            frame = self.image
            if frame.size[0] * frame.size[1] > MAX_PIXELS * 4:
                raise DamagedDocumentError("the image is too large to decode", page=index)
            return ImageOps.exif_transpose(frame) or frame
        except Image.DecompressionBombError as exc:
            raise DamagedDocumentError("the image is too large to decode", page=index) from exc
        except READER_ERRORS as exc:
            raise DamagedDocumentError("the image page cannot be decoded", page=index) from exc

    def render(self, index: int, long_side: int) -> Pixels:
        """The frame as RGB pixels, made smaller if needed, never larger."""
        import numpy as np
        from PIL import Image

        rgb = self._decoded(index)
        ratio = long_side / max(rgb.size)
        if ratio < 1:
            size = (max(1, round(rgb.width * ratio)), max(1, round(rgb.height * ratio)))
            rgb = rgb.resize(size, Image.Resampling.LANCZOS)
        return np.array(rgb, dtype=np.uint8)

    def render_square(self, index: int, side: int) -> Pixels:
        """The frame as RGB pixels, resized to shape (side, side, 3)."""
        import numpy as np
        from PIL import Image

        return np.array(self._decoded(index).resize((side, side), Image.Resampling.BICUBIC), dtype=np.uint8)

    def _decoded(self, index: int) -> Image:
        frame = self._frame(index)
        try:
            return _flattened(frame)
        except READER_ERRORS as exc:
            raise DamagedDocumentError("the image page cannot be decoded", page=index) from exc

    def close(self) -> None:
        """Release the file."""
        self.image.close()


def _flattened(frame: Image) -> Image:
    """RGB on white: transparent pixels are paper, not black."""
    from PIL import Image

    if frame.mode in {"RGBA", "LA", "PA"} or "transparency" in frame.info:
        rgba = frame.convert("RGBA")
        paper = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(paper, rgba).convert("RGB")
    if frame.mode in {"I;16", "I;16B", "I"}:
        return frame.point(lambda value: value / 256).convert("L").convert("RGB")
    return frame.convert("RGB")


def _register_heif() -> None:
    with contextlib.suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()
