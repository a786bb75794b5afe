"""``mineru doctor``: is this installation in order?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mineru_cli.errors import EXIT_FAILED, one_line, reported
from mineru_cli.options import ConfigOption

__all__ = ("doctor",)


@reported
def doctor(
    config: ConfigOption = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Whose disk to look at.")] = Path(
        "output"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="As JSON on stdout.")] = False,
) -> None:
    """Check Python, packages, models, the machine, the GPU and the VLM server.

    Exit code 1 when something is broken; warnings do not count.
    """
    from mineru_engine.doctor import Level, examine
    from mineru_engine.settings import Settings

    findings = []
    for finding in examine(Settings.load(config), output):
        findings.append(finding)
        if not as_json:
            typer.echo(one_line(f"{finding.level:8} {finding.subject}: {finding.message}"))
            if finding.hint and finding.level is not Level.OK:
                typer.echo(f"{'':8}   {one_line(finding.hint)}")
    broken = [finding for finding in findings if finding.level is Level.BROKEN]
    if as_json:
        import json

        report = {"broken": len(broken), "findings": [finding.to_dict() for finding in findings]}
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        typer.echo(f"{len(broken)} broken" if broken else "all in order")
    if broken:
        raise typer.Exit(EXIT_FAILED)
