"""The quality metrics themselves: equal means 1, and every kind of damage costs something."""

from __future__ import annotations

import pytest

from tests.engine.quality import char_similarity, normalize_markdown, table_similarity, word_recall

TABLE = (
    "<table><tbody><tr><td>Month</td><td>Days</td></tr>"
    "<tr><td>June</td><td>26</td></tr><tr><td>July</td><td>29</td></tr></tbody></table>"
)
PIPES = "| Month | Days |\n| --- | ---: |\n| June | 26 |\n| July | 29 |"
OTHER = "<table><tr><td>Lead</td><td>82</td><td>207.2</td></tr></table>"


@pytest.mark.parametrize(
    ("dialect", "plain"),
    [
        ("## A *short* **title**", "A short title"),
        ("text ![alt](images/a.jpg) more", "text more"),
        ("see [the page](https://example.org/a_(b))", "see the page"),
        ("- one\n- two", "• one\n\n• two"),
        ("costs 10\\$ and a\\_b", "costs 10$ and a_b"),
        ("snake_case_name", "snake\\_case\\_name"),
        ("with $R_n \\leq \\rho$ here", "with R<sub>n</sub> ≤ ρ here"),
        ("$$\nE = \\frac{a}{b} \\tag{1}\n$$", "E = ab (1)"),
        ("$x _ { i }$", "x<sub>i</sub>"),
        ("“quoted” – it’s", '"quoted" - it\'s'),
        ("甲方 （采购方） ： 示例", "甲方(采购方):示例"),
        ("a&lt;b &amp; c", "a<b & c"),
        ("a < b > c", "a&lt;b&gt;c"),
        ("<small><sup>1</sup> A note.</small>", "1 A note."),
        ("<details>\n<summary>image content</summary>\n\nJun 1 Jul 1\n</details>\n\nFigure 1", "Figure 1"),
        ("- **2 Method . . . . . . . 5**", "2 Method 5"),
        (PIPES, TABLE),
        ("above\n\n---\n\nbelow", "above\nbelow"),
    ],
)
def test_dialects_with_the_same_content_compare_equal(dialect: str, plain: str) -> None:
    assert normalize_markdown(dialect) == normalize_markdown(plain)
    assert char_similarity(dialect, plain) == 1.0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1. first", "2. first"),
        ("re-use", "reuse"),
        ("two words", "twowords"),
        ("x = -3", "x = 3"),
        ("第一条", "第二条"),
    ],
)
def test_normalization_keeps_real_differences(one: str, other: str) -> None:
    assert normalize_markdown(one) != normalize_markdown(other)


def test_char_similarity_is_a_share_of_characters() -> None:
    assert char_similarity("abcde", "abcdx") == pytest.approx(0.8)
    assert char_similarity("", "abc") == 0.0
    assert char_similarity("", "") == 1.0
    assert char_similarity("one two", "two one") < 1.0


def test_equal_tables_score_one_in_both_notations() -> None:
    assert table_similarity(TABLE, TABLE) == 1.0
    assert table_similarity(PIPES, TABLE) == 1.0
    assert table_similarity(TABLE.replace("td>", "th>").replace("tbody", "thead"), TABLE) == 1.0
    assert table_similarity("no table here", "nor here") == 1.0


def test_swapped_cells_cost_their_text() -> None:
    swapped = TABLE.replace("<td>26</td>", "<td>X</td>").replace("<td>29</td>", "<td>26</td>").replace("X", "29")
    # Two of nine nodes (3 rows, 6 cells) differ in one of their two characters.
    assert table_similarity(swapped, TABLE) == pytest.approx(1 - (0.5 + 0.5) / 9)


def test_a_lost_row_costs_its_nodes() -> None:
    assert table_similarity(TABLE.replace("<tr><td>July</td><td>29</td></tr>", ""), TABLE) == pytest.approx(1 - 3 / 9)


def test_a_lost_span_costs_one_node() -> None:
    spanned = TABLE.replace("<td>Month</td>", '<td rowspan="2">Month</td>')
    assert table_similarity(TABLE, spanned) == pytest.approx(1 - 1 / 9)


def test_missing_and_extra_tables_score_zero_each() -> None:
    assert table_similarity("Month Days June 26", TABLE) == 0.0
    assert table_similarity(TABLE, "") == 0.0
    assert table_similarity(TABLE, f"{TABLE}\n\n{OTHER}") == pytest.approx(0.5)
    assert table_similarity(f"{TABLE}\n\n{OTHER}", TABLE) == pytest.approx(0.5)


def test_tables_are_matched_by_content_not_by_order() -> None:
    assert table_similarity(f"{OTHER}\n\n{PIPES}", f"{TABLE}\n\n{OTHER}") == 1.0


def test_tables_of_folded_picture_content_do_not_count() -> None:
    folded = f"<details><summary>image content</summary>\n\n{OTHER}\n</details>"
    assert table_similarity(f"{TABLE}\n\n{folded}", TABLE) == 1.0


def test_nested_and_broken_tables_do_not_fail() -> None:
    nested = f"<table><tr><td>outer {OTHER}</td></tr></table>"
    assert 0.0 < table_similarity(nested, OTHER) < 1.0
    assert table_similarity("<table><tr><td>Month", TABLE) < 0.5


def test_word_recall_counts_repetition_and_cjk_characters() -> None:
    assert word_recall("the cat and the dog", "The dog, the cat and more") == 1.0
    assert word_recall("the cat and the dog", "the cat and dog") == pytest.approx(4 / 5)
    assert word_recall("合同总价", "合同价") == pytest.approx(3 / 4)
    assert word_recall("", "anything") == 1.0
    assert word_recall("words", "") == 0.0
