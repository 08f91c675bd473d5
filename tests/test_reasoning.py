"""Reasoning: the markers a template declares, the split of whole answers and of streams."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyllamacpp.text.chat import ChatTemplate
from pyllamacpp.text.reasoning import Delta, ReasoningFormat, ReasoningSplitter, split

THINK = ReasoningFormat("<think>", "</think>")
ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
COMMENTARY = "<|channel|>commentary<|message|>"
HARMONY = ReasoningFormat(
    ANALYSIS,
    "<|end|>",
    (f"<|start|>assistant{FINAL}", f"<|start|>assistant{COMMENTARY}", FINAL, COMMENTARY),
    "<|start|>assistant",
    "<|end|>",
)
GRANITE = ReasoningFormat("<think>", "</think>", ("<response>",), answer_close="</response>")
APRIEL = ReasoningFormat(
    "Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", answer_close="[END FINAL RESPONSE]"
)
TURN = "{% for m in messages %}<|{{ m.role }}|>\n"
QWEN = (
    TURN + "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>\nWhy?\n</think>\n\nBecause.", "Why?", "Because."),
        (" \n<think>a</think>b", "a", "b"),
        ("<think></think>b", "", "b"),  # empty thoughts
        ("<think>\n\n</think>\n\n", "", ""),
        ("<think>\n a\n\n b ", "a\n\n b", ""),  # cut by max_tokens
        ("<think>a</thi", "a</thi", ""),
        ("<think", "", "<think"),
        ("  plain  ", "", "  plain  "),
        ("", "", ""),
        ("\n", "", "\n"),
        ("a <think>b</think> c", "", "a <think>b</think> c"),  # not at the beginning
        ("a</think>b", "", "a</think>b"),  # nothing was open
        ("<think>a<think>b</think>c</think>d", "a<think>b", "c</think>d"),  # no nesting
        ("<think>ends with `</think>` they say</think>x", "ends with `</think>` they say", "x"),
        ('<think>"</think>"</think>x', '"</think>"', "x"),
        ("<think>it's</think>'x'", "it's", "'x'"),
        ("<think>say '</think>x'", "say '", "x'"),  # a quote on one side only
        ("<think>`</think>", "`", ""),  # the text ends where the second quote would be
        ("<think>a</think>\n<think>b</think>\nc", "a\n\nb", "c"),
    ],
)
def test_whole_answers(text: str, reasoning: str, content: str) -> None:
    assert split(THINK, text) == (reasoning, content)
    assert split(None, text) == ("", text)


def test_opened_by_the_prompt() -> None:
    assert THINK.opened_by("<|assistant|>\n<think>\n") and not THINK.opened_by("<think>\n\n</think>\n\n")
    assert split(THINK, "\na\n</think>\n\nb", opened=True) == ("a", "b")
    assert split(THINK, "a", opened=True) == ("a", "")
    assert split(THINK, "</think>b", opened=True) == ("", "b")


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        (f"{ANALYSIS}Hm.<|end|><|start|>assistant{FINAL}Yes.", "Hm.", "Yes."),
        (f"{FINAL}Yes.", "", "Yes."),
        (f"{ANALYSIS}a<|end|><|start|>assistant{ANALYSIS}b", "a\n\nb", ""),
        (f"{COMMENTARY}c", "", "c"),
        (
            f"{ANALYSIS}a<|end|><|start|>assistant{COMMENTARY}I look. <|end|><|start|>assistant{ANALYSIS}b"
            f"<|end|><|start|>assistant{FINAL}Yes. ",
            "a\n\nb", "I look.\n\nYes. ",
        ),
        (  # a call is for whoever reads calls
            f"{ANALYSIS}a<|end|><|start|>assistant<|channel|>commentary to=functions.f <|message|>{{}}",
            "a", "<|start|>assistant<|channel|>commentary to=functions.f <|message|>{}",
        ),
        ("Yes.<|end|>", "", "Yes.<|end|>"),  # nothing was opened
    ],
)  # fmt: skip
def test_thoughts_in_a_message_of_their_own(text: str, reasoning: str, content: str) -> None:
    assert split(HARMONY, text) == (reasoning, content)


@pytest.mark.parametrize(
    ("format", "text", "reasoning", "content"),
    [
        (GRANITE, "<think>a</think>\n<response>b\n</response>\n", "a", "b"),
        (GRANITE, "<response>b</response>", "", "b"),
        (GRANITE, "<think>a</think>b </resp", "a", "b </resp"),
        (APRIEL, f"{APRIEL.open}\na\n{APRIEL.close}\nb\n{APRIEL.answer_close}\n", "a", "b"),
        (APRIEL, f"b {APRIEL.answer_close}", "", f"b {APRIEL.answer_close}"),
    ],
)
def test_answers_between_markers(format: ReasoningFormat, text: str, reasoning: str, content: str) -> None:
    assert split(format, text) == (reasoning, content)


PIECES = ["<think>", "</think>", "<", "/think>", "`", "'", '"', " ", "\n", "a", "b.", "think", "é"]
HARMONY_PIECES = [
    "<|channel|>", "analysis", "final", "<|message|>", "<|end|>", "<|start|>", "assistant", " ", "a", "`",
    ANALYSIS, COMMENTARY, FINAL,
]  # fmt: skip


@st.composite
def cut_texts(draw: st.DrawFn, pieces: list[str]) -> tuple[str, list[str]]:
    text = "".join(draw(st.lists(st.sampled_from(pieces), max_size=14)))
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=8)))
    ends = [*cuts, len(text)]
    return text, [text[a:b] for a, b in zip([0, *cuts], ends, strict=True)]


@settings(max_examples=300, deadline=None)
@given(
    case=st.one_of(
        st.tuples(st.just(THINK), cut_texts(PIECES)),
        st.tuples(st.just(HARMONY), cut_texts(HARMONY_PIECES)),
        st.tuples(st.just(GRANITE), cut_texts([*PIECES, "<response>", "</response>"])),
    ),
    opened=st.booleans(),
)
def test_cuts_do_not_matter(case: tuple[ReasoningFormat, tuple[str, list[str]]], opened: bool) -> None:
    format, (text, cut) = case
    whole = split(format, text, opened=opened)
    for chunks in (cut, list(text)):
        splitter = ReasoningSplitter(format, opened=opened)
        deltas = [*map(splitter.push, chunks), splitter.flush()]
        assert Delta("".join(d.reasoning for d in deltas), "".join(d.content for d in deltas)) == whole
    # Nothing is invented, and only markers and blanks are lost.
    kept = "".join(whole).replace("\n\n", "")
    assert len(kept) <= len(text)
    if not any(marker in text for marker in (format.open, format.close, *format.headers)) and not opened:
        assert whole == ("", text)


def test_text_is_given_out_as_soon_as_it_is_settled() -> None:
    splitter = ReasoningSplitter(THINK)
    told = [splitter.push(c) for c in ("<thi", "nk>", " so", " it", " is", "</", "think>", "\n", "yes", " ")]
    assert [d.reasoning for d in told] == ["", "", "so", " it", " is", "", "", "", "", ""]
    assert [d.content for d in told] == ["", "", "", "", "", "", "", "", "yes", " "]
    assert not splitter.reasoning and ReasoningSplitter(THINK, opened=True).reasoning


def test_format_comes_from_the_template() -> None:
    assert ReasoningFormat.of(ChatTemplate(QWEN)) == THINK
    assert ReasoningFormat.of(ChatTemplate(QWEN.replace("reasoning_content", "thinking"))) == THINK
    forced = QWEN.replace("%}<|assistant|>\n{% endif", "%}<|assistant|>\n<think>\n{% endif")
    assert ReasoningFormat.of(ChatTemplate(forced)) == THINK
    assert ReasoningFormat.of(ChatTemplate(TURN + "{{ m.content }}{% endfor %}")) is None
    split_only = TURN + "{{ m.content.split('</think>')[-1] }}{% endfor %}"
    assert ReasoningFormat.of(ChatTemplate(split_only)) == THINK
    refusing = "{{ raise_exception('no') }}[THINK][/THINK]"
    assert ReasoningFormat.of(ChatTemplate(refusing)) == ReasoningFormat("[THINK]", "[/THINK]")
    cohere = "<|START_THINKING|><|END_THINKING|><|START_RESPONSE|><|END_RESPONSE|>"
    assert ReasoningFormat.of(ChatTemplate(cohere)) == ReasoningFormat(
        "<|START_THINKING|>", "<|END_THINKING|>", ("<|START_RESPONSE|>",), answer_close="<|END_RESPONSE|>"
    )


def test_a_template_without_end_is_stopped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    template = ChatTemplate(
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}</think>"
    )
    asked, render = [], ChatTemplate.render

    def counted(self: ChatTemplate, *arguments: Any, **more: Any) -> str:
        asked.append(self)
        return render(self, *arguments, **more)

    monkeypatch.setattr(ChatTemplate, "render", counted)
    assert template.reasoning == THINK and len(asked) == 1


SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "templates"
PUBLISHED = {
    "Apriel-1.6-15b-Thinker-fixed": ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
    "ByteDance-Seed-OSS": ("<seed:think>", "</seed:think>"),
    "GLM-4.6": ("<think>", "</think>"),
    "Kimi-K2-Thinking": ("<think>", "</think>"),
    "MiniMax-M3": ("<mm:think>", "</mm:think>"),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("<think>", "</think>"),
    "Qwen-Qwen3-0.6B": ("<think>", "</think>"),
    "deepseek-ai-DeepSeek-V3.1": ("<think>", "</think>"),
    "deepseek-ai-DeepSeek-V4-Flash-0731": ("<think>", "</think>"),
    "google-gemma-4-31B-it-interleaved": ("<|channel>thought", "<channel|>"),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("[THINK]", "[/THINK]"),
    "openai-gpt-oss-120b": ("<|channel|>analysis<|message|>", "<|end|>"),
    "poolside-Laguna-XS.2": ("<think>", "</think>"),
    "ibm-granite-granite-3.3-2B-Instruct": ("<think>", "</think>"),
    "unsloth-Apriel-1.5": ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
    "upstage-Solar-Open-100B": ("<|think|>", "<|end|>"),
    "meta-llama-Llama-3.3-70B-Instruct": None,
    "meetkai-functionary-medium-v3.1": None,
}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collection of published templates is not here")
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_templates(name: str) -> None:
    template = ChatTemplate((SHARED / f"{name}.jinja").read_text("utf-8"))
    found = ReasoningFormat.of(template)
    assert (found and (found.open, found.close)) == PUBLISHED[name]
    if name == "openai-gpt-oss-120b":
        assert found == HARMONY
    if name.startswith(("ibm-granite", "unsloth-Apriel")):
        assert found == (GRANITE if "granite" in name else APRIEL)


def test_control_tokens_of_markers_are_spelled() -> None:
    ids = {"<|channel|>": 1, "<|message|>": 2, "<|end|>": 3, "<|start|>": 4, "<|call|>": 5}

    def split_special(text: str) -> list[str | int]:
        return [ids.get(piece, piece) for piece in re.split(r"(<[|]\w+[|]>)", text) if piece]

    texts = {id: text.encode() for text, id in ids.items()}
    tokenizer: Any = SimpleNamespace(
        split_special=split_special, token_bytes=lambda id, special: texts[id] if special else b""
    )
    assert HARMONY.marker_bytes(tokenizer) == {id: texts[id] for id in (1, 2, 3, 4)}
    assert THINK.marker_bytes(tokenizer) == {}
