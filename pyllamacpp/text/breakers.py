"""DRY's sequence breakers: from texts to automata over tokens, which find a text however tokens spell it."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from .tokenizer import Tokenizer

Arrow = tuple[int, int, int]  # (state, token, next), as the core has them: see csrc/sampling/params.h

_known: WeakKeyDictionary[Tokenizer, dict[bytes, list[Arrow]]] = WeakKeyDictionary()


def breaker_arrows(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[Arrow]]:
    """For the core, one automaton a text. Control tokens count as the texts they are written as."""
    known = _known.setdefault(tokenizer, {})
    wanted = [text.encode("utf-8", "surrogatepass") for text in texts]
    if not all(text in known for text in wanted):
        pieces = [tokenizer.token_bytes(token, special=True) for token in range(tokenizer.n_vocab)]
        known.update((text, _arrows(text, pieces)) for text in wanted if text not in known)
    return [known[text] for text in wanted]


def _arrows(text: bytes, pieces: Sequence[bytes]) -> list[Arrow]:
    """State s: the last s bytes are the text's first s (as many as possible)."""
    borders = _borders(text)
    last = [text[:n] for n in range(len(text) - 1, 0, -1)]

    def after(state: int, piece: bytes) -> int:
        """The next state; -1 - it where the text was complete on the way."""
        complete = False
        for byte in piece:
            while state and text[state] != byte:
                state = borders[state - 1]
            state += text[state] == byte
            if state == len(text):
                complete, state = True, borders[-1]
        return -1 - state if complete else state

    begun = [after(0, piece) if text in piece or any(map(piece.endswith, last)) else 0 for piece in pieces]
    arrows = [(0, token, state) for token, state in enumerate(begun) if state]
    by_first: dict[int, list[int]] = {byte: [] for byte in text}
    for token, piece in enumerate(pieces):
        if piece and piece[0] in by_first:
            by_first[piece[0]].append(token)
    for state in range(1, len(text)):
        on, border = {text[state]}, state
        while border := borders[border - 1]:
            on.add(text[border])
        for token in (token for byte in on for token in by_first[byte]):
            if (found := after(state, pieces[token])) != begun[token]:
                arrows.append((state, token, found))
    return arrows


def _borders(text: bytes) -> list[int]:
    """Of each beginning of the text: the longest shorter one that it ends with (Knuth, Morris, Pratt)."""
    borders = [0]
    for byte in text[1:]:
        border = borders[-1]
        while border and text[border] != byte:
            border = borders[border - 1]
        borders.append(border + (text[border] == byte))
    return borders
