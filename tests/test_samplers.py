"""Each sampler against the numpy reference, in any order; and what each promises by itself."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_sampling import DEFAULTS, Reference

from pyllamacpp import _core
from pyllamacpp.errors import ParameterError
from pyllamacpp.params import SAMPLERS
from pyllamacpp.text.breakers import _arrows

INF = math.inf


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def i32(values: Any) -> np.ndarray:
    return np.asarray(values, dtype=np.int32)


def for_core(params: dict[str, Any]) -> dict[str, Any]:
    """The reference's breakers are sequences of tokens, the core's automata."""
    pieces = [bytes([token]) for token in range(4)]
    automata = [_arrows(bytes(sequence), pieces) for sequence in params.get("dry_breakers", ())]
    return {**params, "dry_breakers": automata}


def left(logits: np.ndarray, history: Any = (), pos: int = 0, **params: Any) -> dict[int, float]:
    """The tokens that may be drawn, with their probabilities."""
    n_prompt = params.pop("n_prompt", 0)
    sampler = _core.Sampler(len(logits), **for_core(params))
    return dict(sampler.distribution(logits, i32(history), pos, n_prompt=n_prompt))


def logits_of(*probabilities: float) -> np.ndarray:
    return np.log(f32(*probabilities))


def test_default_order() -> None:
    assert tuple(_core.samplers()) == tuple(SAMPLERS) == DEFAULTS["samplers"]


# ---- all of them, in any order --------------------------------------------------------------------

STEPS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0.0, 0.3, 1.7]),
        "dynatemp_range": st.sampled_from([0.3, 5.0]),
        "dynatemp_exponent": st.sampled_from([0.0, 0.5, 2.0]),
        "top_k": st.sampled_from([1, 3, 50]),
        "typical_p": st.sampled_from([0.0, 0.3, 0.9]),
        "top_p": st.sampled_from([0.0, 0.4, 0.95]),
        "min_p": st.sampled_from([0.02, 0.3, 1.0]),
        "top_n_sigma": st.sampled_from([0.37, 1.3]),
        "xtc_probability": st.sampled_from([0.5, 1.0]),
        "xtc_threshold": st.sampled_from([0.0, 0.01, 0.2]),
        "repeat_penalty": st.sampled_from([1.3, 0.8]),
        "frequency_penalty": st.sampled_from([0.5, -0.3]),
        "presence_penalty": st.sampled_from([0.7, -0.4]),
        "penalty_last_n": st.sampled_from([0, 3, 20]),
        "dry_multiplier": st.sampled_from([0.0, 0.8]),
        "dry_base": st.sampled_from([1.0, 1.75]),
        "dry_allowed_length": st.sampled_from([1, 2, 4]),
        "dry_penalty_last_n": st.sampled_from([0, 5, 30]),
        "dry_breakers": st.sampled_from([[], [[1]], [[0, 1], [2, 2, 0], [3]], [[0, 0, 1, 0, 0]]]),
        "min_tokens": st.sampled_from([5, 100]),
    },
)


@settings(max_examples=400, deadline=None)
@given(
    n_vocab=st.sampled_from([4, 17, 130, 1500]),
    params=STEPS,
    order=st.permutations(list(SAMPLERS)),
    n_steps=st.sampled_from([2, 9, 9]),
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from([0.0, 0.1, 3.0, 30.0]),
)
def test_any_order_matches_the_reference(
    n_vocab: int, params: dict[str, Any], order: list[str], n_steps: int, seed: int, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    logits = (rng.standard_normal(n_vocab) * spread).astype(np.float32)
    logits[rng.random(n_vocab) < 0.1] = -INF
    logits[0] = 1.0
    history = rng.integers(0, min(n_vocab, 5), rng.integers(0, 60)).tolist()
    n_prompt = int(rng.integers(0, len(history) + 1))
    given = params | {"samplers": order[:n_steps], "seed": seed, "eog_ids": [1]}
    sampler, reference = _core.Sampler(n_vocab, **for_core(given)), Reference(n_vocab, **given)
    for pos in range(2):
        got = dict(sampler.distribution(logits, i32(history), pos, choice=1, n_prompt=n_prompt))
        want = reference.distribution(logits, history, pos, choice=1, n_prompt=n_prompt)
        assert got.keys() == want.keys()
        assert list(got) == sorted(got)
        np.testing.assert_allclose(list(got.values()), list(want.values()), rtol=1e-9, atol=1e-300)
        assert sum(got.values()) == pytest.approx(1, abs=1e-12)  # never empty
        drawn = sampler.sample(logits, i32(history), pos, choice=1, n_prompt=n_prompt)[0]
        assert drawn == reference.sample(logits, history, pos, choice=1, n_prompt=n_prompt)


@pytest.mark.parametrize("mode", [1, 2])
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    tau=st.sampled_from([0.0, 2.0, 5.0]),
    eta=st.sampled_from([0.1, 1.0]),
    temperature=st.sampled_from([0.7, 1.0, 1.5]),
)
def test_mirostat_matches_the_reference(
    mode: int, seed: int, tau: float, eta: float, temperature: float
) -> None:
    rng = np.random.default_rng(seed)
    given = {
        "mirostat_mode": mode, "mirostat_tau": tau, "mirostat_eta": eta, "temperature": temperature,
        "seed": seed, "repeat_penalty": 1.2, "top_k": 2,
    }  # fmt: skip
    sampler, reference = _core.Sampler(400, **given), Reference(400, **given)
    history: list[int] = [5]
    for pos in range(1, 15):
        logits = (rng.standard_normal(400) * 3).astype(np.float32)
        got = dict(sampler.distribution(logits, i32(history), pos))
        want = reference.distribution(logits, history, pos)
        assert got.keys() == want.keys()
        np.testing.assert_allclose(list(got.values()), list(want.values()), rtol=1e-9)
        history.append(sampler.sample(logits, i32(history), pos)[0])
        assert history[-1] == reference.sample(logits, history[:-1], pos)


# ---- one by one -----------------------------------------------------------------------------------


def test_typical_prefers_the_usual_surprise() -> None:
    # Entropy 1.28 nats: surprises 0.51, 1.61, 2.30, 2.30, 3.0: nearest first 0.2, then 0.6.
    logits = logits_of(0.6, 0.2, 0.1, 0.05, 0.05)
    assert left(logits, typical_p=0.1).keys() == {1}
    assert left(logits, typical_p=0.5).keys() == {0, 1}
    assert left(logits, typical_p=0.0).keys() == {1}
    assert left(logits, typical_p=1.0).keys() == {0, 1, 2, 3, 4}


def test_top_n_sigma_does_not_depend_on_the_temperature() -> None:
    logits = f32(10, 9, 0, 0, 0, 0, 0, 0, -INF)
    kept = left(logits, top_n_sigma=1.0).keys()
    assert kept == {0, 1}
    warm = ["temperature", "top_n_sigma"]
    assert left(logits, top_n_sigma=1.0, temperature=5.0, samplers=warm).keys() == kept


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    top_p=st.sampled_from([0.0, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999]),
    tail=st.sampled_from([1.0, 3.0, 8.0]),
    banned=st.booleans(),
)
def test_top_p_of_a_large_vocabulary(seed: int, top_p: float, tail: float, banned: bool) -> None:
    """Whether few tokens hold most of the probability, so that the others are not looked at, or many do."""
    rng = np.random.default_rng(seed)
    logits = (rng.standard_normal(20_000) * 2 + rng.exponential(tail, 20_000) - 20).astype(np.float32)
    given: dict[str, Any] = {"top_p": top_p, "logit_bias": {int(logits.argmax()): -INF} if banned else {}}
    got = left(logits, **given)
    assert got.keys() == Reference(len(logits), **given).distribution(logits, [], 0).keys()


def test_xtc_excludes_the_likely_ones() -> None:
    logits = logits_of(0.4, 0.3, 0.2, 0.1)
    always: dict[str, Any] = {"xtc_probability": 1.0}
    assert left(logits, xtc_threshold=0.15, **always).keys() == {2, 3}
    assert left(logits, xtc_threshold=0.25, **always).keys() == {1, 2, 3}
    assert left(logits, xtc_threshold=0.35, **always).keys() == {0, 1, 2, 3}  # one likely token stays
    assert left(logits, xtc_threshold=0.6, **always).keys() == {0, 1, 2, 3}
    assert left(logits, xtc_threshold=0.15, xtc_probability=0.0).keys() == {0, 1, 2, 3}
    assert left(f32(0, 0, 0, 0), xtc_threshold=0.2, **always).keys() == {3}  # a tie keeps the last id


def test_xtc_happens_as_often_as_asked_and_by_position_alone() -> None:
    sampler = _core.Sampler(3, xtc_probability=0.3, xtc_threshold=0.1, seed=9)
    logits, none = logits_of(0.5, 0.3, 0.2), i32([])
    hit = [len(sampler.distribution(logits, none, pos)) == 1 for pos in range(3000)]
    assert 0.26 < np.mean(hit) < 0.34
    again = [len(sampler.distribution(logits, none, pos)) == 1 for pos in reversed(range(3000))]
    assert again == hit[::-1]
    token = [sampler.sample(logits, none, pos)[0] for pos in range(3000)]  # the other draw is independent
    assert 0.4 < np.mean([t == 0 for t, h in zip(token, hit, strict=True) if not h]) < 0.6


def test_dry_penalizes_what_continues_a_repetition() -> None:
    flat = np.zeros(6, np.float32)
    dry: dict[str, Any] = {"dry_multiplier": 1.0, "dry_base": 2.0, "dry_allowed_length": 2}

    def lost(history: list[int], **more: Any) -> dict[int, float]:
        p = left(flat, history, **{**dry, **more})
        most = max(p.values())
        return {i: round(math.log(most / q), 6) for i, q in p.items() if q < most}

    assert lost([1, 2, 3, 1, 2]) == {3: 1}
    assert lost([0, 1, 2, 3, 0, 1, 2]) == {3: 2}
    assert lost([1, 2, 3, 1, 2, 4, 1, 2]) == {3: 1, 4: 1}
    assert lost([1, 2, 1, 2, 1, 2]) == {1: 4}  # the longest of two repetitions
    assert lost([2, 3, 4, 2]) == {}
    assert lost([2, 3, 4, 2], dry_allowed_length=1) == {3: 1}
    assert lost([0, 1, 2, 3, 0, 1, 2], dry_breakers=[[1]]) == {}  # [2] alone is left
    assert lost([0, 1, 2, 3, 0, 1, 2], dry_breakers=[[0]]) == {3: 1}
    assert lost([1, 2, 3, 1, 2], dry_breakers=[[3]]) == {}
    assert lost([0, 1, 2, 3, 0, 1, 2], dry_breakers=[[0, 1]]) == {}
    assert lost([1, 2, 3, 1, 2], dry_penalty_last_n=4) == {}
    assert lost([], dry_allowed_length=1) == {} == lost([1], dry_allowed_length=1)
    assert 1 not in left(flat, [1] * 5000, **dry)  # 2^4998 is cut to the largest float


@settings(max_examples=300, deadline=None)
@given(
    text=st.text("ab", min_size=1, max_size=6).map(str.encode),
    pieces=st.lists(
        st.text("abc", min_size=1, max_size=5).map(str.encode), min_size=1, max_size=12, unique=True
    ),
    data=st.data(),
)
def test_breakers_are_found_however_tokens_spell_them(
    text: bytes, pieces: list[bytes], data: st.DataObject
) -> None:
    """The automaton by its definition, and the core: what was repeated before a text's end does not count."""
    arrows = {(state, token): next for state, token, next in _arrows(text, pieces)}
    history = data.draw(st.lists(st.integers(0, len(pieces) - 1), max_size=25))
    spelled, state, since = b"", 0, len(history)
    for i, token in enumerate(history):
        before, spelled = len(spelled), spelled + pieces[token]
        next = arrows.get((state, token), arrows.get((0, token), 0))
        ends = text in spelled[max(0, before - len(text) + 1) :]
        assert (next < 0) == ends
        state = -1 - next if ends else next
        since = len(history) - 1 - i if ends else since
    flat = np.zeros(len(pieces), np.float32)
    dry: dict[str, Any] = {"dry_multiplier": 1.0, "dry_allowed_length": 1, "dry_base": 1.0}
    got = _core.Sampler(len(pieces), **dry, dry_breakers=[_arrows(text, pieces)]).distribution(
        flat, i32(history), 0
    )
    whole = [[i] for i, piece in enumerate(pieces) if text in piece]
    reference = Reference(len(pieces), **dry, dry_breakers=whole)
    reference.reach = since
    np.testing.assert_allclose([q for _, q in got], list(reference.distribution(flat, history, 0).values()))


