"""Published templates with every kind of conversation: as Jinja2 alone has it, or repaired where it fails."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from jinja2.ext import Extension
from jinja2.sandbox import SandboxedEnvironment

from pyllamacpp.errors import ChatTemplateError
from pyllamacpp.text.chat import ChatTemplate

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


def stock(source: str, messages: Any, tools: Any) -> str:
    """What transformers' apply_chat_template does."""

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> None:
        raise ValueError(message)

    environment = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.filters["tojson"] = lambda x, ensure_ascii=False, **more: json.dumps(
        x, ensure_ascii=ensure_ascii, **more
    )
    environment.globals |= {"raise_exception": refuse, "strftime_now": NOW.strftime}
    variables = {"messages": messages, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"}
    if tools is not None:
        variables["tools"] = tools
    return environment.from_string(source).render(variables)


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
    try:
        expected = stock(path.read_text("utf-8"), messages, tools)
    except Exception:  # repaired: nothing to compare with
        return
    if name in ("plain", "system", "tools", "system and tools", "round trip with words"):
        assert text == expected


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
