"""Damaged, wrong and odd model files, loaded whole: an error with a hint or finite logits, never a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from numpy.typing import NDArray

from pyllamacpp import Llama, _core
from pyllamacpp.errors import (
    MemoryLimitError,
    MissingTensorError,
    ModelFileError,
    ParameterError,
    PyllamacppError,
    TensorShapeError,
    UnsupportedModelError,
)

IDS = ((np.arange(40) * 37 + 11) % 290).astype(np.int32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.gguf"


def logits(path: Path, isa: str = "") -> NDArray[np.float32]:
    model = _core.Model(_core.GgufFile(path), n_threads=1, isa=isa)
    return _core.Session(model, len(IDS)).eval(IDS, "all")


def refuse(path: Path, kind: type[PyllamacppError], *words: str) -> None:
    with pytest.raises(kind) as caught:
        Llama(path, verbose=False, n_threads=1)
    assert caught.type is kind and caught.value.hint
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_truncated_at_every_64_bytes(path: Path) -> None:
    whole = tiny.write(path, "llama", "Q4_0", n_layer=1).read_bytes()
    for n in range(0, len(whole), 64):
        path.write_bytes(whole[:n])
        refuse(path, ModelFileError)


@pytest.mark.parametrize(
    "content",
    [
        b"<!DOCTYPE html><html>Not found</html>",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        b"\x02\x00\x00\x00\x00\x00\x00\x00{}" + bytes(64),
        b"tjgg" + bytes(64),
        b"GGUF\x04\x00\x00\x00" + bytes(64),
        b"GGUF\x00\x00\x00\x03" + bytes(64),
        b"",
        bytes(4096),
    ],
)
def test_other_files(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    refuse(path, ModelFileError)


def test_each_misshapen_tensor(path: Path) -> None:
    shapes = tiny.tensor_shapes("qwen3", tiny.shape_of("qwen3", "F32"), 300, tied=False)
    for name, dims in shapes.items():
        if not name.startswith("blk.1."):
            wrong = (dims[0] + 2, *dims[1:])
            tiny.write(path, "qwen3", vocab=None, tied=False, reshape={name: wrong})
            # The output and the embedding disagree: either may be the wrong one.
            named = "weight" if name == "token_embd.weight" else name
            with pytest.raises(TensorShapeError, match=f"{named}.*{dims[0]}.*{wrong[0]}|token_embd|output"):
                logits(path)


@pytest.mark.parametrize("arch", tiny.ARCHS)
def test_each_missing_tensor(path: Path, arch: str) -> None:
    for name in tiny.tensor_shapes(arch, tiny.shape_of(arch, "F32"), 300, tied=True):
        if not name.startswith("blk.0.") and name.split(".", 2)[-1] not in tiny.ARCHS[arch].optional:
            tiny.write(path, arch, vocab=None, drop={name})
            with pytest.raises(MissingTensorError, match=name) as caught:
                logits(path)
            assert caught.value.hint


KEYS = (
    *("context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count"),
    *("attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.dimension_count"),
    *("attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.freq_base_swa", "rope.scaling.factor"),
    *("rope.scaling.type", "rope.scaling.original_context_length", "rope.scaling.attn_factor"),
    *("rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "attention.sliding_window"),
    *("attention.sliding_window_pattern", "embedding_scale", "attention.scale", "attn_logit_softcapping"),
    *("final_logit_softcapping", "expert_count", "attention.causal"),
)
VALUES: tuple[Any, ...] = (
    *(None, 0, 1, -1, 2**32 - 1, np.uint64(2**64 - 1), np.int64(-(2**63)), 1.5, 1e-30, np.float64(1e-300)),
    *(np.float64(1e300), float("nan"), float("inf"), "x", True, [4, 4], [1, 2], ["a"]),
)


@pytest.mark.parametrize("key", KEYS)
def test_any_value_of_any_key(path: Path, key: str) -> None:
    yarn = {"gemma3.rope.scaling.type": "yarn", "gemma3.rope.scaling.factor": 4.0}
    for value in VALUES:
        tiny.write(path, "gemma3", vocab=None, metadata={**yarn, f"gemma3.{key}": value})
        try:
            _core.plan_context(_core.GgufFile(path))
            assert np.isfinite(logits(path)).all(), value
        except ModelFileError as error:
            assert error.hint and str(error), value


@pytest.mark.parametrize(
    ("metadata", "kind", "word"),
    [
        ({"attention.layer_norm_rms_epsilon": None}, ModelFileError, "epsilon is missing"),
        ({"attention.head_count": None}, ModelFileError, "head_count is missing"),
        ({"attention.head_count": 4.5}, ModelFileError, "not a whole number"),
        ({"attention.head_count_kv": 3}, ModelFileError, "evenly"),
        ({"rope.scaling.factor": 1e-20}, ModelFileError, "outside"),
        ({"rope.freq_base": 1.0}, ModelFileError, "outside"),
        ({"block_count": 1}, UnsupportedModelError, "blk.1"),
        ({"block_count": 3}, MissingTensorError, "blk.2"),
        ({"expert_count": 8}, ModelFileError, "expert_used_count is missing"),
        ({"attention.causal": False}, UnsupportedModelError, "text encoder"),
        ({"rope.scaling.type": "longrope"}, MissingTensorError, "rope_factors_short"),
    ],
)
def test_keys_that_decide(
    path: Path, metadata: dict[str, Any], kind: type[PyllamacppError], word: str
) -> None:
    tiny.write(path, metadata={f"llama.{key}": value for key, value in metadata.items()})
    refuse(path, kind, word)


def test_a_tensor_without_use_is_refused(path: Path) -> None:
    tiny.write(path, extra={"blk.0.attn_q_a.weight": np.ones(4, np.float32)})
    refuse(path, UnsupportedModelError, "blk.0.attn_q_a.weight")
    plain = logits(tiny.write(path))
    tiny.write(path, extra={"blk.0.attn_rot_embd.weight": np.ones(8, np.float32)})  # of early files: derived
    assert (logits(path) == plain).all()


def test_rope_factors(path: Path) -> None:
    plain = logits(tiny.write(path))
    assert (logits(tiny.write(path, extra={"rope_freqs.weight": np.ones(8, np.float32)})) == plain).all()
    for bad in (0, -1, np.nan, np.inf):
        tiny.write(path, extra={"rope_freqs.weight": np.array([1] * 7 + [bad], np.float32)})
        refuse(path, ModelFileError, "rope_freqs.weight")
    tiny.write(path, extra={"rope_freqs.weight": np.ones(7, np.float32)})
    refuse(path, TensorShapeError, "rope_freqs.weight", "8", "7")


def test_more_tokens_than_rows(path: Path) -> None:
    n = len(tiny.bpe_vocab()["tokenizer.ggml.tokens"])
    tiny.write(path, reshape={"token_embd.weight": (n - 1, 64)})
    refuse(path, TensorShapeError, str(n), str(n - 1))


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_window_of_an_architecture_without_windows(path: Path, arch: str) -> None:
    plain = logits(tiny.write(path, arch))
    assert (logits(tiny.write(path, arch, metadata={f"{arch}.attention.sliding_window": 4})) == plain).all()


def test_window_of_gemma3(path: Path) -> None:
    plain = logits(tiny.write(path, "gemma3"))
    windowed = logits(tiny.write(path, "gemma3", metadata={"gemma3.attention.sliding_window": 4}))
    assert (windowed[:4] == plain[:4]).all() and (windowed[4:] != plain[4:]).any()


def test_attention_factor_without_scaling(path: Path) -> None:
    """It multiplies q and k: the same as its square on their product."""
    factor = logits(tiny.write(path, metadata={"llama.rope.scaling.attn_factor": 1.5}))
    scale = logits(tiny.write(path, metadata={"llama.attention.scale": 1.5**2 / 16**0.5}))
    np.testing.assert_allclose(factor, scale, atol=0.05)  # keys are kept as f16
    assert np.abs(factor - logits(tiny.write(path))).max() > 0.1


@pytest.mark.parametrize("fmt", tiny.FORMATS)
def test_embedding_formats_on_every_level(path: Path, fmt: str) -> None:
    """In panels where tied, in the file where not."""
    for tied in (True, False):
        tiny.write(path, "llama", "Q5_0", formats={"token_embd.weight": fmt}, vocab=None, tied=tied)
        rows = {level: logits(path, level) for level in _core.cpu_info()["levels"]}
        assert all(np.isfinite(row).all() for row in rows.values())
        rows.pop("baseline", None)
        assert all((row == next(iter(rows.values()))).all() for row in rows.values())


def test_level_and_threads_out_of_range(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _core.GgufFile(tiny.write(path))
    for n in (-1, 1025, 2**31 - 1):
        with pytest.raises(ParameterError, match="n_threads"):
            _core.Model(file, n_threads=n)
    assert _core.Model(file, n_threads=64).n_threads == 64
    with pytest.raises(ParameterError, match="avx9"):
        _core.Model(file, isa="avx9")
    monkeypatch.setenv("PYLLAMACPP_ISA", "avx9")
    refuse(path, ParameterError, "PYLLAMACPP_ISA", "avx9", _core.levels()[0])


def test_context_plans(path: Path) -> None:
    file = _core.GgufFile(tiny.write(path, n_ctx=1 << 20))
    plan = _core.plan_context(file)
    per_token = plan["kv_bytes_per_token"]
    assert per_token == 2 * 2 * (16 + 16) * 2  # layers, heads, dims of k and v, bytes
    left = plan["available"] - plan["reserve"] - plan["weight_bytes"]
    assert plan["n_ctx"] == min(1 << 20, left // per_token // 64 * 64)
    assert plan["total_bytes"] <= plan["available"]
    with pytest.raises(ParameterError):
        _core.plan_context(file, 0)


def test_a_context_that_cannot_fit(path: Path) -> None:
    huge = {"llama.attention.head_count": 2048, "llama.attention.head_count_kv": 2048}
    tiny.write(
        path, metadata={**huge, "llama.attention.key_length": 512, "llama.attention.value_length": 512}
    )
    with pytest.raises(MemoryLimitError, match=r"1000000 tokens needs 8000000 MiB of KV cache.*available"):
        _core.plan_context(_core.GgufFile(path), 1_000_000)