def test_dry_is_linear_in_the_history() -> None:
    sampler = _core.Sampler(8, dry_multiplier=1.0, temperature=0.0)
    history = i32([1] * 200_000)
    start = time.perf_counter()
    sampler.sample(np.zeros(8, np.float32), history, 0)
    assert time.perf_counter() - start < 0.5


def test_dynamic_temperature_follows_the_entropy() -> None:
    flat, sure = np.zeros(8, np.float32), f32(50, 0, 0, 0)
    assert left(flat, dynatemp_range=0.5) == left(flat, temperature=1.5)
    cold = left(f32(9, 8, 0, 0, 0, 0, 0, 0), dynatemp_range=0.5)
    assert cold[0] > left(f32(9, 8, 0, 0, 0, 0, 0, 0))[0]
    assert left(sure, temperature=0.5, dynatemp_range=0.5).keys() == {0}  # temperature 0: the best alone
    assert left(f32(3), dynatemp_range=2.0) == {0: 1.0}


def test_the_order_is_the_callers() -> None:
    logits = logits_of(0.5, 0.3, 0.2)
    hot_first = left(logits, temperature=3.0, top_p=0.6, samplers=["temperature", "top_p"])
    hot_last = left(logits, temperature=3.0, top_p=0.6, samplers=["top_p", "temperature"])
    assert (hot_first.keys(), hot_last.keys()) == ({0, 1}, {0, 1})
    assert left(logits, temperature=3.0, top_p=0.45, samplers=["top_p", "temperature"]).keys() == {0}
    assert left(logits, temperature=3.0, top_p=0.45, samplers=["temperature", "top_p"]).keys() == {0, 1}
    assert left(logits, top_k=1, samplers=["top_p"]).keys() == {0, 1, 2}  # not listed: not taken
    assert left(logits, top_k=1, temperature=9.0, samplers=[]) == left(logits)
    late = left(logits, [0], presence_penalty=5.0, top_k=1, samplers=["top_k", "penalties"])
    assert late == {0: 1.0}


