"""Writes tiny random GGUF models, any architecture and format, in well under a second.

    tiny.write(path, "qwen3", "Q4_K")

The same arguments give the same file. Weights are scaled so that logits are of order 1. To make broken or odd
models, `metadata` overrides or removes keys, `drop` leaves tensors out, `reshape` and `extra`
change or add tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as QT
from gguf import GGUFValueType as VT

FORMATS = (
    *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"),
)


N_POSITIONS = 512  # of models with learned positions


@dataclass(frozen=True)
class Shape:
    """The sizes of one model; counts are weights, heads or layers."""

    n_embd: int
    n_layer: int
    n_ff: int
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 0


@dataclass(frozen=True)
class Arch:
    """What an architecture has beyond the plain llama layer."""

    name: str = ""  # general.architecture, where it is not the row's own name
    n_layer: int = 2
    head_share: float = 1.0  # n_head * head_dim / n_embd
    n_head_kv: int = 2
    qkv_bias: bool = False
    biases: bool = False  # of all other matrices of a layer
    fused: Collection[str] = ()  # "qkv", "gate_up": in one tensor
    qk_norm: str = ""  # "head": all heads alike; "heads": each its own; "row": over all heads
    layer_norm: bool = False
    norm_bias: bool = False
    pre_norms: Collection[str] = ("attn_norm", "ffn_norm")
    post_norms: bool = False  # after attention and after the feed-forward
    gated: bool = True
    positions: bool = False  # learned, in place of rope
    sinks: bool = False
    n_expert: int = 0
    shared_expert: bool = False
    expert_biases: bool = False
    metadata: Mapping[str, Any] | None = None  # keys below the architecture's name
    optional: Collection[str] = ()  # tensors of a layer that other models of the architecture lack


def _experts(n: int, used: int) -> dict[str, Any]:
    return {"expert_count": n, "expert_used_count": used}


_QKV_BIASES = ("attn_q.bias", "attn_k.bias", "attn_v.bias")
_GRANITE = {"embedding_scale": 3.0, "residual_scale": 0.5, "attention.scale": 0.1, "logit_scale": 2.0}

# One row an architecture: the only place to extend.
ARCHS: dict[str, Arch] = {
    "llama": Arch(),
    "mixtral": Arch(name="llama", n_expert=5, metadata=_experts(5, 2)),
    "qwen2": Arch(qkv_bias=True, metadata={"rope.freq_base": 1e6}),
    "qwen2moe": Arch(qkv_bias=True, n_expert=6, shared_expert=True, metadata=_experts(6, 3)),
    "qwen3": Arch(qk_norm="head", head_share=2, metadata={"rope.freq_base": 1e6}),
    "qwen3moe": Arch(qk_norm="head", head_share=2, n_expert=8, metadata=_experts(8, 2)),
    "gemma2": Arch(
        n_layer=3,
        post_norms=True,
        metadata={
            "attention.sliding_window": 32,
            "attn_logit_softcapping": 20.0,
            "final_logit_softcapping": 5.0,
        },
    ),
    # 6 layers: the first five look at a window, the sixth at everything
    "gemma3": Arch(
        n_layer=6,
        qk_norm="head",
        post_norms=True,
        head_share=2,
        metadata={"rope.freq_base": 1e6, "attention.sliding_window": 32},
    ),
    "phi3": Arch(fused=("qkv", "gate_up"), metadata={"attention.sliding_window": 100}),
    "smollm3": Arch(n_layer=5),  # the fourth is without rope
    "olmo2": Arch(qk_norm="row", pre_norms=(), post_norms=True),
    "granite": Arch(metadata=_GRANITE),
    "granitemoe": Arch(n_expert=5, metadata=_GRANITE | _experts(5, 2)),
    "gpt-oss": Arch(
        qkv_bias=True,
        pre_norms=("attn_norm", "post_attention_norm"),
        biases=True,
        sinks=True,
        n_expert=5,
        expert_biases=True,
        metadata={"attention.sliding_window": 32} | _experts(5, 2),
    ),
    "starcoder2": Arch(layer_norm=True, norm_bias=True, qkv_bias=True, biases=True, gated=False),
    "command-r": Arch(
        layer_norm=True,
        qk_norm="heads",
        pre_norms=("attn_norm",),
        metadata={"logit_scale": 0.5},
        optional=("attn_q_norm.weight", "attn_k_norm.weight"),
    ),
    "glm4": Arch(
        qkv_bias=True,
        fused=("gate_up",),
        post_norms=True,
        metadata={"rope.dimension_count": 8},
        optional=_QKV_BIASES,
    ),
    "stablelm": Arch(
        layer_norm=True,
        norm_bias=True,
        qkv_bias=True,
        metadata={"rope.dimension_count": 8},
        optional=(*_QKV_BIASES, "ffn_norm.weight"),
    ),
    "falcon": Arch(
        layer_norm=True, norm_bias=True, fused=("qkv",), n_head_kv=1, pre_norms=("attn_norm",), gated=False
    ),
    "gpt2": Arch(
        layer_norm=True,
        norm_bias=True,
        qkv_bias=True,
        biases=True,
        fused=("qkv",),
        n_head_kv=4,
        gated=False,
        positions=True,
    ),
    "gptneox": Arch(
        layer_norm=True,
        norm_bias=True,
        qkv_bias=True,
        biases=True,
        fused=("qkv",),
        n_head_kv=4,
        gated=False,
        metadata={"rope.dimension_count": 8, "use_parallel_residual": True},
    ),
}

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
_MERGES = (
    "h e", "t he", "i n", "e r", "a n", "r e", "o n", "o u", "Ġ t", "Ġ the", "Ġ a", "Ġ s", "Ġ w", "Ġw e",
    "n d", "Ġa nd", "e s", "o r", "Ġ i", "i s", "i t", "e n", "Ġ in", "in g", "Ġ o", "Ġo f", "Ġ c", "Ġ b",
    "l l", "e l", "a t", "a l", "Ġ h", "o w", "l o", "el lo", "h ello", "Ġ I", "Ċ Ċ", "Ġ Ġ", "ĠĠ ĠĠ",
)  # fmt: skip
_SPM_PIECES = ("▁", *"etaoinshrdlu.,!?", "▁t", "he", "▁the", "▁a", "in", "er", "an", "▁an", "nd", "▁and")


def byte_tokens() -> list[str]:
    """GPT-2's printable stand-in for each of the 256 bytes, by byte value."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def bpe_vocab() -> dict[str, Any]:
    """A byte-level BPE tokenizer: every text round-trips."""
    tokens = byte_tokens()
    merges = []
    for merge in _MERGES:
        left, right = merge.split(" ")
        if left in tokens and right in tokens and left + right not in tokens:
            merges.append(merge)
            tokens.append(left + right)
    first = len(tokens)
    tokens += CONTROL_TOKENS
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [_NORMAL] * first + [_CONTROL] * len(CONTROL_TOKENS),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": first,
        "tokenizer.ggml.eos_token_id": first + 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHATML,
    }


