"""Names of models at a shell's Tab. It runs at every Tab, so nothing heavy is imported."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from ..hub import ALIASES

INSTRUCTION = "_PYLLAMACPP_COMPLETE"


def rejoin_at_colons(environ: MutableMapping[str, str]) -> str:
    """Make words out of what bash has cut at colons: `hf:owner/repo` comes as three.

    Returns: the beginning of the current word up to its last colon, which bash does not want to see again.
    """
    if environ.get(INSTRUCTION) != "complete_bash" or not environ.get("COMP_CWORD", "").isdigit():
        return ""
    words, at = environ.get("COMP_WORDS", "").split("\n"), int(environ["COMP_CWORD"])
    joined: list[str] = []
    current = 0
    for i, word in enumerate(words):
        if joined and (word.startswith(":") or joined[-1].endswith(":")):
            joined[-1] += word
        else:
            joined.append(word)
        if i == at:
            current = len(joined) - 1
    if len(joined) == len(words):
        return ""
    environ["COMP_WORDS"], environ["COMP_CWORD"] = "\n".join(joined), str(current)
    before, colon, _ = joined[current].rpartition(":")
    return before + colon


@contextlib.contextmanager
def without(prefix: str) -> Iterator[None]:
    """Take a prefix off every line that is printed meanwhile."""
    if not prefix:
        yield
        return
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    finally:
        for line in printed.getvalue().splitlines():
            print(line.removeprefix(prefix))


def complete_cached(begun: str) -> list[str]:
    """For the shell: what has been fetched."""
    from ..hub_cache import cached_models

    return [model.name for model in cached_models() if model.name.startswith(begun)]


def complete_model(begun: str) -> list[str]:
    """For the shell: whatever a model can be: a name, a folder on the way to a file, a file."""
    folder, _, start = begun.rpartition("/")
    try:
        found = sorted(Path(folder or ("/" if begun.startswith("/") else ".")).expanduser().iterdir())
    except (OSError, RuntimeError, ValueError):
        found = []
    prefix = begun[: len(begun) - len(start)]
    paths = [
        f"{prefix}{path.name}{'/' if os.path.isdir(path) else ''}"
        for path in found
        if path.name.startswith(start)
        and (start or path.name[0] != ".")
        and (os.path.isdir(path) or path.suffix == ".gguf")
    ]
    names = dict.fromkeys([*ALIASES, *complete_cached("")])
    return [name for name in names if name.startswith(begun)] + paths