def test_mirostat_state_is_a_function_of_the_tokens_before() -> None:
    rng = np.random.default_rng(2)
    rows = (rng.standard_normal((12, 300)) * 3).astype(np.float32)
    given: dict[str, Any] = {"mirostat_mode": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.9, "seed": 4}
    sampler = _core.Sampler(300, **given)
    want = [sampler.sample(rows[i], i32([]), 100 + i)[0] for i in range(12)]
    for _ in range(2):  # positions drawn again, after a rewind
        assert [sampler.sample(rows[i], i32([]), 100 + i)[0] for i in range(5, 12)] == want[5:]
    mixed = _core.Sampler(300, **given)
    for i in range(12):  # another answer's tokens and mere looks leave no trace
        mixed.sample(rows[i], i32([]), 100 + i, choice=1)
        mixed.distribution(rows[3], i32([]), 100 + i)
        assert mixed.sample(rows[i], i32([]), 100 + i)[0] == want[i]


def test_mirostat_keeps_the_surprise_near_tau() -> None:
    rng = np.random.default_rng(5)
    for mode in (1, 2):
        sampler = _core.Sampler(2000, mirostat_mode=mode, mirostat_tau=3.0, mirostat_eta=0.1, seed=1)
        ranks = np.log(1 / np.arange(1, 2001))  # Zipf's law
        surprise = []
        for pos in range(400):
            logits = rng.permutation(ranks * 1.2).astype(np.float32)
            _, logprob, _ = sampler.sample(logits, i32([]), pos, n_top_logprobs=0)
            surprise.append(-logprob / math.log(2))
        assert np.mean(surprise[100:]) == pytest.approx(3.0, abs=0.4)


