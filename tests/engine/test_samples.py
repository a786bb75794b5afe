"""Public documents on which other parsers fail: each test says what a reader should get."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from mineru_engine import ErrorCode, MineruError, PageKind, ParseResult, PasswordError, parse

pytestmark = pytest.mark.samples


def sample(samples: Path, number: str) -> Path:
    (path,) = samples.glob(f"{number}_*.pdf")
    return path


def password(samples: Path, number: str) -> str:
    with (samples / "index.tsv").open(encoding="utf-8", newline="") as stream:
        cells = {row["name"][:3]: row["password"] for row in csv.DictReader(stream, delimiter="\t")}
    return str(json.loads(f'"{cells[number]}"'))


def codes(result: ParseResult) -> list[tuple[str, int | None]]:
    return [(item.code, item.page) for item in result.diagnostics]


@pytest.mark.parametrize("tier", ["flash", "basic"])
@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        ("090", ErrorCode.FILE_EMPTY, "0 bytes"),  # the peer: "unsupported type: empty"
        ("088", ErrorCode.FILE_DAMAGED, "damaged"),
        ("087", ErrorCode.FILE_DAMAGED, "image"),  # calls itself PDF, begins as a JPEG; the peer: "iso"
        ("094", ErrorCode.NOTHING_READ, "2.14748e+09"),  # one page, 2**31 points high
    ],
)
def test_what_cannot_be_read_says_why(samples: Path, number: str, code: ErrorCode, said: str, tier: str) -> None:
    path = sample(samples, number)
    with pytest.raises(MineruError, match=said.replace("+", r"\+")) as caught:
        parse(path, tier=tier)
    assert (caught.value.code, caught.value.document) == (code, path.name)


@pytest.mark.parametrize("tier", ["flash", "basic"])
@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("042", "あいうえお"),  # Shift-JIS without an embedded font; the peer calls it a scan
        ("110", "This text has a strikethrough."),  # 26 characters; the peer calls it a scan
    ],
)
def test_short_pages_with_text_are_no_scans(samples: Path, number: str, text: str, tier: str) -> None:
    result = parse(sample(samples, number), tier=tier)
    assert result.markdown().strip() == text
    assert dict(result.page_kinds) == {0: PageKind.NATIVE}
    assert (result.engine, codes(result)) == ("native", [])


@pytest.mark.parametrize("tier", ["flash", "basic"])
def test_a_cyclic_page_tree_costs_the_page_that_is_not_there(samples: Path, tier: str) -> None:
    result = parse(sample(samples, "082"), tier=tier)
    assert "Pages loop" in result.markdown()
    assert dict(result.page_kinds) == {0: PageKind.NATIVE, 1: PageKind.LOST}
    assert codes(result) == [("page_unreadable", 1)]


@pytest.mark.parametrize("tier", ["flash", "basic"])
def test_hidden_text_is_read_without_ocr(samples: Path, tier: str) -> None:
    result = parse(sample(samples, "069"), tier=tier)
    assert "Invisible OCR text layer" in result.markdown()
    assert dict(result.page_kinds) == {0: PageKind.OCR_LAYER}
    assert "Visible heading line" in str(result.model_json.to_dict())


def test_a_missing_trailer_is_made_up_for(samples: Path) -> None:
    result = parse(sample(samples, "085"), tier="flash")
    assert "This is a PDF 2.0 document" in result.markdown()
    assert codes(result) == [("pdf_repaired", None)]


def test_an_encrypted_page_without_text_is_blank_not_a_scan(samples: Path) -> None:
    result = parse(sample(samples, "077"), tier="flash")
    assert dict(result.page_kinds) == {0: PageKind.BLANK}
    assert ("empty_document", None) in codes(result)


@pytest.mark.parametrize(("number", "text"), [("072", "DocLayNet"), ("075", "Just some text.")])
def test_passwords(samples: Path, number: str, text: str) -> None:
    path, secret = sample(samples, number), password(samples, number)
    for wrong, code in ((None, ErrorCode.PASSWORD_REQUIRED), ("wrong", ErrorCode.PASSWORD_WRONG)):
        with pytest.raises(PasswordError) as caught:
            parse(path, tier="flash", password=wrong)
        assert caught.value.code is code
    result = parse(path, tier="flash", password=lambda name: secret if name == path.name else None)
    assert text in result.markdown()
    assert secret not in repr(result) + str(result.middle_json.to_dict()["extensions"])


def test_a_document_that_forbids_copying_is_read_with_a_notice(samples: Path) -> None:
    result = parse(sample(samples, "074"), tier="flash")
    assert "A Unified Toolkit for Deep Learning Based Document Image Analysis" in result.markdown()
    assert codes(result) == [("copy_forbidden", None)]


def test_a_portfolio_is_listed_and_parsed_when_asked(samples: Path) -> None:
    path = sample(samples, "123")
    listed = parse(path, tier="flash")
    assert [item.name for item in listed.attachments] == ["PDF1.pdf", "PDF2.pdf"]
    assert codes(listed) == [("attachments", None)] and "PDF1.pdf" in listed.diagnostics[0].message
    parsed = parse(path, tier="flash", attachments=True)
    assert [item.result.markdown().strip() for item in parsed.attachments if item.result] == ["PDF1", "PDF2"]
    assert codes(parsed) == []


def test_an_attached_picture_needs_a_tier_that_reads_pictures(samples: Path) -> None:
    path = sample(samples, "125")
    flash = parse(path, tier="flash", attachments=True)
    assert [(item.name, item.size, item.result) for item in flash.attachments] == [("image.png", 6669, None)]
    assert codes(flash) == [("attachment_failed", None)]
    (picture,) = parse(path, tier="basic", attachments=True).attachments
    assert picture.result is not None and dict(picture.result.page_kinds) == {0: PageKind.OCR}


def test_a_page_that_hangs_its_analysis_costs_that_page_only(samples: Path, demo: Path, tmp_path: Path) -> None:
    """The newspaper without its picture looks born digital, and native analysis of it does not end."""
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=sample(samples, "068"))
    del writer.pages[0]["/Resources"]["/XObject"]
    for page in PdfReader(demo / "contract.pdf").pages:
        writer.add_page(page)
    path = tmp_path / "hang.pdf"
    writer.write(path)
    result = parse(path, tier="flash", page_timeout_s=4)
    assert [str(result.page_kinds[index]) for index in range(4)] == ["plain", "native", "native", "native"]
    assert {(item.code, item.page) for item in result.diagnostics} == {("page_timeout", 0), ("page_plain_text", 0)}
    assert "HONOLULU" in result.markdown() and "第一条" in result.markdown()


def rows(markdown: str) -> list[list[str]]:
    """Cells of every table row, HTML or Markdown."""
    html = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in re.findall(r"<tr>(.*?)</tr>", markdown)]
    pipes = [line.strip("| ").split(" | ") for line in markdown.splitlines() if line.startswith("|")]
    return [*html, *pipes]


def test_a_hebrew_table_has_its_rows_and_reads_from_the_right(samples: Path) -> None:
    found = rows(parse(sample(samples, "047"), tier="flash").markdown())
    assert ["2.6", "3.2", "3.0", "4.2", "5.8", "1.9", "סך הכל"] in found


def test_figures_of_a_table_are_not_glued_together(samples: Path) -> None:
    found = rows(parse(sample(samples, "028"), tier="flash").markdown())
    figures = ["11,062.6", "1,540.0", "9,522.6", "8,263.3", "1,071.6", "7,191.7", "2,799.2", "468.3", "2,330.9"]
    assert ["Total", *figures] in found


def test_a_wide_table_is_not_one_paragraph_a_number(samples: Path) -> None:
    found = rows(parse(sample(samples, "051"), tier="flash").markdown())
    assert any("1,319" in row and "12,896" in row for row in found)


def test_line_numbers_are_no_table(samples: Path) -> None:
    assert rows(parse(sample(samples, "033"), tier="flash").markdown()) == []


def test_oblique_labels_of_a_plan_are_kept(samples: Path) -> None:
    markdown = parse(sample(samples, "097"), tier="flash").markdown()
    assert markdown.count("57 15 10") + markdown.count("246 55 50") + markdown.count("256 36 30") >= 4


def test_an_ocr_layer_is_used_and_its_hyphens_are_joined(samples: Path) -> None:
    result = parse(sample(samples, "066"), tier="basic", pages="1")
    assert set(result.page_kinds.values()) == {PageKind.OCR_LAYER}
    assert "inhabitants are now living in caves" in " ".join(result.markdown().split())
