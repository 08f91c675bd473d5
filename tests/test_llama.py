"""`Llama` on tiny random models: llama-cpp-python's calls and dictionaries, exact reuse, turns, interruptions."""

from __future__ import annotations

import copy
import inspect
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from pyllamacpp import Llama, SamplingParams, compat, generation, hub
from pyllamacpp.errors import (
    ChatTemplateError,
    ContextOverflowError,
    ModelNotFoundError,
    ParameterError,
    PyllamacppError,
)

PROMPT = "the hello and the well"
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
N_VOCAB = len(tiny.bpe_vocab()["tokenizer.ggml.tokens"])
ENDLESS = {i: -math.inf for i in range(N_VOCAB - 3, N_VOCAB)}  # no control token: nothing ends the answer


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("models") / "bpe.gguf", "llama", "F32", n_ctx=256)


@pytest.fixture
def llm(path: Path) -> Iterator[Llama]:
    with Llama(path, seed=1, verbose=False) as model:
        yield model


def text_of(result: dict[str, Any]) -> str:
    text: str = result["choices"][0]["text"]
    return text


def log_softmax(rows: np.ndarray) -> np.ndarray:
    x = rows.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


# Result dictionaries


def test_completion_dictionary(llm: Llama) -> None:
    result = llm(PROMPT, max_tokens=8)
    assert list(result) == ["id", "object", "created", "model", "choices", "usage"]
    assert result["id"].startswith("cmpl-") and result["object"] == "text_completion"
    assert abs(result["created"] - time.time()) < 60 and result["model"] == llm.model_path
    (choice,) = result["choices"]
    assert list(choice) == ["text", "index", "logprobs", "finish_reason"]
    assert choice["index"] == 0 and choice["logprobs"] is None and choice["finish_reason"] in ("stop", "length")
    n = len(llm.tokenize(PROMPT.encode()))
    counts = result["usage"]
    assert counts["prompt_tokens"] == n
    assert counts["total_tokens"] == n + counts["completion_tokens"]
    assert counts["prompt_tokens_details"] == {"cached_tokens": 0}
    assert llm(PROMPT, max_tokens=8, model="mine")["model"] == "mine"


def test_chat_dictionary(llm: Llama) -> None:
    result = llm.create_chat_completion(MESSAGES, max_tokens=8, logprobs=True, top_logprobs=2)
    assert result["id"].startswith("chatcmpl-") and result["object"] == "chat.completion"
    (choice,) = result["choices"]
    assert set(choice) == {"index", "message", "logprobs", "finish_reason"}
    assert choice["message"]["role"] == "assistant"
    entries = choice["logprobs"]["content"]
    assert b"".join(bytes(e["bytes"]) for e in entries).decode("utf-8", "replace") == choice["message"]["content"]
    assert all(len(e["top_logprobs"]) == 2 and e["logprob"] <= e["top_logprobs"][0]["logprob"] for e in entries)
    json.dumps(result)


