"""Conversations that a template refuses, written so that it may accept them.

Some templates want user and assistant to alternate strictly, or know no system message. What changes is where
a text stands, never the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ..errors import ChatTemplateError, ConversationRefusedError

Message = dict[str, Any]
Result = TypeVar("Result")

MERGED = "neighbouring messages of one role were joined"
FOLDED = "the system message was put before the first question"


def merged(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Neighbours of the same role become one message, a blank line between them.

    Only of user, assistant and system, and none that calls a tool or has a name.
    """
    result: list[Message] = []
    for message in messages:
        last = result[-1] if result else None
        if last is not None and last["role"] == message["role"] and _is_plain(last) and _is_plain(message):
            last["content"] = _joined(last["content"], message["content"])
        else:
            result.append(dict(message))
    return result


def folded(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The system messages at the beginning come before the first user message, in it."""
    n = next((i for i, message in enumerate(messages) if message["role"] != "system"), len(messages))
    system, rest = messages[:n], [dict(message) for message in messages[n:]]
    if not all(_is_plain(message) for message in system):
        return [dict(message) for message in messages]
    first = next((message for message in rest if message["role"] == "user"), None)
    if first is None:
        return [{**message, "role": "user"} for message in system] + rest
    for message in reversed(system):
        first["content"] = _joined(message["content"], first.get("content"))
    return rest


def repaired(
    use: Callable[[Sequence[Mapping[str, Any]]], Result], messages: Sequence[Mapping[str, Any]]
) -> tuple[Result, list[str]]:
    """use(messages), or of the mildest repair that the template accepts; and what was done, in words.

    Errors: ConversationRefusedError, the template's own sentence about the conversation as it is, where no
    repair helps; any other of use, at once: a template that fails or runs too long is not tried again.
    """
    try:
        return use(messages), []
    except ConversationRefusedError as error:
        for changed, done in _repairs(messages):
            try:
                return use(changed), done
            except ChatTemplateError:
                continue
        raise error


def _repairs(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[list[Message], list[str]]]:
    """The changes that change something, the mildest first."""
    joined, put, both = merged(messages), folded(messages), merged(folded(messages))
    if joined != messages:
        yield joined, [MERGED]
    if put != messages:
        yield put, [FOLDED]
        if both != put:
            yield both, [FOLDED, MERGED]


def _is_plain(message: Mapping[str, Any]) -> bool:
    return message["role"] in ("user", "assistant", "system") and not (
        message.get("tool_calls") or message.get("name") or message.get("tool_call_id")
    )


def _joined(one: Any, other: Any) -> Any:
    """Two contents: texts, lists of parts, or None."""
    if isinstance(one, list) or isinstance(other, list):
        return _parts(one) + _parts(other)
    return "\n\n".join(text for text in (one, other) if text)


def _parts(content: Any) -> list[Any]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []
