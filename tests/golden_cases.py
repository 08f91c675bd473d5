"""The tiny random Hugging Face models of tests/make_golden.py: a case for each architecture and option."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

N_VOCAB = 96

POOLED = ("llama", "gemma3", "gpt2")  # cases that keep hidden states: mean, first, last (3, n_embd)

COMMON = {
    "vocab_size": N_VOCAB,
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}


@dataclass
class Case:
    name: str
    family: str  # the prefix of the transformers classes
    arch: str  # general.architecture
    config: dict[str, Any]
    n_tokens: int = 40
    metadata: dict[str, Any] = field(default_factory=dict)  # GGUF keys under `arch.` beyond the usual ones


def yarn_attn_factor(attention_factor: float, factor: float) -> float:
    """attn_factor multiplies the default 1 + 0.1 ln(factor); transformers' attention_factor replaces it."""
    return attention_factor / (1 + 0.1 * math.log(factor))


def gemma3(pattern: int, full: dict[str, Any], local_theta: float, **config: Any) -> dict[str, Any]:
    kinds = ["full_attention" if (i + 1) % pattern == 0 else "sliding_attention" for i in range(7)]
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 7, "num_attention_heads": 2}
    return shape | {
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "query_pre_attn_scalar": 16,
        "layer_types": kinds,
        "rope_parameters": {
            "full_attention": full,
            "sliding_attention": {"rope_type": "default", "rope_theta": local_theta},
        },
        **config,
    }


CASES = [
    Case("llama", "Llama", "llama", {"num_key_value_heads": 4, "rope_parameters": PLAIN_ROPE}),
    Case(
        "llama_long",
        "Llama",
        "llama",
        {"rope_parameters": PLAIN_ROPE | {"rope_theta": 500000.0}},
        n_tokens=300,
    ),
    Case(
        "llama_bias",
        "Llama",
        "llama",
        {"attention_bias": True, "mlp_bias": True, "rope_parameters": PLAIN_ROPE},
    ),
    Case(
        "llama_llama3",
        "Llama",
        "llama",
        {
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    Case(
        "llama_linear",
        "Llama",
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
        metadata={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
    ),
    Case(
        "llama_yarn",
        "Llama",
        "llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 128,
            }
        },
        metadata={
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 128,
        },
    ),
    Case(  # half of each head is rotated: transformers zeroes the other frequencies of the full-width rope
        "llama_partial",
        "Llama",
        "llama",
        {
            "rope_parameters": {
                "rope_type": "proportional",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
            }
        },
        metadata={"rope.dimension_count": 8, "rope.freq_base": 10000.0 ** (8 / 16)},
    ),
    Case(  # heads wider than n_embd / n_head, and an epsilon large enough to be seen
        "mistral",
        "Mistral",
        "llama",
        {"head_dim": 32, "sliding_window": None, "rms_norm_eps": 0.02, "rope_parameters": PLAIN_ROPE},
    ),
    Case("qwen2", "Qwen2", "qwen2", {"rope_parameters": PLAIN_ROPE | {"rope_theta": 1e6}}),
    Case("qwen2_tied", "Qwen2", "qwen2", {"tie_word_embeddings": True, "rope_parameters": PLAIN_ROPE}),
    Case("qwen3", "Qwen3", "qwen3", {"rope_parameters": PLAIN_ROPE | {"rope_theta": 1e6}}),
    Case(
        "qwen3_yarn",
        "Qwen3",
        "qwen3",
        {
            "head_dim": 32,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "original_max_position_embeddings": 256,
                "attention_factor": 1.5,
                "beta_fast": 8.0,
                "beta_slow": 2.0,
            },
        },
        n_tokens=300,
        metadata={
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 8.0,
            "rope.scaling.original_context_length": 256,
            "rope.scaling.attn_factor": yarn_attn_factor(1.5, 8.0),
            "rope.scaling.yarn_beta_fast": 8.0,
            "rope.scaling.yarn_beta_slow": 2.0,
        },
    ),
    Case(  # as published files: every sixth layer sees all, the local base is 10000, and no key says so
        "gemma3",
        "Gemma3",
        "gemma3",
        gemma3(6, {"rope_type": "default", "rope_theta": 1e6}, 10000.0, sliding_window=16),
        metadata={"attention.sliding_window": 16},
    ),
    Case(
        "gemma3_linear",
        "Gemma3",
        "gemma3",
        gemma3(3, {"rope_type": "linear", "rope_theta": 1e5, "factor": 8.0}, 5000.0, sliding_window=100),
        n_tokens=300,
        metadata={
            "attention.sliding_window": 100,
            "attention.sliding_window_pattern": 3,
            "rope.freq_base_swa": 5000.0,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
    ),
]

# The cases below: 32 wide, 4 heads of 8.
SMALL = {"hidden_size": 32, "intermediate_size": 48, "head_dim": 8}
# Experts differ clearly, so that rounding in the router's inputs never changes the choice.
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
PARTIAL_ROPE = PLAIN_ROPE | {"partial_rotary_factor": 0.5}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.3, 1.6],
    "long_factor": [1.5, 2.5, 4.0, 8.0],
    "original_max_position_embeddings": 64,
}
LONGROPE_KEYS = {  # as the converter writes them: no type, and the magnitude worked out
    "rope.scaling.original_context_length": 64,
    "rope.scaling.attn_factor": math.sqrt(1 + math.log(512 / 64) / math.log(64)),
}


