"""Markdown while it comes: whatever the pieces, a terminal ends up with the same lines, each once."""

from __future__ import annotations

import io
import re

import pyte
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyllamacpp.cli import markdown
from pyllamacpp.cli.markdown import MarkdownWriter

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
        "• nested", "1  2",
    ]  # fmt: skip
    assert "1. one\n2. two\n    • nested\n3. three" in text
    joined = "".join(lines[lines.index("def f(x):") :][:3])
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


def test_code_can_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "y = " + "a" * 100
    text = f"- item\n  ```python\n  {line}\n  ```\n\n```\na  b\n\n  c\\d &lt; **x**\n{line}\n```\n"
    lines = shown([text], monkeypatch)
    assert lines[:3] == [
        " • item",
        "   " + line[:57],
        line[57:],
    ]  # a line goes on where the terminal breaks it
    assert lines[4:] == ["a  b", "", "  c\\d &lt; **x**", line[:60], line[60:]]


def test_every_text_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a <b>html</b> &lt; \\(x_1\\) ![i](u)\n\n[1]: http://hidden\n\n> quoted\n\n<div>\n\n    indented"
    told = "\n".join(shown([text], monkeypatch))
    for part in (
        "a <b>html</b> &lt; \\(x_1\\)",
        "(u)",
        "[1]: http://hidden",
        "▌ quoted",
        "<div>",
        "indented",
    ):
        assert part in told


def test_finished_lines_are_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "_REDRAW", 0.0)
    monkeypatch.setattr(markdown, "_SHARE", 0)
    file = TerminalFile()
    writer = MarkdownWriter(file)
    writer.write("word " * 200)
    before = len(file.getvalue())
    writer.write("more")
    assert len(file.getvalue()) - before < 100


def test_width_changes_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = pyte.Screen(60, 20)
    stream = pyte.Stream(screen)
    monkeypatch.setattr(markdown, "_REDRAW", 0.0)
    monkeypatch.setattr(markdown, "_SHARE", 0)
    monkeypatch.setenv("LINES", "20")
    file = TerminalFile()
    writer = MarkdownWriter(file)
    for width, text in ((60, "First.\n\nSecond " + "word " * 5), (40, "more " * 7), (60, "and more")):
        monkeypatch.setenv("COLUMNS", str(width))
        screen.resize(20, width)
        writer.write(text)
        stream.feed(file.getvalue().replace("\n", "\r\n"))
        file.truncate(file.seek(0))
    lines = [line.rstrip() for line in screen.display]
    assert lines[:2] == ["First.", ""] and " ".join(lines[2:]).split() == [
        "Second", *["word"] * 5, *["more"] * 7, "and", "more",
    ]  # fmt: skip


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    file = TerminalFile()
    writer = MarkdownWriter(file)
    writer.write(ANSWER)
    writer.finish()
    styles = {code for codes in re.findall(r"\x1b\[([\d;]*)m", file.getvalue()) for code in codes.split(";")}
    assert "1" in styles and not any(len(code) == 2 and code[0] in "349" for code in styles)


def test_an_endless_block_is_drawn_by_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "word " * 400
    lines = shown([text[i : i + 7] for i in range(0, len(text), 7)], monkeypatch, height=8)
    assert " ".join(lines).split() == ["word"] * 400, "nothing twice, nothing lost"


def test_no_escape_sequence_comes_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    file = TerminalFile()
    monkeypatch.setenv("TERM", "xterm-256color")
    writer = MarkdownWriter(file)
    writer.write("&#27;[31mred &#x9b;2J \\(x\\) &amp; <http://x/%1b%5b2J>\n")
    writer.finish()
    plain = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", file.getvalue())
    assert "\x1b" not in plain and "\x9b" not in plain
    assert "&#27;[31mred &#x9b;2J \\(x\\) &amp;" in plain


def test_drawing_a_long_block_leaves_time_for_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, drawings = 0.0, 0

    def rendered(self: MarkdownWriter, source: str, columns: int) -> list[str]:
        nonlocal clock, drawings
        clock, drawings = clock + 1.0, drawings + 1  # a slow one
        return [source]

    monkeypatch.setattr(MarkdownWriter, "_rendered", rendered)
    monkeypatch.setattr(markdown.time, "monotonic", lambda: clock)
    writer = MarkdownWriter(TerminalFile())
    for _ in range(100):
        clock += 0.1  # the model's share of it
        writer.write("word ")
    assert 2 <= drawings <= 4
