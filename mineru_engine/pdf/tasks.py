"""What a worker process can be asked to do with a document. Arguments and results are JSON values."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mineru_engine.detect import READER_ERRORS, detect
from mineru_engine.errors import DamagedDocumentError, ErrorCode, InputError, MineruError, OptionError
from mineru_engine.options import ImageFormat
from mineru_engine.pdf.encode import encode_image
from mineru_engine.pdf.image_source import ImageSource
from mineru_engine.pdf.mend import mend_page, text_blocks
from mineru_engine.pdf.native import analyze_native, layer_lines
from mineru_engine.pdf.pages import checked_size
from mineru_engine.pdf.repair import has_foreign_security_handler, unsupported_encryption
from mineru_engine.pdf.source import PdfSource, open_source
from mineru_engine.pdf.spec import SourceSpec
from mineru_engine.pdf.textlayer import TextLayer, judge, read_evidence

if TYPE_CHECKING:
    from mineru_engine.pdf.lines import TextLine
    from mineru_engine.pdf.pages import PageSource

__all__ = (
    "analyze_file",
    "analyze_window",
    "draw_layout",
    "judge_page",
    "open_document",
    "page_image",
    "read_page",
    "save_attachment",
)


_SCAN_DPI = 200
_MIN_SCAN_SIDE = 1600
_MAX_SCAN_SIDE = 3600
_MAX_SHOWN_SIDE = 6000
_MAX_ASSEMBLED_LINES = 400  # finding columns and paragraphs takes time that grows faster than the lines


def open_document(path: str, key: str, name: str, password: str | None) -> dict[str, Any]:
    """Recognise the format and open the document.

    :return: ``kind`` (``pdf``, ``image`` or ``native``), ``suffix``, ``sha256``, ``bytes``; for paged kinds
        ``page_count``; for PDFs ``copy_forbidden``, ``repaired``, ``attachments``, ``properties``.
    :raises MineruError: if the file cannot be used.
    """
    file = Path(path)
    try:
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        detected = detect(file, name)
    except OSError as exc:  # it was there a moment ago
        code = ErrorCode.FILE_NOT_FOUND if isinstance(exc, FileNotFoundError) else ErrorCode.FILE_UNREADABLE
        raise InputError(f"cannot read the file: {exc.strerror}", code=code) from exc
    info: dict[str, Any] = {
        "kind": detected.kind,
        "suffix": detected.suffix,
        "sha256": digest,
        "bytes": file.stat().st_size,
    }
    if detected.kind == "native":
        return info
    source = open_source(SourceSpec(path, key, detected.kind, password))
    info["page_count"] = source.page_count
    if isinstance(source, PdfSource):
        info.update(_pdf_facts(source))
    return info


def _pdf_facts(source: PdfSource) -> dict[str, Any]:
    if source.page_count and has_foreign_security_handler(source.data):
        raise unsupported_encryption()
    return {
        "copy_forbidden": source.copy_forbidden,
        "repaired": source.repaired,
        "attachments": _attachments(source),
        "properties": _properties(source),
    }


def _attachments(source: PdfSource) -> list[dict[str, Any]]:
    import pypdfium2 as pdfium
    from docvortex.document.pdf.pdfium import pdfium_guard

    found = []
    with pdfium_guard():
        for index in range(source.pdf.count_attachments()):
            item = {"name": f"attachment-{index + 1}", "size": 0}
            found.append(item)
            with contextlib.suppress(pdfium.PdfiumError):  # an empty file has no data
                attachment = source.pdf.get_attachment(index)
                item["name"] = _decoded(attachment.get_name()) or item["name"]
                item["size"] = len(attachment.get_data())
    return found


def _decoded(name: str) -> str:
    """A file name that was written as UTF-16 where the standard wants bytes."""
    if not name.startswith("\xfe\xff"):
        return name
    try:
        return name[2:].encode("latin-1").decode("utf-16-be")
    except ValueError:
        return name


def _properties(source: PdfSource) -> dict[str, Any]:
    from docvortex.document.pdf.pdfium import pdfium_guard

    with pdfium_guard():
        meta = source.pdf.get_metadata_dict(skip_empty=True)
    properties: dict[str, Any] = {"page_count": source.page_count, "page_count_kind": "physical"}
    names = {
        "Title": "title",
        "Subject": "subject",
        "Creator": "creator_application",
        "Producer": "producer_application",
    }
    properties.update({names[key]: value for key, value in meta.items() if key in names and value.strip()})
    if meta.get("Author", "").strip():
        properties["authors"] = [meta["Author"]]
    return properties


def save_attachment(source: dict[str, Any], index: int, target: str) -> int:
    """Write one attached file to ``target``; returns its size in bytes."""
    import pypdfium2 as pdfium
    from docvortex.document.pdf.pdfium import pdfium_guard

    pdf = cast(PdfSource, open_source(SourceSpec(**source)))
    with pdfium_guard():
        try:
            data = bytes(pdf.pdf.get_attachment(index).get_data())
        except pdfium.PdfiumError as exc:
            raise DamagedDocumentError("the attached file is empty or damaged") from exc
    return Path(target).write_bytes(data)


def analyze_window(source: dict[str, Any], pages: list[int], ocr_mode: str, reads_images: bool) -> list[dict[str, Any]]:
    """Judge every page's text layer and analyse those that have a good one, together.

    :param pages: increasing page indices.
    :param reads_images: pages whose text layer is doubtful can be read by OCR instead.
    :return: one item a page: ``index``, ``size`` (points), ``layer``, ``blocks`` (``None`` when the page must be
        read another way), ``chars``, ``problem``.
    """
    document = open_source(SourceSpec(**source))
    wanted = _native_layers(ocr_mode, reads_images)
    items = [judge_page(document, index) for index in pages]
    native = [item["index"] for item in items if item["layer"] in wanted]
    blocks = analyze_native(cast(PdfSource, document), native) if native else {}
    for item in items:
        text, index = item.pop("text"), item["index"]
        if index in blocks:
            mend_page(cast(PdfSource, document), index, text, blocks[index])
        item["blocks"] = [] if item["layer"] is TextLayer.BLANK else blocks.get(index)
    return items


def _native_layers(ocr_mode: str, reads_images: bool) -> set[TextLayer]:
    if ocr_mode == "ocr" and reads_images:
        return set()
    if ocr_mode == "auto" and reads_images:
        return {TextLayer.GOOD}
    return {TextLayer.GOOD, TextLayer.GARBLED}


def judge_page(document: PageSource, index: int, *, use_layer: bool = True) -> dict[str, Any]:
    """What is on one page: ``index``, ``size`` (points), ``layer``, ``chars``, ``problem`` and, of PDFs, ``text``.

    :param use_layer: whether a text layer is of interest; else none is looked for.
    """
    item: dict[str, Any] = {"index": index, "size": None, "layer": None, "chars": 0, "problem": None, "text": ""}
    try:
        if not use_layer or not isinstance(document, PdfSource):
            item["size"], item["layer"] = document.page_size(index), TextLayer.NONE
            return item
        with document.page(index) as page:
            item["size"] = checked_size(page.get_size(), index)
            evidence = read_evidence(page)
    except MineruError as exc:
        item["problem"] = exc.message
        return item
    item["layer"], item["chars"] = judge(evidence), len("".join(evidence.text.split()))
    item["text"] = evidence.text
    return item


def read_page(source: dict[str, Any], page: int, how: str, threads: int, first: bool) -> dict[str, Any]:
    """Read one page that native analysis does not read.

    :param how: ``ocr`` (layout model and OCR), ``layer`` (layout model, text of the file's OCR layer) or
        ``plain`` (text layer in simple reading order, no model).
    :param first: the page may carry the document's title.
    :return: ``blocks``; ``score``, the mean confidence of what was recognised (1.0 for text layers); ``chars``.
    """
    document = open_source(SourceSpec(**source))
    size = document.page_size(page)
    if how == "plain":
        found = layer_lines(cast(PdfSource, document), page)
        blocks = _assemble_plain(size, found, first)
        return {"blocks": blocks, "score": 1.0, "chars": sum(len(line.text) for line in found)}
    from mineru_engine.pdf.scan import read_scan_page

    lines = layer_lines(cast(PdfSource, document), page) if how == "layer" else None
    pixels = document.render(page, scan_long_side(size))
    result = read_scan_page(pixels, lines, threads=threads, first_page=first)
    return {"blocks": result.blocks, "score": result.score, "chars": result.chars}


def scan_long_side(size: tuple[float, float]) -> int:
    """Pixels for the longer side: 200 dpi, within what the OCR model can use."""
    return round(min(_MAX_SCAN_SIDE, max(_MIN_SCAN_SIDE, max(size) * _SCAN_DPI / 72)))


def _assemble_plain(size: tuple[float, float], lines: list[TextLine], first: bool) -> list[dict[str, Any]]:
    if len(lines) > _MAX_ASSEMBLED_LINES:
        return text_blocks(lines)
    import numpy as np

    from mineru_engine.pdf.assemble import assemble_page

    width, height = size
    paper = np.full((1000, max(1, min(10_000, round(1000 * width / height))), 3), 255, dtype=np.uint8)
    blocks: list[dict[str, Any]] = assemble_page(paper, [], lines, first_page=first)
    return blocks


def analyze_file(path: str, suffix: str, local: bool) -> dict[str, Any]:
    """Analyse a document that docvortex reads natively as a whole (office, e-book, web, OFD, CSV).

    :param local: the file lies where the user put it, so pictures beside an HTML page may be read.
    :return: ``pages``, ``extensions``, ``document`` (properties) and ``diagnostics``.
    :raises DamagedDocumentError: if the format's reader refuses it.
    """
    from docvortex import analyze
    from docvortex.errors import DocumentError, InvalidRequestError

    file = Path(path)
    try:
        analysis = analyze(file if local else file.read_bytes(), file_suffix=suffix)
    except InvalidRequestError as exc:
        raise OptionError(exc.message) from exc
    except DocumentError as exc:
        raise DamagedDocumentError(exc.message) from exc
    except READER_ERRORS as exc:
        raise DamagedDocumentError(f"the {suffix} file is damaged ({type(exc).__name__})") from exc
    model = analysis.model_json
    document = model.metadata.document
    return {
        "pages": model.pages,
        "extensions": model.extensions,
        "document": document.to_dict() if document is not None else None,
        "diagnostics": [(item.code, item.message, item.page_index) for item in analysis.diagnostics],
    }


def draw_layout(source: dict[str, Any], middle: dict[str, Any], target: str) -> None:
    """Write a PDF of the pages with every block outlined, typed and numbered in reading order."""
    from docvortex.schema import MiddleJson
    from docvortex.visualization import render_layout_pdf

    document = open_source(SourceSpec(**source))
    data = document.data if isinstance(document, PdfSource) else _images_as_pdf(cast(ImageSource, document))
    Path(target).write_bytes(render_layout_pdf(data, MiddleJson.from_dict(middle).pages))


def page_image(
    path: str, key: str, name: str, password: str | None, page: int, width: int, image_format: str
) -> dict[str, str]:
    """Draw a page to look at.

    :param width: pixels; less where an image has fewer, or where the page is very long.
    :return: ``data`` (base64) and ``media_type``.
    :raises OptionError: if there is no such page, or the format has no pages.
    """
    detected = detect(Path(path), name)
    if detected.kind == "native":
        raise OptionError(f"a {detected.suffix} document has no pages to draw", document=name)
    document = open_source(SourceSpec(path, key, detected.kind, password))
    if not 0 <= page < document.page_count:
        raise OptionError(
            f"there is no page {page + 1} of {document.page_count}", code=ErrorCode.PAGE_RANGE_INVALID, document=name
        )
    across, down = document.page_size(page)
    pixels = document.render(page, max(1, round(min(_MAX_SHOWN_SIDE, width * max(1.0, down / across)))))
    image = encode_image(pixels, ImageFormat(image_format))
    return {"data": image.data, "media_type": image.media_type}


def _images_as_pdf(document: ImageSource) -> bytes:
    import io

    from PIL import Image

    pages = [Image.fromarray(document.render(index, 2000)) for index in range(document.page_count)]
    out = io.BytesIO()
    pages[0].save(out, format="PDF", save_all=True, append_images=pages[1:], resolution=200)
    return out.getvalue()
