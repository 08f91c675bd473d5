"""What callers give as text or tokens -> token ids (n) int32, or a refusal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .errors import ParameterError
from .generation import Tokens
from .text.extent import refuse_beyond
from .text.infill import infill
from .text.tokenizer import Tokenizer


def token_ids(tokens: Iterable[int], n_vocab: int) -> Tokens:
    """Every id inside the vocabulary."""
    if isinstance(tokens, (str, bytes, bytearray, Mapping)) or not isinstance(tokens, Iterable):
        raise ParameterError(f"tokens must be a list of integers, not {type(tokens).__name__}")
    try:
        ids = np.asarray(tokens if isinstance(tokens, np.ndarray) else list(tokens))
    except ValueError:  # lists of different lengths
        ids = np.empty((0, 0))
    if ids.ndim == 1 and ids.size == 0:
        return np.empty(0, np.int32)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ParameterError("tokens must be a flat list of integers")
    outside = ids[(ids < 0) | (ids >= n_vocab)]
    if outside.size:
        raise ParameterError(f"token {outside[0]} is outside the vocabulary of {n_vocab} tokens")
    return ids.astype(np.int32)


def completion_prompt(
    tokenizer: Tokenizer, prompt: Any, suffix: Any, n_ctx: int, *, spm_infill: bool
) -> Tokens:
    """A text, in which control tokens are recognized, or tokens as they are; with a suffix, the texts around
    what is to be filled in.
    """
    if isinstance(prompt, (bytes, bytearray)) or not isinstance(prompt, Iterable):
        raise ParameterError(
            f"the prompt must be a str or a list of tokens, not {type(prompt).__name__}",
            "Decode bytes, or call tokenize(...) on them.",
        )
    if suffix is not None:
        if not isinstance(suffix, str) or not isinstance(prompt, str):
            raise ParameterError(
                "suffix needs a prompt and a suffix of type str, not "
                f"{type(prompt).__name__} and {type(suffix).__name__}",
                "Write prompts of tokens with the model's own fill-in-the-middle tokens, without suffix.",
            )
        for text in (prompt, suffix):
            refuse_beyond(tokenizer, text, n_ctx, special=False)
        return token_ids(infill(tokenizer, prompt, suffix, suffix_first=spm_infill), tokenizer.n_vocab)
    if not isinstance(prompt, str):
        ids = token_ids(prompt, tokenizer.n_vocab)
        if not len(ids):
            raise ParameterError("the prompt is empty", "Give at least one token.")
        return ids
    refuse_beyond(tokenizer, prompt, n_ctx, special=True)
    tokens = tokenizer.with_bos(tokenizer.encode(prompt, special=True))
    if not tokens:
        if tokenizer.bos_id is None:
            raise ParameterError(
                "the prompt is empty and the model has no token to begin a text", "Give some text."
            )
        tokens = [tokenizer.bos_id]
    return token_ids(tokens, tokenizer.n_vocab)
