"""`run`: one answer, or a chat."""

from __future__ import annotations

import select
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ChatTemplateError, ParameterError
from ..hub import DEFAULT_MODEL
from ..params import CHAT_DEFAULTS, SAMPLERS, LoadParams, SamplingParams
from .guard import INTERRUPTED, guarded
from .options import OptionalModelArgument, Verbose, option, sampling_options

if TYPE_CHECKING:
    from .. import Llama

_LOADING = "Loading"
_WARMTH = f"{CHAT_DEFAULTS['temperature']}, with --raw {SamplingParams().temperature}"


Reasoning = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="Thoughts: show (dimmed), hide, or raw, as the model writes them.",
        show_default="show on a terminal, else hide",
    ),
]
Plain = Annotated[bool, typer.Option("--plain", help="Do not render Markdown in a chat.")]
NoHistory = Annotated[bool, typer.Option("--no-history", help="Do not remember messages for the next chat.")]
Dump = Annotated[
    Path | None,
    typer.Option(
        "--dump",
        metavar="FOLDER",
        rich_help_panel="Development",
        help="Write what is computed of the prompt, step by step, as .npy files, and exit.",
    ),
]


@sampling_options(
    before="n_ctx",
    defaults={
        "max_tokens": "no limit",
        "temperature": _WARMTH,
        "seed": "random",
        "samplers": ",".join(SAMPLERS),
    },
)
@guarded
def run(
    model: OptionalModelArgument = None,
    model_m: Annotated[str | None, typer.Option("--model", "-m", help="Another way to give MODEL.")] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", "-p", help="Answer this and exit.")] = None,
    system: Annotated[str | None, typer.Option("--system", help="Instructions for the chat.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Complete text; no chat.")] = False,
    n_ctx: Annotated[int | None, option(LoadParams, "n_ctx", _LOADING)] = None,
    n_threads: Annotated[int | None, option(LoadParams, "n_threads", _LOADING)] = None,
    pre: Annotated[str | None, option(LoadParams, "pre", _LOADING, "the file's")] = None,
    chat_template: Annotated[
        Path | None,
        typer.Option("--chat-template", metavar="FILE", rich_help_panel=_LOADING,
                     help="A Jinja file to use instead of the model's own template."),
    ] = None,
    reasoning: Reasoning = None,
    plain: Plain = False,
    no_history: NoHistory = False,
    dump: Dump = None,
    verbose: Verbose = False,
    **sampling: Any,
) -> None:  # fmt: skip
    """Answer a prompt, or chat.

    The prompt is -p, or standard input if that is not a terminal, or both (-p first). Without either it is a
    chat that keeps the conversation. The model's chat template is applied unless --raw.
    """
    defaults = {"max_tokens": None} if raw else CHAT_DEFAULTS
    params = SamplingParams(**{**defaults, **{k: v for k, v in sampling.items() if v is not None}})
    if reasoning not in (None, "show", "hide", "raw"):
        raise ParameterError(f"--reasoning is show, hide or raw, not {reasoning!r}")
    template = None if chat_template is None else _read_template(chat_template)
    load = LoadParams(n_ctx=n_ctx, n_threads=n_threads, pre=pre, chat_template=template)
    if raw and system is not None:
        raise ParameterError("--system needs a chat: it has no place in --raw")
    text = _prompt_text(prompt)
    if dump is not None and text is None:
        raise ParameterError("--dump needs a prompt", "Give one with -p.")
    with _open(_one_model(model, model_m), load, verbose) as llm:
        if not raw and llm.chat_template is None:
            raise ChatTemplateError(
                "this model has no chat template",
                "Complete plain text with --raw, or give a template with --chat-template FILE.",
            )
        if text is not None and dump is not None:
            _dump(llm, text, dump, system=system, raw=raw)
        elif text is None:
            from .chat import Chat
            from .settings import Settings

            settings = Settings(params, reasoning=reasoning or "show", markdown="off" if plain else "on")
            Chat(llm, settings, system=system, raw=raw, keep_history=not no_history).loop()
        else:
            shown = reasoning or ("show" if sys.stdout.isatty() else "hide")
            _answer_once(llm, text, params, system=system, raw=raw, reasoning=shown, verbose=verbose)


def _one_model(argument: str | None, option: str | None) -> str:
    if argument is not None and option is not None and argument != option:
        raise ParameterError(
            f"two models are given: {argument} and {option}", "Give one, as MODEL or with -m."
        )
    given = option if argument is None else argument
    return DEFAULT_MODEL if given is None else given


def _read_template(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ChatTemplateError(f"cannot read the chat template {path}: {error}") from error


def _prompt_text(prompt: str | None) -> str | None:
    """The one-shot prompt from -p and a standard input that is not a terminal; None for a chat."""
    if sys.stdin is None:  # closed by whoever started us: nothing to read, and no one to chat with
        piped = ""
    elif sys.stdin.isatty():
        piped = None
    else:
        if prompt is not None and not select.select([sys.stdin], [], [], 1.0)[0]:
            print("Reading standard input too, until it ends (none: </dev/null)", file=sys.stderr)
        data = sys.stdin.buffer.read()
        try:
            piped = data.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise ParameterError(
                f"standard input is not UTF-8: byte {data[error.start]:#04x} at offset {error.start}"
            ) from None
    if prompt is None and piped is None:
        return None
    text = "\n\n".join(part for part in (prompt, piped) if part)
    if not text:
        raise ParameterError("the prompt is empty", "Give one with -p or on standard input.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ParameterError("the prompt is not UTF-8") from None
    return text


def _open(model: str, load: LoadParams, verbose: bool) -> Llama:
    from .. import Llama
    from ..hub import resolve

    return Llama(
        resolve(model), n_ctx=load.n_ctx, n_threads=load.n_threads, pre=load.pre,
        chat_template=load.chat_template, verbose=verbose,
    )  # fmt: skip


def _messages(text: str, system: str | None) -> list[dict[str, Any]]:
    opening = [] if system is None else [{"role": "system", "content": system}]
    return [*opening, {"role": "user", "content": text}]


def _dump(llm: Llama, text: str, folder: Path, *, system: str | None, raw: bool) -> None:
    from ..dump import write_prompt

    tokenizer, template = llm.tokenizer(), llm.chat_template
    if raw or template is None:
        ids = tokenizer.with_bos(tokenizer.encode(text, special=True))
    else:
        ids = template.encode(tokenizer, _messages(text, system))
    names = write_prompt(llm, ids, folder)
    print(f"{len(names)} intermediates of {len(ids)} tokens in {folder}", file=sys.stderr)


def _answer_once(
    llm: Llama,
    text: str,
    params: SamplingParams,
    *,
    system: str | None,
    raw: bool,
    reasoning: str,
    verbose: bool,
) -> None:
    from .answer import chat_chunks, completion_chunks, print_answer
    from .screen import Screen

    if raw:
        chunks, splitter = completion_chunks(llm, text, params), None
    else:
        chunks, splitter = chat_chunks(llm, _messages(text, system), params, reasoning=reasoning)
    answer = print_answer(llm, chunks, Screen(thoughts=reasoning != "hide", markdown=False), splitter)
    if verbose:
        print(f"{answer.speed} · seed {llm.last_seed}", file=sys.stderr)
    if answer.finish_reason == "length" and params.max_tokens is None:
        print("stopped: the context is full", file=sys.stderr)
    if answer.finish_reason == "interrupted":
        raise typer.Exit(INTERRUPTED)
