"""Frames between the engine and its worker processes.

A frame is an eight-byte big-endian length and that many bytes of JSON. JSON, not pickle: a worker
reads hostile files, so nothing it sends may run code here.
"""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any, BinaryIO

import orjson

__all__ = ("MAX_FRAME_BYTES", "decode", "encode", "read_frame", "read_frame_blocking", "valid_unicode")

_LENGTH = struct.Struct(">Q")
MAX_FRAME_BYTES = 1 << 30


def encode(message: dict[str, Any], *, strict: bool = False) -> bytes:
    """One frame. Tuples, enums and numpy scalars become their JSON equivalents.

    Text that is no valid Unicode (a file name that is not UTF-8, a password) survives as escapes.

    :param strict: refuse such text.
    :raises TypeError: if a value has no JSON form, or ``strict`` text is not valid Unicode.
    """
    try:
        body = orjson.dumps(message, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    except TypeError:
        if strict:
            raise
        body = json.dumps(message).encode("ascii")
    return _LENGTH.pack(len(body)) + body


def decode(body: bytes) -> dict[str, Any]:
    """The message of a frame's body."""
    message: dict[str, Any]
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        message = json.loads(body)
    return message


def valid_unicode(value: Any) -> Any:
    """The value with lone surrogates replaced by U+FFFD: what a document says must be writable as UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8") if not value.isascii() else value
    if isinstance(value, dict):
        return {valid_unicode(key): valid_unicode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [valid_unicode(item) for item in value]
    return value


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Body of the next frame.

    :raises asyncio.IncompleteReadError: if the other side closed.
    :raises ValueError: if the frame is larger than :data:`MAX_FRAME_BYTES`.
    """
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"frame of {length} bytes")
    return await reader.readexactly(length)


def read_frame_blocking(stream: BinaryIO) -> bytes | None:
    """Body of the next frame, ``None`` at the end of the stream."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    body = stream.read(_LENGTH.unpack(head)[0])
    return body
