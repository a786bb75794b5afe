"""The documentation says what is: commands, options, variables, codes, examples and links are held against the code."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import mineru_engine
from mineru_cli.app import app
from mineru_cli.outcome import Outcome, Status, print_json_line
from mineru_cli.parse import FORMATS, _formats
from mineru_engine.detect import SUPPORTED_SUFFIXES
from mineru_engine.errors import ErrorCode
from mineru_engine.manifest import Manifest
from mineru_engine.options import _TIER_ALIASES, ParseOptions, Tier
from mineru_engine.output import FILE_NAMES
from mineru_engine.result import OutputFormat, PageKind
from mineru_engine.settings import Settings, env_name

ROOT = Path(__file__).resolve().parents[1]
READMES = ("README.md", "README_zh-CN.md")
CLI_PAGES = ("docs/cli.md", "docs/zh/cli.md")
TROUBLE_PAGES = ("docs/troubleshooting.md", "docs/zh/troubleshooting.md")
PAGES = (
    *READMES,
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "demo/README.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
)
USER_PAGES = tuple(page for page in PAGES if page.startswith(("README", "docs/")))
OWN_FOLDERS = ("demo/", "tests/", "benchmarks/", "docs/")


@cache
def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


# --- Markdown ---


def blocks(text: str, *languages: str) -> list[str]:
    """Bodies of the fenced blocks in these languages."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [body for language, body in found if language in languages]


def prose(text: str) -> str:
    """The text without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def section(text: str, heading: str) -> str:
    """What stands under a heading, up to the next one of the same or a higher level."""
    found = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert found, f"no heading {heading!r}"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def first_column(table: str) -> list[str]:
    """The names in code font in the first cells of a table's rows."""
    return re.findall(r"^\| `([^`]+)`[^|]*\|", table, re.MULTILINE)


def slugs(text: str) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


# --- Commands ---


def shell_lines(page: str) -> Iterator[str]:
    text = read(page)
    for body in blocks(text, "bash"):
        yield from (line for line in body.splitlines() if line.strip() and not line.startswith("#"))
    for body in blocks(text, "console"):
        yield from (line[2:] for line in body.splitlines() if line.startswith("$ "))
    yield from (
        code for code in re.findall(r"`([^`\n]+)`", prose(text)) if re.match(r"(mineru|make|python) [a-z-]", code)
    )


