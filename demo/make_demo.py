"""Write the demo documents and their ground truth; same bytes on every run.

Run it with the packages of the ``dev`` extra: ``python demo/make_demo.py``.
"""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pypdfium2
from docvortex.document.pdf.pdfium import pdfium_guard
from PIL import Image
from pypdf import PdfReader, PdfWriter
from reportlab import rl_config
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.utils import ImageReader
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import BaseDocTemplate, Flowable, Frame, FrameBreak, NextPageTemplate, PageTemplate, Spacer

import _contract
import _paper
import _report
from _content import Block, to_markdown
from _pdf import DemoDocument, Layout, Styles, draw_footnotes, fill_contents, flowables, footnotes_in_reading_order

DEMO = Path(__file__).resolve().parent
WIDTH, HEIGHT = A4
_SCAN_DPI = 200
_SCAN_ANGLES = (0.8, -1.1, 0.9, -0.7)


def main() -> None:
    """Write every document and its truth."""
    rl_config.useA85 = 0
    rl_config.invariant = 1
    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
    (DEMO / "truth").mkdir(exist_ok=True)
    _write_truth("paper", _make_paper(DEMO / "paper.pdf"))
    _make_contract(DEMO / "contract.pdf")
    _make_scan(DEMO / "contract.pdf", DEMO / "contract_scan.pdf")
    _make_encrypted(DEMO / "contract.pdf", DEMO / "contract_encrypted.pdf")
    for name in ("contract", "contract_scan", "contract_encrypted"):
        _write_truth(name, _contract.BLOCKS)
    _write_truth("report", _make_report(DEMO / "report.pdf"))


def _write_truth(name: str, blocks: Sequence[Block]) -> None:
    """Write the Markdown of a document."""
    (DEMO / "truth" / f"{name}.md").write_text(to_markdown(blocks), encoding="utf-8", newline="\n")


def _styles(font: str, bold: str, italic: str, size: float, leading: float) -> dict[str, ParagraphStyle]:
    """The styles that all documents share; a document overrides what differs."""
    base = ParagraphStyle("base", fontName=font, fontSize=size, leading=leading, embeddedHyphenation=1)

    def style(name: str, **changes: object) -> ParagraphStyle:
        return ParagraphStyle(name, parent=base, **changes)

    small = {"fontSize": size - 1, "leading": leading - 1.5}
    return {
        "h1": style("h1", fontName=bold, fontSize=1.7 * size, leading=2.1 * size, alignment=1, spaceAfter=8),
        "h2": style("h2", fontName=bold, fontSize=1.3 * size, leading=1.6 * size, spaceBefore=9, spaceAfter=4),
        "h3": style("h3", fontName=bold, fontSize=1.1 * size, leading=1.4 * size, spaceBefore=7, spaceAfter=3),
        "h4": style("h4", fontName=italic, fontSize=size, leading=leading, spaceBefore=5, spaceAfter=2),
        "body": style("body", alignment=4, spaceAfter=5),
        "cont": style("cont", alignment=4, spaceAfter=5),
        "author": style("author", alignment=1, spaceAfter=8),
        "item": style("item", leftIndent=14, bulletIndent=3, spaceAfter=2),
        "last_item": style("last_item", leftIndent=14, bulletIndent=3, spaceAfter=6),
        "reference": style("reference", leftIndent=14, firstLineIndent=-14, spaceAfter=2, **small),
        "caption": style("caption", spaceBefore=6, spaceAfter=4, **small),
        "figure_caption": style("figure_caption", spaceBefore=4, spaceAfter=8, **small),
        "cell": style("cell", **small),
        "header_cell": style("header_cell", fontName=bold, **small),
        "note": style("note", fontSize=size - 2, leading=leading - 2.5),
    }


# --- paper ---------------------------------------------------------------------------------------------

_MARGIN, _GUTTER = 50.0, 20.0
_COLUMN: float = (WIDTH - 2 * _MARGIN - _GUTTER) / 2
_TITLE_HEIGHT, _NOTE_HEIGHT = 166.0, 32.0


