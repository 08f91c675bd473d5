"""Chat templates: messages -> prompt, with the conventions of Hugging Face's `apply_chat_template`.

A template comes out of a model file, so it runs in Jinja2's sandbox; what users write comes from anywhere, so
it never becomes a control token (`ChatTemplate.encode`).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..errors import ChatTemplateError, ParameterError
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    import jinja2

_KEY = "tokenizer.chat_template"
_PRIVATE_USE = range(0xE000, 0xF8FF)  # of the Basic Multilingual Plane
_MARK = "pyllamacpp_mark"  # the variable that holds `_Marker.mark` while a template runs


def missing_template() -> ChatTemplateError:
    """The error for a model without a template where one is needed."""
    return ChatTemplateError(
        "the model file has no chat template",
        "Give one with `chat_template=` or `--chat-template FILE`, or complete plain text instead (`--raw`).",
    )


class ChatTemplate:
    """One compiled template. Immutable once made; safe to share between threads.

    source: Jinja2 text
    bos_token, eos_token: what the template's variables of these names hold
    clock: what `strftime_now` reads

    Errors: ChatTemplateError with the line if the source does not parse.
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
        self._template = _compile(source, clock)

    @classmethod
    def from_metadata(
        cls, metadata: Mapping[str, Any], tokenizer: Tokenizer, *, override: str | None = None
    ) -> ChatTemplate | None:
        """The file's template, or None if it has none.

        override: the text of another template, or the name of one of the file's own
        (`tokenizer.chat_template.NAME`)

        Errors: ChatTemplateError if it does not parse, or if `override` is neither.
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
        return cls(source, bos_token=bos, eos_token=eos)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> str:
        """The prompt as text.

        messages: OpenAI's shape; a list of text parts is joined, content None counts as "", tool-call
        arguments given as JSON text are handed to the template as an object
        tools: undefined in the template when None
        kwargs: further variables of the template (`enable_thinking`, ...)

        Errors: ChatTemplateError, with the template's own sentence where it refuses the conversation.
        """
        variables = copy.deepcopy({**kwargs, "add_generation_prompt": add_generation_prompt, "tools": tools})
        return self._run(_prepare(messages), variables)

    def encode(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Mapping[str, Any]],
        *,
        special_in_content: bool = False,
        **render_kwargs: Any,
    ) -> list[int]:
        """The prompt as token ids, with exactly one BOS if the template writes it or the model expects it.

        The template's own text is read with control tokens, the strings of `messages` and `render_kwargs`
        without: a user who writes "<|im_end|>" has written ten characters of text.

        special_in_content: let control tokens in those strings count as such

        Errors: as `render`; ParameterError for a lone surrogate.
        """
        if special_in_content:
            return tokenizer.with_bos(tokenizer.encode(self.render(messages, **render_kwargs), special=True))
        prepared = _prepare(messages)  # before marking: joining parts or reading JSON may complete a text
        marker = _Marker(tokenizer, [prepared, render_kwargs], self.source)
        variables = {"add_generation_prompt": True, **marker.mark(render_kwargs), _MARK: marker.mark}
        text = self._run(marker.mark(prepared), variables)
        ids: list[int] = []
        for piece in tokenizer.split_special(marker.unescape(text)):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                ids += tokenizer.encode(marker.unmark(piece), special=False)
        return tokenizer.with_bos(ids)

    def _run(self, messages: list[Any], variables: dict[str, Any]) -> str:
        if variables.get("tools") is None:
            variables.pop("tools", None)
        try:
            return self._template.render(messages=messages, **{**self._tokens, **variables})
        except ChatTemplateError:
            raise
        except Exception as error:  # whatever a stranger's program may raise
            raise ChatTemplateError(
                f"the chat template failed: {type(error).__name__}: {error}",
                "Another template can be given with `chat_template=` or `--chat-template FILE`.",
            ) from error


class _Marker:
    """Keeps the texts of control tokens in users' strings from being control tokens in the rendered prompt.

    A private-use character that occurs nowhere else is put after their first character before rendering, and
    taken out after the prompt was cut at control tokens. So a template may trim, slice and move content as it
    likes.
    """

    def __init__(self, tokenizer: Tokenizer, values: Any, source: str) -> None:
        strings: list[str] = []
        _collect(values, strings)
        self._tokenizer = tokenizer
        used = "\n".join([source, *strings]).lower()
        self._free = (chr(c) for c in _PRIVATE_USE if chr(c) not in used and f"\\u{c:04x}" not in used)
        self._mark = next(self._free)
        self._restored: dict[str, str | int | None] = {self._mark: ""}
        self._stand_in: dict[str, str] = {}

    def mark(self, value: Any) -> Any:
        """A copy of `value` with every string in it marked, keys included."""
        if isinstance(value, str):
            return self._mark_text(value)
        if isinstance(value, Mapping):
            return {self.mark(key): self.mark(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.mark(item) for item in value]
        return value

    def unescape(self, text: str) -> str:
        """Marks that a template's `tojson(ensure_ascii=True)` has escaped, as characters again."""
        for mark in self._restored:
            text = text.replace(f"\\u{ord(mark):04x}", mark)
        return text

    def unmark(self, text: str) -> str:
        """`text` as the user wrote it."""
        return text.translate(str.maketrans(self._restored))

    def _mark_text(self, text: str) -> str:
        # Again until nothing is found: breaking one token's text may uncover another's that overlaps it.
        while found := list(self._tokenizer.find_control(text)):
            parts: list[str] = []
            done = 0
            for start, end, _ in found:
                parts.append(text[done:start])
                if end - start == 1:
                    parts.append(self._stand_in_for(text[start]))
                else:
                    parts += [text[start], self._mark, text[start + 1 : end]]
                done = end
            text = "".join(parts) + text[done:]
        return text

    def _stand_in_for(self, character: str) -> str:
        """A mark in place of a control token of one character, which cannot be broken."""
        if character not in self._stand_in:
            self._stand_in[character] = mark = next(self._free)
            self._restored[mark] = character
        return self._stand_in[character]


