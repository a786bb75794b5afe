"""Pixels to image files, as a vision-language model gets them.

PNG is written with ISA-L's deflate and unfiltered rows (PNG specification, third edition, W3C 2025): on rendered
pages a twelfth of the time of OpenCV's encoder for files a fifth larger, and lossless all the same. An image without
colour is stored as grey, which decodes to the same pixels.
"""

from __future__ import annotations

import struct
import zlib
from binascii import b2a_base64
from typing import TYPE_CHECKING

import numpy as np

from mineru_engine.options import ImageFormat
from mineru_engine.vlm.transport import EncodedImage

try:
    from isal.isal_zlib import compress
except ImportError:  # no wheel for this processor: the same format, only slower
    from zlib import compress

if TYPE_CHECKING:
    from mineru_engine.pdf.pages import Pixels

__all__ = ("encode_image", "without_colour")

_QUALITY = 95
_JPEG_SIZE = 0.25
"""Bytes for each sample that a JPEG of printed text has at that quality; a PNG below that is smaller, and quicker."""
_GREY, _RGB = 0, 2  # PNG colour types


def encode_image(pixels: Pixels, image_format: ImageFormat) -> EncodedImage:
    """A file of that format, in base64. What is flat as print on paper travels as PNG even where JPEG is asked for.

    :param pixels: RGB, shape (height, width, 3), or one grey channel, shape (height, width).
    """
    plane = without_colour(pixels)
    if image_format is not ImageFormat.WEBP:
        data = _png(plane)
        if image_format is ImageFormat.PNG or len(data) < _JPEG_SIZE * plane.size:
            return EncodedImage(_base64(data), "image/png")
    return EncodedImage(_base64(_by_opencv(plane, image_format)), f"image/{image_format}")


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")


def without_colour(pixels: Pixels) -> Pixels:
    """The one channel of an image that shows no colour, shape (height, width); any other image as it is."""
    import cv2

    if pixels.ndim == 2:
        return pixels
    sample = pixels[::8, ::8]
    if (sample[:, :, :2] != sample[:, :, 1:]).any():  # colour mostly shows in a few pixels
        return pixels
    red, green, blue = cv2.split(pixels)
    if cv2.norm(red, green, cv2.NORM_INF) or cv2.norm(green, blue, cv2.NORM_INF):
        return pixels
    return np.asarray(red, dtype=np.uint8)


def _png(pixels: Pixels) -> bytes:
    height, width = pixels.shape[:2]
    rows = np.zeros((height, 1 + pixels[0].size), dtype=np.uint8)  # each row starts with its filter: none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _GREY if pixels.ndim == 2 else _RGB, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", compress(rows.data, 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(body, zlib.crc32(kind)))


def _by_opencv(pixels: Pixels, image_format: ImageFormat) -> bytes:
    import cv2

    swapped = pixels if pixels.ndim == 2 else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    flag = cv2.IMWRITE_JPEG_QUALITY if image_format is ImageFormat.JPEG else cv2.IMWRITE_WEBP_QUALITY
    done, data = cv2.imencode(f".{image_format}", np.ascontiguousarray(swapped), [flag, _QUALITY])
    if not done:
        raise ValueError(f"OpenCV cannot write an image of {pixels.shape[1]} x {pixels.shape[0]} as {image_format}")
    return bytes(data)
