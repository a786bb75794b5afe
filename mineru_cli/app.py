"""The command ``mineru``: registers the commands. Nothing heavy is imported here, so that ``--help`` is quick."""

from __future__ import annotations

from typing import Annotated

import typer

from mineru_cli import bench_command, compare, config, doctor, keys, parse, serve

__all__ = ("app", "main")

app = typer.Typer(
    name="mineru",
    help="Turn PDFs, scans and office files into clean Markdown.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("parse", epilog=parse.EPILOG)(parse.parse)
app.command("doctor")(doctor.doctor)
app.command("bench", cls=bench_command.BenchCommand, epilog=bench_command.EPILOG)(bench_command.bench)
app.command("compare", epilog=compare.EPILOG)(compare.compare)
app.command("serve", epilog=serve.EPILOG)(serve.serve)
app.add_typer(config.app, name="config")
app.add_typer(keys.app, name="keys")


def _version(wanted: bool) -> None:
    if wanted:
        from mineru_engine.version import __version__

        typer.echo(f"mineru {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Turn PDFs, scans and office files into clean Markdown."""


def main() -> None:
    """Entry point of the ``mineru`` command."""
    app(prog_name="mineru")
