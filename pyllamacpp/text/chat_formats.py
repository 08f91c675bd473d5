"""Well-known chat formats by name, for files without a template or with a wrong one.

One table of what their authors published, turned into Jinja templates: they run like those of files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..errors import ParameterError
from .chat import ChatTemplate
from .tokenizer import Tokenizer


class ChatFormat(NamedTuple):
    """A template and the strings that end an answer besides the model's own tokens."""

    template: ChatTemplate
    stop: tuple[str, ...] = ()

    def stops(self, asked: Any) -> Any:
        """With those that the caller asked for, unchecked."""
        several = () if asked is None else (asked,) if isinstance(asked, str) else asked
        return [*several, *self.stop] if self.stop and isinstance(several, Iterable) else several


class _Row(NamedTuple):
    """How a format writes each message; %s is its text, BOS and EOS are the model's tokens."""

    user: str
    assistant: str
    answer: str  # what the model's answer follows
    system: str = ""
    inside: bool = False  # the system message is written into the user's next one, where %s stands
    default: str = ""  # system message of a conversation that has none
    before: str = ""
    stop: tuple[str, ...] = ()


_CHATML = _Row(
    system="<|im_start|>system\n%s<|im_end|>\n",
    user="<|im_start|>user\n%s<|im_end|>\n",
    assistant="<|im_start|>assistant\n%s<|im_end|>\n",
    answer="<|im_start|>assistant\n",
    stop=("<|im_end|>",),
)

_ROWS: dict[str, _Row] = {
    "chatml": _CHATML,
    "qwen": _CHATML._replace(default="You are a helpful assistant.", stop=("<|im_end|>", "<|endoftext|>")),
    "llama-2": _Row(
        system="<<SYS>>\n%s\n<</SYS>>\n\n",
        inside=True,
        user="BOS[INST] %s [/INST]",
        assistant=" %s EOS",
        answer="",
    ),
    "llama-3": _Row(
        system="<|start_header_id|>system<|end_header_id|>\n\n%s<|eot_id|>",
        user="<|start_header_id|>user<|end_header_id|>\n\n%s<|eot_id|>",
        assistant="<|start_header_id|>assistant<|end_header_id|>\n\n%s<|eot_id|>",
        answer="<|start_header_id|>assistant<|end_header_id|>\n\n",
        stop=("<|eot_id|>",),
    ),
    "mistral-instruct": _Row(
        system="%s\n\n",
        inside=True,
        user="[INST] %s [/INST]",
        assistant="%sEOS",
        answer="",
    ),
    "gemma": _Row(
        system="%s\n\n",
        inside=True,
        user="<start_of_turn>user\n%s<end_of_turn>\n",
        assistant="<start_of_turn>model\n%s<end_of_turn>\n",
        answer="<start_of_turn>model\n",
        stop=("<end_of_turn>",),
    ),
    "zephyr": _Row(
        system="<|system|>\n%sEOS\n",
        user="<|user|>\n%sEOS\n",
        assistant="<|assistant|>\n%sEOS\n",
        answer="<|assistant|>\n",
    ),
    "alpaca": _Row(
        system="%s\n\n",
        default="Below is an instruction that describes a task. "
        "Write a response that appropriately completes the request.",
        user="### Instruction:\n%s\n\n",
        assistant="### Response:\n%s\n\n",
        answer="### Response:\n",
        stop=("### Instruction:",),
    ),
    "vicuna": _Row(
        system="%s ",
        default="A chat between a curious user and an artificial intelligence assistant. "
        "The assistant gives helpful, detailed, and polite answers to the user's questions.",
        user="USER: %s ",
        assistant="ASSISTANT: %sEOS",
        answer="ASSISTANT:",
        stop=("USER:",),
    ),
    "oasst_llama": _Row(
        system="[INST] <<SYS>>\n%s\n<</SYS>>\n\n",
        user="<|prompter|>%sEOS",
        assistant="<|assistant|>%sEOS",
        answer="<|assistant|>",
    ),
    "baichuan": _Row(
        system="%s", user="<reserved_102>%s", assistant="<reserved_103>%s", answer="<reserved_103>"
    ),
    "baichuan-2": _Row(
        system="%s", user="<reserved_106>%s", assistant="<reserved_107>%s", answer="<reserved_107>"
    ),
    "openbuddy": _Row(
        system="%s\n\n\n",
        user="User: %s\n",
        assistant="Assistant: %s\n",
        answer="Assistant:",
        stop=("User:",),
    ),
    "redpajama-incite": _Row(
        system="%s\n", user="<human>: %s\n", assistant="<bot>: %s\n", answer="<bot>:", stop=("<human>",)
    ),
    "snoozy": _Row(
        system="### Instruction:\n%s\n",
        default="The prompt below is a question to answer, a task to complete, or a conversation to respond "
        "to; decide which and write an appropriate response.",
        user="### Prompt: %s\n",
        assistant="### Response: %s\n",
        answer="### Response:",
        stop=("###",),
    ),
    "phind": _Row(
        system="### System Prompt\n%s\n\n",
        default="You are an intelligent programming assistant.",
        user="### User Message\n%s\n\n",
        assistant="### Assistant\n%s\n\n",
        answer="### Assistant\n",
        stop=("### User Message",),
    ),
    "intel": _Row(
        system="### System:\n%s\n",
        user="### User:\n%s\n",
        assistant="### Assistant:\n%s\n",
        answer="### Assistant:\n",
        stop=("### User:",),
    ),
    "open-orca": _Row(
        system="%s<|end_of_turn|>",
        user="User: %s<|end_of_turn|>",
        assistant="Assistant: %s<|end_of_turn|>",
        answer="Assistant:",
        stop=("<|end_of_turn|>", "User:"),
    ),
    "openchat": _Row(
        system="%s<|end_of_turn|>",
        user="GPT4 Correct User: %s<|end_of_turn|>",
        assistant="GPT4 Correct Assistant: %s<|end_of_turn|>",
        answer="GPT4 Correct Assistant:",
        stop=("<|end_of_turn|>",),
    ),
    "mistrallite": _Row(
        system="<|system|>%sEOS",
        user="<|prompter|>%sEOS",
        assistant="<|assistant|>%sEOS",
        answer="<|assistant|>",
    ),
    "pygmalion": _Row(
        system="<|system|>%s",
        user="<|user|>%s",
        assistant="<|model|>%s",
        answer="<|model|>",
        stop=("<|user|>",),
    ),
    "chatglm3": _Row(
        before="[gMASK]sop",
        system="<|system|>\n %s",
        user="<|user|>\n %s",
        assistant="<|assistant|>\n %s",
        answer="<|assistant|>",
        stop=("<|user|>", "<|observation|>"),
    ),
    "saiga": _Row(
        system="BOSsystem\n%sEOS", user="BOSuser\n%sEOS", assistant="BOSbot\n%sEOS", answer="BOSbot\n"
    ),
}

