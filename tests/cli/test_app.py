"""The command as a whole: help, versions, usage errors."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest
from typer.testing import CliRunner

from mineru_cli.app import app
from mineru_engine import __version__

ROOT_COMMANDS = {"bench", "compare", "config", "doctor", "keys", "parse", "serve"}


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mineru_cli", *args], capture_output=True, text=True, timeout=60, check=False
    )


def test_help_names_every_command_and_no_unfinished_one() -> None:
    text = CliRunner().invoke(app, ["--help"]).stdout
    listed = {line.split()[0] for line in text.partition("Commands:")[2].splitlines() if line.strip()}
    assert listed == ROOT_COMMANDS


def test_help_of_parse_lists_the_exit_codes() -> None:
    text = " ".join(CliRunner().invoke(app, ["parse", "-h"]).stdout.split())
    assert "Exit codes: 0 all documents done (lost pages are named), 1 some failed, 2 usage, 130 interrupted" in text


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nsys.argv = ['mineru', '--help']\n"
        "from mineru_cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as e:\n    assert not e.code\n"
        "print('LOADED', *sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(out.partition("LOADED")[2].split())
    assert "typer" in loaded
    assert not {"mineru_engine", "pydantic", "rich", "asyncio", "numpy", "httpx", "loguru", "psutil"} & loaded


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"mineru {__version__}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["parse"],
        ["parse", "x.pdf", "--password", "secret"],
        ["parse", "x.pdf", "--api-key", "secret"],
        ["parse", "x.pdf", "--tier", "best"],
        ["parse", "x.pdf", "--format", "txt"],
        ["parse", "x.pdf", "--concurrency", "0"],
        ["parse", "x.pdf", "-o", "-", "--json"],
        ["parse", "x.pdf", "-o", "-", "--layout"],
        ["parse", "x.pdf", "y.pdf", "-o", "-"],
        ["parse", "x.pdf", "--password-env", "NO_SUCH_NAME"],
        ["parse", "x.pdf", "--password-file", "no-such-file"],
        ["parse", "x.pdf", "--config", "no-such-file"],
        ["nonsense"],
    ],
)
def test_usage_errors_end_with_2_and_one_message(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_the_script_is_declared() -> None:
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"]["mineru"] == "mineru_cli.app:main"
