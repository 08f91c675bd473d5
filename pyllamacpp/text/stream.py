"""Bytes of tokens in, printable text out: whole characters only, nothing of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from ..errors import ParameterError


class TextStream:
    """Joins UTF-8 across tokens and ends at a stop string.

    The text given out, over all calls, is a function of the bytes alone, not of how they were cut: the bytes
    decoded with errors="replace", up to the stop string that is completed first (of several completed by the
    same character, the longest, which starts first). A tail that may be the beginning of a stop string is
    held back until it is not. Time is linear in the text, however long and repetitive the stop strings.

    stop: stop strings, none of them empty (ParameterError)
    stopped: the stop string that ended the text, or None; once set, further bytes are ignored
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        if isinstance(stop, str):
            stop = (stop,)
        if "" in stop:
            raise ParameterError(
                "a stop string is empty", "It would stop every answer before its first character."
            )
        self.stopped: str | None = None
        self._stops = [_Stop(text) for text in dict.fromkeys(stop)]
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._holder, self._n_held = _Stop("."), 0  # held back: that many characters of the holder's text

    def push(self, data: bytes) -> str:
        """The text that `data` completes; a character or stop string cut by its end waits for the next."""
        return self._advance(self._decoder.decode(data))

    def flush(self) -> str:
        """The rest at the end of the bytes: what was held back, and U+FFFD for a character cut short."""
        text = self._advance(self._decoder.decode(b"", final=True))
        if self.stopped is None:
            text += self._holder.text[: self._n_held]
            self._n_held = 0
        return text

    def _advance(self, new: str) -> str:
        if self.stopped is not None:
            return ""
        ends = [(end, -len(stop.text), stop.text) for stop in self._stops if (end := stop.feed(new)) >= 0]
        holder, n_held = self._holder, self._n_held
        if ends:
            end, negative_length, self.stopped = min(ends)
            n_out, self._n_held = n_held + end + negative_length, 0
        else:
            if self._stops:
                self._holder = max(self._stops, key=lambda stop: stop.matched)
                self._n_held = self._holder.matched
            n_out = n_held + len(new) - self._n_held
        return holder.text[: min(n_out, n_held)] + new[: max(n_out - n_held, 0)]


class _Stop:
    """One stop string searched for in text that comes in pieces (Knuth, Morris and Pratt 1977).

    matched: length of the longest end of the text so far that begins `text`
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.matched = 0
        self._borders = [0]  # of each beginning of `text`: the longest beginning that also ends it

    def feed(self, new: str) -> int:
        """Where in `new` the first occurrence ends; -1 if none does."""
        text, at = self.text, 0
        while at < len(new):
            if self.matched == 0:
                at = new.find(text[0], at)
                if at < 0:
                    return -1
            self.matched = self._extended(self.matched, new[at])
            at += 1
            if self.matched == len(text):
                return at
        return -1

    def _extended(self, matched: int, character: str) -> int:
        while matched and self.text[matched] != character:
            matched = self._border(matched)
        return matched + (self.text[matched] == character)

    def _border(self, length: int) -> int:
        """Of the first `length` characters; known as far as text has matched."""
        while len(self._borders) < length:
            self._borders.append(self._extended(self._borders[-1], self.text[len(self._borders)]))
        return self._borders[length - 1]
