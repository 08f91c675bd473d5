"""Embeddings: Hugging Face's hidden states, pooling, and the promise that a text's vector is its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from golden_cases import POOLED
from test_golden import golden

from pyllamacpp import LLAMA_POOLING_TYPE_LAST, Llama, _core
from pyllamacpp.embedding import Embedder, Pooling, pooling_of
from pyllamacpp.errors import ContextOverflowError, ParameterError, UnsupportedModelError

TEXT = "the hello and the well of the "
NONE, MEAN, CLS, LAST = range(4)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("models") / "m.gguf", "gemma3", "Q4_0", n_ctx=256)


@pytest.fixture
def llm(path: Path) -> Iterator[Llama]:
    with Llama(path, pooling_type=MEAN, embedding=True, verbose=False) as model:
        yield model


@pytest.mark.parametrize("case", POOLED)
def test_hidden_states_are_those_of_hugging_face(case: str) -> None:
    path, want = golden(case)
    model = _core.Model(_core.GgufFile(path))
    for i, pooling in enumerate((Pooling.MEAN, Pooling.CLS, Pooling.LAST)):
        embedder = Embedder(model, _core.Session(model, len(want["tokens"])), None, pooling, n_batch=33)  # type: ignore[arg-type]
        got = embedder.embed(want["tokens"], normalize=False)
        difference = np.abs(got - want["pooled"][i]).max()
        print(f"{case}, {pooling.name}: max |difference| {difference:.1e}")
        assert difference <= 1e-3  # of values of about 0.25


def test_hidden_states_make_the_logits(path: Path) -> None:
    """The head applied to them gives the logits' order: they come after the output norm."""
    model = _core.Model(_core.GgufFile(path))
    ids = np.arange(50, dtype=np.int32)
    hidden = _core.Session(model, 64).embed(ids)
    logits = _core.Session(model, 64).eval(ids, "all")
    assert hidden.shape == (50, model.n_embd) and hidden.dtype == np.float32
    weights = _core.decode("Q4_0", _core.GgufFile(path).tensor("token_embd.weight"))
    made = hidden @ weights.reshape(-1, model.n_embd).T
    assert np.abs(made - logits).max() < 1e-2 * np.abs(logits).max()


def test_poolings(path: Path) -> None:
    vectors = {}
    for pooling in (NONE, MEAN, CLS, LAST):
        with Llama(path, pooling_type=pooling, verbose=False) as llm:
            assert llm.pooling_type() == pooling
            vectors[pooling] = np.array(llm.embed(TEXT))
            n = len(llm.tokenize(TEXT.encode()))
    rows = vectors[NONE]
    assert rows.shape == (n, 64)
    np.testing.assert_allclose(vectors[MEAN], rows.mean(0), rtol=1e-5, atol=1e-6)
    assert (vectors[CLS] == rows[0]).all() and (vectors[LAST] == rows[-1]).all()
    assert not np.allclose(rows[0], rows[-1], atol=0.1)


@pytest.mark.parametrize("pooling", [NONE, MEAN, CLS, LAST])
def test_a_vector_is_its_texts_alone(path: Path, pooling: int) -> None:
    texts = [TEXT * 5, "hello", TEXT * 18, "hello"]
    with Llama(path, pooling_type=pooling, verbose=False) as llm:
        alone = [llm.embed(text) for text in texts]
        assert llm.embed(texts) == alone and alone[1] == alone[3]
    for n_batch in (1, 7, 64):
        with Llama(path, pooling_type=pooling, n_batch=n_batch, n_threads=1, verbose=False) as llm:
            assert llm.embed(texts) == alone


def test_levels_and_threads_change_nothing(path: Path) -> None:
    ids = ((np.arange(200) * 37 + 11) % 290).astype(np.int32)
    file = _core.GgufFile(path)

    def rows(level: str, n_threads: int) -> np.ndarray:
        return _core.Session(_core.Model(file, isa=level, n_threads=n_threads), 200).embed(ids)

    fused = [level for level in _core.levels() if level != "baseline"]
    wanted = rows(fused[0], 1) if fused else None
    for level in fused:
        for n_threads in (1, 3):
            assert np.array_equal(rows(level, n_threads), wanted)


