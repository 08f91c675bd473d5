"""The forward pass of llama, qwen2, qwen3 and gemma3 in numpy, from a GGUF file read by gguf-py: an oracle.

Everything is float64 and the whole prompt is one batch. `kv` rounds keys and values as a cache of that type
would, to tell a rounding difference from a mistake.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Array = np.ndarray


class Weights:
    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self.metadata = {name: field.contents() for name, field in reader.fields.items()}
        self.arch = self.metadata["general.architecture"]
        self.tensors = {
            t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors
        }

    def get(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(f"{self.arch}.{key}", default)

    def linear(self, x: Array, name: str) -> Array:
        """x @ W.T, plus the bias where the file has one."""
        y = x @ self.tensors[f"{name}.weight"].T
        bias = self.tensors.get(f"{name}.bias")
        return y if bias is None else y + bias

    def norm(self, x: Array, name: str) -> Array:
        """RMS norm over the last axis; the identity where the file has no such norm."""
        weight = self.tensors.get(f"{name}.weight")
        if weight is None:
            return x
        eps = self.get("attention.layer_norm_rms_epsilon")
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rope_angles(w: Weights, n_tokens: int, head_dim: int, local: bool) -> tuple[Array, float]:
    """(angles [n_tokens, n_rot / 2], factor of cos and sin)."""
    n_rot = w.get("rope.dimension_count", head_dim)
    base = w.get("rope.freq_base_swa", 10000.0) if local else w.get("rope.freq_base", 10000.0)
    pair = np.arange(n_rot // 2)
    frequency = float(base) ** (-2.0 * pair / n_rot)
    if "rope_freqs.weight" in w.tensors:
        frequency = frequency / w.tensors["rope_freqs.weight"]
    kind = "none" if local else w.get("rope.scaling.type", "none")
    factor = w.get("rope.scaling.factor", 1.0)
    magnitude = 1.0
    if kind == "linear":
        frequency = frequency / factor
    elif kind == "yarn":
        trained = w.get("rope.scaling.original_context_length")

        def pair_turning(turns: float) -> float:
            return n_rot * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

        low = max(0, math.floor(pair_turning(w.get("rope.scaling.yarn_beta_fast", 32.0))))
        high = min(n_rot - 1, math.ceil(pair_turning(w.get("rope.scaling.yarn_beta_slow", 1.0))))
        keep = 1 - np.clip((pair - low) / max(0.001, high - low), 0, 1)
        frequency = frequency / factor * (1 - keep) + frequency * keep
        magnitude = (1 + 0.1 * math.log(factor)) * w.get("rope.scaling.attn_factor", 1.0)
    return np.arange(n_tokens)[:, None] * frequency, magnitude


def rotate(x: Array, angles: Array, magnitude: float, interleaved: bool) -> Array:
    """x[n_tokens, heads, head_dim]; pairs are neighbours (llama) or half the rotated width apart."""
    n_rot = 2 * angles.shape[1]
    first = slice(0, n_rot, 2) if interleaved else slice(0, n_rot // 2)
    second = slice(1, n_rot, 2) if interleaved else slice(n_rot // 2, n_rot)
    cos, sin = np.cos(angles)[:, None] * magnitude, np.sin(angles)[:, None] * magnitude
    out = x.copy()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., second] * cos + x[..., first] * sin
    return out


def attention(q: Array, k: Array, v: Array, scale: float, window: int) -> Array:
    """q[n, n_head, d], k and v[n, n_head_kv, d] -> [n, n_head * d]; a window of 0 sees everything before."""
    n, n_head, _ = q.shape
    group = n_head // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) * scale
    distance = np.arange(n)[:, None] - np.arange(n)[None, :]
    hidden = (distance < 0) | ((distance >= window) if window else False)
    scores = np.where(hidden, -np.inf, scores)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", p / p.sum(-1, keepdims=True), v).reshape(n, -1)


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def forward(path: Path, tokens: Array, kv: Any = np.float64) -> Array:
    """Logits [n_tokens, n_vocab] of the model in `path` for token ids [n_tokens]."""
    w = Weights(path)
    gemma = w.arch == "gemma3"
    n = len(tokens)
    n_embd, n_head = w.get("embedding_length"), w.get("attention.head_count")
    n_head_kv = w.get("attention.head_count_kv", n_head)
    head_dim = w.get("attention.key_length", n_embd // n_head)
    window, period = w.get("attention.sliding_window", 0), w.get("attention.sliding_window_pattern", 6)
    activation = gelu_tanh if gemma else silu

    x = w.tensors["token_embd.weight"][tokens]
    if gemma:
        x = x * math.sqrt(n_embd)
    for layer in range(w.get("block_count")):
        b = f"blk.{layer}."
        local = gemma and (layer + 1) % period != 0
        h = w.norm(x, b + "attn_norm")
        q = w.norm(w.linear(h, b + "attn_q").reshape(n, n_head, head_dim), b + "attn_q_norm")
        k = w.norm(w.linear(h, b + "attn_k").reshape(n, n_head_kv, head_dim), b + "attn_k_norm")
        v = w.linear(h, b + "attn_v").reshape(n, n_head_kv, head_dim)
        rope = rope_angles(w, n, head_dim, local)
        q, k = (rotate(t, *rope, interleaved=w.arch == "llama") for t in (q, k))
        k, v = k.astype(kv).astype(np.float64), v.astype(kv).astype(np.float64)
        mixed = attention(q, k, v, head_dim**-0.5, window if local else 0)
        x = x + w.norm(w.linear(mixed, b + "attn_output"), b + "post_attention_norm")
        h = w.norm(x, b + "ffn_norm")
        h = activation(w.linear(h, b + "ffn_gate")) * w.linear(h, b + "ffn_up")
        x = x + w.norm(w.linear(h, b + "ffn_down"), b + "post_ffw_norm")
    x = w.norm(x, "output_norm")
    return w.linear(x, "output" if "output.weight" in w.tensors else "token_embd")
