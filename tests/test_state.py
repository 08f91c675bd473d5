"""States and caches: what was held is held again, and nothing else ever."""

from __future__ import annotations

import copy
import pickle
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from pyllamacpp import Llama, LlamaCache, LlamaRAMCache, LlamaState
from pyllamacpp.errors import ParameterError

PROMPT = "the hello and the well of the "


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("models") / "m.gguf", "gemma3", "Q4_0", n_ctx=512)


@pytest.fixture
def llm(path: Path) -> Iterator[Llama]:
    with Llama(path, seed=1, verbose=False) as model:
        yield model


def text(llm: Llama, prompt: Any, **more: Any) -> str:
    answer: str = llm(prompt, **{"max_tokens": 20, "temperature": 2.0, **more})["choices"][0]["text"]
    return answer


def tokens(llm: Llama, n: int) -> list[int]:
    return [t for t, _ in zip(llm.generate([], reset=False, temp=1.5), range(n), strict=False)]


@pytest.mark.parametrize("n_tokens", [0, 1, 63, 64, 65, 300])
@pytest.mark.parametrize("logits_all", [False, True])
def test_round_trip(path: Path, n_tokens: int, logits_all: bool) -> None:
    ids = ((np.arange(n_tokens) * 37 + 11) % 290).tolist()
    with Llama(path, seed=5, logits_all=logits_all, verbose=False) as llm:
        if ids:
            llm.eval(ids)
        scores = llm.scores.copy()
        saved = llm.save_state()
        want = tokens(llm, 12) if ids else []
        for state in (saved, pickle.loads(pickle.dumps(saved)), LlamaState.from_bytes(saved.to_bytes())):
            llm.reset()
            llm.eval([9] * 100)
            llm.load_state(state)
            assert llm.eval_tokens == ids and np.array_equal(llm.scores, scores)
            assert (tokens(llm, 12) if ids else []) == want
    with Llama(path, seed=None, n_batch=7, logits_all=not logits_all, verbose=False) as other:
        other.load_state(saved)
        assert other.eval_tokens == ids and np.array_equal(other.scores[-1:], scores[-1:])
        if ids:
            assert tokens(other, 12) == want  # its seed came along
            assert len(other.scores) in (1, n_tokens + 12)


def test_fields(llm: Llama) -> None:
    llm.eval([1, 2, 3])
    state = llm.save_state()
    assert state.input_ids.tolist() == [1, 2, 3] and state.n_tokens == 3
    assert state.scores.shape == (1, llm.n_vocab()) and state.seed == 1 and state.n_ctx == 512
    assert len(state.llama_state) == state.llama_state_size
    llm.eval([4])  # the state is a copy
    assert state.n_tokens == 3 and np.array_equal(copy.deepcopy(state).pages, state.pages)


def test_memory_is_in_proportion_to_the_tokens(llm: Llama) -> None:
    sizes = []
    for n in (64, 128, 256):
        llm.eval([5] * (n - llm.n_tokens))
        sizes.append(llm.save_state().llama_state_size)
    assert sizes == [sizes[0], 2 * sizes[0], 4 * sizes[0]]
    assert sizes[0] == 64 * llm._model.kv_bytes_per_token()
    assert len(llm.save_state().to_bytes()) < sizes[2] + 4 * llm.n_vocab() + 2000


def refused(llm: Llama, state: Any, message: str) -> None:
    """Refused, and the Llama goes on as if nothing had been asked."""
    held, seed = llm.eval_tokens, llm._defaults.seed
    with pytest.raises(ParameterError, match=message):
        llm.load_state(state)
    assert llm.eval_tokens == held and llm._defaults.seed == seed
    assert llm.sample(temp=0) >= 0


def test_states_of_others(path: Path, llm: Llama, tmp_path: Path) -> None:
    llm.eval([1, 2, 3])
    other_weights = tiny.write(tmp_path / "w.gguf", "gemma3", "Q4_0", n_ctx=512, seed=1)
    other_arch = tiny.write(tmp_path / "a.gguf", "llama", "Q4_0", n_ctx=512)
    for file, more, message in (
        (other_weights, {}, "of another model"),
        (other_arch, {}, "of another model"),
        (path, {"rope_freq_base": 5e4}, "other overrides"),
        (path, {"n_ctx": 511}, "context of 511 tokens, this one has 512"),
    ):
        with Llama(file, verbose=False, **more) as other:
            other.eval([1, 2])
            refused(llm, other.save_state(), message)
    for junk in (None, b"", "state", 5, object()):
        refused(llm, junk, "save_state")


