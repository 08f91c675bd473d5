"""Attention over every type of KV cache: against float64 over what pages hold, each type's error, and `==`
however the work is cut. What holds for the usual f16 alone is in test_attention.py."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from test_attention import FUSED, bits, make
from test_attention import exact as exact_over

from pyllamacpp import _core, errors

LEVELS = _core.levels()
BEST = LEVELS[-1]
TYPES = list(_core.kv_types())
CODES = ["i16", "q8_0"]
PAIRS = list(itertools.product(TYPES, TYPES))

# (n_head, n_head_kv, head_dim_k, head_dim_v): grouped heads, sizes that fill no register, no group of 32
SHAPES = [(1, 1, 8, 8), (3, 3, 24, 40), (8, 2, 64, 64), (4, 4, 80, 112), (4, 1, 256, 256), (1, 1, 512, 512)]


def cache(
    level: str, q: np.ndarray, k: np.ndarray, v: np.ndarray, types: tuple[str, str], n_threads: int = 1
) -> _core.KvAttention:
    pages = _core.KvAttention(
        level, n_head=q.shape[1], n_head_kv=k.shape[1], head_dim_k=k.shape[2], head_dim_v=v.shape[2],
        n_positions=len(k), n_threads=n_threads, type_k=types[0], type_v=types[1],
    )  # fmt: skip
    pages.store(0, k, v)
    return pages


def held(x: np.ndarray, kv_type: str, *, keys: bool) -> np.ndarray:
    """x (n, heads, dim) as the pages hold it, in float64."""
    x = x.astype(np.float32)
    if kv_type == "f32":
        return x.astype(np.float64)
    if kv_type == "f16":
        return x.astype(np.float16).astype(np.float64)
    if kv_type == "bf16":
        words = x.view(np.uint32)
        return ((words + 0x7FFF + (words >> 16 & 1)) >> 16 << 16).view(np.float32).astype(np.float64)
    if kv_type == "i16":
        x = x.astype(np.float64)
        top = np.abs(x).max(axis=-1, keepdims=True)
        norm = np.linalg.norm(x, axis=-1, keepdims=True)
        step = np.maximum(norm / 46300, top / 32767) if keys else top / 8190
    else:
        groups = np.pad(x, [(0, 0), (0, 0), (0, -x.shape[2] % 32)]).reshape(*x.shape[:2], -1, 32)
        step = (np.abs(groups).max(axis=-1) / np.float32(127)).astype(np.float16)
        step = np.repeat(step.astype(np.float64), 32, axis=-1)[..., : x.shape[2]]
    safe = np.where(step > 0, step, 1)
    # Clipped: a tiny step of f16 may be so far from the right one that codes end before x.
    codes = np.clip(np.rint(x / safe), -127, 127) if kv_type == "q8_0" else np.rint(x / safe)
    return np.where(step > 0, codes * safe, 0)


def exact(q: np.ndarray, k: np.ndarray, v: np.ndarray, *rest: Any) -> np.ndarray:
    return exact_over(q, k, v, *rest, stored=np.float64)


def distance(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


# Beyond what storing costs: floats round in the last bits of float32, codes round queries and p to 16 bits.
def own_error(types: tuple[str, str]) -> float:
    return 3e-4 if set(types) & set(CODES) else 3e-6


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("types", PAIRS, ids="-".join)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(level: str, types: tuple[str, str], shape: tuple[int, int, int, int]) -> None:
    q, k, v = make(130, *shape)
    scale = shape[2] ** -0.5
    got = cache(level, q, k, v, types, n_threads=2).attention(q, 0, scale=scale)
    want = exact(q, held(k, types[0], keys=True), held(v, types[1], keys=False), scale)
    assert distance(got, want) < own_error(types)


@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize("window", [0, 1, 64, 300])
@pytest.mark.parametrize("softcap", [0.0, 1.5])
@pytest.mark.parametrize("with_sinks", [False, True])
def test_window_softcap_and_sinks(kv_type: str, window: int, softcap: float, with_sinks: bool) -> None:
    q, k, v = make(550, 4, 2, 40, 24, seed=3)
    sinks = np.array([-200.0, -1.0, 2.0, 200.0], np.float32) if with_sinks else None
    types = (kv_type, kv_type)
    want = exact(q, held(k, kv_type, keys=True), held(v, kv_type, keys=False), 0.25, softcap, window, sinks)
    for level in LEVELS:
        pages = cache(level, q, k, v, types)
        got = pages.attention(q, 0, scale=0.25, softcap=softcap, window=window, sinks=sinks)
        assert distance(got, want) < own_error(types)


@pytest.mark.parametrize("types", PAIRS, ids="-".join)
@pytest.mark.parametrize("shape", [(8, 2, 64, 64), (3, 1, 40, 80)], ids=str)
def test_a_row_alone_equals_itself_in_any_batch(
    types: tuple[str, str], shape: tuple[int, int, int, int]
) -> None:
    """Any cut, any number of threads, any fused level, and pages that are shuffled otherwise."""
    n = 530
    q, k, v = make(n, *shape)
    whole = cache(BEST, q, k, v, types).attention(q, 0, scale=0.2, window=290)
    longer = [np.concatenate([x, np.zeros_like(x)]) for x in (k, v)]
    for level in FUSED:
        caches = [cache(level, q, k, v, types), cache(level, q, *longer, types, n_threads=2)]
        for size, first, pages in itertools.product((1, 2, 7, 64), (0, 255, n - 64), caches):
            part = pages.attention(q[first : first + size], first, scale=0.2, window=290)
            assert (bits(part) == bits(whole[first : first + size])).all(), (level, size, first)


@pytest.mark.parametrize("kv_type", TYPES)
def test_decoding_equals_one_prefill(kv_type: str) -> None:
    n = 150
    q, k, v = make(n, 4, 2, 48, 48)
    types = (kv_type, kv_type)
    whole = cache(BEST, q, k, v, types).attention(q, 0, scale=0.3)
    growing = cache(BEST, q, np.zeros_like(k), np.zeros_like(v), types, n_threads=2)
    for pos in range(n):
        growing.store(pos, k[pos : pos + 1], v[pos : pos + 1])
        assert (bits(growing.attention(q[pos : pos + 1], pos, scale=0.3)) == bits(whole[pos : pos + 1])).all()


# Of the output, against float64 over the very keys and values.
ERRORS = {"f32": 3e-6, "f16": 1e-3, "bf16": 8e-3, "q8_0": 2.5e-2, "i16": 6e-4}


@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("outliers", [False, True])
def test_error_of_a_type(kv_type: str, dim: int, outliers: bool) -> None:
    q, k, v = make(700, 4, 1, dim, dim, seed=dim)
    if outliers:  # as models have them: a few channels that are always large
        k[..., 3] += 20
        k[..., dim - 5] -= 12
        v[..., 7] *= 8
    got = cache(BEST, q, k, v, (kv_type, kv_type)).attention(q, 0, scale=dim**-0.5)
    error = distance(got, exact(q, k, v, dim**-0.5))
    assert error < ERRORS[kv_type] * (4 if outliers else 1)
    if kv_type == "i16" and not outliers:
        halves = cache(BEST, q, k, v, ("f16", "f16")).attention(q, 0, scale=dim**-0.5)
        assert error < distance(halves, exact(q, k, v, dim**-0.5))


@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize("peak", [0.0, 5.0, 8.0, 11.0])
def test_long_flat_attention_with_one_peak(kv_type: str, peak: float) -> None:
    """Thousands of keys that weigh next to nothing each and much together, and one far heavier: no more may
    be lost of its page than half a 32767th a key. 8 bits would lose all of e^-8: 2 % of the page's weight."""
    n, dim = 4500, 64
    rng = np.random.default_rng(0)
    q = rng.standard_normal((1, 1, dim)).astype(np.float32)
    k = np.zeros((n, 1, dim), np.float32)
    k[4000] = q[0] * (peak / np.sum(q**2))
    v = np.ones((n, 1, dim), np.float32) + 0.1 * rng.standard_normal((n, 1, dim)).astype(np.float32)
    v[4000] = -1
    got = cache(BEST, np.repeat(q, n, axis=0), k, v, (kv_type, kv_type)).attention(q, n - 1, scale=1.0)
    want = exact(q, held(k, kv_type, keys=True), held(v, kv_type, keys=False), 1.0)
    assert distance(got, want) < (64 / 2 / 32767 if kv_type in CODES else 3e-6)


