"""Frames between the engine and its worker processes.

A frame is an eight-byte big-endian length and that many bytes of JSON. JSON, not pickle: a worker
reads hostile files, so nothing it sends may run code here.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any, BinaryIO

import orjson

__all__ = ("MAX_FRAME_BYTES", "decode", "encode", "read_frame", "read_frame_blocking")

_LENGTH = struct.Struct(">Q")
MAX_FRAME_BYTES = 1 << 30


def encode(message: dict[str, Any]) -> bytes:
    """One frame. Tuples, enums and numpy scalars become their JSON equivalents."""
    body = orjson.dumps(message, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    return _LENGTH.pack(len(body)) + body


def decode(body: bytes) -> dict[str, Any]:
    """The message of a frame's body."""
    message: dict[str, Any] = orjson.loads(body)
    return message


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
