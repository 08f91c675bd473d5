"""docs/llama-cpp-python.md: what is the same, different, refused, from the code's own tables and signatures.

    PYTHONPATH=. python tests/peer_table.py

writes it anew. Written here by hand is only why something differs.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

from pyllamacpp import Llama, _core, compat, names
from pyllamacpp.params import DEFAULT_KV_TYPE, SamplingParams, specs
from pyllamacpp.text.chat_formats import CHAT_FORMATS

TESTS = Path(__file__).resolve().parent
PEER: dict[str, Any] = json.loads((TESTS / "peer.json").read_text())
PAGE = TESTS.parent / "docs" / "llama-cpp-python.md"
SAME, DIFFERENT, REFUSED = "same", "different", "refused"

_NO_EFFECT = "An error where it would have no effect."
_FILES = "At this default the file's own value counts. " + _NO_EFFECT
_KV_TYPES = (
    f"Its number or its name: {', '.join(_core.kv_types())} (i16: 16-bit integers, ours alone); others are "
    f"an error. Default: {DEFAULT_KV_TYPE}."
)
_BIASES = "-100 or less bans, 100 or more allows no other; lists of pairs and string keys work too."
_PENALTY = "Divides for the tokens of prompt and answer, whatever was cached."
_ANSWER = "Subtracted for tokens of the answer alone."
_SEED = "None: the object's own; -1: a random one. The same seed gives the same answer on every machine."
_STOP = "The text ends before the string that is complete first, wherever tokens are cut."
_LOGPROBS = (
    "Needs no logits_all. Log-softmax of the logits before bias, penalties and temperature, after a "
    "logits_processor; tokens that one bans are not reported; "
    "parts of characters are told as `bytes:\\xe2\\x80`."
)

# Why: by method (parameter None) and parameter. A parameter under "*" is meant wherever it is taken.
DIFFERENCES: dict[tuple[str, str | None], str] = {
    ("__init__", None): "An unknown parameter is a TypeError. It works as a context manager too.",
    ("__init__", "model_path"): "Any shard of a set, an alias, hf:owner/repo or pypi:package==version too.",
    ("__init__", "n_ctx"): "Default: as trained, or what fits in memory; pages are allocated as tokens come.",
    ("__init__", "n_threads"): "Default: the physical cores that affinity and container allow.",
    ("__init__", "n_threads_batch"): "Must be equal to n_threads.",
    ("__init__", "seed"): "None or -1: a random one each time (`last_seed` tells it). 4294967295 is a seed.",
    ("__init__", "logits_all"): "Only for `scores`: log-probabilities do not need it.",
    ("__init__", "kv_overrides"): "An error for a value of another type and for a key that nothing reads.",
    ("__init__", "type_k"): _KV_TYPES,
    ("__init__", "type_v"): _KV_TYPES,
    ("__init__", "pooling_type"): "4 (rank) is an error. Without it and the file's word: a vector a token.",
    ("__init__", "rope_scaling_type"): "3 (longrope) is for files with its factors.",
    ("__init__", "rope_freq_base"): "Sliding-window layers with a base of their own keep it.",
    ("__init__", "rope_freq_scale"): "Linear where the file has no scaling. " + _NO_EFFECT,
    ("__init__", "yarn_attn_factor"): _FILES,
    ("__init__", "yarn_beta_fast"): _FILES,
    ("__init__", "yarn_beta_slow"): _FILES,
    ("__init__", "yarn_orig_ctx"): _FILES,
    ("__init__", "chat_format"): "The file's template unless given; formats are never guessed. See below.",
    ("__init__", "verbose"): "One line on standard error.",
    ("tokenize", None): "Bytes that are not UTF-8 become byte tokens.",
    ("tokenize", "add_bos"): "Adds BOS where the model expects one and the text does not begin with it; "
    "never EOS.",
    ("detokenize", None): "SentencePiece's space before a text is dropped after BOS only, so pieces add up.",
    ("set_cache", None): "Any object with __getitem__ and __setitem__; no cache changes an answer.",
    ("eval", None): "More tokens than fit are an error beforehand.",
    ("create_completion", None): "From logprobs on by keyword.",
    ("sample", None): "From temp on by keyword. Counter-based randomness: the same seed draws the same token "
    "at the same position.",
    ("sample", "frequency_penalty"): "Subtracted for all tokens held.",
    ("sample", "presence_penalty"): "Subtracted for all tokens held.",
    ("generate", None): "From temp on by keyword. Ends when the context is full. The turn is kept until "
    "it is closed.",
    ("embed", None): "Needs no embedding=True; lists of tokens too. Tokens held stay as they are. "
    "EOS is added where the model expects it.",
    ("embed", "truncate"): "Default False: longer than the context is an error, nothing is cut silently. "
    "The limit is the context, not n_batch.",
    ("create_embedding", None): "Lists of tokens too; as `embed` otherwise.",
    ("create_completion", "suffix"): "Fills in the middle; an error for models without its tokens, which "
    "llama-cpp-python answers with the suffix appended. Texts are not read as control tokens.",
    ("create_completion", "prompt"): "Exactly one BOS. Tokens as they are.",
    ("create_completion", "logprobs"): _LOGPROBS,
    ("create_completion", "stop"): _STOP,
    ("create_completion", "stopping_criteria"): "finish_reason is then \"stop\".",
    ("create_chat_completion", None): "All but messages by keyword. Never guesses a format: no template is "
    "an error.",
    ("create_chat_completion", "messages"): "Their text is never read as control tokens; exactly one BOS.",
    ("create_chat_completion", "logprobs"): _LOGPROBS.replace("; parts of characters are told as "
    "`bytes:\\xe2\\x80`", "; `bytes` are the token's own"),
    ("create_chat_completion", "top_logprobs"): "Needs logprobs=True.",
    ("create_chat_completion", "stop"): _STOP,
    ("create_chat_completion_openai_v1", None): "Streams are iterators of ChatCompletionChunk.",
    ("save_state", None): "In proportion to the tokens held; can be pickled, or written with to_bytes().",
    ("load_state", None): "A state of another model, n_ctx or KV types, or a damaged one: a ParameterError.",
    ("tokenizer", None): "Our own class: encode(), decode_bytes(), token_bytes(), …",
    ("close", None): "Waits for a request of another thread; later calls are errors.",
    ("from_pretrained", None): "revision and token too. An exact name that was fetched needs no network.",
    ("from_pretrained", "filename"): "None picks a quantization. Shards come along.",
    ("from_pretrained", "additional_files"): "Names or globs; shards need not be listed.",
    ("*", "logit_bias"): _BIASES,
    ("*", "repeat_penalty"): _PENALTY,
    ("*", "frequency_penalty"): _ANSWER,
    ("*", "presence_penalty"): _ANSWER,
    ("*", "mirostat_mode"): "Instead of all that cuts; an error beside samplers it would switch off.",
    ("*", "seed"): _SEED,
    ("*", "logits_processor"): "One function or a list. NaN or nothing left is an error.",
}  # fmt: skip
ATTRIBUTES = {
    "scores": "Without logits_all the last row alone. Read-only.",
    "input_ids": "The tokens held, no more. Read-only.",
    "n_tokens": "Assign a smaller number to go back.",
    "metadata": "With kv_overrides applied.",
    "chat_format": "The name given; None where the file's own template is used.",
    "n_threads": "The threads that compute.",
}
CLASSES = {
    "Llama": "As below.",
    "LlamaState": "input_ids has the tokens held, no more; to_bytes(), from_bytes().",
    "BaseLlamaCache": "No abstract methods; a cache may be any object with __getitem__ and __setitem__.",
    "LlamaRAMCache": "capacity_bytes counts logits too. A state whose tokens begin another is dropped.",
    "LlamaCache": "The same class as LlamaRAMCache.",
}
# llama-cpp-python's rendering is not what the format's authors published, or leaves something out.
CHAT_DIFFERENCES = {
    "llama-2": "Meta's spacing and blank line after <</SYS>>; llama-cpp-python's differ, and it begins a "
    "first message without system prompt with a space.",
    "alpaca": "Line breaks after the headings and the heading of the answer, as Stanford wrote them.",
    "vicuna": "The conversation's system message is used; llama-cpp-python ignores it.",
    "chatml": "No empty system message where there is none.",
    "oasst_llama": "No empty system block where there is none.",
    "openbuddy": "No system prompt of its own; the conversation's is used, which llama-cpp-python ignores.",
    "redpajama-incite": "No line break in front where there is no system message.",
    "snoozy": "With GPT4All's heading before the system message.",
    "phind": "Line breaks after the headings, as Phind has them; the conversation's system message is used.",
    "intel": "llama-cpp-python writes double colons and never the system message.",
    "open-orca": "llama-cpp-python drops every user and assistant message.",
    "mistrallite": "No empty system message; no spaces and line breaks between messages.",
    "zephyr": "One line break after a role, not two; no empty system message.",
    "pygmalion": "Without line breaks, as Metharme was trained; no empty system message.",
    "mistral-instruct": "The system message comes before the first user message; llama-cpp-python drops it.",
    "chatglm3": "With [gMASK]sop in front, as the model's own template.",
    "openchat": "llama-cpp-python ends turns twice and adds line breaks.",
    "saiga": "llama-cpp-python drops the assistant's messages; a line break follows the last \"bot\".",
    "gemma": "The system message comes before the first user message; llama-cpp-python drops it.",
}  # fmt: skip


def method_of(name: str) -> Any:
    return getattr(Llama, name)


def takes(method: str, parameter: str) -> bool:
    """Whether our method takes the parameter for more than being left alone."""
    if parameter in inspect.signature(method_of(method)).parameters:
        return True
    more = compat.LOADING if method == "__init__" else specs(SamplingParams).keys() - compat.SPELLED
    has_more = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(method_of(method)).parameters.values())
    return has_more and parameter in more and parameter not in compat.TABLES.get(method, {})


def accepts_anything(inert: compat.Inert) -> bool:
    return {True, False} <= set(v for v in inert.values if isinstance(v, bool))


def parameter_row(method: str, parameter: str) -> tuple[str, str]:
    """(status, note). The completion's own notes serve its other name."""
    inert = compat.TABLES.get(method, {}).get(parameter)
    if inert is not None:
        if accepts_anything(inert):
            return SAME, inert.hint
        allowed = ", ".join(f"`{value!r}`" for value in inert.values)
        return REFUSED, f"But for {allowed}. {inert.hint}"
    key = "create_completion" if method == "__call__" else method
    note = DIFFERENCES.get((key, parameter)) or DIFFERENCES.get(("*", parameter))
    return (DIFFERENT, note) if note else (SAME, "")


