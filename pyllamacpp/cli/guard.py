"""What every command shares: errors become one message and an exit code."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, ParamSpec

import typer

from ..errors import PyllamacppError

P = ParamSpec("P")

INTERRUPTED = 130  # as a shell reports a process ended by SIGINT
READER_GONE = 141  # and by SIGPIPE


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Run a command; print what went wrong to standard error and exit with its code.

    An unexpected exception is a bug of ours: it is shown in one line, with `verbose` as a traceback.
    """

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except PyllamacppError as error:
            print_error(error)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # What is still buffered goes nowhere, else the interpreter complains about it on its way out.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(READER_GONE) from None
        except (typer.Exit, typer.BadParameter):
            raise
        except Exception as error:
            _print_bug(error, bool(kwargs.get("verbose")))
            raise typer.Exit(1) from None

    return wrapper


def print_error(error: PyllamacppError) -> None:
    """`error:` what and why; `hint:` what to do."""
    print(f"error: {error.args[0]}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)


def _print_bug(error: Exception, verbose: bool) -> None:
    if verbose:
        import traceback

        traceback.print_exception(error)
    print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
    if isinstance(error, ImportError):
        hint = "The installation is not complete; in the source tree run: pip install ."
    else:
        hint = "This should not happen: please report it" + ("." if verbose else ", with what -v shows.")
    print(f"hint: {hint}", file=sys.stderr)


def use_escapes_for_unprintable() -> None:
    """A character that the encoding of an output lacks is written as an escape instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def print_table(rows: list[tuple[str, Any]]) -> None:
    """Names and values in two columns on standard output; an empty name continues the value above."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}".rstrip())
