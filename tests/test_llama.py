"""`Llama` on tiny models: llama-cpp-python's calls and dictionaries, exact reuse, turns, interruptions."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from pyllamacpp import Llama
from pyllamacpp.completion import token_bytes
from pyllamacpp.errors import ParameterError

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
    assert (
        choice["index"] == 0 and choice["logprobs"] is None and choice["finish_reason"] in ("stop", "length")
    )
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
    assert (
        b"".join(bytes(e["bytes"]) for e in entries).decode("utf-8", "replace")
        == choice["message"]["content"]
    )
    assert all(
        len(e["top_logprobs"]) == 2 and e["logprob"] <= e["top_logprobs"][0]["logprob"] for e in entries
    )
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
        result = llm(PROMPT, max_tokens=60, seed=2, stop=["never in it", stop], logit_bias=ENDLESS)[
            "choices"
        ][0]
        assert result["text"] == text[: text.index(stop)]
        assert result["finish_reason"] == "stop"
    assert text_of(llm(PROMPT, max_tokens=60, seed=2, stop="never in it", logit_bias=ENDLESS)) == text


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
            assert sorted(top.values(), reverse=True)[:3] == pytest.approx(
                sorted(want[i - 1])[:-4:-1], abs=1e-5
            )
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


def test_chat_logprobs_are_those_of_scores_and_bytes_are_the_tokens_own(path: Path) -> None:
    """Before temperature, bias and penalties; tokens that are parts of characters have their bytes."""
    with Llama(path, logits_all=True, verbose=False) as llm:
        options: dict[str, Any] = {"logprobs": True, "top_logprobs": 4, "temperature": 3.0, "top_k": 0}
        options |= {"logit_bias": ENDLESS, "repeat_penalty": 1.3, "max_tokens": 40, "seed": 3, "min_p": 0.0}
        choice = llm.create_chat_completion(MESSAGES, **options)["choices"][0]
        entries = choice["logprobs"]["content"]
        n = len(entries)
        rows = log_softmax(llm.scores)[-n:]  # the last token was never evaluated
        for entry, row in zip(entries, rows, strict=True):
            order = np.argsort(-row, kind="stable")[:4]
            assert [bytes(top["bytes"]) for top in entry["top_logprobs"]] == [
                token_bytes(llm.tokenizer(), int(token)) for token in order
            ]
            np.testing.assert_allclose(
                [top["logprob"] for top in entry["top_logprobs"]], row[order], atol=1e-4
            )
        ids = [*llm.eval_tokens[1 - n :], None]
        for entry, row, token in zip(entries, rows, ids, strict=True):
            if token is not None:
                assert entry["logprob"] == pytest.approx(row[token], abs=1e-4)
                assert bytes(entry["bytes"]) == token_bytes(llm.tokenizer(), token)
        data = b"".join(bytes(entry["bytes"]) for entry in entries)
        assert data.decode("utf-8", "replace") == choice["message"]["content"]
        assert any("\ufffd" in entry["token"] for entry in entries), "no part of a character was drawn"
        assert json.loads(json.dumps(choice, allow_nan=False)) == choice


def test_banned_tokens_have_no_logprobs(llm: Llama) -> None:
    """A logits_processor's -infinity is no number for JSON."""

    def only(tokens: np.ndarray, logits: np.ndarray) -> np.ndarray:
        return np.where(np.isin(np.arange(len(logits)), [5, 6]), logits, -np.inf)

    result = llm([1, 2], max_tokens=3, logprobs=5, logits_processor=only)["choices"][0]["logprobs"]
    assert all(len(top) == 2 for top in result["top_logprobs"])
    json.dumps(result, allow_nan=False)


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
    assert draw(seed=-1) != draw(seed=-1)
    llm.set_seed(None)
    texts = [(draw(), llm.last_seed) for _ in range(3)]
    assert len({seed for _, seed in texts}) == 3
    for text, seed in texts:
        assert draw(seed=seed) == text


def test_generate_draws_what_a_completion_draws(llm: Llama) -> None:
    prompt = llm.tokenize(PROMPT.encode())
    want = text_of(llm(PROMPT, max_tokens=12, logit_bias=ENDLESS, top_k=5, seed=1))
    tokens = [
        t for t, _ in zip(llm.generate(prompt, top_k=5, logits_processor=ban_ends), range(12), strict=False)
    ]
    assert llm.detokenize(tokens, prev_tokens=prompt).decode("utf-8", "replace") == want


def ban_ends(tokens: np.ndarray, logits: np.ndarray) -> np.ndarray:
    logits[list(ENDLESS)] = -np.inf
    return logits


# Token by token


def test_greedy_sample_is_the_argmax(llm: Llama) -> None:
    llm.eval(llm.tokenize(PROMPT.encode()))
    assert llm.sample(temp=0) == int(llm.scores[-1].argmax())
    assert llm.sample(temp=0, logits_processor=[lambda tokens, logits: -logits]) == int(
        llm.scores[-1].argmin()
    )


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
        llm.reset()
        llm.eval(range(16))
        assert llm.sample(temp=0) == int(llm.scores[-1].argmax())  # a draw needs no room, evaluating it would


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
    assert (
        llm.metadata["llama.block_count"] == "2" and llm.metadata["tokenizer.ggml.add_bos_token"] == "false"
    )
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


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("add_bos", [False, True])
def test_exactly_one_bos(tmp_path: Path, written: bool, add_bos: bool) -> None:
    """However the text came by it. And no EOS, whatever the file says of one: an answer follows."""
    keys = {"tokenizer.ggml.add_bos_token": add_bos, "tokenizer.ggml.add_eos_token": True}
    with Llama(tiny.write(tmp_path / "spm.gguf", vocab="spm", metadata=keys), verbose=False) as llm:
        llm("<s>an" if written else "an", max_tokens=1, logit_bias={llm.token_eos(): -100})
        assert llm.eval_tokens.count(llm.token_bos()) == int(written or add_bos)
        assert llm.eval_tokens.index(llm.token_bos()) == 0 if written or add_bos else True
        assert llm.token_eos() not in llm.eval_tokens


@pytest.mark.parametrize("arch", ["llama", "gemma3", "gpt-oss"])
def test_a_second_turn_evaluates_what_is_new(tmp_path: Path, arch: str) -> None:
    """With sliding windows too, which the conversation is longer than."""
    with Llama(tiny.write(tmp_path / "m.gguf", arch, n_ctx=512), seed=1, verbose=False) as llm:
        messages = [{"role": "user", "content": "the hello and the well in the house " * 12}]
        first = llm.create_chat_completion(messages, max_tokens=5)
        messages += [first["choices"][0]["message"], {"role": "user", "content": "hello"}]
        second = llm.create_chat_completion(messages, max_tokens=5)["usage"]
        new = second["prompt_tokens"] - first["usage"]["prompt_tokens"]
        cached = second["prompt_tokens_details"]["cached_tokens"]
        assert first["usage"]["prompt_tokens"] > 100 and new < 40
        assert second["prompt_tokens"] - cached <= new + 1
        rows = llm.scores.copy()
        llm.reset()
        assert llm.create_chat_completion(messages, max_tokens=5)["usage"]["completion_tokens"] > 0
        assert np.array_equal(llm.scores, rows)
