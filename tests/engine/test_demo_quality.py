"""What our own documents come out like, against the truth they were made from.

The floors are a little below what was reached when they were set (in the comment), so that a loss shows.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from quality import char_similarity, table_similarity, word_recall

from mineru_engine import PageKind, ParseResult, parse

CASES = [
    # document, tier, characters, tables, words            reached
    ("paper", "flash", 0.98, 0.89, 0.99),  # 0.987, 0.906, 0.994
    ("paper", "basic", 0.98, 0.89, 0.99),
    ("contract", "flash", 0.995, 0.99, 0.995),  # 1.000, 1.000, 1.000
    ("contract_encrypted", "flash", 0.995, 0.99, 0.995),
    ("report", "flash", 0.995, 0.99, 0.995),  # 1.000, 1.000, 1.000
    ("contract_scan", "basic", 0.98, 0.97, 0.98),  # 1.000, 1.000, 1.000
]


@functools.cache
def read(demo: Path, name: str, tier: str) -> ParseResult:
    options = {"password": "demo-1234"} if name.endswith("encrypted") else {}
    return parse(demo / f"{name}.pdf", tier=tier, **options)


@pytest.mark.parametrize(("name", "tier", "characters", "tables", "words"), CASES)
def test_against_the_truth(demo: Path, name: str, tier: str, characters: float, tables: float, words: float) -> None:
    truth = (demo / "truth" / f"{name}.md").read_text(encoding="utf-8")
    markdown = read(demo, name, tier).markdown()
    assert char_similarity(markdown, truth) >= characters
    assert table_similarity(markdown, truth) >= tables
    assert word_recall(truth, markdown) >= words


def test_windows_do_not_change_the_report(demo: Path) -> None:
    """Running headers and headings are those of the whole document however small the windows."""
    whole = read(demo, "report", "flash")
    cut = parse(demo / "report.pdf", tier="flash", window_size=7)
    assert char_similarity(cut.markdown(), whole.markdown()) >= 0.999
    assert set(cut.page_kinds.values()) == {PageKind.NATIVE}


def test_heading_levels_follow_the_numbering(demo: Path) -> None:
    lines = read(demo, "report", "flash").markdown().splitlines()
    levels = {line.lstrip("# ").split()[0]: line.split()[0] for line in lines if line.startswith("#") and "." in line}
    assert levels["3.2"] == "###"
    assert levels["3.3.1"] == "####"


def test_running_lines_are_kept_apart(demo: Path) -> None:
    result = read(demo, "report", "flash")
    kinds = {str(block.type) for page in result.middle_json.pages for block in page.blocks}
    assert {"header", "footer"} & kinds
    assert "Page 3 of 60" not in result.markdown()
