"""The other names that scripts import from llama_cpp: those that work here, and those that say why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from .errors import ParameterError
from .generation import Logits, LogitsProcessor, StoppingCriterion, Tokens
from .states import BaseLlamaCache, LlamaRAMCache, LlamaState

__all__ = ["BaseLlamaCache", "LlamaCache", "LlamaRAMCache", "LlamaState"]

LlamaCache = LlamaRAMCache


class LogitsProcessorList(list[LogitsProcessor]):
    """Functions (tokens so far, logits) -> logits, applied one after the other."""

    def __call__(self, input_ids: Tokens, scores: Logits) -> Logits:
        for processor in self:
            scores = processor(input_ids, scores)
        return scores


class StoppingCriteriaList(list[StoppingCriterion]):
    """Functions (tokens so far, logits) -> whether to stop; one is enough."""

    def __call__(self, input_ids: Tokens, logits: Logits) -> bool:
        return any(criterion(input_ids, logits) for criterion in self)


class MinTokensLogitsProcessor:
    """No token_eos before the answer has min_tokens. For one request: it remembers the prompt's length.

    The parameter min_tokens does the same for every token that ends an answer, and keeps no memory.
    """

    def __init__(self, min_tokens: int, token_eos: int) -> None:
        self.min_tokens = min_tokens
        self.token_eos = token_eos
        self.prompt_tokens: int | None = None

    def __call__(self, input_ids: Tokens, scores: Logits) -> Logits:
        if self.prompt_tokens is None:
            self.prompt_tokens = len(input_ids)
        if len(input_ids) - self.prompt_tokens < self.min_tokens:
            scores[self.token_eos] = -float("inf")
        return scores


class _Refused(type):
    """A class of llama-cpp-python that can be imported; whatever is asked of it is refused."""

    why: str
    hint: str

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise ParameterError(f"{cls.__name__} is not supported yet: {cls.why}", cls.hint)

    def __getattr__(cls, name: str) -> Callable[..., NoReturn]:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls.__call__


class LlamaGrammar(metaclass=_Refused):
    """Refused, its from_string, from_file and from_json_schema too."""

    why = "answers cannot be constrained"
    hint = "Ask for the form in the prompt and check the answer."


class LlamaDiskCache(metaclass=_Refused):
    """Refused."""

    why = "states are not kept on disk by themselves"
    hint = "Write save_state().to_bytes() to a file, or take LlamaRAMCache."


class LlamaDraftModel(metaclass=_Refused):
    """Refused."""

    why = "there is no speculative decoding"
    hint = "Leave draft_model out; the answers are the same."


class LlamaTokenizer(metaclass=_Refused):
    """Refused."""

    why = "the tokenizer belongs to its model"
    hint = "Take Llama.tokenize and Llama.detokenize, or Llama.tokenizer()."


class BaseLlamaTokenizer(metaclass=_Refused):
    """Refused."""

    why = LlamaTokenizer.why
    hint = LlamaTokenizer.hint


REFUSED: tuple[type, ...] = (
    LlamaGrammar, LlamaDiskCache, LlamaDraftModel, LlamaTokenizer, BaseLlamaTokenizer,
)  # fmt: skip

# Constants of llama.h and ggml.h that parameters take.
CONSTANTS = {
    "LLAMA_POOLING_TYPE_UNSPECIFIED": -1,
    "LLAMA_POOLING_TYPE_NONE": 0,
    "LLAMA_POOLING_TYPE_MEAN": 1,
    "LLAMA_POOLING_TYPE_CLS": 2,
    "LLAMA_POOLING_TYPE_LAST": 3,
    "LLAMA_POOLING_TYPE_RANK": 4,
    "LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED": -1,
    "LLAMA_ROPE_SCALING_TYPE_NONE": 0,
    "LLAMA_ROPE_SCALING_TYPE_LINEAR": 1,
    "LLAMA_ROPE_SCALING_TYPE_YARN": 2,
    "LLAMA_ROPE_SCALING_TYPE_LONGROPE": 3,
    "LLAMA_ATTENTION_TYPE_UNSPECIFIED": -1,
    "LLAMA_ATTENTION_TYPE_CAUSAL": 0,
    "LLAMA_ATTENTION_TYPE_NON_CAUSAL": 1,
    "LLAMA_SPLIT_MODE_NONE": 0,
    "LLAMA_SPLIT_MODE_LAYER": 1,
    "LLAMA_SPLIT_MODE_ROW": 2,
    "GGML_TYPE_F32": 0,
    "GGML_TYPE_F16": 1,
    "GGML_TYPE_Q8_0": 8,
    "LLAMA_DEFAULT_SEED": 2**32 - 1,
}
