"""MinerU's flat ``content_list``: one dictionary per block, in reading order.

Every item has ``type``, ``page_idx`` and, where the format has geometry, ``bbox`` (integers, 0 to 1000).
A block that continues the one before it (over a page or column break) stays an item of its own, with its
own place, and carries ``continues_prev: true``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docvortex.options import LatexDelimitersConfig
    from docvortex.schema import BBox, BlockBase, InlineSpan, MiddleJson

__all__ = ("content_list",)

_Item = dict[str, Any]


def content_list(middle: MiddleJson) -> list[_Item]:
    """The document as a list of plain dictionaries, ready for JSON."""
    items: list[_Item] = []
    for page in middle.pages:
        for run in _runs(page.blocks):
            item = _references(run) if len(run) > 1 or _kind(run[0]) == "ref_text" else _MAKERS[_kind(run[0])](run[0])
            if getattr(run[0], "continues_prev", None):
                item["continues_prev"] = True
            bbox = _union([block.bbox for block in run if block.bbox is not None])
            if bbox is not None:
                item["bbox"] = bbox
            item["page_idx"] = page.page_idx
            items.append(item)
    return items


def _runs(blocks: Sequence[BlockBase]) -> Iterator[list[Any]]:
    """Blocks one by one; neighbouring references together."""
    references: list[BlockBase] = []
    for block in blocks:
        if _kind(block) == "ref_text":
            references.append(block)
            continue
        if references:
            yield references
            references = []
        yield [block]
    if references:
        yield references


def _union(boxes: Sequence[BBox]) -> list[int] | None:
    if not boxes:
        return None
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return [int(edge * 1000) for edge in (min(x0), min(y0), max(x1), max(y1))]


def _kind(block: BlockBase) -> str:
    return str(block.type)


@cache
def _delimiters() -> LatexDelimitersConfig:
    from docvortex.options import LatexDelimitersConfig

    return LatexDelimitersConfig()


def _inline(content: list[InlineSpan]) -> str:
    from docvortex.render.fragments import render_inline_content

    text: str = render_inline_content(content, _delimiters())
    return text


def _markup(content: str) -> str:
    from docvortex.render.fragments import format_embedded_html

    if not content:
        return ""
    text: str = format_embedded_html(content, asset_base_url="", delimiters=_delimiters())
    return text.strip()


def _image_path(block: Any) -> str:
    from docvortex.render.fragments import normalize_image_source, resolve_image_source

    source = resolve_image_source(block)
    return str(normalize_image_source(source)) if source else ""


def _leaves(block: Any, depth: int = 0) -> Iterator[tuple[Any, int]]:
    """Leaves of a nested list or table of contents, with their depth."""
    for child in block.content:
        if child.type == block.type:
            yield from _leaves(child, depth + 1)
        else:
            yield child, depth


def _body(block: Any) -> Any:
    return next(child for child in block.content if _kind(child).endswith("_body"))


def _notes(block: Any, suffix: str) -> list[str]:
    """Captions or footnotes of a figure, table, chart or listing, in order of their index."""
    found = [child for child in block.content if _kind(child).endswith(suffix)]
    found.sort(key=lambda child: (child.index is None, child.index or 0))
    return [_inline(child.content) for child in found]


def _text(block: Any) -> _Item:
    return _anchored(block, {"type": "text", "text": _inline(block.content)})


def _title(block: Any) -> _Item:
    return _anchored(block, {"type": "text", "text": _inline(block.content), "text_level": block.level})


def _auxiliary(block: Any) -> _Item:
    return _anchored(block, {"type": _kind(block), "text": _inline(block.content)})


def _anchored(block: Any, item: _Item) -> _Item:
    anchor = (getattr(block, "anchor", None) or "").strip()
    if anchor:
        item["anchor"] = anchor
    return item


def _references(run: Sequence[Any]) -> _Item:
    return {"type": "list", "sub_type": "ref_text", "list_items": [_inline(b.content) for b in run if b.content]}


def _list(block: Any) -> _Item:
    items = [_inline(leaf.content) for leaf, _ in _leaves(block) if leaf.content]
    return {"type": "list", "sub_type": str(block.sub_type or "text"), "list_items": items}


def _index(block: Any) -> _Item:
    from docvortex.render.fragments import render_internal_link, strip_index_page_tail

    items = []
    for leaf, depth in _leaves(block):
        label = _inline(strip_index_page_tail(leaf.content)).strip()
        if label:
            label = render_internal_link(label, leaf.anchor) if leaf.anchor else label
            items.append(f"{'    ' * depth}- {label}")
    return {"type": "index", "list_items": items}


def _equation(block: Any) -> _Item:
    item = {"type": "equation", "img_path": _image_path(block)}
    latex = block.content.strip()
    return item | {"text": latex, "text_format": "latex"} if latex else item


def _figure(block: Any) -> _Item:
    kind, body = _kind(block), _body(block)
    item = {
        "type": kind,
        "img_path": _image_path(body),
        f"{kind}_caption": _notes(block, "_caption"),
        f"{kind}_footnote": _notes(block, "_footnote"),
    }
    content = _markup(body.content)
    if content or kind == "chart":
        item["content"] = content
    if block.sub_type:
        item["sub_type"] = block.sub_type
    return item


def _table(block: Any) -> _Item:
    body = _body(block)
    item = {
        "type": "table",
        "img_path": _image_path(body),
        "table_caption": _notes(block, "_caption"),
        "table_footnote": _notes(block, "_footnote"),
    }
    markup = _markup(body.content)
    if markup:
        item["table_body"] = markup
    return item


def _code(block: Any) -> _Item:
    body = _body(block)
    item = {
        "type": "code",
        "sub_type": str(block.sub_type),
        "code_body": body.content if isinstance(body.content, str) else _inline(body.content),
        "code_caption": _notes(block, "_caption"),
        "code_footnote": _notes(block, "_footnote"),
    }
    if block.guess_lang:
        item["guess_lang"] = block.guess_lang
    return item


_MAKERS: dict[str, Callable[[Any], _Item]] = {
    "text": _text,
    "doc_title": _title,
    "paragraph_title": _title,
    "header": _auxiliary,
    "footer": _auxiliary,
    "page_number": _auxiliary,
    "aside_text": _auxiliary,
    "page_footnote": _auxiliary,
    "equation": _equation,
    "list": _list,
    "index": _index,
    "image": _figure,
    "chart": _figure,
    "table": _table,
    "code": _code,
}
