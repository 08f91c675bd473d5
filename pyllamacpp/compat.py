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
_LATER = "Leave it out."
_BY_HAND = "It looks at the whole answer: use generate() or create_completion()."
_ANY_BOOL = (None, True, False)

CONSTRUCTOR: Mapping[str, Inert] = {
    "n_gpu_layers": Inert((0, None), _GPU),
    "split_mode": Inert((None, 1), _GPU),
    "main_gpu": Inert((None, 0), _GPU),
    "tensor_split": Inert((None,), _GPU),
    "rpc_servers": Inert((None,), _GPU),
    "offload_kqv": Inert(_ANY_BOOL),  # without layers on a GPU both values mean the same
    "op_offload": Inert(_ANY_BOOL),
    "flash_attn": Inert(_ANY_BOOL),  # attention never stores its score matrix, whatever is asked
    "no_perf": Inert(_ANY_BOOL),  # no timings are printed
    "use_mmap": Inert((None, True), "Weights are read into memory once, whichever is asked."),
    "use_mlock": Inert((None, False), _LATER),
    "numa": Inert((None, False, 0), _LATER),
    "n_ubatch": Inert((None, 512), "Use n_batch, the number of prompt tokens evaluated at a time."),
    "kv_overrides": Inert((None, {}), _LATER),
    "rope_scaling_type": Inert((None, -1), "The file's own rope scaling is applied."),
    "pooling_type": Inert((None, -1), _LATER),
    "attention_type": Inert((None, -1), _LATER),
    "rope_freq_base": Inert((None, 0), "The file's own rope base is applied."),
    "rope_freq_scale": Inert((None, 0), "The file's own rope scaling is applied."),
    "yarn_ext_factor": Inert((None, -1), "The file's own rope scaling is applied."),
    "yarn_attn_factor": Inert((None, 1), "The file's own rope scaling is applied."),
    "yarn_beta_fast": Inert((None, 32), "The file's own rope scaling is applied."),
    "yarn_beta_slow": Inert((None, 1), "The file's own rope scaling is applied."),
    "yarn_orig_ctx": Inert((None, 0), "The file's own rope scaling is applied."),
    "embedding": Inert((None, False), _LATER),
    "swa_full": Inert(
        _ANY_BOOL
    ),  # every layer keeps the whole context, so any earlier position can be resumed
    "lora_base": Inert((None,), _LATER),
    "lora_scale": Inert((None, 1), _LATER),
    "lora_path": Inert((None,), _LATER),
    "chat_format": Inert((None,), "The file's own chat template is used; chat_template=... overrides it."),
    "chat_handler": Inert((None,), _LATER),
    "draft_model": Inert((None,), _LATER),
    "tokenizer": Inert((None,), "The file's own tokenizer is used; pre=... overrides its pre-tokenizer."),
    "type_k": Inert((None, 1), "Keys are kept as f16 (1)."),
    "type_v": Inert((None, 1), "Values are kept as f16 (1)."),
    "spm_infill": Inert((None, False), _LATER),
}

SAMPLING: Mapping[str, Inert] = {
    "tfs_z": Inert((None, 1), "llama.cpp has dropped it too; use min_p or top_p."),
    "penalize_nl": Inert(
        (None, True), "The line break is penalized like any other token; use logit_bias to favour it."
    ),
    "grammar": Inert((None,), _LATER),
}

SAMPLE: Mapping[str, Inert] = {
    **SAMPLING,
    "idx": Inert((None, -1), "The logits of the last evaluated token are sampled."),
    "mirostat_mode": Inert((None, 0), _BY_HAND),
    "min_tokens": Inert((None, 0), _BY_HAND),
}

COMPLETION: Mapping[str, Inert] = {
    **{name: inert for name, inert in SAMPLING.items() if name != "penalize_nl"},
    "suffix": Inert((None,), "Text is completed to the right only."),
}

CHAT: Mapping[str, Inert] = {
    **{name: inert for name, inert in SAMPLING.items() if name != "penalize_nl"},
    "functions": Inert((None, []), _LATER),
    "function_call": Inert((None, "none", "auto"), _LATER),
    "tools": Inert((None, []), "Calls in the answer are not parsed yet."),
    "tool_choice": Inert((None, "none", "auto"), "Calls in the answer are not parsed yet."),
    "response_format": Inert((None, {"type": "text"}), "The answer cannot be constrained yet."),
}

FROM_PRETRAINED: Mapping[str, Inert] = {
    "local_dir_use_symlinks": Inert((None, "auto"), "huggingface_hub no longer has it either."),
}

# Fields of SamplingParams that no method takes under that name beyond those it spells out.
SPELLED = frozenset(["temperature", "max_tokens", "stop", "logprobs", "seed", "logit_bias"])

METHODS = frozenset(
    ["create_embedding", "embed", "save_state", "load_state", "set_cache", "create_chat_completion_openai_v1"]
)


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
