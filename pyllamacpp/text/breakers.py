"""DRY's sequence breakers: from texts to the tokens that spell them."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from .tokenizer import Tokenizer

_known: WeakKeyDictionary[Tokenizer, dict[tuple[str, ...], list[list[int]]]] = WeakKeyDictionary()


def breaker_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Sequences of tokens that break a repetition, for the core.

    Each token whose text contains one of the texts is one; so are a text's own tokens, at the beginning of a
    text and after a letter, where it takes several. (Spread over tokens in yet another way it is not seen.)
    """
    by_texts = _known.setdefault(tokenizer, {})
    key = tuple(texts)
    if key not in by_texts:
        by_texts[key] = _find(tokenizer, key)
    return by_texts[key]


def _find(tokenizer: Tokenizer, texts: tuple[str, ...]) -> list[list[int]]:
    wanted = [text.encode("utf-8", "surrogatepass") for text in texts]
    found = [
        [token]
        for token in range(tokenizer.n_vocab)
        if any(text in tokenizer.token_bytes(token) for text in wanted)
    ]
    before = tokenizer.encode("a", special=False)
    for data in wanted:
        alone = tokenizer.encode_bytes(data, special=False)
        within = tokenizer.encode_bytes(b"a" + data, special=False)
        found.append(alone)
        if within[: len(before)] == before:
            found.append(within[len(before) :])
    several = {tuple(tokens) for tokens in found if len(tokens) > 1}
    return [tokens for tokens in found if len(tokens) == 1] + [list(tokens) for tokens in sorted(several)]
