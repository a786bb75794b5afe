"""A PDF open inside a worker process, and which documents are open.

Pages are addressed by zero-based index. Sizes are in PDF points as displayed (after ``/Rotate``).
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c
from docvortex.document.pdf import PDFDocument
from docvortex.document.pdf.pdfium import pdfium_guard

from mineru_engine.errors import DamagedDocumentError, ErrorCode, PasswordError
from mineru_engine.pdf.image_source import ImageSource
from mineru_engine.pdf.lines import Box
from mineru_engine.pdf.pages import MAX_PIXELS, PageSource, checked_size
from mineru_engine.pdf.repair import (
    rewritten_by_pypdf,
    unreadable,
    unsupported_encryption,
    with_new_end,
    with_new_trailer,
)
from mineru_engine.pdf.spec import SourceSpec

if TYPE_CHECKING:
    from mineru_engine.pdf.pages import Pixels

__all__ = ("PdfSource", "forget", "open_source")

_KEPT_OPEN = 2


class PdfSource(PageSource):
    """A PDF, opened with its password if it has one.

    :ivar data: the bytes, without encryption.
    :ivar repaired: PDFium refused the file and it was rebuilt.
    """

    def __init__(self, path: Path, password: str | None = None) -> None:
        self.data = path.read_bytes()
        self.repaired = False
        self.encrypted = False
        self.copy_forbidden = False
        self.pdf = self._open(password)
        self.page_count = len(self.pdf)

    def _open(self, password: str | None) -> pdfium.PdfDocument:
        with pdfium_guard():
            try:
                pdf = pdfium.PdfDocument(self.data, password=password)
                count = len(pdf)
            except pdfium.PdfiumError as exc:
                return self._reopen(exc, password)
            self._read_permissions(pdf)
            if count == 0:
                pdf.close()
                return self._repair(DamagedDocumentError("the PDF has no pages", code=ErrorCode.PDF_NO_PAGES))
            if self.encrypted and password is not None:
                self.data = _without_encryption(pdf)
                pdf.close()
                pdf = pdfium.PdfDocument(self.data)
            return pdf

    def _reopen(self, exc: pdfium.PdfiumError, password: str | None) -> pdfium.PdfDocument:
        # PDFium keeps the last error of any file: trust the number only where it names the password.
        if exc.err_code == pdfium_c.FPDF_ERR_PASSWORD:
            if password is None:
                raise PasswordError(
                    "the PDF is encrypted and needs a password", code=ErrorCode.PASSWORD_REQUIRED
                ) from exc
            raise PasswordError("the password does not open this PDF", code=ErrorCode.PASSWORD_WRONG) from exc
        if exc.err_code == pdfium_c.FPDF_ERR_SECURITY:
            raise unsupported_encryption() from exc
        return self._repair(unreadable(self.data))

    def _repair(self, failure: DamagedDocumentError) -> pdfium.PdfDocument:
        for rebuild in (with_new_trailer, with_new_end, rewritten_by_pypdf):
            data = rebuild(self.data)
            if data is None:
                continue
            try:
                pdf = pdfium.PdfDocument(data)
            except pdfium.PdfiumError:
                continue
            if len(pdf):
                self.data, self.repaired = data, True
                return pdf
            pdf.close()
        raise failure

    def _read_permissions(self, pdf: pdfium.PdfDocument) -> None:
        self.encrypted = pdfium_c.FPDF_GetSecurityHandlerRevision(pdf) >= 0
        permissions = pdfium_c.FPDF_GetDocPermissions(pdf)
        self.copy_forbidden = self.encrypted and not permissions & 0x10  # ISO 32000-2, table 22, bit 5

    @contextlib.contextmanager
    def page(self, index: int) -> Iterator[pdfium.PdfPage]:
        """An open page, under the PDFium lock.

        :raises MineruError: if PDFium cannot load it.
        """
        with pdfium_guard():
            try:
                page = self.pdf[index]
            except pdfium.PdfiumError as exc:
                raise DamagedDocumentError("the page cannot be loaded", page=index) from exc
            try:
                yield page
            finally:
                page.close()

    def page_size(self, index: int) -> tuple[float, float]:
        """Width and height in points."""
        with self.page(index) as page:
            return checked_size(page.get_size(), index)

    def render(self, index: int, long_side: int) -> Pixels:
        """The page as RGB pixels, drawn by PDFium straight at that size."""
        with self.page(index) as page:
            width, height = checked_size(page.get_size(), index)
            scale = long_side / max(width, height)
            scale = min(scale, math.sqrt(MAX_PIXELS / (width * height)))
            return _draw(page, math.ceil(width * scale), math.ceil(height * scale))

    def render_square(self, index: int, side: int) -> Pixels:
        """The page as RGB pixels of shape (side, side, 3), drawn by PDFium straight into that square."""
        with self.page(index) as page:
            return _draw(page, side, side)

    def render_regions(self, index: int, boxes: Sequence[Box], dpi: float) -> list[Pixels]:
        """Parts of the page as RGB pixels; only what lies in each box is drawn.

        :param boxes: unit coordinates of the page.
        """
        found = []
        with self.page(index) as page:
            width, height = checked_size(page.get_size(), index)
            for left, top, right, bottom in boxes:
                points = max(1.0, (right - left) * width * (bottom - top) * height)
                scale = min(dpi / 72, math.sqrt(MAX_PIXELS / points))
                crop = (left * width, (1 - bottom) * height, (1 - right) * width, top * height)
                bitmap = page.render(scale=scale, crop=crop, rev_byteorder=True, prefer_bgrx=False, maybe_alpha=False)
                try:
                    found.append(bitmap.to_numpy()[:, :, :3].copy())
                finally:
                    bitmap.close()
        return found

    @functools.cached_property
    def document(self) -> PDFDocument:
        """The same bytes opened by docvortex, for its text and vector geometry."""
        return PDFDocument(self.data)

    def close(self) -> None:
        """Release the file."""
        if "document" in self.__dict__:
            self.document.close()
        with pdfium_guard():
            self.pdf.close()


def _draw(page: pdfium.PdfPage, width: int, height: int) -> Pixels:
    """The page on white paper, RGB, drawn straight into the array: pypdfium2's bitmaps are filled slowly and copied."""
    pixels = np.full((height, width, 3), 255, dtype=np.uint8)
    bitmap = pdfium_c.FPDFBitmap_CreateEx(width, height, pdfium_c.FPDFBitmap_BGR, pixels.ctypes.data, pixels.strides[0])
    try:
        flags = pdfium_c.FPDF_ANNOT | pdfium_c.FPDF_REVERSE_BYTE_ORDER
        pdfium_c.FPDF_RenderPageBitmap(bitmap, page, 0, 0, width, height, 0, flags)
    finally:
        pdfium_c.FPDFBitmap_Destroy(bitmap)
    return pixels


def _without_encryption(pdf: pdfium.PdfDocument) -> bytes:
    out = io.BytesIO()
    pdf.save(out, flags=pdfium_c.FPDF_REMOVE_SECURITY)
    return out.getvalue()


_open: OrderedDict[str, PageSource] = OrderedDict()


def open_source(spec: SourceSpec) -> PageSource:
    """The open document for ``spec``; the last few stay open between tasks of this process."""
    source = _open.get(spec.key)
    if source is None:
        path = Path(spec.path)
        source = ImageSource(path) if spec.kind == "image" else PdfSource(path, spec.password)
        _open[spec.key] = source
    _open.move_to_end(spec.key)
    while len(_open) > _KEPT_OPEN:
        _open.popitem(last=False)[1].close()
    return source


def forget(keys: list[str]) -> None:
    """Close documents that are finished."""
    for key in keys:
        source = _open.pop(key, None)
        if source is not None:
            source.close()
