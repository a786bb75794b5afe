"""``mineru config``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mineru_cli.app import app
from mineru_engine.settings import leaf_names


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_show_lists_every_setting_and_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mineru.toml").write_text("[worker]\nprocesses = 2\n")
    monkeypatch.setenv("MINERU_PROCESSING_WINDOW_SIZE", "9")
    done = CliRunner().invoke(app, ["config", "show"])
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert list(rows) == leaf_names()
    assert rows["worker.processes"] == ["2", "mineru.toml"]
    assert rows["processing.window_size"] == ["9", "MINERU_PROCESSING_WINDOW_SIZE"]
    assert rows["model.vlm.model"] == ["-", "default"]


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_secrets_are_masked(monkeypatch: pytest.MonkeyPatch, more: list[str]) -> None:
    monkeypatch.setenv("MINERU_MODEL_VLM_API_KEY", "canary-key")
    monkeypatch.setenv("MINERU_MODEL_VLM_SERVER_URL", "https://user:canary-word@host:8000/v1")
    done = CliRunner().invoke(app, ["config", "show", *more])
    assert done.exit_code == 0
    assert "canary" not in done.output
    assert "https://***@host:8000/v1" in done.stdout
    assert "********" in done.stdout


def test_show_as_json() -> None:
    Path("my.toml").write_text("[processing]\npage_timeout = 3\n")
    done = CliRunner().invoke(app, ["config", "show", "--json", "--config", "my.toml"])
    values = json.loads(done.stdout)
    assert values["processing.page_timeout"] == {"value": 3.0, "source": "my.toml"}
    assert values["model.vlm.server_url"] == {"value": None, "source": "default"}


def test_path() -> None:
    assert CliRunner().invoke(app, ["config", "path"]).stdout.strip().endswith("config/mineru/mineru.toml")
    Path("mineru.toml").write_text("")
    assert CliRunner().invoke(app, ["config", "path"]).stdout.strip() == str(Path("mineru.toml").absolute())


def test_a_mistake_in_the_file_is_one_message() -> None:
    Path("mineru.toml").write_text("[worker]\nproces = 2\n")
    done = CliRunner().invoke(app, ["config", "show"])
    assert done.exit_code == 2
    assert (
        done.stderr
        == "mineru: mineru.toml: unknown setting 'worker.proces'\n  hint: did you mean 'worker.processes'?\n"
    )
