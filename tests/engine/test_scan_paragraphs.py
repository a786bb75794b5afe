"""Lines to paragraphs."""

from __future__ import annotations

from mineru_engine.pdf.furniture import is_footnote, is_page_number, is_reference
from mineru_engine.pdf.lines import TextLine
from mineru_engine.pdf.paragraphs import Paragraph, Row, is_list_item, join_rows, split_paragraphs, starts_item

HEIGHT = 0.015
ASPECT = 0.707
EM = HEIGHT / ASPECT


def rows(*specs: tuple[float, float, str]) -> list[Row]:
    """Rows from left edge, right edge and text, two line heights apart."""
    return [
        Row((left, 0.1 + 2 * HEIGHT * i, right, 0.1 + 2 * HEIGHT * i + HEIGHT), text, HEIGHT)
        for i, (left, right, text) in enumerate(specs)
    ]


def texts(*specs: tuple[float, float, str]) -> list[str]:
    return [paragraph.text for paragraph in split_paragraphs(rows(*specs), ASPECT)]


def test_chinese_first_lines_stand_in_by_two_characters() -> None:
    found = texts(
        (0.1 + 2 * EM, 0.9, "甲方应当按期付款，逾期的应"),
        (0.1, 0.9, "当承担违约责任，并赔偿损失直至全部清偿为止。"),
        (0.1 + 2 * EM, 0.9, "乙方应当按期交货，逾期的应"),
        (0.1, 0.5, "当承担违约责任。"),
    )
    assert found == [
        "甲方应当按期付款，逾期的应当承担违约责任，并赔偿损失直至全部清偿为止。",
        "乙方应当按期交货，逾期的应当承担违约责任。",
    ]


def test_a_word_cut_by_a_hyphen_is_restored_and_latin_lines_get_a_space() -> None:
    assert texts((0.1, 0.9, "Text with a hyphen-"), (0.1, 0.9, "ated word and a"), (0.1, 0.4, "last line.")) == [
        "Text with a hyphenated word and a last line."
    ]


def test_a_break_where_the_next_word_had_room_was_meant() -> None:
    full = "A line of ordinary text as long as its column is"
    assert len(texts((0.1, 0.9, full), (0.1, 0.4, "until here."), (0.1, 0.9, full))) == 2
    assert len(texts((0.1, 0.9, full), (0.1, 0.86, full), (0.1, 0.9, full))) == 1


def test_fields_of_a_form_stay_apart() -> None:
    assert texts((0.6, 0.9, "合同编号：YL-318"), (0.55, 0.9, "签订日期：三月十八日")) == [
        "合同编号：YL-318",
        "签订日期：三月十八日",
    ]


def test_pieces_of_one_printed_line_are_joined() -> None:
    def piece(left: float, right: float, text: str) -> TextLine:
        return TextLine((left, 0.1, right, 0.115), text)

    assert [row.text for row in join_rows([piece(0.3, 0.4, "world"), piece(0.1, 0.2, "Hello")])] == ["Hello world"]
    assert [row.text for row in join_rows([piece(0.202, 0.4, "方案"), piece(0.1, 0.2, "技术")])] == ["技术方案"]


def test_markers() -> None:
    for text in ("• first", "1. first", "（一）核对", "(2) second", "a) one", "① 一"):
        assert is_list_item(text), text
    for text in ("1.5 metres", "2026 年", "A house", "第一章 总则", "-5 degrees"):
        assert not is_list_item(text), text
    assert starts_item("第三条 付款") and starts_item("[12] Smith")


def low(text: str, size: float = HEIGHT) -> Paragraph:
    return Paragraph((Row((0.1, 0.93, 0.5, 0.93 + size), text, size),))


def test_page_numbers() -> None:
    for text in ("3", "- 3 -", "3/10", "第 1 页 共 3 页", "第1页", "Page 2 of 9", "xii", "— 12 —"):
        assert is_page_number(low(text)), text
    for text in ("3 apples", "第 1 条", "2026 年"):
        assert not is_page_number(low(text)), text
    middle = Paragraph((Row((0.1, 0.5, 0.2, 0.52), "3", HEIGHT),))
    assert not is_page_number(middle)


def test_footnotes_and_references_are_told_apart_by_their_words() -> None:
    assert is_footnote(low("(3)“物都有内在的长处”", 0.8 * HEIGHT), HEIGHT, told=True)
    assert is_footnote(low("1 Code has been released.", 0.8 * HEIGHT), HEIGHT, told=False)
    assert not is_footnote(low("票的，甲方有权顺延付款。", 0.8 * HEIGHT), HEIGHT, told=True)
    assert is_reference(low("[3] J. Smith et al. A method. In Proceedings of X, 2019, pp. 3-9."))
    assert not is_reference(low("乙方未按时开具发票的，甲方有权顺延付款。"))