def table(*columns: str) -> list[str]:
    return ["", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]


def row(name: str, *cells: str) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| `{name}` | {' | '.join(escaped)} |"


def method_lines() -> list[str]:
    lines = ["", "## Methods", "", "Parameters are listed below."]
    lines += table("method", "here", "")
    for method in PEER["methods"]:
        key = "create_completion" if method == "__call__" else method
        note = DIFFERENCES.get((key, None), "")
        lines.append(row(method, DIFFERENT if note else SAME, note))
    lines.append(row("__getstate__, __setstate__", REFUSED, "Open the model again in the other process."))
    return lines


def parameter_lines() -> list[str]:
    lines: list[str] = []
    seen: dict[tuple[str, str, str], list[str]] = {}
    for method, parameters in PEER["methods"].items():
        for parameter in parameters:
            if method != "__init__":
                seen.setdefault((parameter, *parameter_row(method, parameter)), []).append(method)
    lines += ["", "## Parameters of `Llama(...)`", *table("parameter", "here", "")]
    for parameter in PEER["methods"]["__init__"]:
        lines.append(row(parameter, *parameter_row("__init__", parameter)))
    lines += ["", "## Parameters of methods", *table("parameter", "of", "here", "")]
    for (parameter, status, note), methods in sorted(seen.items()):
        lines.append(row(parameter, ", ".join(methods), status, note))
    return lines


