"""Pictures of a document in progress, kept on disk instead of in memory."""

from __future__ import annotations

import base64
import hashlib
import re
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ("ImageSpool",)

_PREFIX = "data:image/"
_KIND = re.compile(r"[a-z0-9][a-z0-9+.-]{0,30}")
_EXTENSIONS = {"jpeg": "jpg", "svg+xml": "svg"}


class ImageSpool(Mapping[str, bytes]):
    """Relative path (``images/<sha256>.jpg``) → bytes, backed by a temporary directory.

    The directory goes when :meth:`close` is called or the object is collected.
    """

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="mineru-images-", ignore_cleanup_errors=True)
        self._sizes: dict[str, int] = {}
        self._finalizer = weakref.finalize(self, self._directory.cleanup)

    def take(self, blocks: list[dict[str, Any]]) -> None:
        """Move the pictures of raw blocks to disk: ``image_base64`` becomes ``image_path``.

        What is no picture (of a box without pixels, or a lie of the document) goes; the block keeps its text.
        """
        for block in blocks:
            if (payload := block.pop("image_base64", None)) is not None:
                try:
                    block["image_path"] = self.add(payload)
                except ValueError:
                    block["image_path"] = None
            children = block.get("content")
            if isinstance(children, list):
                self.take([child for child in children if isinstance(child, dict)])

    def add(self, data_uri: str) -> str:
        """Store one picture; returns its relative path. Equal pictures share one file.

        :raises ValueError: if it is no picture in base64.
        """
        head, _, body = data_uri.partition(",")
        if not head.startswith(_PREFIX):
            raise ValueError(f"not a data URI of a picture: {head[:40]!r}")
        kind = head.removeprefix(_PREFIX).split(";")[0].lower()
        if _KIND.fullmatch(kind) is None:  # it becomes a part of a file name
            raise ValueError(f"odd picture type {kind[:40]!r}")
        data = base64.b64decode(body)
        path = f"images/{hashlib.sha256(data).hexdigest()}.{_EXTENSIONS.get(kind, kind)}"
        if path not in self._sizes:
            self._file(path).write_bytes(data)
            self._sizes[path] = len(data)
        return path

    def data_uri(self, path: str) -> str:
        """The picture at ``path`` as a data URI."""
        kind = {"jpg": "jpeg", "svg": "svg+xml"}.get(extension := path.rpartition(".")[2], extension)
        return f"{_PREFIX}{kind};base64,{base64.b64encode(self[path]).decode('ascii')}"

    def _file(self, path: str) -> Path:
        return Path(self._directory.name) / path.removeprefix("images/")

    def __getitem__(self, path: str) -> bytes:
        if path not in self._sizes:
            raise KeyError(path)
        return self._file(path).read_bytes()

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def close(self) -> None:
        """Delete the files. Safe to call twice."""
        self._finalizer()