@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize("magnitude", [1e-38, 1e-30, 1e-6, 1e6, 1e30, 3e38])
def test_huge_and_tiny_numbers(kv_type: str, magnitude: float) -> None:
    """Finite results: nothing of a clamped token is infinite."""
    q, k, v = make(100, 2, 1, 40, 40)
    k[10], v[11] = (np.clip(x.astype(np.float64) * magnitude, -3.4e38, 3.4e38) for x in (k[10], v[11]))
    for level in LEVELS:
        with np.errstate(over="ignore"):
            got = cache(level, q, k, v, (kv_type, kv_type)).attention(q, 0, scale=1e-3)
        unseen = got[:10]
        clean = cache(level, q[:10], k[:10], v[:10], (kv_type, kv_type)).attention(q[:10], 0, scale=1e-3)
        assert (bits(unseen) == bits(clean)).all()
        if magnitude < 1e30 or kv_type in ("f16", *CODES):
            assert np.isfinite(got).all()


@pytest.mark.parametrize("kv_type", TYPES)
def test_zeros(kv_type: str) -> None:
    """A key of zeros scores 0, a value of zeros is one; a query of zeros weighs all keys alike."""
    q, k, v = make(200, 2, 1, 24, 24)
    q[150] = 0
    k[20:40] = 0
    v[30:50] = 0
    got = cache(BEST, q, k, v, (kv_type, kv_type)).attention(q, 0, scale=0.3)
    want = exact(q, held(k, kv_type, keys=True), held(v, kv_type, keys=False), 0.3)
    assert distance(got, want) < own_error((kv_type, kv_type))
    assert distance(got[150, 0], held(v, kv_type, keys=False)[:151, 0].mean(axis=0)) < 1e-3
    v[:] = 0
    assert not cache(BEST, q, k, v, (kv_type, kv_type)).attention(q, 0, scale=0.3).any()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dim", [8, 64, 512])
