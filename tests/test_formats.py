"""Scalar decoding of every tensor format: bit-equal to gguf-py."""

from __future__ import annotations

import numpy as np
import pytest
from blocks import FORMATS, bits, extreme_blocks, random_blocks
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from pyllamacpp import _core
from pyllamacpp.errors import ParameterError

INFO = {name: (gguf_id, weights, n_bytes) for name, gguf_id, weights, n_bytes in _core.formats()}


def test_the_list_of_formats_agrees_with_gguf_py() -> None:
    assert sorted(INFO) == sorted(FORMATS)
    for name, (gguf_id, weights, n_bytes) in INFO.items():
        assert GGMLQuantizationType(gguf_id).name == name
        assert GGML_QUANT_SIZES[GGMLQuantizationType(gguf_id)] == (weights, n_bytes)


def oracle(name: str, raw: np.ndarray) -> np.ndarray:
    return np.asarray(dequantize(raw, GGMLQuantizationType[name]), dtype=np.float32).reshape(-1)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("make", [random_blocks, extreme_blocks])
def test_decode_is_bit_equal_to_gguf_py(name: str, make) -> None:
    raw = make(name, 1, 200 * 256, np.random.default_rng(1))
    assert np.array_equal(bits(_core.decode(name, raw)), bits(oracle(name, raw)))


@pytest.mark.parametrize("name", [n for n in FORMATS if INFO[n][1] > 1])
def test_every_single_bit_means_what_gguf_py_says(name: str) -> None:
    """Each bit of one block flipped in turn, those of the scales too."""
    weights, n_bytes = INFO[name][1:]
    base = random_blocks(name, 1, weights, np.random.default_rng(2))
    flipped = np.repeat(base, 8 * n_bytes, axis=0)
    for i in range(8 * n_bytes):
        flipped[i, i // 8] ^= 1 << i % 8
    ours = _core.decode(name, flipped).reshape(len(flipped), weights)
    with np.errstate(all="ignore"):
        theirs = oracle(name, flipped).reshape(len(flipped), weights)
    finite = np.isfinite(theirs)
    assert np.array_equal(np.isfinite(ours), finite)
    assert np.array_equal(bits(ours)[finite], bits(theirs)[finite])


def test_decode_says_what_is_wrong() -> None:
    with pytest.raises(ParameterError, match="Q9_Z"):
        _core.decode("Q9_Z", np.zeros(18, np.uint8))
    with pytest.raises(ParameterError, match="19 bytes"):
        _core.decode("Q4_0", np.zeros(19, np.uint8))