# ---- bans and penalties ---------------------------------------------------------------------------


def test_bans_and_allowed_tokens() -> None:
    logits = f32(9, 3, 2, 1)
    assert left(logits, logit_bias={0: -INF}).keys() == {1, 2, 3}
    assert left(logits, logit_bias={2: INF}) == {2: 1.0}
    assert left(logits, logit_bias={2: INF, 3: INF, 1: 50.0}).keys() == {2, 3}
    assert left(logits, logit_bias={2: INF, 3: INF})[2] == pytest.approx(1 / (1 + math.exp(-1)))
    for greedy in (0.0, 1.0):
        assert left(logits, logit_bias={2: INF}, temperature=greedy, top_k=1) == {2: 1.0}
    with pytest.raises(ParameterError, match="banned"):
        left(logits, logit_bias={0: INF}, min_tokens=1, eog_ids=[0])


def test_min_tokens_counts_the_answer() -> None:
    logits = f32(5, 1, 1)
    ends: dict[str, Any] = {"min_tokens": 2, "eog_ids": [0], "temperature": 0.0}
    for n_answer, best in ((0, 1), (1, 1), (2, 0), (3, 0)):
        assert left(logits, [2] * (3 + n_answer), n_prompt=3, **ends) == {best: 1.0}


def test_only_the_repeat_penalty_counts_the_prompt() -> None:
    logits = f32(2, 1.5, 1)
    history = [0, 0, 1]
    assert left(logits, history, n_prompt=2, temperature=0.0, presence_penalty=2.0) == {0: 1.0}
    assert left(logits, history, n_prompt=2, temperature=0.0, frequency_penalty=2.0) == {0: 1.0}
    assert left(logits, history, n_prompt=0, temperature=0.0, frequency_penalty=1.0) == {2: 1.0}
    assert left(logits, history, n_prompt=3, temperature=0.0, repeat_penalty=2.5) == {2: 1.0}
    with pytest.raises(ParameterError, match="n_prompt"):
        left(logits, history, n_prompt=4)


