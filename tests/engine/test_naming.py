"""Directory names: valid everywhere, one per input, found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from mineru_engine.manifest import MANIFEST_NAME, Manifest
from mineru_engine.naming import SourceFile, assign_names, safe_stem


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("x.pdf", "x"),
        ("my doc.v2.pdf", "my doc.v2"),
        ("合同.pdf", "合同"),
        ("a:b*c?.pdf", "a_b_c_"),
        ("line\nbreak.pdf", "line_break"),
        ("con.pdf", "_con"),
        ("COM1.x.pdf", "_COM1.x"),
        (".pdf", "_pdf"),
        ("..pdf", "document"),
        ("end. .pdf", "end"),
        ("...", "document"),
        ("bad\udcff.pdf", "bad_"),
        ("", "document"),
    ],
)
def test_safe_stem(name: str, stem: str) -> None:
    assert safe_stem(name) == stem


def test_long_names_are_cut_between_characters() -> None:
    stem = safe_stem("文" * 100 + ".pdf", "_2")
    assert stem == "文" * 66 + "_2"
    assert len(stem.encode()) <= 200


def source(name: str, identity: str = "", digest: str = "") -> SourceFile:
    return SourceFile(name, identity or name, lambda: digest)


def existing(directory: Path, name: str, *, identity: str = "?", sha256: str = "?") -> None:
    (directory / name).mkdir(parents=True)
    (directory / name / MANIFEST_NAME).write_bytes(Manifest(name, sha256=sha256, identity=identity).to_bytes())


def test_same_stems_get_numbers_in_order(tmp_path: Path) -> None:
    sources = [source("x.pdf", "1"), source("X.docx", "2"), source("y.pdf", "3"), source("x.png", "4")]
    assert assign_names(sources, tmp_path / "none") == ["x", "X_2", "y", "x_3"]


def test_a_numbered_name_may_be_taken_by_another_input(tmp_path: Path) -> None:
    assert assign_names([source("x.pdf", "1"), source("x_2.pdf", "2"), source("x.png", "3")], tmp_path) == [
        "x",
        "x_2",
        "x_3",
    ]


def test_an_input_finds_its_directory_by_place(tmp_path: Path) -> None:
    existing(tmp_path, "x", identity="1")
    existing(tmp_path, "x_2", identity="2")
    assert assign_names([source("x.pdf", "2")], tmp_path) == ["x_2"]
    assert assign_names([source("x.pdf", "2"), source("x.pdf", "1")], tmp_path) == ["x_2", "x"]


def test_an_input_finds_its_directory_by_content(tmp_path: Path) -> None:
    existing(tmp_path, "x", sha256="a")
    existing(tmp_path, "x_2", sha256="b")
    assert assign_names([source("x.pdf", "moved", "b")], tmp_path) == ["x_2"]


def test_place_is_stronger_than_content(tmp_path: Path) -> None:
    existing(tmp_path, "x", identity="2", sha256="same")
    assert assign_names([source("x.pdf", "1", "same"), source("x.pdf", "2", "same")], tmp_path) == ["x_2", "x"]


def test_directories_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    existing(tmp_path, "X_2", identity="other")
    assert assign_names([source("x.pdf", "1")], tmp_path) == ["x_3"]


def test_contents_are_not_read_without_need(tmp_path: Path) -> None:
    def fail() -> str:
        raise AssertionError("read")

    existing(tmp_path, "x", identity="1")
    sources = [SourceFile("x.pdf", "1", fail), SourceFile("y.pdf", "2", fail)]
    assert assign_names(sources, tmp_path) == ["x", "y"]
