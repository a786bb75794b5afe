"""``mineru serve``: the job server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mineru_cli.errors import EXIT_FAILED, UsageProblem, reported
from mineru_cli.options import ConfigOption

__all__ = ("EPILOG", "default_data_dir", "serve")

EPILOG = (
    "Jobs, options and results are kept below --data-dir and survive the process. SIGTERM or Ctrl-C: no job is taken "
    "any more, those that run get --grace seconds, the rest waits on the disk for the next start. "
    "Limits, retention, keys: `mineru config show`, `mineru keys`, docs/server.md."
)


@reported
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = 8000,
    concurrency: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Jobs that run at once. Default: server.concurrency, 1.")
    ] = None,
    tier: Annotated[
        str | None,
        typer.Option(metavar="auto|flash|basic|high|xhigh", help="Tier of jobs that name none."),
    ] = None,
    preload: Annotated[bool, typer.Option("--preload", help="Start the engine now, not with the first job.")] = False,
    data_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where jobs and results are kept. Default: the user's data.")
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="What running jobs get to end at shutdown.")
    ] = 30.0,
    log_format: Annotated[str, typer.Option(metavar="text|json", help="How the log on stderr is written.")] = "text",
    config: ConfigOption = None,
) -> None:
    """Serve documents over HTTP: jobs, a web page at /, and the API of MinerU 3.x and 4.0."""
    _need_extra()
    from mineru_engine.options import ParseOptions
    from mineru_engine.server.app import create_app
    from mineru_engine.server.logs import LOG_FORMATS
    from mineru_engine.server.run import serve as run
    from mineru_engine.settings import Settings

    if log_format not in LOG_FORMATS:
        raise UsageProblem(f"unknown log format {log_format!r}", f"formats are {', '.join(LOG_FORMATS)}")
    settings = Settings.load(config, overrides={"server.concurrency": concurrency})
    defaults = {} if tier is None else {"tier": str(ParseOptions.create(tier=tier).tier)}
    place = data_dir or default_data_dir()
    app = create_app(settings, data_dir=place, defaults=defaults, preload=preload)
    if not _is_loopback(host) and not _has_keys(place):
        typer.echo(
            f"mineru: warning: anybody who reaches {host} can use this server: it has no API keys\n"
            "  hint: mineru keys add NAME; it asks for keys from then on",
            err=True,
        )
    if not run(app, host, port, grace, log_format):
        raise typer.Exit(EXIT_FAILED)


def default_data_dir() -> Path:
    """Where a server keeps its jobs unless told otherwise."""
    from platformdirs import user_data_dir

    return Path(user_data_dir("mineru", appauthor=False)) / "server"


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _has_keys(data_dir: Path) -> bool:
    from mineru_engine.server.keys import FILE_NAME, Keys

    with Keys(data_dir / FILE_NAME) as keys:
        return keys.required


def _need_extra() -> None:
    from importlib.util import find_spec

    if not all(map(find_spec, ("fastapi", "uvicorn", "python_multipart"))):
        raise UsageProblem("the job server is not installed", "pip install 'mineru[serve]'")