TYPES = (("q8_0", "i16"), ("i16", "q8_0"), ("f32", "bf16"))


@pytest.mark.parametrize(("type_k", "type_v"), TYPES)
def test_states_of_other_kv_types(path: Path, llm: Llama, type_k: str, type_v: str) -> None:
    llm.eval([1, 2, 3])
    with Llama(path, seed=1, type_k=type_k, type_v=type_v, verbose=False) as other:
        other.eval(list(range(70)))
        state = other.save_state()
        assert state.kv_types == (type_k, type_v)
        refused(llm, state, f"keys and values are {type_k} and {type_v}, here they are kept as f16 and f16")
        refused(other, llm.save_state(), "Open the model with type_k='f16', type_v='f16'")
        want = tokens(other, 12)
        for same in (state, LlamaState.from_bytes(state.to_bytes())):
            other.reset()
            other.load_state(same)
            assert tokens(other, 12) == want


def test_states_from_before_there_were_kv_types(llm: Llama) -> None:
    llm.eval([1, 2, 3])
    data = llm.save_state().to_bytes()[:-4]
    old = data.replace(b', "kv_types": ["f16", "f16"]', b"", 1)
    assert old != data
    state = LlamaState.from_bytes(old + zlib.crc32(old).to_bytes(4, "little"))
    assert state.kv_types == ("f16", "f16")
    llm.load_state(state)
    assert llm.eval_tokens == [1, 2, 3]


def test_damaged_bytes(llm: Llama) -> None:
    llm.eval([1, 2, 3])
    data = llm.save_state().to_bytes()
    for end in (0, 5, 18, 19, 40, 100, len(data) // 2, len(data) - 1):
        with pytest.raises(ParameterError, match="state"):
            LlamaState.from_bytes(data[:end])
    for at in range(0, len(data), len(data) // 60):
        with pytest.raises(ParameterError, match="state"):
            LlamaState.from_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
    with pytest.raises(ParameterError, match="state"):
        LlamaState.from_bytes(data + b"\0")
    for junk in (None, "text", 5, []):
        with pytest.raises(ParameterError, match="bytes"):
            LlamaState.from_bytes(junk)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"n_tokens": 3', b'"n_tokens": 4'), (b'"n_tokens": 3', b'"n_tokens": -1'),
        (b'"n_tokens": 3', b'"n_tokens": 99999999999999999999'), (b'"n_tokens": 3', b'"n_tokens": "3"'),
        (b'"n_tokens": 3', b'"n_tokens": 3.5'), (b'"pages": ', b'"pages": 1'), (b'"scores": [', b'"scores": ['
        b"0,"), (b'{"model"', b'["model"'), (b'"seed": 1', b'"seed": "x"'), (b'"seed": 1', b'"seed": [1]'),
        (b'["f16", "f16"]', b'["f16"]'), (b'["f16", "f16"]', b'3'), (b'["f16", "f16"]', b'[{}, [1]]'),
    ],
)  # fmt: skip
def test_bytes_with_a_right_checksum_and_wrong_contents(llm: Llama, old: bytes, new: bytes) -> None:
    llm.eval([1, 2, 3])
    data = llm.save_state().to_bytes()[:-4]
    assert old in data
    wrong = data.replace(old, new, 1)
    wrong += zlib.crc32(wrong).to_bytes(4, "little")
    try:
        state = LlamaState.from_bytes(wrong)
    except ParameterError:
        return
    refused(llm, state, "seed|kept as")


def test_a_state_made_by_hand(llm: Llama) -> None:
    llm.eval([1, 2, 3])
    good = llm.save_state()

    def changed(**fields: Any) -> LlamaState:
        names = ("model", "n_ctx", "seed", "input_ids", "scores", "pages")
        return LlamaState(**{**{name: getattr(good, name) for name in names}, **fields})

    refused(llm, changed(input_ids=np.array([1, 2, 10**6], np.int32)), "outside the vocabulary")
    refused(llm, changed(scores=good.scores[:, :5]), "damaged")
    refused(llm, changed(input_ids=np.arange(100, dtype=np.int32)), "bytes are not the keys")
    refused(llm, changed(pages=good.pages[:-1]), "bytes are not the keys")
    refused(llm, changed(input_ids=np.zeros(600, np.int32), pages=np.tile(good.pages, 10)), "do not fit")
    refused(llm, changed(scores=good.scores * np.float32("nan")), "damaged")
    refused(llm, changed(pages=np.full_like(good.pages, 0xFF)), "not all numbers")


# Caches


