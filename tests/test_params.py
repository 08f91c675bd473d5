"""Parameters: one source of names, defaults, ranges; bad values are named."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyllamacpp.errors import ParameterError
from pyllamacpp.params import CHAT_DEFAULTS, LoadParams, SamplingParams, spec, specs


def test_defaults_are_llama_cpp_pythons() -> None:
    p = SamplingParams()
    assert (p.max_tokens, p.temperature, p.top_k, p.top_p, p.min_p) == (16, 0.8, 40, 0.95, 0.05)
    assert (p.repeat_penalty, p.frequency_penalty, p.presence_penalty, p.penalty_last_n) == (
        1.0,
        0.0,
        0.0,
        64,
    )
    assert (p.seed, p.stop, p.logit_bias, p.logprobs) == (None, (), {}, None)
    assert CHAT_DEFAULTS == {"temperature": 0.2, "max_tokens": None}
    assert LoadParams() == LoadParams(n_ctx=None, n_threads=None, n_batch=512, pre=None, chat_template=None)


@pytest.mark.parametrize("cls", [SamplingParams, LoadParams])
def test_every_field_has_one_spec_that_its_default_satisfies(cls: type) -> None:
    for f in dataclasses.fields(cls):
        rule = spec(cls, f.name)
        assert rule.help.endswith(".") and len(rule.help) < 100
        assert getattr(cls(**{f.name: rule.default}), f.name) == getattr(cls(), f.name)
    assert list(specs(cls)) == [f.name for f in dataclasses.fields(cls)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", math.nan), ("temperature", math.inf), ("temperature", "0.5"), ("temperature", True),
        ("temperature", None), ("temperature", 10**400),
        ("top_k", -2), ("top_k", 1.5), ("top_k", False), ("top_k", "40"),
        ("top_p", 1.01), ("top_p", -0.01), ("min_p", 1.5), ("min_p", math.nan),
        ("repeat_penalty", 0), ("repeat_penalty", -1.0), ("frequency_penalty", 2.5), ("presence_penalty", -3),
        ("penalty_last_n", -2), ("max_tokens", -2), ("max_tokens", 2.0),
        ("seed", -2), ("seed", 2**64), ("seed", 1.0), ("logprobs", -1), ("logprobs", True),
        ("stop", ""), ("stop", ["a", ""]), ("stop", [1]), ("stop", 5), ("stop", b"x"), ("stop", {"a": 1}),
        ("logit_bias", {1: math.nan}), ("logit_bias", {-1: 0.0}),
        ("logit_bias", {"x": 1}), ("logit_bias", {True: 1}),
        ("logit_bias", [[1, 2, 3]]), ("logit_bias", [(1, 2), (1, 3)]),
        ("logit_bias", {"1": 0, 1: 0}), ("logit_bias", {1: "2"}), ("logit_bias", 7),
        ("logit_bias", {2**31: 0}), ("logit_bias", {1: True}), ("logit_bias", [[1, "x"]]),
        ("typical_p", 1.1), ("xtc_probability", -1), ("xtc_threshold", 2), ("dynatemp_range", -0.1),
        ("dry_multiplier", -1), ("dry_base", 0.9), ("dry_allowed_length", 0), ("dry_penalty_last_n", -2),
        ("dry_sequence_breakers", [""]), ("dry_sequence_breakers", 5), ("mirostat_mode", 3),
        ("mirostat_tau", -1), ("min_tokens", -1), ("samplers", ["top_q"]), ("samplers", "top_k,top_k"),
        ("samplers", [1]), ("samplers", [""]),
        ("top_k", 2**31), ("penalty_last_n", 2**31), ("dry_allowed_length", 2**70), ("logprobs", 2**70),
        ("dry_penalty_last_n", 2**31),
        ("logit_bias", {"\u00b2": 0}),
    ],
)  # fmt: skip
def test_bad_values_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ParameterError) as caught:
        SamplingParams(**{name: value})
    assert str(caught.value).startswith(name)
    assert caught.value.exit_code == 2 and isinstance(caught.value, ValueError)


def test_message_names_value_and_range() -> None:
    with pytest.raises(ParameterError, match=r"top_p must be a finite number in \[0, 1\], not 1\.5"):
        SamplingParams(top_p=1.5)
    with pytest.raises(
        ParameterError, match=r"seed must be an integer in \[-1, 18446744073709551615\] or None, not -7"
    ):
        SamplingParams(seed=-7)
    with pytest.raises(ParameterError, match=r"repeat_penalty must be a finite number > 0, not 0"):
        SamplingParams(repeat_penalty=0)
    with pytest.raises(ParameterError, match=r"n_batch must be an integer >= 1, not 0"):
        LoadParams(n_batch=0)
    with pytest.raises(ParameterError, match=r"pre must be a string or None, not 3"):
        LoadParams(pre=3)  # type: ignore[arg-type]


def test_values_that_mean_none_or_off() -> None:
    assert (
        SamplingParams(max_tokens=-1).max_tokens is None and SamplingParams(max_tokens=0).max_tokens is None
    )
    assert SamplingParams(seed=-1).seed is None and SamplingParams(seed=0).seed == 0
    assert SamplingParams(logprobs=0).logprobs == 0
    assert [SamplingParams(top_k=k).top_k for k in (-1, 0)] == [-1, 0]
    assert SamplingParams(top_p=0).top_p == 0.0 and SamplingParams(temperature=-3).temperature == -3.0
    assert LoadParams(n_ctx=0, n_threads=0) == LoadParams()


def test_stop_and_bias_forms() -> None:
    assert SamplingParams(stop="Q:").stop == ("Q:",)  # type: ignore[arg-type]
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")  # type: ignore[arg-type]
    assert SamplingParams(stop=None).stop == ()  # type: ignore[arg-type]
    expected = {15: -math.inf, 7: 2.5}
    for form in ({15: -math.inf, 7: 2.5}, {"15": -math.inf, "7": 2.5}, [[15, -math.inf], (7, 2.5)]):
        assert SamplingParams(logit_bias=form).logit_bias == expected  # type: ignore[arg-type]


def test_bias_ends_of_the_range_are_openais() -> None:
    bias = SamplingParams(logit_bias={1: -100, "2": 100, 3: 99.5, 4: -1e9, 5: math.inf}).logit_bias  # type: ignore[dict-item]
    assert bias == {1: -math.inf, 2: math.inf, 3: 99.5, 4: -math.inf, 5: math.inf}


def test_samplers_in_the_given_order() -> None:
    assert SamplingParams().samplers is None
    for form in ("temperature, top_k", ["temperature", "top_k"], ("temperature,top_k",)):
        assert SamplingParams(samplers=form).samplers == ("temperature", "top_k")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match=r"(?s)'top_q', which is no sampler.*typical_p"):
        SamplingParams(samplers=["top_q"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"samplers": ("temperature",), "top_k": 5}, "top_k=5"),
        ({"samplers": ("top_k",), "temperature": 1.1}, "temperature=1.1"),
        ({"samplers": (), "dry_multiplier": 0.5}, "dry_multiplier=0.5"),
        ({"mirostat_mode": 2, "top_p": 0.5}, "top_p=0.5"),
        ({"mirostat_mode": 1, "samplers": ("xtc",)}, "xtc"),
        ({"mirostat_mode": 1, "samplers": ("temperature",), "repeat_penalty": 1.1}, "repeat_penalty=1.1"),
    ],
)
def test_what_would_have_no_effect_is_refused(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ParameterError, match=rf"{named} has no effect"):
        SamplingParams(**given)
    SamplingParams(samplers=("top_k",), temperature=CHAT_DEFAULTS["temperature"])  # a method's own default


def test_min_tokens_fit_max_tokens() -> None:
    assert SamplingParams(min_tokens=16).min_tokens == 16
    assert SamplingParams(min_tokens=17, max_tokens=None).min_tokens == 17
    with pytest.raises(ParameterError, match="min_tokens=17 is more than max_tokens=16"):
        SamplingParams(min_tokens=17)


def test_numpy_numbers_become_python_numbers() -> None:
    p = SamplingParams(top_k=np.int64(5), top_p=np.float32(0.5), seed=np.uint64(2**64 - 1))  # type: ignore[arg-type]
    assert (
        type(p.top_k) is int and type(p.top_p) is float and (p.top_k, p.top_p, p.seed) == (5, 0.5, 2**64 - 1)
    )


def test_frozen_and_source_not_shared() -> None:
    bias = {1: 1.0}
    p = SamplingParams(logit_bias=bias)
    bias[2] = 2.0
    assert p.logit_bias == {1: 1.0}
    with pytest.raises(dataclasses.FrozenInstanceError):
        p.top_k = 3  # type: ignore[misc]


@settings(max_examples=60)
@given(
    st.sampled_from(list(specs(SamplingParams))),
    st.none() | st.floats() | st.integers() | st.text(max_size=3),
)
def test_any_value_is_accepted_in_range_or_refused(name: str, value: object) -> None:
    rule = spec(SamplingParams, name)
    try:
        got = getattr(SamplingParams(**{name: value}), name)
    except ParameterError:
        return
    if rule.kind in (int, float) and got is not None:
        assert type(got) is rule.kind and math.isfinite(got)
        assert (rule.low is None or got >= rule.low) and (rule.high is None or got <= rule.high)
