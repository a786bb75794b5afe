"""Small results made by hand, for tests that need no parser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docvortex.schema import DocumentMetadata, MiddleJson, ModelJson, Producer

from mineru_engine import Attachment, Diagnostic, PageKind, ParseResult

IMAGE = "images/" + "ab" * 32 + ".png"
PIXEL = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00:~\x9bU"
    b"\x00\x00\x00\nIDATx\x9cc`\x00\x00\x00\x02\x00\x01H\xaf\xa4q\x00\x00\x00\x00IEND\xaeB`\x82"
)


def listing(directory: Path | str) -> list[str]:
    """Names in a directory, hidden ones too. ``.ses`` is what onnxruntime leaves in the temporary directory."""
    return sorted(path.name for path in Path(directory).iterdir() if path.name != ".ses")


def spans(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "content": text}]


def block(kind: str, index: int, content: Any, **more: Any) -> dict[str, Any]:
    top = 0.05 * index
    return {"type": kind, "index": index, "bbox": [0.1, top, 0.9, top + 0.04], "content": content, **more}


def middle(*pages: list[dict[str, Any]]) -> MiddleJson:
    return MiddleJson.from_dict(
        {
            "schema": "docvortex.middle",
            "schema_version": "2.0",
            "metadata": {"file_suffix": "pdf", "producer": {"name": "test", "version": "1"}},
            "is_full_document": True,
            "pages": [{"page_idx": number, "blocks": blocks} for number, blocks in enumerate(pages)],
        }
    )


def result(
    name: str = "x.pdf",
    text: str = "Hello world.",
    *,
    lost: bool = False,
    attachments: tuple[Attachment, ...] = (),
    sha256: str = "0" * 64,
) -> ParseResult:
    """One page: a title, a paragraph and a picture; a second, lost page if asked."""
    figure = block("image", 3, [])
    body = {"type": "image_body", "index": 3, "bbox": figure["bbox"], "content": "", "image_path": IMAGE}
    figure["content"] = [body]
    first = [block("doc_title", 1, spans("A title"), level=1), block("text", 2, spans(text)), figure]
    metadata = DocumentMetadata(file_suffix="pdf", producer=Producer(name="test", version="1"))
    kinds = {0: PageKind.NATIVE} | ({1: PageKind.LOST} if lost else {})
    notices = [Diagnostic("page_lost", "the page could not be read", 1)] if lost else []
    return ParseResult(
        name=name,
        middle_json=middle(first, *([[]] if lost else [])),
        model_json=ModelJson(pages=[], page_index_map=[], metadata=metadata),
        assets={IMAGE: PIXEL},
        tier="flash",
        engine="native",
        ocr_mode="auto",
        versions={"mineru": "0"},
        page_kinds=kinds,
        diagnostics=notices,
        attachments=attachments,
        source_sha256=sha256,
        source_bytes=3,
        seconds=0.5,
    )
