"""An open document inside a worker process: a PDF, or an image file as pages.

Pages are addressed by zero-based index. Sizes are in PDF points as displayed (after ``/Rotate``).
"""

from __future__ import annotations

import contextlib
import io
import math
import re
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c
from docvortex.document.pdf.pdfium import pdfium_guard

from mineru_engine.detect import READER_ERRORS
from mineru_engine.errors import DamagedDocumentError, ErrorCode, MineruError, PasswordError
from mineru_engine.pdf.lines import Box
from mineru_engine.pdf.spec import SourceSpec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL.Image import Image

    Pixels = npt.NDArray[np.uint8]

__all__ = ("ImageSource", "PageSource", "PdfSource", "forget", "open_source")

MAX_PAGE_POINTS = 50_000.0  # 694 inches; ISO 32000 allows 200
MAX_PIXELS = 40_000_000
_IMAGE_DPI = 200.0
_KEPT_OPEN = 2


class PageSource(ABC):
    """Pages that can be measured and rendered."""

    page_count: int

    @abstractmethod
    def page_size(self, index: int) -> tuple[float, float]:
        """Width and height in points.

        :raises MineruError: if the page cannot be loaded or its size is absurd.
        """

    @abstractmethod
    def render(self, index: int, long_side: int) -> Pixels:
        """The page as RGB, shape (height, width, 3), its longer side about ``long_side`` pixels."""

    @abstractmethod
    def close(self) -> None:
        """Release the file."""


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
            raise _unsupported_encryption() from exc
        return self._repair(_unreadable(self.data))

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
            bitmap = page.render(scale=scale, rev_byteorder=True, prefer_bgrx=False, maybe_alpha=False)
            try:
                pixels: Pixels = bitmap.to_numpy()[:, :, :3].copy()
            finally:
                bitmap.close()
            return pixels

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

    def close(self) -> None:
        """Release the file."""
        with pdfium_guard():
            self.pdf.close()


class ImageSource(PageSource):
    """An image file; every frame of a multi-page TIFF (or GIF, WebP) is a page."""

    def __init__(self, path: Path) -> None:
        _register_heif()
        from PIL import Image

        try:
            self.image: Image.Image = Image.open(path)
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

        frame = self._frame(index)
        try:
            rgb = _flattened(frame)
        except READER_ERRORS as exc:
            raise DamagedDocumentError("the image page cannot be decoded", page=index) from exc
        ratio = long_side / max(rgb.size)
        if ratio < 1:
            size = (max(1, round(rgb.width * ratio)), max(1, round(rgb.height * ratio)))
            rgb = rgb.resize(size, Image.Resampling.LANCZOS)
        return np.array(rgb, dtype=np.uint8)

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


def checked_size(size: tuple[float, float], index: int) -> tuple[float, float]:
    """The size, if a page of that size can exist.

    :raises DamagedDocumentError: if it is not finite, not positive or absurdly large.
    """
    width, height = size
    if not (0 < width < MAX_PAGE_POINTS and 0 < height < MAX_PAGE_POINTS):
        raise DamagedDocumentError(f"the page is {width:g} x {height:g} points", page=index)
    return width, height


_CATALOG = re.compile(rb"(\d+)\s+(\d+)\s+obj\b(?:(?!endobj).){0,4000}?/Type\s*/Catalog\b", re.DOTALL)


def with_new_trailer(data: bytes) -> bytes | None:
    """The PDF with a trailer that names its catalog: PDFium finds the other objects by itself then.

    This opens files whose end was cut off or whose cross-reference table is missing.
    """
    catalog = _CATALOG.search(data)
    if catalog is None:
        return None
    root = b"%s %s R" % (catalog[1], catalog[2])
    return data + b"\nendobj\ntrailer\n<</Root " + root + b">>\nstartxref\n0\n%%EOF\n"


def _pypdf_errors() -> tuple[type[Exception], ...]:
    from pypdf.errors import PyPdfError

    return (PyPdfError, *READER_ERRORS)


def with_new_end(data: bytes) -> bytes | None:
    """The same, with what follows the last whole object left out: a trailer that was cut in two hides a new one."""
    end = data.rfind(b"endobj")
    return with_new_trailer(data[:end]) if end >= 0 else None


def rewritten_by_pypdf(data: bytes) -> bytes | None:
    """The PDF rewritten by pypdf's tolerant reader, or ``None`` if that finds no page either."""
    from pypdf import PdfReader, PdfWriter

    try:
        reader = PdfReader(io.BytesIO(data), strict=False)
        writer = PdfWriter()
        for page in reader.pages:
            writer.add_page(page)
        if not writer.pages:
            return None
        out = io.BytesIO()
        writer.write(out)
        return out.getvalue()
    except _pypdf_errors():
        return None


def _unreadable(data: bytes) -> DamagedDocumentError:
    """Why PDFium does not open the file: a PDF in order that has no page, or a damaged one."""
    from pypdf import PdfReader

    try:
        if b"%%EOF" in data and not PdfReader(io.BytesIO(data), strict=False).pages:
            return DamagedDocumentError("the PDF has no pages", code=ErrorCode.PDF_NO_PAGES)
    except _pypdf_errors():
        pass
    return DamagedDocumentError("the PDF is damaged and could not be repaired")


def has_foreign_security_handler(data: bytes) -> bool:
    """Whether the PDF is encrypted by something else than the Standard handler (PDFium shows blank pages then)."""
    if b"/Encrypt" not in data:
        return False
    from pypdf import PdfReader

    try:
        trailer = PdfReader(io.BytesIO(data), strict=False).trailer
        entry: Any = trailer.get("/Encrypt")
        return entry is not None and entry.get_object().get("/Filter") != "/Standard"
    except _pypdf_errors():
        return True


def _unsupported_encryption() -> MineruError:
    return PasswordError(
        "the PDF is encrypted by a security handler that cannot be opened here",
        code=ErrorCode.PDF_ENCRYPTION_UNSUPPORTED,
        hint="open it in the program that protected it and save an unprotected copy",
    )


def _without_encryption(pdf: pdfium.PdfDocument) -> bytes:
    out = io.BytesIO()
    pdf.save(out, flags=pdfium_c.FPDF_REMOVE_SECURITY)
    return out.getvalue()


def _register_heif() -> None:
    with contextlib.suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener()


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
