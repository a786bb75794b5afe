"""Results as files: all of them in one step, or nothing."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_documents import IMAGE, PIXEL, listing, result

from mineru_engine import Attachment, ErrorCode, OptionError, OutputError, OutputFormat, ParseResult
from mineru_engine import output as output_module
from mineru_engine.manifest import MANIFEST_NAME, Manifest, is_complete, read_manifest
from mineru_engine.output import render, stage

ALL = list(OutputFormat)


def names(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


def test_every_format_has_its_own_name(tmp_path: Path) -> None:
    files = result().save(tmp_path, ALL, extra_files={"x_layout.pdf": b"%PDF-"})
    expected = {
        "x.md",
        "x_middle.json",
        "x_content_list.json",
        "x.html",
        "x.tex",
        "x.docx",
        "x.epub",
        "x_rendered.pdf",
        "x_layout.pdf",
        IMAGE,
    }
    assert {path.relative_to(tmp_path / "x").as_posix() for path in files} == expected
    assert names(tmp_path) == {f"x/{name}" for name in expected | {MANIFEST_NAME}}
    assert (tmp_path / "x" / IMAGE).read_bytes() == PIXEL
    assert IMAGE in (tmp_path / "x" / "x.md").read_text()
    assert json.loads((tmp_path / "x" / "x_middle.json").read_bytes())["schema"] == "docvortex.middle"


def test_html_carries_its_pictures(tmp_path: Path) -> None:
    html = render(result(), "html")
    assert b"data:image/png;base64,iVBOR" in html
    assert IMAGE.encode() not in html
    result().save(tmp_path, ["html"])
    assert names(tmp_path / "x") == {"x.html", MANIFEST_NAME}


@pytest.mark.parametrize(("kind", "magic"), [("docx", b"PK"), ("epub", b"PK"), ("pdf", b"%PDF-"), ("latex", b"\\doc")])
def test_other_formats_are_what_they_say(kind: str, magic: bytes) -> None:
    assert magic in result().export(kind)[:4000]


def test_attachments_have_directories_of_their_own(tmp_path: Path) -> None:
    inner = (Attachment("a.pdf", 3, result()), Attachment("A.pdf", 3, result()), Attachment("z.bin", 1))
    result(attachments=inner).save(tmp_path, ["md"])
    assert {"attachments/a/a.md", "attachments/A_2/A_2.md"} <= names(tmp_path / "x")


def test_an_existing_result_is_kept(tmp_path: Path) -> None:
    result().save(tmp_path, ["md"])
    before = (tmp_path / "x" / "x.md").read_bytes()
    with pytest.raises(OutputError) as caught:
        result(text="new").save(tmp_path, ["md"])
    assert caught.value.code is ErrorCode.OUTPUT_EXISTS
    assert (tmp_path / "x" / "x.md").read_bytes() == before
    assert listing(tmp_path) == ["x"]


@pytest.mark.parametrize("exchange", [True, False])
def test_overwriting_replaces_the_whole_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool) -> None:
    if not exchange:
        monkeypatch.setattr(output_module, "_exchange", lambda first, second: False)
    result().save(tmp_path, ["md", "html"])
    result(text="new").save(tmp_path, ["md"], overwrite=True)
    assert names(tmp_path) == {"x/x.md", f"x/{IMAGE}", f"x/{MANIFEST_NAME}"}
    assert "new" in (tmp_path / "x" / "x.md").read_text()
    assert listing(tmp_path) == ["x"]


def test_a_failed_swap_leaves_the_old_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_module, "_exchange", lambda first, second: False)
    result().save(tmp_path, ["md"])
    rename, calls = Path.rename, iter([True, False, True])

    def sometimes(self: Path, target: Path) -> Path:
        if not next(calls):
            raise OSError(errno.EIO, "broken")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", sometimes)
    with pytest.raises(OutputError):
        result(text="new").save(tmp_path, ["md"], overwrite=True)
    assert "Hello" in (tmp_path / "x" / "x.md").read_text()
    assert listing(tmp_path) == ["x"]


@pytest.mark.parametrize("manifest", [True, False])
def test_what_others_put_there_is_never_removed(tmp_path: Path, manifest: bool) -> None:
    if manifest:
        result().save(tmp_path, ["md"])
    notes = tmp_path / "x" / "notes.txt"
    notes.parent.mkdir(exist_ok=True)
    notes.write_text("mine")
    with pytest.raises(OutputError, match=r"notes\.txt") as caught:
        result().save(tmp_path, ["md"], overwrite=True)
    assert caught.value.code is ErrorCode.OUTPUT_EXISTS
    assert notes.read_text() == "mine"


def test_a_place_taken_meanwhile_is_not_touched(tmp_path: Path) -> None:
    staged = stage(result(), tmp_path / "x", [OutputFormat.MD])
    assert not (tmp_path / "x").exists()
    result(text="first").save(tmp_path, ["md"])
    with pytest.raises(OutputError):
        staged.commit()
    assert "first" in (tmp_path / "x" / "x.md").read_text()
    assert listing(tmp_path) == ["x"]


def test_discarding_leaves_nothing(tmp_path: Path) -> None:
    staged = stage(result(), tmp_path / "x", [OutputFormat.MD])
    staged.discard()
    staged.discard()
    assert listing(tmp_path) == []


class _Failing(dict[str, bytes]):
    """Assets whose reading raises."""

    def __init__(self, error: BaseException) -> None:
        super().__init__({IMAGE: PIXEL})
        self.error = error

    def items(self) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, "full"), ErrorCode.DISK_FULL),
        (OSError(errno.EROFS, "read-only"), ErrorCode.OUTPUT_NOT_WRITABLE),
        (PermissionError(errno.EACCES, "no"), ErrorCode.OUTPUT_NOT_WRITABLE),
    ],
)
def test_a_failure_half_way_leaves_nothing(tmp_path: Path, error: OSError, code: ErrorCode) -> None:
    document = result()
    document.assets = _Failing(error)
    with pytest.raises(OutputError) as caught:
        document.save(tmp_path, ["md"])
    assert caught.value.code is code
    assert caught.value.hint
    assert listing(tmp_path) == []


def test_an_interrupt_half_way_leaves_nothing(tmp_path: Path) -> None:
    document = result()
    document.assets = _Failing(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        document.save(tmp_path, ["md"])
    assert listing(tmp_path) == []


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system is not allowed here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk(tiny_disk: Path) -> None:
    document = result()
    document.assets = {IMAGE: os.urandom(200_000)}
    with pytest.raises(OutputError) as caught:
        document.save(tiny_disk, ["md"])
    assert caught.value.code is ErrorCode.DISK_FULL
    assert listing(tiny_disk) == []


def test_a_file_in_the_way_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError) as caught:
        result().save(tmp_path / "file", ["md"])
    assert caught.value.code is ErrorCode.OUTPUT_NOT_WRITABLE


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a\\b", "", MANIFEST_NAME])
def test_extra_files_stay_inside(tmp_path: Path, name: str) -> None:
    with pytest.raises(OptionError):
        result().save(tmp_path, ["md"], extra_files={name: b""})
    assert listing(tmp_path) == []


def staged_with(document: ParseResult, tmp_path: Path) -> Path:
    known = Manifest(name="x.pdf", identity="place", fingerprint="options")
    stage(document, tmp_path / "x", [OutputFormat.MD], manifest=known).commit()
    return tmp_path / "x"


def test_the_manifest_tells_what_it_was_made_from(tmp_path: Path) -> None:
    manifest = read_manifest(staged_with(result(sha256="f" * 64), tmp_path))
    assert manifest is not None
    assert (manifest.sha256, manifest.identity, manifest.fingerprint) == ("f" * 64, "place", "options")
    assert (manifest.status, manifest.tier, manifest.pages) == ("success", "flash", 1)
    assert {record.path for record in manifest.files} == {"x.md", IMAGE}


def test_complete_means_same_input_same_options_all_files(tmp_path: Path) -> None:
    place = staged_with(result(sha256="f" * 64), tmp_path)
    assert is_complete(place, "f" * 64, "options")
    assert not is_complete(place, "e" * 64, "options")
    assert not is_complete(place, "f" * 64, "others")
    (place / "x.md").write_text("cut")
    assert not is_complete(place, "f" * 64, "options")
    (place / "x.md").unlink()
    assert not is_complete(place, "f" * 64, "options")


def test_a_result_with_lost_pages_is_not_complete(tmp_path: Path) -> None:
    assert not is_complete(staged_with(result(lost=True, sha256="f" * 64), tmp_path), "f" * 64, "options")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 2}', '{"schema": 1, "files": [{}]}', "\x00"])
def test_a_manifest_that_is_not_ours_is_no_manifest(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST_NAME).write_text(text)
    assert read_manifest(tmp_path) is None
