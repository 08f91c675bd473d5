"""Makes the golden logits of tiny random models: tests/fixtures/<case>.gguf and tests/golden/<case>.npz.

    pip install torch==2.13.0 transformers gguf && python tests/make_golden.py [case ...]

Each case is a Hugging Face model with random weights, run in float32 with eager attention on fixed tokens;
the same weights are written as the GGUF file that llama.cpp's converter makes of such a model (tensor names,
metadata keys, the order of q/k rows for `llama`, gemma's norms with 1 added). Tests need neither torch nor
transformers, only the results. Weights are rounded to bfloat16 so that git can compress the float32 files.
"""

from __future__ import annotations

import math
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers

TESTS = Path(__file__).resolve().parent
N_VOCAB = 96

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


def build_model(case: Case) -> Any:
    suffix = "TextConfig" if case.family == "Gemma3" else "Config"
    config = getattr(transformers, case.family + suffix)(**(COMMON | case.config))
    model = getattr(transformers, case.family + "ForCausalLM")._from_config(
        config, attn_implementation="eager", dtype=torch.float32
    )
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = random_weights(rng, name, tuple(parameter.shape), case.arch)
            parameter.copy_(torch.from_numpy(values).bfloat16().float())
    return model.eval()


def random_weights(rng: np.random.Generator, name: str, shape: tuple[int, ...], arch: str) -> np.ndarray:
    """Nothing neutral: norms are not 1, biases not 0, and attention is sharp enough for positions to matter.

    The last norm keeps the logits small (standard deviation about 0.2), so that a KV cache in f16, which is
    no mistake, moves them by about 5e-4 at most.
    """
    values = rng.standard_normal(shape).astype(np.float32)
    if name == "model.norm.weight":
        return (0.25 + 0.05 * values) - (1.0 if arch == "gemma3" else 0.0)
    if "norm" in name:
        return 0.2 * values + (0.0 if arch == "gemma3" else 1.0)
    if name.endswith("bias"):
        return 0.3 * values
    if "embed_tokens" in name:
        return values * (shape[1] ** -0.5)
    gain = 1.5 if "q_proj" in name or "k_proj" in name else 0.6
    return values * (gain * shape[1] ** -0.5)


def llama3_factors(rope: dict[str, Any], head_dim: int) -> np.ndarray:
    """rope_freqs.weight: what the frequency of each rotated pair is divided by."""
    frequency = rope["rope_theta"] ** -(np.arange(0, head_dim, 2) / head_dim)
    turns = rope["original_max_position_embeddings"] * frequency / (2 * np.pi)
    smooth = (turns - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
    smooth = np.clip(smooth, 0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)


BLOCK_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
NORM_NAMES = {
    "gemma3": {
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }
}
TOP_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name: str, arch: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in TOP_NAMES:
        return f"{TOP_NAMES[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    names = BLOCK_NAMES | NORM_NAMES.get(arch, {"post_attention_layernorm": "ffn_norm"})
    return f"blk.{layer}.{names[part]}.{kind}"


def gguf_tensor(name: str, values: np.ndarray, case: Case, config: Any) -> np.ndarray:
    if case.arch == "gemma3" and "norm" in name:
        return values + np.float32(1)
    if case.arch == "llama" and ("q_proj" in name or "k_proj" in name):
        # transformers rotates dimension i with i + head_dim/2; `llama` files keep such pairs side by side.
        n_head = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        return values.reshape(n_head, 2, config.head_dim // 2, -1).swapaxes(1, 2).reshape(values.shape)
    return values


def write_gguf(case: Case, model: Any, path: Path) -> None:
    config = model.config
    writer = gguf.GGUFWriter(path, case.arch)
    writer.add_name(f"{case.name}: random weights, for tests")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    theta = rope.get("rope_theta") or rope["full_attention"]["rope_theta"]
    usual = {"rope.freq_base": theta}
    if case.arch == "llama":
        usual["rope.dimension_count"] = config.head_dim
        writer.add_vocab_size(config.vocab_size)
    for key, value in (usual | case.metadata).items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
        add(f"{case.arch}.{key}", value)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    if rope.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(rope, config.head_dim))
    for name, parameter in model.named_parameters():
        values = gguf_tensor(name, parameter.detach().numpy(), case, config)
        writer.add_tensor(gguf_name(name, case.arch), np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def golden_rows(n_tokens: int) -> np.ndarray:
    """The first positions, both sides of the windows (16, 100) and of the attention chunk (256), the last."""
    rows = [0, 1, 7, 15, 16, 17, 31, 99, 100, 101, 255, 256, 257, n_tokens - 1]
    return np.array(sorted({row for row in rows if row < n_tokens}), dtype=np.int32)


def main() -> None:
    if torch.__version__.split("+")[0] != "2.13.0":
        raise SystemExit(f"the committed goldens were made with torch 2.13.0; this is {torch.__version__}")
    torch.set_num_threads(1)
    wanted = set(sys.argv[1:])
    for case in CASES:
        if wanted and case.name not in wanted:
            continue
        model = build_model(case)
        tokens = np.random.default_rng(case.n_tokens).integers(0, N_VOCAB, case.n_tokens, dtype=np.int32)
        with torch.no_grad():
            logits = model(torch.from_numpy(tokens)[None].long()).logits[0].numpy()
        rows = golden_rows(case.n_tokens)
        (TESTS / "fixtures").mkdir(exist_ok=True)
        (TESTS / "golden").mkdir(exist_ok=True)
        write_gguf(case, model, TESTS / "fixtures" / f"{case.name}.gguf")
        np.savez_compressed(
            TESTS / "golden" / f"{case.name}.npz",
            tokens=tokens,
            rows=rows,
            logits=logits[rows].astype(np.float32),
        )
        size = (TESTS / "fixtures" / f"{case.name}.gguf").stat().st_size
        print(
            f"{case.name}: {size // 1000} kB, logits std {logits.std():.2f}, max {np.abs(logits).max():.1f}"
        )


if __name__ == "__main__":
    main()
