"""Attention over KV pages: against float64, and `==` however the work is cut: a row's bits are its own."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyllamacpp import _core, errors

# avxvnni and avx512vnni share the float kernels of avx2 and avx512
LEVELS = [level for level in _core.levels() if not level.endswith("vnni")]
FUSED = [level for level in LEVELS if level != "baseline"]
BEST = LEVELS[-1]


def make(n: int, n_head: int, n_head_kv: int, d_k: int, d_v: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """q, k, v of n tokens; some scores are sharp, so that chunks differ in weight."""
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((n, n_head, d_k)) * rng.choice([0.5, 3.0], (n, n_head, 1))
    k, v = rng.standard_normal((n, n_head_kv, d_k)), rng.standard_normal((n, n_head_kv, d_v))
    return q.astype(np.float32), k.astype(np.float32), v.astype(np.float32)


def cache(level: str, q: np.ndarray, k: np.ndarray, v: np.ndarray, n_threads: int = 1) -> _core.KvAttention:
    pages = _core.KvAttention(
        level,
        n_head=q.shape[1],
        n_head_kv=k.shape[1],
        head_dim_k=k.shape[2],
        head_dim_v=v.shape[2],
        n_positions=len(k),
        n_threads=n_threads,
    )
    pages.store(0, k, v)
    return pages


def exact(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    scale: float,
    softcap: float = 0.0,
    window: int = 0,
    sinks: np.ndarray | None = None,
    *,
    stored: type[np.floating[Any]] = np.float16,
) -> np.ndarray:
    """Queries are the last len(q) tokens. float64 over what the pages hold: k and v as `stored`."""
    group, n, n_kv = q.shape[1] // k.shape[1], len(q), len(k)
    k, v = (np.repeat(x.astype(stored).astype(np.float64), group, axis=1) for x in (k, v))
    scores = np.einsum("qhd,khd->hqk", q.astype(np.float64), k) * scale
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    pos, key = np.arange(n_kv - n, n_kv)[:, None], np.arange(n_kv)[None]
    seen = (key <= pos) & ((key > pos - window) if window else True)
    scores = np.where(seen, scores, -np.inf)
    if sinks is not None:  # a first key that everyone sees, with a value of zeros
        column = np.broadcast_to(sinks[:, None, None].astype(np.float64), (*scores.shape[:2], 1))
        scores, v = np.concatenate([column, scores], axis=-1), np.concatenate([np.zeros_like(v[:1]), v])
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", p / p.sum(axis=-1, keepdims=True), v)


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert np.linalg.norm(got - want) <= 2e-6 * np.linalg.norm(want)
    assert np.max(np.abs(got - want)) <= 1e-5


def bits(x: np.ndarray) -> np.ndarray:
    return x.view(np.int32)


# (n_head, n_head_kv, head_dim_k, head_dim_v)
SHAPES = [
    (1, 1, 8, 8),
    (2, 1, 16, 16),
    (3, 3, 24, 40),
    (8, 2, 64, 64),
    (7, 1, 64, 64),
    (4, 4, 80, 80),
    (2, 2, 96, 96),
    (8, 1, 112, 112),
    (4, 1, 128, 128),
    (2, 1, 192, 128),
    (4, 1, 256, 256),
    (1, 1, 512, 512),
]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(level: str, shape: tuple[int, int, int, int]) -> None:
    q, k, v = make(300, *shape)
    scale = shape[2] ** -0.5
    got = cache(level, q, k, v, n_threads=2).attention(q, 0, scale=scale)
    close(got, exact(q, k, v, scale))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", [1, 2, 15, 63, 64, 65, 255, 256, 257, 511, 513, 700])
def test_lengths(level: str, n: int) -> None:
    q, k, v = make(n, 4, 2, 32, 32, seed=n)
    got = cache(level, q, k, v, n_threads=2).attention(q, 0, scale=0.2)
    close(got, exact(q, k, v, 0.2))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("window", [0, 1, 64, 100, 300, 5000])
@pytest.mark.parametrize("softcap", [0.0, 1.5])
def test_window_and_softcap(level: str, window: int, softcap: float) -> None:
    q, k, v = make(550, 2, 1, 16, 16, seed=3)
    got = cache(level, q, k, v).attention(q, 0, scale=0.25, softcap=softcap, window=window)
    close(got, exact(q, k, v, 0.25, softcap, window))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("window", [0, 70])
def test_sinks(level: str, window: int) -> None:
    """From no weight at all to nearly all of it; the same bits however the work is cut."""
    q, k, v = make(550, 4, 2, 16, 16, seed=3)
    sinks = np.array([-200.0, -1.0, 2.0, 200.0], np.float32)
    one, two = cache(level, q, k, v), cache(level, q, k, v, n_threads=2)
    got = one.attention(q, 0, scale=0.25, window=window, sinks=sinks)
    close(got, exact(q, k, v, 0.25, window=window, sinks=sinks))
    assert (bits(got[:, 0]) == bits(one.attention(q, 0, scale=0.25, window=window)[:, 0])).all()
    for first in (0, 255, 549):
        part = two.attention(q[first:], first, scale=0.25, window=window, sinks=sinks)
        assert (bits(part) == bits(got[first:])).all()


@settings(max_examples=25, deadline=None)
@given(
    shape=st.tuples(
        st.sampled_from([1, 2, 4, 7, 8]),
        st.sampled_from([1, 2]),
        st.sampled_from([8, 40, 64, 80]),
        st.just(64),
    ),
    n=st.integers(1, 600),
    cuts=st.lists(st.integers(0, 600), max_size=4),
    n_threads=st.sampled_from([1, 2, 3]),
    window=st.sampled_from([0, 5, 70, 300]),
    softcap=st.sampled_from([0.0, 8.0]),
)
def test_bits_do_not_depend_on_the_cut(
    shape: tuple[int, int, int, int], n: int, cuts: list[int], n_threads: int, window: int, softcap: float
) -> None:
    """All rows at once on one thread == any chunking, any number of threads, any fused level."""
    group, n_head_kv, d_k, d_v = shape
    q, k, v = make(n, group * n_head_kv, n_head_kv, d_k, d_v, seed=n)
    whole = cache(BEST, q, k, v).attention(q, 0, scale=0.3, softcap=softcap, window=window)
    edges = sorted({0, n, *(c for c in cuts if c < n)})
    for level in FUSED:
        pages = cache(level, q, k, v, n_threads)
        for a, b in itertools.pairwise(edges):
            pages.store(a, k[a:b], v[a:b])
            part = pages.attention(q[a:b], a, scale=0.3, softcap=softcap, window=window)
            assert (bits(part) == bits(whole[a:b])).all(), (level, a, b)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", [(8, 2, 64, 64), (7, 1, 48, 48), (4, 1, 80, 112)], ids=str)
def test_a_row_alone_equals_itself_in_any_batch(level: str, shape: tuple[int, int, int, int]) -> None:
    n = 530
    q, k, v = make(n, *shape)
    one, two = cache(level, q, k, v, n_threads=1), cache(level, q, k, v, n_threads=2)
    whole = one.attention(q, 0, scale=0.2, window=290)
    for size in (1, 2, 3, 7, 16, 64):
        for first in (0, 60, 255, 256, n - size):
            for pages in (one, two):
                part = pages.attention(q[first : first + size], first, scale=0.2, window=290)
                assert (bits(part) == bits(whole[first : first + size])).all(), (size, first)


def test_keys_that_are_not_there_yet_do_not_matter() -> None:
    """Decoding token by token over a growing cache == one prefill."""
    n = 330
    q, k, v = make(n, 4, 2, 16, 16)
    whole = cache(BEST, q, k, v).attention(q, 0, scale=0.3)
    growing = cache(BEST, q[:n], np.zeros_like(k), np.zeros_like(v), n_threads=2)
    for pos in range(n):
        growing.store(pos, k[pos : pos + 1], v[pos : pos + 1])
        assert (bits(growing.attention(q[pos : pos + 1], pos, scale=0.3)) == bits(whole[pos : pos + 1])).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["k", "v"])
def test_not_finite_reaches_only_rows_that_see_it(level: str, bad: float, where: str) -> None:
    n, at, window = 400, 150, 100
    q, k, v = make(n, 4, 2, 24, 24)
    clean = cache(level, q, k, v).attention(q, 0, scale=0.3, window=window)
    (k if where == "k" else v)[at, 1, 5] = bad
    got = cache(level, q, k, v, n_threads=2).attention(q, 0, scale=0.3, window=window)
    hit = np.zeros((n, 4, 24), bool)
    hit[at : at + window, 2:] = True  # query heads 2 and 3 read KV head 1
    assert np.isnan(got[hit]).all()
    assert (bits(got)[~hit] == bits(clean)[~hit]).all()


@pytest.mark.parametrize("level", LEVELS)
def test_a_not_finite_query_is_its_own_affair(level: str) -> None:
    q, k, v = make(70, 2, 1, 16, 16)
    clean = cache(level, q, k, v).attention(q, 0, scale=0.3)
    q[33, 1, 3] = np.nan
    got = cache(level, q, k, v).attention(q, 0, scale=0.3)
    hit = np.zeros((70, 2, 16), bool)
    hit[33, 1] = True
    assert np.isnan(got[hit]).all()
    assert (bits(got)[~hit] == bits(clean)[~hit]).all()


@pytest.mark.parametrize("level", LEVELS)
def test_beyond_f16_is_clamped(level: str) -> None:
    q, k, v = make(20, 2, 2, 16, 16)
    k[3, 0, 2], v[4, 1, 7] = 1e6, -1e9
    got = cache(level, q, k, v).attention(q, 0, scale=0.3)
    want = exact(q, np.clip(k, -65504, 65504), np.clip(v, -65504, 65504), 0.3)
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-5)


@pytest.mark.parametrize("level", LEVELS)
def test_half_storage_is_exact(level: str) -> None:
    """One key: the output is its value, rounded to f16 as numpy rounds it, denormals included."""
    rng = np.random.default_rng(0)
    v = (rng.standard_normal((64, 1, 128)) * 10.0 ** rng.integers(-9, 5, (64, 1, 128))).astype(np.float32)
    q = k = np.ones((64, 1, 8), np.float32)
    got = cache(level, q, k, v).attention(q, 0, scale=1.0, window=1)
    assert (got == np.clip(v, -65504, 65504).astype(np.float16).astype(np.float32)).all()


def test_old_contents_of_a_page_do_not_matter() -> None:
    """After a truncation the tail of a page still holds other tokens, even ones that are not finite."""
    q, k, v = make(300, 4, 2, 16, 16)
    clean = cache(BEST, q, k, v).attention(q[:100], 0, scale=0.3)
    pages = cache(BEST, q, np.full_like(k, 1e4), np.full_like(v, np.nan))
    pages.store(0, k[:100], v[:100])
    assert (bits(pages.attention(q[:100], 0, scale=0.3)) == bits(clean)).all()


@pytest.mark.parametrize(("d_k", "d_v"), [(20, 64), (64, 4), (520, 64), (0, 8)])
def test_head_sizes_without_a_layout_are_refused(d_k: int, d_v: int) -> None:
    with pytest.raises(errors.UnsupportedModelError, match="multiple of 8"):
        _core.KvAttention(BEST, n_head=1, n_head_kv=1, head_dim_k=d_k, head_dim_v=d_v, n_positions=1)


def test_heads_that_do_not_divide_are_refused() -> None:
    q, k, v = make(3, 3, 2, 8, 8)
    with pytest.raises(errors.TensorShapeError, match="3 attention heads"):
        cache(BEST, q, k, v).attention(q, 0, scale=1.0)