def _make_paper(path: Path) -> list[Block]:
    """Write the two-column paper; return its blocks with the footnotes in reading order."""
    styles = _styles("Times-Roman", "Times-Bold", "Times-Italic", 10, 12)
    styles["body"] = ParagraphStyle("body", parent=styles["body"], firstLineIndent=10, spaceAfter=2)
    styles["abstract"] = ParagraphStyle(
        "abstract", parent=styles["body"], firstLineIndent=0, fontSize=9.5, leading=11.5
    )
    wide = Layout(styles, WIDTH - 2 * _MARGIN)
    column = Layout(styles, _COLUMN, math_size=10)
    title = (_paper.TITLE, _paper.AUTHORS, *_paper.ABSTRACT)
    story: list[Flowable] = flowables(title, wide)
    story += [FrameBreak(), NextPageTemplate([f"page{n}" for n in range(2, 5)]), *flowables(_paper.BODY, column)]
    document = DemoDocument(path, [_paper_page(n, styles) for n in range(1, 5)], A4, _paper.TITLE.text)
    document.build(story)
    return footnotes_in_reading_order((*title, *_paper.BODY), _paper.FOOTNOTES, document.starts)


def _paper_page(number: int, styles: Styles) -> PageTemplate:
    """The template of one page: title on the first, room for footnotes where there are any."""
    top, bottom = HEIGHT - 64, 58.0
    frames = []
    if number == 1:
        frames.append(_frame("title", _MARGIN, top - _TITLE_HEIGHT, WIDTH - 2 * _MARGIN, _TITLE_HEIGHT))
        top -= _TITLE_HEIGHT + 8
    for column in (1, 2):
        notes = [n for n in _paper.FOOTNOTES if (n.page, n.column) == (number, column)]
        foot = bottom + (_NOTE_HEIGHT if notes else 0)
        frames.append(_frame(f"column{column}", _column_x(column), foot, _COLUMN, top - foot))

    def furniture(canvas: Canvas, document: BaseDocTemplate) -> None:
        canvas.setFont("Times-Italic", 8.5)
        if number > 1:
            canvas.drawString(_MARGIN, HEIGHT - 44, _paper.RUNNING_HEADER)
        canvas.setFont("Times-Roman", 9)
        canvas.drawCentredString(WIDTH / 2, 34, str(document.page))
        for column in (1, 2):
            notes = [n for n in _paper.FOOTNOTES if (n.page, n.column) == (number, column)]
            if notes:
                draw_footnotes(canvas, notes, styles["note"], _column_x(column), bottom, _COLUMN)

    return PageTemplate(id=f"page{number}", frames=frames, onPage=furniture)


def _column_x(column: int) -> float:
    """Left edge of a column."""
    return _MARGIN + (column - 1) * (_COLUMN + _GUTTER)


def _frame(name: str, x: float, y: float, width: float, height: float) -> Frame:
    """A frame without padding."""
    return Frame(x, y, width, height, id=name, leftPadding=0, rightPadding=0, topPadding=0, bottomPadding=0)


# --- contract ------------------------------------------------------------------------------------------

_CONTRACT_PAGES = 3


def _make_contract(path: Path) -> None:
    """Write the Chinese contract."""
    song = "STSong-Light"
    styles = _styles(song, song, song, 11, 18)
    for name, style in styles.items():
        styles[name] = ParagraphStyle(name, parent=style, wordWrap="CJK", embeddedHyphenation=0)
    plain = ParagraphStyle("plain", parent=styles["body"], alignment=0, spaceAfter=3)
    styles |= {
        "h1": ParagraphStyle("h1", parent=styles["h1"], fontSize=20, leading=30, spaceAfter=14),
        "h2": ParagraphStyle("h2", parent=styles["h2"], fontSize=13, leading=20, spaceBefore=6),
        "body": ParagraphStyle("body", parent=plain, firstLineIndent=22),
        "right": ParagraphStyle("right", parent=plain, alignment=2, spaceAfter=2),
        "party": plain,
        "item": ParagraphStyle("clause", parent=plain, leftIndent=22),
        "signature": ParagraphStyle("signature", parent=plain, spaceAfter=6),
        "signature_first": ParagraphStyle("signature_first", parent=plain, spaceBefore=26, spaceAfter=8),
        "caption": ParagraphStyle("caption", parent=styles["caption"], alignment=1),
    }
    frame = _frame("body", 72, 72, WIDTH - 144, HEIGHT - 144)

    def furniture(canvas: Canvas, document: BaseDocTemplate) -> None:
        canvas.setFont(song, 9)
        canvas.drawCentredString(WIDTH / 2, 40, _contract.FOOTER.format(page=document.page, pages=_CONTRACT_PAGES))

    document = DemoDocument(path, [PageTemplate(frames=[frame], onPage=furniture)], A4, "水质监测设备采购合同")
    document.build(flowables(_contract.BLOCKS, Layout(styles, WIDTH - 144)))
    _expect_pages(document, _CONTRACT_PAGES)