def spm_vocab() -> dict[str, Any]:
    """A SentencePiece-style BPE tokenizer with byte fallback."""
    special = ["<unk>", "<s>", "</s>", *CONTROL_TOKENS]
    types = [_UNKNOWN] + [_CONTROL] * (len(special) - 1) + [_BYTE] * 256 + [_NORMAL] * len(_SPM_PIECES)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*special, *(f"<0x{b:02X}>" for b in range(256)), *_SPM_PIECES],
        "tokenizer.ggml.scores": [0.0] * (len(special) + 256) + [-float(i) for i in range(len(_SPM_PIECES))],
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.eot_token_id": special.index("<|im_end|>"),
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_space_prefix": True,
        "tokenizer.chat_template": CHATML,
    }


# Where a block keeps its f16 scale and f16 minimum; minimum / scale for which random codes average to zero.
_HALVES: dict[QT, tuple[int, int | None, float]] = {
    QT.Q2_K: (80, 82, 1.5),
    QT.Q3_K: (108, None, 0),
    QT.Q4_K: (0, 2, 7.5),
    QT.Q5_K: (0, 2, 15.5),
    QT.Q6_K: (208, None, 0),
    QT.IQ4_NL: (0, None, 0),
    QT.IQ4_XS: (0, None, 0),
}


