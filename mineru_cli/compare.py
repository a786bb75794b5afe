"""``mineru compare``: did it get better, and may it be released?"""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mineru_cli.errors import EXIT_FAILED, UsageProblem, one_line, reported

if TYPE_CHECKING:
    from mineru_cli.bench.comparable import Named
    from mineru_cli.bench.compare import Comparison

__all__ = ("EPILOG", "compare")

EXIT_NOT_COMPARABLE = 3
EPILOG = (
    "Exit codes: 0 pass, 1 fail or inconclusive, 2 usage, 3 not comparable. "
    "Several reports against one have no verdict, nor have those that only --force compares: 0. "
    "Gates: throughput at the highest common concurrency, or P95 at equal throughput (±3 %); and the time of a single "
    "document. Each is decided by its 95 % interval, in every mode that both reports have."
)


@reported
def compare(
    reports: Annotated[
        list[Path], typer.Argument(metavar="REPORTS", help="Of `mineru bench`: the base, then the new one.")
    ],
    throughput: Annotated[
        float, typer.Option(metavar="PERCENT", min=-99, help="More pages/s, at least; negative: less, at most.")
    ] = 25,
    p95: Annotated[
        float, typer.Option(metavar="PERCENT", max=99, help="Lower P95 at equal throughput, at least.")
    ] = 20,
    single: Annotated[
        float, typer.Option(metavar="PERCENT", min=-99, help="More time for a single document, at most.")
    ] = 5,
    allow_result_changes: Annotated[
        bool, typer.Option("--allow-result-changes", help="Results may differ; documents that fail now may not.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Print figures of reports that are not comparable, without a verdict.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON on stdout.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="As Markdown, for a pull request.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write one HTML page with pictures.")] = None,
) -> None:
    """Compare benchmark reports with the first one, and decide between two."""
    if len(reports) < 2:
        raise UsageProblem("there is nothing to compare with", "name two reports: mineru compare BASE.json NEW.json")
    if as_json and markdown:
        raise UsageProblem("--json and --markdown both write to stdout", "choose one of them")
    if any(map(isnan, (throughput, p95, single))):
        raise UsageProblem("a target must be a number")
    from mineru_cli.bench.compare import compare_reports
    from mineru_cli.bench.gates import Targets

    targets = Targets(throughput, p95, single)
    base, *others = _load(reports)
    found = [compare_reports(base, new, targets, allow_result_changes=allow_result_changes) for new in others]
    if any(comparison.problems for comparison in found) and not force:
        if as_json:
            typer.echo(_rendered(found, as_json=True, markdown=False), nl=False)
        sentences = [problem for comparison in found for problem in comparison.problems]
        raise _not_comparable(sentences, "--force prints the figures without a verdict")
    if html is not None:
        from mineru_cli.bench.html import comparison_page

        _write(html, comparison_page([base, *others], found))
    typer.echo(_rendered(found, as_json=as_json, markdown=markdown), nl=False)
    raise typer.Exit(_exit_code(found))


def _load(paths: list[Path]) -> list[Named]:
    from mineru_cli.bench.comparable import Named
    from mineru_cli.bench.report import load_report
    from mineru_engine.errors import ErrorCode, InputError

    named = []
    for path, name in zip(paths, _names(paths), strict=True):
        try:
            named.append(Named(name, load_report(path)))
        except InputError as exc:
            if exc.code is ErrorCode.FILE_UNREADABLE:
                raise UsageProblem(exc.message) from None
            raise _not_comparable([exc.message], exc.hint) from None
    return named


def _not_comparable(sentences: list[str], hint: str | None = None) -> typer.Exit:
    """Says why; to be raised."""
    for sentence in sentences:
        typer.echo(one_line(f"mineru: not comparable: {sentence}"), err=True)
    if hint:
        typer.echo(f"  hint: {hint}", err=True)
    return typer.Exit(EXIT_NOT_COMPARABLE)


def _names(paths: list[Path]) -> list[str]:
    """File names, or whole paths where two share one."""
    short = [path.name for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise UsageProblem(f"cannot write {path}: {exc.strerror}") from None


def _rendered(found: list[Comparison], *, as_json: bool, markdown: bool) -> str:
    if as_json:
        import orjson

        content = found[0] if len(found) == 1 else found
        return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
    from mineru_cli.bench.text import comparison_markdown, comparison_table

    return comparison_markdown(found) if markdown else comparison_table(found)


def _exit_code(found: list[Comparison]) -> int:
    verdict = found[0].verdict if len(found) == 1 else None
    return 0 if verdict in (None, "pass") else EXIT_FAILED