def _expect_pages(document: DemoDocument, pages: int) -> None:
    """The footers name a number of pages; it has to be the real one."""
    if document.page != pages:
        raise RuntimeError(f"{document.filename}: {document.page} pages, expected {pages}")


def _make_scan(source: Path, path: Path) -> None:
    """Write the contract as a noisy, slightly rotated grey scan without a text layer."""
    rng = np.random.default_rng(18)
    canvas = Canvas(str(path), pagesize=A4, invariant=1)
    with pdfium_guard():
        pdf = pypdfium2.PdfDocument(source)
        pages = [page.render(scale=_SCAN_DPI / 72, grayscale=True).to_pil().convert("L") for page in pdf]
        pdf.close()
    for page, angle in zip(pages, _SCAN_ANGLES, strict=False):
        canvas.drawImage(ImageReader(_scan_jpeg(page, angle, rng)), 0, 0, WIDTH, HEIGHT)
        canvas.showPage()
    canvas.save()


def _scan_jpeg(page: Image.Image, angle: float, rng: np.random.Generator) -> io.BytesIO:
    """Rotate a page, shade it towards one side, add noise and compress it."""
    rotated = page.rotate(angle, resample=Image.Resampling.BICUBIC, fillcolor=255)
    pixels = np.asarray(rotated, dtype=np.float64)
    shade = np.linspace(0.96, 0.90, pixels.shape[1])[None, :]
    noisy = (28 + pixels * (227 / 255)) * shade + rng.normal(0.0, 5.0, pixels.shape)
    out = io.BytesIO()
    Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(out, "JPEG", quality=62)
    out.seek(0)
    return out


def _make_encrypted(source: Path, path: Path) -> None:
    """Write an AES-256 copy; the random numbers are replaced, which only a demo with a known password may do."""
    writer = PdfWriter(clone_from=PdfReader(source))
    with mock.patch("secrets.token_bytes", random.Random(14).randbytes):
        writer.encrypt(_contract.PASSWORD, algorithm="AES-256")
        writer.write(path)


# --- report --------------------------------------------------------------------------------------------


def _make_report(path: Path) -> list[Block]:
    """Write the long report; return its blocks with the contents filled in."""
    styles = _styles("Helvetica", "Helvetica-Bold", "Helvetica-BoldOblique", 11, 17)
    styles |= {
        "h1": ParagraphStyle("h1", parent=styles["h1"], fontSize=24, leading=30, spaceBefore=220, spaceAfter=20),
        "h2": ParagraphStyle("h2", parent=styles["h2"], fontSize=17, leading=22, spaceAfter=10),
        "h3": ParagraphStyle("h3", parent=styles["h3"], fontSize=13, leading=17, spaceBefore=12, spaceAfter=5),
        "contents_title": ParagraphStyle("contents_title", parent=styles["h2"], fontSize=17, leading=22, spaceAfter=10),
        "toc1": ParagraphStyle(
            "toc1",
            parent=styles["body"],
            alignment=0,
            leading=15,
            fontName="Helvetica-Bold",
            spaceBefore=5,
            spaceAfter=0,
        ),
        "toc2": ParagraphStyle("toc2", parent=styles["body"], alignment=0, leading=15, leftIndent=16, spaceAfter=0),
    }
    frame = _frame("body", 70, 76, WIDTH - 140, HEIGHT - 152)

    def furniture(canvas: Canvas, document: BaseDocTemplate) -> None:
        if document.page == 1:
            return
        canvas.setFont("Helvetica", 8.5)
        canvas.drawString(70, HEIGHT - 48, _report.RUNNING_HEADER)
        canvas.setLineWidth(0.4)
        canvas.line(70, HEIGHT - 54, WIDTH - 70, HEIGHT - 54)
        footer = _report.FOOTER.format(page=document.page, pages=_report.PAGES)
        canvas.drawRightString(WIDTH - 70, 44, footer)

    blocks = _report.blocks()
    title = "Condition and Investment Report 2026"
    document = DemoDocument(path, [PageTemplate(frames=[frame], onPage=furniture)], A4, title)
    document.multiBuild([Spacer(1, 200), *flowables(blocks, Layout(styles, WIDTH - 140))])
    _expect_pages(document, _report.PAGES)
    return fill_contents(blocks, document.starts)


if __name__ == "__main__":
    main()
