"""``mineru config``: which settings are in force, and where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mineru_cli.errors import reported
from mineru_cli.options import ConfigOption

__all__ = ("app",)

app = typer.Typer(help="Show the settings in force.", no_args_is_help=True, rich_markup_mode=None)


@app.command("show")
@reported
def show(
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON on stdout.")] = False,
) -> None:
    """Print every setting: its value, and whether it is a default or came from a file or the environment.

    Secrets are masked.
    """
    from mineru_engine.settings import Settings

    settings = Settings.load(config)
    rows = [(name, _plain(value), settings.sources.get(name, "default")) for name, value in settings.leaves()]
    if as_json:
        import json

        typer.echo(json.dumps({name: {"value": value, "source": source} for name, value, source in rows}, indent=2))
        return
    cells = [(name, "-" if value is None else str(value), source) for name, value, source in rows]
    widths = [max(len(row[column]) for row in cells) for column in (0, 1)]
    for name, value, source in cells:
        typer.echo(f"{name.ljust(widths[0])}  {value.ljust(widths[1])}  {source}")


@app.command("path")
@reported
def path() -> None:
    """Print the settings file in force; if there is none, where yours would lie."""
    from mineru_engine.settings import CONFIG_NAME, user_config_path

    local = Path(CONFIG_NAME)
    typer.echo(local.absolute() if local.is_file() else user_config_path())


def _plain(value: object) -> object:
    from pydantic import SecretStr

    from mineru_engine.doctor import without_credentials

    if isinstance(value, SecretStr):
        return "********"
    return without_credentials(value) if isinstance(value, str) else value
