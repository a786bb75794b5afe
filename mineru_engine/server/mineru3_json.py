"""The JSON files of MinerU 3.x, made from docvortex's ``MiddleJson`` 2.0.

``middle_json``: ``{pdf_info: [page], _backend, _version_name}``; a page is ``para_blocks``, ``preproc_blocks`` (the
same), ``discarded_blocks``, ``page_size`` (points) and ``page_idx``. What 2.0 does not know cannot be there: a block
has one line with the block's own ``bbox``, however many it has in print; spans have no ``score``; there are no
``cross_page`` and ``lines_deleted`` marks, a paragraph that goes on stays a block of its own with ``merge_prev``.
Styles and the targets of links are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mineru_engine.version import __version__

__all__ = ("content_list_v2", "content_list_v3", "middle_v3")

_Json = dict[str, Any]

_DISCARDED = {"header", "footer", "page_number", "aside_text", "page_footnote"}
_TYPES = {"doc_title": "title", "paragraph_title": "title", "equation": "interline_equation"}
_UNKNOWN_SIZE = (1000, 1000)


def middle_v3(middle: Mapping[str, Any], backend: str, first_page: int = 0) -> _Json:
    """A document as ``middle_json`` of 3.x.

    :param backend: ``pipeline``, ``vlm``, ``hybrid`` or ``office``.
    :param first_page: what is page 0 for the client, who cut the document there.
    """
    layout = middle.get("extensions", {}).get("docvortex_layout", {}).get("pages", [])
    sizes = {page["page_idx"]: (int(page["width_pt"]), int(page["height_pt"])) for page in layout}
    pages = [_page(page, sizes.get(page["page_idx"], _UNKNOWN_SIZE), first_page) for page in middle["pages"]]
    return {"pdf_info": pages, "_backend": backend, "_version_name": __version__}


def content_list_v3(items: Sequence[_Json], first_page: int = 0) -> list[_Json]:
    """Our content list as that of 3.x: pages are counted from ``first_page``, formulas have their delimiters."""
    made = [{**item, "page_idx": item["page_idx"] - first_page} for item in items]
    for item in made:
        if item["type"] == "equation" and "text" in item:
            item["text"] = f"$$\n{item['text']}\n$$"
    return made


def _page(page: Mapping[str, Any], size: tuple[int, int], first_page: int) -> _Json:
    blocks = [_block(block, size) for block in page["blocks"]]
    body = [block for block in blocks if block["type"] not in _DISCARDED]
    return {
        "preproc_blocks": body,
        "para_blocks": body,
        "discarded_blocks": [block for block in blocks if block["type"] in _DISCARDED],
        "page_size": list(size),
        "page_idx": page["page_idx"] - first_page,
    }


def _block(block: Mapping[str, Any], size: tuple[int, int]) -> _Json:
    kind = block["type"]
    box = _box(block, size)
    made: _Json = {"type": _TYPES.get(kind, kind), **box, "index": block.get("index", 0)}
    for name in ("level", "sub_type", "guess_lang", "anchor"):
        if block.get(name) is not None:
            made[name] = block[name]
    if block.get("continues_prev"):
        made["merge_prev"] = True
    if kind in ("list", "index"):
        items = [_part(leaf, leaf["type"], _box(leaf, size) or box) for leaf in _leaves(block)]
        made["blocks"] = items
        made["lines"] = [{**line, "is_list_start_line": True} for item in items for line in item["lines"]]
    elif kind == "equation":
        made["lines"] = [_line([_media("interline_equation", "content", block, box)], box)]
    elif kind in ("image", "table", "chart", "code"):
        made["blocks"] = [_visual_part(child, _box(child, size) or box) for child in block["content"]]
    else:
        made["lines"] = [_line(_spans(block["content"], box), box)]
    return made


def _visual_part(child: Mapping[str, Any], box: _Json) -> _Json:
    kind = child["type"]
    if kind in ("image_body", "table_body", "chart_body"):
        content = "html" if kind == "table_body" else "content"
        lines = [_line([_media(kind.removesuffix("_body"), content, child, box)], box)]
        return {"type": kind, **box, "index": child.get("index", 0), "lines": lines}
    return _part(child, "code_body" if kind == "algorithm_body" else kind, box)


def _part(block: Mapping[str, Any], kind: str, box: _Json) -> _Json:
    content = block["content"]
    spans = [{"type": "text", "content": content, **box}] if isinstance(content, str) else _spans(content, box)
    return {"type": _TYPES.get(kind, kind), **box, "index": block.get("index", 0), "lines": [_line(spans, box)]}


def _line(spans: list[_Json], box: _Json) -> _Json:
    return {**box, "spans": spans}


def _spans(content: Sequence[Mapping[str, Any]], box: _Json) -> list[_Json]:
    spans: list[_Json] = []
    for span in content:
        if span["type"] == "hyperlink":
            spans += _spans(span["content"], box)
        else:
            kind = "inline_equation" if span["type"] == "equation_inline" else "text"
            spans.append({"type": kind, "content": span["content"], **box})
    return spans


def _media(kind: str, content: str, block: Mapping[str, Any], box: _Json) -> _Json:
    """The span of a picture; the paths of 3.x begin below ``images/``."""
    text = block["content"].strip().replace('src="images/', 'src="')
    return {"type": kind, content: text, "image_path": block.get("image_path", "").removeprefix("images/"), **box}


def _leaves(block: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for child in block["content"]:
        if child["type"] == block["type"]:
            yield from _leaves(child)
        else:
            yield child


def _box(block: Mapping[str, Any], size: tuple[int, int]) -> _Json:
    """``bbox`` in points, if the format has places."""
    bbox = block.get("bbox")
    return {"bbox": [int(edge * size[axis % 2]) for axis, edge in enumerate(bbox)]} if bbox else {}


def content_list_v2(middle: Mapping[str, Any]) -> list[list[_Json]]:
    """The ``content_list_v2`` of 3.x: for each page a list of ``{type, content, bbox}``.

    :param middle: from :func:`middle_v3`.
    """
    return [
        [_item(block, page["page_size"]) for block in (*page["para_blocks"], *page["discarded_blocks"])]
        for page in middle["pdf_info"]
    ]


def _item(block: _Json, size: Sequence[int]) -> _Json:
    kind = block["type"]
    if kind in _DISCARDED:
        name = kind if kind.startswith("page_") else f"page_{kind}"
        item = {"type": name, "content": {f"{name}_content": _inline(block)}}
    elif kind == "title":
        item = {"type": "title", "content": {"title_content": _inline(block), "level": min(block.get("level", 1), 4)}}
    elif kind == "interline_equation":
        item = {"type": "equation_interline", "content": _equation(block)}
    elif kind in ("image", "table", "chart"):
        item = {"type": kind, "content": _figure(block, kind)}
    elif kind == "code":
        item = _listing(block)
    elif kind in ("list", "index", "ref_text"):
        item = {"type": "index" if kind == "index" else "list", "content": _list_items(block)}
    else:
        item = {"type": "paragraph", "content": {"paragraph_content": _inline(block)}}
    if kind in ("image", "chart") and "sub_type" in block:
        item["sub_type"] = block["sub_type"]
    if "bbox" in block:
        item["bbox"] = [int(edge * 1000 / size[axis % 2]) for axis, edge in enumerate(block["bbox"])]
    return item


def _inline(block: _Json) -> list[_Json]:
    names = {"inline_equation": "equation_inline"}
    return [
        {"type": names.get(span["type"], "text"), "content": span["content"]}
        for line in block["lines"]
        for span in line["spans"]
    ]


def _equation(block: _Json) -> _Json:
    span = block["lines"][0]["spans"][0]
    return {"math_content": span["content"], "math_type": "latex", "image_source": _source(span)}


def _source(span: _Json) -> _Json:
    return {"path": f"images/{span['image_path']}" if span["image_path"] else ""}


def _notes(block: _Json, kind: str) -> list[_Json]:
    return [span for part in block["blocks"] if part["type"] == kind for span in _inline(part)]


def _figure(block: _Json, kind: str) -> _Json:
    span = next(part for part in block["blocks"] if part["type"] == f"{kind}_body")["lines"][0]["spans"][0]
    notes = {f"{kind}_{name}": _notes(block, f"{kind}_{name}") for name in ("caption", "footnote")}
    if kind != "table":
        return {"image_source": _source(span), "content": span["content"], **notes}
    html = span["html"].replace('src="', 'src="images/')
    nested = html.count("<table") > 1
    return {
        "image_source": _source(span),
        **notes,
        "html": html,
        "table_type": "complex_table" if nested or "colspan" in html or "rowspan" in html else "simple_table",
        "table_nest_level": 2 if nested else 1,
    }


def _listing(block: _Json) -> _Json:
    kind = block.get("sub_type", "code")
    content = {f"{kind}_caption": _notes(block, "code_caption"), f"{kind}_content": _notes(block, "code_body")}
    if kind == "code":
        content["code_language"] = block.get("guess_lang", "txt")
    return {"type": kind, "content": content}


def _list_items(block: _Json) -> _Json:
    references = block["type"] == "ref_text" or block.get("sub_type") == "ref_text"
    items = [_inline(part) for part in block.get("blocks", [block])]
    return {
        "list_type": "reference_list" if references else "text_list",
        "list_items": [{"item_type": "text", "item_content": item} for item in items if item],
    }
