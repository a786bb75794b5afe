"""``mineru keys``: who may use a job server."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mineru_cli.errors import reported
from mineru_cli.serve import default_data_dir

if TYPE_CHECKING:
    from mineru_engine.server.keys import Keys

__all__ = ("app",)

app = typer.Typer(
    help="API keys of a job server, and what their tenants may use. A running server heeds every change at once.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

DataDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="The server's. Default: the user's data.")
]


@app.command("add")
@reported
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call the key.")],
    tenant: Annotated[
        str | None, typer.Option(metavar="T", help="Whose jobs it sees. Default: a tenant of the key's name.")
    ] = None,
    jobs_per_minute: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Jobs that the tenant may begin in a minute; 0 for any.")
    ] = None,
    pages_per_day: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Pages that the tenant may have read in 24 hours; 0 for any.")
    ] = None,
    running: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Jobs of the tenant that may wait or run; 0 for any.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Make a key and print it. It is shown once and kept nowhere.

    With the first key the server lets nobody in without one. Quotas belong to the tenant: all its keys share them, and
    those given here replace its earlier ones.
    """
    quotas = {"jobs_per_minute": jobs_per_minute, "pages_per_day": pages_per_day, "running": running}
    limits = {name: value for name, value in quotas.items() if value is not None}
    with _open(data_dir) as keys:
        typer.echo(keys.add(name, tenant, limits))


@app.command("list")
@reported
def list_keys(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON on stdout.")] = False, data_dir: DataDir = None
) -> None:
    """Print all keys, revoked ones too, without the keys themselves. A quota of 0 stands for any number."""
    with _open(data_dir) as table:
        keys = table.all()
    if as_json:
        import json

        typer.echo(json.dumps([key.to_dict() for key in keys], indent=2))
        return
    rows: list[tuple[str, ...]] = [("ID", "NAME", "TENANT", "JOBS/MIN", "PAGES/DAY", "RUNNING", "CREATED", "REVOKED")]
    for key in keys:
        quotas = (key.limits.jobs_per_minute, key.limits.pages_per_day, key.limits.running)
        rows.append((key.id, key.name, key.tenant, *map(str, quotas), _day(key.created), _day(key.revoked)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@app.command("revoke")
@reported
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name or id of the key.")], data_dir: DataDir = None
) -> None:
    """Make a key worthless. The jobs of its tenant stay; a server whose last key went lets nobody in."""
    with _open(data_dir) as keys:
        key = keys.revoke(name)
    typer.echo(f"revoked {key.name} ({key.id})")


def _open(data_dir: Path | None) -> Keys:
    from mineru_engine.server.keys import FILE_NAME, Keys

    return Keys((data_dir or default_data_dir()) / FILE_NAME)


def _day(moment: float | None) -> str:
    return "-" if moment is None else datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M")
