"""llama-cpp-python's parameters that are not supported yet: one table of the values they may be left at.

A value that asks for nothing special is accepted, so that existing calls run unchanged; any other value is an
error naming the parameter; a name neither library knows is a TypeError, as for any Python function.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from .errors import ParameterError


class Inert(NamedTuple):
    """The values of an unsupported parameter that ask for nothing, and what to do instead of the others."""

    values: tuple[Any, ...]
    hint: str = ""


_GPU = "This version computes on the CPU only; leave it out."
_LORA = "Adapters are not applied; take a model that the adapter has been merged into."
_TOOLS = "Calls in the answer are not parsed yet."
_FORM = "The answer cannot be constrained yet; ask for the form in the prompt and check the answer."
_BY_HAND = "It looks at the whole answer: use generate() or create_completion()."
_ANY_BOOL = (None, True, False)

# Parameters of loading that `Llama` takes under its peer's names and does not spell out.
LOADING = frozenset(
    [
        "type_k", "type_v", "rope_scaling_type", "rope_freq_base", "rope_freq_scale",
        "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow", "yarn_orig_ctx",
    ]
)  # fmt: skip

CONSTRUCTOR: Mapping[str, Inert] = {
    "n_gpu_layers": Inert((0, None), _GPU),
    "split_mode": Inert((None, 1), _GPU),
    "main_gpu": Inert((None, 0), _GPU),
    "tensor_split": Inert((None,), _GPU),
    "rpc_servers": Inert((None,), _GPU),
    "offload_kqv": Inert(_ANY_BOOL, "Without layers on a GPU both values mean the same."),
    "op_offload": Inert(_ANY_BOOL, "Without a GPU both values mean the same."),
    "flash_attn": Inert(_ANY_BOOL, "Attention never stores its score matrix, whatever is asked."),
    "no_perf": Inert(_ANY_BOOL, "No timings are printed."),
    "use_mmap": Inert((None, True), "Weights are read into memory once, whichever is asked."),
    "use_mlock": Inert((None, False), "Weights are not locked in memory; leave it out."),
    "numa": Inert((None, False, 0), "Start Python under numactl instead."),
    "n_ubatch": Inert((None, 512), "Use n_batch, the number of prompt tokens evaluated at a time."),
    "attention_type": Inert((None, -1, 0), "Decoder models look back only."),
    "yarn_ext_factor": Inert((None, -1), "Choose with rope_scaling_type: 2 is yarn (1), 1 is linear (0)."),
    "embedding": Inert(_ANY_BOOL, "embed() works either way, and so does generation."),
    "swa_full": Inert(_ANY_BOOL, "Every layer keeps the whole context; any position can be resumed."),
    "lora_base": Inert((None,), _LORA),
    "lora_scale": Inert((None, 1), _LORA),
    "lora_path": Inert((None,), _LORA),
    "chat_handler": Inert((None,), "Give chat_template=, or write the prompt and call create_completion()."),
    "draft_model": Inert((None,), "Leave it out; the answers are the same."),
    "tokenizer": Inert((None,), "The file's own tokenizer is used; pre=... overrides its pre-tokenizer."),
}

SAMPLING: Mapping[str, Inert] = {
    "tfs_z": Inert((None, 1), "llama.cpp has dropped it too; use min_p or top_p."),
    "penalize_nl": Inert(
        (None, True), "The line break is penalized like any other token; use logit_bias to favour it."
    ),
    "grammar": Inert((None,), _FORM),
}

SAMPLE: Mapping[str, Inert] = {
    **SAMPLING,
    "idx": Inert((None, -1), "The logits of the last evaluated token are sampled."),
    "mirostat_mode": Inert((None, 0), _BY_HAND),
    "min_tokens": Inert((None, 0), _BY_HAND),
}

COMPLETION: Mapping[str, Inert] = {
    **{name: inert for name, inert in SAMPLING.items() if name != "penalize_nl"},
}

CHAT: Mapping[str, Inert] = {
    **{name: inert for name, inert in SAMPLING.items() if name != "penalize_nl"},
    "functions": Inert((None, []), _TOOLS),
    "function_call": Inert((None, "none", "auto"), _TOOLS),
    "tools": Inert((None, []), _TOOLS),
    "tool_choice": Inert((None, "none", "auto"), _TOOLS),
    "response_format": Inert((None, {"type": "text"}), _FORM),
}

FROM_PRETRAINED: Mapping[str, Inert] = {
    "local_dir_use_symlinks": Inert((None, "auto"), "huggingface_hub no longer has it either."),
}

# By the name of the method that takes them.
TABLES: Mapping[str, Mapping[str, Inert]] = {
    "__init__": CONSTRUCTOR,
    "sample": SAMPLE,
    "generate": SAMPLING,
    "create_completion": COMPLETION,
    "__call__": COMPLETION,
    "create_chat_completion": CHAT,
    "from_pretrained": FROM_PRETRAINED,
}

# Fields of SamplingParams that no method takes under that name beyond those it spells out.
SPELLED = frozenset(["temperature", "max_tokens", "stop", "logprobs", "seed", "logit_bias"])

# Attributes of its Llama that have no counterpart here, and why.
ATTRIBUTES: Mapping[str, str] = {
    "ctx": "there is no llama_context",
    "model": "there is no llama_model",
    "model_params": "there are no llama_model_params",
    "context_params": "there are no llama_context_params",
    "chat_handler": "chat_handler is not supported yet",
    "draft_model": "draft_model is not supported yet",
    "tokenizer_": "call tokenizer()",
    "numa": "numa is not supported yet",
    "tensor_split": "there is no GPU",
    "kv_overrides": "metadata has them applied",
    "n_threads_batch": "n_threads compute prompts too",
    "lora_base": "lora_path is not supported yet",
    "lora_scale": "lora_path is not supported yet",
    "lora_path": "lora_path is not supported yet",
}


def _asks_nothing(value: Any, inert: Inert) -> bool:
    """Equal to one of the inert values; True is not 1 here, nor False 0."""
    return any(isinstance(value, bool) == isinstance(same, bool) and value == same for same in inert.values)


def check_inert(function: str, arguments: Mapping[str, Any], table: Mapping[str, Inert]) -> None:
    """Refuse what is asked through parameters without an implementation.

    Errors: TypeError for a name that is not in the table; ParameterError for a value that asks for something.
    """
    for name, value in arguments.items():
        inert = table.get(name)
        if inert is None:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
        try:
            accepted = _asks_nothing(value, inert)
        except ValueError:  # an array compares element by element
            accepted = False
        if not accepted:
            raise ParameterError(f"{name}={_short(value)} is not supported yet", inert.hint)


def split(
    function: str, arguments: Mapping[str, Any], known: Collection[str], table: Mapping[str, Inert]
) -> dict[str, Any]:
    """The arguments that are among `known`, without those left at None; the rest goes through check_inert."""
    check_inert(function, {k: v for k, v in arguments.items() if k in table or k not in known}, table)
    return {k: v for k, v in arguments.items() if k in known and k not in table and v is not None}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
