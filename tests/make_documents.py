"""Small documents that tests make for themselves."""

from __future__ import annotations

import io
import textwrap
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

ENGLISH = (
    "The harbour office opened at seven and the first boats were already waiting at the quay. "
    "Every captain had to show his papers before the crane was allowed to move a single crate."
)
A4 = (595.0, 842.0)


def text_page(canvas: Canvas, title: str, text: str = ENGLISH, *, size: tuple[float, float] = A4) -> None:
    """One page with a heading and a paragraph, set in the standard fonts."""
    canvas.setPageSize(size)
    canvas.setFont("Helvetica-Bold", 18)
    canvas.drawString(72, size[1] - 90, title)
    canvas.setFont("Times-Roman", 11)
    for number, line in enumerate(textwrap.wrap(text, 80)):
        canvas.drawString(72, size[1] - 130 - 14 * number, line)
    canvas.showPage()


def text_pdf(titles: Sequence[str] = ("First page",), text: str = ENGLISH, *, size: tuple[float, float] = A4) -> bytes:
    """A born-digital PDF, one page for each title."""
    out = io.BytesIO()
    canvas = Canvas(out, invariant=1)
    for title in titles:
        text_page(canvas, title, text, size=size)
    canvas.save()
    return out.getvalue()


def text_image(lines: Sequence[str], *, width: int = 1000, mode: str = "RGB", paper: object = "white") -> Image.Image:
    """Dark lines of text on paper."""
    image = Image.new("RGB" if mode == "RGB" else mode, (width, 120 + 90 * len(lines)), paper)  # type: ignore[arg-type]
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=44)
    ink: object = {"RGB": "black", "RGBA": (0, 0, 0, 255), "L": 0, "LA": (0, 255)}[mode]
    for number, line in enumerate(lines):
        draw.text((60, 60 + 90 * number), line, fill=ink, font=font)  # type: ignore[arg-type]
    return image


def image_bytes(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, format=kind, **options)
    return out.getvalue()


def scan_page(canvas: Canvas, lines: Sequence[str], *, size: tuple[float, float] = A4) -> None:
    """One page that is nothing but a picture of text."""
    canvas.setPageSize(size)
    page = Image.new("RGB", (1240, 1754), "white")
    page.paste(text_image(lines, width=1240), (0, 500))  # what stands at the top would be a header
    canvas.drawImage(ImageReader(page), 0, 0, *size)
    canvas.showPage()


def with_attachments(pdf: bytes, attachments: Mapping[str, bytes]) -> bytes:
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter()
    writer.append(PdfReader(io.BytesIO(pdf)))
    for name, data in attachments.items():
        writer.add_attachment(name, data)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def encrypted(pdf: bytes, password: str, *, owner: str | None = None, permissions: int | None = None) -> bytes:
    """AES-256; ``permissions`` are the bits of ISO 32000-2, table 22."""
    from pypdf import PdfReader, PdfWriter
    from pypdf.constants import UserAccessPermissions

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf)))
    flags = UserAccessPermissions.all() if permissions is None else UserAccessPermissions(permissions)
    writer.encrypt(password, owner, algorithm="AES-256", permissions_flag=flags)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def raw_pdf(objects: Sequence[bytes], *, root: int = 1) -> bytes:
    """A PDF of hand-written objects, numbered from 1, with a right cross-reference table."""
    out, offsets = bytearray(b"%PDF-1.7\n"), []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n" % number + body + b"\nendobj\n"
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<</Size %d/Root %d 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, root, start)
    return bytes(out)


def stream(data: bytes, extra: bytes = b"") -> bytes:
    return b"<</Length %d%s>>\nstream\n" % (len(data), extra) + data + b"\nendstream"


def one_page_pdf(
    content: bytes, *, media_box: bytes = b"[0 0 595 842]", resources: bytes = b"", more: Sequence[bytes] = ()
) -> bytes:
    """A PDF of one page with this content stream; further objects start at number 5."""
    resources = resources or b"<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"
    page = b"<</Type/Page/Parent 2 0 R/MediaBox %s/Resources %s/Contents 4 0 R>>" % (media_box, resources)
    pages = b"<</Type/Pages/Kids[3 0 R]/Count 1>>"
    return raw_pdf([b"<</Type/Catalog/Pages 2 0 R>>", pages, page, stream(content), *more])


def zipped(files: Mapping[str, bytes | str], *, stored_first: bool = False) -> bytes:
    """A ZIP file; an EPUB or ODF wants its ``mimetype`` first and stored."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, (name, data) in enumerate(files.items()):
            kind = zipfile.ZIP_STORED if stored_first and number == 0 else zipfile.ZIP_DEFLATED
            archive.writestr(name, data, kind)
    return out.getvalue()


def docx(paragraphs: Sequence[str], title: str = "A title") -> bytes:
    from docx import Document

    document = Document()
    document.add_heading(title, level=1)
    for text in paragraphs:
        document.add_paragraph(text)
    table = document.add_table(rows=2, cols=2)
    for row, cells in enumerate((("Port", "Ships"), ("Varna", "17"))):
        for column, text in enumerate(cells):
            table.cell(row, column).text = text
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def xlsx() -> bytes:
    from openpyxl import Workbook  # type: ignore[import-untyped]

    book = Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.append(["Port", "Ships"])
    sheet.append(["Varna", 17])
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def pptx() -> bytes:
    from pptx import Presentation

    show = Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text = "Harbour report"
    slide.placeholders[1].text = "Varna has seventeen ships."
    out = io.BytesIO()
    show.save(out)
    return out.getvalue()


def epub() -> bytes:
    chapter = (
        '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title>One</title>'
        "</head><body><h1>Harbour book</h1><p>Varna has seventeen ships.</p></body></html>"
    )
    container = (
        '<?xml version="1.0"?><container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
        '<rootfiles><rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
    )
    package = (
        '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id">'
        '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:identifier id="id">x</dc:identifier>'
        "<dc:title>Harbour book</dc:title><dc:language>en</dc:language></metadata>"
        '<manifest><item id="one" href="one.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="one"/></spine></package>'
    )
    files = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": container,
        "book.opf": package,
        "one.xhtml": chapter,
    }
    return zipped(files, stored_first=True)


def odt() -> bytes:
    content = (
        '<?xml version="1.0" encoding="UTF-8"?><office:document-content office:version="1.2" '
        'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
        'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body><office:text>'
        '<text:h text:outline-level="1">Harbour report</text:h><text:p>Varna has seventeen ships.</text:p>'
        "</office:text></office:body></office:document-content>"
    )
    manifest = (
        '<?xml version="1.0"?><manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">'
        '<manifest:file-entry manifest:full-path="/" manifest:media-type="application/vnd.oasis.opendocument.text"/>'
        '<manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/></manifest:manifest>'
    )
    files = {
        "mimetype": "application/vnd.oasis.opendocument.text",
        "content.xml": content,
        "META-INF/manifest.xml": manifest,
    }
    return zipped(files, stored_first=True)


HTML = b"<html><body><h1>Harbour report</h1><p>Varna has seventeen ships.</p></body></html>"
RTF = rb"{\rtf1\ansi{\fonttbl{\f0 Arial;}}\f0\fs24 Varna has seventeen ships.\par}"
CSV = b"Port,Ships\nVarna,17\n"


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
