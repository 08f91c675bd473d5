"""Makes the golden logits of tiny random models: tests/fixtures/<case>.gguf and tests/golden/<case>.npz.

    pip install torch==2.13.0 transformers gguf && python tests/make_golden.py [case ...]

Each case (golden_cases.py) is a Hugging Face model with random weights, run in float32 with eager attention
on fixed tokens; the same weights are written as the GGUF file that llama.cpp's converter makes of such a
model (tensor names, metadata keys, the order of q/k rows for `llama`, gemma's norms with 1 added). Tests need
neither torch nor transformers, only the results. Weights are rounded to bfloat16 so that git can compress the
files.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from golden_cases import CASES, COMMON, N_VOCAB, POOLED, Case

TESTS = Path(__file__).resolve().parent
State = dict[str, np.ndarray]  # parameters by transformers' names


def build_model(case: Case) -> Any:
    suffix = "TextConfig" if case.family == "Gemma3" else "Config"
    config_class = getattr(transformers, case.family + suffix)
    # Configurations that compute head_dim refuse to be given one.
    computed = isinstance(getattr(config_class, "head_dim", None), property)
    common = {k: v for k, v in COMMON.items() if k != "head_dim"} if computed else COMMON
    config = config_class(**(common | case.config))
    model_class = case.family + ("LMHeadModel" if case.family == "GPT2" else "ForCausalLM")
    model = getattr(transformers, model_class)._from_config(
        config, attn_implementation="eager", dtype=torch.float32
    )
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = random_weights(rng, name, tuple(parameter.shape), case.arch)
            parameter.copy_(torch.from_numpy(values).bfloat16().float())
    return model.eval()


LAST_NORMS = ("model.norm.weight", "transformer.ln_f.weight", "gpt_neox.final_layer_norm.weight")
EMBEDDINGS = ("embed_tokens", "word_embeddings", "embed_in", ".wte", ".wpe")


def random_weights(rng: np.random.Generator, name: str, shape: tuple[int, ...], arch: str) -> np.ndarray:
    """Nothing neutral: norms are not 1, biases not 0, and attention is sharp enough for positions to matter.

    The last norm keeps the logits small (standard deviation about 0.2), so that a KV cache in f16, which is
    no mistake, moves them by about 5e-4 at most.
    """
    values = rng.standard_normal(shape).astype(np.float32)
    gemma = arch.startswith("gemma")
    if name in LAST_NORMS:
        return (0.25 + 0.05 * values) - (1.0 if gemma else 0.0)
    if name.endswith("bias"):
        return 0.3 * values
    if "norm" in name or ".ln_" in name:
        return 0.2 * values + (0.0 if gemma else 1.0)
    if name.endswith("sinks"):
        return values
    if any(part in name for part in EMBEDDINGS):
        return values * (shape[1] ** -0.5)
    sharp = r"q_proj|k_proj|qkv|query_key_value|c_attn|mlp\.gate\.|router"
    gain = 1.5 if re.search(sharp, name) else 0.6
    if arch == "gpt-oss" and name.endswith("gate_up_proj"):
        gain = 4  # the activation's limits of 7 are met
    transposed = (arch == "gpt2" and len(shape) == 2) or (arch == "gpt-oss" and len(shape) == 3)
    return values * (gain * shape[-2 if transposed else -1] ** -0.5)


def llama3_factors(rope: dict[str, Any], head_dim: int) -> np.ndarray:
    """rope_freqs.weight: what the frequency of each rotated pair is divided by."""
    frequency = rope["rope_theta"] ** -(np.arange(0, head_dim, 2) / head_dim)
    turns = rope["original_max_position_embeddings"] * frequency / (2 * np.pi)
    smooth = (turns - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
    smooth = np.clip(smooth, 0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)


def rope_tensors(config: Any) -> State:
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "llama3":
        return {"rope_freqs.weight": llama3_factors(rope, config.head_dim)}
    if rope.get("rope_type") == "longrope":
        return {
            f"rope_factors_{n}.weight": np.array(rope[f"{n}_factor"], np.float32) for n in ("long", "short")
        }
    return {}


def interleave_heads(state: State, config: Any) -> State:
    """transformers rotates dimension i with i + head_dim/2; these files keep such pairs side by side."""

    def interleaved(name: str, values: np.ndarray) -> np.ndarray:
        if "q_proj" not in name and "k_proj" not in name:
            return values
        n_head = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        return values.reshape(n_head, 2, len(values) // n_head // 2, -1).swapaxes(1, 2).reshape(values.shape)

    return {name: interleaved(name, values) for name, values in state.items()}


def add_one_to_norms(state: State, _: Any) -> State:
    return {name: v + np.float32(1) if "norm" in name else v for name, v in state.items()}


def unstack_fused(state: State, config: Any) -> State:
    """falcon and gptneox keep the q, k, v of a head (or a group) together; files have all q, all k, all v."""
    falcon = config.model_type == "falcon"
    n_kv = (
        config.num_attention_heads
        if not falcon
        else config.num_kv_heads
        if config.new_decoder_architecture
        else 1
    )
    dim = config.hidden_size // config.num_attention_heads

    def unstacked(name: str, values: np.ndarray) -> np.ndarray:
        if "query_key_value" not in name:
            return values
        groups = values.reshape(n_kv, -1, dim, *values.shape[1:])
        parts = (groups[:, :-2], groups[:, -2:-1], groups[:, -1:])
        return np.concatenate([part.reshape(-1, *values.shape[1:]) for part in parts])

    return {name: unstacked(name, values) for name, values in state.items()}


def transpose_conv1d(state: State, _: Any) -> State:
    return {name: v.T if re.search(r"c_(attn|proj|fc)\.weight", name) else v for name, v in state.items()}


def stack_head_norms(state: State, _: Any) -> State:
    out: State = {}
    for name, values in state.items():
        stacked = re.sub(r"\.norms\.\d+\.", ".", name)
        out[stacked] = np.vstack([out[stacked], values]) if stacked in out else values
    return out


def split_experts(state: State, _: Any) -> State:
    """gate_up_proj of all experts (n_expert, 2 n_ff, n_embd) -> gate_proj and up_proj."""
    out: State = {}
    for name, values in state.items():
        name = name.replace("block_sparse_moe.router", "mlp.gate").replace("block_sparse_moe", "mlp")
        if "experts.gate_up_proj" in name:
            half = values.shape[1] // 2
            out[name.replace("gate_up_proj", "gate_proj.weight")] = values[:, :half]
            out[name.replace("gate_up_proj", "up_proj.weight")] = values[:, half:]
        else:
            out[name + ".weight" if name.endswith("experts.down_proj") else name] = values
    return out


def split_gpt_oss(state: State, _: Any) -> State:
    """Experts are (n_expert, n_in, n_out) with gate and up in turns."""
    out: State = {}
    for name, values in state.items():
        if ".experts." not in name:
            out[name] = values
            continue
        stem, kind = (name[: -len("_bias")], "bias") if name.endswith("_bias") else (name, "weight")
        values = values if kind == "bias" else values.swapaxes(1, 2)
        if "gate_up_proj" in stem:
            out[stem.replace("gate_up_proj", f"gate_proj.{kind}")] = values[:, ::2]
            out[stem.replace("gate_up_proj", f"up_proj.{kind}")] = values[:, 1::2]
        else:
            out[f"{stem}.{kind}"] = values
    return out


# What the converter does to a family's parameters, in order.
CONVERT: dict[str, list[Callable[[State, Any], State]]] = {
    "llama": [interleave_heads, split_experts],
    "smollm3": [interleave_heads],
    "granite": [interleave_heads],
    "granitemoe": [interleave_heads, split_experts],
    "gemma2": [add_one_to_norms],
    "gemma3": [add_one_to_norms],
    "falcon": [unstack_fused],
    "gptneox": [unstack_fused],
    "gpt2": [transpose_conv1d],
    "stablelm": [stack_head_norms],
    "qwen2moe": [split_experts],
    "qwen3moe": [split_experts],
    "gpt-oss": [split_gpt_oss],
}


def gguf_tensors(case: Case, model: Any) -> State:
    config = model.config
    state = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    for convert in CONVERT.get(case.arch, []):
        state = convert(state, config)
    archs = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(archs[case.arch], config.num_hidden_layers)
    out = rope_tensors(config)
    for name, values in state.items():
        known = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if known is None:
            raise KeyError(f"{case.name}: {name} has no place in a {case.arch} file")
        out[known if known.endswith((".weight", ".bias")) else f"{known}.weight"] = values
    return out


def write_gguf(case: Case, model: Any, path: Path) -> None:
    config = model.config
    writer = gguf.GGUFWriter(path, case.arch)
    writer.add_name(f"{case.name}: random weights, for tests")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    n_ff = [getattr(config, key, None) for key in ("n_inner", "ffn_hidden_size", "intermediate_size")]
    writer.add_feed_forward_length(next(n for n in n_ff if n))
    writer.add_head_count(config.num_attention_heads)
    if case.arch not in ("gpt2", "gptneox", "falcon"):
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if hasattr(config, "rms_norm_eps"):
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    for key in ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"):
        if hasattr(config, key):
            writer.add_layer_norm_eps(getattr(config, key))
    usual: dict[str, Any] = {}
    rope = getattr(config, "rope_parameters", None)
    if rope and case.arch != "falcon":
        usual["rope.freq_base"] = rope.get("rope_theta") or rope["full_attention"]["rope_theta"]
    if case.arch == "llama":
        usual["rope.dimension_count"] = config.head_dim
        writer.add_vocab_size(config.vocab_size)
    for key, value in (usual | case.metadata).items():
        add = {
            bool: writer.add_bool,
            int: writer.add_uint32,
            float: writer.add_float32,
            str: writer.add_string,
            list: writer.add_array,
        }[type(value)]
        add(f"{case.arch}.{key}", value)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, values in gguf_tensors(case, model).items():
        writer.add_tensor(name, np.ascontiguousarray(values))
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
            inputs = torch.from_numpy(tokens)[None].long()
            logits = model(inputs).logits[0].numpy()
            hidden = model.base_model(inputs).last_hidden_state[0].numpy()
        pooled = {"pooled": np.stack([hidden.mean(0), hidden[0], hidden[-1]])} if case.name in POOLED else {}
        rows = golden_rows(case.n_tokens)
        (TESTS / "fixtures").mkdir(exist_ok=True)
        (TESTS / "golden").mkdir(exist_ok=True)
        write_gguf(case, model, TESTS / "fixtures" / f"{case.name}.gguf")
        np.savez_compressed(
            TESTS / "golden" / f"{case.name}.npz",
            tokens=tokens,
            rows=rows,
            logits=logits[rows].astype(np.float32),
            **pooled,
        )
        size = (TESTS / "fixtures" / f"{case.name}.gguf").stat().st_size
        print(
            f"{case.name}: {size // 1000} kB, logits std {logits.std():.2f}, max {np.abs(logits).max():.1f}"
        )


if __name__ == "__main__":
    main()