def test_normalize(path: Path, llm: Llama) -> None:
    plain, unit = np.array(llm.embed(TEXT)), np.array(llm.embed(TEXT, normalize=True))
    assert abs((unit * unit).sum() - 1) < 1e-6
    np.testing.assert_allclose(unit, plain / np.sqrt((plain * plain).sum()), rtol=1e-5, atol=1e-8)
    with Llama(path, pooling_type=NONE, verbose=False) as each:
        rows = np.array(each.embed(TEXT, normalize=True))
        np.testing.assert_allclose((rows * rows).sum(-1), 1, atol=1e-6)


def test_response(llm: Llama) -> None:
    tokens = llm.tokenize(TEXT.encode())
    for given in (TEXT, [TEXT], tokens, [tokens], np.array(tokens)):
        result = llm.create_embedding(given, model="m")
        assert result == {
            "object": "list",
            "data": [{"object": "embedding", "embedding": llm.embed(TEXT), "index": 0}],
            "model": "m",
            "usage": {"prompt_tokens": len(tokens), "total_tokens": len(tokens)},
        }
    result = llm.create_embedding([TEXT, "hello", TEXT])
    assert [one["index"] for one in result["data"]] == [0, 1, 2] and result["model"] == llm.model_path
    assert result["usage"]["prompt_tokens"] == 2 * len(tokens) + len(llm.tokenize(b"hello"))
    vectors, n_tokens = llm.embed([TEXT, "hello"], return_count=True)
    assert len(vectors) == 2 and n_tokens == len(tokens) + len(llm.tokenize(b"hello"))


def test_too_long(path: Path, llm: Llama) -> None:
    tokens = [5] * 256
    full = llm.embed(tokens)
    with pytest.raises(ContextOverflowError, match=r"257 tokens.*context of 256"):
        llm.embed([*tokens, 7])
    assert llm.embed([*tokens, 7], truncate=True) == full
    with Llama(path, pooling_type=MEAN, n_ctx=600, verbose=False) as longer:  # more than n_batch
        ids = [i % 200 for i in range(600)]
        assert longer.embed(ids) != longer.embed(ids[:-1])


@pytest.mark.parametrize(
    "given", ["", [], [""], [[]], b"x", None, 5, {1: 2}, [1.5], [[1], 2], ["a", None], [10**6], ["\ud800"]]
)
def test_bad_inputs(llm: Llama, given: Any) -> None:
    with pytest.raises(ParameterError):
        llm.embed(given)


def test_control_tokens_in_text_are_text(llm: Llama) -> None:
    assert llm.embed("<|im_end|>") != llm.embed([llm.token_eos()])


def test_the_end_that_the_model_expects(tmp_path: Path) -> None:
    """Models that pool the last token were trained to see EOS there."""
    ends = {"tokenizer.ggml.add_eos_token": True, "llama.pooling_type": 3}
    with Llama(tiny.write(tmp_path / "m.gguf", vocab="spm", metadata=ends), n_ctx=32, verbose=False) as llm:
        assert llm.pooling_type() == LLAMA_POOLING_TYPE_LAST
        tokens = llm.tokenize(b"hello")
        assert llm.embed("hello") == llm.embed([*tokens, llm.token_eos()]) != llm.embed(tokens)
        long = "t" * 50
        cut = [*llm.tokenize(long.encode())[:31], llm.token_eos()]
        assert llm.embed(long, truncate=True) == llm.embed(cut)


def test_pooling_of_the_file() -> None:
    assert pooling_of(None, 0) is Pooling.NONE and pooling_of(None, 2) is Pooling.CLS
    assert pooling_of(1, 4) is Pooling.MEAN
    for value in (4, 7, "mean"):
        with pytest.raises(UnsupportedModelError, match="pooling_type"):
            pooling_of(None, value)


def test_pooling_type_is_checked(path: Path) -> None:
    for value in (4, 9, "mean"):
        with pytest.raises(ParameterError, match="pooling_type"):
            Llama(path, pooling_type=value, verbose=False)  # type: ignore[arg-type]


def test_what_is_held_stays(llm: Llama) -> None:
    want = llm(TEXT, max_tokens=8, seed=3)["choices"][0]["text"]
    llm.embed(TEXT * 3)
    again = llm(TEXT, max_tokens=8, seed=3)
    assert again["choices"][0]["text"] == want
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    stream = llm(TEXT, max_tokens=8, seed=3, stream=True)
    text = next(stream)["choices"][0]["text"]
    llm.embed("hello")  # beside an open stream of this thread
    assert text + "".join(chunk["choices"][0]["text"] for chunk in stream) == want
