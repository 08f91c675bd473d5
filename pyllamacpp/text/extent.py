"""Whether a text is far too long for a context, found out without tokenizing all of it."""

from __future__ import annotations

from ..errors import ContextOverflowError
from .tokenizer import Tokenizer

_PIECE = 1 << 16  # characters tokenized at a time
_SEAM = 1024  # tokens that cutting a text once may add: more than the longest token spelled byte by byte
_PER_TOKEN = 8  # characters; texts of fewer for each token of the context are tokenized at once


def refuse_beyond(tokenizer: Tokenizer, text: str, n_ctx: int, *, special: bool, before: int = 0) -> None:
    """Tokenize pieces of a long text until it is sure to have more than n_ctx tokens.

    special: as the text is going to be read. before: tokens that precede it.

    Error: ContextOverflowError. A text that passes may still be too long, by little.
    """
    n_tokens = before
    long = len(text) > max(_PIECE, _PER_TOKEN * n_ctx)
    for start in range(0, len(text) if long else 0, _PIECE):
        if n_tokens > n_ctx:
            break
        n_tokens += len(tokenizer.encode(text[start : start + _PIECE], special=special)) - _SEAM
    if n_tokens > n_ctx:
        raise too_long(f"more than {n_tokens}", n_ctx)


def too_long(n_tokens: int | str, n_ctx: int) -> ContextOverflowError:
    """The error for a prompt that leaves no room for an answer."""
    return ContextOverflowError(
        f"the prompt has {n_tokens} tokens: no room for an answer in the context of {n_ctx}",
        "Shorten the prompt, or open the model with a larger n_ctx (-c).",
    )
