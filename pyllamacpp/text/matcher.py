"""Finds known token texts in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping


class TokenMatcher:
    """Leftmost, then longest match among token texts (no empty ones).

    A regex over the texts' distinct first two characters jumps from candidate to candidate; a table of
    lengths decides there. Building costs a few microseconds a text, so thousands of control tokens are no
    burden at load.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = ids
        lengths: dict[str, set[int]] = {}
        for text in ids:
            lengths.setdefault(text[:2], set()).add(len(text))
        self._lengths = {prefix: sorted(found, reverse=True) for prefix, found in lengths.items()}
        for prefix, found in self._lengths.items():
            if len(prefix) == 2 and prefix[0] in self._lengths:
                found.append(1)
        prefixes = sorted(self._lengths, key=len, reverse=True)
        self._candidate = re.compile("|".join(map(re.escape, prefixes))) if ids else None

    def finditer(self, text: str) -> Iterator[tuple[int, int, int]]:
        """(start, end, id) of each match, in order, not overlapping."""
        if self._candidate is None:
            return
        pos = 0
        while candidate := self._candidate.search(text, pos):
            start = candidate.start()
            pos = start + 1
            for length in self._lengths[candidate.group()]:
                piece = text[start : start + length]
                token_id = self._ids.get(piece)
                if token_id is not None:
                    pos = start + len(piece)
                    yield start, pos, token_id
                    break
