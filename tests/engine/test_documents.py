"""Whole documents through the real engine; every document is made by the test."""

from __future__ import annotations

import io
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import make_documents as make
import pytest
from make_documents import write
from PIL import Image
from reportlab.pdfgen.canvas import Canvas

from mineru_engine import (
    ErrorCode,
    InputError,
    OcrRequiredError,
    OptionError,
    PageKind,
    ParseResult,
    ParseStatus,
    PasswordError,
    Settings,
    aio_doc_analyze,
    doc_analyze,
    parse,
)

SHIPS = "Varna has seventeen ships"


def codes(result: ParseResult) -> list[tuple[str, int | None]]:
    return [(item.code, item.page) for item in result.diagnostics]


def words_of(result: ParseResult) -> str:
    return " ".join(result.markdown().split())


# Pages of different kinds


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of text, a scanned page, a blank page."""
    out = io.BytesIO()
    canvas = Canvas(out, invariant=1)
    make.text_page(canvas, "Harbour report")
    make.scan_page(canvas, [SHIPS, "and a single crane"])
    canvas.setPageSize(make.A4)
    canvas.showPage()
    canvas.save()
    return write(tmp_path_factory.mktemp("mixed") / "mixed.pdf", out.getvalue())


def test_every_page_is_read_in_its_own_way(mixed: Path) -> None:
    result = parse(mixed, tier="basic")
    assert dict(result.page_kinds) == {0: PageKind.NATIVE, 1: PageKind.OCR, 2: PageKind.BLANK}
    assert (result.status, result.engine, result.page_count) == (ParseStatus.SUCCESS, "onnx", 3)
    text = words_of(result)
    assert text.index("Harbour report") < text.index("seventeen ships") < text.index("single crane")
    assert codes(result) == []


def test_without_a_model_the_scanned_page_alone_is_lost(mixed: Path) -> None:
    result = parse(mixed, tier="flash")
    assert dict(result.page_kinds) == {0: PageKind.NATIVE, 1: PageKind.LOST, 2: PageKind.BLANK}
    assert (result.status, result.engine) == (ParseStatus.PARTIAL, "native")
    assert codes(result) == [("ocr_required", 1)]
    assert "Harbour report" in words_of(result) and "seventeen" not in words_of(result)
    assert result.page_count == 3


def test_a_document_of_scans_alone_names_the_tier_that_reads_it(mixed: Path) -> None:
    with pytest.raises(OcrRequiredError) as caught:
        parse(mixed, tier="flash", pages="2")
    assert caught.value.code is ErrorCode.OCR_REQUIRED
    assert "basic" in str(caught.value.hint)


def test_ocr_mode_overrides_the_decision(mixed: Path) -> None:
    result = parse(mixed, tier="basic", ocr_mode="ocr", pages="1")
    assert dict(result.page_kinds) == {0: PageKind.OCR}
    assert "harbour office opened at seven" in words_of(result)
    result = parse(mixed, tier="basic", ocr_mode="txt", pages="1-2")
    assert dict(result.page_kinds) == {0: PageKind.NATIVE, 1: PageKind.LOST}


def test_a_scan_with_a_good_ocr_layer_is_not_recognised_again(tmp_path: Path) -> None:
    path = tmp_path / "layer.pdf"
    canvas = Canvas(str(path), invariant=1)
    make_hidden_page(canvas, "The hidden text says that Kavarna has eleven ships and Balchik none.")
    canvas.save()
    result = parse(path, tier="basic")
    assert dict(result.page_kinds) == {0: PageKind.OCR_LAYER}
    assert "Kavarna has eleven ships" in words_of(result)


def test_a_scan_with_a_useless_ocr_layer_is(tmp_path: Path) -> None:
    path = tmp_path / "layer.pdf"
    canvas = Canvas(str(path), invariant=1)
    make_hidden_page(canvas, "tbe lV~ ^c1 ;:.. x9Zq I|l !1i ' .. -~ %^& ~ f f r t 1l|I ((; o0O0 qQxZ")
    canvas.save()
    result = parse(path, tier="basic")
    assert dict(result.page_kinds) == {0: PageKind.OCR}
    assert SHIPS in words_of(result)


def make_hidden_page(canvas: Canvas, hidden: str) -> None:
    text = canvas.beginText(60, 780)
    text.setFont("Helvetica", 10)
    text.setTextRenderMode(3)
    text.textLine(hidden)
    canvas.setPageSize(make.A4)
    canvas.drawText(text)
    make.scan_page(canvas, [SHIPS])


def test_text_that_is_rubbish_is_read_from_the_picture(tmp_path: Path) -> None:
    """The font shows letters, its map to Unicode says private-use code points."""
    pairs = b"".join(b"<%02x> <%04x>\n" % (code, 0xE000 + code) for code in range(32, 127))
    cmap = (
        b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def "
        b"1 begincodespacerange <00> <ff> endcodespacerange 95 beginbfchar\n" + pairs + b"endbfchar endcmap end end"
    )
    font = b"<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica/ToUnicode 5 0 R>>>>>>"
    content = b"BT /F1 24 Tf 60 700 Td (Varna has seventeen ships) Tj 0 -40 Td (and one very old crane) Tj ET"
    path = write(tmp_path / "rubbish.pdf", make.one_page_pdf(content, resources=font, more=[make.stream(cmap)]))
    result = parse(path, tier="basic")
    assert dict(result.page_kinds) == {0: PageKind.OCR}
    assert SHIPS in words_of(result)
    doubtful = parse(path, tier="flash")
    assert codes(doubtful) == [("text_layer_doubtful", 0)]


# Page ranges


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    titles = ["Alpha", "Bravo", "Charlie", "Delta", "Echo"]
    return write(tmp_path_factory.mktemp("five") / "five.pdf", make.text_pdf(titles))


@pytest.mark.parametrize(
    ("pages", "titles"),
    [("2", ["Bravo"]), ("r1", ["Echo"]), ("4-,1", ["Alpha", "Delta", "Echo"]), ("r2-r1", ["Delta", "Echo"])],
)
def test_page_ranges(five: Path, pages: str, titles: list[str]) -> None:
    result = parse(five, tier="flash", pages=pages)
    assert [line.lstrip("# ") for line in result.markdown().splitlines() if line.startswith("#")] == titles
    indices = [page["page_idx"] for page in result.middle_json.to_dict()["pages"]]
    assert indices == sorted(result.page_kinds)


def test_a_range_that_names_no_page(five: Path) -> None:
    with pytest.raises(OptionError) as caught:
        parse(five, tier="flash", pages="9")
    assert (caught.value.code, caught.value.document) == (ErrorCode.PAGE_RANGE_INVALID, "five.pdf")


def test_a_range_of_a_document_without_pages(tmp_path: Path) -> None:
    with pytest.raises(OptionError) as caught:
        parse(write(tmp_path / "a.csv", make.CSV), tier="flash", pages="1")
    assert caught.value.code is ErrorCode.PAGE_RANGE_INVALID


@pytest.mark.parametrize("window", [1, 2, 5])
def test_windows_do_not_change_what_is_read(five: Path, window: int) -> None:
    assert parse(five, tier="flash", window_size=window).markdown() == parse(five, tier="flash").markdown()


# Images


def grey_16() -> bytes:
    import numpy as np

    grey = np.asarray(make.text_image([SHIPS], mode="L", paper=255), dtype=np.uint16)
    return make.image_bytes(Image.fromarray(grey * 257), "TIFF")


def palette_with_transparency() -> bytes:
    image = make.text_image([SHIPS]).quantize(4)
    white = image.getpixel((0, 0))
    return make.image_bytes(image, "PNG", transparency=white)


IMAGES: dict[str, Callable[[], bytes]] = {
    "ships.png": lambda: make.image_bytes(make.text_image([SHIPS]), "PNG"),
    "ships.jpg": lambda: make.image_bytes(make.text_image([SHIPS]), "JPEG"),
    "cmyk.jpg": lambda: make.image_bytes(make.text_image([SHIPS]).convert("CMYK"), "JPEG"),
    "ships.webp": lambda: make.image_bytes(make.text_image([SHIPS]), "WEBP"),
    "ships.bmp": lambda: make.image_bytes(make.text_image([SHIPS]), "BMP"),
    "ships.gif": lambda: make.image_bytes(make.text_image([SHIPS]), "GIF"),
    "fax.tiff": lambda: make.image_bytes(make.text_image([SHIPS]).convert("1"), "TIFF", compression="group4"),
    "clear.png": lambda: make.image_bytes(make.text_image([SHIPS], mode="RGBA", paper=(0, 0, 0, 0)), "PNG"),
    "palette.png": palette_with_transparency,
    "grey16.tiff": grey_16,
    "wrong_name.jpg": lambda: make.image_bytes(make.text_image([SHIPS]), "PNG"),
    "no_name": lambda: make.image_bytes(make.text_image([SHIPS]), "PNG"),
}


@pytest.mark.parametrize("name", IMAGES)
def test_images_are_scans(tmp_path: Path, name: str) -> None:
    result = parse(write(tmp_path / name, IMAGES[name]()), tier="basic")
    assert dict(result.page_kinds) == {0: PageKind.OCR}
    assert SHIPS in words_of(result)


def test_a_tiff_of_several_pages(tmp_path: Path) -> None:
    more = [make.text_image(["Kavarna has eleven ships"]), make.text_image(["Balchik has none at all"])]
    data = make.image_bytes(make.text_image([SHIPS]), "TIFF", save_all=True, append_images=more)
    result = parse(write(tmp_path / "three.tiff", data), tier="basic")
    assert [page["page_idx"] for page in result.middle_json.to_dict()["pages"]] == [0, 1, 2]
    text = words_of(result)
    assert text.index("seventeen ships") < text.index("eleven ships") < text.index("none at all")
    only = parse(tmp_path / "three.tiff", tier="basic", pages="2")
    assert words_of(only) == "Kavarna has eleven ships"


def test_a_photo_is_turned_as_its_exif_says(tmp_path: Path) -> None:
    upright = make.text_image([SHIPS, "and a single crane"])
    exif = Image.Exif()
    exif[0x112] = 6  # the camera was turned: show it rotated by 90 degrees clockwise
    data = make.image_bytes(upright.rotate(90, expand=True), "JPEG", exif=exif)
    result = parse(write(tmp_path / "turned.jpg", data), tier="basic")
    assert "seventeen ships" in words_of(result)
    (page,) = result.middle_json.to_dict()["extensions"]["docvortex_layout"]["pages"]
    assert page["width_pt"] / page["height_pt"] == pytest.approx(upright.width / upright.height)


# Passwords

SECRETS = ["1234", "pässwörd € 密码", " blanks \" \\ ' "]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_right_password_opens(tmp_path: Path, secret: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    path = write(tmp_path / "locked.pdf", make.encrypted(make.text_pdf(["Harbour report"]), secret))
    asked: list[str] = []

    def ask(name: str) -> str:
        asked.append(name)
        return secret

    for password in (secret, ask):
        result = parse(path, tier="flash", password=password)
        assert "Harbour report" in words_of(result)
        shown = repr(result) + repr(result.options) + str(result.middle_json.to_dict()) + caplog.text
        assert secret not in shown
    assert asked == ["locked.pdf"]
    middle, _ = doc_analyze(path.read_bytes(), "locked.pdf", tier="flash", password=secret)
    assert "Harbour report" in str(middle.to_dict())


@pytest.mark.parametrize(
    ("password", "code"),
    [
        (None, ErrorCode.PASSWORD_REQUIRED),
        ("canary-wrong", ErrorCode.PASSWORD_WRONG),
        ("", ErrorCode.PASSWORD_WRONG),
        (lambda name: "canary-wrong", ErrorCode.PASSWORD_WRONG),
        (lambda name: None, ErrorCode.PASSWORD_REQUIRED),
    ],
)
def test_a_wrong_password_does_not(tmp_path: Path, password: Any, code: ErrorCode) -> None:
    path = write(tmp_path / "locked.pdf", make.encrypted(make.text_pdf(), "canary-right"))
    with pytest.raises(PasswordError) as caught:
        parse(path, tier="flash", password=password)
    assert (caught.value.code, caught.value.document) == (code, "locked.pdf")
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + str(caught.value.to_dict())
    assert "canary" not in shown


def test_a_password_that_is_not_needed_does_no_harm(tmp_path: Path) -> None:
    def never(name: str) -> str:
        raise AssertionError("nobody should ask")

    path = write(tmp_path / "open.pdf", make.text_pdf(["Harbour report"]))
    for password in ("needless", never):
        assert "Harbour report" in words_of(parse(path, tier="flash", password=password))


def test_a_document_that_must_not_be_copied_is_read_with_a_notice(tmp_path: Path) -> None:
    forbidden = make.encrypted(make.text_pdf(["Harbour report"]), "", owner="canary-owner", permissions=0b100)
    result = parse(write(tmp_path / "forbidden.pdf", forbidden), tier="flash")
    assert "Harbour report" in words_of(result)
    assert codes(result) == [("copy_forbidden", None)]
    allowed = make.encrypted(make.text_pdf(["Harbour report"]), "", owner="canary-owner")
    assert codes(parse(write(tmp_path / "allowed.pdf", allowed), tier="flash")) == []


# Attachments


def test_attachments_are_listed_and_the_reader_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pdf", make.with_attachments(make.text_pdf(), {"ships.csv": make.CSV}))
    result = parse(path, tier="flash")
    assert [(item.name, item.size, item.result) for item in result.attachments] == [("ships.csv", len(make.CSV), None)]
    assert codes(result) == [("attachments", None)]
    assert "ships.csv" in result.diagnostics[0].message


def test_the_limit_of_pages_holds_for_attachments_too(tmp_path: Path) -> None:
    files = {"long.pdf": make.text_pdf(["One", "Two", "Three"]), "short.pdf": make.text_pdf(["One"])}
    path = write(tmp_path / "outer.pdf", make.with_attachments(make.text_pdf(["Outer", "Second"]), files))
    settings = Settings.load(environ={}, overrides={"processing.max_pages": 2})
    result = parse(path, tier="flash", attachments=True, settings=settings)
    assert {item.name: item.result is not None for item in result.attachments} == {"long.pdf": False, "short.pdf": True}
    assert "3 pages, the limit is 2" in next(d.message for d in result.diagnostics if d.code == "attachment_failed")
    with pytest.raises(InputError, match="3 pages, the limit is 2"):
        parse(write(tmp_path / "long.pdf", files["long.pdf"]), tier="flash", settings=settings)


def test_attachments_are_parsed_when_asked_even_inside_each_other(tmp_path: Path) -> None:
    deepest = make.text_pdf(["Deepest"])
    inner = make.with_attachments(make.text_pdf(["Inner"]), {"deepest.pdf": deepest})
    files = {"inner.pdf": inner, "ships.csv": make.CSV, "bad.pdf": b"%PDF-1.7 nothing", "empty.pdf": b""}
    outer = make.with_attachments(make.text_pdf(["Outer", "Second"]), files)
    result = parse(write(tmp_path / "outer.pdf", outer), tier="flash", attachments=True, pages="1")
    found = {item.name: item.result for item in result.attachments}
    assert set(found) == set(files)
    assert found["inner.pdf"] is not None and "Inner" in found["inner.pdf"].markdown()
    (nested,) = found["inner.pdf"].attachments
    assert nested.result is not None and "Deepest" in nested.result.markdown()
    assert found["ships.csv"] is not None and "Varna" in found["ships.csv"].markdown()
    assert found["bad.pdf"] is None and found["empty.pdf"] is None
    assert codes(result) == [("attachment_failed", None)] * 2
    assert {item.message.partition(":")[0] for item in result.diagnostics} == {"bad.pdf", "empty.pdf"}


def test_attachments_of_an_encrypted_document(tmp_path: Path) -> None:
    locked = make.encrypted(make.with_attachments(make.text_pdf(), {"ships.csv": make.CSV}), "1234")
    result = parse(write(tmp_path / "a.pdf", locked), tier="flash", attachments=True, password="1234")
    assert [item.result is not None and "Varna" in item.result.markdown() for item in result.attachments] == [True]


NAMES = ["../../evil.csv", "/etc/evil.csv", "..\\..\\evil.csv", "..", ".", "x" * 400 + ".csv", "naïve ü 文件.csv"]


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_an_attachment_cannot_lead_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    temporary = tmp_path / "deep" / "temporary"
    temporary.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    path = write(tmp_path / "a.pdf", make.with_attachments(make.text_pdf(), {name: make.CSV}))
    result = parse(path, tier="flash", attachments=True)
    (attachment,) = result.attachments
    assert attachment.name == name
    assert attachment.result is not None or codes(result) == [("attachment_failed", None)]
    assert sorted(item.name for item in tmp_path.rglob("*") if not item.name.startswith("mineru-images-")) == [
        "a.pdf",
        "deep",
        "temporary",
    ]


# Other formats

FORMATS: dict[str, Callable[[], bytes]] = {
    "a.docx": lambda: make.docx(["Varna has seventeen ships."]),
    "a.pptx": make.pptx,
    "a.html": lambda: make.HTML,
    "a.htm": lambda: make.HTML,
    "a.epub": make.epub,
    "a.rtf": lambda: make.RTF,
    "a.odt": make.odt,
}


@pytest.mark.parametrize("name", FORMATS)
def test_other_formats(tmp_path: Path, name: str) -> None:
    result = parse(write(tmp_path / name, FORMATS[name]()), tier="flash")
    assert "Varna has seventeen ships." in words_of(result)
    assert (result.status, result.engine, dict(result.page_kinds)) == (ParseStatus.SUCCESS, "native", {})
    assert codes(result) == []


@pytest.mark.parametrize(
    ("name", "data"), [("a.xlsx", make.xlsx()), ("a.csv", make.CSV), ("a.tsv", make.CSV.replace(b",", b"\t"))]
)
def test_tables_of_other_formats(tmp_path: Path, name: str, data: bytes) -> None:
    text = parse(write(tmp_path / name, data), tier="flash").markdown()
    assert "| Port | Ships |" in text and "| Varna | 17 |" in text


def test_a_format_is_recognised_by_content_not_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "really_a_pdf.docx", make.text_pdf(["Harbour report"]))
    assert "Harbour report" in words_of(parse(path, tier="flash"))
    path = write(tmp_path / "really_a_docx.pdf", make.docx([SHIPS]))
    assert SHIPS in words_of(parse(path, tier="flash"))
    path = write(tmp_path / "late_header.pdf", b"junk\n" * 20 + make.text_pdf(["Harbour report"]))
    assert "Harbour report" in words_of(parse(path, tier="flash"))


def test_bytes_in_protocol_out_with_pictures_inside(tmp_path: Path) -> None:
    import asyncio

    picture = make.text_image(["A picture"]).resize((200, 60))
    out = io.BytesIO()
    from docx import Document

    document = Document()
    document.add_paragraph(SHIPS)
    document.add_picture(io.BytesIO(make.image_bytes(picture, "PNG")))
    document.save(out)
    middle, model = asyncio.run(aio_doc_analyze(out.getvalue(), "a.docx", tier="flash"))
    for value in (middle.to_dict(), model.to_dict()):
        assert SHIPS in str(value) and "'image_base64': 'data:image/jpeg;base64,/9j/" in str(value)
        assert "'images/" not in str(value)


def test_what_a_html_page_cannot_do(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret.txt", b"canary")
    page = (
        b'<p>hello</p><img src="data:image/../../../../evil;base64,aGk="><img src="data:image/svg+xml,<svg/>">'
        b'<img src="data:image/png;base64,@@@"><img src="' + str(secret).encode() + b'"><img src="file:///etc/passwd">'
        b'<iframe src="file://' + str(secret).encode() + b'"></iframe><script>document.write("no")</script>'
    )
    result = parse(write(tmp_path / "a.html", page), tier="flash")
    assert words_of(result).startswith("hello")
    assert "canary" not in str(result.middle_json.to_dict()) and b"canary" not in b"".join(result.assets.values())
    assert "root:" not in str(result.model_json.to_dict())
