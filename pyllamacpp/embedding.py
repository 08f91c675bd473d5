"""Embeddings from decoder models: the hidden states after the output norm, pooled to one vector a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from .errors import ContextOverflowError, ParameterError, UnsupportedModelError
from .prompts import token_ids

if TYPE_CHECKING:
    from .generation import Logits, Tokens
    from .text.tokenizer import Tokenizer


class Pooling(IntEnum):
    """llama.cpp's numbers."""

    NONE = 0
    MEAN = 1
    CLS = 2
    LAST = 3
    RANK = 4


def pooling_of(asked: int | None, in_file: Any) -> Pooling:
    """What was asked for, else what the file says."""
    value = in_file if asked is None else asked
    try:
        pooling = Pooling(value)
    except ValueError:
        pooling = Pooling.RANK
    if pooling is Pooling.RANK:
        raise UnsupportedModelError(
            f"the file's pooling_type {value!r} is not supported",
            "Give pooling_type=1 (mean), 2 (first token) or 3 (last token).",
        )
    return pooling


def texts_of(given: Any) -> tuple[list[Any], bool]:
    """(the texts or token lists in what embed() was given, whether it was one alone and no list of them)."""
    if isinstance(given, str):
        return [given], True
    if isinstance(given, (bytes, bytearray, Mapping)) or not isinstance(given, Iterable):
        raise ParameterError(
            f"the input must be a str, a list of tokens, or a list of those, not {type(given).__name__}"
        )
    several = list(given)
    if not several:
        raise ParameterError("the input is empty", "Give at least one text.")
    if not isinstance(several[0], (str, Iterable)):
        return [several], True
    return several, False


class Embedder:
    """Embeds texts one by one, in KV pages of its own: the tokens a `Llama` holds stay as they are.

    A text's vector depends on that text alone: not on n_batch, nor on what is embedded with it.
    """

    def __init__(
        self,
        model: _core.Model,
        session: _core.Session,
        tokenizer: Tokenizer,
        pooling: Pooling,
        *,
        n_batch: int,
    ) -> None:
        """session: of that model, for nothing else."""
        self._session = session
        self._tokenizer = tokenizer
        self._pooling = pooling
        self._n_ctx = session.n_ctx
        self._n_batch = n_batch
        self._n_embd = model.n_embd

    def tokens(self, given: str | Sequence[int], *, truncate: bool) -> Tokens:
        """Tokens as they are, or of a text without control tokens, between the BOS and EOS that the model
        expects. Error: ContextOverflowError, unless the text may be truncated.
        """
        tokenizer, n_ctx = self._tokenizer, self._n_ctx
        end: list[int] = []
        if isinstance(given, str):
            ids = tokenizer.with_bos(tokenizer.encode(given, special=False))
            if tokenizer.add_eos and tokenizer.eos_id is not None and ids[-1:] != [tokenizer.eos_id]:
                end = [tokenizer.eos_id]
        else:
            ids = token_ids(given, tokenizer.n_vocab).tolist()
        n = len(ids) + len(end)
        if n == 0:
            raise ParameterError("the input is empty", "Give some text, or at least one token.")
        if n > n_ctx and not truncate:
            raise ContextOverflowError(
                f"the input has {n} tokens: more than the context of {n_ctx}",
                "Shorten it, open the model with a larger n_ctx, or take its beginning with truncate=True.",
            )
        return np.asarray(ids[: n_ctx - len(end)] + end, np.int32)

    def embed(self, tokens: Tokens, *, normalize: bool) -> Logits:
        """tokens (n) -> (n_embd), or (n, n_embd) without pooling, float32."""
        self._session.truncate(0)
        n = len(tokens)
        rows: list[Logits] = []  # without pooling: all
        total = np.zeros(self._n_embd)
        for start in range(0, n, self._n_batch):
            chunk = self._session.embed(tokens[start : start + self._n_batch])
            if self._pooling is Pooling.NONE:
                rows.append(chunk)
            elif self._pooling is Pooling.MEAN:
                for row in chunk:  # one by one: the order of addition must not depend on n_batch
                    total += row
            elif self._pooling is Pooling.CLS:
                total[:] = chunk[0]
                break
            else:
                total[:] = chunk[-1]
        if self._pooling is Pooling.MEAN:
            total /= n
        result = np.concatenate(rows).astype(np.float64) if rows else total
        if normalize:
            length = np.sqrt((result * result).sum(-1, keepdims=True))
            result = result / np.where(length > 0, length, 1)
        return result.astype(np.float32)


def response(vectors: Sequence[Any], model: str, n_tokens: int) -> dict[str, Any]:
    """OpenAI's list of embeddings."""
    data = [{"object": "embedding", "embedding": one, "index": i} for i, one in enumerate(vectors)]
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}
