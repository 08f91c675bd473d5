"""Repairs happen only where a template refuses, the mildest that helps, and lose no text."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tokenizer import CONTROL, byte_pair

from pyllamacpp.errors import ChatTemplateError, ConversationRefusedError
from pyllamacpp.text.chat import ChatTemplate
from pyllamacpp.text.repair import FOLDED, MERGED, folded, merged, repaired
from pyllamacpp.text.tokenizer import Tokenizer

STRICT = ChatTemplate(
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}"
)
LENIENT = ChatTemplate("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")
NO_SYSTEM = ChatTemplate(
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}"
)


def said(*pairs: str) -> list[dict[str, Any]]:
    return [dict(zip(("role", "content"), pair.split(":"), strict=True)) for pair in pairs]


@pytest.mark.parametrize(
    ("template", "messages", "text", "done"),
    [
        (STRICT, ["user:a", "assistant:b", "user:c"], "[user]a[assistant]b[user]c", []),
        (LENIENT, ["system:s", "user:a", "user:b"], "[system]s[user]a[user]b", []),
        (STRICT, ["user:a", "user:b", "assistant:c"], "[user]a\n\nb[assistant]c", [MERGED]),
        (STRICT, ["system:s", "user:a"], "[user]s\n\na", [FOLDED]),
        (STRICT, ["system:s", "user:a", "user:b"], "[user]s\n\na\n\nb", [FOLDED, MERGED]),
        (NO_SYSTEM, ["system:s", "user:a", "user:b"], "[user]s\n\na[user]b", [FOLDED]),
        (NO_SYSTEM, ["system:s"], "[user]s", [FOLDED]),
    ],
)  # fmt: skip
def test_repairs(template: ChatTemplate, messages: list[str], text: str, done: list[str]) -> None:
    given_messages = said(*messages)
    assert repaired(template.render, given_messages) == (text, done)
    assert given_messages == said(*messages), "the caller's messages stay as they are"


def test_what_cannot_be_repaired_is_the_templates_own_error() -> None:
    with pytest.raises(ConversationRefusedError, match="roles must alternate"):
        repaired(STRICT.render, said("assistant:a", "user:b"))


def test_only_a_refusal_is_repaired() -> None:
    """A template that fails would fail again, after as long a time; the error tells how it did."""
    tried = []

    def use(messages: Any) -> str:
        tried.append(messages)
        return ChatTemplate("{{ messages | nothing_such }}{{ missing.field }}").render(messages)

    with pytest.raises(ChatTemplateError, match="nothing_such") as caught:
        repaired(use, said("system:s", "user:a", "user:b"))
    assert len(tried) == 1 and not isinstance(caught.value, ConversationRefusedError)


def test_prompts_of_a_model_are_repaired_too() -> None:
    """Their texts are marked while the template runs, and its sentence is told without the marks."""
    tokenizer = Tokenizer.from_metadata(byte_pair([("<|end|>", CONTROL)]))
    quoting = ChatTemplate(NO_SYSTEM.source.replace("'no system'", "'no system: ' ~ m.content"))
    messages = said("system:<|end|>", "user:a")
    with pytest.raises(ConversationRefusedError, match=r"^no system: <\|end\|>$"):
        quoting.encode(tokenizer, messages)
    ids, done = repaired(lambda messages: quoting.encode(tokenizer, messages), messages)
    assert (tokenizer.decode_bytes(ids), done) == (b"[user]<|end|>\n\na", [FOLDED])


def test_tool_calls_names_and_parts() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    tools = [{"role": "tool", "content": "1", "tool_call_id": "1"}, {"role": "tool", "content": "2"}]
    kept = [
        call,
        call,
        *tools,
        {"role": "user", "name": "x", "content": "a"},
        {"role": "user", "content": "b"},
    ]
    assert merged(kept) == kept
    part = {"type": "text", "text": "p"}
    assert merged([{"role": "user", "content": [part]}, {"role": "user", "content": "b"}]) == [
        {"role": "user", "content": [part, {"type": "text", "text": "b"}]}
    ]
    assert folded([{"role": "system", "content": "s"}, {"role": "user", "content": [part]}]) == [
        {"role": "user", "content": [{"type": "text", "text": "s"}, part]}
    ]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.sampled_from("abc")), max_size=8)
)
def test_no_text_is_lost_and_none_moves(pairs: list[tuple[str, str]]) -> None:
    messages = [{"role": role, "content": text} for role, text in pairs]
    for change in (merged, lambda m: merged(folded(m))):
        texts = [text for m in change(messages) for text in m["content"].split("\n\n")]
        if messages and (messages[0]["role"] != "system" or change is merged or not any(
            r == "assistant" for r, _ in pairs)):  # fmt: skip
            assert texts == [text for _, text in pairs]
        assert sorted(texts) == sorted(text for _, text in pairs)
    roles = [m["role"] for m in merged(messages)]
    assert all(a != b for a, b in itertools.pairwise(roles))
