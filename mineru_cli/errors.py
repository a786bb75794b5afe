"""From exceptions to one line on stderr and an exit code, in one place.

A traceback is shown only when ``MINERU_DEBUG=1``.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

__all__ = ("EXIT_FAILED", "EXIT_INTERRUPTED", "EXIT_USAGE", "UsageProblem", "one_line", "reported", "show_traceback")

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

P = ParamSpec("P")
R = TypeVar("R")


class UsageProblem(Exception):
    """The command line makes no sense.

    :param hint: what to write instead.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def reported(command: Callable[P, R]) -> Callable[P, R]:
    """Let a command end with a message and an exit code instead of a traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except KeyboardInterrupt:
            typer.echo("mineru: interrupted", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:  # the reader of our output has left, for instance `head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_FAILED) from None
        except Exception as exc:  # noqa: BLE001 - the edge of the program: nothing may end in a traceback
            message, hint, code = _describe(exc)
            show_traceback(exc)
            typer.echo(f"mineru: {message}", err=True)
            if hint:
                typer.echo(f"  hint: {hint}", err=True)
            raise typer.Exit(code) from None

    return run


def _describe(exc: Exception) -> tuple[str, str | None, int]:
    """Message, hint and exit code of an exception that ends the command."""
    from mineru_engine.errors import MineruError, OptionError

    if isinstance(exc, UsageProblem):
        return str(exc), exc.hint, EXIT_USAGE
    if isinstance(exc, OptionError):
        return exc.message, exc.hint, EXIT_USAGE
    if isinstance(exc, MineruError):
        return exc.message, exc.hint, EXIT_FAILED
    if isinstance(exc, OSError):
        return one_line(str(exc)), None, EXIT_FAILED
    return (
        f"internal error: {type(exc).__name__}: {one_line(str(exc))}",
        "MINERU_DEBUG=1 shows the traceback",
        EXIT_FAILED,
    )


def show_traceback(exc: BaseException) -> None:
    """Print the traceback if the user asked for it."""
    if os.environ.get("MINERU_DEBUG") == "1":
        import traceback

        traceback.print_exception(exc)


def one_line(text: str) -> str:
    """Text that cannot steer the terminal or break a line: other characters are shown as escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text.strip())
