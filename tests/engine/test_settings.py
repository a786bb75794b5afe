"""Settings: precedence, sources, and mistakes that are pointed out."""

from __future__ import annotations

from pathlib import Path

import pytest

from mineru_engine import ErrorCode, OptionError, Settings
from mineru_engine.settings import env_name, leaf_names


def test_defaults_have_no_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings.load(environ={})
    assert settings == Settings()
    assert settings.sources == {}


def test_precedence_is_option_environment_file_default(tmp_path: Path) -> None:
    file = tmp_path / "mineru.toml"
    file.write_text('[processing]\nwindow_size = 1\nmax_file_mb = 1\n[model.vlm]\nmodel = "file"\n')
    environ = {"MINERU_PROCESSING_WINDOW_SIZE": "2", "MINERU_MODEL_VLM_MODEL": "environment"}
    settings = Settings.load(file, environ=environ, overrides={"model.vlm.model": "option", "worker.processes": None})
    assert (settings.processing.max_file_mb, settings.processing.window_size) == (1, 2)
    assert settings.model.vlm.model == "option"
    assert settings.sources == {
        "processing.max_file_mb": str(file),
        "processing.window_size": "MINERU_PROCESSING_WINDOW_SIZE",
        "model.vlm.model": "option",
    }


def test_the_file_in_the_directory_wins_over_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    users = tmp_path / "home" / "mineru" / "mineru.toml"
    users.parent.mkdir(parents=True)
    users.write_text("[worker]\nprocesses = 3\n")
    assert Settings.load(environ={}).worker.processes == 3
    Path("mineru.toml").write_text("[worker]\nprocesses = 4\n")
    assert Settings.load(environ={}).worker.processes == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[worker]\nproceses = 1\n", "unknown setting 'worker.proceses'"),
        ("[worker]\nprocesses = -1\n", "worker.processes"),
        ("[worker\n", "mineru.toml"),
        ("x = 1\n", "unknown setting 'x'"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mineru.toml"
    file.write_text(text)
    with pytest.raises(OptionError, match=message) as caught:
        Settings.load(file, environ={})
    assert caught.value.code is ErrorCode.SETTING_INVALID
    assert str(file) in caught.value.message


def test_a_missing_file_and_a_near_miss(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no settings file"):
        Settings.load(tmp_path / "none.toml", environ={})
    with pytest.raises(OptionError) as caught:
        Settings.load(environ={}, overrides={"worker.process": 1})
    assert caught.value.hint == "did you mean 'worker.processes'?"


def test_a_bad_environment_variable_is_named_without_its_value() -> None:
    with pytest.raises(OptionError) as caught:
        Settings.load(environ={"MINERU_WORKER_PROCESSES": "canary"})
    assert "MINERU_WORKER_PROCESSES" in caught.value.message
    assert "canary" not in caught.value.message


def test_secrets_do_not_show() -> None:
    settings = Settings.load(environ={"MINERU_MODEL_VLM_API_KEY": "canary"})
    assert settings.model.vlm.api_key is not None
    assert settings.model.vlm.api_key.get_secret_value() == "canary"
    assert "canary" not in f"{settings!r} {settings} {settings.model_dump_json()} {dict(settings.leaves())}"


def test_every_leaf_has_one_environment_variable() -> None:
    names = [env_name(name) for name in leaf_names()]
    assert len(set(names)) == len(names)
    assert "MINERU_MODEL_VLM_SERVER_URL" in names
    assert [name for name, _ in Settings().leaves()] == leaf_names()