CHAT_FORMATS = tuple(_ROWS)

# llama-cpp-python's names that are more than a template.
_WITH_TOOLS = {
    "functionary": "functionary's calls are not parsed yet",
    "functionary-v1": "functionary's calls are not parsed yet",
    "functionary-v2": "functionary's calls are not parsed yet",
    "chatml-function-calling": "calls in the answer are not parsed yet; without tools it is chatml",
}
_OWN = ("jinja", "chat_template.default")  # the file's template, by other names


def choose_format(
    metadata: Mapping[str, Any], tokenizer: Tokenizer, *, name: str | None, template: str | None
) -> ChatFormat | None:
    """The format called `name`, or the given template, or the file's; None where there is none at all.

    name: of CHAT_FORMATS, "jinja" (the file's own), or chat_template.NAME (one of the file's)

    Errors: ParameterError for an unknown name or one beside a template; ChatTemplateError as `ChatTemplate`.
    """
    if name is not None and template is not None:
        raise ParameterError(
            f"chat_format={name!r} and chat_template are two answers to one question", "Give one of them."
        )
    if name in _ROWS:
        return _named(name, tokenizer)
    if name is not None and name.startswith("chat_template.") and name not in _OWN:
        template = name.removeprefix("chat_template.")
    elif name is not None and name not in _OWN:
        why = f": {_WITH_TOOLS[name]}" if name in _WITH_TOOLS else " is not known"
        raise ParameterError(
            f"chat_format={name!r}{why}",
            f"Known: {', '.join([*_ROWS, *_OWN])}, chat_template.NAME; or give chat_template=.",
        )
    own = ChatTemplate.from_metadata(metadata, tokenizer, override=template)
    if own is None and name is not None:
        raise ParameterError(
            f"chat_format={name!r}: the model file has no chat template", f"Known: {', '.join(_ROWS)}."
        )
    return None if own is None else ChatFormat(own)


def _named(name: str, tokenizer: Tokenizer) -> ChatFormat:
    bos, eos = ("" if i is None else tokenizer.piece(i) for i in (tokenizer.bos_id, tokenizer.eos_id))
    row = _ROWS[name]
    return ChatFormat(ChatTemplate(_jinja(name, row), bos_token=bos, eos_token=eos), row.stop)


def _jinja(name: str, row: _Row) -> str:
    """The row as a template: messages in their order; a role that the format lacks is refused."""
    system = _written(row.system, "message.content")
    if row.inside:
        system = f"{{%- set ns.held = ns.held ~ {_expression(row.system, 'message.content')} -%}}"
    # %s first: what is held belongs to the user's text
    user = _written(row.user, "ns.held ~ message.content" if row.inside else "message.content")
    default = ""
    if row.default:
        written = _written(row.system, json.dumps(row.default))
        default = f'{{%- if messages[0].role not in ["system", "developer"] -%}}{written}{{%- endif -%}}'
    refused = json.dumps(f"the chat format {name} has no role ")
    return "".join(
        [
            '{%- set ns = namespace(held="") -%}', _written(row.before, '""'), default,
            "{%- for message in messages -%}",
            '{%- if message.role in ["system", "developer"] -%}',
            system if row.system else f"{{{{- raise_exception({refused} ~ message.role) -}}}}",
            '{%- elif message.role == "user" -%}', user, '{%- set ns.held = "" -%}',
            '{%- elif message.role == "assistant" -%}', _written(row.assistant, "message.content"),
            "{%- else -%}", f"{{{{- raise_exception({refused} ~ message.role) -}}}}", "{%- endif -%}",
            "{%- endfor -%}",
            '{%- if ns.held -%}{{- raise_exception("a system message needs a user message after it") -}}',
            "{%- endif -%}",
            f"{{%- if add_generation_prompt -%}}{_written(row.answer, chr(34) * 2)}{{%- endif -%}}",
        ]
    )  # fmt: skip


def _written(text: str, content: str) -> str:
    return f"{{{{- {_expression(text, content)} -}}}}" if text else ""


def _expression(text: str, content: str) -> str:
    """A Jinja expression of the text with `content`, an expression, for %s."""
    for mark, value in (("%s", content), ("BOS", "bos_token"), ("EOS", "eos_token")):
        text = text.replace(mark, f"\0{value}\0")
    parts = text.split("\0")
    return " ~ ".join(
        f"({part})" if i % 2 else json.dumps(part) for i, part in enumerate(parts) if i % 2 or part
    )
