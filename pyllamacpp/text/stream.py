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
    held back until it is not.

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
        self._stops = tuple(dict.fromkeys(stop))
        self._longest = max(map(len, self._stops), default=1)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def push(self, data: bytes) -> str:
        """The text that `data` completes; a character or stop string cut by its end waits for the next."""
        return self._advance(self._decoder.decode(data))

    def flush(self) -> str:
        """The rest at the end of the bytes: what was held back, and U+FFFD for a character cut short."""
        text = self._advance(self._decoder.decode(b"", final=True))
        if self.stopped is None:
            text += self._held
            self._held = ""
        return text

    def _advance(self, new: str) -> str:
        if self.stopped is not None:
            return ""
        text = self._held + new
        found = [(at + len(stop), -len(stop), stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            end, negative_length, self.stopped = min(found)
            self._held = ""
            return text[: end + negative_length]
        keep = self._tail(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _tail(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        for length in range(min(len(text), self._longest - 1), 0, -1):
            tail = text[len(text) - length :]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
