"""From drawn tokens to text and log-probabilities, without a model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyllamacpp.completion import Answer, Offsets, legacy_logprobs, log_probabilities

END = 256
BYTES = SimpleNamespace(  # a tokenizer whose tokens are the bytes, and one that ends generation
    eog_ids=frozenset({END}),
    token_bytes=lambda token: b"" if token == END else bytes([token]),
    piece=lambda token: "<end>",
)


def expected(data: bytes, stops: list[str]) -> tuple[str, bool]:
    """The text up to the stop string that is complete first (of several, the longest)."""
    text = data.decode("utf-8", "replace")
    found = [(text.index(s) + len(s), -len(s)) for s in stops if s in text]
    if not found:
        return text, False
    end, length = min(found)
    return text[: end + length], True


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([*b"aab", *"é😶".encode(), END]), max_size=30),
    st.lists(st.text("abé", min_size=1, max_size=3), max_size=3),
    st.integers(0, 5),
)
@example([*"aé".encode(), 0xC3], ["é"], 0)
def test_pieces_add_up(ids: list[int], stops: list[str], offset: int) -> None:
    draws = [(i, -float(n), [(i, -float(n))]) for n, i in enumerate(ids)]
    answer = Answer(BYTES, stops, scored=True, offset=offset)  # type: ignore[arg-type]
    pieces = list(answer.pieces(iter(draws)))
    ended = END in ids
    data = bytes(ids[: ids.index(END)] if ended else ids)
    text, stopped = expected(data, stops)
    assert "".join(piece.text for piece in pieces) == text
    assert answer.finish_reason == ("stop" if stopped or ended else "length")
    scored = [one for piece in pieces for one in piece.scored]
    assert [one.id for one in scored] == list(data[: len(scored)])
    assert [one.offset for one in scored] == sorted(one.offset for one in scored)
    settled = offset
    for piece in pieces[:-1]:  # a token is told with the text it begins in
        assert all(settled <= one.offset < settled + len(piece.text) for one in piece.scored)
        settled += len(piece.text)
    if stopped:
        assert all(one.offset < offset + len(text) for one in scored)
    else:
        assert len(scored) == answer.n_tokens == len(data)


def test_pieces_come_as_early_as_they_can() -> None:
    drawn = 0

    def draws() -> Any:
        nonlocal drawn
        for byte in "ab é.xy".encode():
            drawn += 1
            yield byte, 0.0, []

    answer = Answer(BYTES, ["xyz"], scored=False)  # type: ignore[arg-type]
    got = [(drawn, piece.text) for piece in answer.pieces(draws())]
    assert got == [(1, "a"), (2, "b"), (3, " "), (5, "é"), (6, "."), (8, "xy")]


def test_log_probabilities() -> None:
    rng = np.random.default_rng(0)
    row = rng.standard_normal(1000).astype(np.float32) * 5
    row[[10, 500, 20]] = row.max() + 1  # equal ones: lowest id first
    want = row - np.log(np.exp(row.astype(np.float64)).sum())
    logprob, top = log_probabilities(row, 77, 5)
    assert abs(logprob - want[77]) < 1e-6
    order = sorted(range(1000), key=lambda i: (-row[i], i))[:5]
    assert [token for token, _ in top] == order and order[:3] == [10, 20, 500]
    np.testing.assert_allclose([p for _, p in top], want[order], atol=1e-6)
    assert log_probabilities(row, 77, 0)[1] == []
    assert len(log_probabilities(row, 77, 5000)[1]) == 1000
    assert abs(log_probabilities(np.float32([1e30, 0]), 0, 1)[0]) < 1e-6


def test_offsets() -> None:
    offsets = Offsets(10)
    data = "é".encode()
    got = [
        offsets.next(part) for part in (b"ab", data[:1], data[1:], b"c", data[:1], b"d", b"", b"\xff", b"e")
    ]
    assert got == [10, 12, 12, 13, 14, 15, 16, 16, 17]


def test_parts_of_characters_stay_apart() -> None:
    ids = list("é".encode())
    answer = Answer(BYTES, [], scored=True)  # type: ignore[arg-type]
    draws = [(ids[0], -1.0, [(ids[0], -1.0), (ids[1], -2.0), (END, -3.0)]), (ids[1], -4.0, [])]
    (piece,) = answer.pieces(iter(draws))
    told = legacy_logprobs(BYTES, piece.scored)  # type: ignore[arg-type]
    assert told["tokens"] == [r"bytes:\xc3", r"bytes:\xa9"] and told["text_offset"] == [0, 0]
    assert told["top_logprobs"] == [
        {r"bytes:\xc3": -1.0, r"bytes:\xa9": -2.0, "<end>": -3.0},
        {r"bytes:\xa9": -4.0},
    ]


def test_control_tokens_that_mark_thoughts_are_spelled() -> None:
    tokenizer = SimpleNamespace(eog_ids=frozenset(), token_bytes=lambda i: b"" if i < 3 else bytes([i]))
    answer: Any = Answer(tokenizer, (), scored=False, spelled={1: b"<t>"})  # type: ignore[arg-type]
    draws = [(token, 0.0, []) for token in (1, *b"so", 2, *b"yes")]
    assert "".join(piece.text for piece in answer.pieces(iter(draws))) == "<t>soyes"
