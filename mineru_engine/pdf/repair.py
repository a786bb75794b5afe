"""PDFs that PDFium refuses: rebuilt, or told apart from those that nobody can open."""

from __future__ import annotations

import io
import re
from typing import Any

from mineru_engine.detect import READER_ERRORS
from mineru_engine.errors import DamagedDocumentError, ErrorCode, MineruError, PasswordError

__all__ = (
    "has_foreign_security_handler",
    "rewritten_by_pypdf",
    "unreadable",
    "unsupported_encryption",
    "with_new_end",
    "with_new_trailer",
)

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


def unreadable(data: bytes) -> DamagedDocumentError:
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


def unsupported_encryption() -> MineruError:
    return PasswordError(
        "the PDF is encrypted by a security handler that cannot be opened here",
        code=ErrorCode.PDF_ENCRYPTION_UNSUPPORTED,
        hint="open it in the program that protected it and save an unprotected copy",
    )
