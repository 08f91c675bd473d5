"""The model builder that other tests stand on."""

from __future__ import annotations

import time
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny


@pytest.mark.parametrize("fmt", tiny.FORMATS)
@pytest.mark.parametrize("arch", tiny.ARCHS)
def test_models_are_quick_finite_and_scaled(tmp_path: Path, arch: str, fmt: str) -> None:
    start = time.perf_counter()
    path = tiny.write(tmp_path / "a.gguf", arch, fmt, tied=False)
    assert time.perf_counter() - start < 1
    for tensor in gguf.GGUFReader(path).tensors:
        weights = gguf.dequantize(tensor.data, tensor.tensor_type)
        assert np.isfinite(weights).all()
        is_norm, is_router = "_norm" in tensor.name, "ffn_gate_inp" in tensor.name
        if weights.ndim >= 2 and not (is_norm or tensor.name.endswith("bias")):
            wanted = 2 if tensor.name in ("token_embd.weight", "output.weight") else 1
            assert tensor.tensor_type.name == ("F32" if is_router or "position" in tensor.name else fmt)
            assert abs(weights.std() * weights.shape[-1] ** 0.5 / wanted - 1) < 0.2
            assert abs(weights.mean()) < 0.2 * weights.std()


def test_arguments_decide_the_bytes(tmp_path: Path) -> None:
    first, again, other = (tmp_path / name for name in ("a.gguf", "b.gguf", "c.gguf"))
    for path, seed in ((first, 1), (again, 1), (other, 2)):
        tiny.write(path, "qwen3", "Q5_K", seed=seed)
    assert first.read_bytes() == again.read_bytes() != other.read_bytes()
    assert first.stat().st_size == other.stat().st_size


def test_broken_and_odd_models(tmp_path: Path) -> None:
    path = tiny.write(
        tmp_path / "odd.gguf",
        "llama",
        "Q8_0",
        vocab="spm",
        metadata={
            "llama.context_length": np.uint64(77),
            "tokenizer.chat_template": None,
            "general.architecture": "x",
        },
        drop={"blk.1.ffn_up.weight"},
        reshape={"output_norm.weight": (7,), "blk.0.attn_q.weight": (5, 32)},
        formats={"token_embd.weight": "Q6_K"},
        extra={"extra": np.arange(6, dtype=np.int16).reshape(2, 3)},
    )
    reader = gguf.GGUFReader(path)
    tensors = {t.name: t for t in reader.tensors}
    assert "blk.1.ffn_up.weight" not in tensors
    assert tensors["output_norm.weight"].shape.tolist() == [7]
    assert tensors["blk.0.attn_q.weight"].shape.tolist() == [32, 5]
    assert tensors["extra"].data.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tensors["token_embd.weight"].tensor_type.name == "Q6_K"
    assert "tokenizer.chat_template" not in reader.fields
    assert reader.fields["general.architecture"].contents() == "x"
    assert reader.fields["llama.context_length"].types == [gguf.GGUFValueType.UINT64]
    assert reader.fields["tokenizer.ggml.model"].contents() == "llama"
