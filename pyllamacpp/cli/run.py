"""`run`: one answer, or a chat."""

from __future__ import annotations

import json
import select
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ChatTemplateError, ParameterError
from ..params import CHAT_DEFAULTS, DEFAULT_KV_TYPE, SAMPLERS, LoadParams, SamplingParams
from .guard import INTERRUPTED, guarded
from .options import (
    LOADING,
    CacheTypeK,
    CacheTypeV,
    Dump,
    ModelOption,
    NoHistory,
    OptionalModelArgument,
    Plain,
    Reasoning,
    Repair,
    TemplateFile,
    TemplateVariables,
    Think,
    Verbose,
    one_model,
    option,
    sampling_options,
)

if TYPE_CHECKING:
    from .. import Llama

_WARMTH = f"{CHAT_DEFAULTS['temperature']}, with --raw {SamplingParams().temperature}"


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
    model_m: ModelOption = None,
    prompt: Annotated[str | None, typer.Option("--prompt", "-p", help="Answer this and exit.")] = None,
    system: Annotated[str | None, typer.Option("--system", help="Instructions for the chat.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Complete text; no chat.")] = False,
    n_ctx: Annotated[int | None, option(LoadParams, "n_ctx", LOADING)] = None,
    n_threads: Annotated[int | None, option(LoadParams, "n_threads", LOADING)] = None,
    type_k: CacheTypeK = DEFAULT_KV_TYPE,
    type_v: CacheTypeV = DEFAULT_KV_TYPE,
    pre: Annotated[str | None, option(LoadParams, "pre", LOADING, "the file's")] = None,
    chat_template: TemplateFile = None,
    chat_template_kwargs: TemplateVariables = None,
    think: Think = None,
    reasoning: Reasoning = None,
    repair: Repair = True,
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
    load = LoadParams(
        n_ctx=n_ctx, n_threads=n_threads, type_k=type_k, type_v=type_v, pre=pre, chat_template=template
    )
    if raw and system is not None:
        raise ParameterError("--system needs a chat: it has no place in --raw")
    variables = _variables(chat_template_kwargs)
    if raw and (variables or think is not None):
        raise ParameterError("--think and --chat-template-kwargs need a chat: they have no place in --raw")
    text = _prompt_text(prompt)
    if dump is not None and text is None:
        raise ParameterError("--dump needs a prompt", "Give one with -p.")
    with _open(one_model(model, model_m), load, verbose) as llm:
        if not raw and llm.chat_template is None:
            raise ChatTemplateError(
                "this model has no chat template",
                "Complete plain text with --raw, or give a template with --chat-template FILE.",
            )
        if dump is not None and text is not None:
            _dump(llm, text, dump, system=system, raw=raw)
            return
        shown = reasoning or ("show" if sys.stdout.isatty() else "hide")
        how = _How(system, raw, shown, variables, think, repair, plain, not no_history, verbose)
        if text is None:
            _chat(llm, params, how)
        else:
            _answer_once(llm, text, params, how)


@dataclass(frozen=True, slots=True)
class _How:
    """What an answer is asked with, and how it is shown."""

    system: str | None
    raw: bool
    reasoning: str
    variables: dict[str, Any]
    think: bool | None
    repair: bool
    plain: bool
    keep_history: bool
    verbose: bool


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
        resolve(model), n_ctx=load.n_ctx, n_threads=load.n_threads, type_k=load.type_k,
        type_v=load.type_v, pre=load.pre,
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


def _chat(llm: Llama, params: SamplingParams, how: _How) -> None:
    from .chat import Chat
    from .settings import Settings

    settings = Settings(
        params,
        variables=how.variables,
        think="auto" if how.think is None else "on" if how.think else "off",
        reasoning=how.reasoning,
        markdown="off" if how.plain else "on",
    )
    Chat(
        llm, settings, system=how.system, raw=how.raw, keep_history=how.keep_history, repair=how.repair
    ).loop()


def _answer_once(llm: Llama, text: str, params: SamplingParams, how: _How) -> None:
    from .answer import chat_chunks, completion_chunks, print_answer, thinking
    from .screen import Screen

    if how.raw:
        chunks, splitter = completion_chunks(llm, text, params), None
    else:
        variables = how.variables
        if how.think is not None and llm.chat_template is not None:
            variables = variables | thinking(llm.chat_template, how.think, variables)
        chunks, splitter = chat_chunks(
            llm,
            _messages(text, how.system),
            params,
            reasoning=how.reasoning,
            variables=variables,
            repair=how.repair,
        )
    screen = Screen(thoughts=how.reasoning != "hide", markdown=False)  # it would delay the first token
    answer = print_answer(llm, chunks, screen, splitter)
    if how.verbose:
        print(f"{answer.speed} · seed {llm.last_seed}", file=sys.stderr)
    if answer.finish_reason == "length" and params.max_tokens is None:
        print("stopped: the context is full", file=sys.stderr)
    if answer.finish_reason == "interrupted":
        raise typer.Exit(INTERRUPTED)


def _variables(given: str | None) -> dict[str, Any]:
    """Of the chat template."""
    try:
        variables = json.loads(given or "{}")
    except ValueError as error:
        raise ParameterError(f"--chat-template-kwargs is not JSON: {error}") from None
    if not isinstance(variables, dict):
        raise ParameterError('--chat-template-kwargs must be a JSON object: {"name": value}')
    return variables
