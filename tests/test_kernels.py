"""Matrix products: every level this machine has, every format, awkward shapes, everything at its limit.

Every level but the baseline must give the bits of the scalar oracle, which works on the file's own blocks.
The baseline has no fused multiply-add: the same integers, so its floats differ in the last bits only.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from blocks import FORMATS, bits, block_weights, extreme_blocks, random_blocks
from hypothesis import given, settings
from hypothesis import strategies as st

from pyllamacpp import _core
from pyllamacpp.errors import ParameterError

LEVELS = _core.levels()
FUSED = [level for level in LEVELS if level != "baseline"]


def columns(name: str, blocks: int) -> int:
    weights = block_weights(name)
    return blocks * weights if weights > 1 else 7 * blocks


def tokens(n: int, cols: int, rng: np.random.Generator) -> np.ndarray:
    x = rng.standard_normal((n, cols), dtype=np.float32)
    x *= np.exp(rng.standard_normal(x.shape, dtype=np.float32))  # heavy tails
    x[:, ::5] *= 1e-4
    return x


def matmul(level: str, name: str, raw: np.ndarray, x: np.ndarray) -> np.ndarray:
    return _core.Panels(level, name, raw).matmul(x)


def check(level: str, name: str, raw: np.ndarray, x: np.ndarray) -> None:
    got, want = matmul(level, name, raw, x), _core.matmul_oracle(name, raw, x)
    if level in FUSED:
        assert np.array_equal(bits(got), bits(want))
    else:
        with np.errstate(all="ignore"):
            size = np.abs(_core.decode(name, raw).reshape(len(raw), -1)) @ np.abs(x).T
        assert np.all(np.abs(got - want) <= 1e-5 * size.T + 1e-30)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", FORMATS)
def test_awkward_shapes(level: str, name: str) -> None:
    rng = np.random.default_rng(3)
    for rows in (1, 3, 17, 32):
        for blocks in (1, 2, 5):
            cols = columns(name, blocks)
            raw = random_blocks(name, rows, cols, rng)
            for n in (1, 2, 5, 16):
                check(level, name, raw, tokens(n, cols, rng))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", FORMATS)
def test_one_token_is_many(level: str, name: str) -> None:
    """A token's product does not depend on how many others are computed beside it."""
    rng = np.random.default_rng(4)
    cols = columns(name, 3)
    raw, x = random_blocks(name, 17, cols, rng), tokens(46, cols, rng)
    alone = np.concatenate([matmul(level, name, raw, x[i : i + 1]) for i in range(len(x))])
    for n in [*range(2, 18), 29, 46]:
        assert np.array_equal(bits(matmul(level, name, raw, x[:n])), bits(alone[:n])), n


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", [f for f in FORMATS if block_weights(f) > 1])
def test_limits(level: str, name: str) -> None:
    """All codes and activations at their extremes: nothing saturates, nothing overflows."""
    rng = np.random.default_rng(5)
    cols = columns(name, 4)
    raw = extreme_blocks(name, 48, cols, rng)
    signs = rng.choice(np.array([-1, 1], np.float32), (4, cols))
    x = np.concatenate([np.ones((1, cols), np.float32), -np.ones((1, cols), np.float32), signs])
    check(level, name, raw, x)


