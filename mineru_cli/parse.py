"""``mineru parse``: documents in, Markdown and its siblings out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mineru_cli.errors import UsageProblem, reported
from mineru_cli.options import ConfigOption, EngineOption, ModelOption, OcrModeOption, ServerUrlOption, TierOption

__all__ = ("parse",)

EPILOG = (
    "Exit codes: 0 all documents done (lost pages are named), 1 some failed, 2 usage, "
    "130 interrupted (143 by SIGTERM), after clean-up. "
    "Option > environment > settings file > default; `mineru config show` prints what is in force. "
    "Secrets come from files or the environment, never from an option."
)
FORMATS = ("md", "json", "content-list", "html", "latex", "docx", "epub", "pdf")
DEFAULT_FORMATS = ("md", "json", "content-list")

_Text = str | None


@reported
def parse(
    paths: Annotated[list[str], typer.Argument(metavar="PATHS", help="Files, directories, globs, or - for stdin.")],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="DIR", help="Where results go; - for stdout.")
    ] = "output",
    tier: TierOption = None,
    ocr_mode: OcrModeOption = None,
    pages: Annotated[
        _Text, typer.Option(metavar="RANGE", help="For instance 1-5,8,r3-r1 (r1 is the last page).")
    ] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format", metavar="LIST", help=f"Any of {','.join(FORMATS)}. Default: {','.join(DEFAULT_FORMATS)}."
        ),
    ] = None,
    layout: Annotated[
        bool, typer.Option("--layout", help="Also write x_layout.pdf: every block, its type and order.")
    ] = False,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Documents at once. Default: one per core, at most 4; 8 with a VLM."),
    ] = None,
    image_analysis: Annotated[
        bool | None, typer.Option("--image-analysis/--no-image-analysis", help="Let a VLM describe images and charts.")
    ] = None,
    engine: EngineOption = None,
    server_url: ServerUrlOption = None,
    model: ModelOption = None,
    api_url: Annotated[
        _Text,
        typer.Option(metavar="URL", envvar="MINERU_API_URL", help="Let this job server parse; key: MINERU_API_KEY."),
    ] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", min=0.001, help="Limit for one document.")] = None,
    page_timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.001, help="Limit for one page.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace results that exist.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Skip what is complete and unchanged; redo the rest.")
    ] = False,
    attachments: Annotated[bool, typer.Option("--attachments", help="Also parse files attached to a PDF.")] = False,
    password_env: Annotated[_Text, typer.Option(metavar="NAME", help="Environment variable with the password.")] = None,
    password_file: Annotated[Path | None, typer.Option(metavar="FILE", help="File with the password.")] = None,
    config: ConfigOption = None,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON object per document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only errors on stderr.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="All notices, and log messages, on stderr.")] = False,
) -> None:
    """Parse documents into DIR/NAME/NAME.md and its siblings."""
    options: dict[str, object] = {
        "tier": tier,
        "ocr_mode": ocr_mode,
        "pages": pages,
        "image_analysis": image_analysis,
        "engine": engine,
        "server_url": server_url,
        "model": model,
        "timeout_s": timeout,
        "page_timeout_s": page_timeout,
        "attachments": attachments or None,
        "password": _password(password_env, password_file),
    }
    if api_url is not None and engine is not None:
        raise UsageProblem("--engine is the server's own choice", "leave it out, or --api-url")
    from mineru_cli.batch import Job, run_job

    job = Job(
        paths=tuple(paths),
        output=None if output == "-" else Path(output),
        options={name: value for name, value in options.items() if value is not None},
        formats=_formats(formats or ()),
        layout=layout,
        concurrency=concurrency,
        overwrite=overwrite,
        resume=resume,
        config=config,
        json_lines=json_lines,
        quiet=quiet,
        verbose=verbose,
        api_url=api_url or None,
    )
    _check(job.output is None, job.formats, layout=layout, json_lines=json_lines)
    raise typer.Exit(run_job(job))


def _formats(values: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(name.strip().lower() for value in values for name in value.split(",") if name.strip()))
    for name in chosen:
        if name not in FORMATS:
            raise UsageProblem(f"unknown format {name!r}", f"formats are {', '.join(FORMATS)}")
    return chosen


def _check(to_stdout: bool, formats: tuple[str, ...], *, layout: bool, json_lines: bool) -> None:
    if not to_stdout:
        return
    if json_lines:
        raise UsageProblem("-o - and --json both write to stdout", "choose one of them")
    if layout or len(formats) > 1:
        raise UsageProblem("-o - writes one file", "give a directory with -o, or one --format and no --layout")


def _password(env: str | None, file: Path | None) -> str | None:
    if env is not None and file is not None:
        raise UsageProblem("--password-env and --password-file exclude each other")
    if env is not None:
        import os

        if env not in os.environ:
            raise UsageProblem(f"--password-env: there is no environment variable {env}")
        return os.environ[env]
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else "not UTF-8 text"
            raise UsageProblem(f"--password-file: cannot read {file}: {reason}") from None
    return None
