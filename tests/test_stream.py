"""Streaming text: the same characters whatever the chunks, and never a stop string."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyllamacpp.errors import ParameterError
from pyllamacpp.text.stream import TextStream


def run(chunks: list[bytes], stop: list[str]) -> tuple[list[str], str | None]:
    stream = TextStream(stop)
    texts = [stream.push(chunk) for chunk in chunks]
    return [*texts, stream.flush()], stream.stopped


def whole_text_rule(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Up to the stop completed first; of several completed together, the longest."""
    for end in range(len(text) + 1):
        done = [stop for stop in stops if text[:end].endswith(stop)]
        if done:
            stop = max(done, key=len)
            return text[: end - len(stop)], stop
    return text, None


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(i % (len(data) + 1) for i in at), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


ALPHABET = "ab<\u00e9\u4e2d\U0001f600"


@given(
    text=st.text(ALPHABET, max_size=30),
    stops=st.lists(st.text(ALPHABET, min_size=1, max_size=4), max_size=4),
    at=st.lists(st.integers(0, 200), max_size=12),
)
@settings(max_examples=400, deadline=None)
def test_any_chunks_give_the_whole_text(text: str, stops: list[str], at: list[int]) -> None:
    texts, stopped = run(cut(text.encode(), at), stops)
    assert ("".join(texts), stopped) == whole_text_rule(text, stops)


@given(data=st.binary(max_size=40), at=st.lists(st.integers(0, 200), max_size=12))
@settings(max_examples=300, deadline=None)
def test_invalid_utf8_is_replaced_as_in_the_whole(data: bytes, at: list[int]) -> None:
    texts, stopped = run(cut(data, at), [])
    assert "".join(texts) == data.decode("utf-8", "replace") and stopped is None


def test_characters_wait_for_their_bytes() -> None:
    stream = TextStream()
    assert [stream.push(bytes((b,))) for b in "\U0001f600!".encode()] == ["", "", "", "\U0001f600", "!"]
    assert stream.push(b"\xf0\x9f") == "" and stream.flush() == "\ufffd"


def test_holds_back_only_what_may_be_a_stop() -> None:
    stream = TextStream(["<end>"])
    assert stream.push(b"ab<e") == "ab"
    assert stream.push(b"x<") == "<ex"
    assert stream.push(b"end") == ""
    assert stream.push(b">tail") == "" and stream.stopped == "<end>"
    assert stream.push(b"more") == "" and stream.flush() == ""


def test_held_text_is_released_at_the_end() -> None:
    stream = TextStream(["</answer>"])
    assert stream.push(b"4 </ans") == "4 "
    assert stream.flush() == "</ans" and stream.stopped is None


@pytest.mark.parametrize("text, stops, rest, stopped", [
    ("one two", ["two", "one"], "", "one"),
    ("xabcd", ["abcd", "bc"], "xa", "bc"),  # completed first
    ("xabc", ["bc", "abc", "c"], "x", "abc"),  # completed together: the longest
    ("caf\ufffd!", ["\ufffd"], "caf", "\ufffd"),
])  # fmt: skip
def test_which_stop_wins(text: str, stops: list[str], rest: str, stopped: str) -> None:
    texts, found = run([text.encode()], stops)
    assert ("".join(texts), found) == (rest, stopped)


def test_stop_completed_by_a_replaced_character() -> None:
    texts, stopped = run([b"a\xf0\x9f"], ["\ufffd"])
    assert ("".join(texts), stopped) == ("a", "\ufffd")


def test_one_string_is_one_stop() -> None:
    assert TextStream("ab").push(b"xaybab") == "xayb"


def test_empty_stop_is_refused() -> None:
    with pytest.raises(ParameterError, match="empty"):
        TextStream(["x", ""])


@pytest.mark.parametrize(
    ("stop", "piece", "n", "rest"),
    [
        ("a" * 2**18, b"aaaa", 2**15, b"b"),  # held to the last, then let go
        ("ab" * 2**17 + "x", b"abab", 2**15, b""),
        ("a" * 2**14 + "b", b"a", 2**16, b""),  # a tail that slides
        ("a" * 2**16 + "c", b"a" * 2**15 + b"b", 16, b""),
    ],
)
def test_long_stop_strings_cost_linear_time(stop: str, piece: bytes, n: int, rest: bytes) -> None:
    stream = TextStream([stop, "never"])
    start = time.process_time()
    text = "".join(stream.push(piece) for _ in range(n)) + stream.push(rest) + stream.flush()
    assert time.process_time() - start < 5
    assert text == (piece * n + rest).decode()
    assert stream.stopped is None
