"""Which documents a benchmark reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pypdfium2
import pytest

from mineru_cli.bench import workload
from mineru_cli.bench.workload import BenchDocument, Documents, named_documents, standard_documents
from mineru_cli.errors import UsageProblem
from mineru_engine.errors import InputError
from mineru_engine.pages import parse_pages


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def pages(document: BenchDocument) -> int:
    with pypdfium2.PdfDocument(document.path) as opened:
        return len(parse_pages(document.pages, len(opened)))


def write(path: Path, size: int = 1) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return str(path)


@pytest.mark.parametrize(("builtin", "total"), [(False, 69), (True, 40)])
def test_the_standard_workload_has_documents_for_eight_callers(builtin: bool, total: int) -> None:
    found = standard_documents(builtin=builtin, reads_scans=True)
    assert len(found.documents) == 12
    assert sum(map(pages, found.documents)) == total
    names = [document.name for document in found.documents]
    assert found.single in names
    assert len(set(names)) == len(names)


def test_the_short_form_says_that_it_is_short() -> None:
    short, long = (standard_documents(builtin=builtin, reads_scans=True) for builtin in (True, False))
    assert (short.name, long.name) == ("standard, short", "standard")
    assert short.note is not None
    assert long.note is None


@pytest.mark.parametrize("builtin", [False, True])
def test_a_tier_without_a_reader_of_images_gets_no_scans(builtin: bool) -> None:
    names = [document.name for document in standard_documents(builtin=builtin, reads_scans=False).documents]
    assert names
    assert not any("scan" in name for name in names)


def test_without_the_repository_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(workload, "__file__", str(tmp_path / "site-packages" / "mineru_cli" / "bench" / "workload.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageProblem, match="come with the repository only") as caught:
        standard_documents(builtin=True, reads_scans=True)
    assert "mineru bench FILE.pdf" in str(caught.value.hint)


def test_an_installed_package_finds_it_in_a_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, demo: Path) -> None:
    monkeypatch.setattr(workload, "__file__", str(tmp_path / "site-packages" / "mineru_cli" / "bench" / "workload.py"))
    monkeypatch.chdir(demo.parent)
    assert standard_documents(builtin=True, reads_scans=True).documents


def test_named_documents(tmp_path: Path, stack: ExitStack) -> None:
    paths = [write(tmp_path / "a.pdf"), write(tmp_path / "b.pdf", 20), write(tmp_path / "c.pdf", 3)]
    found = named_documents(paths, stack)
    assert [document.name for document in found.documents] == ["a.pdf", "b.pdf", "c.pdf"]
    assert found.single == "b.pdf"


def test_files_of_the_same_name_keep_their_path(tmp_path: Path, stack: ExitStack) -> None:
    paths = [write(tmp_path / "1" / "a.pdf"), write(tmp_path / "2" / "a.pdf"), write(tmp_path / "b.pdf")]
    names = [document.name for document in named_documents(paths, stack).documents]
    assert names == [Path(paths[0]).as_posix(), Path(paths[1]).as_posix(), "b.pdf"]


def test_a_missing_document_is_refused(tmp_path: Path, stack: ExitStack) -> None:
    with pytest.raises(InputError, match="no such file"):
        named_documents([write(tmp_path / "a.pdf"), str(tmp_path / "none.pdf")], stack)


def test_a_workload_file(tmp_path: Path, stack: ExitStack) -> None:
    write(tmp_path / "docs" / "a.pdf")
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\nsingle = "a.pdf#2"\ndocuments = [{ file = "docs/a.pdf", pages = "2" }]\n')
    expected = BenchDocument(name="a.pdf#2", path=tmp_path / "docs" / "a.pdf", pages="2")
    assert named_documents([str(file)], stack) == Documents(name="mine", documents=(expected,), single="a.pdf#2")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name = ", "Invalid value"),
        ('name = "x"', "documents: Field required"),
        ('name = "x"\ndocuments = []', "names no documents"),
        ('name = "x"\ndocuments = [{ file = "none.pdf" }]', "none.pdf is missing"),
        ('name = "x"\ndocuments = [{ file = "mine.toml", page = 1 }]', "documents.0.page"),
    ],
)
def test_a_bad_workload_file(text: str, problem: str, tmp_path: Path, stack: ExitStack) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(UsageProblem, match=problem):
        named_documents([str(file)], stack)
