"""How an answer is shown: as it is to a pipe; on a terminal made safe, thoughts dimmed, as Markdown."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .markdown import MarkdownWriter

# A model must not drive the terminal: control characters but newline and tab are shown as pictures.
PICTURES = {
    **{c: 0x2400 + c for c in range(0x20) if chr(c) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    # Nor hide what it says by turning the direction of writing.
    **dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD),
}
_DIM, _NORMAL = "\x1b[2m", "\x1b[0m"


def has_escapes() -> bool:
    """Standard output is a terminal that obeys escape sequences."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def dimmed(text: str) -> str:
    """For a line on standard error beside the answers."""
    plain = not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb"
    return text if plain else f"{_DIM}{text}{_NORMAL}"


class Screen:
    """Shows one answer: write() its pieces, then finish().

    thoughts: they are shown too, before the answer. markdown: render it, where the terminal can.
    """

    def __init__(self, *, thoughts: bool, markdown: bool) -> None:
        self._terminal = sys.stdout.isatty()
        self._escapes = has_escapes()
        self._thoughts = thoughts
        self._thinking = False
        self._at_line_start = True
        self._writer: MarkdownWriter | None = None
        if markdown and self._escapes:
            from .markdown import MarkdownWriter

            self._writer = MarkdownWriter(sys.stdout)

    def write(self, text: str, *, reasoning: bool) -> None:
        if reasoning and not self._thoughts:
            return
        if reasoning != self._thinking:
            self._turn(reasoning)
        if self._terminal:
            text = text.translate(PICTURES)
        if self._writer is not None and not reasoning:
            self._writer.write(text)
        else:
            self._put(text)

    def finish(self) -> None:
        """End the answer, and its line."""
        if self._thinking:
            self._turn(False)
        if self._writer is not None:
            self._writer.finish()
        elif not self._at_line_start:
            self._put("\n")

    def _turn(self, reasoning: bool) -> None:
        """From the answer to thoughts, or back."""
        self._thinking = reasoning
        if reasoning:
            self._put(_DIM if self._escapes else "(thinking)\n")
        else:
            self._put(_NORMAL if self._escapes else "")
            self._put(("" if self._at_line_start else "\n") + ("\n" if self._escapes else "(answer)\n"))

    def _put(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        shown = text.removesuffix(_NORMAL).removesuffix(_DIM)
        if shown:
            self._at_line_start = shown.endswith("\n")
