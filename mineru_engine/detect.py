"""What format a file really has, whatever it is called."""

from __future__ import annotations

import struct
import zipfile
import zlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mineru_engine.errors import DamagedDocumentError, ErrorCode, UnsupportedFormatError

__all__ = (
    "IMAGE_SUFFIXES",
    "NATIVE_SUFFIXES",
    "READER_ERRORS",
    "SUPPORTED_SUFFIXES",
    "Detected",
    "by_signature",
    "detect",
)

READER_ERRORS: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
)
"""What third-party readers raise on a file that is damaged or hostile, whatever they document."""

IMAGE_SUFFIXES = frozenset(["png", "jpg", "jpeg", "jp2", "tif", "tiff", "webp", "bmp", "gif", "heic", "heif", "avif"])
NATIVE_SUFFIXES = frozenset(
    [
        "doc",
        "docx",
        "rtf",
        "ppt",
        "pptx",
        "xls",
        "xlsx",
        "csv",
        "tsv",
        "odt",
        "ods",
        "odp",
        "epub",
        "html",
        "htm",
        "shtml",
        "mhtml",
        "mht",
        "ofd",
    ]
)
SUPPORTED_SUFFIXES = frozenset({"pdf"}) | IMAGE_SUFFIXES | NATIVE_SUFFIXES

_HEADER_BYTES = 1024  # Adobe's readers accept a PDF header anywhere in the first 1,024 bytes

_IMAGE_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "png"),
    (0, b"\xff\xd8\xff", "jpg"),
    (0, b"II*\x00", "tiff"),
    (0, b"MM\x00*", "tiff"),
    (0, b"II+\x00", "tiff"),
    (0, b"MM\x00+", "tiff"),
    (8, b"WEBP", "webp"),
    (0, b"BM", "bmp"),
    (0, b"GIF87a", "gif"),
    (0, b"GIF89a", "gif"),
    (0, b"\x00\x00\x00\x0cjP  ", "jp2"),
    (4, b"ftypheic", "heic"),
    (4, b"ftypheix", "heic"),
    (4, b"ftypmif1", "heic"),
    (4, b"ftypavif", "avif"),
)


@dataclass(frozen=True, slots=True)
class Detected:
    """Format of a file.

    :ivar kind: ``pdf``, ``image`` or ``native`` (read as a whole by docvortex).
    """

    kind: str
    suffix: str


def detect(path: Path, name: str) -> Detected:
    """Look into the file; ``name`` helps only with formats that have no signature.

    :raises DamagedDocumentError: if the file is empty, or calls itself a PDF and is none.
    :raises UnsupportedFormatError: if no reader exists for it.
    """
    with path.open("rb") as stream:
        head = stream.read(_HEADER_BYTES)
    if not head:
        raise DamagedDocumentError("the file is empty (0 bytes)", code=ErrorCode.FILE_EMPTY)
    if (known := by_signature(head)) is not None:
        _check_decoder(known.suffix)
        return known
    suffix = _guess(path, name)
    if suffix in NATIVE_SUFFIXES:
        return Detected("native", suffix)
    if (called := Path(name).suffix.lower()[1:]) in SUPPORTED_SUFFIXES:
        inside = "PDF" if called == "pdf" else f"readable {called}"
        raise DamagedDocumentError(f"the file is called .{called} but there is no {inside} inside")
    raise UnsupportedFormatError(
        f"no reader for this kind of file ({Path(name).suffix or suffix})",
        hint=f"supported: {', '.join(sorted(SUPPORTED_SUFFIXES))}",
    )


def by_signature(head: bytes) -> Detected | None:
    """What the first bytes of a file say, if they say it clearly: a PDF or an image."""
    if b"%PDF-" in head[:_HEADER_BYTES]:
        return Detected("pdf", "pdf")
    for offset, signature, suffix in _IMAGE_SIGNATURES:
        if head.startswith(signature, offset):
            return Detected("image", suffix)
    return None


def _check_decoder(suffix: str) -> None:
    if suffix == "heic" and find_spec("pillow_heif") is None:
        raise UnsupportedFormatError("reading HEIC pictures needs pillow-heif", hint="pip install 'mineru[heic]'")


def _guess(path: Path, name: str) -> str:
    from docvortex.document.detection import guess_suffix_by_bytes

    data = path.read_bytes()
    try:
        return str(guess_suffix_by_bytes(data, name))
    except READER_ERRORS:
        return "unknown"
