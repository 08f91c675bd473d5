"""Thoughts and answer: the same whatever the pieces, and as a plain reading of the rules has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyllamacpp.text.chat import ChatTemplate
from pyllamacpp.text.reasoning import KNOWN, Markers, Splitter, markers_of, split, splitter_for

TEMPLATES = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "templates"
THINK = Markers("<think>", "</think>")


def plainly(text: str, markers: Markers, opened: bool) -> tuple[str, str]:
    """The rules, for a whole text."""
    start = text.lstrip()
    if not opened:
        if markers.plain and start.startswith(markers.plain) and not start.startswith(markers.opens):
            return "", start[len(markers.plain) :]
        if not start.startswith(markers.opens):
            return "", text
        text = start[len(markers.opens) :]
    thoughts, closed, answer = text.partition(markers.closes)
    return thoughts.strip(), answer.lstrip() if closed else ""


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(KNOWN), st.data(), st.booleans())
def test_pieces_do_not_matter(markers: Markers, data: st.DataObject, opened: bool) -> None:
    words = ["", " ", "\n", "a", "é", markers.opens, markers.closes, markers.plain, markers.opens[:-1],
             markers.closes[:-1], markers.closes[1:], "<", "</", "<|"]  # fmt: skip
    text = "".join(data.draw(st.lists(st.sampled_from(words), max_size=8)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    splitter = Splitter(markers, opened=opened)
    pieces = []
    for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True):
        pieces += splitter.feed(text[a:b])
    pieces += splitter.finish()
    assert all(text for _, text in pieces)
    kinds = [thought for thought, _ in pieces]
    assert kinds == sorted(kinds, reverse=True), "thoughts come first"
    got = tuple("".join(text for thought, text in pieces if thought is kind) for kind in (True, False))
    assert got == plainly(text, markers, opened) == split(text, markers, opened=opened)


@pytest.mark.parametrize(
    ("text", "opened", "thoughts", "answer"),
    [
        ("<think>\nSo.\n</think>\n\nYes.\n", False, "So.", "Yes.\n"),
        ("So.\n</think>Yes.", True, "So.", "Yes."),
        ("<think>\n\n</think>\n\nYes.", False, "", "Yes."),
        ("<think>cut", False, "cut", ""),
        ("cut </thi", True, "cut </thi", ""),
        ("No thoughts, <think>x</think>", False, "", "No thoughts, <think>x</think>"),
        ("<think>a</think>b</think>c", False, "a", "b</think>c"),
        ("<thin ice", False, "", "<thin ice"),
        ("  <th", False, "", "  <th"),
        ("", True, "", ""),
    ],
)  # fmt: skip
def test_rules(text: str, opened: bool, thoughts: str, answer: str) -> None:
    assert split(text, THINK, opened=opened) == (thoughts, answer)


def test_thoughts_are_shown_as_they_come() -> None:
    splitter = Splitter(THINK, opened=False)
    told = [
        splitter.feed(piece) for piece in ("<thi", "nk>\n", "One ", "two", " </", "b> </thi", "nk>", "\n\nY")
    ]
    assert told == [[], [], [(True, "One")], [(True, " two")], [], [(True, " </b>")], [], [(False, "Y")]]


def test_markers_are_read_off_the_template() -> None:
    for markers in KNOWN:
        assert markers_of(f"{{{{ x }}}}{markers.opens}{{{{ y }}}}{markers.closes}") == markers
    assert markers_of("{{ content.split('</think>')[-1] }}") == THINK
    assert markers_of("{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}") is None


def test_opened_by_the_prompt() -> None:
    source = "{{ messages[0].content }}<a>{% if think %}<think>\n{% else %}<think></think>{% endif %}"
    template = ChatTemplate(source)
    messages = [{"role": "user", "content": "hi"}]
    told = []
    for think in (True, False):
        splitter = splitter_for(template, messages, {"think": think})
        assert splitter is not None
        told.append(splitter.feed("x</think>y") + splitter.finish())
    assert told == [[(True, "x"), (False, "y")], [(False, "x</think>y")]]
    assert splitter_for(ChatTemplate("{{ messages }}"), messages, {}) is None


@pytest.mark.skipif(not TEMPLATES.is_dir(), reason="published templates are not in the repository")
def test_published_templates() -> None:
    found = {path.stem: markers_of(path.read_text("utf-8")) for path in TEMPLATES.glob("*.jinja")}
    opens = {name: markers and markers.opens for name, markers in found.items()}
    assert opens["Qwen-Qwen3-0.6B"] == opens["Qwen-QwQ-32B"] == "<think>"
    assert opens["deepseek-ai-DeepSeek-R1-Distill-Llama-8B"] == "<think>"
    assert opens["openai-gpt-oss-120b"] == "<|channel|>analysis<|message|>"
    assert opens["google-gemma-4-31B-it-interleaved"] == "<|channel>thought\n"
    assert opens["ByteDance-Seed-OSS"] == "<seed:think>"
    assert opens["MiniMax-M3"] == "<mm:think>"
    assert opens["mistralai-Ministral-3-14B-Reasoning-2512"] == "[THINK]"
    assert opens["Apriel-1.6-15b-Thinker-fixed"] == "Here are my reasoning steps:\n"
    assert opens["meta-llama-Llama-3.1-8B-Instruct"] is None