def _collect(value: Any, into: list[str]) -> None:
    if isinstance(value, str):
        into.append(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _collect(key, into)
            _collect(item, into)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(item, into)


def _prepare(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """A deep copy of the messages in the shape templates expect."""
    result: list[Any] = []
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise ParameterError(
                f"messages[{i}] is {type(message).__name__}, not a mapping with role and content"
            )
        prepared = copy.deepcopy(dict(message))
        if "content" in prepared:
            prepared["content"] = _flatten(prepared["content"])
        calls = prepared.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function", call) if isinstance(call, dict) else None
            if isinstance(function, dict) and isinstance(function.get("arguments"), str):
                function["arguments"] = _object_or_text(function["arguments"])
        result.append(prepared)
    return result


def _flatten(content: Any) -> Any:
    """Content as one string where it is None or a list of text parts."""
    if content is None:
        return ""
    if not isinstance(content, list):
        return content
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if kind != "text" or not isinstance(part.get("text"), str):
            raise ChatTemplateError(
                f"a message has a content part of type {kind!r}",
                "Only text parts are supported: {'type': 'text', ...}.",
            )
        texts.append(part["text"])
    return "".join(texts)


def _object_or_text(arguments: str) -> Any:
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments


def _compile(source: str, clock: Callable[[], datetime]) -> jinja2.Template:
    from jinja2 import TemplateError, TemplateSyntaxError

    environment = _environment(clock)
    try:
        return environment.from_string(source)
    except TemplateSyntaxError as error:
        raise ChatTemplateError(
            f"the chat template does not parse: line {error.lineno}: {error.message}"
        ) from error
    except (TemplateError, RecursionError, SyntaxError, ValueError) as error:
        raise ChatTemplateError(f"the chat template does not compile: {error}") from error


def _environment(clock: Callable[[], datetime]) -> jinja2.Environment:
    """A sandbox with what Hugging Face offers templates. Imported late: Jinja2 is needed only for chats."""
    from jinja2 import nodes, pass_context
    from jinja2.exceptions import SecurityError
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import SandboxedEnvironment

    class Sandbox(SandboxedEnvironment):
        """Jinja2's sandbox, where an unsafe attribute is an error rather than an empty string."""

        def unsafe_undefined(self, obj: Any, attribute: str) -> jinja2.Undefined:
            raise SecurityError(
                f"access to attribute {attribute!r} of a {type(obj).__name__} object is unsafe"
            )

    class Generation(Extension):
        """`{% generation %} ... {% endgeneration %}` marks answers for training; here it is its content."""

        tags = {"generation"}  # noqa: RUF012 - declared so by Jinja2

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise ChatTemplateError(str(message))

    environment = Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    for name in ("lipsum", "cycler", "joiner"):
        del environment.globals[name]
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: clock().strftime(form)
    environment.filters["tojson"] = _to_json
    environment.filters["from_json"] = pass_context(_from_json)
    return environment


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
    value = json.loads(text)
    mark = context.get(_MARK)
    return mark(value) if mark else value


def _listed(value: Any) -> list[Any]:
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
