"""Norms, rotary embedding and activations against float64; levels with fused multiply-add agree exactly."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from pyllamacpp import _core

# avxvnni and avx512vnni share the float kernels of avx2 and avx512
LEVELS = [level for level in _core.levels() if not level.endswith("vnni")]
FUSED = [level for level in LEVELS if level != "baseline"]
SIZES = [1, 15, 16, 17, 31, 576]

erf = np.vectorize(math.erf)


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_erf(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def softmax(x: np.ndarray) -> np.ndarray:
    p = np.exp(x - x.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def swiglu_oai(g: np.ndarray, u: np.ndarray) -> np.ndarray:
    g, u = np.minimum(g, 7), np.clip(u, -7, 7)
    return g / (1 + np.exp(-float(np.float32(1.702)) * g)) * (u + 1)


def rms_norm(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + S) * w


def layer_norm(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + S) * w + b


S = float(np.float32(0.37))
UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "silu": silu,
    "gelu_tanh": gelu_tanh,
    "gelu_erf": gelu_erf,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softmax": lambda x: softmax(x),
    "exp2": np.exp2,
    "scale": lambda x: x * S,
    "softcap": lambda x: S * np.tanh(x / S),
    "rms_norm": lambda x: rms_norm(x, np.ones(x.shape[-1])),
}
BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "silu_gate": lambda x, u: silu(x) * u,
    "gelu_tanh_gate": lambda x, u: gelu_tanh(x) * u,
    "gelu_erf_gate": lambda x, u: gelu_erf(x) * u,
    "swiglu_oai_gate": lambda x, u: swiglu_oai(x, u),
    "add": lambda x, y: x + y,
    "add_scaled": lambda x, y: x + S * y,
    "rms_norm": rms_norm,
}


def rows(n: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((5, n)) * 4).astype(np.float32)


def close(got: np.ndarray, want: np.ndarray, tolerance: float = 1e-6) -> None:
    """Relative where the value has a size of its own, absolute below 0.1 (cancellation, tails)."""
    np.testing.assert_array_less(np.abs(got - want), tolerance * np.maximum(np.abs(want), 0.1) + 1e-30)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("op", UNARY)
def test_unary(level: str, n: int, op: str) -> None:
    x = rows(n)
    close(_core.elementwise(level, op, x, s=S), UNARY[op](x.astype(np.float64)))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("op", BINARY)
def test_binary(level: str, n: int, op: str) -> None:
    x, y = rows(n), rows(n, seed=1)[0]
    got = _core.elementwise(level, op, x, y, s=S)
    # x + S y may cancel: its error is that of the terms
    close(got, BINARY[op](x.astype(np.float64), y.astype(np.float64)), 1e-5 if op.startswith("add") else 1e-6)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(level: str, n: int, affine: bool) -> None:
    x = rows(n) + np.float32(3)
    w, b = (rows(n, seed=1)[0], rows(n, seed=2)[0]) if affine else (None, None)
    got = _core.elementwise(level, "layer_norm", x, w, b, s=S)
    want = layer_norm(x.astype(np.float64), *((w, b) if affine else (np.ones(n), np.zeros(n))))
    close(got, want, 1e-5 if affine else 2e-6)  # w x + b may cancel


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("n", "n_rot"), [(8, 8), (16, 16), (64, 64), (80, 80), (96, 32), (128, 100), (30, 30), (16, 0)]
)
@pytest.mark.parametrize("kind", ["norm", "neox"])
def test_rope(level: str, n: int, n_rot: int, kind: str) -> None:
    x = rows(n)
    angles = np.random.default_rng(2).uniform(-4, 4, n_rot // 2)
    turn = np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)
    got = _core.elementwise(level, f"rope_{kind}", x, turn, n_rot=n_rot)
    assert (got[:, n_rot:] == x[:, n_rot:]).all()
    half = n_rot // 2
    a, b = (
        (slice(0, half), slice(half, n_rot)) if kind == "neox" else (slice(0, n_rot, 2), slice(1, n_rot, 2))
    )
    z = (x[:, a] + 1j * x[:, b].astype(np.float64)) * (turn[:, 0] + 1j * turn[:, 1].astype(np.float64))
    np.testing.assert_allclose(got[:, a], z.real, rtol=0, atol=2e-6)
    np.testing.assert_allclose(got[:, b], z.imag, rtol=0, atol=2e-6)


@pytest.mark.parametrize("level", LEVELS)
def test_exp2(level: str) -> None:
    x = np.linspace(-64, 127, 200_003, dtype=np.float32)[None]
    got = _core.elementwise(level, "exp2", x)
    exact = np.exp2(x.astype(np.float64))
    assert np.max(np.abs(got / exact - 1)) <= 1.5e-7
    assert (got == np.where(x == np.round(x), exact, got)).all()  # whole powers are exact
    edges = np.array(
        [[-np.inf, -1e30, -127, np.nextafter(np.float32(-64), np.float32(-200)), 128, np.inf]], np.float32
    )
    assert _core.elementwise(level, "exp2", edges).tolist() == [[0, 0, 0, 0, np.inf, np.inf]]
    assert np.isnan(_core.elementwise(level, "exp2", np.array([[np.nan]], np.float32))).all()


@pytest.mark.parametrize("level", LEVELS)
def test_relative_accuracy_on_the_small_side(level: str) -> None:
    """Near zero and in the negative tail the activations keep their leading digits."""
    tiny = np.geomspace(1e-30, 1e-3, 1001).astype(np.float32)[None]
    for op in ("silu", "gelu_tanh", "gelu_erf", "softcap"):
        exact = UNARY[op](tiny.astype(np.float64))
        assert np.max(np.abs(_core.elementwise(level, op, tiny, s=S) / exact - 1)) < 4e-7, op
    tail = np.linspace(-80, 0, 10_001, dtype=np.float32)[None, :-1]
    exact = silu(tail.astype(np.float64))
    assert np.max(np.abs(_core.elementwise(level, "silu", tail) / exact - 1)) < (
        4e-7 if level in FUSED else 1e-5
    )


@pytest.mark.parametrize("level", LEVELS)
def test_extremes(level: str) -> None:
    big = np.array([[-1e38, -1e5, 1e5, 1e38]], np.float32)
    for op in ("silu", "gelu_tanh", "gelu_erf"):
        got = _core.elementwise(level, op, big)
        assert (got[0, :2] == 0).all() and (got[0, 2:] == big[0, 2:]).all(), op
    np.testing.assert_allclose(
        _core.elementwise(level, "softcap", big, s=30.0), [[-30, -30, 30, 30]], rtol=1e-7
    )
    for op in (*UNARY, "layer_norm"):
        assert np.isnan(_core.elementwise(level, op, np.full((1, 20), np.nan, np.float32), s=S)).all(), op


@pytest.mark.parametrize("n", [*SIZES, 1000])
def test_levels_agree_exactly(n: int) -> None:
    x, a, b = rows(n), rows(n, seed=1)[0], rows(n, seed=2)[0]
    for op in (*UNARY, *BINARY, "layer_norm", "rope_norm", "rope_neox"):
        n_rot = n // 2 * 2
        second = a[:n_rot] if op.startswith("rope") else a if op in BINARY or op == "layer_norm" else None
        third = b if op == "layer_norm" else None
        got = [_core.elementwise(level, op, x, second, third, s=S, n_rot=n_rot) for level in FUSED]
        for other in got[1:]:
            assert (got[0].view(np.int32) == other.view(np.int32)).all(), op


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("op", ["silu", "gelu_tanh", "gelu_erf", "sigmoid", "softcap", "exp2"])
def test_position_in_the_row_does_not_matter(level: str, op: str) -> None:
    """An element handled by the tail gets the bits it gets in a full register."""
    x = rows(47)
    whole = _core.elementwise(level, op, x, s=S)
    assert (whole[:, 32:] == _core.elementwise(level, op, x[:, 32:].copy(), s=S)).all()
    assert (whole[:, 5:9] == _core.elementwise(level, op, x[:, 5:9].copy(), s=S)).all()
