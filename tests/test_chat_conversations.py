"""Published templates with every kind of conversation: as Jinja2 alone has it, or repaired where it fails."""

from __future__ import annotations

import copy
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import SandboxedEnvironment
from test_chat import tokenizer

from pyllamacpp.errors import ChatTemplateError
from pyllamacpp.text.chat import ChatTemplate
from pyllamacpp.text.reasoning import FIELDS

TEMPLATES = sorted((Path(__file__).resolve().parents[2] / "shared/data/templates").glob("*.jinja"))
NOW = datetime(2024, 7, 26)

USER: dict[str, Any] = {"role": "user", "content": "What is the weather in Köln?"}
SYSTEM: dict[str, Any] = {"role": "system", "content": "Be brief"}
ARGUMENTS = {"city": "Köln", "days": 2}
TOOLS = [{
    "type": "function",
    "function": {
        "name": "get_weather", "description": "The weather <now>",
        "parameters": {
            "type": "object", "required": ["city"],
            "properties": {
                "city": {"type": "string", "description": "Where"},
                "days": {"type": "integer", "description": "How many"},
            },
        },
    },
}]  # fmt: skip


def round_trip(arguments: Any, content: Any = None) -> list[dict[str, Any]]:
    call = {"id": "call_1234567890", "type": "function",
            "function": {"name": "get_weather", "arguments": arguments}}  # fmt: skip
    return [
        USER,
        {"role": "assistant", "content": content, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "name": "get_weather", "content": "blue sky"},
        {"role": "assistant", "content": "Blue"},
        {"role": "user", "content": "Thanks"},
    ]


def without_content(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in m.items() if k != "content" or v is not None} for m in messages]


PARTS = [{"type": "text", "text": "What is the weather"}, {"type": "text", "text": " in Köln?"}]
CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], Any]] = {
    "plain": ([USER, {"role": "assistant", "content": "Fine"}, {"role": "user", "content": "Thanks"}], None),
    "system": ([SYSTEM, USER], None),
    "tools": ([USER], TOOLS),
    "system and tools": ([SYSTEM, USER], TOOLS),
    "round trip": (round_trip(ARGUMENTS), TOOLS),
    "round trip as text": (round_trip(json.dumps(ARGUMENTS, ensure_ascii=False)), TOOLS),
    "round trip with words": (round_trip(ARGUMENTS, "Let me see"), TOOLS),
    "round trip without content": (without_content(round_trip(ARGUMENTS)), TOOLS),
    "round trip to the result": (round_trip(ARGUMENTS)[:3], TOOLS),
    "broken arguments": (round_trip('{"city": '), TOOLS),
    "null content": ([USER, {"role": "assistant", "content": None}, USER], None),
    "parts": ([SYSTEM, {"role": "user", "content": PARTS}], None),
}
# Refusals by template and conversation: their own, or what they want that a conversation does not have.
REFUSALS = {
    ("mistralai-Ministral", "null content"): "Assistant message must have a string",
    ("Spark2.5", "broken arguments"): "must be a dictionary",
    ("fireworks-ai-llama-3-firefunction", ""): "'functions' is undefined",
}
ONLY_OBJECTS = "chat template failed|Invalid tool call arguments|must be a dictionary"


def refusal(path: Path, name: str) -> str | None:
    for (template, conversation), message in REFUSALS.items():
        if path.name.startswith(template) and conversation in ("", name):
            return message
    return None


def template_of(path: Path) -> ChatTemplate:
    return ChatTemplate(path.read_text("utf-8"), bos_token="<s>", eos_token="</s>", clock=lambda: NOW)


class Refused(Exception):
    """What a template says with `raise_exception`."""