def test_chat_stream_is_the_whole_answer(llm: Llama) -> None:
    options: dict[str, Any] = {"max_tokens": 20, "seed": 3, "logprobs": True, "top_logprobs": 1}
    whole = llm.create_chat_completion(MESSAGES, **options)["choices"][0]
    chunks = list(llm.create_chat_completion(MESSAGES, stream=True, **options))
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"} and len({c["id"] for c in chunks}) == 1
    first, *middle, last = [c["choices"][0] for c in chunks]
    assert first["delta"] == {"role": "assistant"}
    assert last["delta"] == {} and last["finish_reason"] == whole["finish_reason"]
    assert all(c["finish_reason"] is None and list(c["delta"]) == ["content"] for c in middle)
    assert "".join(c["delta"]["content"] for c in middle) == whole["message"]["content"]
    assert [e for c in middle for e in c["logprobs"]["content"]] == whole["logprobs"]["content"]


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("logprobs", [None, 0, 3])
@pytest.mark.parametrize("stopped", [False, True])
def test_stream_is_the_whole_completion(llm: Llama, echo: bool, logprobs: int | None, stopped: bool) -> None:
    options: dict[str, Any] = {"max_tokens": 40, "seed": 7, "echo": echo, "logprobs": logprobs}
    if stopped:
        text = text_of(llm(PROMPT, max_tokens=40, seed=7))
        options["stop"] = [text[len(text) // 2 :][:2]]
    whole = llm(PROMPT, **options)["choices"][0]
    chunks = [c["choices"][0] for c in llm(PROMPT, stream=True, **options)]
    assert "".join(c["text"] for c in chunks) == whole["text"]
    assert [c["finish_reason"] for c in chunks] == [None] * (len(chunks) - 1) + [whole["finish_reason"]]
    assert not stopped or whole["finish_reason"] == "stop"
    if logprobs is not None:
        for key, values in whole["logprobs"].items():
            assert [v for c in chunks[:-1] for v in c["logprobs"][key]] == values, key


# Stop strings, echo, log-probabilities


def test_stop_strings_are_never_emitted(llm: Llama) -> None:
    full = llm(PROMPT, max_tokens=60, seed=2, logprobs=0, logit_bias=ENDLESS)["choices"][0]
    text, offsets = full["text"], [o - len(PROMPT) for o in full["logprobs"]["text_offset"]]
    for k in (5, 11, 17, 23):
        stop = text[offsets[k] - 1 : offsets[k] + 1]  # across the border of two tokens
        result = llm(PROMPT, max_tokens=60, seed=2, stop=["never in it", stop], logit_bias=ENDLESS)["choices"][0]
        assert result["text"] == text[: text.index(stop)]
        assert result["finish_reason"] == "stop"
    assert text_of(llm(PROMPT, max_tokens=60, seed=2, stop="\0\0", logit_bias=ENDLESS)) == text


def test_echo_begins_with_the_prompt(llm: Llama) -> None:
    plain = text_of(llm(PROMPT, max_tokens=5))
    assert text_of(llm(PROMPT, max_tokens=5, echo=True)) == PROMPT + plain
    assert text_of(llm(llm.tokenize(PROMPT.encode()), max_tokens=5, echo=True)) == PROMPT + plain


@pytest.mark.parametrize("vocab", ["bpe", "spm"])
@pytest.mark.parametrize("logits_all", [False, True])
def test_logprobs_are_the_log_softmax_of_scores(tmp_path: Path, vocab: str, logits_all: bool) -> None:
    with Llama(tiny.write(tmp_path / "m.gguf", vocab=vocab), logits_all=True, verbose=False) as scorer:
        prompt = scorer.tokenize(PROMPT.encode())
        with Llama(scorer.model_path, logits_all=logits_all, verbose=False) as llm:
            result = llm(PROMPT, max_tokens=12, echo=True, logprobs=3, temperature=2.0, seed=9)
            logprobs = result["choices"][0]["logprobs"]
        tokens = logprobs["tokens"]
        bos = int(prompt[0] == scorer.token_bos())
        n_answer = result["usage"]["completion_tokens"]
        assert len(tokens) == len(prompt) - bos + n_answer
        assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
        scorer.eval(prompt)
        want = log_softmax(scorer.scores)
        for i in range(1 + bos, len(prompt)):
            got, top = logprobs["token_logprobs"][i - bos], logprobs["top_logprobs"][i - bos]
            assert got == pytest.approx(want[i - 1, prompt[i]], abs=1e-5)
            assert sorted(top.values(), reverse=True)[:3] == pytest.approx(sorted(want[i - 1])[:-4:-1], abs=1e-5)
            assert top[tokens[i - bos]] == got
        text, offsets = result["choices"][0]["text"], logprobs["text_offset"]
        assert offsets == sorted(offsets) and offsets[len(prompt) - bos] == len(PROMPT)
        for token, offset in zip(tokens[1:], offsets[1:], strict=True):
            if not token.startswith("bytes:"):
                assert text[offset:].startswith(token)


def test_answer_logprobs_are_those_of_the_drawn_tokens(path: Path) -> None:
    with Llama(path, logits_all=True, verbose=False, seed=4) as llm:
        prompt = llm.tokenize(PROMPT.encode())
        answer = llm(PROMPT, max_tokens=10, logprobs=0, temperature=1.5, logit_bias=ENDLESS)
        drawn = answer["choices"][0]["logprobs"]["token_logprobs"]
        ids = llm.eval_tokens[len(prompt) :]
        want = log_softmax(llm.scores)[len(prompt) - 1 :]
        assert len(ids) == len(drawn) - 1  # the last one was never evaluated
        assert drawn[:-1] == pytest.approx([want[i, t] for i, t in enumerate(ids)], abs=1e-5)


# The same tokens, always


def test_reuse_changes_nothing(path: Path, llm: Llama) -> None:
    base = "the hello and the well of the "
    for prompt in (base, base + "in", base + "in", "other", base[:9], base):
        with Llama(path, seed=1, verbose=False) as fresh:
            want = fresh(prompt, max_tokens=20)
            got = llm(prompt, max_tokens=20)
            assert text_of(got) == text_of(want)
            assert np.array_equal(llm.scores, fresh.scores)
            assert want["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_reuse_is_counted(llm: Llama) -> None:
    n = len(llm.tokenize(PROMPT.encode()))
    llm(PROMPT, max_tokens=4)
    assert llm(PROMPT, max_tokens=4)["usage"]["prompt_tokens_details"]["cached_tokens"] == n - 1
    longer = llm(PROMPT + " zz", max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert n - 2 <= longer <= n + 4


@pytest.mark.parametrize("n_batch", [1, 7, 512])
def test_batch_size_changes_nothing(path: Path, llm: Llama, n_batch: int) -> None:
    with Llama(path, seed=1, n_batch=n_batch, logits_all=True, verbose=False) as other:
        assert text_of(other(PROMPT * 3, max_tokens=20)) == text_of(llm(PROMPT * 3, max_tokens=20))
        tokens = other.eval_tokens
        rows = other.scores.copy()
        assert rows.shape == (len(tokens), other.n_vocab()) and rows.dtype == np.float32
        llm.reset()
        for i, token in enumerate(tokens):
            llm.eval([token])
            assert llm.scores.shape == (1, llm.n_vocab())
            assert np.array_equal(llm.scores[0], rows[i]), i


def test_seed(llm: Llama) -> None:
    def draw(**given: Any) -> str:
        return text_of(llm(PROMPT, max_tokens=30, temperature=3.0, top_k=0, top_p=1.0, min_p=0.0, **given))

    assert draw(seed=5) == draw(seed=5) != draw(seed=6)
    assert draw() == draw() == draw(seed=1)  # the object's own seed
    llm.set_seed(None)
    texts = [(draw(), llm.last_seed) for _ in range(3)]
    assert len({seed for _, seed in texts}) == 3
    for text, seed in texts:
        assert draw(seed=seed) == text


def test_generate_draws_what_a_completion_draws(llm: Llama) -> None:
    prompt = llm.tokenize(PROMPT.encode())
    want = text_of(llm(PROMPT, max_tokens=12, logit_bias=ENDLESS, top_k=5, seed=1))
    tokens = [t for t, _ in zip(llm.generate(prompt, top_k=5, logits_processor=ban_ends), range(12), strict=False)]
    assert llm.detokenize(tokens, prev_tokens=prompt).decode("utf-8", "replace") == want


def ban_ends(tokens: np.ndarray, logits: np.ndarray) -> np.ndarray:
    logits[list(ENDLESS)] = -np.inf
    return logits


# Token by token


def test_greedy_sample_is_the_argmax(llm: Llama) -> None:
    llm.eval(llm.tokenize(PROMPT.encode()))
    assert llm.sample(temp=0) == int(llm.scores[-1].argmax())
    assert llm.sample(temp=0, logits_processor=[lambda tokens, logits: -logits]) == int(llm.scores[-1].argmin())


def test_generate_evaluates_what_is_sent(llm: Llama) -> None:
    stream = llm.generate([1, 2, 3], temp=0)
    first = next(stream)
    stream.send([7, 8])
    assert llm.eval_tokens == [1, 2, 3, first, 7, 8]
    stream.close()
    assert llm.eval_tokens == [1, 2, 3, first, 7, 8]
    assert next(llm.generate([9], temp=0, reset=False)) >= 0
    assert llm.eval_tokens == [1, 2, 3, first, 7, 8, 9]


def test_generate_ends_with_the_context(path: Path) -> None:
    with Llama(path, n_ctx=16, verbose=False) as llm:
        assert len(list(llm.generate([1, 2, 3]))) == 13


def test_stopping_criteria(llm: Llama) -> None:
    seen: list[int] = []

    def long_enough(tokens: np.ndarray, logits: np.ndarray) -> bool:
        seen.append(len(tokens))
        return len(tokens) >= 8

    assert len(list(llm.generate([1, 2, 3], stopping_criteria=[long_enough]))) == 5
    assert seen == [3, 4, 5, 6, 7, 8]
    result = llm([1, 2, 3], max_tokens=50, stopping_criteria=long_enough, logit_bias=ENDLESS)
    assert result["usage"]["completion_tokens"] == 5 and result["choices"][0]["finish_reason"] == "stop"


def test_positions_can_be_taken_back(llm: Llama) -> None:
    llm.eval([1, 2, 3, 4])
    row = llm.scores.copy()
    llm.n_tokens = 2
    assert llm.eval_tokens == [1, 2]
    llm.eval([3, 4])
    assert np.array_equal(llm.scores, row)
    with pytest.raises(ParameterError, match="between 0 and the 4 tokens"):
        llm.n_tokens = 5
    llm.reset()
    assert llm.n_tokens == 0 and llm.scores.shape == (0, llm.n_vocab())
    with pytest.raises(ParameterError, match="no token has been evaluated"):
        llm.sample()


def test_tokens_and_bytes(llm: Llama) -> None:
    data = "hello <|im_end|> wörld 😶 ".encode() + b"\xff\xf0\x9f"
    plain, special = llm.tokenize(data), llm.tokenize(data, special=True)
    assert llm.detokenize(plain) == data
    assert llm.token_eos() in special and llm.token_eos() not in plain
    assert llm.detokenize(special, special=True) == data
    assert llm.detokenize(special) == data.replace(b"<|im_end|>", b"")
    assert llm.detokenize([llm.token_nl()]) == b"\n"
    assert llm.n_vocab() == N_VOCAB and llm.n_embd() == 64 and llm.n_ctx() == 256
    assert (llm.token_bos(), llm.token_eos()) == (N_VOCAB - 3, N_VOCAB - 1)
    assert llm.metadata["llama.block_count"] == "2" and llm.metadata["tokenizer.ggml.add_bos_token"] == "false"
    assert llm.metadata["llama.attention.layer_norm_rms_epsilon"] == "1e-06"
    assert "tokenizer.ggml.tokens" not in llm.metadata
    with pytest.raises(ParameterError, match="bytes"):
        llm.tokenize("text")  # type: ignore[arg-type]


def test_bos_is_added_once(tmp_path: Path) -> None:
    with Llama(tiny.write(tmp_path / "spm.gguf", vocab="spm"), verbose=False) as llm:
        bos = llm.token_bos()
        assert llm.tokenize(b"an")[0] == bos and bos not in llm.tokenize(b"an", add_bos=False)
        llm("<s>an", max_tokens=1)
        assert llm.eval_tokens.count(bos) == 1
        assert llm("", max_tokens=1)["usage"]["prompt_tokens"] == 1 and llm.eval_tokens == [bos]


# What cannot be done


def test_prompt_beyond_the_context(path: Path) -> None:
    with Llama(path, n_ctx=32, verbose=False) as llm:
        llm.eval([1, 2, 3])
        for call in (lambda: llm([5] * 40), lambda: llm([5] * 40, stream=True), lambda: llm([5] * 32)):
            with pytest.raises(ContextOverflowError, match=r"\b(40|32) tokens.*\b32\b"):
                call()
        with pytest.raises(ContextOverflowError, match=r"3 tokens are held and 30 more .* 32"):
            llm.eval([5] * 30)
        assert llm.eval_tokens == [1, 2, 3]
        with pytest.raises(ContextOverflowError):
            llm.create_chat_completion([{"role": "user", "content": "hello " * 50}])


@pytest.mark.parametrize("max_tokens", [None, 0, -1, 1000])
def test_answer_to_the_end_of_the_context(path: Path, max_tokens: int | None) -> None:
    with Llama(path, n_ctx=32, verbose=False) as llm:
        result = llm([5] * 10, max_tokens=max_tokens, logit_bias=ENDLESS)
        assert result["usage"]["total_tokens"] == 32
        assert result["choices"][0]["finish_reason"] == "length"


def test_end_of_generation_is_not_text(llm: Llama) -> None:
    result = llm(PROMPT, max_tokens=9, logit_bias={llm.token_eos(): 1000.0}, logprobs=1)
    assert result["choices"][0]["text"] == "" and result["choices"][0]["finish_reason"] == "stop"
    assert result["usage"]["completion_tokens"] == 0 and result["choices"][0]["logprobs"]["tokens"] == []


@pytest.mark.parametrize(
    ("prompt", "message"),
    [([], "empty"), ("a\ud83d", "surrogate"), ([10**6], "outside the vocabulary"), ([-1], "outside"), ([1.5], "integers")],
)
def test_bad_prompts(llm: Llama, prompt: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        llm(prompt)


def test_empty_prompt_without_bos(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", metadata={"tokenizer.ggml.bos_token_id": None})
    with Llama(path, verbose=False) as llm, pytest.raises(ParameterError, match="empty"):
        llm("")


def test_chat_needs_a_template(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", metadata={"tokenizer.chat_template": None})
    with Llama(path, verbose=False) as llm:
        assert llm.chat_template is None
        with pytest.raises(ChatTemplateError, match="chat_template"):
            llm.create_chat_completion(MESSAGES)
    with Llama(path, chat_template="{{ messages[0]['content'] }}", verbose=False) as llm:
        llm.create_chat_completion(MESSAGES, max_tokens=1)
        assert llm.detokenize(llm.eval_tokens) == b"be brief"


def test_users_cannot_write_control_tokens(llm: Llama) -> None:
    llm.create_chat_completion([{"role": "user", "content": "<|im_end|>"}], max_tokens=1)
    assert llm.eval_tokens.count(llm.token_eos()) == 1  # the template's own
    with pytest.raises(ParameterError, match="surrogate"):
        llm.create_chat_completion([{"role": "user", "content": "\ud800"}])
    with pytest.raises(ParameterError, match="messages"):
        llm.create_chat_completion("hello")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="top_logprobs"):
        llm.create_chat_completion(MESSAGES, top_logprobs=2)


# llama-cpp-python's own defaults (0.3), every parameter spelled out.
CONSTRUCTOR_DEFAULTS: dict[str, Any] = {
    "n_gpu_layers": 0, "split_mode": 1, "main_gpu": 0, "tensor_split": None, "vocab_only": False, "use_mmap": True,
    "use_mlock": False, "kv_overrides": None, "seed": 4294967295, "n_ctx": 512, "n_batch": 512, "n_ubatch": 512,
    "n_threads": None, "n_threads_batch": None, "rope_scaling_type": -1, "pooling_type": -1, "attention_type": -1,
    "rope_freq_base": 0.0, "rope_freq_scale": 0.0, "yarn_ext_factor": -1.0, "yarn_attn_factor": 1.0,
    "yarn_beta_fast": 32.0, "yarn_beta_slow": 1.0, "yarn_orig_ctx": 0, "logits_all": False, "embedding": False,
    "offload_kqv": True, "flash_attn": False, "op_offload": None, "swa_full": None, "no_perf": False,
    "last_n_tokens_size": 64, "lora_base": None, "lora_scale": 1.0, "lora_path": None, "numa": False,
    "chat_format": None, "chat_handler": None, "draft_model": None, "tokenizer": None, "type_k": None, "type_v": None,
    "spm_infill": False, "verbose": False,
}  # fmt: skip
SAMPLING_DEFAULTS: dict[str, Any] = {
    "top_p": 0.95, "min_p": 0.05, "typical_p": 1.0, "top_k": 40, "frequency_penalty": 0.0, "presence_penalty": 0.0,
    "repeat_penalty": 1.0, "tfs_z": 1.0, "mirostat_mode": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1,
    "logits_processor": None, "grammar": None,
}  # fmt: skip
TEXT_DEFAULTS: dict[str, Any] = {"stream": False, "stop": [], "seed": None, "model": None, "logit_bias": None}
COMPLETION_DEFAULTS: dict[str, Any] = {
    **SAMPLING_DEFAULTS, **TEXT_DEFAULTS, "suffix": None, "max_tokens": 16, "temperature": 0.8, "logprobs": None,
    "echo": False, "stopping_criteria": None,
}  # fmt: skip
CHAT_DEFAULTS: dict[str, Any] = {
    **SAMPLING_DEFAULTS, **TEXT_DEFAULTS, "functions": None, "function_call": None, "tools": None, "tool_choice": None,
    "temperature": 0.2, "response_format": None, "max_tokens": None, "logprobs": None, "top_logprobs": None,
}  # fmt: skip
TOKEN_DEFAULTS: dict[str, Any] = {**SAMPLING_DEFAULTS, "temp": 0.8, "penalize_nl": True}


def test_every_parameter_of_llama_cpp_python_is_known(path: Path) -> None:
    with Llama(str(path), **CONSTRUCTOR_DEFAULTS) as llm:
        assert llm.n_ctx() == 512
        assert llm(PROMPT, **COMPLETION_DEFAULTS)["object"] == "text_completion"
        assert llm.create_completion(PROMPT, **COMPLETION_DEFAULTS)["object"] == "text_completion"
        assert llm.create_chat_completion(MESSAGES, **CHAT_DEFAULTS | {"max_tokens": 3})["choices"]
        assert llm.sample(**TOKEN_DEFAULTS, idx=None) >= 0
        assert next(llm.generate([1], **TOKEN_DEFAULTS, reset=True, stopping_criteria=None)) >= 0


@pytest.mark.parametrize("name", sorted(compat.CONSTRUCTOR))
def test_unsupported_constructor_parameters_are_named(path: Path, name: str) -> None:
    if True in compat.CONSTRUCTOR[name].values and False in compat.CONSTRUCTOR[name].values:
        Llama(path, verbose=False, **{name: True}).close()
    with pytest.raises(ParameterError, match=rf"^{name}='.*' is not supported yet"):
        Llama(path, **{name: "something"})
    with pytest.raises(ParameterError, match=rf"^{name}=.* is not supported yet"):
        Llama(path, **{name: np.ones(3)})


@pytest.mark.parametrize(
    ("function", "name"),
    [("create_completion", n) for n in sorted(compat.COMPLETION)]
    + [("create_chat_completion", n) for n in sorted(compat.CHAT)]
    + [("sample", n) for n in sorted(compat.SAMPLE)]
    + [("generate", n) for n in sorted(compat.SAMPLING)],
)
def test_unsupported_method_parameters_are_named(llm: Llama, function: str, name: str) -> None:
    first: dict[str, tuple[Any, ...]] = {"create_chat_completion": (MESSAGES,), "sample": ()}
    arguments = first.get(function, ([1, 2],))
    with pytest.raises(ParameterError, match=rf"^{name}='something' is not supported yet"):
        getattr(llm, function)(*arguments, **{name: "something"})
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        getattr(llm, function)(*arguments, nonsense=1)


def test_refusals_that_matter(path: Path, llm: Llama) -> None:
    with pytest.raises(ParameterError, match=r"(?s)n_gpu_layers=-1 is not supported yet.*leave it out"):
        Llama(path, n_gpu_layers=-1)
    with pytest.raises(ParameterError, match="n_threads_batch"):
        Llama(path, n_threads=1, n_threads_batch=2)
    with pytest.raises(TypeError, match="nonsense"):
        Llama(path, nonsense=1)
    with pytest.raises(ParameterError, match="tools"):
        llm.create_chat_completion(MESSAGES, tools=[{"type": "function"}])
    with pytest.raises(ParameterError, match="response_format"):
        llm.create_chat_completion(MESSAGES, response_format={"type": "json_object"})
    llm.create_chat_completion(MESSAGES, response_format={"type": "text"}, tool_choice="none", max_tokens=1)
    with pytest.raises(ParameterError, match="temperature"):
        llm(PROMPT, temperature="warm")
    with pytest.raises(ParameterError, match="logits_processor"):
        llm(PROMPT, logits_processor="x")
    with pytest.raises(ParameterError, match=r"shape \(\d+,\)"):
        llm(PROMPT, logits_processor=lambda tokens, logits: logits[:5])
    with pytest.raises(AttributeError, match="create_embedding of llama-cpp-python is not supported yet"):
        _ = llm.create_embedding
    with pytest.raises(ModelNotFoundError):
        Llama(path.with_name("absent.gguf"), verbose=False)
    assert not hasattr(llm, "absent")


def test_defaults_are_those_of_sampling_params() -> None:
    defaults = SamplingParams()
    for function in (Llama.create_completion, Llama.create_chat_completion, Llama.sample, Llama.generate):
        for name, parameter in inspect.signature(function).parameters.items():
            if function is Llama.create_chat_completion and name in ("temperature", "max_tokens", "logprobs"):
                continue
            field = {"temp": "temperature"}.get(name, name)
            if hasattr(defaults, field) and field != "logit_bias":
                assert parameter.default == getattr(defaults, field), (function, name)


# Turns, interruptions, lifetime


def test_threads_are_served_in_turn(llm: Llama) -> None:
    prompts = ["the hello", "and the well", "in the well of", "hello"]
    want = {p: text_of(llm(p, max_tokens=25)) for p in prompts}
    got: list[tuple[str, str]] = []

    def ask(prompt: str) -> None:
        for _ in range(5):
            chunks = llm(prompt, max_tokens=25, stream=True)
            got.append((prompt, "".join(text_of(c) for c in chunks)))

    threads = [threading.Thread(target=ask, args=(p,)) for p in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(got) == 20 and all(want[prompt] == text for prompt, text in got)


def test_an_open_stream_keeps_its_turn(llm: Llama) -> None:
    stream = llm(PROMPT, max_tokens=30, stream=True, logit_bias=ENDLESS)
    next(stream)
    done = threading.Event()
    other = threading.Thread(target=lambda: (llm("hello", max_tokens=2), done.set()))
    other.start()
    assert not done.wait(0.1)
    with pytest.raises(ParameterError, match="stream of the same Llama open"):
        llm("hello")
    assert llm.n_tokens > 0 and llm.scores.shape[0] == 1  # reading is allowed
    stream.close()
    assert done.wait(30)
    other.join()
    for chunk in llm(PROMPT, max_tokens=30, stream=True):
        if chunk["choices"][0]["text"]:
            break
    llm("hello", max_tokens=1)  # an abandoned stream gives its turn back


def test_keyboard_interrupt_between_tokens(path: Path, llm: Llama) -> None:
    def slowly(tokens: np.ndarray, logits: np.ndarray) -> np.ndarray:
        time.sleep(0.01)
        return logits

    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        llm(PROMPT, max_tokens=None, logits_processor=slowly, logit_bias=ENDLESS)
    timer.join()
    with Llama(path, seed=1, verbose=False) as fresh:
        assert text_of(llm(PROMPT, max_tokens=20)) == text_of(fresh(PROMPT, max_tokens=20))


@pytest.mark.parametrize("logits_all", [False, True])
def test_interruption_anywhere_leaves_the_object_whole(path: Path, logits_all: bool) -> None:
    """Interrupt the n-th line run inside `Context` and the token loop, for every n: the next request is unharmed."""
    llm = Llama(path, seed=1, n_batch=4, logits_all=logits_all, verbose=False)
    want = text_of(llm(PROMPT, max_tokens=6, logit_bias=ENDLESS))
    rows = llm.scores.copy()
    ours = {code for f in vars(generation.Context).values() if (code := getattr(f, "__code__", None))}
    ours.add(generation.draws.__code__)
    for n in range(1000):
        left = n

        def trace(frame: Any, event: str, argument: Any) -> Any:
            nonlocal left
            if frame.f_code not in ours:
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            llm("hello in", max_tokens=2)
            ended = True
        except KeyboardInterrupt:
            ended = False
        finally:
            sys.settrace(None)
        assert llm.n_tokens == 0 or llm.scores.shape[0] == (llm.n_tokens if logits_all else 1)
        if ended or n % 5 == 0:
            assert text_of(llm(PROMPT, max_tokens=6, logit_bias=ENDLESS)) == want
            assert np.array_equal(llm.scores, rows)
        if ended:
            break
    assert ended and n > 20
    llm.close()


def test_an_error_in_a_callback_leaves_the_object_whole(llm: Llama) -> None:
    want = text_of(llm(PROMPT, max_tokens=10))

    def fail(tokens: np.ndarray, logits: np.ndarray) -> np.ndarray:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        llm("hello", logits_processor=fail)
    assert text_of(llm(PROMPT, max_tokens=10)) == want


def test_closed_is_closed(path: Path) -> None:
    llm = Llama(path, verbose=False)
    stream = llm(PROMPT, max_tokens=50, stream=True, logit_bias=ENDLESS)
    next(stream)
    llm.close()
    llm.close()
    with pytest.raises(ParameterError, match="closed"):
        list(stream)
    calls = [
        lambda: llm(PROMPT), lambda: llm.create_chat_completion(MESSAGES), lambda: llm.tokenize(b"x"),
        lambda: llm.detokenize([1]), lambda: llm.eval([1]), lambda: llm.scores, llm.sample, llm.reset,
        lambda: llm.n_tokens, llm.n_ctx, llm.n_vocab, llm.n_embd, lambda: llm.generate([1]), llm.token_eos,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ParameterError, match="closed"):
            call()


def test_close_frees_the_model(path: Path) -> None:
    llm = Llama(path, verbose=False)
    llm(PROMPT, max_tokens=3)
    model = weakref.ref(llm._model)
    llm.close()
    assert model() is None
    dropped = Llama(path, verbose=False)
    dropped(PROMPT, max_tokens=3)
    model = weakref.ref(dropped._model)
    del dropped
    assert model() is None


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident size from /proc")
def test_memory_stays_flat(tmp_path: Path) -> None:
    big = tiny.write(tmp_path / "big.gguf", n_layer=24)

    def cycle() -> int:
        with Llama(big, verbose=False) as llm:
            llm(PROMPT, max_tokens=2)
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = max(cycle() for _ in range(5))
    after = min(cycle() for _ in range(20))
    assert after - before < 5 * big.stat().st_size


def test_no_copies(llm: Llama) -> None:
    for copying in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            copying(llm)


# Opening


def test_vocab_only(path: Path, tmp_path: Path) -> None:
    names = tiny.tensor_shapes("llama", tiny.shape_of("llama", "F32"), N_VOCAB, True)
    bare = tiny.write(tmp_path / "vocab.gguf", drop=list(names))
    for file in (path, bare):
        with Llama(file, vocab_only=True, verbose=False) as llm:
            assert llm.detokenize(llm.tokenize(b"hello")) == b"hello" and llm.n_vocab() == N_VOCAB
            for call in (lambda: llm("x"), lambda: llm.eval([1]), llm.n_ctx, lambda: llm.n_tokens):  # noqa: B023
                with pytest.raises(ParameterError, match="vocab_only"):
                    call()
    with pytest.raises(PyllamacppError):
        Llama(bare, verbose=False)


def test_verbose(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Llama(path, verbose=False) as llm:
        llm(PROMPT, max_tokens=2)
    assert capfd.readouterr() == ("", "")
    Llama(path).close()
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1 and "context 256" in err and path.name in err


def test_from_pretrained(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def from_repo(repo_id: str, filename: str | None, **options: Any) -> Path:
        asked.append((repo_id, filename, options))
        return path

    monkeypatch.setattr(hub, "from_repo", from_repo)
    llm = Llama.from_pretrained(repo_id="Qwen/Qwen3-8B-GGUF", filename="*Q8_0.gguf", verbose=False)
    output = llm("Q: Name the planets in the solar system? A: ", max_tokens=32, stop=["Q:", "\n"], echo=True)
    assert text_of(output).startswith("Q: Name the planets in the solar system? A: ")
    (repo_id, filename, options), = asked
    assert (repo_id, filename) == ("Qwen/Qwen3-8B-GGUF", "*Q8_0.gguf") and options["progress"] is False
    with pytest.raises(ParameterError, match="local_dir_use_symlinks"):
        Llama.from_pretrained("a/b", "c", local_dir_use_symlinks=True)


def test_importing_the_package_costs_nothing() -> None:
    code = (
        "import sys, pyllamacpp\n"
        "heavy = {'numpy', 'tokenizers', 'jinja2', 'huggingface_hub', 'dataclasses', 'typing', 'importlib.metadata'}\n"
        "assert not heavy - {'typing'} & set(sys.modules), heavy & set(sys.modules)\n"
        "assert pyllamacpp.__version__ and 'Llama' in dir(pyllamacpp)\n"
        "assert pyllamacpp.ParameterError is pyllamacpp.errors.ParameterError\n"
        "for name in pyllamacpp.__all__: getattr(pyllamacpp, name)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_interpreter_exits_cleanly_with_a_stream_open(path: Path) -> None:
    code = (
        "import sys, pyllamacpp\n"
        "llm = pyllamacpp.Llama(sys.argv[1], verbose=False)\n"
        "stream = llm('hello', max_tokens=None, stream=True)\n"
        "next(stream)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, timeout=60, check=True)
    assert done.stderr == b""
