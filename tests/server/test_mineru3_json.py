"""The JSON of MinerU 3.x, made from docvortex's."""

from __future__ import annotations

from typing import Any

from mineru_engine.server.mineru3_json import content_list_v2, content_list_v3, middle_v3

BOX = [0.1, 0.2, 0.5, 0.4]
IN_POINTS = [60, 160, 300, 320]


def _text(content: str) -> list[dict[str, Any]]:
    return [{"type": "text", "content": content}]


def _middle(*blocks: dict[str, Any]) -> dict[str, Any]:
    layout = {"pages": [{"page_idx": 3, "width_pt": 600.2, "height_pt": 800.9}]}
    return {"pages": [{"page_idx": 3, "blocks": list(blocks)}], "extensions": {"docvortex_layout": layout}}


def _only(block: dict[str, Any]) -> dict[str, Any]:
    (made,) = middle_v3(_middle(block), "vlm")["pdf_info"][0]["para_blocks"]
    return dict(made)


def test_page() -> None:
    text = {"type": "text", "index": 1, "bbox": BOX, "content": _text("words"), "continues_prev": True}
    footer = {"type": "footer", "index": 2, "bbox": BOX, "content": _text("7")}
    made = middle_v3(_middle(text, footer), "pipeline", 3)
    assert (made["_backend"], set(made)) == ("pipeline", {"pdf_info", "_backend", "_version_name"})
    (page,) = made["pdf_info"]
    assert (page["page_size"], page["page_idx"]) == ([600, 800], 0)
    (block,) = page["para_blocks"]
    span = {"type": "text", "content": "words", "bbox": IN_POINTS}
    assert block == {
        "type": "text",
        "bbox": IN_POINTS,
        "index": 1,
        "merge_prev": True,
        "lines": [{"bbox": IN_POINTS, "spans": [span]}],
    }
    assert page["preproc_blocks"] == page["para_blocks"]
    assert [discarded["type"] for discarded in page["discarded_blocks"]] == ["footer"]


def test_spans_lose_what_3_x_has_no_place_for() -> None:
    link = {"type": "hyperlink", "url": "https://example.org", "content": _text("there")}
    content = [
        *_text("see "),
        link,
        {"type": "equation_inline", "content": "x^2"},
        {"type": "code_inline", "content": "y"},
    ]
    block = _only({"type": "paragraph_title", "level": 2, "index": 0, "bbox": BOX, "content": content})
    assert (block["type"], block["level"]) == ("title", 2)
    spans = [(span["type"], span["content"]) for span in block["lines"][0]["spans"]]
    assert spans == [("text", "see "), ("text", "there"), ("inline_equation", "x^2"), ("text", "y")]


def test_table_with_caption_and_pictures_in_it() -> None:
    table = {
        "type": "table",
        "index": 4,
        "bbox": BOX,
        "content": [
            {"type": "table_caption", "index": 3, "content": _text("Table 1")},
            {
                "type": "table_body",
                "index": 4,
                "bbox": BOX,
                "image_path": "images/t.jpg",
                "content": '<table><tr><td colspan="2"><img src="images/i.jpg"/></td></tr></table>',
            },
        ],
    }
    block = _only(table)
    caption, body = block["blocks"]
    assert caption["bbox"] == IN_POINTS  # its own is not known
    span = body["lines"][0]["spans"][0]
    assert (span["type"], span["image_path"]) == ("table", "t.jpg")
    assert 'src="i.jpg"' in span["html"]
    ((item,),) = content_list_v2(middle_v3(_middle(table), "vlm"))
    assert item["bbox"] == [100, 200, 500, 400]
    assert item["content"]["table_caption"] == _text("Table 1")
    assert item["content"]["table_type"] == "complex_table"
    assert item["content"]["image_source"] == {"path": "images/t.jpg"}
    assert 'src="images/i.jpg"' in item["content"]["html"]


def test_nested_list_becomes_flat() -> None:
    inner = {"type": "list", "content": [{"type": "text", "content": _text("b")}]}
    outer = {"type": "list", "bbox": BOX, "content": [{"type": "text", "content": _text("a")}, inner]}
    block = _only(outer)
    assert [part["lines"][0]["spans"][0]["content"] for part in block["blocks"]] == ["a", "b"]
    assert [line["is_list_start_line"] for line in block["lines"]] == [True, True]
    ((item,),) = content_list_v2(middle_v3(_middle(outer), "vlm"))
    assert item["content"]["list_type"] == "text_list"
    assert [entry["item_content"] for entry in item["content"]["list_items"]] == [_text("a"), _text("b")]


def test_code_and_algorithm() -> None:
    body = {"type": "code_body", "content": "x = 1"}
    code = {"type": "code", "sub_type": "code", "guess_lang": "python", "bbox": BOX, "content": [body]}
    spans = {"type": "algorithm_body", "content": [*_text("for "), {"type": "equation_inline", "content": "i"}]}
    algorithm = {"type": "code", "sub_type": "algorithm", "bbox": BOX, "content": [spans]}
    ((first, second),) = content_list_v2(middle_v3(_middle(code, algorithm), "vlm"))
    assert (first["type"], first["content"]["code_language"]) == ("code", "python")
    assert first["content"]["code_content"] == _text("x = 1")
    assert (second["type"], len(second["content"]["algorithm_content"])) == ("algorithm", 2)


def test_documents_without_places_have_no_boxes() -> None:
    middle = {"pages": [{"page_idx": 0, "blocks": [{"type": "text", "content": _text("words")}]}]}
    made = middle_v3(middle, "office")
    (block,) = made["pdf_info"][0]["para_blocks"]
    assert "bbox" not in block
    assert content_list_v2(made) == [[{"type": "paragraph", "content": {"paragraph_content": _text("words")}}]]


def test_content_list_counts_pages_from_the_first_one_and_marks_formulas() -> None:
    items = [
        {"type": "equation", "text": "x^2", "text_format": "latex", "page_idx": 4},
        {"type": "equation", "img_path": "images/e.jpg", "page_idx": 5},
        {"type": "text", "text": "words", "page_idx": 5},
    ]
    assert content_list_v3(items, 4) == [
        {"type": "equation", "text": "$$\nx^2\n$$", "text_format": "latex", "page_idx": 0},
        {"type": "equation", "img_path": "images/e.jpg", "page_idx": 1},
        {"type": "text", "text": "words", "page_idx": 1},
    ]
