"""The sampler against a plain numpy reference, published random numbers and its own promises."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_sampling import Reference, philox4x32
from reference_sampling import uniform as reference_uniform

from pyllamacpp import _core
from pyllamacpp.errors import InternalError, ParameterError

NO_HISTORY = np.zeros(0, dtype=np.int32)
INF = math.inf


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def pick(logits: np.ndarray, history: Any = NO_HISTORY, pos: int = 0, choice: int = 0, **params: Any) -> int:
    sampler = _core.Sampler(len(logits), **params)
    token: int = sampler.sample(logits, np.asarray(history, dtype=np.int32), pos, choice=choice)[0]
    return token


def reachable(logits: np.ndarray, history: Any = NO_HISTORY, n: int = 300, **params: Any) -> set[int]:
    """The ids that n draws hit; at the default temperature of 50 every candidate is hit."""
    params = {"temperature": 50.0} | params
    return {pick(logits, history, pos, **params) for pos in range(n)}


# ---- reference -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # Random123's known answers for philox4x32, 10 rounds
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_reference_philox_has_the_published_values(counter: list[int], key: list[int], expected: str) -> None:
    assert " ".join(f"{word:08x}" for word in philox4x32(counter, key)) == expected


# ---- random numbers ------------------------------------------------------------------------------


def test_first_draw_is_the_published_philox_value() -> None:
    # 2^16 equal logits turn the draw into the top 16 bits of the second word.
    assert pick(np.zeros(1 << 16, dtype=np.float32)) == 0xE169


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), choice=st.integers(0, 2**32 - 1), pos=st.integers(0, 2**64 - 1))
def test_draw_is_keyed_by_seed_choice_and_position(seed: int, choice: int, pos: int) -> None:
    flat = np.zeros(1 << 12, dtype=np.float32)
    assert pick(flat, pos=pos, choice=choice, seed=seed) == int(reference_uniform(seed, choice, pos) * 4096)


def test_draw_does_not_depend_on_earlier_draws() -> None:
    logits = np.random.default_rng(1).standard_normal(500).astype(np.float32)
    sampler = _core.Sampler(500, seed=7)
    forward = [sampler.sample(logits, NO_HISTORY, pos)[0] for pos in range(100)]
    backward = [sampler.sample(logits, NO_HISTORY, pos)[0] for pos in reversed(range(100))]
    assert forward == backward[::-1]
    assert len(set(forward)) > 30
    assert [pick(logits, pos=pos, seed=7) for pos in range(100)] == forward
    assert [pick(logits, pos=pos, seed=8) for pos in range(100)] != forward
    assert [pick(logits, pos=pos, seed=7, choice=1) for pos in range(100)] != forward


@pytest.mark.parametrize("vary", ["pos", "choice", "seed"])
def test_histogram_follows_the_probabilities(vary: str) -> None:
    probability = np.array([0.3, 0.25, 0.2, 0.1, 0.08, 0.05, 0.015, 0.005])
    logits = np.log(probability).astype(np.float32)
    n = 20_000
    sampler = _core.Sampler(8, seed=1234)
    if vary == "pos":
        drawn = [sampler.sample(logits, NO_HISTORY, i)[0] for i in range(n)]
    elif vary == "choice":
        drawn = [sampler.sample(logits, NO_HISTORY, 5, choice=i)[0] for i in range(n)]
    else:
        drawn = [pick(logits, pos=5, seed=i) for i in range(n)]
    expected = probability * n
    chi_square = float((((np.bincount(drawn, minlength=8) - expected) ** 2) / expected).sum())
    assert chi_square < 24.3  # 7 degrees of freedom, p = 0.001


def test_temperature_flattens_and_sharpens() -> None:
    logits = f32(2, 1, 0)
    for temperature in (0.5, 2.0):
        sampler = _core.Sampler(3, temperature=temperature)
        drawn = np.bincount(
            [sampler.sample(logits, NO_HISTORY, pos)[0] for pos in range(10_000)], minlength=3
        )
        weight = np.exp(np.array([2, 1, 0]) / temperature)
        expected = weight / weight.sum() * 10_000
        assert float((((drawn - expected) ** 2) / expected).sum()) < 13.8  # 2 degrees of freedom, p = 0.001


# ---- the chain -----------------------------------------------------------------------------------

PARAMS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([-1.0, 0.0, 1e-30, 0.3, 1.0, 2.5, 1e30]),
        "top_k": st.sampled_from([-1, 0, 1, 2, 5, 40, 10_000]),
        "top_p": st.sampled_from([0.0, 0.1, 0.77, 0.95, 1.0]),
        "min_p": st.sampled_from([0.0, 0.03, 0.4, 1.0]),
        "repeat_penalty": st.sampled_from([1.0, 1.3, 0.7]),
        "frequency_penalty": st.sampled_from([0.0, 0.4, -0.3]),
        "presence_penalty": st.sampled_from([0.0, 1.1, -0.6]),
        "penalty_last_n": st.sampled_from([-1, 0, 1, 7, 64]),
    }
)


@settings(max_examples=250, deadline=None)
@given(
    n_vocab=st.sampled_from([1, 2, 17, 128, 129, 700, 3000]),
    params=PARAMS,
    seed=st.integers(0, 2**32 - 1),
    ties=st.booleans(),
    spread=st.sampled_from([0.1, 2.0, 30.0]),
)
def test_matches_the_numpy_reference(
    n_vocab: int, params: dict[str, Any], seed: int, ties: bool, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    logits = (rng.standard_normal(n_vocab) * spread).astype(np.float32)
    if ties:
        logits = np.round(logits)
    logits[rng.random(n_vocab) < 0.1] = -INF
    free = int(rng.integers(n_vocab))  # at least this token stays possible
    logits[free] = 1.0
    biased = rng.integers(0, n_vocab, 5)
    bias = {int(t): float(rng.choice([-INF, 1.5, -2.25])) for t in biased if t != free}
    history = rng.integers(0, n_vocab, rng.integers(0, 100), dtype=np.int32)
    sampler = _core.Sampler(n_vocab, seed=seed, logit_bias=bias, **params)
    reference = Reference(n_vocab, seed=seed, logit_bias=bias, **params)
    for pos in range(3):
        want = reference.sample(logits, history.tolist(), pos, choice=2)
        assert sampler.sample(logits, history, pos, choice=2)[0] == want


def test_greedy_takes_the_lowest_id_of_a_tie() -> None:
    logits = np.zeros(1000, dtype=np.float32)
    logits[[700, 300, 999]] = 5
    assert pick(logits, temperature=0.0) == 300
    assert pick(logits, temperature=-3.0, top_k=1, top_p=0.0) == 300
    assert pick(f32(-0.0, 0.0), temperature=0.0) == 0


def test_greedy_comes_after_bias_and_penalties() -> None:
    logits = f32(3, 2, 1)
    assert pick(logits, temperature=0.0, logit_bias={2: 2.5}) == 2
    assert pick(logits, temperature=0.0, logit_bias={0: -INF}) == 1
    assert pick(logits, [0], temperature=0.0, repeat_penalty=2.0) == 1
    assert pick(logits, [0, 0], temperature=0.0, frequency_penalty=0.6) == 1
    assert pick(logits, [0, 0], temperature=0.0, presence_penalty=0.6) == 0


def test_ties_at_a_cut_keep_the_lowest_ids() -> None:
    flat = np.zeros(400, dtype=np.float32)
    assert reachable(flat, top_k=3) == {0, 1, 2}
    assert reachable(flat, top_p=0.01) == {0, 1, 2, 3}
    assert len(reachable(flat, min_p=1.0)) > 100
    assert reachable(f32(1, 2, 2, 1), min_p=1.0) == {1, 2}


def test_at_least_one_candidate_is_left() -> None:
    logits = f32(0, 1, 3, 2)
    assert reachable(logits, top_p=0.0) == {2}
    assert reachable(logits, top_k=1) == {2}
    assert reachable(logits, top_p=0.0, top_k=1, min_p=1.0) == {2}
    assert reachable(f32(-4), top_k=40, top_p=0.5, min_p=0.5) == {0}
    assert reachable(f32(-3e38, 3e38), min_p=0.5) == {1}


def test_top_k_beyond_the_vocabulary_keeps_all() -> None:
    assert reachable(f32(0, 1, 3, 2), top_k=5) == {0, 1, 2, 3}
    assert reachable(f32(0, 1, 3, 2), top_k=2**40) == {0, 1, 2, 3}


def test_top_p_counts_the_mass_that_top_k_left() -> None:
    logits = np.log(f32(0.4, 0.3, 0.2, 0.1))
    assert reachable(logits, top_p=0.5) == {0, 1}
    assert reachable(logits, top_p=0.5, top_k=2) == {0}  # 0.4 / 0.7 is enough
    assert reachable(f32(0, 0, 0, 0), top_p=0.5) == {0, 1}  # exactly half is enough


def test_banned_and_impossible_tokens_are_never_drawn() -> None:
    logits = np.zeros(6, dtype=np.float32)
    logits[[0, 5]] = -INF
    assert reachable(logits, logit_bias={2: -INF, 5: 1e30}) == {1, 3, 4}
    assert reachable(logits, [0, 5, 5], frequency_penalty=-100.0, repeat_penalty=0.1) == {1, 2, 3, 4}
    lowest = f32(-INF, np.finfo(np.float32).min)  # impossible stays below the lowest number
    assert pick(lowest, [0], temperature=0.0, presence_penalty=-5.0) == 1
    assert pick(lowest, temperature=0.0, logit_bias={0: 5.0}) == 1


def test_extreme_values_stay_ordered() -> None:
    assert pick(f32(3e38, 1), temperature=1e-40, logit_bias={0: 3e38}) == 0
    assert pick(f32(3e38, 1), [0], temperature=0.0, repeat_penalty=1e-30) == 0
    assert pick(f32(-3e38), [0], repeat_penalty=1e30) == 0  # not pushed to -inf, which would be a ban


def test_penalty_window_is_the_end_of_the_history() -> None:
    logits, history = f32(1.0, 0.9, 0.8), [0, 1, 2, 2]
    greedy: dict[str, Any] = {"temperature": 0.0, "presence_penalty": 0.5}
    assert pick(logits, history, penalty_last_n=0, **greedy) == 0
    assert pick(logits, history, penalty_last_n=2, **greedy) == 0
    assert pick(f32(0.8, 0.9, 1.0), history, penalty_last_n=2, **greedy) == 1
    assert pick(f32(0.8, 0.9, 1.0), history, penalty_last_n=3, **greedy) == 0
    assert pick(f32(0.8, 0.9, 1.0), history, penalty_last_n=100, **greedy) == 2
    assert pick(f32(0.8, 0.9, 1.0), history, penalty_last_n=-1, **greedy) == 2


def test_penalties_of_one_call_do_not_leak_into_the_next() -> None:
    sampler = _core.Sampler(3, temperature=0.0, frequency_penalty=1.0)
    logits = f32(1.5, 1, 0)
    for _ in range(3):
        assert sampler.sample(logits, np.array([0, 0], dtype=np.int32), 0)[0] == 1
        assert sampler.sample(logits, NO_HISTORY, 0)[0] == 0
    with pytest.raises(ParameterError):
        sampler.sample(logits, np.array([0, 0, 3], dtype=np.int32), 0)
    assert sampler.sample(logits, NO_HISTORY, 0)[0] == 0
    assert logits.tolist() == [1.5, 1, 0]


# ---- log-probabilities ---------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(
    n_vocab=st.sampled_from([1, 3, 130, 5000]),
    seed=st.integers(0, 1000),
    n_top=st.integers(0, 25),
    spread=st.sampled_from([0.5, 10.0, 500.0]),
)
def test_logprobs_are_the_log_softmax_of_the_logits_given(
    n_vocab: int, seed: int, n_top: int, spread: float
) -> None:
    logits = np.round(np.random.default_rng(seed).standard_normal(n_vocab) * spread, 1).astype(np.float32)
    x = logits.astype(np.float64)
    want = x - x.max() - np.log(np.exp(x - x.max()).sum())
    sampler = _core.Sampler(
        n_vocab, temperature=0.7, top_k=3, seed=seed, logit_bias={0: 5.0}, repeat_penalty=1.5
    )
    history = np.arange(n_vocab, dtype=np.int32)
    token, logprob, top = sampler.sample(logits, history, 0, n_top_logprobs=n_top)
    np.testing.assert_allclose(logprob, want[token], rtol=3e-7, atol=1e-12)
    order = np.lexsort((np.arange(n_vocab), -x))[:n_top]
    assert [i for i, _ in top] == order.tolist()
    np.testing.assert_allclose([p for _, p in top], want[order], rtol=3e-7, atol=1e-12)
    plain_token, nothing, none = sampler.sample(logits, history, 0)
    assert (plain_token, none) == (token, [])
    assert math.isnan(nothing)


def test_top_logprobs_are_finite() -> None:
    sampler = _core.Sampler(4, temperature=0.0)
    token, logprob, top = sampler.sample(f32(-INF, 0, -INF, 0), NO_HISTORY, 0, n_top_logprobs=4)
    assert token == 1
    assert logprob == pytest.approx(math.log(0.5))
    assert top == [(1, logprob), (3, logprob)]


# ---- errors and threads --------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("value", "name"), [(math.nan, "NaN"), (INF, "infinity")])
@pytest.mark.parametrize("where", [0, 5, 130, 298, 299])
def test_a_broken_model_is_an_error(temperature: float, value: float, name: str, where: int) -> None:
    logits = np.zeros(300, dtype=np.float32)
    logits[where] = value
    with pytest.raises(InternalError, match=f"{name}.* token {where}"):
        pick(logits, temperature=temperature, logit_bias={where: -INF})


def test_nothing_to_choose_from_is_an_error() -> None:
    with pytest.raises(InternalError, match="every token"):
        pick(f32(-INF, -INF))
    with pytest.raises(ParameterError, match=r"every token .* banned"):
        pick(f32(0, -INF), logit_bias={0: -INF})


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": math.nan},
        {"temperature": INF},
        {"temperature": 1e39},
        {"top_k": -2},
        {"top_p": 1.01},
        {"top_p": -0.01},
        {"top_p": math.nan},
        {"min_p": 1.5},
        {"repeat_penalty": 0.0},
        {"repeat_penalty": -1.0},
        {"frequency_penalty": INF},
        {"presence_penalty": math.nan},
        {"penalty_last_n": -2},
        {"seed": -1},
        {"seed": 2**64},
        {"logit_bias": {4: 0.0}},
        {"logit_bias": {-1: 0.0}},
        {"logit_bias": {2**40: 0.0}},
        {"logit_bias": {0: math.nan}},
        {"logit_bias": {0: -1e300}},
        {"typical_p": 1.5},
        {"top_n_sigma": math.nan},
        {"xtc_probability": -0.1},
        {"xtc_threshold": 1.1},
        {"dynatemp_range": -1.0},
        {"dynatemp_exponent": INF},
        {"dry_multiplier": -1.0},
        {"dry_base": 0.5},
        {"dry_allowed_length": 0},
        {"dry_penalty_last_n": -2},
        {"dry_breakers": [[(0, 4, -1)]]},
        {"dry_breakers": [[(-1, 1, -1)]]},
        {"mirostat_mode": 3},
        {"mirostat_tau": -1.0},
        {"mirostat_eta": math.nan},
        {"min_tokens": -1},
        {"eog_ids": [4]},
        {"samplers": ["top_k", "nonsense"]},
        {"samplers": ["top_k", "top_k"]},
        {"n_vocab": 0},
    ],
)
def test_parameters_out_of_range_are_errors(bad: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(bad))):
        _core.Sampler(**({"n_vocab": 4} | bad))


def test_arrays_of_another_kind_are_errors() -> None:
    sampler = _core.Sampler(4, presence_penalty=1.0)
    good = np.zeros(4, dtype=np.float32)
    unaligned = np.frombuffer(b"\0" * 17, dtype=np.uint8)[1:].view(np.float32)
    for logits in (
        good.astype(np.float64),
        good[None],
        np.zeros(8, dtype=np.float32)[::2],
        good[:3],
        unaligned,
    ):
        with pytest.raises(ParameterError, match="logits"):
            sampler.sample(logits, NO_HISTORY, 0)
    for history in (np.zeros(2, dtype=np.int64), np.zeros((1, 2), dtype=np.int32)):
        with pytest.raises(ParameterError, match="history"):
            sampler.sample(good, history, 0)
    for token in (-1, 4):
        with pytest.raises(ParameterError, match=f"token {token}"):
            sampler.sample(good, np.array([token], dtype=np.int32), 0)
    for extra in ({"pos": -1}, {"pos": 0, "choice": 2**32}, {"pos": 0, "n_top_logprobs": -2}):
        with pytest.raises(ParameterError, match=list(extra)[-1]):
            sampler.sample(good, NO_HISTORY, **extra)
    with pytest.raises(TypeError):
        sampler.sample([0.0] * 4, NO_HISTORY, 0)


def test_threads_share_a_sampler() -> None:
    rng = np.random.default_rng(3)
    logits = rng.standard_normal((4, 20_000)).astype(np.float32)
    history = rng.integers(0, 20_000, (4, 50), dtype=np.int32)
    sampler = _core.Sampler(20_000, top_k=40, top_p=0.9, repeat_penalty=1.2, seed=5)
    want = [[sampler.sample(logits[i], history[i], pos)[0] for pos in range(50)] for i in range(4)]
    got: list[list[int]] = [[] for _ in range(4)]

    def work(i: int) -> None:
        got[i] = [sampler.sample(logits[i], history[i], pos)[0] for pos in range(50)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == want