class Stock:
    """A template as transformers' apply_chat_template runs it."""

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_called"), [], [], body).set_lineno(line)

        def _called(self, caller: Any) -> Any:
            return caller()

    def __init__(self, source: str) -> None:
        def refuse(message: str) -> None:
            raise Refused(message)

        environment = SandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", self.Generation]
        )
        environment.filters["tojson"] = lambda x, ensure_ascii=False, **more: json.dumps(
            x, ensure_ascii=ensure_ascii, **more
        )
        environment.globals |= {"raise_exception": refuse, "strftime_now": NOW.strftime}
        self.template = environment.from_string(source)

    def render(self, messages: list[dict[str, Any]], variables: dict[str, Any]) -> str:
        """Fields of value None are dropped and thoughts go by all names, as transformers has it (but for
        `reasoning`, which Solar reads)."""
        given = []
        for message in copy.deepcopy(messages):
            message = {key: value for key, value in message.items() if value is not None}
            for thoughts in [message[field] for field in FIELDS if field in message][:1]:
                message = {**dict.fromkeys(FIELDS, thoughts), **message, "reasoning_content": thoughts}
            given.append(message)
        tokens = {"bos_token": "<s>", "eos_token": "</s>"}
        return self.template.render(
            messages=given, **{"add_generation_prompt": True, "tools": None, **tokens, **variables}
        )

    def told(self, messages: list[dict[str, Any]], variables: dict[str, Any]) -> str | Exception:
        try:
            return self.render(messages, variables)
        except Exception as error:  # whatever a template may raise
            return error


@pytest.mark.skipif(not TEMPLATES, reason="no ../shared/data/templates")
@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_every_conversation(path: Path, name: str) -> None:
    template, (messages, tools) = template_of(path), CONVERSATIONS[name]
    wanted = refusal(path, name)
    if wanted is not None:
        with pytest.raises(ChatTemplateError, match=wanted):
            template.render(messages, tools=tools)
        return
    if name == "broken arguments":  # they stay text: printed, or refused where an object is needed
        try:
            template.render(messages, tools=tools)
        except ChatTemplateError as error:
            assert any(part in str(error) for part in ONLY_OBJECTS.split("|"))
        return
    text = template.render(messages, tools=tools)
    assert "What is the weather in Köln?" in text
    assert ("Be brief" in text) == (messages[0] is SYSTEM)
    if name.startswith("round trip") and "get_weather" in text:
        assert "blue sky" in text


def thinking(field: str, content: str = "A") -> list[dict[str, Any]]:
    return [USER, {"role": "assistant", "content": content, field: "I think <x>"}, USER]


def said(*roles: str) -> list[dict[str, Any]]:
    return [{"role": role, "content": f"{role} {i} <b> & 'x'"} for i, role in enumerate(roles)]


