"""Files that are broken or hostile: a typed error or a result, never a crash, a hang or a traceback."""

from __future__ import annotations

import gc
import io
import os
import random
import shutil
import struct
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import make_documents as make
import pytest
from make_documents import one_page_pdf, raw_pdf, stream, write

from mineru_engine import (
    DamagedDocumentError,
    ErrorCode,
    InputError,
    MineruError,
    NothingReadError,
    OutputFormat,
    PageKind,
    ParseResult,
    Settings,
    UnsupportedFormatError,
    doc_analyze,
    parse,
    shutdown_cached_models,
)
from mineru_engine.output import render
from mineru_engine.resident import runtime_for

SHIPS = "Varna has seventeen ships"
CONTENT = b"BT /F1 24 Tf 100 700 Td (Varna has seventeen ships) Tj ET"
FONT = b"<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"


@pytest.fixture(autouse=True)
def clean_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Whatever came in: nothing on the streams, no temporary file left, no worker busy, the next document is fine."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    yield
    good = parse(write(tmp_path / "good.pdf", one_page_pdf(CONTENT)), tier="flash")
    assert good.markdown() == SHIPS
    del good
    state = runtime_for(Settings.load()).statistics()
    assert (state.pool.busy, state.pool.waiting) == (0, 0)
    gc.collect()
    assert list(directory.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def attempt(path: Path, **options: Any) -> ParseResult | MineruError:
    """A result, or an error that says what is wrong."""
    try:
        given: dict[str, Any] = {"tier": "flash", "page_timeout_s": 5.0, **options}
        result = parse(path, **given)
    except MineruError as exc:
        assert exc.code is not ErrorCode.INTERNAL, exc
        assert exc.message and exc.document == path.name
        assert "Traceback" not in exc.message and str(exc) == exc.message
        return exc
    result.markdown()
    for item in result.diagnostics:
        assert item.code and item.message
    lost = {index for index, kind in result.page_kinds.items() if kind is PageKind.LOST}
    assert lost <= {item.page for item in result.diagnostics}
    return result


def error(path: Path, **options: Any) -> MineruError:
    outcome = attempt(path, **options)
    assert isinstance(outcome, MineruError), outcome.markdown()[:200]
    return outcome


def text(path: Path, **options: Any) -> str:
    outcome = attempt(path, **options)
    assert isinstance(outcome, ParseResult), repr(outcome)
    return " ".join(outcome.markdown().split())


# Not a document


@pytest.mark.parametrize(
    ("name", "data", "kind", "code"),
    [
        ("empty.pdf", b"", DamagedDocumentError, ErrorCode.FILE_EMPTY),
        ("empty.docx", b"", DamagedDocumentError, ErrorCode.FILE_EMPTY),
        ("empty", b"", DamagedDocumentError, ErrorCode.FILE_EMPTY),
        ("noise.pdf", random.Random(1).randbytes(5000), DamagedDocumentError, ErrorCode.FILE_DAMAGED),
        ("noise.docx", random.Random(2).randbytes(5000), DamagedDocumentError, ErrorCode.FILE_DAMAGED),
        ("noise.bin", random.Random(3).randbytes(5000), UnsupportedFormatError, ErrorCode.FILE_TYPE_UNSUPPORTED),
        ("nulls.pdf", bytes(5000), DamagedDocumentError, ErrorCode.FILE_DAMAGED),
        ("program.py", b"print('hello')\n", UnsupportedFormatError, ErrorCode.FILE_TYPE_UNSUPPORTED),
        ("header.pdf", b"%PDF-1.7\n", DamagedDocumentError, ErrorCode.FILE_DAMAGED),
        ("header.png", b"\x89PNG\r\n\x1a\n", DamagedDocumentError, ErrorCode.FILE_DAMAGED),
        ("header.docx", b"PK\x03\x04" + bytes(100), DamagedDocumentError, ErrorCode.FILE_DAMAGED),
    ],
)
def test_what_is_no_document(tmp_path: Path, name: str, data: bytes, kind: type[MineruError], code: ErrorCode) -> None:
    caught = error(write(tmp_path / name, data))
    assert (type(caught), caught.code) == (kind, code)
    with pytest.raises(kind) as raised:
        doc_analyze(data, name, tier="flash")
    assert (raised.value.code, raised.value.document) == (code, name)


def test_what_is_no_file(tmp_path: Path) -> None:
    assert error(tmp_path).code is ErrorCode.FILE_UNREADABLE
    assert error(tmp_path / "missing.pdf").code is ErrorCode.FILE_NOT_FOUND
    assert error(write(tmp_path / "plain", b"x") / "below.pdf").code is ErrorCode.FILE_UNREADABLE
    assert error(tmp_path / ("x" * 300)).code is ErrorCode.FILE_UNREADABLE
    assert error(tmp_path / "nu\0ll.pdf").code is ErrorCode.FILE_UNREADABLE
    (tmp_path / "loop.pdf").symlink_to(tmp_path / "loop.pdf")
    assert error(tmp_path / "loop.pdf").code is ErrorCode.FILE_UNREADABLE
    (tmp_path / "nowhere.pdf").symlink_to(tmp_path / "missing.pdf")
    assert error(tmp_path / "nowhere.pdf").code is ErrorCode.FILE_NOT_FOUND


def test_a_pipe_or_a_device_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pdf")
    for path in (tmp_path / "pipe.pdf", Path("/dev/zero")):
        caught = error(path)
        assert caught.code is ErrorCode.FILE_UNREADABLE and caught.hint


def test_a_file_without_read_permission(tmp_path: Path) -> None:
    path = write(tmp_path / "closed.pdf", make.text_pdf())
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything: give that up for the opening only
        if os.geteuid() != 0:
            pytest.skip("file permissions are not enforced here")
        for directory in (tmp_path, *tmp_path.parents[:-2]):
            directory.chmod(0o755)
        os.seteuid(65534)
    try:
        assert error(path).code is ErrorCode.FILE_UNREADABLE
    finally:
        if os.getuid() == 0:
            os.seteuid(0)


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "large.pdf"
    with path.open("wb") as stream_:
        stream_.truncate(3 << 20)
    settings = Settings.load(overrides={"processing.max_file_mb": 2})
    caught = error(path, settings=settings)
    assert caught.code is ErrorCode.FILE_TOO_LARGE and caught.hint


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9 \xff.pdf"))
    path.write_bytes(one_page_pdf(CONTENT))
    assert text(path) == SHIPS
    path.write_bytes(b"")
    assert error(path).code is ErrorCode.FILE_EMPTY


def test_a_file_that_vanishes_while_it_is_parsed(tmp_path: Path, demo: Path) -> None:
    path = tmp_path / "vanishing.pdf"
    for limit in (0, 1):
        shutil.copy(demo / "paper.pdf", path)

        def vanish(progress: Any, limit: int = limit) -> None:
            if progress.done >= limit:
                path.unlink(missing_ok=True)

        attempt(path, on_progress=vanish, window_size=1)
        assert not path.exists()


def test_a_file_that_vanishes_before_a_worker_opens_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mineru_engine.api._check_readable", lambda path, limit: None)
    assert error(tmp_path / "gone.pdf").code is ErrorCode.FILE_NOT_FOUND


# Damaged PDFs


@pytest.mark.parametrize("share", [0.02, 0.2, 0.5, 0.8, 0.97, 0.985, 0.99])
def test_a_truncated_pdf_gives_what_is_there(tmp_path: Path, demo: Path, share: float) -> None:
    data = (demo / "contract.pdf").read_bytes()
    outcome = attempt(write(tmp_path / "cut.pdf", data[: int(len(data) * share)]))
    if share >= 0.97:  # only the table of objects is cut
        assert isinstance(outcome, ParseResult)
        assert "合同" in outcome.markdown() and outcome.page_count == 3
        assert [item.code for item in outcome.diagnostics] == ["pdf_repaired"]


def page_of(
    content: bytes = CONTENT, *, box: bytes = b"[0 0 595 842]", resources: bytes = FONT, more: tuple[bytes, ...] = ()
) -> bytes:
    return one_page_pdf(content, media_box=box, resources=resources, more=more)


def two_kids(kids: bytes, count: int) -> bytes:
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Resources%s/Contents 4 0 R>>" % FONT
    pages = b"<</Type/Pages/Kids[%s]/Count %d>>" % (kids, count)
    return raw_pdf([b"<</Type/Catalog/Pages 2 0 R>>", pages, page, stream(CONTENT)])


READABLE: dict[str, bytes] = {
    "page of 200 inches": page_of(box=b"[0 0 14400 14400]"),
    "box that overflows": page_of(box=b"[0 0 4294967296 1]"),
    "box without numbers": page_of(box=b"[nan inf 0 /x]"),
    "box without area": page_of(box=b"[0 0 0 0]"),
    "box turned round": page_of(box=b"[595 842 0 0]"),
    "font that is not there": page_of(
        resources=FONT.replace(b"Type1", b"TrueType").replace(b"Helvetica", b"NoSuchFont-Regular")
    ),
    "no font at all": page_of(resources=b"<</Font<<>>>>"),
    "nested arrays": page_of(more=(b"[" * 50_000 + b"]" * 50_000,)),
    "nested box": page_of(box=b"[" * 20_000 + b"]" * 20_000),
    "nested states": page_of(b"q " * 200_000 + CONTENT),
    "cyclic page tree": two_kids(b"2 0 R 3 0 R", 2),
    "missing kid": two_kids(b"99 0 R 3 0 R", 2),
    "wrong stream length": page_of().replace(b"/Length ", b"/Length 9"),
    "no end of file": page_of().partition(b"startxref")[0],
    "no header version": page_of().replace(b"%PDF-1.7", b"%PDF-9.9"),
    "junk before": b"\0\xff junk\n" * 50 + page_of(),
    "junk after": page_of() + b"\0" * 3000,
    "wrong table": page_of().replace(b"0000000", b"0000007"),
}


@pytest.mark.parametrize("name", READABLE)
def test_odd_pdfs_that_can_be_read(tmp_path: Path, name: str) -> None:
    assert SHIPS in text(write(tmp_path / "odd.pdf", READABLE[name])).replace("*", "")


UNREADABLE: dict[str, tuple[bytes, ErrorCode]] = {
    "no pages": (two_kids(b"", 0), ErrorCode.PDF_NO_PAGES),
    "a lie about pages": (two_kids(b"", 7), ErrorCode.NOTHING_READ),
    "only itself": (two_kids(b"2 0 R", 2), ErrorCode.NOTHING_READ),
    "absurd box": (page_of(box=b"[0 0 900000 900000]"), ErrorCode.NOTHING_READ),
    "no catalog": (b"%PDF-1.7\n1 0 obj\n<</A 1>>\nendobj\ntrailer<</Root 9 0 R>>\n%%EOF", ErrorCode.FILE_DAMAGED),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_odd_pdfs_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    data, code = UNREADABLE[name]
    caught = error(write(tmp_path / "odd.pdf", data))
    assert caught.code is code, caught


def test_one_bad_page_does_not_lose_the_others(tmp_path: Path) -> None:
    outcome = attempt(write(tmp_path / "odd.pdf", two_kids(b"99 0 R 3 0 R", 2)))
    assert isinstance(outcome, ParseResult)
    assert dict(outcome.page_kinds) == {0: PageKind.LOST, 1: PageKind.NATIVE}
    assert outcome.page_count == 2


def form(content: bytes, number: int) -> bytes:
    resources = b"/Resources<</XObject<</N %d 0 R>>>>" % number
    return stream(content, b"/Type/XObject/Subtype/Form/BBox[0 0 600 800]" + resources)


def laughs(*, before: bytes = b"", after: bytes = b"") -> bytes:
    """A page of forms that draw forms that draw forms, a thousand million operations; ordinary pages around it."""
    resources = FONT[:-2] + b"/XObject<</N 6 0 R>>>>"
    contents = [before, b"/N Do " + CONTENT, after]
    forms = [form(b"/N Do " * 10, 7 + level) for level in range(9)] + [form(b"0 0 1 1 re f", 99)]
    kids = []
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"", *(stream(content) for content in contents), *forms]
    for number, content in enumerate(contents):
        if content:
            page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Resources%s/Contents %d 0 R>>"
            objects.append(page % (resources, 3 + number))
            kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<</Type/Pages/Kids[%s]/Count %d>>" % (b" ".join(kids), len(kids))
    return raw_pdf(objects)


def test_a_page_that_takes_for_ever_costs_its_deadline_only(tmp_path: Path) -> None:
    path = write(tmp_path / "slow.pdf", laughs(before=CONTENT, after=CONTENT))
    started = time.monotonic()
    outcome = attempt(path, page_timeout_s=1.5)
    assert time.monotonic() - started < 30
    assert isinstance(outcome, ParseResult)
    assert [outcome.page_kinds[index] for index in (0, 2)] == [PageKind.NATIVE] * 2
    assert outcome.page_kinds[1] in (PageKind.PLAIN, PageKind.LOST)
    assert ("page_timeout", 1) in [(item.code, item.page) for item in outcome.diagnostics]
    assert outcome.markdown().count(SHIPS) >= 2


def test_a_document_of_nothing_but_a_slow_page_says_so(tmp_path: Path) -> None:
    caught = error(write(tmp_path / "slow.pdf", laughs()), page_timeout_s=1.0)
    assert type(caught) is NothingReadError and "within 1 s" in caught.message


def test_a_stream_that_unpacks_to_very_much(tmp_path: Path) -> None:
    packed = zlib.compress(b"0 0 m 1 1 l S\n" * 4_000_000)
    body = b"<</Length %d/Filter/FlateDecode>>\nstream\n" % len(packed) + packed + b"\nendstream"
    data = page_of(b"").replace(stream(b""), body)
    attempt(write(tmp_path / "bomb.pdf", data), page_timeout_s=1.0)


def test_halves_of_surrogate_pairs_in_the_text(tmp_path: Path) -> None:
    cmap = (
        b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap 1 begincodespacerange <00> <ff> "
        b"endcodespacerange 2 beginbfchar <76> <d800> <68> <dc00> endbfchar endcmap end end"
    )
    font = FONT.replace(b"/BaseFont", b"/ToUnicode 5 0 R/BaseFont")
    outcome = attempt(write(tmp_path / "odd.pdf", page_of(resources=font, more=(stream(cmap),))))
    assert isinstance(outcome, ParseResult)
    outcome.markdown().encode("utf-8")
    outcome.middle_json.to_json().encode("utf-8")
    assert "ips" in outcome.markdown()


# Other formats


def zeros(files: dict[str, bytes | str], name: str, mib: int) -> bytes:
    """A ZIP file in which one member unpacks to very much."""
    out = io.BytesIO(make.zipped(files))
    with (
        zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open(name, "w", force_zip64=True) as member,
    ):
        for _ in range(mib):
            member.write(bytes(1 << 20))
    return out.getvalue()


def members(data: bytes) -> dict[str, bytes | str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_zip_bomb_that_is_a_docx(tmp_path: Path) -> None:
    files = members(make.docx([SHIPS]))
    picture = attempt(write(tmp_path / "picture.docx", zeros(files, "word/media/image1.png", 150)), timeout_s=30)
    assert isinstance(picture, MineruError) or SHIPS in picture.markdown()
    del files["word/document.xml"]
    attempt(write(tmp_path / "body.docx", zeros(files, "word/document.xml", 150)), timeout_s=6)


ENTITIES = (
    '<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY {chr(98 + n)} "{("&" + chr(97 + n) + ";") * 10}">' for n in range(10))
    + "]>"
)
FOREIGN = '<?xml version="1.0"?><!DOCTYPE l [<!ENTITY k SYSTEM "file://{}">]>'


@pytest.mark.parametrize("head", ["bomb", "file"])
def test_xml_entities_neither_explode_nor_read_files(tmp_path: Path, head: str) -> None:
    secret = write(tmp_path / "secret.txt", b"canary")
    declaration = ENTITIES if head == "bomb" else FOREIGN.format(secret)
    files = members(make.docx(["PLACE"]))
    body = str(files["word/document.xml"], "utf-8") if isinstance(files["word/document.xml"], bytes) else ""
    files["word/document.xml"] = declaration + body.partition("?>")[2].replace("PLACE", "&k;")
    documents = {"a.docx": make.zipped(files), "a.html": (declaration + "<p>hello &k;</p>").encode()}
    odt = members(make.odt())
    odt["content.xml"] = declaration + str(odt["content.xml"], "utf-8").partition("?>")[2].replace("Varna", "&k;")  # type: ignore[arg-type]
    documents["a.odt"] = make.zipped(odt, stored_first=True)
    for name, data in documents.items():
        outcome = attempt(write(tmp_path / name, data), timeout_s=30)
        if isinstance(outcome, ParseResult):
            assert len(outcome.markdown()) < 10_000 and "canary" not in outcome.markdown()


def test_deeply_nested_html(tmp_path: Path) -> None:
    attempt(write(tmp_path / "deep.html", b"<div>" * 50_000 + b"deep"), timeout_s=30)


OFFICE: dict[str, Callable[[], bytes]] = {
    "a.docx": lambda: make.docx([SHIPS]),
    "a.xlsx": make.xlsx,
    "a.pptx": make.pptx,
    "a.epub": make.epub,
    "a.odt": make.odt,
    "a.rtf": lambda: make.RTF,
}


@pytest.mark.parametrize("name", OFFICE)
def test_damaged_office_files(tmp_path: Path, name: str) -> None:
    data, rng = OFFICE[name](), random.Random(name)
    attempt(write(tmp_path / name, data[: len(data) // 2]))
    for _ in range(3):
        attempt(write(tmp_path / name, mutated(data, rng)))


# Images


def png(width: int, height: int) -> bytes:
    """A picture that says it is of that size, with next to nothing inside."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(999))) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("width", "height", "codes"),
    [
        (60_000, 60_000, {ErrorCode.FILE_TOO_LARGE}),
        (100, 9_000_000, {ErrorCode.FILE_TOO_LARGE}),
        (12_000, 13_000, {ErrorCode.NOTHING_READ}),
        (0, 10, {ErrorCode.FILE_DAMAGED, ErrorCode.NOTHING_READ}),
    ],
)
def test_images_of_impossible_size(tmp_path: Path, width: int, height: int, codes: set[ErrorCode]) -> None:
    assert error(write(tmp_path / "huge.png", png(width, height)), tier="basic").code in codes


@pytest.mark.parametrize("size", [(1, 1), (1, 4000), (4000, 1), (3, 3)])
def test_images_with_nothing_on_them(tmp_path: Path, size: tuple[int, int]) -> None:
    from PIL import Image

    data = make.image_bytes(Image.new("RGB", size, "white"), "PNG")
    assert text(write(tmp_path / "tiny.png", data), tier="basic") == ""


@pytest.mark.parametrize("size", [(1, 1), (1, 400), (400, 1), (3, 3)])
@pytest.mark.parametrize("tier", ["basic", "xhigh"])
def test_a_figure_of_a_pixel_is_rendered_in_every_format(tmp_path: Path, size: tuple[int, int], tier: str) -> None:
    from PIL import Image

    path = write(tmp_path / "dot.png", make.image_bytes(Image.new("RGB", size, (200, 3, 3)), "PNG"))
    result = parse(path, tier=tier)
    assert {chosen for chosen in OutputFormat if not render(result, chosen)} <= {OutputFormat.MD}
    assert not result.assets or "images/" in result.markdown()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "GIF", "WEBP", "BMP"])
def test_damaged_images(tmp_path: Path, kind: str) -> None:
    data, rng = make.image_bytes(make.text_image([SHIPS], width=700), kind), random.Random(kind)
    path = tmp_path / f"a.{kind.lower()}"
    for share in (0.02, 0.5, 0.9):
        attempt(write(path, data[: int(len(data) * share)]), tier="basic")
    for _ in range(4):
        attempt(write(path, mutated(data, rng)), tier="flash")


# Mutations


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, repeat or overwrite a few places."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        start, length = rng.randrange(len(out)), rng.randint(1, 200)
        kind = rng.randrange(5)
        if kind == 0:
            out[start] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del out[start : start + length]
        elif kind == 2:
            out[start:start] = out[start : start + length]
        elif kind == 3:
            out[start : start + 4] = rng.randbytes(4)
        else:
            digits = [i for i in range(start, min(len(out), start + 400)) if 48 <= out[i] <= 57]
            for index in digits[:3]:
                out[index] = 48 + rng.randrange(10)
        if not out:
            return b"%PDF-"
    return bytes(out)


@pytest.mark.parametrize("seed", range(25))
def test_mutated_pdfs(tmp_path: Path, demo: Path, seed: int) -> None:
    rng = random.Random(seed)
    name = rng.choice(["contract.pdf", "contract_encrypted.pdf", "paper.pdf", "contract_scan.pdf"])
    path = write(tmp_path / name, mutated((demo / name).read_bytes(), rng))
    started = time.monotonic()
    attempt(path, password="demo-1234" if "encrypted" in name else None, pages="1-2", page_timeout_s=4.0)
    assert time.monotonic() - started < 40


def test_after_all_that_nothing_is_left() -> None:
    import psutil

    shutdown_cached_models()
    children = psutil.Process().children(recursive=True)
    assert [child for child in children if child.status() != psutil.STATUS_ZOMBIE] == []


def test_errors_are_input_errors_where_the_document_is_to_blame(tmp_path: Path) -> None:
    assert isinstance(error(write(tmp_path / "a.pdf", b"%PDF-1.7 junk")), InputError)
