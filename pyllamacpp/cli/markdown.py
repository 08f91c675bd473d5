"""Markdown on a terminal while it is written.

Blocks that are finished stay on the screen as they are; only the last one, which may still change, is drawn
anew, from the first line that differs. Lines that have scrolled out of sight are never written twice.
Code stands on the screen as the model wrote it, without frame or padding, so that it can be copied. A line
break stays a line break; HTML, images, the targets of links and backslashes (TeX) are text.
"""

from __future__ import annotations

import shutil
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from markdown_it import MarkdownIt
from rich import markdown as rich_markdown
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from rich.theme import Theme

from .screen import PICTURES

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, RenderResult

_THEME = Theme(
    {"markdown.code": "cyan", "markdown.link": "none", "markdown.link_url": "underline",
     "markdown.block_quote": "none"}
)  # fmt: skip
_REDRAW = 0.04  # seconds between two drawings of one block
_SHARE = 5  # and for a long block this many times what one takes
# Rules that would hide what was written, or take an indented line for code.
_NOT_MARKDOWN = ["code", "entity", "escape", "image", "reference"]


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    return parser.disable(_NOT_MARKDOWN)


class _Heading(rich_markdown.Heading):
    """Bold, at the left margin, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("bold underline" if self.tag in ("h1", "h2") else "bold")
        yield self.text


class _Code(rich_markdown.CodeBlock):
    """The lines themselves, coloured where the language is known."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).removesuffix("\n")
        text = Text(code, tab_size=8)
        if self.lexer_name not in ("", "text", "default") and not console.no_color:
            from rich.syntax import Syntax

            text = Syntax(code, self.lexer_name, theme="ansi_dark", background_color="default").highlight(
                code
            )
            text.rstrip()
        yield from console.render(text, options.update(no_wrap=True, overflow="ignore", width=1 << 16))


class _Item(rich_markdown.ListItem):
    """Like its base, which would cut lines of code at the edge of the screen."""

    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _indented(console, options, self.elements, " • ", " " * 3)

    def render_number(
        self, console: Console, options: ConsoleOptions, number: int, last_number: int
    ) -> RenderResult:
        prefix = f"{number:>{len(str(last_number))}}. "
        yield from _indented(console, options, self.elements, prefix, " " * len(prefix))


class _Quote(rich_markdown.BlockQuote):
    """Likewise."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _indented(console, options, self.elements, "▌ ", "▌ ")


def _indented(
    console: Console, options: ConsoleOptions, elements: Any, first: str, others: str
) -> RenderResult:
    inner = options.update(width=max(options.max_width - len(first), 1))
    for i, line in enumerate(Segment.split_lines(console.render(elements, inner))):
        yield Segment(others if i else first)
        yield from line
        yield Segment.line()


class _Markdown(rich_markdown.Markdown):
    elements: ClassVar[dict[str, Any]] = {
        **rich_markdown.Markdown.elements,
        "blockquote_open": _Quote,
        "heading_open": _Heading,
        "list_item_open": _Item,
        "fence": _Code,
    }


class MarkdownWriter:
    """Draws Markdown on a terminal as it comes: `write` text, then `finish`."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._parser = _parser()
        self._source = ""  # of the unfinished block, and what came with it
        self._shown: list[str] = []  # lines of that block on the screen, the cursor behind the last
        self._any = False  # finished blocks are on the screen
        self._next = 0.0  # when to draw again

    def write(self, text: str) -> None:
        """More text, of any length."""
        self._source += text
        if time.monotonic() >= self._next:
            self._draw()

    def finish(self) -> None:
        """Draw the rest and leave the cursor at the beginning of a line."""
        self._draw()
        self._out.write("\n" if self._shown or not self._any else "")
        self._out.flush()
        self._source, self._shown = "", []

    def _draw(self) -> None:
        began = time.monotonic()
        out: list[str] = []
        lines = self._source.splitlines(keepends=True)
        blocks = [t for t in self._parser.parse(self._source) if t.level == 0 and t.nesting >= 0]
        starts = [t.map[0] for t in blocks if t.map]
        for begin, end in pairwise(starts):  # finished blocks
            self._replace(out, "".join(lines[begin:end]))
            out.append("\n\n")
            self._shown, self._any = [], True
        if starts:
            self._source = "".join(lines[starts[-1] :])
            self._replace(out, self._source)
        self._out.write("".join(out))
        self._out.flush()
        now = time.monotonic()
        self._next = now + max(_REDRAW, _SHARE * (now - began))

    def _replace(self, out: list[str], source: str) -> None:
        """Bring the lines of the unfinished block on the screen up to date."""
        size = shutil.get_terminal_size()
        lines = self._rendered(source, size.columns)
        keep = 0
        for old, new in zip(self._shown, lines, strict=False):
            if old != new:
                break
            keep += 1
        keep = max(keep, self._first_in_reach(size))
        if keep < len(self._shown):
            up = sum(_rows(line, size.columns) for line in self._shown[keep:]) - 1
            out.append(f"\r\x1b[{up}A\x1b[J" if up else "\r\x1b[J")
        elif self._shown and keep < len(lines):
            out.append("\n")
        out.append("\n".join(lines[keep:]))
        if keep < len(self._shown) and keep >= len(lines):  # became shorter: back behind its last line
            out.append("\x1b[A\x1b[999C" if keep else "")
        self._shown = self._shown[:keep] + lines[keep:]

    def _first_in_reach(self, size: Any) -> int:
        """The first line of those shown that has not scrolled out of the screen."""
        rows = 0
        for i in range(len(self._shown) - 1, -1, -1):
            rows += _rows(self._shown[i], size.columns)
            if rows > size.lines - 1:
                return i + 1
        return 0

    def _rendered(self, source: str, columns: int) -> list[str]:
        """Lines with their styles, without blanks at the end."""
        document = _Markdown("", hyperlinks=False)
        document.parsed = self._parser.parse(source)
        for token in document.parsed:
            for child in token.children or ():
                if child.type == "softbreak":  # a model that ends a line means it
                    child.type = "hardbreak"
        console = Console(
            file=self._out,
            force_terminal=True,
            theme=_THEME,
            width=columns,
            soft_wrap=False,
            highlight=False,
            markup=False,
        )
        rendered = list(Segment.split_lines(console.render(document)))
        blank = [not "".join(s.text for s in line).strip() for line in rendered]
        if all(blank):
            return []
        return [
            _ansi(console, line)
            for line in rendered[blank.index(False) : len(blank) - blank[::-1].index(False)]
        ]


def _ansi(console: Console, line: list[Segment]) -> str:
    """A line with its styles. What the parser decodes, such as links, brings no control characters back."""
    segments = [Segment(s.text.translate(PICTURES), s.style) for s in line if not s.control]
    while segments and not segments[-1].text.rstrip(" ") and not _visible(segments[-1].style):
        segments.pop()
    if segments and not _visible(segments[-1].style):
        segments[-1] = Segment(segments[-1].text.rstrip(" "), segments[-1].style)
    with console.capture() as capture:
        text = Text.assemble(*((s.text, s.style or "") for s in segments))
        console.print(text, soft_wrap=True, end="")
    return capture.get()


def _visible(style: Style | None) -> bool:
    """Whether blanks in this style can be seen."""
    return style is not None and (style.bgcolor is not None or bool(style.underline or style.reverse))


def _rows(line: str, columns: int) -> int:
    """How many rows of the screen a line takes."""
    return max(1, -(-cell_len(Text.from_ansi(line).plain) // columns))
