"""Writes tiny random GGUF models, any architecture and format, in well under a second.

    tiny.write(path, "qwen3", "Q4_K")

The same arguments give the same file. Weights are scaled so that logits are of order 1. To make broken or odd
models, `metadata` overrides or removes keys, `drop` leaves tensors out, `reshape` and `extra`
change or add tensors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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

    n_layer: int = 2
    head_share: float = 1.0  # n_head * head_dim / n_embd
    qkv_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False  # after attention and after the feed-forward
    metadata: Mapping[str, Any] | None = None  # keys below the architecture's name


# One row an architecture: the only place to extend.
ARCHS: dict[str, Arch] = {
    "llama": Arch(),
    "qwen2": Arch(qkv_bias=True, metadata={"rope.freq_base": 1e6}),
    "qwen3": Arch(qk_norm=True, head_share=2, metadata={"rope.freq_base": 1e6}),
    # 6 layers: the first five look at a window, the sixth at everything
    "gemma3": Arch(
        n_layer=6,
        qk_norm=True,
        post_norms=True,
        head_share=2,
        metadata={"rope.freq_base": 1e6, "attention.sliding_window": 32},
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
    return Shape(n_embd=n_embd, n_layer=row.n_layer, n_ff=2 * n_embd, head_dim=head_dim)


def tensor_shapes(arch: str, shape: Shape, n_vocab: int, tied: bool) -> dict[str, tuple[int, ...]]:
    """Name -> (rows, cols) of the matrices and (n,) of the vectors, in file order."""
    row, s = ARCHS[arch], shape
    q, kv = s.n_head * s.head_dim, s.n_head_kv * s.head_dim
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (n_vocab, s.n_embd)}
    for layer in range(s.n_layer):
        parts: dict[str, tuple[int, ...]] = {"attn_norm.weight": (s.n_embd,)}
        for name, rows in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
            parts[f"{name}.weight"] = (rows, s.n_embd)
            if row.qkv_bias:
                parts[f"{name}.bias"] = (rows,)
        if row.qk_norm:
            parts |= {"attn_q_norm.weight": (s.head_dim,), "attn_k_norm.weight": (s.head_dim,)}
        parts |= {"attn_output.weight": (s.n_embd, q), "ffn_norm.weight": (s.n_embd,)}
        if row.post_norms:
            parts |= {"post_attention_norm.weight": (s.n_embd,), "post_ffw_norm.weight": (s.n_embd,)}
        parts |= {"ffn_gate.weight": (s.n_ff, s.n_embd), "ffn_up.weight": (s.n_ff, s.n_embd)}
        parts |= {"ffn_down.weight": (s.n_embd, s.n_ff)}
        shapes |= {f"blk.{layer}.{name}": dims for name, dims in parts.items()}
    shapes["output_norm.weight"] = (s.n_embd,)
    if not tied:
        shapes["output.weight"] = (n_vocab, s.n_embd)
    return shapes


def _tensor(rng: np.random.Generator, name: str, dims: tuple[int, ...], fmt: str) -> tuple[np.ndarray, QT]:
    if name.endswith(".bias"):
        return rng.standard_normal(dims, dtype=np.float32) * np.float32(0.1), QT.F32
    if len(dims) != 2:
        # Layers must outweigh the embedding, or a tied model only repeats its last token.
        mean = 3 if ".post_" in name else 1
        return mean + rng.standard_normal(dims, dtype=np.float32) * np.float32(0.1), QT.F32
    rows, cols = dims
    # Embeddings are the output matrix too where tied; logits then have a standard deviation of about 2.
    std = (2 if name in ("token_embd.weight", "output.weight") else 1) * cols**-0.5
    return matrix(rng, fmt, rows, cols, std), QT[fmt]


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
    seed: int = 0,
    n_ctx: int = 256,
    tied: bool = True,
    n_layer: int | None = None,
    formats: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    drop: Collection[str] = (),
    reshape: Mapping[str, tuple[int, ...]] | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
    tensors_per_shard: int = 0,
) -> Path:
    """Writes the model and returns `path` (the first shard's path where it is split).

    `vocab`: "bpe" (ChatML template, about 300 tokens), "spm", or None for a model without a tokenizer.
    `formats`: formats of single tensors by name. `metadata`: full keys; a value of None removes the key.
    `reshape`: tensor name -> (rows, cols) or (n,). `extra`: further tensors, as they are.
    `tensors_per_shard` > 0 splits the model like llama.cpp's gguf-split.
    """
    path, row = Path(path), ARCHS[arch]
    shape = shape_of(arch, format, *(formats or {}).values())
    if n_layer is not None:
        shape = replace(shape, n_layer=n_layer)
    tokenizer = {"bpe": bpe_vocab, "spm": spm_vocab, None: dict}[vocab]()
    n_vocab = len(tokenizer.get("tokenizer.ggml.tokens", range(300)))
    keys: dict[str, Any] = {
        "general.name": f"tiny {arch} {format}",
        f"{arch}.context_length": n_ctx,
        f"{arch}.embedding_length": shape.n_embd,
        f"{arch}.block_count": shape.n_layer,
        f"{arch}.feed_forward_length": shape.n_ff,
        f"{arch}.attention.head_count": shape.n_head,
        f"{arch}.attention.head_count_kv": shape.n_head_kv,
        f"{arch}.attention.key_length": shape.head_dim,
        f"{arch}.attention.value_length": shape.head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-6,
        f"{arch}.rope.freq_base": 10000.0,
        **{f"{arch}.{key}": value for key, value in (row.metadata or {}).items()},
        **tokenizer,
        **(metadata or {}),
    }
    alignment = keys.pop("general.alignment", None)
    writer = gguf.GGUFWriter(path, arch, split_max_tensors=tensors_per_shard)
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    for key, value in keys.items():
        if value is None or key == "general.architecture":
            writer.kv_data[0].pop(key, None)
        if value is not None:
            _add(writer, key, value)

    rng = np.random.default_rng(seed)
    for name, dims in tensor_shapes(arch, shape, n_vocab, tied).items():
        dims = (reshape or {}).get(name, dims)
        data, qtype = _tensor(rng, name, dims, (formats or {}).get(name, format))
        if name not in drop:
            writer.add_tensor(name, data, raw_dtype=qtype)
    for name, data in (extra or {}).items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    first = writer.format_shard_names(path)[0]
    writer.close()
    return first