def other_lines() -> list[str]:
    lines = ["", "## Attributes", *table("attribute", "here", "")]
    for name in PEER["attributes"]:
        if name in compat.ATTRIBUTES:
            lines.append(row(name, REFUSED, f"An AttributeError: {compat.ATTRIBUTES[name]}."))
        else:
            lines.append(row(name, DIFFERENT if name in ATTRIBUTES else SAME, ATTRIBUTES.get(name, "")))
    lines += ["", "## Names to import", *table("name", "here", "")]
    refused = {cls.__name__: cls for cls in names.REFUSED}
    for name in PEER["classes"]:
        if name in refused:
            note = f"It can be imported; using it is an error: {refused[name].why}. {refused[name].hint}"
            lines.append(row(name, REFUSED, note))
        elif name == "suppress_stdout_stderr":
            lines.append(row(name, REFUSED, "An ImportError. Nothing prints but `verbose`."))
        else:
            lines.append(row(name, DIFFERENT if name in CLASSES else SAME, CLASSES.get(name, "")))
    constants = ", ".join(f"`{name}`" for name in names.CONSTANTS)
    lines += [
        f"| {constants} | same | |",
        f"| the {PEER['types']} result types (`ChatCompletion`, …) | refused | An ImportError. Results are "
        "plain dictionaries of the same fields: annotate with `dict[str, Any]`. |",
        "| `llama_*`, `ggml_*` and the other functions, structures and constants of llama.h | refused | "
        "An ImportError. There is no C library of that interface underneath. |",
        "| `llama_cpp.server`, `llama_chat_format`, `llama_grammar`, `llama_speculative`, `llama_types` | "
        "refused | An ImportError. |",
    ]
    return lines


def format_lines() -> list[str]:
    lines = [
        "",
        "## Chat formats",
        "",
        "`chat_format=` takes these names; `jinja` and `chat_template.default`, the file's own template; "
        "`chat_template.NAME`, one of the file's others. A role that a format does not know is an error. "
        "Strings that end a turn end the answer.",
        *table("name", "here", ""),
    ]
    for name in PEER["chat_formats"]:
        if name not in CHAT_FORMATS:
            lines.append(row(name, REFUSED, "It is for tools: " + "calls in the answer are not parsed yet."))
        else:
            note = CHAT_DIFFERENCES.get(name, "")
            lines.append(row(name, DIFFERENT if note else SAME, note))
    return lines


def page() -> str:
    opening = [
        "# Coming from llama-cpp-python",
        "",
        "`from pyllamacpp import Llama` in place of `from llama_cpp import Llama`: names, parameters, "
        "defaults and result dictionaries are the same, but for what this page lists. It covers all that "
        f"llama-cpp-python {PEER['version']} offers. *Refused* means a typed error that says what to do, "
        "never silence; a refused parameter may be left at a value that asks for nothing.",
    ]
    return "\n".join(opening + method_lines() + parameter_lines() + other_lines() + format_lines()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
