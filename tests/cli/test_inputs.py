"""From paths to documents."""

from __future__ import annotations

import io
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from mineru_cli import inputs
from mineru_cli.errors import UsageProblem
from mineru_cli.inputs import find_documents
from mineru_engine import ErrorCode


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("b.pdf", "A.PDF", "notes.txt", ".hidden.pdf", "sub/c.docx", ".git/d.pdf", "out/x/x.html", "r/y.pdf"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    (tmp_path / "r" / ".mineru.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def labels(*paths: str, output: str = "out") -> list[str]:
    with ExitStack() as stack:
        return [document.label for document in find_documents(paths, Path(output), stack)]


def test_directories_are_searched_sorted_without_hidden_and_earlier_results(tree: Path) -> None:
    assert labels(".") == ["A.PDF", "b.pdf", "sub/c.docx"]


def test_writing_beside_the_inputs_is_allowed(tree: Path) -> None:
    assert labels(".", output=".") == ["A.PDF", "b.pdf", "out/x/x.html", "sub/c.docx"]


def test_a_named_file_is_taken_whatever_it_is_called(tree: Path) -> None:
    assert labels("notes.txt", ".hidden.pdf") == ["notes.txt", ".hidden.pdf"]


def test_globs_that_the_shell_left_alone(tree: Path) -> None:
    assert labels("*.pdf", "**/*.docx") == ["b.pdf", "sub/c.docx"]


def test_a_real_name_with_brackets_is_not_a_glob(tree: Path) -> None:
    Path("a[1].pdf").write_bytes(b"x")
    assert labels("a[1].pdf") == ["a[1].pdf"]


def test_every_document_once(tree: Path) -> None:
    assert labels("b.pdf", "./b.pdf", ".", str(tree / "b.pdf")) == ["b.pdf", "A.PDF", "sub/c.docx"]


@pytest.mark.parametrize("path", ["none.pdf", "*.nothing", "empty"])
def test_what_is_not_there_is_a_failed_document(tree: Path, path: str) -> None:
    Path("empty").mkdir()
    with ExitStack() as stack:
        (document,) = find_documents([path], None, stack)
    assert document.error is not None
    assert document.error.code is ErrorCode.FILE_NOT_FOUND


def test_a_directory_that_cannot_be_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def closed(path: str) -> object:
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(inputs.os, "scandir", closed)
    with ExitStack() as stack:
        *_, last = find_documents(["."], Path("out"), stack)
    assert last.error is not None
    assert last.error.code is ErrorCode.FILE_UNREADABLE
    assert "Permission denied" in last.error.message


class _Pipe(io.TextIOWrapper):
    terminal = False

    def isatty(self) -> bool:
        return self.terminal


def test_stdin_is_copied_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", _Pipe(io.BytesIO(b"%PDF-")))
    with ExitStack() as stack:
        (document,) = find_documents(["-"], None, stack)
        assert document.from_stdin
        assert document.path.read_bytes() == b"%PDF-"
    assert not document.path.parent.exists()


def test_stdin_from_a_terminal_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = _Pipe(io.BytesIO())
    pipe.terminal = True
    monkeypatch.setattr("sys.stdin", pipe)
    with ExitStack() as stack, pytest.raises(UsageProblem, match="terminal"):
        find_documents(["-"], None, stack)
