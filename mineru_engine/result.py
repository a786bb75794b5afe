"""What comes out of a parse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docvortex.schema import MiddleJson, ModelJson

__all__ = ("Attachment", "Diagnostic", "OutputFormat", "PageKind", "ParseResult", "ParseStatus")


class ParseStatus(StrEnum):
    """Outcome of a document that gave a result."""

    SUCCESS = "success"
    PARTIAL = "partial"  # some page was lost; the diagnostics say which and why


class PageKind(StrEnum):
    """How the text of one page was obtained."""

    NATIVE = "native"  # text layer and vector tables
    OCR = "ocr"  # image, read by OCR
    OCR_LAYER = "ocr_layer"  # image, text taken from the OCR layer the file carries
    VLM = "vlm"  # read with a vision-language model
    PLAIN = "plain"  # text layer in simple reading order, after analysis failed
    BLANK = "blank"  # nothing on it
    PICTURE = "picture"  # could not be read, kept as a picture
    LOST = "lost"  # could not be read


class OutputFormat(StrEnum):
    """What :meth:`ParseResult.save` can write."""

    MD = "md"
    JSON = "json"
    CONTENT_LIST = "content-list"
    HTML = "html"
    LATEX = "latex"
    DOCX = "docx"
    EPUB = "epub"
    PDF = "pdf"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Something a reader of the result should know: a lost page, a notice, a fallback taken.

    :ivar code: stable identifier.
    :ivar page: zero-based page index, or ``None`` for the document.
    """

    code: str
    message: str
    page: int | None = None

    def to_dict(self) -> dict[str, object]:
        """The diagnostic as plain JSON values."""
        return {"code": self.code, "message": self.message, "page": self.page}


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that travels inside the document; ``result`` is set when it was parsed too.

    :ivar size: bytes.
    """

    name: str
    size: int
    result: ParseResult | None = None


@dataclass(slots=True)
class ParseResult:
    """One parsed document, independent of its source file.

    :ivar name: file name of the document.
    :ivar middle_json: the semantic document (docvortex protocol 2.0).
    :ivar model_json: the raw analysis it was made from.
    :ivar assets: relative path (``images/<sha256>.jpg``) → bytes.
    :ivar page_kinds: zero-based page index → how it was read; empty for formats without pages.
    :ivar engine: what ran: ``native``, ``onnx``, or the VLM engine's name.
    :ivar model: name of the vision-language model, empty without one.
    :ivar options: :meth:`ParseOptions.fingerprint` of the parse.
    :ivar seconds: wall time from call to result.
    """

    name: str
    middle_json: MiddleJson
    model_json: ModelJson
    assets: Mapping[str, bytes]
    tier: str
    engine: str
    ocr_mode: str
    versions: Mapping[str, str]
    page_kinds: Mapping[int, PageKind] = field(default_factory=dict)
    diagnostics: Sequence[Diagnostic] = ()
    attachments: Sequence[Attachment] = ()
    source_sha256: str = ""
    source_bytes: int = 0
    options: Mapping[str, object] = field(default_factory=dict)
    seconds: float = 0.0
    model: str = ""

    @property
    def status(self) -> ParseStatus:
        """``partial`` when a page could not be read."""
        lost = {PageKind.LOST, PageKind.PICTURE} & set(self.page_kinds.values())
        return ParseStatus.PARTIAL if lost else ParseStatus.SUCCESS

    @property
    def page_count(self) -> int:
        """Pages in the result (logical pages for formats without physical ones)."""
        return len(self.middle_json.pages)

    def markdown(self) -> str:
        """The document as Markdown; images are referred to by their path in :attr:`assets`."""
        from docvortex.render import render_markdown

        text: str = render_markdown(self.middle_json)
        return text

    def content_list(self) -> list[dict[str, Any]]:
        """The document as MinerU's flat ``content_list``."""
        from mineru_engine.content_list import content_list

        return content_list(self.middle_json)

    def export(self, output_format: OutputFormat | str) -> bytes:
        """The document in another format, as one file. Formats with pictures inside embed them.

        :raises OptionError: if the format is unknown.
        """
        from mineru_engine.output import render

        return render(self, OutputFormat(output_format))

    def save(
        self,
        directory: Path | str,
        formats: Sequence[OutputFormat | str] = (OutputFormat.MD, OutputFormat.JSON, OutputFormat.CONTENT_LIST),
        *,
        overwrite: bool = False,
        extra_files: Mapping[str, bytes] | None = None,
    ) -> list[Path]:
        """Write ``directory/<stem>/<stem>.md`` and its siblings; all of them or none.

        :param extra_files: further files by relative path, written with the rest.
        :raises OutputError: if the place exists (without ``overwrite``) or cannot be written.
        """
        from mineru_engine.output import save

        chosen = [OutputFormat(item) for item in formats]
        return save(self, Path(directory), chosen, overwrite=overwrite, extra_files=extra_files or {})
