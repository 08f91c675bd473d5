"""SentencePiece merges from scores, against the direct Python formulation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyllamacpp import _core, errors

SHARED = Path(__file__).resolve().parents[1].parent / "shared"
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)


def reference(tokens: Sequence[str], scores: Sequence[float], types: Sequence[int]) -> list[tuple[str, str]]:
    """Every split of every token into two tokens, as transformers makes them for Llama and Gemma."""
    ids = {token: i for i, token in enumerate(tokens)}
    merges: list[tuple[float, str, str]] = []
    for token, score, kind in zip(tokens, scores, types, strict=True):
        if kind in (CONTROL, UNKNOWN, BYTE):
            continue
        pairs = [(token[:k], token[k:]) for k in range(1, len(token))]
        known = [(ids[a], ids[b], a, b) for a, b in pairs if a in ids and b in ids]
        merges += [(score, a, b) for _, _, a, b in sorted(known)]
    merges.sort(key=lambda merge: -merge[0])
    return [(a, b) for _, a, b in merges]


def ours(tokens: Sequence[str], scores: Sequence[float], types: Sequence[int]) -> list[tuple[str, str]]:
    return _core.spm_merges(list(tokens), np.array(scores, np.float32), np.array(types, np.int32))


VOCABULARIES = st.lists(
    st.tuples(
        st.text("abä▁🦙", max_size=6),
        st.integers(-3, 3).map(float),
        st.sampled_from([NORMAL] * 6 + [0, UNKNOWN, CONTROL, USER, UNUSED, BYTE]),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(VOCABULARIES)
def test_equals_reference(vocabulary: list[tuple[str, float, int]]) -> None:
    tokens, scores, types = zip(*vocabulary, strict=True) if vocabulary else ((), (), ())
    assert ours(tokens, scores, types) == reference(tokens, scores, types)


def test_order_splits_and_excluded_types() -> None:
    tokens = ["a", "b", "ab", "aba", "ba", "é", "aé", "x", "ax", "bx"]
    scores = [0.0, 0.0, -1.0, -2.0, -1.0, 0.0, 5.0, 0.0, 0.0, np.inf]
    types = [NORMAL] * 8 + [CONTROL, USER]
    expected = [("b", "x"), ("a", "é"), ("a", "b"), ("b", "a"), ("a", "ba"), ("ab", "a")]
    assert ours(tokens, scores, types) == expected


def test_bytes_that_are_not_utf8_split_like_their_bytes() -> None:
    assert ours(["\udcff", "a", "\udcffa"], [0, 0, 0], [NORMAL] * 3) == [("\udcff", "a")]


def test_other_array_types_are_converted() -> None:
    merges = _core.spm_merges(["a", "b", "ab"], np.array([0.0, 0.0, -1.5]), np.array([1, 1, 1], np.uint8))
    assert merges == [("a", "b")]


@pytest.mark.parametrize(("n_scores", "n_types"), [(2, 3), (4, 3), (3, 2), (3, 0), (0, 3)])
def test_lists_of_different_lengths(n_scores: int, n_types: int) -> None:
    with pytest.raises(
        errors.ModelFileError, match=f"3 tokens, but {n_scores} scores and {n_types} token types"
    ):
        ours(["a", "b", "ab"], [0.0] * n_scores, [NORMAL] * n_types)


def test_scores_that_are_not_numbers() -> None:
    with pytest.raises(errors.ModelFileError, match="score of token 1 is not a number"):
        ours(["a", "b"], [0.0, float("nan")], [NORMAL] * 2)
    with pytest.raises(TypeError, match="must be str"):
        _core.spm_merges([b"a"], np.zeros(1, np.float32), np.ones(1, np.int32))


def test_long_tokens_cost_little() -> None:
    tokens = ["ab" * 100_000, "b" + "ab" * 99_999, "a"]
    start = time.perf_counter()
    assert ours(tokens, [0.0] * 3, [NORMAL] * 3) == [("a", tokens[1])]
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("name", ["llama-spm", "phi-3"])
def test_published_vocabulary(name: str) -> None:
    path = SHARED / f"data/vocab/ggml-vocab-{name}.gguf"
    if not path.exists():
        pytest.skip("published vocabularies are not here")
    metadata = _core.GgufFile(path).metadata
    lists = [metadata[f"tokenizer.ggml.{key}"] for key in ("tokens", "scores", "token_type")]
    merges = _core.spm_merges(*lists)
    assert merges == reference(*lists)
    assert len(merges) > 50_000
