"""Markdown while it comes: whatever the pieces, a terminal ends up with the same lines, each once."""

from __future__ import annotations

import io
import re

import pyte
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.text import Text

from pyllamacpp.cli import markdown
from pyllamacpp.cli.markdown import Blocks, MarkdownWriter

WIDTH, HEIGHT = 60, 20


class TerminalFile(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(pieces: list[str], monkeypatch: pytest.MonkeyPatch, height: int = HEIGHT) -> list[str]:
    """All lines a terminal of WIDTH by `height` has shown in the end, those that scrolled away too."""
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("LINES", str(height))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(markdown, "_REDRAW", 0.0)
    monkeypatch.setattr(markdown, "_SHARE", 0)
    file = TerminalFile()
    writer = MarkdownWriter(file)
    for piece in pieces:
        writer.write(piece)
    writer.finish()
    screen = pyte.HistoryScreen(WIDTH, height, history=10_000, ratio=0.5)
    stream = pyte.Stream(screen)
    stream.feed(file.getvalue().replace("\n", "\r\n"))
    past = ["".join(row[x].data for x in range(WIDTH)) for row in screen.history.top]
    lines = [line.rstrip() for line in [*past, *screen.display]]
    while lines and not lines[-1]:
        lines.pop()
    return lines


ANSWER = """# Title

A *paragraph* with `code`
and a line break. 5 < 6 && <br> stays, ![image](http://x/y.png) and [link](http://z) too.

1. one
2. two
   - nested
3. three

```python
def f(x):
    return "# no title", x * 1_000_000_000_000_000_000_000_000_000_000_000_000_000_000
```

| a | b |
|---|---|
| 1 | 2 |

The end."""


def test_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown([ANSWER], monkeypatch)
    text = "\n".join(lines)
    assert lines[0] == "Title"
    assert "A paragraph with code\nand a line break. 5 < 6 && <br> stays," in text
    assert "http://x/y.png" in text and "http://z" in text
    assert [line.strip() for line in lines if line.strip()[:2] in ("1 ", "2 ", "3 ", "• ")] == [
        "1 one", "2 two", "• nested", "3 three", "1  2",
    ]  # fmt: skip
    code = lines.index("```python")
    joined = "".join(lines[code + 1 : code + 4])
    assert joined.startswith("def f(x):") and '"# no title", x * 1_000_000' in joined, "literal, not cut"
    assert lines[-1] == "The end."


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.sampled_from([6, HEIGHT]))
@example([1] * 500, 6)
def test_pieces_do_not_matter(sizes: list[int], height: int) -> None:
    pieces, rest = [], ANSWER
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    pieces.append(rest)
    with pytest.MonkeyPatch.context() as patch:
        assert shown([p for p in pieces if p], patch, height) == shown([ANSWER], patch, 200)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab`~\n -*#1.|>\\[]()<&é ", max_size=120), st.data())
def test_blocks_lose_nothing(text: str, data: st.DataObject) -> None:
    def blocks(pieces: list[str]) -> list[markdown.Block]:
        cut = Blocks()
        return [block for piece in pieces for block in cut.feed(piece)] + list(cut.finish())

    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = blocks([text])
    assert blocks(pieces) == whole
    lines = [line for block in whole for line in block.text.split("\n") if line.strip()]
    assert lines == [line for line in text.split("\n") if line.strip()]


def test_an_endless_block_is_drawn_by_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "word " * 400
    lines = shown([text[i : i + 7] for i in range(0, len(text), 7)], monkeypatch, height=8)
    assert " ".join(lines).split() == ["word"] * 400, "nothing twice, nothing lost"


def test_no_escape_sequence_comes_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    file = TerminalFile()
    monkeypatch.setenv("TERM", "xterm-256color")
    writer = MarkdownWriter(file)
    writer.write("&#27;[31mred &#x9b;2J \\(x\\) &amp;\n")
    writer.finish()
    plain = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", file.getvalue())
    assert "\x1b" not in plain and "\x9b" not in plain
    assert "&#27;[31mred &#x9b;2J \\(x\\) &amp;" in plain


def test_drawing_a_long_block_leaves_time_for_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, drawings = 0.0, 0

    def drawing(block: markdown.Block) -> Text:
        nonlocal clock, drawings
        clock, drawings = clock + 1.0, drawings + 1  # a slow one
        return Text(block.text)

    monkeypatch.setattr(markdown, "_drawing", drawing)
    monkeypatch.setattr(markdown.time, "monotonic", lambda: clock)
    writer = MarkdownWriter(TerminalFile())
    for _ in range(100):
        clock += 0.1  # the model's share of it
        writer.write("word ")
    assert 2 <= drawings <= 4