@pytest.mark.parametrize("level", FUSED)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(FORMATS),
    rows=st.integers(1, 40),
    blocks=st.integers(1, 9),
    n=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shape(level: str, name: str, rows: int, blocks: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cols = columns(name, blocks)
    check(level, name, random_blocks(name, rows, cols, rng), tokens(n, cols, rng))


@pytest.mark.parametrize("name", FORMATS)
def test_close_to_the_float_product(name: str) -> None:
    """Against numpy in double precision: only the rounding of activations to 8 bits may be lost."""
    rng = np.random.default_rng(6)
    cols = columns(name, 8)
    raw = random_blocks(name, 32, cols, rng)
    x = rng.standard_normal((8, cols), dtype=np.float32)
    want = x.astype(np.float64) @ _core.decode(name, raw).reshape(32, cols).astype(np.float64).T
    error = np.linalg.norm(matmul(LEVELS[-1], name, raw, x) - want) / np.linalg.norm(want)
    assert error < (1e-6 if block_weights(name) == 1 else 0.02)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", FORMATS)
def test_the_residual_as_a_second_token_brings_16_bits(level: str, name: str) -> None:
    rng = np.random.default_rng(6)
    raw = random_blocks(name, 16, columns(name, 4), rng)
    panels = _core.Panels(level, name, raw)
    x = tokens(5, columns(name, 4), rng)
    rest = panels.residual(x)
    if block_weights(name) == 1:
        assert not rest.any()
        return
    block = np.abs(x).reshape(5, -1, 32).max(axis=2, keepdims=True)
    assert np.all(np.abs(rest).reshape(5, -1, 32) <= block / 127 * 0.5001)
    weights = _core.decode(name, raw).reshape(16, -1).astype(np.float64)
    size = np.abs(x.astype(np.float64)) @ np.abs(weights).T
    coarse = panels.matmul(x) - x.astype(np.float64) @ weights.T
    fine = coarse + panels.matmul(rest)
    assert np.all(np.abs(fine) <= 1e-4 * size)
    assert np.abs(fine).max() < np.abs(coarse).max() / 50


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e-38, 1e-44, 0.0])
def test_odd_activations_stay_in_their_row(level: str, value: float) -> None:
    rng = np.random.default_rng(7)
    for name in ("Q8_0", "Q4_K", "F32"):
        cols = columns(name, 2)
        raw, x = random_blocks(name, 3, cols, rng), tokens(3, cols, rng)
        x[1, cols // 2] = value
        got = matmul(level, name, raw, x)
        clean = matmul(level, name, raw, x[[0, 2]])
        assert np.array_equal(bits(got[[0, 2]]), bits(clean))
        if not np.isfinite(value):
            assert not np.isfinite(got[1]).any()
        elif level in FUSED:
            assert np.array_equal(bits(got), bits(_core.matmul_oracle(name, raw, x)))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", FORMATS)
def test_a_panel_holds_every_bit_of_the_file(level: str, name: str) -> None:
    rng = np.random.default_rng(8)
    for rows in (1, 16, 19):
        for blocks in (1, 3, 4):
            raw = random_blocks(name, rows, columns(name, blocks), rng)
            if block_weights(name) > 1:
                raw = rng.integers(0, 256, raw.shape, dtype=np.uint8)
            assert np.array_equal(_core.Panels(level, name, raw).unpack(), raw)


def test_bad_arguments_are_named() -> None:
    raw, x = np.zeros((2, 18), np.uint8), np.zeros((1, 32), np.float32)
    with pytest.raises(ParameterError, match="sse9") as error:
        matmul("sse9", "Q4_0", raw, x)
    assert all(level in error.value.hint for level in LEVELS)
    with pytest.raises(ParameterError, match=r"\(n, 32\)"):
        matmul(LEVELS[0], "Q4_0", raw, x[:, :31].copy())
    with pytest.raises(ParameterError, match="17 bytes"):
        matmul(LEVELS[0], "Q4_0", raw[:, :17].copy(), x)


def run_with_isa(value: str) -> subprocess.CompletedProcess[str]:
    code = "from pyllamacpp import _core; print(_core.cpu_info()['level'])"
    env = {**os.environ, "PYLLAMACPP_ISA": value, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)


def test_the_environment_forces_a_level() -> None:
    assert [run_with_isa(level).stdout.strip() for level in LEVELS] == LEVELS
    assert run_with_isa("").stdout.strip() == LEVELS[-1]
    wrong = run_with_isa("avx9000")
    assert wrong.returncode != 0
    assert "ParameterError" in wrong.stderr
    assert "avx9000" in wrong.stderr
    assert LEVELS[0] in wrong.stderr
