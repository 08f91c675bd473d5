"""`pull`, `list`, `rm` and `tokenize`."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from .completion import complete_cached
from .guard import guarded
from .options import Json, ModelArgument, Verbose


@guarded
def pull(model: ModelArgument, verbose: Verbose = False) -> None:
    """Fetch a model if it is not here yet, and print where it is."""
    from ..hub import resolve

    print(resolve(model))


@guarded
def list_models(as_json: Json = False, verbose: Verbose = False) -> None:
    """Show the models that have been fetched; -v shows their files.

    Behind one that has to be fetched again before it is used stands why.
    """
    from datetime import datetime

    from ..hub_cache import cached_models

    models = cached_models()
    if as_json:
        facts = [
            {
                "name": m.name,
                "bytes": m.size,
                "modified": m.modified,
                "flaw": m.flaw or None,
                "files": [str(f) for f in m.files],
            }
            for m in models
        ]
        print(json.dumps(facts, indent=2))
        return
    if not models:
        print("No model has been fetched yet: pyllamacpp pull MODEL", file=sys.stderr)
        return
    width = max(len(model.name) for model in models)
    for model in models:
        fetched = datetime.fromtimestamp(model.modified).strftime("%Y-%m-%d %H:%M")
        flaw = f"  ({model.flaw})" if model.flaw else ""
        print(f"{model.name:<{width}}  {model.size / 2**20:>9.1f} MiB  {fetched}{flaw}")
        for file in model.files if verbose else ():
            print(f"  {file}")


@guarded
def rm(
    names: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="As list shows them.", autocompletion=complete_cached),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    verbose: Verbose = False,
) -> None:
    """Delete models that have been fetched. Files of your own are never touched."""
    from ..errors import ParameterError
    from ..hub_cache import find_cached, remove

    models = [find_cached(name) for name in dict.fromkeys(names)]
    if not yes:
        if not sys.stdin.isatty():
            raise ParameterError("rm asks before it deletes, and nobody is there to answer", "Add --yes.")
        for model in models:
            print(f"{model.name}, {model.size / 2**20:.1f} MiB", file=sys.stderr)
        typer.confirm("Delete?", abort=True, err=True)
    for model in models:
        remove(model)
        print(f"deleted {model.name}", file=sys.stderr)


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
