"""`Llama` honours every sampler; with each its tokens stay the same after a cache hit or a miss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny

from pyllamacpp import Llama
from pyllamacpp.errors import ParameterError
from pyllamacpp.text.breakers import breaker_arrows

PROMPT = "the hello and the well"
MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("models") / "bpe.gguf", "llama", "F32", n_ctx=256)


@pytest.fixture
def llm(path: Path) -> Iterator[Llama]:
    with Llama(path, seed=1, verbose=False) as model:
        yield model


def ends(llm: Llama) -> dict[int, float]:
    return dict.fromkeys(llm.tokenizer().eog_ids, -100.0)


def answer(llm: Llama, prompt: Any = PROMPT, **params: Any) -> list[int]:
    """The 24 tokens of an answer that cannot end early."""
    before = len(llm.tokenize(prompt.encode())) if isinstance(prompt, str) else len(prompt)
    llm(prompt, max_tokens=24, seed=3, temperature=1.0, logit_bias=ends(llm), **params)
    return llm.eval_tokens[before:]


SETTINGS: list[dict[str, Any]] = [
    {"typical_p": 0.2, "top_k": 0, "min_p": 0.0, "top_p": 1.0},
    {"top_n_sigma": 0.5, "top_k": 0, "min_p": 0.0},
    {"xtc_probability": 0.7, "xtc_threshold": 0.001, "min_p": 0.0},
    {"dynatemp_range": 0.9},
    {"dry_multiplier": 5.0, "dry_allowed_length": 1, "dry_sequence_breakers": ["x"]},
    {"mirostat_mode": 1, "mirostat_tau": 2.0, "mirostat_eta": 0.5},
    {"mirostat_mode": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.5},
    {"samplers": ["temperature", "top_k"], "top_k": 2},
    {"presence_penalty": 2.0, "frequency_penalty": 1.0},
    {"repeat_penalty": 3.0, "penalty_last_n": -1},
]


@pytest.mark.parametrize("params", SETTINGS, ids=lambda params: next(iter(params)))
def test_honoured_and_the_same_after_other_requests(llm: Llama, params: dict[str, Any]) -> None:
    want = answer(llm, **params)
    assert want != answer(llm)
    assert answer(llm, **params) == want  # the prompt's pages are reused
    llm("something else entirely", max_tokens=3)
    llm.reset()
    assert answer(llm, **params) == want
    chunks = llm(PROMPT, max_tokens=24, seed=3, temperature=1.0, logit_bias=ends(llm), stream=True, **params)
    list(chunks)
    assert llm.eval_tokens[-len(want) :] == want
    llm.create_chat_completion(MESSAGES, max_tokens=2, **params)


@pytest.mark.parametrize("params", SETTINGS, ids=lambda params: next(iter(params)))
def test_token_by_token(llm: Llama, params: dict[str, Any]) -> None:
    tokens = llm.tokenize(PROMPT.encode())
    loop = llm.generate(tokens, temp=1.0, **params)
    first = [next(loop) for _ in range(5)]
    loop.close()
    loop = llm.generate(tokens, temp=1.0, **params)
    assert [next(loop) for _ in range(5)] == first
    loop.close()
    llm.reset()
    llm.eval(tokens)
    if "mirostat_mode" in params:
        with pytest.raises(ParameterError, match="mirostat_mode"):
            llm.sample(temp=1.0, **params)
    else:
        assert llm.sample(temp=1.0, **params) >= 0


def test_bans_really_ban(llm: Llama) -> None:
    for temperature in (0.0, 1.5):
        first = llm(PROMPT, max_tokens=1, temperature=temperature, seed=2, logprobs=0)
        tokens = llm.tokenize(PROMPT.encode())
        drawn = next(llm.generate(tokens, temp=temperature))
        for form in ({drawn: -100}, {str(drawn): -100}, [[drawn, -100]], {drawn: -float("inf")}):
            llm(PROMPT, max_tokens=20, temperature=temperature, logit_bias=form)
            assert drawn not in llm.eval_tokens[len(tokens) :]
        llm(PROMPT, max_tokens=5, temperature=temperature, logit_bias={str(drawn): 100})
        assert set(llm.eval_tokens[len(tokens) :]) == {drawn}
        assert first["choices"][0]["logprobs"] is not None


def test_min_tokens(llm: Llama) -> None:
    eos = llm.token_eos()
    for bias in ({eos: 90.0}, {eos: 100, 5: 100}):
        result = llm(PROMPT, max_tokens=12, min_tokens=4, logit_bias=bias, temperature=0.0)
        assert result["usage"]["completion_tokens"] >= 4
    ended = llm(PROMPT, max_tokens=12, min_tokens=4, logit_bias={eos: 90.0}, temperature=0.0)
    assert ended["usage"]["completion_tokens"] == 4 and ended["choices"][0]["finish_reason"] == "stop"
    with pytest.raises(ParameterError, match="min_tokens"):
        llm.sample(min_tokens=1)


def test_refusals_name_the_parameter(llm: Llama) -> None:
    for method in (llm.create_completion, lambda p, **kw: llm.create_chat_completion(MESSAGES, **kw)):
        with pytest.raises(ParameterError, match="dry_base"):
            method(PROMPT, dry_base=0.1)
        with pytest.raises(ParameterError, match=r"top_p=0\.5 has no effect with mirostat_mode=2"):
            method(PROMPT, mirostat_mode=2, top_p=0.5)
        with pytest.raises(ParameterError, match="no sampler"):
            method(PROMPT, samplers=["tfs"])
        with pytest.raises(TypeError, match="unexpected keyword argument 'temp'"):
            method(PROMPT, temp=1.0)
    assert llm(PROMPT, max_tokens=1, typical_p=None, dry_multiplier=None)["choices"]


@pytest.mark.parametrize("breaker", ["\n", "zq#", "<|im_end|>"])
def test_breakers_end_repetitions(llm: Llama, breaker: str) -> None:
    """A text of one token, of several, of a control token."""
    tokenizer = llm.tokenizer()
    found = breaker_arrows(tokenizer, ["\n", "<|im_end|>"])
    lines = {i for i in range(tokenizer.n_vocab) if b"\n" in tokenizer.token_bytes(i)}
    assert found[0] == [(0, i, -1) for i in sorted(lines)]
    assert breaker_arrows(tokenizer, ["<|im_end|>", "\n"]) == found[::-1]
    repeated = tokenizer.encode("abcabc" + breaker, special=True)
    assert (repeated[-1] in tokenizer.eog_ids) == (breaker == "<|im_end|>")
    likely = tokenizer.encode("h", special=False)[0]
    prompt = [*repeated, likely, *repeated]
    given: dict[str, Any] = {"dry_multiplier": 99.0, "dry_allowed_length": 1, "logit_bias": {likely: 50.0}}
    for breakers, drawn in (([breaker], True), (["other"], False)):
        llm(prompt, max_tokens=2, temperature=0.0, dry_sequence_breakers=breakers, **given)
        assert (llm.eval_tokens[len(prompt)] == likely) == drawn