def _random_blocks(rng: np.random.Generator, qtype: QT, rows: int, cols: int, scale: float) -> np.ndarray:
    block, size = gguf.GGML_QUANT_SIZES[qtype]
    raw = rng.integers(0, 256, size=(rows * cols // block, size), dtype=np.uint8)
    d_at, min_at, ratio = _HALVES[qtype]
    d = scale * rng.uniform(0.5, 1.5, size=(len(raw), 1))
    raw[:, d_at : d_at + 2] = d.astype(np.float16).view(np.uint8)
    if min_at is not None:
        raw[:, min_at : min_at + 2] = (d * ratio).astype(np.float16).view(np.uint8)
    return raw.reshape(rows, -1)


@lru_cache
def _unit_std(qtype: QT) -> float:
    """Standard deviation of the weights of random blocks of scale 1 / 64."""
    blocks = _random_blocks(np.random.default_rng(0), qtype, 64, 256, 1 / 64)
    return float(gguf.dequantize(blocks, qtype).std()) * 64


def matrix(rng: np.random.Generator, fmt: str, rows: int, cols: int, std: float) -> np.ndarray:
    """Random weights as GGUF stores them: (rows, cols) floats or (rows, bytes per row) uint8."""
    qtype = QT[fmt]
    if qtype in _HALVES:
        return _random_blocks(rng, qtype, rows, cols, std / _unit_std(qtype))
    weights = rng.standard_normal((rows, cols), dtype=np.float32) * np.float32(std)
    return gguf.quantize(weights, qtype)


def shape_of(arch: str, *formats: str) -> Shape:
    """n_embd is 64, or 256 where a format's blocks are that wide."""
    row = ARCHS[arch]
    n_embd = 256 if any(gguf.GGML_QUANT_SIZES[QT[fmt]][0] == 256 for fmt in formats) else 64
    head_dim = int(n_embd * row.head_share) // Shape.n_head
    n_ff = n_embd if row.n_expert else 2 * n_embd
    return Shape(n_embd=n_embd, n_layer=row.n_layer, n_ff=n_ff, n_head_kv=row.n_head_kv, head_dim=head_dim)


def _attention_shapes(row: Arch, s: Shape) -> dict[str, tuple[int, ...]]:
    q, kv = s.n_head * s.head_dim, s.n_head_kv * s.head_dim
    parts: dict[str, tuple[int, ...]] = {}
    separate = {"attn_q": q, "attn_k": kv, "attn_v": kv}
    for name, rows in ({"attn_qkv": q + 2 * kv} if "qkv" in row.fused else separate).items():
        parts[f"{name}.weight"] = (rows, s.n_embd)
        if row.qkv_bias:
            parts[f"{name}.bias"] = (rows,)
    for name, n_head in (("q", s.n_head), ("k", s.n_head_kv)):
        dims = {"head": (s.head_dim,), "heads": (n_head, s.head_dim), "row": (n_head * s.head_dim,)}
        if row.qk_norm:
            parts[f"attn_{name}_norm.weight"] = dims[row.qk_norm]
    if row.sinks:
        parts["attn_sinks.weight"] = (s.n_head,)
    return parts | {"attn_output.weight": (s.n_embd, q)}


def _feed_forward_shapes(row: Arch, s: Shape) -> dict[str, tuple[int, ...]]:
    matrices: dict[str, tuple[int, ...]] = {"ffn_up": (s.n_ff, s.n_embd), "ffn_down": (s.n_embd, s.n_ff)}
    if "gate_up" in row.fused:
        matrices["ffn_up"] = (2 * s.n_ff, s.n_embd)
    elif row.gated:
        matrices = {"ffn_gate": (s.n_ff, s.n_embd)} | matrices
    if not row.n_expert:
        return {f"{name}.weight": dims for name, dims in matrices.items()}
    parts: dict[str, tuple[int, ...]] = {"ffn_gate_inp.weight": (row.n_expert, s.n_embd)}
    for name, dims in matrices.items():
        parts[f"{name}_exps.weight"] = (row.n_expert, *dims)
        if row.expert_biases:
            parts[f"{name}_exps.bias"] = (row.n_expert, dims[0])
    if row.shared_expert:
        parts |= {f"{name}_shexp.weight": dims for name, dims in matrices.items()}
        parts["ffn_gate_inp_shexp.weight"] = (s.n_embd,)
    return parts


def tensor_shapes(arch: str, shape: Shape, n_vocab: int, tied: bool) -> dict[str, tuple[int, ...]]:
    """Name -> (experts, rows, cols) or (rows, cols) of matrices and (n,) of vectors, in file order."""
    row, s = ARCHS[arch], shape
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (n_vocab, s.n_embd)}
    if row.positions:
        shapes["position_embd.weight"] = (N_POSITIONS, s.n_embd)
    norms = [*row.pre_norms, *(("post_attention_norm", "post_ffw_norm") if row.post_norms else ())]
    for layer in range(s.n_layer):
        parts = {f"{name}.weight": (s.n_embd,) for name in norms}
        matrices = _attention_shapes(row, s) | _feed_forward_shapes(row, s)
        for name, dims in matrices.items():
            parts[name] = dims
            if row.biases and len(dims) == 2 and "qkv" not in name and name.endswith(".weight"):
                parts.setdefault(name.replace(".weight", ".bias"), dims[:1])
        if row.norm_bias:
            parts |= {f"{name}.bias": (s.n_embd,) for name in norms}
        shapes |= {f"blk.{layer}.{name}": dims for name, dims in parts.items()}
    shapes["output_norm.weight"] = (s.n_embd,)
    if row.norm_bias:
        shapes["output_norm.bias"] = (s.n_embd,)
    if not tied:
        shapes["output.weight"] = (n_vocab, s.n_embd)
    return shapes


def _tensor(rng: np.random.Generator, name: str, dims: tuple[int, ...], fmt: str) -> tuple[np.ndarray, QT]:
    if name.endswith(".bias"):
        return rng.standard_normal(dims, dtype=np.float32) * np.float32(0.1), QT.F32
    if len(dims) == 1 or "_norm" in name:
        # Layers must outweigh the embedding, or a tied model only repeats its last token.
        mean = 3 if ".post_" in name else 1
        return mean + rng.standard_normal(dims, dtype=np.float32) * np.float32(0.1), QT.F32
    cols = dims[-1]
    # Embeddings are the output matrix too where tied; logits then have a standard deviation of about 2.
    std = (2 if name in ("token_embd.weight", "output.weight") else 1) * cols**-0.5
    if "ffn_gate_inp" in name or name == "position_embd.weight":  # never quantized
        fmt = "F32"
    data = matrix(rng, fmt, int(np.prod(dims[:-1])), cols, std)
    return data.reshape(*dims[:-1], -1), QT[fmt]


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """Adds a key with the type that real files give it; numpy scalars and arrays keep their own."""
    if isinstance(value, np.ndarray):
        writer.add_key_value(key, value.tolist(), VT.ARRAY, VT[value.dtype.name.upper()])
    elif isinstance(value, np.generic):
        writer.add_key_value(key, value.item(), VT[value.dtype.name.upper()])
    elif isinstance(value, list):
        writer.add_key_value(key, value, VT.ARRAY)
    elif isinstance(value, int) and not isinstance(value, bool):
        writer.add_key_value(key, value, VT.UINT32 if value >= 0 else VT.INT32)
    else:
        writer.add_key_value(key, value, VT.get_type(value))


def write(
    path: str | Path,
    arch: str = "llama",
    format: str = "F32",
    *,
    vocab: str | None = "bpe",
    shape: Shape | None = None,
    seed: int = 0,
    n_ctx: int = 256,
    tied: bool = True,
    n_layer: int | None = None,
    formats: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    drop: Collection[str] = (),
    reshape: Mapping[str, tuple[int, ...]] | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
    edit: Callable[[str, np.ndarray], np.ndarray] | None = None,
    tensors_per_shard: int = 0,
) -> Path:
    """Writes the model and returns `path` (the first shard's path where it is split).

    `shape`: other sizes than `shape_of` says.
    `vocab`: "bpe" (ChatML template, about 300 tokens), "spm", or None for a model without a tokenizer.
    `formats`: formats of single tensors by name. `metadata`: full keys; a value of None removes the key.
    `reshape`: tensor name -> (rows, cols) or (n,). `extra`: further tensors, as they are.
    `edit`: (name, values as stored) -> the values to write.
    `tensors_per_shard` > 0 splits the model like llama.cpp's gguf-split.
    """
    path, row = Path(path), ARCHS[arch]
    name = row.name or arch
    shape = shape or shape_of(arch, format, *(formats or {}).values())
    if n_layer is not None:
        shape = replace(shape, n_layer=n_layer)
    tokenizer = {"bpe": bpe_vocab, "spm": spm_vocab, None: dict}[vocab]()
    n_vocab = len(tokenizer.get("tokenizer.ggml.tokens", range(300)))
    norm = "layer_norm" if row.layer_norm else "layer_norm_rms"
    below: dict[str, Any] = {
        "context_length": N_POSITIONS if row.positions else n_ctx,
        "embedding_length": shape.n_embd,
        "block_count": shape.n_layer,
        "feed_forward_length": shape.n_ff,
        "attention.head_count": shape.n_head,
        "attention.head_count_kv": shape.n_head_kv,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        f"attention.{norm}_epsilon": 1e-6,
        "rope.freq_base": 10000.0,
        **(row.metadata or {}),
    }
    keys: dict[str, Any] = {
        "general.name": f"tiny {arch} {format}",
        **{f"{name}.{key}": value for key, value in below.items()},
        **tokenizer,
        **(metadata or {}),
    }
    alignment = keys.pop("general.alignment", None)
    writer = gguf.GGUFWriter(path, name, split_max_tensors=tensors_per_shard)
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    for key, value in keys.items():
        if value is None or key == "general.architecture":
            writer.kv_data[0].pop(key, None)
        if value is not None:
            _add(writer, key, value)

    rng = np.random.default_rng(seed)
    for tensor, dims in tensor_shapes(arch, shape, n_vocab, tied).items():
        dims = (reshape or {}).get(tensor, dims)
        data, qtype = _tensor(rng, tensor, dims, (formats or {}).get(tensor, format))
        if edit:
            data = edit(tensor, data)
        if tensor not in drop:
            writer.add_tensor(tensor, data, raw_dtype=qtype)
    for tensor, data in (extra or {}).items():
        writer.add_tensor(tensor, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    first = writer.format_shard_names(path)[0]
    writer.close()
    return first