@pytest.mark.parametrize("spread", ["one channel", "all alike", "signs", "random"])
def test_codes_never_overflow(level: str, dim: int, spread: str) -> None:
    """Keys like their query, values at their largest, all weights alike: the largest sums there can be."""
    rng = np.random.default_rng(dim)
    x = {
        "one channel": np.eye(dim)[3],
        "all alike": np.ones(dim),
        "signs": rng.choice([-1.0, 1.0], dim),
        "random": rng.standard_normal(dim),
    }[spread].astype(np.float32)
    n = 64
    q = np.broadcast_to(x, (n, 1, dim)).copy()
    for sign in (1, -1):
        k, v = sign * q, np.full((n, 1, dim), sign * 7.0, np.float32)
        k[1::2] *= 0.5
        for kv_type in CODES:
            got = cache(level, q, k, v, (kv_type, kv_type)).attention(q, 0, scale=float(1 / (x @ x)))
            want = exact(q, held(k, kv_type, keys=True), held(v, kv_type, keys=False), float(1 / (x @ x)))
            np.testing.assert_allclose(got, want, rtol=1e-3)


@pytest.mark.parametrize("types", [(t, t) for t in TYPES] + [("q8_0", "f32"), ("f32", "i16")], ids="-".join)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["k", "v"])
def test_not_finite_reaches_only_rows_that_see_it(types: tuple[str, str], bad: float, where: str) -> None:
    n, at, window = 400, 150, 100
    q, k, v = make(n, 4, 2, 40, 40)
    clean = cache(BEST, q, k, v, types).attention(q, 0, scale=0.3, window=window)
    (k if where == "k" else v)[at, 1, 5] = bad
    hit = np.zeros((n, 4, 40), bool)
    hit[at : at + window, 2:] = True  # query heads 2 and 3 read KV head 1
    for level in FUSED:
        got = cache(level, q, k, v, types, n_threads=2).attention(q, 0, scale=0.3, window=window)
        assert np.isnan(got[hit]).all()
        assert (bits(got)[~hit] == bits(clean)[~hit]).all()


