"""``mineru parse`` with an engine that plays a script."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from fake_documents import listing, result
from typer.testing import CliRunner, Result

from mineru_cli.app import app
from mineru_engine import (
    ErrorCode,
    OptionError,
    OutputError,
    ParseOptions,
    PasswordError,
    Progress,
    Settings,
    api,
)


class FakeEngine:
    """Stands in for ``mineru_engine.api``; what it does is told by the content of the file."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.settings: list[Settings] = []
        self.running = self.most_running = self.cleaned_up = 0

    async def parse_async(self, path: Path, *, settings: Settings, on_progress: Any, **options: Any) -> Any:
        ParseOptions.create(**options)
        self.calls.append((path.name, options))
        self.settings.append(settings)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            on_progress(Progress(path.name, 0, 1))
            await asyncio.sleep(0)
            return await self._play(path)
        finally:
            self.running -= 1

    async def _play(self, path: Path) -> Any:
        content = path.read_text()  # noqa: ASYNC240
        if content == "password":
            raise PasswordError("it is encrypted", hint="give a password", document=path.name)
        if content == "pages":
            raise OptionError("no such page", code=ErrorCode.PAGE_RANGE_INVALID)
        if content == "bug":
            raise ZeroDivisionError("a bug \x1b[31m")
        if content == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
            try:
                await asyncio.sleep(30)
            finally:
                os.kill(os.getpid(), signal.SIGINT)  # a second one, during clean-up
                self.cleaned_up += 1
        digest = sha256(content.encode()).hexdigest()
        return result(path.name, content or "Hello.", lost=content == "lost", sha256=digest)

    async def draw_layout_async(self, path: Path, document: Any, *, settings: Settings, password: Any) -> bytes:
        if path.suffix != ".pdf":
            raise OptionError("a layout can be drawn for PDFs only")
        return b"%PDF-layout"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    fake = FakeEngine()
    monkeypatch.setattr(api, "parse_async", fake.parse_async)
    monkeypatch.setattr(api, "draw_layout_async", fake.draw_layout_async)
    monkeypatch.setattr("mineru_cli.batch.shutdown_cached_models", lambda: None)
    monkeypatch.chdir(tmp_path)
    for name, content in {"a.pdf": "a", "b.pdf": "b", "c.docx": "c"}.items():
        Path(name).write_text(content)
    return fake


def mineru(*arguments: str, **more: Any) -> Result:
    done = CliRunner().invoke(app, ["parse", *arguments], **more)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output
    return done


