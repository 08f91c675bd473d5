"""Markdown as it comes: cut into blocks that are finished, which are printed once and never again.

Only the block that is being written is drawn anew, at the end of the screen. Code is printed as it is, a
line at a time, so that it can be copied; a line break stays a line break; HTML, images, the targets of links
and backslashes (TeX) are text.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import Heading, Markdown
from rich.segment import Segment
from rich.text import Text

if TYPE_CHECKING:
    from typing import TextIO

_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_ITEM = re.compile(r"( *)([-*+]|\d{1,9}[.)])\s")
# Rules that would hide what was written, or (entities) turn it into control characters.
_NOT_MARKDOWN = ["code", "entity", "escape", "image", "reference"]
_REDRAW = 0.05  # least seconds between two drawings of the unfinished block
_SHARE = 4  # and as many times what the last one took: a long block must not hold the model up


class Block(NamedTuple):
    """Text without its last line break: Markdown, or one line of code."""

    text: str
    code: bool


class Blocks:
    """Cuts Markdown into blocks, whatever pieces it comes in."""

    def __init__(self) -> None:
        self._fence = ""  # the marks that opened the code, and nothing else
        self._lines: list[str] = []  # of the unfinished block
        self._line = ""  # the unfinished line

    def feed(self, text: str) -> Iterator[Block]:
        """The blocks that the text finishes."""
        *lines, rest = (self._line + text).split("\n")
        for line in lines:
            yield from self._end_line(line)
        self._line = rest

    def finish(self) -> Iterator[Block]:
        """What is left, finished or not."""
        if self._line:
            yield from self._end_line(self._line)
        self._line = ""
        yield from self._end_block()

    def unfinished(self) -> Block:
        return Block("\n".join([*self._lines, self._line]), bool(self._fence))

    def _end_line(self, line: str) -> Iterator[Block]:
        marks = _FENCE.match(line)
        if self._fence:
            if marks and marks[1].startswith(self._fence) and not line.strip().strip(self._fence[0]):
                self._fence = ""
            yield Block(line, True)
        elif marks and not (marks[1][0] == "`" and "`" in line[marks.end() :]):
            yield from self._end_block()
            self._fence = marks[1]
            yield Block(line, True)
        elif not line.strip():
            yield from self._end_block()
        else:
            if self._lines and _is_next_item(self._lines[0], line):
                yield from self._end_block()
            self._lines.append(line)

    def _end_block(self) -> Iterator[Block]:
        if self._lines:
            yield Block("\n".join(self._lines), False)
        self._lines = []


def _is_next_item(first: str, line: str) -> bool:
    """Both begin an item of the same list, the second not inside the first."""
    one, other = _ITEM.match(first), _ITEM.match(line)
    return one is not None and other is not None and len(other[1]) <= len(one[1])


class _LeftHeading(Heading):
    """A heading like a line of text; rich centres it, the first level in a box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text.assemble(self.text, style="bold underline" if self.tag == "h1" else "bold")


class _Markdown(Markdown):
    elements = {**Markdown.elements, "heading_open": _LeftHeading}  # noqa: RUF012

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)
        self.markup = text
        parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
        self.parsed = parser.disable(_NOT_MARKDOWN).parse(text)
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"


class _LastLines:
    """The end of something taller than the screen."""

    def __init__(self, shown: Markdown | Text) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._shown, options, pad=False)
        for line in lines[-max(1, console.height - 2) :]:
            yield from line
            yield Segment.line()


class MarkdownWriter:
    """Writes Markdown to a terminal while it comes. write(), then finish()."""

    def __init__(self, file: TextIO) -> None:
        self._console = Console(file=file, highlight=False, markup=False, emoji=False)
        self._blocks = Blocks()
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False,
                          redirect_stderr=False, vertical_overflow="visible")  # fmt: skip
        self._draw_next = 0.0
        self._last: Block | None = None

    def write(self, text: str) -> None:
        if not self._live.is_started:
            self._live.start()
        finished = list(self._blocks.feed(text))
        if finished:
            self._live.update(Text(), refresh=True)
            for block in finished:
                self._print(block)
        began = time.monotonic()
        if finished or began >= self._draw_next:
            self._live.update(_LastLines(_drawing(self._blocks.unfinished())), refresh=True)
            now = time.monotonic()
            self._draw_next = now + max(_REDRAW, _SHARE * (now - began))

    def finish(self) -> None:
        """Print what is left; nothing is drawn after that."""
        self._live.update(Text(), refresh=self._live.is_started)
        self._live.stop()
        for block in self._blocks.finish():
            self._print(block)

    def _print(self, block: Block) -> None:
        last, self._last = self._last, block
        both_code = last is not None and last.code and block.code
        both_items = last is not None and _is_next_item(last.text, block.text)
        if last is not None and not both_code and not both_items:
            self._console.print()
        self._console.print(_drawing(block), soft_wrap=block.code)


def _drawing(block: Block) -> Markdown | Text:
    return Text(block.text, style="cyan") if block.code else _Markdown(block.text)
