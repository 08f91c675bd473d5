"""Chat templates: messages -> prompt, with the conventions of Hugging Face's `apply_chat_template`.

A template comes out of a model file, so it runs in Jinja2's sandbox; what users write comes from anywhere, so
it never becomes a control token (`ChatTemplate.encode`).
"""

from __future__ import annotations

import hashlib
import json
import numbers
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import ChatTemplateError, ConversationRefusedError, ParameterError
from .extent import refuse_beyond
from .reasoning import FIELDS, ReasoningFormat
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    import jinja2

    from .sandbox import Program

_KEY = "tokenizer.chat_template"
_PRIVATE_USE = range(0xE000, 0xF8FF)  # of the Basic Multilingual Plane
_PRIVATE = re.compile(r"[\ue000-\uf8fe]|\\u(?:e|E|f|F)[0-9A-Fa-f]{3}")  # or as JSON writes them
_MARKER = "pyllamacpp_marker"  # the variable that holds the `_Marker` while a template runs
_LONGEST_DATE = 200  # characters of a date's format
_DEEPEST = 64  # levels of nesting in messages
_WANTS_SHORT_IDS = re.compile(r"id\s*\|\s*length\s*!=\s*9\b")
_ASKS_FOR_NONE = re.compile(r"\btools\s+is\s+(?:not\s+)?none\b")
_TAKEN = frozenset(["self", "messages", "tools", "tokenizer", "special_in_content", "n_ctx"])  # no caller's
# Templates make control tokens of roles ("<|user|>"): of these and of those they name themselves.
_ROLES = frozenset(["system", "developer", "user", "assistant", "tool", "function"])


def missing_template() -> ChatTemplateError:
    """The error for a model without a template where one is needed."""
    return ChatTemplateError(
        "the model file has no chat template",
        "Give one with `chat_template=` or `--chat-template FILE`, or complete plain text instead (`--raw`).",
    )