def phi3(**config: Any) -> dict[str, Any]:
    return SMALL | {"num_key_value_heads": 2, "sliding_window": None, "rope_parameters": PLAIN_ROPE} | config


def granite(**config: Any) -> dict[str, Any]:
    scales = {"embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4}
    return SMALL | scales | {"logits_scaling": 0.6, "rope_parameters": PLAIN_ROPE} | config


OLMO3_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}
GRANITE_KEYS = {"embedding_scale": 3.0, "attention.scale": 0.2, "residual_scale": 0.4, "logit_scale": 0.6}

CASES += [
    Case(  # 5 layers: the fourth is without rope
        "smollm3",
        "SmolLM3",
        "smollm3",
        SMALL | {"num_hidden_layers": 5, "tie_word_embeddings": True, "rope_parameters": PLAIN_ROPE},
    ),
    Case(
        "gemma2",
        "Gemma2",
        "gemma2",
        SMALL
        | {
            "num_hidden_layers": 3,
            "sliding_window": 16,
            "tie_word_embeddings": True,
            "rope_parameters": PLAIN_ROPE,
        }
        | {"query_pre_attn_scalar": 8, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 0.5},
        metadata={
            "attention.sliding_window": 16,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 0.5,
        },
    ),
    Case("phi3", "Phi3", "phi3", phi3(sliding_window=16), metadata={"attention.sliding_window": 16}),
    Case(
        "phi3_short",
        "Phi3",
        "phi3",
        phi3(rope_parameters=LONGROPE, original_max_position_embeddings=64),
        metadata=LONGROPE_KEYS,
    ),
    Case(
        "phi3_long",
        "Phi3",
        "phi3",
        phi3(rope_parameters=LONGROPE, original_max_position_embeddings=64),
        n_tokens=100,
        metadata=LONGROPE_KEYS,
    ),
    Case("olmo2", "Olmo2", "olmo2", SMALL | {"rope_parameters": PLAIN_ROPE}),
    Case(  # windows said layer by layer; yarn in the layers without
        "olmo3",
        "Olmo3",
        "olmo2",
        SMALL
        | {
            "num_hidden_layers": 3,
            "sliding_window": 16,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "sliding_attention": PLAIN_ROPE,
                "full_attention": OLMO3_YARN,
            },
        },
        metadata={
            "attention.sliding_window": 16,
            "attention.sliding_window_pattern": [True, False, True],
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 128,
        },
    ),
    Case("granite", "Granite", "granite", granite(), metadata=GRANITE_KEYS),
    Case(
        "starcoder2",
        "Starcoder2",
        "starcoder2",
        SMALL
        | {
            "use_bias": True,
            "tie_word_embeddings": True,
            "sliding_window": 16,
            "rope_parameters": PLAIN_ROPE,
        },
        metadata={"attention.sliding_window": 16},
    ),
    Case(
        "command-r",
        "Cohere",
        "command-r",
        SMALL | {"logit_scale": 0.3, "tie_word_embeddings": True, "rope_parameters": PLAIN_ROPE},
        metadata={"logit_scale": 0.3, "rope.scaling.type": "none"},
    ),
    Case(  # Command R+: norms of q and k, each head with weights of its own
        "command-r_qk-norm",
        "Cohere",
        "command-r",
        SMALL
        | {
            "logit_scale": 0.3,
            "use_qk_norm": True,
            "tie_word_embeddings": True,
            "rope_parameters": PLAIN_ROPE,
        },
        metadata={"logit_scale": 0.3, "rope.scaling.type": "none"},
    ),
    Case(
        "glm4",
        "Glm4",
        "glm4",
        SMALL | {"attention_bias": True, "rope_parameters": PARTIAL_ROPE},
        metadata={"rope.dimension_count": 4},
    ),
    Case(
        "stablelm",
        "StableLm",
        "stablelm",
        SMALL | {"use_qkv_bias": True, "use_parallel_residual": False, "rope_parameters": PARTIAL_ROPE},
        metadata={"rope.dimension_count": 4, "use_parallel_residual": True},
    ),
    Case(  # StableLM 2 12B
        "stablelm_parallel",
        "StableLm",
        "stablelm",
        SMALL | {"qk_layernorm": True, "use_parallel_residual": True, "rope_parameters": PARTIAL_ROPE},
        metadata={"rope.dimension_count": 4, "use_parallel_residual": True},
    ),
    Case(
        "falcon",
        "Falcon",
        "falcon",
        {"hidden_size": 32, "multi_query": True, "parallel_attn": True, "tie_word_embeddings": True},
        metadata={"attention.head_count_kv": 1},
    ),
    Case(  # Falcon 40B: two norms beside each other, several key/value heads
        "falcon_two-norms",
        "Falcon",
        "falcon",
        {"hidden_size": 32, "new_decoder_architecture": True, "num_kv_heads": 2, "tie_word_embeddings": True},
        metadata={"attention.head_count_kv": 2},
    ),
    Case("gpt2", "GPT2", "gpt2", {"hidden_size": 32, "n_inner": 48, "max_position_embeddings": 96}),
    Case(
        "gptneox",
        "GPTNeoX",
        "gptneox",
        SMALL | {"use_parallel_residual": True, "rope_parameters": PARTIAL_ROPE},
        metadata={"rope.dimension_count": 4, "use_parallel_residual": True},
    ),
    Case(
        "gptneox_sequential",
        "GPTNeoX",
        "gptneox",
        SMALL | {"use_parallel_residual": False, "rope_parameters": PARTIAL_ROPE},
        metadata={"rope.dimension_count": 4, "use_parallel_residual": False},
    ),
    Case(
        "mixtral",
        "Mixtral",
        "llama",
        SMALL
        | {"num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 24}
        | {"sliding_window": None, "rope_parameters": PLAIN_ROPE},
        metadata={"expert_count": 5, "expert_used_count": 2},
    ),
    Case(
        "qwen2moe",
        "Qwen2Moe",
        "qwen2moe",
        SMALL
        | EXPERTS
        | {"num_experts": 5, "shared_expert_intermediate_size": 40, "rope_parameters": PLAIN_ROPE},
        metadata={
            "expert_count": 5,
            "expert_used_count": 2,
            "expert_feed_forward_length": 24,
            "expert_shared_feed_forward_length": 40,
        },
    ),
    Case(
        "qwen3moe",
        "Qwen3Moe",
        "qwen3moe",
        SMALL | EXPERTS | {"num_experts": 6, "norm_topk_prob": True, "rope_parameters": PLAIN_ROPE},
        metadata={"expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 24},
    ),
    Case(
        "granitemoe",
        "GraniteMoe",
        "granitemoe",
        granite(num_local_experts=5, num_experts_per_tok=2, intermediate_size=24),
        metadata=GRANITE_KEYS | {"expert_count": 5, "expert_used_count": 2},
    ),
    Case(  # yarn as published: the ramp between fractions of a pair
        "gpt-oss",
        "GptOss",
        "gpt-oss",
        SMALL
        | {"num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 24, "head_dim": 16}
        | {
            "sliding_window": 16,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1000.0,
                "factor": 8.0,
                "beta_fast": 8.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 64,
            },
        },
        metadata={
            "attention.sliding_window": 16,
            "expert_count": 5,
            "expert_used_count": 2,
            "expert_feed_forward_length": 24,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 8.0,
            "rope.scaling.original_context_length": 64,
            "rope.scaling.yarn_beta_fast": 8.0,
            "rope.scaling.yarn_beta_slow": 1.0,
        },
    ),
]