TWO_CALLS = [
    {"id": f"abcdEF12{i}", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    for i, arguments in enumerate([ARGUMENTS, {"city": "Ulm"}])
]
DOCUMENTS = [{"title": "One", "text": "First"}, {"title": "Two", "text": "Second"}]
ODDER: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    **{name: (messages, {"tools": tools}) for name, (messages, tools) in CONVERSATIONS.items()},
    **{f"thoughts as {f}": (thinking(f), {}) for f in ("reasoning_content", "reasoning", "thinking")},
    "thoughts in the text": (thinking("note", "<think>\nhm\n</think>\n\nYes"), {}),
    "thoughts before a call": (
        [*round_trip(ARGUMENTS, "")[:1], {**round_trip(ARGUMENTS, "")[1], "reasoning_content": "I think"},
         *round_trip(ARGUMENTS, "")[2:]], {"tools": TOOLS},
    ),
    "thoughts at the end": (thinking("reasoning_content")[:2], {"add_generation_prompt": False}),
    "two calls": (
        [USER, {"role": "assistant", "content": "", "tool_calls": TWO_CALLS},
         *({"role": "tool", "tool_call_id": c["id"], "name": "f", "content": "{}"} for c in TWO_CALLS)],
        {"tools": TOOLS},
    ),
    "calls without tools": (round_trip(ARGUMENTS, "x"), {}),
    "no tools": ([SYSTEM, USER], {"tools": []}),
    "documents": ([SYSTEM, USER], {"documents": DOCUMENTS}),
    "thinking off": ([SYSTEM, USER], {"enable_thinking": False, "thinking": False}),
    "thinking on": ([SYSTEM, USER], {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"}),
    "no prompt": (said("user", "assistant"), {"add_generation_prompt": False}),
    "names": ([{**m, "name": "Al"} for m in said("user", "assistant", "user")], {}),
    "blanks": ([{"role": "user", "content": " \t<b>&amp;'\"\\n\u2028\n "}], {}),
    **{" ".join(roles): (said(*roles), {}) for roles in [
        ("system", "system", "user"), ("user", "assistant", "system"), ("developer", "user"),
        ("user", "user"), ("assistant", "user"), ("user", "assistant"), ("user", "tool"),
        ("user", "critic", "user"),
    ]},
}  # fmt: skip


def repaired(messages: list[dict[str, Any]], as_text: bool) -> list[dict[str, Any]]:
    """The conversation without what transformers leaves to the caller: parts, arguments as the other kind."""
    result = copy.deepcopy(messages)
    for message in result:
        if isinstance(message.get("content"), list):
            message["content"] = "".join(part["text"] for part in message["content"])
        for call in message.get("tool_calls", ()):
            given = call["function"]["arguments"]
            if as_text == isinstance(given, dict) and given != '{"city": ':
                other = json.dumps(given, ensure_ascii=False) if as_text else json.loads(given)
                call["function"]["arguments"] = other
    return result


@pytest.mark.skipif(not TEMPLATES, reason="no ../shared/data/templates")
@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_byte_for_byte_as_transformers(path: Path) -> None:
    """The same text, or the template's own refusal; where it fails only there, a repair helped."""
    ours, theirs = template_of(path), Stock(path.read_text("utf-8"))
    n_compared = 0
    for name, (messages, variables) in ODDER.items():
        told = [theirs.told(repaired(messages, as_text), variables) for as_text in (False, True)]
        try:
            text = ours.render(messages, **variables)
        except ChatTemplateError as error:
            assert all(isinstance(t, Exception) for t in told), name
            refusals = [str(t) for t in told if isinstance(t, Refused)]
            assert not refusals or str(error) in refusals, name
            continue
        texts = [t for t in told if isinstance(t, str)]
        assert not texts or text in texts, name
        n_compared += bool(texts)
    assert n_compared > 10 or "firefunction" in path.name


def filled(word: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A conversation and tools with `word` in every field a user, a tool or a model may have written."""
    call = {
        "id": word, "type": "function",
        "function": {"name": word, "arguments": json.dumps({word: [word], "city": word})},
    }  # fmt: skip
    messages = [
        {"role": "system", "content": word, "name": word},
        {"role": "user", "content": [{"type": "text", "text": word}, {"type": "text", "text": f"a {word}"}]},
        {"role": "assistant", "content": "", "reasoning_content": word, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": word, "name": word, "content": word},
        {"role": "assistant", "content": word, "reasoning_content": f"\n{word}\n"},
        {"role": "user", "content": word, "name": word},
    ]
    described = {"type": "object", "properties": {word: {"type": "string", "description": word}}}
    tool = {"type": "function", "function": {"name": word, "description": word, "parameters": described}}
    return messages, [tool]


@pytest.mark.skipif(not TEMPLATES, reason="no ../shared/data/templates")
@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_no_field_writes_control_tokens(path: Path) -> None:
    """Every control token a template names, in every field: the prompt has those of the template alone."""
    source = path.read_text("utf-8")
    controls = sorted(
        {"<s>", *re.findall(r"<[|\uff5c/]?[\w\u2581 ]{2,30}[|\uff5c]?>|\[/?[A-Z_]{2,20}\]", source)}
    )
    tok, template = tokenizer(controls=controls), template_of(path)

    def written(word: str) -> list[int]:
        messages, tools = filled(word)
        return [i for i in template.encode(tok, messages, tools=tools) if 256 <= i < 256 + len(controls)]

    try:
        plain = written("word")
    except ChatTemplateError as error:
        assert "functions" in str(error) or "description" in str(error)
        return
    for start in range(0, len(controls), 5):
        assert written("".join(controls[start : start + 5])) == plain


def test_tools_that_are_none() -> None:
    """Undefined where a template asks for that, None where it asks for that."""
    assert ChatTemplate("{{ tools is defined }}{% for t in tools %}{% endfor %}").render([USER]) == "False"
    assert ChatTemplate("{{ 'x' if tools is not none else 'none' }}").render([USER]) == "none"
    defined = "{% if not tools is defined %}{% set tools = none %}{% endif %}{{ tools is none }}"
    assert ChatTemplate(defined).render([USER]) == "True"


def test_what_is_undefined_has_no_json() -> None:
    with pytest.raises(ChatTemplateError, match="no JSON form"):
        ChatTemplate("{{ nothing | tojson }}").render([USER])


def test_generation_is_a_scope() -> None:
    source = "{% set a = 1 %}{% generation %}{% set a = 2 %}{{ a }}{% endgeneration %}{{ a }}"
    assert ChatTemplate(source).render([USER]) == "21" == Stock(source).render([USER], {})


@pytest.mark.parametrize("arguments", ['{"city": ', "null", "[1]", ""])
def test_failures_over_broken_arguments_name_the_message(arguments: str) -> None:
    source = "{% for k, v in messages[1].tool_calls[0].function.arguments | items %}{{ k }}{% endfor %}"
    with pytest.raises(ChatTemplateError, match=r"messages\[1\] are no JSON object"):
        ChatTemplate(source).render(round_trip(arguments))
    refuse = ChatTemplate("{{ raise_exception('Mine: ' + messages[1].tool_calls[0].function.arguments) }}")
    with pytest.raises(ChatTemplateError) as caught:
        refuse.render(round_trip(arguments))
    assert str(caught.value) == f"Mine: {arguments}" and caught.value.http_status == 400


@pytest.mark.skipif(not TEMPLATES, reason="no ../shared/data/templates")
@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_arguments_as_object_or_text_are_the_same(path: Path) -> None:
    template = template_of(path)
    if refusal(path, "round trip"):
        return
    as_text = template.render(round_trip(json.dumps(ARGUMENTS, ensure_ascii=False)), tools=TOOLS)
    assert template.render(round_trip(ARGUMENTS), tools=TOOLS) == as_text
    assert "'city'" not in as_text.replace(str(TOOLS), "").replace(str(TOOLS[0]), "")  # no Python in it


def test_arguments_print_as_json() -> None:
    source = (
        "{% set a = messages[0].tool_calls[0].function.arguments %}"
        "{{ a }}|{{ a ~ '' }}|{{ '' + a + '' }}|{{ a | string }}|{{ a | tojson }}|"
        "{{ a is mapping }}|{{ a.city }}|{{ a | length }}"
    )
    template = ChatTemplate(source)
    json_text = '{"city": "Köln", "days": 2}'
    want = "|".join([json_text] * 5 + ["True", "Köln", "2"])
    assert template.render(round_trip(ARGUMENTS)[1:2]) == want
    assert template.render(round_trip(json_text)[1:2]) == want
    spaced = '{ "city" : "Köln" , "days":2}'  # text given is printed as it was
    assert template.render(round_trip(spaced)[1:2]).startswith(
        f"{spaced}|{spaced}|{spaced}|{spaced}|{json_text}|"
    )


def test_tools_show_their_functions_fields() -> None:
    source = (
        "{{ tools[0].name }} {{ tools[0]['description'] }} {{ tools[0].x is defined }} {{ tools | tojson }}"
    )
    want = f"get_weather The weather <now> False {json.dumps(TOOLS)}"
    assert ChatTemplate(source).render([USER], tools=TOOLS) == want


def test_mistrals_short_ids() -> None:
    source = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}"
        "{{ raise_exception('nine!') }}{% endif %}{{ c.id }} {% endfor %}{{ m.tool_call_id }}{% endfor %}"
    )
    first, second = ChatTemplate(source).render(round_trip(ARGUMENTS)).split()
    assert first == second and len(first) == 9 and first.isalnum()
    kept = json.loads(json.dumps(round_trip(ARGUMENTS)).replace("call_1234567890", "abcDEF123"))
    assert ChatTemplate(source).render(kept).split() == ["abcDEF123"] * 2
    other = ChatTemplate(source.replace("!= 9", "!= 15"))
    assert other.render(round_trip(ARGUMENTS)).split() == ["call_1234567890"] * 2


def test_the_clock_is_given() -> None:
    dated = [path for path in TEMPLATES if "strftime_now" in path.read_text("utf-8")]
    for path in dated:
        assert "2024" in template_of(path).render([USER])
