"""Which code and which results a report is about."""

from __future__ import annotations

import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mineru_cli.bench.results import Results, content_of
from mineru_cli.bench.source import describe_source, git_state
from mineru_engine.version import __version__


def git(root: Path, *words: str) -> str:
    options = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.defaultBranch=main"]
    command = ["git", "-C", str(root), *options, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "mineru_engine").mkdir()
    (tmp_path / "mineru_engine" / "__init__.py").write_text("x = 1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "one")
    return tmp_path


def test_a_clean_tree_has_its_commit(repository: Path) -> None:
    assert git_state(repository) == (git(repository, "rev-parse", "HEAD"), False)


@pytest.mark.parametrize("name", ["mineru_engine/__init__.py", "mineru_engine/new.py", "pyproject.toml"])
def test_a_change_of_what_is_measured_is_told(name: str, repository: Path) -> None:
    (repository / name).write_text("y = 2\n")
    assert git_state(repository)[1] is True


def test_other_files_do_not_matter(repository: Path) -> None:
    (repository / "notes.txt").write_text("y = 2\n")
    assert git_state(repository)[1] is False


def test_code_that_only_lies_in_a_repository_has_no_commit(repository: Path) -> None:
    inside = repository / "venv" / "site-packages"
    (inside / "mineru_engine").mkdir(parents=True)
    (inside / "mineru_engine" / "__init__.py").write_text("x = 1\n")
    assert git_state(inside) == (None, None)


def test_without_git_nothing_is_known(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert git_state(repository) == (None, None)


def test_the_source_of_this_process() -> None:
    source = describe_source()
    root = Path(__file__).parents[2]
    assert (
        source.files["mineru_engine/version.py"]
        == sha256((root / "mineru_engine" / "version.py").read_bytes()).hexdigest()
    )
    assert "mineru_engine/models/layout_cdla.onnx" in source.files
    assert "mineru_cli/bench/source.py" in source.files
    assert not any("__pycache__" in name for name in source.files)
    assert source.distributions["mineru"] == __version__
    assert "pydantic" in source.distributions
    assert source.lock_sha256 == sha256((root / "requirements" / "constraints.txt").read_bytes()).hexdigest()


def test_a_state_that_is_known_is_taken() -> None:
    source = describe_source(("abc", True))
    assert (source.revision, source.dirty) == ("abc", True)


def test_every_source_has_its_own_tree_hash(tmp_path: Path) -> None:
    """The same files give the same, one byte more gives another."""
    code = "from mineru_cli.bench.source import describe_source; print(describe_source((None, None)).tree_sha256)"
    original = tmp_path / "original"
    for package in ("mineru_engine", "mineru_cli"):
        shutil.copytree(Path(__file__).parents[2] / package, original / package)
    hashes = []
    for number in range(3):
        packages = tmp_path / str(number)
        shutil.copytree(original, packages)
        if number == 2:
            with (packages / "mineru_engine" / "api.py").open("a") as stream:
                stream.write("\n")
        done = subprocess.run(
            [sys.executable, "-P", "-c", code], env={"PYTHONPATH": str(packages)}, capture_output=True, check=True
        )
        hashes.append(done.stdout)
    assert hashes[0] == hashes[1] != hashes[2]


# results


class Middle:
    """A document as the protocol has it."""

    def __init__(self, pages: list[Any], version: str = "1") -> None:
        self._content = {
            "metadata": {"producer": {"name": "mineru", "version": version}, "file_suffix": "pdf"},
            "extensions": {"mineru": {"versions": {"x": version}}, "docvortex_layout": {"version": 1}},
            "pages": pages,
        }

    def to_dict(self) -> Any:
        return self._content


def result(*pages: list[Any], version: str = "1") -> Any:
    middle = Middle([{"page_idx": number, "blocks": blocks} for number, blocks in enumerate(pages)], version)
    return SimpleNamespace(middle_json=middle, page_count=len(pages))


def block(text: str, index: int = 0) -> dict[str, Any]:
    return {"type": "text", "index": index, "content": [{"type": "text", "content": text, "index": index}]}


def test_versions_and_notes_are_no_content() -> None:
    results = Results(1)
    results.add(0, result([block("a")], version="1"))
    results.add(0, result([block("a")], version="2"))
    assert results.table()[0].variants == 1
    assert content_of(result([block("a")]))["extensions"] == {"docvortex_layout": {"version": 1}}


def test_another_text_is_another_variant_and_shows_where() -> None:
    results, other = Results(1), Results(1)
    results.add(0, result([block("a"), block("b")], [block("c")]))
    other.add(0, result([block("a"), block("B")], [block("c")]))
    ours, theirs = results.table()[0], other.table()[0]
    assert ours.sha256 != theirs.sha256
    assert (ours.blocks[0][0], ours.blocks[1]) == (theirs.blocks[0][0], theirs.blocks[1])
    assert ours.blocks[0][1] != theirs.blocks[0][1]
    results.add(0, result([block("a"), block("B")], [block("c")]))
    assert results.table()[0].variants == 2
    assert results.table()[0].sha256 == ours.sha256


def test_a_block_more_leaves_the_hashes_of_the_others() -> None:
    results, other = Results(1), Results(1)
    results.add(0, result([block("a", 0), block("b", 1)]))
    other.add(0, result([block("new", 0), block("a", 1), block("b", 2)]))
    assert results.table()[0].blocks[0] == other.table()[0].blocks[0][1:]


def test_an_input_without_a_result_has_none() -> None:
    results = Results(2)
    results.add(1, result([block("a")]))
    missing, found = results.table()
    assert (missing.sha256, missing.blocks, missing.variants) == (None, [], 0)
    assert (found.input, found.variants, results.pages) == (1, 1, [0, 1])