def lines(done: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_default_output(engine: FakeEngine) -> None:
    done = mineru("a.pdf")
    assert done.exit_code == 0
    files = {path.relative_to("output/a").parts[0] for path in Path("output/a").rglob("*")}
    assert files == {"a.md", "a_middle.json", "a_content_list.json", "images", ".mineru.json"}
    assert done.stdout == ""
    assert "output/a" in done.stderr
    assert "1 of 1 documents done" in done.stderr


def test_only_what_the_user_gave_is_passed_on(engine: FakeEngine) -> None:
    mineru("a.pdf")
    options = "--tier medium --ocr-mode ocr --pages 1-2 --no-image-analysis --engine http --server-url http://h"
    mineru("b.pdf", *options.split(), "--model", "m", "--timeout", "3", "--page-timeout", "2", "--attachments")
    assert engine.calls == [
        ("a.pdf", {}),
        (
            "b.pdf",
            {
                "tier": "medium",
                "ocr_mode": "ocr",
                "pages": "1-2",
                "image_analysis": False,
                "engine": "http",
                "server_url": "http://h",
                "model": "m",
                "timeout_s": 3.0,
                "page_timeout_s": 2.0,
                "attachments": True,
            },
        ),
    ]


def test_settings_come_from_the_file_named(engine: FakeEngine) -> None:
    Path("my.toml").write_text("[processing]\nwindow_size = 7\n")
    mineru("a.pdf", "--config", "my.toml")
    assert engine.settings[0].processing.window_size == 7


def test_formats_as_lists_and_repeated(engine: FakeEngine) -> None:
    mineru("a.pdf", "--format", "md,html", "--format", "HTML", "--format", "latex", "--layout")
    assert {path.name for path in Path("output/a").glob("a*")} == {"a.md", "a.html", "a.tex", "a_layout.pdf"}
    assert Path("output/a/a_layout.pdf").read_bytes() == b"%PDF-layout"


def test_a_layout_that_cannot_be_drawn_is_a_notice(engine: FakeEngine) -> None:
    done = mineru("c.docx", "--layout")
    assert done.exit_code == 0
    assert "layout_not_drawn" in done.stderr


def test_markdown_to_stdout_and_nothing_else(engine: FakeEngine) -> None:
    done = mineru("a.pdf", "-o", "-")
    assert done.stdout.startswith("# A title")
    assert done.stderr == ""
    assert not Path("output").exists()
    assert mineru("a.pdf", "-o", "-", "--format", "html").stdout.startswith("<!doctype html>")


def test_stdin(engine: FakeEngine) -> None:
    done = mineru("-", "-o", "-", input="from the pipe")
    assert "from the pipe" in done.stdout
    mineru("-", input="x")
    assert Path("output/stdin/stdin.md").exists()


def test_one_failure_does_not_stop_the_others(engine: FakeEngine) -> None:
    Path("a.pdf").write_text("password")
    Path("b.pdf").write_text("bug")
    done = mineru("a.pdf", "b.pdf", "c.docx", "none.pdf", "--json")
    assert done.exit_code == 1
    found = {line["path"]: line for line in lines(done)}
    assert found["c.docx"]["status"] == "success"
    assert found["a.pdf"]["error"] == {
        "code": "password_required",
        "message": "it is encrypted",
        "hint": "give a password",
    }
    assert found["b.pdf"]["error"]["code"] == "internal"
    assert found["none.pdf"]["error"]["code"] == "file_not_found"
    assert listing("output") == ["c"]


def test_errors_and_hints_are_in_the_table_without_control_characters(engine: FakeEngine) -> None:
    Path("a.pdf").write_text("password")
    Path("b.pdf").write_text("bug")
    done = mineru("a.pdf", "b.pdf")
    assert "failed: it is encrypted (password_required)" in done.stderr
    assert "hint: give a password" in done.stderr
    assert "\x1b" not in done.stderr


def test_the_traceback_is_shown_when_asked_for(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINERU_DEBUG", "1")
    Path("b.pdf").write_text("bug")
    assert "ZeroDivisionError" in CliRunner().invoke(app, ["parse", "b.pdf"]).stderr


def test_only_unusable_options_are_a_usage_error(engine: FakeEngine) -> None:
    Path("a.pdf").write_text("pages")
    assert mineru("a.pdf").exit_code == 2
    assert mineru("a.pdf", "b.pdf").exit_code == 1


def test_the_json_line(engine: FakeEngine) -> None:
    Path("a.pdf").write_text("lost")
    done = mineru("a.pdf", "--json")
    (line,) = lines(done)
    assert done.stderr == ""
    assert done.exit_code == 0
    assert set(line) == {
        "path",
        "status",
        "error",
        "pages",
        "tier",
        "engine",
        "seconds",
        "output",
        "files",
        "diagnostics",
    }
    assert (line["status"], line["pages"], line["tier"], line["engine"]) == ("partial", 2, "flash", "native")
    assert line["output"] == "output/a"
    assert all(Path(name).is_file() for name in line["files"])
    assert line["diagnostics"] == [{"code": "page_lost", "message": "the page could not be read", "page": 1}]


def test_lost_pages_are_named_with_their_numbers(engine: FakeEngine) -> None:
    Path("a.pdf").write_text("lost")
    done = mineru("a.pdf")
    assert "a.pdf page 2: the page could not be read (page_lost)" in done.stderr
    assert "1 partial" in done.stderr


def test_quiet_says_nothing_but_errors(engine: FakeEngine) -> None:
    assert mineru("a.pdf", "-q").stderr == ""
    Path("b.pdf").write_text("password")
    done = mineru("b.pdf", "c.docx", "-q")
    assert "password_required" in done.stderr
    assert "c.docx" not in done.stderr


def test_a_file_name_that_is_not_utf8(engine: FakeEngine) -> None:
    name = os.fsdecode(b"bad\xff.pdf")
    Path(name).write_text("x")
    (line,) = lines(mineru(name, "--json"))
    assert line["path"] == name
    assert line["output"] == "output/bad_"
    mineru(name, "--overwrite")


@pytest.mark.parametrize("number", [1, 2, 5])
def test_concurrency(engine: FakeEngine, number: int) -> None:
    for index in range(6):
        Path(f"n{index}.pdf").write_text(str(index))
    done = mineru("*.pdf", "--concurrency", str(number), "--json")
    assert len(lines(done)) == 8
    assert engine.most_running == number


def test_an_existing_result_is_an_error_before_any_work(engine: FakeEngine) -> None:
    mineru("a.pdf")
    done = mineru("a.pdf")
    assert done.exit_code == 1
    assert "output_exists" in done.stderr
    assert len(engine.calls) == 1


def test_overwrite_replaces_the_result_of_the_edited_file(engine: FakeEngine) -> None:
    mineru("a.pdf")
    Path("a.pdf").write_text("edited")
    assert mineru("a.pdf", "--overwrite").exit_code == 0
    assert listing("output") == ["a"]
    assert "edited" in Path("output/a/a.md").read_text()


def test_same_names_never_overwrite_each_other(engine: FakeEngine) -> None:
    Path("sub").mkdir()
    Path("sub/a.pdf").write_text("another")
    mineru("a.pdf", "sub/a.pdf")
    assert listing("output") == ["a", "a_2"]
    assert "another" in Path("output/a_2/a_2.md").read_text()
    mineru("sub/a.pdf", "--overwrite")
    assert listing("output") == ["a", "a_2"]


def test_resume_skips_what_is_complete_and_unchanged(engine: FakeEngine) -> None:
    mineru("a.pdf", "b.pdf", "c.docx")
    Path("b.pdf").write_text("edited")
    Path("output/c/c.md").unlink()
    engine.calls.clear()
    done = mineru("a.pdf", "b.pdf", "c.docx", "--resume", "--json")
    assert done.exit_code == 0
    assert {line["path"]: line["status"] for line in lines(done)} == {
        "a.pdf": "skipped",
        "b.pdf": "success",
        "c.docx": "success",
    }
    assert sorted(name for name, _ in engine.calls) == ["b.pdf", "c.docx"]
    assert listing("output") == ["a", "b", "c"]
    skipped = next(line for line in lines(done) if line["path"] == "a.pdf")
    assert (skipped["pages"], skipped["output"]) == (1, "output/a")
    assert "output/a/a.md" in skipped["files"]


def test_resume_knows_what_auto_stands_for(engine: FakeEngine) -> None:
    mineru("a.pdf")
    engine.calls.clear()
    mineru("a.pdf", "--resume", "--tier", "basic")
    assert engine.calls == []


@pytest.mark.parametrize("change", [["--tier", "flash"], ["--format", "md"], ["--layout"], ["--pages", "1"]])
def test_resume_with_other_options_parses_again(engine: FakeEngine, change: list[str]) -> None:
    mineru("a.pdf")
    engine.calls.clear()
    mineru("a.pdf", "--resume", *change)
    assert len(engine.calls) == 1


def test_resume_finds_the_right_one_among_namesakes(engine: FakeEngine) -> None:
    Path("sub").mkdir()
    Path("sub/a.pdf").write_text("another")
    mineru("a.pdf", "sub/a.pdf")
    engine.calls.clear()
    found = {line["path"]: line for line in lines(mineru("sub/a.pdf", "a.pdf", "--resume", "--json"))}
    assert engine.calls == []
    assert (found["sub/a.pdf"]["output"], found["a.pdf"]["output"]) == ("output/a_2", "output/a")


def test_an_output_directory_that_cannot_be_written(engine: FakeEngine) -> None:
    Path("file").write_text("")
    done = mineru("a.pdf", "b.pdf", "-o", "file", "--json")
    assert done.exit_code == 1
    assert [line["error"]["code"] for line in lines(done)] == ["output_not_writable"] * 2
    assert engine.calls == []


def test_a_full_disk(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OutputError("no space left", code=ErrorCode.DISK_FULL, hint="free some")

    monkeypatch.setattr("mineru_cli.writing.stage", full)
    done = mineru("a.pdf", "b.pdf")
    assert done.exit_code == 1
    assert done.stderr.count("disk_full") == 2


@pytest.mark.parametrize("source", ["env", "file"])
def test_passwords_come_from_the_environment_or_a_file(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setenv("PDF_PASSWORD", "canary pass ")
    Path("secret").write_text("canary pass \n")
    given = ["--password-env", "PDF_PASSWORD"] if source == "env" else ["--password-file", "secret"]
    done = mineru("a.pdf", "--json", *given)
    assert engine.calls[0][1] == {"password": "canary pass "}
    written = b"".join(path.read_bytes() for path in Path("output").rglob("*") if path.is_file())
    assert "canary" not in done.output
    assert b"canary" not in written


def test_an_interrupt_cleans_up_and_leaves_no_trace(engine: FakeEngine) -> None:
    Path("b.pdf").write_text("interrupt")
    before = signal.getsignal(signal.SIGINT)
    done = mineru("a.pdf", "b.pdf", "c.docx", "--concurrency", "1", "--json")
    assert done.exit_code == 130
    assert {line["path"]: line["status"] for line in lines(done)} == {
        "a.pdf": "success",
        "b.pdf": "cancelled",
        "c.docx": "cancelled",
    }
    assert engine.cleaned_up == 1
    assert listing("output") == ["a"]
    assert signal.getsignal(signal.SIGINT) is before