def test_cache_resumes_the_conversation_that_fits(path: Path, llm: Llama) -> None:
    llm.set_cache(LlamaRAMCache())
    assert LlamaCache is LlamaRAMCache and llm.cache is not None
    first, second = PROMPT * 8, "other " * 40
    with Llama(path, seed=1, verbose=False) as plain:
        for prompt in (first, second, first, second, first + "in", PROMPT, first):
            plain.reset()
            assert text(llm, prompt) == text(plain, prompt)
    n = len(llm.tokenize(first.encode()))
    text(llm, second)
    reused = llm(first + "in", max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert n - 3 <= reused <= n
    llm.set_cache(None)
    text(llm, second)
    assert llm(first, max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_cache_serves_contexts_of_several_kv_types(path: Path) -> None:
    """States are taken by contexts of their own types; the others go on as without a cache."""
    cache = LlamaRAMCache()
    answers = []
    for kv_type in ("f16", "q8_0", "f16", "q8_0"):
        with Llama(path, seed=1, type_k=kv_type, type_v=kv_type, verbose=False) as one:
            plain = text(one, PROMPT * 8)
            one.reset()
            one.set_cache(cache)
            answers.append(one(PROMPT * 8, max_tokens=20, temperature=2.0))
            assert answers[-1]["choices"][0]["text"] == plain
    reused = [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in answers]
    assert reused[:2] == [0, 0]


def test_cache_keeps_to_its_capacity(llm: Llama) -> None:
    llm.eval([1] * 64)
    one = llm.save_state().llama_state_size + 4 * llm.n_vocab() + 4 * 64
    cache = LlamaRAMCache(capacity_bytes=2 * one + 2000)
    for i in range(5):
        llm.reset()
        llm.eval([i] * 64)
        cache[[i] * 64] = llm.save_state()
        assert cache.cache_size <= cache.capacity_bytes and [i] * 64 in cache
    assert [0] * 64 not in cache and len(cache.cache_state) == 2
    assert cache[[3, 3, 9]].input_ids.tolist() == [3] * 64  # now 4 is the least recently used
    llm.eval([4])
    cache[[4] * 64 + [4]] = llm.save_state()  # two pages: the other state has to go, the shorter one too
    assert list(cache.cache_state) == [(4,) * 65]
    with pytest.raises(KeyError):
        cache[[200]]


def test_cache_of_several_models(path: Path, llm: Llama, tmp_path: Path) -> None:
    cache = LlamaRAMCache()
    other_path = tiny.write(tmp_path / "w.gguf", "gemma3", "Q4_0", n_ctx=512, seed=1)
    with Llama(other_path, seed=1, verbose=False) as other:
        want = [text(llm, PROMPT), text(other, PROMPT)]
        for model in (llm, other):
            model.set_cache(cache)
        for _ in range(3):
            for model in (llm, other):
                model.reset()
            assert [text(llm, PROMPT), text(other, PROMPT)] == want


def test_cache_of_ones_own(llm: Llama) -> None:
    class Last:
        state: LlamaState | None = None
        asked = 0

        def __getitem__(self, key: Any) -> LlamaState:
            self.asked += 1
            if self.state is None:
                raise KeyError
            return self.state

        def __setitem__(self, key: Any, value: LlamaState) -> None:
            assert list(key) == value.input_ids.tolist()
            self.state = value

    cache = Last()
    llm.set_cache(cache)  # type: ignore[arg-type]
    text(llm, PROMPT)
    assert list(llm(PROMPT, max_tokens=3, stream=True)) and cache.asked == 2 and cache.state is not None
    for junk in (5, "x", object(), {}, []):
        with pytest.raises(ParameterError, match="LlamaRAMCache"):
            llm.set_cache(junk)  # type: ignore[arg-type]


def test_the_next_turn_after_a_restart(path: Path, llm: Llama, tmp_path: Path) -> None:
    """Nothing of what was saved is evaluated again, and the answer is that of a conversation never left."""
    ids = ((np.arange(90) * 37 + 11) % 290).tolist()
    llm.eval(ids)
    (tmp_path / "state").write_bytes(llm.save_state().to_bytes())
    with Llama(path, seed=1, verbose=False) as restarted:
        restarted.load_state(LlamaState.from_bytes((tmp_path / "state").read_bytes()))
        asked: dict[str, Any] = {"max_tokens": 9, "temperature": 1.5, "seed": 3}
        got, want = restarted([*ids, 7, 8], **asked), llm([*ids, 7, 8], **asked)
        assert got["usage"]["prompt_tokens_details"]["cached_tokens"] == len(ids)
        assert restarted.eval_tokens == llm.eval_tokens and np.array_equal(restarted.scores, llm.scores)
        assert got["choices"] == want["choices"]
