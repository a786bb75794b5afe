"""What a server learns about an image: its size from the header; hash and thumbnail only when a script asks."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from PIL import Image

SIDE = 32
_HEAD_CHARS = 1024  # multiple of 4; a JPEG may need more


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A grey thumbnail of 32 × 32 and the aspect ratio: the same page from another renderer stays close."""

    aspect: float
    grey: bytes

    @classmethod
    def of(cls, image: Image.Image) -> Self:
        """The fingerprint of an image."""
        grey = image.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)
        return cls(image.width / image.height, grey.tobytes())

    @classmethod
    def parse(cls, text: str) -> Self:
        """Back from ``str(fingerprint)``."""
        aspect, grey = text.split(":")
        return cls(float(aspect), bytes.fromhex(grey))

    def __str__(self) -> str:
        return f"{self.aspect:.4f}:{self.grey.hex()}"

    def distance(self, other: Fingerprint) -> float:
        """Mean grey difference (0 to 255); infinite when one is more than twice as wide as the other."""
        if abs(math.log(self.aspect / other.aspect)) > math.log(2):
            return math.inf
        return sum(abs(a - b) for a, b in zip(self.grey, other.grey, strict=True)) / len(self.grey)


class RequestImage:
    """One image of a request, read as far as somebody asks."""

    def __init__(self, data_uri: str) -> None:
        head, comma, self._base64 = data_uri.partition(",")
        if not (head.startswith("data:image/") and head.endswith(";base64") and comma):
            raise ValueError("the simulator reads base64 data URIs only")

    @cached_property
    def size(self) -> tuple[int, int]:
        """Width and height from the header."""
        for chars in (_HEAD_CHARS, 256 * _HEAD_CHARS, len(self._base64)):
            size = image_size(base64.b64decode(self._base64[:chars]))
            if size is not None:
                return size
            if chars >= len(self._base64):
                break
        raise ValueError("not a PNG, JPEG or WebP image")

    @property
    def mpixels(self) -> float:
        """Million pixels."""
        return self.size[0] * self.size[1] / 1e6

    @property
    def encoded_bytes(self) -> int:
        """Length of the encoded image."""
        return len(self._base64) * 3 // 4

    @cached_property
    def data(self) -> bytes:
        """The encoded image."""
        return base64.b64decode(self._base64)

    @cached_property
    def sha256(self) -> str:
        """Hash of the encoded image."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """The thumbnail; decodes the image."""
        with Image.open(io.BytesIO(self.data)) as image:
            return Fingerprint.of(image)


def image_size(head: bytes) -> tuple[int, int] | None:
    """Width and height from the first bytes of a PNG, JPEG or WebP file; None when they do not tell."""
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        width, height = struct.unpack(">II", head[16:24])
        return width, height
    if head.startswith(b"\xff\xd8"):
        return _jpeg_size(head)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 30:
        return _webp_size(head)
    return None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head):
        if head[at] != 0xFF:
            return None
        marker = head[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return width, height
        else:
            at += 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    chunk = head[12:16]
    if chunk == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if chunk == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if chunk == b"VP8 ":
        width, height = struct.unpack("<HH", head[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None
