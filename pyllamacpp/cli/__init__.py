"""The command line: `pyllamacpp run`, `pull`, `list`, `rm`, `info`, `tokenize`, `bench`,
`doctor`.

Answers go to standard output, everything else to standard error. Exit codes are those of `pyllamacpp.errors`;
2 for wrong usage, 130 after Ctrl-C, 141 when the reader of the output has gone. Only what a command needs is
imported, and only when it runs: the time to the first token counts from here.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from . import bench, doctor, info, models, run
from .completion import rejoin_at_colons, without
from .guard import use_escapes_for_unprintable

app = typer.Typer(
    name="pyllamacpp",
    help="Run GGUF language models on your own machine.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run.run)
app.command()(models.pull)
app.command("list")(models.list_models)
app.command()(models.rm)
app.command()(info.info)
app.command()(models.tokenize)
app.command()(bench.bench)
app.command()(doctor.doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        print(f"pyllamacpp {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line of this process and exit."""
    use_escapes_for_unprintable()
    with without(rejoin_at_colons(os.environ)):
        app(prog_name="pyllamacpp")  # also of `python -m`: completion goes by this name
