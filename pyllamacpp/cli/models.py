"""`pull` and `tokenize`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .guard import guarded
from .options import Json, ModelArgument, Verbose


@guarded
def pull(model: ModelArgument, verbose: Verbose = False) -> None:
    """Fetch a model if it is not here yet, and print where it is."""
    from ..hub import resolve

    print(resolve(model))


@guarded
def tokenize(
    model: ModelArgument,
    text: Annotated[str | None, typer.Argument(help="The text; standard input if not given.")] = None,
    special: Annotated[bool, typer.Option("--special", help="Recognize control tokens in the text.")] = False,
    bos: Annotated[bool, typer.Option("--bos/--no-bos", help="Begin as the model expects it.")] = True,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show the tokens of a text: one id and its spelling in the vocabulary a line."""
    import sys

    from .. import Llama
    from ..hub import resolve

    # Arguments that are not UTF-8 come as lone surrogates; the tokenizer takes any bytes.
    data = sys.stdin.buffer.read() if text is None else text.encode("utf-8", "surrogateescape")
    with Llama(resolve(model), vocab_only=True, verbose=verbose) as llm:
        ids = llm.tokenize(data, add_bos=bos, special=special)
        pieces = [llm.tokenizer().piece(i) for i in ids]
    if as_json:
        print(json.dumps([{"id": i, "piece": piece} for i, piece in zip(ids, pieces, strict=True)]))
        return
    for i, piece in zip(ids, pieces, strict=True):
        print(f"{i:>7}  {piece!r}")
