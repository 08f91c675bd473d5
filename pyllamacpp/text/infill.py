"""Fill-in-the-middle: the prompt that asks a model for what stands between two texts."""

from __future__ import annotations

from ..errors import ParameterError
from .tokenizer import Tokenizer

_NAMES = ("fim_pre", "fim_suf", "fim_mid")


def infill(tokenizer: Tokenizer, prefix: str, suffix: str, *, suffix_first: bool) -> list[int]:
    """Token ids: PRE prefix SUF suffix MID, or SUF suffix PRE prefix MID; BOS before them where expected.

    The texts are read without control tokens. The suffix goes on where the answer ends, so it does not begin
    with SentencePiece's space.

    Errors: ParameterError for a vocabulary without the tokens that mark the parts.
    """
    missing = [name for name in _NAMES if name not in tokenizer.fill_ids]
    if missing:
        raise ParameterError(
            "suffix: the model was not made to fill in the middle: its vocabulary has no token for "
            + ", ".join(missing),
            "Take a model of code that was (such as Qwen2.5-Coder), or leave suffix out.",
        )
    pre, suf, mid = (tokenizer.fill_ids[name] for name in _NAMES)
    before = [pre, *tokenizer.encode(prefix, special=False)]
    after = [suf, *tokenizer.encode(suffix, special=False, first=False)]
    ids = [*after, *before, mid] if suffix_first else [*before, *after, mid]
    return tokenizer.with_bos(ids)
