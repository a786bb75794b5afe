"""The flat content_list: types and field names that MinerU's users rely on."""

from __future__ import annotations

import json

import pytest
from fake_documents import IMAGE, block, middle, spans

from mineru_engine.content_list import content_list


def one(kind: str, content: object, **more: object) -> dict[str, object]:
    (item,) = content_list(middle([block(kind, 1, content, **more)]))
    assert item.pop("bbox") == [100, 50, 900, 90]
    assert item.pop("page_idx") == 0
    return item


def figure(kind: str, content: str, path: str | None = IMAGE, **more: object) -> dict[str, object]:
    where = block("text", 1, "")["bbox"]
    body = {"type": f"{kind}_body", "index": 1, "bbox": where, "content": content}
    if path:
        body["image_path"] = path
    notes = [
        {"type": f"{kind}_footnote", "index": 4, "content": spans("note")},
        {"type": f"{kind}_caption", "index": 3, "content": spans("second")},
        {"type": f"{kind}_caption", "index": 2, "content": spans("first")},
    ]
    return one(kind, [notes[0], body, *notes[1:]], **more)


def test_text_and_titles() -> None:
    assert one("text", spans("words")) == {"type": "text", "text": "words"}
    assert one("doc_title", spans("top"), level=1) == {"type": "text", "text": "top", "text_level": 1}
    assert one("paragraph_title", spans("sub"), level=3, anchor=" a ") == {
        "type": "text",
        "text": "sub",
        "text_level": 3,
        "anchor": "a",
    }


@pytest.mark.parametrize("kind", ["header", "footer", "page_number", "aside_text", "page_footnote"])
def test_auxiliary_text(kind: str) -> None:
    assert one(kind, spans("words")) == {"type": kind, "text": "words"}


def test_equation() -> None:
    assert one("equation", " x^2 ") == {"type": "equation", "img_path": "", "text": "x^2", "text_format": "latex"}
    assert one("equation", " ", image_path=IMAGE) == {"type": "equation", "img_path": IMAGE}


def test_image() -> None:
    assert figure("image", "") == {
        "type": "image",
        "img_path": IMAGE,
        "image_caption": ["first", "second"],
        "image_footnote": ["note"],
    }


def test_chart_has_content_even_when_empty() -> None:
    assert figure("chart", "", path=None, sub_type="bar") == {
        "type": "chart",
        "img_path": "",
        "chart_caption": ["first", "second"],
        "chart_footnote": ["note"],
        "content": "",
        "sub_type": "bar",
    }


def test_table() -> None:
    markup = "<table><tr><td>1</td></tr></table>"
    assert figure("table", markup) == {
        "type": "table",
        "img_path": IMAGE,
        "table_caption": ["first", "second"],
        "table_footnote": ["note"],
        "table_body": markup,
    }
    assert "table_body" not in figure("table", "")


def test_code() -> None:
    item = figure("code", "print()", path=None, sub_type="code", guess_lang="python")
    assert item == {
        "type": "code",
        "sub_type": "code",
        "code_body": "print()",
        "code_caption": ["first", "second"],
        "code_footnote": ["note"],
        "guess_lang": "python",
    }


def test_algorithm() -> None:
    body = {"type": "algorithm_body", "index": 1, "content": spans("loop")}
    item = one("code", [body], sub_type="algorithm")
    assert (item["sub_type"], item["code_body"]) == ("algorithm", "loop")


def test_lists_are_flattened() -> None:
    inner = {"type": "list", "content": [{"type": "text", "content": spans("b")}]}
    item = one("list", [{"type": "text", "content": spans("a")}, inner])
    assert item == {"type": "list", "sub_type": "text", "list_items": ["a", "b"]}


def test_index_is_indented_linked_and_without_page_numbers() -> None:
    inner = {"type": "index", "content": [{"type": "text", "content": spans("Part"), "anchor": "p"}]}
    item = one("index", [{"type": "text", "content": spans("Whole\t12")}, inner])
    assert item == {"type": "index", "list_items": ["- Whole", "    - [Part](#p)"]}


def test_neighbouring_references_are_one_list() -> None:
    pages = [block("ref_text", 1, spans("[1] a")), block("ref_text", 2, spans("[2] b")), block("text", 3, spans("c"))]
    references, text = content_list(middle(pages))
    assert references == {
        "type": "list",
        "sub_type": "ref_text",
        "list_items": ["[1] a", "[2] b"],
        "bbox": [100, 50, 900, 140],
        "page_idx": 0,
    }
    assert text["text"] == "c"


def test_a_continued_paragraph_keeps_its_own_place() -> None:
    document = middle([block("text", 1, spans("It be"))], [block("text", 1, spans("gins."), continues_prev=True)])
    first, second = content_list(document)
    assert (first["page_idx"], second["page_idx"]) == (0, 1)
    assert "continues_prev" not in first
    assert second["continues_prev"] is True


def test_every_item_is_plain_json() -> None:
    document = middle([block("text", 1, spans("中文 <b> $"))], [])
    assert json.loads(json.dumps(content_list(document))) == content_list(document)
