"""From raw blocks to the document protocol: docvortex's ``ModelJson`` and ``MiddleJson``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mineru_engine.pdf.continuity import as_plain_text, plain_text
from mineru_engine.version import __version__

if TYPE_CHECKING:
    from docvortex.schema import MiddleJson, ModelJson

    from mineru_engine.pdf.pipeline import PageReading
    from mineru_engine.spool import ImageSpool

__all__ = ("Protocol", "layout_extension", "with_inline_images")

_PROTOCOL_ERRORS = (ValueError, TypeError, KeyError, AttributeError, IndexError)  # pydantic's are ValueErrors


@dataclass(slots=True)
class Protocol:
    """Builds the two protocol objects; called on a thread because large documents take a while.

    :ivar simplified: indices into ``pages`` of those whose blocks broke the protocol's rules and were reduced to
        plain text.
    """

    suffix: str
    pages: list[list[dict[str, Any]]]
    index_map: list[int]
    extensions: dict[str, Any]
    properties: dict[str, Any] | None
    simplified: list[int] = field(default_factory=list)

    def __call__(self) -> tuple[MiddleJson, ModelJson]:
        from mineru_engine.quiet import quiet

        quiet("docvortex")
        try:
            return self._convert(self.pages, self.index_map)
        except _PROTOCOL_ERRORS:
            self._simplify_bad_pages()
            return self._convert(self.pages, self.index_map)

    def _convert(self, pages: list[list[dict[str, Any]]], index_map: list[int]) -> tuple[MiddleJson, ModelJson]:
        from docvortex.postprocess.document import model_json_to_middle_json
        from docvortex.schema import DocumentMetadata, DocumentProperties, ModelJson, Producer

        document = DocumentProperties(**self.properties) if self.properties else None
        metadata = DocumentMetadata(
            file_suffix=self.suffix, producer=Producer(name="mineru", version=__version__), document=document
        )
        model = ModelJson(pages=pages, page_index_map=index_map, metadata=metadata, extensions=self.extensions)
        return model_json_to_middle_json(model), model

    def _simplify_bad_pages(self) -> None:
        """One page that breaks a rule must not cost the document: find it and keep its text."""
        for index, blocks in enumerate(self.pages):
            try:
                self._convert([blocks], [])
            except _PROTOCOL_ERRORS:
                self.pages[index] = [as_plain_text(block) for block in blocks if plain_text(block).strip()]
                self.simplified.append(index)


def layout_extension(readings: list[PageReading]) -> dict[str, Any]:
    """Page sizes, in docvortex's layout extension version 1."""
    pages = [
        {"page_idx": reading.index, "width_pt": reading.size[0], "height_pt": reading.size[1]}
        for reading in readings
        if reading.size is not None
    ]
    return {"version": 1, "pages": pages}


def with_inline_images(middle: MiddleJson, model: ModelJson, images: ImageSpool) -> tuple[MiddleJson, ModelJson]:
    """Pictures back into the documents, for callers that get no files."""

    def restore(value: Any) -> None:
        if isinstance(value, dict):
            path = value.get("image_path")
            if isinstance(path, str) and path in images:
                value["image_base64"] = images.data_uri(path)
                value["image_path"] = None
            for child in value.values():
                restore(child)
        elif isinstance(value, list):
            for child in value:
                restore(child)

    restore(model.pages)
    content = middle.to_dict()
    restore(content["pages"])
    return type(middle).from_dict(content), model