def simple_commands(line: str) -> list[list[str]]:
    """A shell line cut at its operators; assignments in front and redirections are left out."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    redirected = False
    for token in lexer:
        if set(token) <= set("|&;"):
            commands.append([])
        elif set(token) <= set("<>"):
            redirected = True
        elif redirected:
            redirected = False
        elif commands[-1] or not re.match(r"[A-Z_]+=", token):
            commands[-1].append(token)
    return [command for command in commands if command]


def commands_of(page: str) -> list[list[str]]:
    return [command for line in shell_lines(page) for command in simple_commands(line)]


def check_mineru(words: list[str]) -> None:
    """Parse a command line as ``mineru`` does, without running it."""
    command: Any = typer.main.get_command(app)
    arguments = words[1:]
    while arguments and arguments[0] in getattr(command, "commands", {}):
        command = command.commands[arguments.pop(0)]
    if not arguments:  # only named, not shown
        return
    assert arguments[0].startswith("-") or not hasattr(command, "commands"), words
    try:
        values = command.make_context("mineru", arguments).params
    except typer.Exit:  # --help and --version
        return
    _formats(values.get("formats") or ())
    known = {"tier", "ocr_mode", "engine", "pages"} & values.keys()
    ParseOptions.create(**{name: values[name] for name in known if values[name] is not None})


def check_command(words: list[str]) -> None:
    """Fail if a documented command cannot be what it says."""
    if words[0] == "mineru":
        check_mineru(words)
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE)
        assert words[1] in targets, words
    for word in words:
        if word.startswith(OWN_FOLDERS) and not re.search(r"[*?]", word):
            assert (ROOT / word).exists(), words
        if word.startswith("benchmarks."):
            place = ROOT / word.replace(".", "/")
            assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), words


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page: str) -> None:
    for words in commands_of(page):
        check_command(words)


@pytest.mark.parametrize("page", [*READMES, *CLI_PAGES])
def test_the_main_pages_show_commands(page: str) -> None:
    shown = commands_of(page)
    assert {tuple(words[:2]) for words in shown} >= {("mineru", "parse"), ("mineru", "config"), ("mineru", "doctor")}
    assert len(shown) > 10


@pytest.mark.parametrize(
    "line",
    [
        "mineru parse x.pdf --nope",
        "mineru parse --json",
        "mineru server",
        "mineru parse x.pdf --tier best",
        "mineru parse x.pdf --format md,txt",
        "mineru doctor x",
        "DEBUG=1 mineru parse x.pdf --json | mineru config shown",
        "make nonsense",
        "mineru parse demo/no-such-file.pdf > x.md",
        "python -m benchmarks.no_such_script",
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line: str) -> None:
    with pytest.raises(Exception, match=r"."):  # Typer's usage errors have no public type
        for words in simple_commands(line):
            check_command(words)


MINERU: Any = typer.main.get_command(app)


def options(command: Any = MINERU) -> set[str]:
    """Long options of a command and those below it."""
    found = {"--help"} if command is MINERU else set()
    for parameter in command.params:
        found |= {name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("--")}
    return found.union(*(options(below) for below in getattr(command, "commands", {}).values()))


def options_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))


@pytest.mark.parametrize("page", CLI_PAGES)
@pytest.mark.parametrize("name", MINERU.commands)
def test_every_option_is_described_under_its_command(name: str, page: str) -> None:
    assert options_in(section(read(page), f"`mineru {name}`")) == options(MINERU.commands[name])


@pytest.mark.parametrize("page", USER_PAGES)
def test_no_option_is_made_up(page: str) -> None:
    assert options_in(prose(read(page))) <= options()


# --- Python ---


TAKE_OPTIONS = {
    function.__name__: function
    for function in (
        mineru_engine.parse,
        mineru_engine.parse_async,
        mineru_engine.doc_analyze,
        mineru_engine.aio_doc_analyze,
        mineru_engine.preload,
        mineru_engine.preload_async,
    )
}


def check_python(code: str) -> None:
    """Fail if an example does not compile, imports what is not there, or passes an option that does not exist."""
    tree = ast.parse(code)
    compile(tree, "example", "exec")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "mineru_engine":
            missing = {alias.name for alias in node.names} - set(mineru_engine.__all__)
            assert not missing
        if isinstance(node, ast.Call):
            _check_call(node)


def _check_call(call: ast.Call) -> None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    if name in TAKE_OPTIONS:
        plain = {key: value.value for key, value in given.items() if isinstance(value, ast.Constant)}
        ParseOptions.create(**plain)
        assert given.keys() - ParseOptions.model_fields <= inspect.signature(TAKE_OPTIONS[name]).parameters.keys()
    if name == "save" and "formats" in given:
        assert [OutputFormat(item) for item in ast.literal_eval(given["formats"])]
    if name == "load" and "overrides" in given:
        Settings.load(environ={}, overrides=ast.literal_eval(given["overrides"]))


@pytest.mark.parametrize("page", PAGES)
def test_python_examples_use_what_there_is(page: str) -> None:
    for code in blocks(read(page), "python"):
        check_python(code)


@pytest.mark.parametrize(
    "code",
    [
        "from mineru_engine import convert",
        "parse('x.pdf', tire='basic')",
        "parse('x.pdf', tier='best')",
        "parse_async('x.pdf', progress=print)",
        "preload(tier='high', on_progress=print)",
        "await parse_async('x.pdf')",
        "result.save('out', formats=['txt'])",
        "Settings.load(overrides={'worker.process': 1})",
        "def broken(:",
    ],
)
def test_a_wrong_example_is_noticed(code: str) -> None:
    with pytest.raises((AssertionError, ValueError, SyntaxError)):
        check_python(code)


def test_both_readmes_show_the_same_commands_and_examples() -> None:
    english, chinese = READMES
    assert commands_of(english) == commands_of(chinese)
    for language in ("python", "console", "bash"):
        ours, theirs = blocks(read(english), language), blocks(read(chinese), language)
        assert [_uncommented(body) for body in ours] == [_uncommented(body) for body in theirs]
    assert len(re.findall(r"^#+ ", read(english), re.MULTILINE)) == len(
        re.findall(r"^#+ ", read(chinese), re.MULTILINE)
    )


def _uncommented(body: str) -> str:
    return re.sub(r"  +# .*", "", body)


@pytest.mark.parametrize("page", READMES)
def test_the_measured_section_can_be_filled_by_a_script(page: str) -> None:
    text = read(page)
    assert text.count("<!-- measured:start -->") == text.count("<!-- measured:end -->") == 1


# --- Settings ---


def source_files() -> list[Path]:
    """Ours: engine and command line."""
    return [path for package in ("mineru_engine", "mineru_cli") for path in sorted((ROOT / package).rglob("*.py"))]


@cache
def variables() -> frozenset[str]:
    """All environment variables that the code reads: the settings, and literals in the source."""
    literals = {
        name for path in source_files() for name in re.findall(r'"(MINERU_[A-Z_]+[A-Z])"', path.read_text("utf-8"))
    }
    return frozenset({env_name(name) for name, _ in Settings().leaves()} | literals)


@pytest.mark.parametrize("page", READMES)
def test_the_readme_names_every_variable(page: str) -> None:
    assert set(re.findall(r"MINERU_[A-Z_]+[A-Z]", read(page))) == variables()


@pytest.mark.parametrize("page", PAGES)
def test_no_variable_is_made_up(page: str) -> None:
    assert set(re.findall(r"MINERU_[A-Z_]+[A-Z]", read(page))) <= variables()


@pytest.mark.parametrize("page", READMES)
def test_the_settings_table_gives_name_and_default(page: str) -> None:
    rows = re.findall(r"^\| `(MINERU_\w+)` \| `([\w.]+)` \| *(\S*?) *\|", read(page), re.MULTILINE)
    listed = {name: (variable, default) for variable, name, default in rows}
    real = {name: (env_name(name), _shown(value)) for name, value in Settings().leaves()}
    assert listed == real


def _shown(value: object) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(read(page), "toml")])
def test_settings_files_shown_are_valid(page: str, tmp_path: Path) -> None:
    for body in blocks(read(page), "toml"):
        (tmp_path / "mineru.toml").write_text(body, encoding="utf-8")
        Settings.load(tmp_path / "mineru.toml", environ={})


# --- Codes ---


def diagnostic_codes(source: str, *, passes_on: frozenset[str] = frozenset()) -> set[str]:
    """Codes of the diagnostics that a module makes.

    :param passes_on: functions that hand on the codes of a library.
    """
    found: set[str] = set()
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    by_name = {function.name: function for function in functions}
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and node.args and _makes_diagnostic(node):
                found |= _codes(node.args[0], function, by_name, passes_on)
            if isinstance(node, ast.Dict):
                items = {
                    key.value: value
                    for key, value in zip(node.keys, node.values, strict=True)
                    if isinstance(key, ast.Constant)
                }
                if items.keys() == {"code", "message", "page"} and isinstance(items["code"], ast.Constant):
                    found.add(str(items["code"].value))
    return found


def _makes_diagnostic(call: ast.Call) -> bool:
    return _called(call) in (("_note",) if isinstance(call.func, ast.Attribute) else ("note", "Diagnostic"))


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _codes(argument: ast.expr, function: Any, by_name: dict[str, Any], passes_on: frozenset[str]) -> set[str]:
    if isinstance(argument, ast.Constant):
        return {argument.value}
    if isinstance(argument, ast.Call) and _called(argument) in by_name:
        returned = [node for node in ast.walk(by_name[_called(argument)]) if isinstance(node, ast.Return)]
        return {leaf.value for node in returned for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)}
    assert function.name == "_note" or function.name in passes_on, f"{function.name}: what code is this?"
    return set()


@cache
def all_diagnostic_codes() -> frozenset[str]:
    """Codes of what can be said about a document: not those of ``mineru bench``, which speak of measurements."""
    passes_on = frozenset({"_read_whole"})  # docvortex's own codes
    paths = [path for path in source_files() if ROOT / "mineru_cli" / "bench" not in path.parents]
    return frozenset(code for path in paths for code in diagnostic_codes(path.read_text("utf-8"), passes_on=passes_on))


@pytest.mark.parametrize(
    ("page", "heading"), [("docs/output.md", "Diagnostic codes"), ("docs/zh/troubleshooting.md", "诊断码")]
)
def test_every_diagnostic_is_documented_and_real(page: str, heading: str) -> None:
    listed = first_column(section(read(page), heading))
    assert sorted(listed) == sorted(all_diagnostic_codes())


@pytest.mark.parametrize(("page", "heading"), [(TROUBLE_PAGES[0], "Error codes"), (TROUBLE_PAGES[1], "错误码")])
def test_every_error_code_is_documented_and_real(page: str, heading: str) -> None:
    listed = first_column(section(read(page), heading))
    assert listed == [str(code) for code in ErrorCode]


def test_every_error_class_and_code_is_in_the_python_page() -> None:
    text = section(read("docs/python.md"), "Errors")
    classes = {name for name in mineru_engine.__all__ if name.endswith("Error")}
    assert classes <= set(re.findall(r"\b\w+Error\b", text))
    assert {f"`{code}`" for code in ErrorCode} <= set(re.findall(r"`\w+`", text))


def test_codes_are_collected_from_every_shape() -> None:
    source = (
        "def code(x):\n    return 'late' if x else 'early'\n"
        "def work(self):\n    self._note('one', 'text', 1)\n    self._note(code(2), 'text')\n"
        "    found.append(Diagnostic('two', 'text'))\n    note('four', 'text')\n"
        "    return {'code': 'three', 'message': m, 'page': None}\n"
        "def _note(self, code):\n    Diagnostic(code, 'text')\n"
    )
    assert diagnostic_codes(source) == {"one", "two", "three", "four", "late", "early"}
    with pytest.raises(AssertionError, match="what code is this"):
        diagnostic_codes("def work(code):\n    self._note(code, 'text')\n")
    assert {"page_timeout", "copy_forbidden", "layout_not_drawn", "attachment_failed"} <= all_diagnostic_codes()
    assert {"vlm_page_failed", "engine_builtin", "enhance_failed"} <= all_diagnostic_codes()


# --- Tables ---


def test_page_kinds_are_documented() -> None:
    assert first_column(section(read("docs/output.md"), "Page kinds")) == [str(kind) for kind in PageKind]


@pytest.mark.parametrize("page", READMES)
def test_tiers_are_documented(page: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)? ?\|", read(page), re.MULTILINE)
    aliases = {str(tier): alias for alias, tier in _TIER_ALIASES.items()}
    assert rows == [(str(tier), aliases.get(str(tier), "")) for tier in Tier if tier is not Tier.AUTO]


@pytest.mark.parametrize("page", [*READMES, "docs/output.md"])
def test_formats_and_their_files_are_documented(page: str) -> None:
    words = set(re.findall(r"`([^`]+)`", prose(read(page))))
    assert {name.format("x") for name in FILE_NAMES.values()} <= words
    if page in READMES:
        assert set(FORMATS) <= words


@pytest.mark.parametrize("page", READMES)
def test_input_formats_are_documented(page: str) -> None:
    called = {
        "jpg": "JPEG",
        "jp2": "JPEG 2000",
        "tif": "TIFF",
        "htm": "HTML",
        "shtml": "HTML",
        "mht": "MHTML",
        "heif": "HEIC",
    }
    text = read(page).lower()
    assert not {name for name in SUPPORTED_SUFFIXES if called.get(name, name).lower() not in text}


@pytest.mark.parametrize("page", CLI_PAGES)
def test_the_json_line_has_the_fields_shown(page: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    print_json_line(Outcome("x.pdf", Status.SUCCESS))
    (shown,) = blocks(read(page), "json")
    assert list(json.loads(shown)) == list(json.loads(capfdbinary.readouterr().out))
    for status in Status:
        assert f"`{status}`" in read(page)


@pytest.mark.parametrize("page", CLI_PAGES)
def test_the_settings_are_printed_as_shown(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = (body for body in blocks(read(page), "console") if "config show" in body)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINERU_WORKER_PROCESSES", "1")
    command, printed = shown.split("\n", 1)
    assert command == "$ MINERU_WORKER_PROCESSES=1 mineru config show"
    assert printed == CliRunner().invoke(app, ["config", "show"]).stdout


def test_the_extension_has_the_fields_shown() -> None:
    middle, _ = mineru_engine.doc_analyze(b"a,b\n1,2\n", "x.csv", tier="flash")
    listed = first_column(section(read("docs/output.md"), "The extension `mineru`"))
    assert listed == list(middle.extensions["mineru"])


def test_the_manifest_has_the_fields_shown() -> None:
    listed = re.findall(
        r"`(\w+)`",
        "\n".join(re.findall(r"^\|([^|]+)\|", section(read("docs/output.md"), "`.mineru.json`"), re.MULTILINE)),
    )
    assert sorted(listed) == sorted(json.loads(Manifest("x").to_bytes()))


@pytest.mark.parametrize("page", PAGES)
def test_json_blocks_are_json(page: str) -> None:
    for body in blocks(read(page), "json"):
        json.loads(body)


# --- Links ---


def broken_links(page: str, text: str) -> list[str]:
    """Relative links that lead nowhere: no such file, or no such heading in it."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        if not target.exists() or (anchor and anchor not in slugs(target.read_text("utf-8") if name else text)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    assert broken_links(page, read(page)) == []


def test_a_broken_link_is_noticed() -> None:
    text = "# Here\n[a](no-such-file.md) [b](README.md#settings) [c](README.md#nowhere) [d](#here) [e](https://example.org/x)"
    assert broken_links("CHANGELOG.md", text) == ["no-such-file.md", "README.md#nowhere"]


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "zh").glob("*.md")))
def test_chinese_pages_have_the_sections_of_the_english_ones(page: Path) -> None:
    """One more is allowed: the Chinese pages have no output.md, so the diagnostics stand in troubleshooting.md."""
    english = len(re.findall(r"^#+ ", prose(read(f"docs/{page.name}")), re.MULTILINE))
    chinese = len(re.findall(r"^#+ ", prose(page.read_text("utf-8")), re.MULTILINE))
    assert chinese - english in (0, 1)