@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_not_finite_query_is_its_own_affair(kv_type: str, bad: float) -> None:
    q, k, v = make(70, 2, 1, 16, 16)
    types = (kv_type, kv_type)
    clean = cache(BEST, q, k, v, types).attention(q, 0, scale=0.3)
    q[33, 1, 3] = bad
    got = cache(BEST, q, k, v, types).attention(q, 0, scale=0.3)
    hit = np.zeros((70, 2, 16), bool)
    hit[33, 1] = True
    assert np.isnan(got[hit]).all()
    assert (bits(got)[~hit] == bits(clean)[~hit]).all()


@pytest.mark.parametrize("kv_type", TYPES)
def test_old_contents_of_a_page_do_not_matter(kv_type: str) -> None:
    q, k, v = make(300, 4, 2, 16, 16)
    types = (kv_type, kv_type)
    clean = cache(BEST, q, k, v, types).attention(q[:100], 0, scale=0.3)
    pages = cache(BEST, q, np.full_like(k, 1e4), np.full_like(v, np.nan), types)
    pages.store(0, k[:100], v[:100])
    assert (bits(pages.attention(q[:100], 0, scale=0.3)) == bits(clean)).all()


@pytest.mark.parametrize("kv_type", TYPES)
def test_one_key_gives_its_value(kv_type: str) -> None:
    """Rounded as numpy rounds it: floats exactly; codes but for the rounding of p, which is 1."""
    rng = np.random.default_rng(0)
    v = (rng.standard_normal((64, 1, 128)) * 10.0 ** rng.integers(-6, 4, (64, 1, 1))).astype(np.float32)
    q = k = np.ones((64, 1, 8), np.float32)
    want = held(v, kv_type, keys=False)
    for level in LEVELS:
        got = cache(level, q, k, v, (kv_type, kv_type)).attention(q, 0, scale=1.0, window=1)
        if kv_type in CODES:  # numpy may round what is nearly half a code the other way
            assert np.isclose(got, want, rtol=1e-6, atol=0).mean() > 0.999
            assert distance(got, want) < 1e-5
        else:
            assert (got == want).all()


@pytest.mark.parametrize("kv_type", TYPES)
def test_bytes_of_a_page(kv_type: str) -> None:
    """64 tokens of 2 heads of 96 + 80 numbers, values in whole 16s, and their scales."""
    size = {"f32": 4, "f16": 2, "bf16": 2, "i16": 2, "q8_0": 1}[kv_type]
    scales = {"i16": 4 + 4, "q8_0": 2 * (3 + 3)}.get(kv_type, 0)
    pages = _core.KvAttention(
        BEST, n_head=2, n_head_kv=2, head_dim_k=96, head_dim_v=72, n_positions=64,
        type_k=kv_type, type_v=kv_type,
    )  # fmt: skip
    assert pages.page_bytes == 64 * 2 * ((96 + 80) * size + scales)


def test_unknown_types_are_refused() -> None:
    with pytest.raises(errors.ParameterError, match="q4_0") as error:
        _core.KvAttention(
            BEST, n_head=1, n_head_kv=1, head_dim_k=8, head_dim_v=8, n_positions=1, type_k="q4_0"
        )
    assert all(kv_type in str(error.value) for kv_type in TYPES)