# ---- speed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0])
@pytest.mark.parametrize(
    "params",
    [
        {}, {"top_k": 40}, {"top_p": 0.95}, {"min_p": 0.05}, {"typical_p": 0.95}, {"top_n_sigma": 1.0},
        {"xtc_probability": 1.0}, {"dynatemp_range": 0.5}, {"mirostat_mode": 1}, {"mirostat_mode": 2},
        {"dry_multiplier": 0.8}, {"repeat_penalty": 1.1},
    ],
    ids=lambda params: next(iter(params), "plain"),
)  # fmt: skip
def test_no_step_sorts_a_large_vocabulary(params: dict[str, Any], spread: float) -> None:
    """Milliseconds at 262k tokens; a sort alone takes 20. The bound leaves room for a busy machine."""
    n = 1 << 18
    logits = (np.random.default_rng(0).standard_normal(n) * spread).astype(np.float32)
    sampler = _core.Sampler(n, **params)
    history = i32(np.arange(4000) % 50)
    seconds = []
    for pos in range(9):
        start = time.perf_counter()
        sampler.sample(logits, history, pos)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.008


# ---- instruction sets -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [{}, {"typical_p": 0.5}, {"dynatemp_range": 0.9, "top_p": 0.9}, {"mirostat_mode": 1, "temperature": 2.0}],
)
def test_every_level_gives_the_same_bits(steps: dict[str, Any]) -> None:
    rng = np.random.default_rng(4)
    for n in (1, 255, 256, 1000):
        logits = (rng.standard_normal(n) * rng.choice([0.1, 5, 60])).astype(np.float32)
        logits[rng.random(n) < 0.1] = -INF
        logits[0] = 1
        results = []
        for level in _core.levels():
            sampler = _core.Sampler(n, isa=level, seed=3, **steps)
            results.append(
                (
                    sampler.distribution(logits, i32([]), 7),
                    sampler.sample(logits, i32([]), 7, n_top_logprobs=2),
                )
            )
        assert all(result == results[0] for result in results)


def test_the_environment_forces_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYLLAMACPP_ISA", _core.levels()[0])
    assert left(logits_of(0.25, 0.75)) == left(logits_of(0.25, 0.75), isa=_core.levels()[-1])
    monkeypatch.setenv("PYLLAMACPP_ISA", "avx9")
    with pytest.raises(ParameterError, match=r"PYLLAMACPP_ISA.*avx9"):
        _core.Sampler(8)
    _core.Sampler(8, isa=_core.levels()[0])
    with pytest.raises(ParameterError, match="sse9"):
        _core.Sampler(8, isa="sse9")