def template_variables(given: Any) -> dict[str, Any]:
    """A caller's variables for a template, by their names.

    Errors: ParameterError for what is no mapping of names, and for a name that is taken.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise ParameterError(f"chat_template_kwargs must map names to values, not {given!r}")
    for name in given:
        if name in _TAKEN:
            raise ParameterError(f"chat_template_kwargs: {name} is not the caller's to give")
    return dict(given)


class ChatTemplate:
    """One template, compiled when first used. Immutable once made; safe to share between threads.

    source: Jinja2 text
    bos_token, eos_token: what the template's variables of these names hold
    clock: what `strftime_now` reads

    Errors: ChatTemplateError with the line, from `check`, `render` and `encode`, if it does not parse.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str = "",
        eos_token: str = "",
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._clock = clock
        self._known: tuple[Tokenizer, _Controls] | None = None

    @cached_property
    def _program(self) -> Program:
        return _compile(self.source, self._clock)

    @cached_property
    def reasoning(self) -> ReasoningFormat | None:
        """How the template marks thoughts; None where it knows none. Errors: as `check`."""
        return ReasoningFormat.of(self)

    def check(self) -> None:
        """Compile the template now."""
        _ = self._program

    @classmethod
    def from_metadata(
        cls, metadata: Mapping[str, Any], tokenizer: Tokenizer, *, override: str | None = None
    ) -> ChatTemplate | None:
        """The file's template, or None if it has none.

        override: the text of another template, or the name of one of the file's own
        (`tokenizer.chat_template.NAME`)

        Errors: ChatTemplateError if `override` is neither or does not parse.
        """
        source = metadata.get(_KEY)
        if override is not None:
            source = metadata.get(f"{_KEY}.{override}")
            if source is None and ("{{" in override or "{%" in override):
                source = override
            if source is None:
                named = sorted(key[len(_KEY) + 1 :] for key in metadata if key.startswith(_KEY + "."))
                raise ChatTemplateError(
                    f"chat template {override[:60]!r} is neither a Jinja template nor one the file names",
                    f"The file names: {', '.join(named) or 'none'}.",
                )
        if source is None:
            return None
        if not isinstance(source, str):
            raise ChatTemplateError(f"{_KEY} in the file is {type(source).__name__}, not text")
        bos, eos = ("" if i is None else tokenizer.piece(i) for i in (tokenizer.bos_id, tokenizer.eos_id))
        template = cls(source, bos_token=bos, eos_token=eos)
        if override is not None:  # the caller's own; a faulty one in the file matters once somebody chats
            template.check()
        return template

    def render(
        self,
        messages: Iterable[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> str:
        """The prompt as text.

        messages: OpenAI's shape; a list of text parts is joined, content None counts as "", thoughts are
        found under all of their names (`reasoning_content`, `thinking`, `reasoning`), tool-call arguments are
        handed to the template as an object that prints as JSON, whether given as one or as text
        tools: OpenAI's shape; when None undefined in the template, or none if it asks for that
        kwargs: further variables of the template (`enable_thinking`, ...)

        Errors: ChatTemplateError, with the template's own sentence where it refuses the conversation;
        ParameterError for messages without a role, of other values than JSON has, or none at all.
        """
        variables = {**kwargs, "add_generation_prompt": add_generation_prompt, "tools": tools}
        return self._run(self._prepare(messages), _plain(variables))

    def encode(
        self,
        tokenizer: Tokenizer,
        messages: Iterable[Mapping[str, Any]],
        *,
        special_in_content: bool = False,
        n_ctx: int | None = None,
        **render_kwargs: Any,
    ) -> list[int]:
        """The prompt as token ids, with exactly one BOS if the template writes it or the model expects it.

        The template's own text is read with control tokens, the strings of `messages` and `render_kwargs`
        without: a user who writes "<|im_end|>" has written ten characters of text, be it in one string or in
        several that the template joins.

        special_in_content: let control tokens in those strings count as such
        n_ctx: do not tokenize all of a prompt far longer than this

        Errors: as `render`; ParameterError for a lone surrogate; ContextOverflowError.
        """
        if special_in_content:
            return tokenizer.with_bos(tokenizer.encode(self.render(messages, **render_kwargs), special=True))
        prepared = self._prepare(messages)  # before marking: joining parts may complete a text
        options: dict[str, Any] = _plain(render_kwargs)
        marker = _Marker(self._controls(tokenizer), [prepared, options], self.source)
        marked = {name: marker.mark(option) for name, option in options.items()}
        variables = {"add_generation_prompt": True, **marked, _MARKER: marker}
        try:
            text = self._run(marker.mark(prepared), variables)
        except ChatTemplateError as error:  # which may quote what is marked
            raise type(error)(marker.unmark(str(error.args[0])), error.hint) from error
        ids: list[int] = []
        for piece in tokenizer.split_special(marker.unescape(text)):
            if isinstance(piece, int):
                ids.append(piece)
                continue
            plain = marker.unmark(piece)
            if n_ctx is not None:
                refuse_beyond(tokenizer, plain, n_ctx, special=False, before=len(ids))
            ids += tokenizer.encode(plain, special=False)
        return tokenizer.with_bos(ids)

    def _controls(self, tokenizer: Tokenizer) -> _Controls:
        """Kept for the tokenizer that asked last: as a rule there is one."""
        known = self._known
        if known is None or known[0] is not tokenizer:
            known = self._known = (tokenizer, _Controls(tokenizer.control_texts, self._program.words))
        return known[1]

    def _prepare(self, messages: Iterable[Mapping[str, Any]]) -> list[Any]:
        prepared = _prepare(messages)
        if _WANTS_SHORT_IDS.search(self.source):
            _shorten_ids(prepared)
        return prepared

    def _run(self, messages: list[Any], variables: dict[str, Any]) -> str:
        tools = variables.get("tools")
        if isinstance(tools, list):
            variables["tools"] = [_Tool(tool) if isinstance(tool, dict) else tool for tool in tools]
        elif tools is None:
            variables.pop("tools", None)
            if _ASKS_FOR_NONE.search(self.source):
                variables["tools"] = None
        try:
            return self._program.render({**self._tokens, **variables, "messages": messages})
        except ChatTemplateError as error:
            message = str(error.args[0])
            hint = _broken_arguments(messages) if message.startswith("the chat template failed") else None
            if hint is None:
                raise
            raise ChatTemplateError(message, hint) from error


class _Controls:
    """What marking has to know of a tokenizer's control tokens and of the words a template looks for."""

    def __init__(self, texts: Collection[str], words: frozenset[str]) -> None:
        """texts: of the control tokens, quick to ask for membership."""
        self.joined = "\n".join(["", *texts, ""])
        self.single = [text for text in texts if len(text) == 1]
        self._longest = max(map(len, texts), default=0)
        first = {text[0] for text in texts if len(text) > 1}
        self._last = {text[-1] for text in texts}
        self.begins = re.compile(f"[{re.escape(''.join(sorted(first)))}]") if first else None
        self._words = words | _ROLES
        # Where these stand no control token can begin: "<think>", not "<|".
        self.looked_for = tuple(
            word for word in words
            if word[:1] in first and f"\n{word}" not in self.joined
            and not any(word[:n] in texts for n in range(1, len(word)))
        )  # fmt: skip

    def could_end_with(self, text: str) -> bool:
        """Whether a template that writes the beginning of a control token before `text` may complete it."""
        if not text or text in self._words:
            return False
        if len(text) < self._longest and text in self.joined:
            return True
        head = text[: self._longest]
        ends = (i + 1 for i, character in enumerate(head) if character in self._last)
        return any(f"{head[:end]}\n" in self.joined for end in ends)


class _Marker:
    """Keeps users' strings from being part of a control token in the rendered prompt.

    A mark, a private-use character that occurs nowhere else, is put into them before rendering and taken out
    after the prompt was cut at control tokens: behind each character that begins a control token, be the rest
    of its text there or yet to come, and before a string that could be the rest of one. So a template may
    trim, slice, join and move content as it likes. Left alone are the words the template itself looks for,
    such as "</think>" or a field's name, and the usual roles.
    """

    def __init__(self, controls: _Controls, values: Any, source: str) -> None:
        strings: list[str] = []
        _collect(values, strings)
        self._controls = controls
        used: set[int] = set()
        for text in (source, controls.joined, *strings):
            used.update(
                ord(found[-1]) if len(found) == 1 else int(found[2:], 16) for found in _PRIVATE.findall(text)
            )
        free = (chr(c) for c in _PRIVATE_USE if c not in used)
        mark = next(free, None)
        if mark is None:
            raise ParameterError(
                "the messages use every private-use character: none is left to mark text with"
            )
        self._mark = mark
        # A control token of one character cannot be broken: another mark stands in for it.
        single = [text for text in controls.single if any(text in string for string in strings)]
        marks = "".join(mark for mark, _ in zip(free, single, strict=False))
        self._stand_in = str.maketrans("".join(single), marks)
        self._restored = str.maketrans(marks, "".join(single), self._mark)

    def mark(self, value: Any) -> Any:
        """A copy of `value` with every string in it marked, keys included."""
        if isinstance(value, str):
            return self._mark_text(value)
        if isinstance(value, _Arguments):
            return value.marked(self.mark)
        if isinstance(value, Mapping):
            return {self.mark(key): self.mark(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.mark(item) for item in value]
        return value

    def unescape(self, text: str) -> str:
        """Marks that a template's `tojson(ensure_ascii=True)` has escaped, as characters again."""
        for mark in self._restored:
            text = text.replace(f"\\u{mark:04x}", chr(mark))
        return text

    def unmark(self, text: str) -> str:
        """`text` as the user wrote it."""
        return text.translate(self._restored)

    def _mark_text(self, text: str) -> str:
        marked = text.translate(self._stand_in) if self._stand_in else text
        if self._controls.begins is not None:
            marked = self._controls.begins.sub(self._break, marked)
        if self._controls.could_end_with(text.strip()):
            at = len(text) - len(text.lstrip())
            marked = marked[:at] + self._mark + marked[at:]
        return marked

    def _break(self, found: re.Match[str]) -> str:
        looked_for = found.string.startswith(self._controls.looked_for, found.start())
        return found[0] if looked_for else found[0] + self._mark


def _collect(value: Any, into: list[str]) -> None:
    if isinstance(value, str):
        into.append(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _collect(key, into)
            _collect(item, into)
    elif isinstance(value, list):
        for item in value:
            _collect(item, into)


def _prepare(messages: Iterable[Mapping[str, Any]]) -> list[Any]:
    """A copy of the messages in the shape templates expect."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise ParameterError('messages must be a list of {"role": ..., "content": ...}')
    result = [_prepare_one(f"messages[{i}]", message) for i, message in enumerate(messages)]
    if not result:
        raise ParameterError("messages is empty", 'Give at least one {"role": "user", "content": ...}.')
    return result


def _prepare_one(name: str, message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise ParameterError(f"{name} is {type(message).__name__}, not a mapping with role and content")
    prepared: dict[str, Any] = _plain(message)
    role = prepared.get("role")
    if not isinstance(role, str) or not role:
        raise ParameterError(f"{name} has no role", "Usual roles are system, user, assistant and tool.")
    calls = prepared.get("tool_calls")
    if calls and "content" not in prepared:  # optional beside calls
        prepared["content"] = None
    if "content" in prepared:
        prepared["content"] = _flatten(name, prepared["content"])
    thoughts = next((prepared[field] for field in FIELDS if prepared.get(field) is not None), None)
    if thoughts is not None:  # gpt-oss reads `thinking`, most others the first name; those given stay
        prepared = {**dict.fromkeys(FIELDS, thoughts), **prepared, FIELDS[0]: thoughts}
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function", call) if isinstance(call, dict) else None
        if isinstance(function, dict) and "arguments" in function:
            function["arguments"] = _as_arguments(function["arguments"])
    return prepared


def _shorten_ids(messages: list[Any]) -> None:
    """Ids of calls as Mistral's templates insist on: nine letters or digits, equal in call and result."""
    for message in messages:
        calls = message.get("tool_calls")
        ids = [(call, "id") for call in calls or () if isinstance(call, dict)]
        for holder, key in [(message, "tool_call_id"), *ids]:
            given = holder.get(key)
            if isinstance(given, str) and not re.fullmatch("[A-Za-z0-9]{9}", given):
                holder[key] = hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()[:9]


def _plain(value: Any, depth: int = 0) -> Any:
    """A copy of what JSON can hold. Strings are plain ones: an Enum's member would be printed by its name."""
    if depth > _DEEPEST:
        raise ParameterError(f"the messages are nested deeper than {_DEEPEST} levels")
    if isinstance(value, str):
        return str.__str__(value)
    if value is None or isinstance(value, numbers.Number):
        return value
    if isinstance(value, Mapping):
        return {_plain(key, depth + 1): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1) for item in value]
    raise ParameterError(
        f"the messages hold a value of type {type(value).__name__}",
        "Templates are given what JSON can hold: text, numbers, lists and mappings.",
    )


def _flatten(name: str, content: Any) -> Any:
    """Content as one string where it is None or a list of text parts."""
    if content is None:
        return ""
    if isinstance(content, numbers.Number):
        raise ParameterError(f"the content of {name} is {content!r}, not text")
    if not isinstance(content, list):
        return content
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if kind != "text" or not isinstance(part.get("text"), str):
            raise ChatTemplateError(
                f"{name} has a content part of type {kind!r}",
                "Only text parts are supported: {'type': 'text', ...}.",
            )
        texts.append(part["text"])
    return "".join(texts)


def _broken_arguments(messages: list[Any]) -> str | None:
    """What to say of a failure if a call's arguments may be the reason: text that is no JSON object."""
    for i, message in enumerate(messages):
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function", call) if isinstance(call, dict) else None
            if isinstance(function, dict) and isinstance(function.get("arguments"), str):
                return f"The arguments of a call in messages[{i}] are no JSON object: mend or drop it."
    return None


class _Tool(dict[str, Any]):
    """A tool as OpenAI has it, whose function's fields some templates expect to be its own."""

    def __missing__(self, key: str) -> Any:
        function = self.get("function")
        if not isinstance(function, Mapping):
            raise KeyError(key)
        return function[key]


class _Arguments(dict[str, Any]):
    """A call's arguments: an object to templates that look into it, JSON text to those that print it."""

    def __init__(self, values: Mapping[str, Any], text: str) -> None:
        super().__init__(values)
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __add__(self, other: str) -> str:
        return self._text + other

    def __radd__(self, other: str) -> str:
        return other + self._text

    def marked(self, mark: Callable[[Any], Any]) -> _Arguments:
        return _Arguments(mark(dict(self)), mark(self._text))


def _as_arguments(given: Any) -> Any:
    """Arguments given as an object or as its JSON text; other text stays as it is."""
    if isinstance(given, dict):
        return _Arguments(given, json.dumps(given, ensure_ascii=False))
    if not isinstance(given, str):
        return given
    try:
        value = json.loads(given)
    except (ValueError, RecursionError):
        return given
    return _Arguments(_plain(value), given) if isinstance(value, dict) else given


def _compile(source: str, clock: Callable[[], datetime]) -> Program:
    """With what Hugging Face offers templates. Jinja2 is imported late: it is needed only for chats."""
    from jinja2 import pass_context

    from .sandbox import Program

    def raise_exception(message: str) -> None:
        raise ConversationRefusedError(str(message))

    def strftime_now(form: str) -> str:
        if len(form) > _LONGEST_DATE:
            raise ChatTemplateError(f"the chat template formats a date with over {_LONGEST_DATE} characters")
        return clock().strftime(form)

    return Program(
        source,
        functions={
            "raise_exception": raise_exception,
            "strftime_now": strftime_now,
        },
        filters={"tojson": _to_json, "from_json": pass_context(_from_json)},
    )


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes; lazy sequences (`map`, `select`) as arrays."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        default=_listed,
    )


def _from_json(context: jinja2.runtime.Context, text: str) -> Any:
    """The value of JSON text, marked as users' strings are: an escape may have hidden a control token."""
    marker = context.get(_MARKER)
    return marker.mark(json.loads(marker.unmark(text))) if marker else json.loads(text)


def _listed(value: Any) -> list[Any]:
    if isinstance(value, Iterator):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
