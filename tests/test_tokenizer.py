"""Tokenizers from GGUF metadata: published vectors, golden prompts, and small vocabularies made here."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from pyllamacpp import _core
from pyllamacpp.errors import ModelFileError, ParameterError, UnsupportedModelError
from pyllamacpp.text import pretokenizers
from pyllamacpp.text.matcher import TokenMatcher
from pyllamacpp.text.tokenizer import _ALPHABET, Tokenizer

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
VOCABULARIES = sorted((SHARED / "data" / "vocab").glob("*.gguf"))
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6
SPACE = "\u2581"


def metadata(kind: str, tokens: list[tuple[str, int]], **more: Any) -> dict[str, Any]:
    """Metadata of a vocabulary given as (piece, type)."""
    return {
        "tokenizer.ggml.model": kind,
        "tokenizer.ggml.tokens": [piece for piece, _ in tokens],
        "tokenizer.ggml.token_type": np.array([t for _, t in tokens], dtype=np.int32),
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def byte_pair(
    extra: Sequence[tuple[str, int]] = (), merges: Sequence[str] = (), pre: str = "gpt-2", **more: Any
) -> dict[str, Any]:
    """The 256 bytes, then what the merges make, then `extra`."""
    tokens = [(c, NORMAL) for c in _ALPHABET]
    tokens += [(merge.replace(" ", "", 1), NORMAL) for merge in merges]
    return metadata("gpt2", [*tokens, *extra], merges=list(merges), pre=pre, **more)


def sentencepiece(extra: Sequence[tuple[str, int]] = (), **more: Any) -> dict[str, Any]:
    """<unk> <s> </s>, the 256 bytes, a few pieces that merge, then `extra`."""
    tokens = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    tokens += [(f"<0x{b:02X}>", BYTE) for b in range(256)]
    tokens += [
        (c, NORMAL) for c in [SPACE + "a", "ab", SPACE + "ab", "abc", SPACE + "h", SPACE, *"abcdh\n<>|"]
    ]
    tokens += extra
    scores = -np.arange(len(tokens), dtype=np.float32)
    return metadata("llama", tokens, scores=scores, **more)


def ids_of(tokenizer: Tokenizer, pieces: list[str]) -> list[int]:
    table = {tokenizer.piece(i): i for i in range(tokenizer.n_vocab)}
    return [table[piece] for piece in pieces]


def pieces_of(tokenizer: Tokenizer, text: str, *, special: bool = False) -> list[str]:
    return [tokenizer.piece(i) for i in tokenizer.encode(text, special=special)]


# --- published data --------------------------------------------------------------------------------


@pytest.mark.skipif(not VOCABULARIES, reason="no ../shared/data/vocab")
@pytest.mark.parametrize("path", VOCABULARIES, ids=[path.stem for path in VOCABULARIES])
def test_published_vectors(path: Path) -> None:
    tokenizer = Tokenizer.from_metadata(_core.GgufFile(str(path)).metadata)
    texts = Path(f"{path}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text().split("\n")
    assert len(texts) > 40 and len(texts) == len(lines)
    for text, line in zip(texts, lines, strict=True):
        ids = tokenizer.encode(text, special=False)
        assert ids == [int(x) for x in line.split()], text
        if "bert" not in path.name:
            assert tokenizer.decode_bytes(ids).decode() == text
    # No text makes a control token unless it is asked to, and every control token is made where it is.
    controls = tokenizer._vocabulary.of_type(CONTROL)
    sample = dict(list(controls.items())[:300])
    assert sample
    for text, control in sample.items():
        assert tokenizer.encode(text, special=True) == [control]
        assert not set(tokenizer.encode(f"a{text}b", special=False)) & set(controls.values()), text


@pytest.mark.parametrize("golden, model", [
    ("smollm2-135m-q4_1", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    ("gemma3-270m-q4_k_m", "gemma-3-270m-q4_k_m.gguf"),
])  # fmt: skip
def test_golden_prompts(golden: str, model: str) -> None:
    reference, path = SHARED / "golden" / f"{golden}.json", ROOT / "models" / model
    if not reference.exists() or not path.exists():
        pytest.skip(f"needs {reference} and {path}")
    tokenizer = Tokenizer.from_metadata(_core.GgufFile(str(path)).metadata)
    for case in json.loads(reference.read_text(encoding="utf-8"))["cases"]:
        assert tokenizer.with_bos(tokenizer.encode(case["prompt"], special=False)) == case["prompt_tokens"]


# --- pre-tokenizers --------------------------------------------------------------------------------


def test_table_is_the_published_one() -> None:
    published = SHARED / "data" / "pretokenizer-regexes.json"
    if not published.exists():
        pytest.skip(f"needs {published}")
    theirs, ours = json.loads(published.read_text(encoding="utf-8")), pretokenizers._table()
    assert ours["groups"] == theirs["regexes"]
    renamed = {"type": "group", "normalizer_opts.lowercase": "lowercase"}
    assert ours["names"] == {
        name: {renamed.get(k, k): v for k, v in entry.items()} for name, entry in theirs["names"].items()
    }
    assert Path(pretokenizers.__file__).with_name("pretokenizers.json").read_bytes().isascii()


HINDI = "\u0939\u093f\u0928\u094d\u0926\u0940"
TEXT = f"Hello  WORLD's  12345 \u4e2d\u6587abc {HINDI}!\r\n\n\t\u00e9\u00c9 \U0001f600 x=1;"


@pytest.mark.parametrize("name", pretokenizers.names())
def test_every_pre_tokenizer_keeps_the_text(name: str) -> None:
    pre = pretokenizers.lookup(name)
    if pre.byte_level:
        tokenizer = Tokenizer.from_metadata(byte_pair(pre=name))
        assert tokenizer.decode_bytes(tokenizer.encode(TEXT, special=False)).decode() == TEXT
    else:
        tokens = [(c, NORMAL) for c in dict.fromkeys(TEXT.replace(" ", SPACE) + " ")]
        tokenizer = Tokenizer.from_metadata(metadata("gpt2", tokens, merges=[], pre=name))
        assert tokenizer.decode_bytes(tokenizer.encode(TEXT, special=False)).decode() == TEXT


@pytest.mark.parametrize("name, text, pieces", [
    ("gpt-2", "I'm 123 ok", ["I", "'m", " 123", " ok"]),
    ("llama-bpe", "I'M 12345\n\nok", ["I", "'M", " ", "123", "45", "\n\n", "ok"]),
    ("qwen2", "x123", ["x", "1", "2", "3"]),
    ("smollm", "x12 ab", ["x", "1", "2", " ab"]),
    ("afmoe", "1234567 12 123456", ["1", "234", "567", " ", "12", " ", "123", "456"]),
    ("superbpe", "1234567", ["1", "234", "567"]),
    ("kimi-k2", "ab\u4e2d\u6587cd 1234", ["ab", "\u4e2d\u6587", "cd", " ", "123", "4"]),
    ("gpt-4o", f"HelloWorld's {HINDI}", ["Hello", "World's", f" {HINDI}"]),
    ("tekken", "\u00e9\u00c0b", ["\u00e9", "\u00c0b"]),
    ("default", "a1234", ["a", "123", "4"]),
])  # fmt: skip
def test_cuts(name: str, text: str, pieces: list[str]) -> None:
    pipeline = Tokenizer.from_metadata(byte_pair(pre=name))._pipeline
    cuts = [text[start:end] for _, (start, end) in pipeline.pre_tokenizer.pre_tokenize_str(text)]
    assert cuts == pieces


def test_unknown_and_missing_pre() -> None:
    with pytest.raises(UnsupportedModelError, match="--pre"):
        Tokenizer.from_metadata(byte_pair(pre="frobnicate"))
    with pytest.raises(ParameterError, match="frobnicate"):
        Tokenizer.from_metadata(byte_pair(), pre="frobnicate")
    with pytest.raises(ParameterError, match="no choice"):
        Tokenizer.from_metadata(sentencepiece(), pre="gpt-2")
    overridden = Tokenizer.from_metadata(byte_pair(pre="frobnicate", merges=["1 2"]), pre="gpt-2")
    assert pieces_of(overridden, "12") == ["12"]
    assert pieces_of(Tokenizer.from_metadata(byte_pair(pre="qwen2", merges=["1 2"])), "12") == ["1", "2"]
    missing = byte_pair(merges=["1 2"])
    del missing["tokenizer.ggml.pre"]
    assert pieces_of(Tokenizer.from_metadata(missing), "12") == ["12"]


@pytest.mark.parametrize("pre", ["afmoe", "tiny_aya", "superbpe", "jais-2"])
@pytest.mark.parametrize("unit", ["7", " ", "7a", "\u00a0"])
def test_long_runs_are_linear(pre: str, unit: str) -> None:
    tokenizer = Tokenizer.from_metadata(byte_pair(pre=pre))
    n = 200_000
    start = time.process_time()
    assert len(tokenizer.encode(unit * n, special=False)) == n * len(unit.encode())
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("group", "name"), [("TINY_AYA", "tiny_aya"), ("SUPERBPE", "superbpe"), ("JAIS2", "jais-2")]
)
@given(
    text=st.text(alphabet="01234567890123456789 \u00bd\u0663\u2167a.!\n\t'", max_size=60),
    n=st.integers(0, 1100),
)
def test_linear_regexes_cut_as_the_table_does(group: str, name: str, text: str, n: int) -> None:
    def cut(regexes: list[str]) -> list[str]:
        splits = [pre_tokenizers.Split(Regex(regex), "isolated") for regex in regexes]
        return [piece for piece, _ in pre_tokenizers.Sequence(splits).pre_tokenize_str(text + " " * n + text)]

    table = pretokenizers._table()["groups"][group]
    assert cut(pretokenizers.lookup(name).regexes) == cut([str(regex) for regex in table])


# --- special tokens --------------------------------------------------------------------------------

CHAT = [("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL), ("<think>", USER), ("<|x|>", UNKNOWN)]


def test_two_views() -> None:
    tokenizer = Tokenizer.from_metadata(byte_pair(CHAT))
    start, end, think, unknown = ids_of(tokenizer, [piece for piece, _ in CHAT])
    text = "<|im_start|>a<think><|x|><|im_end|>"
    assert tokenizer.encode(text, special=True) == [start, ord("a"), think, unknown, end]
    plain = tokenizer.encode(text, special=False)
    assert plain.count(think) == 1 and not {start, end, unknown} & set(plain)
    assert tokenizer.decode_bytes(plain).decode() == text
    assert tokenizer.decode_bytes([start, think, end]) == b"<think>"
    assert tokenizer.decode_bytes([start, think, end], special=True) == b"<|im_start|><think><|im_end|>"


def test_whole_pieces_are_not_control_tokens() -> None:
    """With ignore_merges a piece of text that spells a token becomes it, unless it is a control token."""
    data = byte_pair([("stop", CONTROL), ("word", NORMAL)], pre="llama-bpe")
    tokenizer = Tokenizer.from_metadata(data)
    assert pieces_of(tokenizer, "word") == ["word"]
    assert pieces_of(tokenizer, "stop") == ["s", "t", "o", "p"]
    assert pieces_of(tokenizer, "stop", special=True) == ["stop"]


@pytest.mark.parametrize("tokens, ends", [
    ([("<|im_end|>", CONTROL), ("<|endoftext|>", CONTROL)], {"<|im_end|>", "<|endoftext|>"}),
    ([("<|im_end|>", USER)], {"<|im_end|>"}),
    ([("<|eot_id|>", CONTROL), ("<|eom_id|>", CONTROL), ("<|x|>", CONTROL)], {"<|eot_id|>", "<|eom_id|>"}),
    ([("<|return|>", CONTROL), ("<|call|>", CONTROL), ("<|end|>", CONTROL)], {"<|return|>", "<|call|>"}),
    ([("<s>", USER), ("</s>", USER), ("<end_of_turn>", CONTROL)], {"<end_of_turn>"}),
    ([("<s>", CONTROL), ("</s>", USER)], {"</s>"}),
    ([("<|fim_pad|>", USER), ("<PRE>", USER), ("<|file_sep|>", USER)], {"<|fim_pad|>", "<|file_sep|>"}),
])  # fmt: skip
def test_ends_by_name(tokens: list[tuple[str, int]], ends: set[str]) -> None:
    tokenizer = Tokenizer.from_metadata(byte_pair(tokens))
    assert {tokenizer.piece(i) for i in tokenizer.eog_ids} == ends
    for text in ends:  # known by name, so control tokens whatever the file says
        assert len(tokenizer.encode(text, special=False)) > 1


def test_text_that_merges_make_is_not_an_end() -> None:
    merges = ["< /", "s >", "</ s>"]
    tokenizer = Tokenizer.from_metadata(byte_pair(merges=merges, pre="bloom"))
    assert pieces_of(tokenizer, "</s>") == ["</s>"]
    assert tokenizer.eog_ids == frozenset()
    assert tokenizer.decode_bytes(tokenizer.encode("</s>", special=False)) == b"</s>"


def test_ends_by_id() -> None:
    tokenizer = Tokenizer.from_metadata(byte_pair(eos_token_id=1, eot_token_id=2, eom_token_id=3))
    assert tokenizer.eog_ids == {1, 2, 3} and tokenizer.eos_id == 1 and tokenizer.eot_id == 2


@pytest.mark.parametrize("data, bos", [
    (byte_pair(bos_token_id=5), []),
    (byte_pair(bos_token_id=5, add_bos_token=True), [5]),
    (byte_pair(bos_token_id=5, pre="llama-bpe"), [5]),
    (byte_pair(bos_token_id=5, pre="llama-bpe", add_bos_token=False), []),
    (byte_pair(add_bos_token=True), []),
    (sentencepiece(), [1]),
    (sentencepiece(add_bos_token=False), []),
])  # fmt: skip
def test_add_bos(data: dict[str, Any], bos: list[int]) -> None:
    tokenizer = Tokenizer.from_metadata(data)
    assert tokenizer.add_bos == bool(bos)
    assert tokenizer.with_bos([7, 8]) == [*bos, 7, 8]
    assert tokenizer.with_bos([*bos, 7]) == [*bos, 7]
    assert tokenizer.with_bos([]) == bos


def test_phi3_tokens_swallow_blanks_after_them() -> None:
    data = sentencepiece([("<|user|>", CONTROL), ("<|end|>", CONTROL), ("<|endoftext|>", CONTROL)])
    assert pieces_of(Tokenizer.from_metadata(data), "<|user|>\n ab", special=True)[1:2] != [SPACE + "ab"]
    tokenizer = Tokenizer.from_metadata({**data, "general.name": "Phi-3 mini"})
    assert pieces_of(tokenizer, "<|user|>\n ab<|end|> \n", special=True) == [
        "<|user|>",
        SPACE + "ab",
        "<|end|>",
    ]
    assert len(pieces_of(tokenizer, "<|endoftext|>\n", special=True)) > 1


token_texts = st.text("<|a>", min_size=1, max_size=4)


@given(st.dictionaries(token_texts, st.integers(0, 99), max_size=8), st.text("<|a>b", max_size=30))
@settings(max_examples=200, deadline=None)
def test_matcher_is_leftmost_longest(ids: dict[str, int], text: str) -> None:
    found = [(start, end, token_id) for start, end, token_id in TokenMatcher(ids).finditer(text)]
    pattern = "|".join(re.escape(t) for t in sorted(ids, key=len, reverse=True)) or r"(?!)"
    assert found == [(m.start(), m.end(), ids[m.group()]) for m in re.finditer(pattern, text)]


# --- SentencePiece, WordPiece, unigram -------------------------------------------------------------


def test_sentencepiece() -> None:
    tokenizer = Tokenizer.from_metadata(sentencepiece([("<tool>", USER)]))
    assert pieces_of(tokenizer, "abc ab") == [SPACE + "ab", "c", SPACE + "ab"]
    assert pieces_of(tokenizer, "z") == [SPACE, "<0x7A>"]
    assert pieces_of(tokenizer, "a<tool>a") == [SPACE + "a", "<tool>", SPACE + "a"]
    assert pieces_of(tokenizer, "a</s>a", special=True) == [SPACE + "a", "</s>", SPACE + "a"]
    assert tokenizer.encode("", special=True) == []
    ids = tokenizer.encode("ab z\u00e9", special=False)
    assert tokenizer.decode_bytes(ids).decode() == "ab z\u00e9"
    assert tokenizer.decode_bytes(ids, first=False).decode() == " ab z\u00e9"
    assert tokenizer.decode_bytes([1, *ids]).decode() == "ab z\u00e9"
    unprefixed = Tokenizer.from_metadata(sentencepiece(add_space_prefix=False))
    assert pieces_of(unprefixed, "ab ab") == ["ab", SPACE + "ab"]
    assert unprefixed.decode_bytes(unprefixed.encode(" ab", special=False)) == b" ab"


def test_wordpiece() -> None:
    tokens = [("[PAD]", CONTROL), ("[UNK]", CONTROL), ("[CLS]", CONTROL), ("[SEP]", CONTROL)]
    tokens += [(piece, NORMAL) for piece in (SPACE + "play", "ing", SPACE + "now", SPACE + ",")]
    ids = {"unknown_token_id": 1, "cls_token_id": 2, "seperator_token_id": 3, "padding_token_id": 0}
    tokenizer = Tokenizer.from_metadata(metadata("bert", tokens, **ids))
    assert tokenizer.encode("Playing, n\u00f3w xyz", special=False) == [4, 5, 7, 6, 1]
    assert tokenizer.encode("[SEP]now", special=True) == [3, 6]
    assert tokenizer.decode_bytes([4, 5, 6]) == b"playing now"
    assert (tokenizer.bos_id, tokenizer.sep_id, tokenizer.add_bos, tokenizer.add_sep) == (2, 3, True, True)
    cased = Tokenizer.from_metadata(metadata("bert", tokens, **ids, **{"normalizer.lowercase": False}))
    assert cased.encode("Playing now", special=False) == [1, 6]


def test_unigram() -> None:
    tokens = [("<pad>", CONTROL), ("</s>", CONTROL), ("<unk>", UNKNOWN)]
    tokens += [(piece, NORMAL) for piece in (SPACE, "a", "b", "ab", SPACE + "ab", "</")]
    scores = np.array([0, 0, 0, -4, -5, -5, -3, -2, -9], dtype=np.float32)
    tokenizer = Tokenizer.from_metadata(metadata("t5", tokens, scores=scores))
    assert pieces_of(tokenizer, "ab abb") == [SPACE + "ab", SPACE + "ab", "b"]
    assert 1 not in tokenizer.encode("</s>", special=False)
    assert tokenizer.encode("ab</s>", special=True) == [7, 1]
    assert tokenizer.decode_bytes([7, 7, 5]) == b"ab abb"
    assert tokenizer.add_eos and not tokenizer.add_bos


def test_gemma4() -> None:
    tokens = [("<unk>", UNKNOWN), ("<bos>", CONTROL), ("<|tool_response>", USER)]
    tokens += [(f"<0x{b:02X}>", BYTE) for b in range(256)]
    tokens += [(piece, NORMAL) for piece in (SPACE, "a", "b", "\n", "\n\n", SPACE + "a")]
    data = metadata("gemma4", tokens, merges=[SPACE + " a", "\n \n"], bos_token_id=1, add_bos_token=False)
    tokenizer = Tokenizer.from_metadata(data)
    assert pieces_of(tokenizer, " a\n\nz") == [SPACE + "a", "\n\n", "<0x7A>"]
    assert tokenizer.decode_bytes(tokenizer.encode(" a\n\n\u00e9", special=False)).decode() == " a\n\n\u00e9"
    assert tokenizer.add_bos  # whatever the file says
    assert tokenizer.eog_ids == {2} and 2 not in tokenizer.encode("<|tool_response>", special=False)


def test_whitespace_kind() -> None:
    """Words apart at white space, which is dropped, in lower case unless the file says otherwise."""
    tokens = [(c, NORMAL) for c in "abAB"] + [("ab", NORMAL)]
    data = metadata("whitespace", tokens, merges=["a b"], pre="whitespace")
    assert pieces_of(Tokenizer.from_metadata(data), "ab  a\nB") == ["ab", "a", "B"]
    lower = Tokenizer.from_metadata({**data, "tokenizer.ggml.normalizer.lowercase": True})
    assert pieces_of(lower, "AB a") == ["ab", "a"]


# --- bytes -----------------------------------------------------------------------------------------


def test_token_bytes() -> None:
    extra = [
        ("a b", USER),
        (SPACE, USER),
        ("\u00e9" * 500, NORMAL),
        ("<0x-1>", BYTE),
        ("<0x41>", BYTE),
        ("<0x4>", BYTE),
    ]
    tokenizer = Tokenizer.from_metadata(byte_pair(extra))
    assert [tokenizer.token_bytes(i) for i in range(256)] == [bytes((b,)) for b in range(256)]
    spelled = [b"a b", SPACE.encode(), b"\xe9" * 500, b"<0x-1>", b"A", b"<0x4>"]
    assert [tokenizer.token_bytes(256 + k) for k in range(6)] == spelled
    for bad in (-1, tokenizer.n_vocab, 10**9):
        with pytest.raises(ParameterError, match="not in the vocabulary"):
            tokenizer.token_bytes(bad)
        with pytest.raises(ParameterError):
            tokenizer.piece(bad)


def test_pieces_not_in_the_byte_alphabet_are_literal() -> None:
    tokenizer = Tokenizer.from_metadata(byte_pair([("\u00a0\u4e2d", NORMAL), ("x\udcff", NORMAL)]))
    assert tokenizer.token_bytes(256) == "\u00a0\u4e2d".encode()
    assert tokenizer.token_bytes(257) == b"x\xff"


TOKENIZERS = [
    Tokenizer.from_metadata(byte_pair(CHAT, merges=["a b"])),
    Tokenizer.from_metadata(sentencepiece(CHAT[:2])),
    Tokenizer.from_metadata(sentencepiece(CHAT, add_space_prefix=False)),
]
NAMES = ["byte-pair", "sentencepiece", "sentencepiece without prefix"]
STRETCHES = st.one_of(st.binary(max_size=6), st.sampled_from([b"ab", b" ", b"<think>", b"\xf0\x9f"]))


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=NAMES)
@given(data=st.lists(STRETCHES).map(b"".join))
@settings(max_examples=150, deadline=None)
def test_any_bytes_round_trip(tokenizer: Tokenizer, data: bytes) -> None:
    ids = tokenizer.encode_bytes(data, special=False)
    assert tokenizer.decode_bytes(ids) == data
    assert b"".join(tokenizer.decode_bytes([i], first=k == 0) for k, i in enumerate(ids)) == data


def test_valid_bytes_encode_like_text() -> None:
    for tokenizer in TOKENIZERS:
        for text in ("", "ab <think>ab", "<|im_end|>h\u00e9"):
            for special in (False, True):
                assert tokenizer.encode_bytes(text.encode(), special=special) == tokenizer.encode(
                    text, special=special
                )


def test_invalid_bytes_without_byte_tokens() -> None:
    tokens = [("a", NORMAL), ("\ufffd", NORMAL), ("<unk>", UNKNOWN)]
    data = metadata(
        "llama", tokens, scores=np.zeros(3, np.float32), unknown_token_id=2, add_space_prefix=False
    )
    assert Tokenizer.from_metadata(data).encode_bytes(b"a\xffa", special=False) == [0, 1, 0]


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=NAMES)
def test_lone_surrogates(tokenizer: Tokenizer) -> None:
    with pytest.raises(ParameterError, match=r"lone surrogate \(U\+D83D\)"):
        tokenizer.encode("ok \ud83d", special=True)


# --- files that contradict themselves --------------------------------------------------------------


def without(data: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in data.items() if k != f"tokenizer.ggml.{key}"}


@pytest.mark.parametrize("data, error, match", [
    ({}, ModelFileError, "no tokenizer"),
    ({"tokenizer.ggml.model": "rwkv"}, UnsupportedModelError, "rwkv"),
    (without(byte_pair(), "tokens"), ModelFileError, "tokens"),
    (without(byte_pair(), "merges"), ModelFileError, "merges"),
    (byte_pair() | {"tokenizer.ggml.merges": ["ab"]}, ModelFileError, "two pieces"),
    (byte_pair() | {"tokenizer.ggml.merges": [" ab"]}, ModelFileError, "two pieces"),
    (byte_pair() | {"tokenizer.ggml.merges": ["no such"]}, ModelFileError, "no tokenizer can be built"),
    (byte_pair() | {"tokenizer.ggml.tokens": []}, ModelFileError, "empty"),
    (byte_pair() | {"tokenizer.ggml.tokens": [1, 2]}, ModelFileError, "strings"),
    (byte_pair() | {"tokenizer.ggml.tokens": "abc"}, ModelFileError, "array"),
    (byte_pair() | {"tokenizer.ggml.token_type": np.zeros(3, np.int32)}, ModelFileError, "3 entries"),
    (byte_pair(eos_token_id="x"), ModelFileError, "eos_token_id"),
    (byte_pair(add_bos_token="yes", bos_token_id=1), ModelFileError, "add_bos_token"),
    (without(sentencepiece(), "scores"), ModelFileError, "scores"),
    (sentencepiece() | {"tokenizer.ggml.scores": np.zeros(2, np.float32)}, ModelFileError, "scores"),
    (sentencepiece() | {"tokenizer.ggml.scores": np.full(274, np.nan, np.float32)}, ModelFileError, "NaN"),
    (metadata("t5", [("a", NORMAL)], scores=np.zeros(1), precompiled_charsmap=np.array([9, 0, 0, 0], "u1")),
     ModelFileError, "charsmap"),
    (metadata("bert", [("a", NORMAL)]), ModelFileError, "unknown"),
])  # fmt: skip
def test_broken_metadata(data: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        Tokenizer.from_metadata(data)


def test_ids_outside_the_vocabulary() -> None:
    with pytest.warns(RuntimeWarning, match="eos_token_id = 999"):
        assert Tokenizer.from_metadata(byte_pair(eos_token_id=999)).eos_id is None
    assert Tokenizer.from_metadata(byte_pair(padding_token_id=0xFFFFFFFF)).pad_id is None


def test_unknown_characters_without_an_unknown_token() -> None:
    data = metadata("t5", [("a", NORMAL), (SPACE, NORMAL)], scores=np.zeros(2, np.float32))
    with pytest.raises(ModelFileError, match="cannot spell"):
        Tokenizer.from_metadata(data).encode("z", special=False)


def test_corrupt_charsmap() -> None:
    charsmap = np.frombuffer((8).to_bytes(4, "little") + bytes(range(200, 208)) + b"a", np.uint8)
    tokens = [("a", NORMAL), ("<unk>", UNKNOWN), (SPACE, NORMAL)]
    data = metadata("t5", tokens, scores=np.zeros(3), unknown_token_id=1, precompiled_charsmap=charsmap)
    with pytest.raises(ModelFileError, match="cannot spell"):
        Tokenizer.from_metadata(data).encode("h\u00e9", special=False)


def test_unknown_token_typed_control() -> None:
    tokens = [("<unk>", CONTROL), ("a", NORMAL), (SPACE, NORMAL)]
    tokenizer = Tokenizer.from_metadata(metadata("llama", tokens, scores=np.zeros(3, np.float32)))
    assert tokenizer.encode("az", special=False) == [2, 1, 0]


def test_odd_vocabularies_work() -> None:
    duplicate = Tokenizer.from_metadata(byte_pair([("ab", NORMAL)], merges=["a b"]))
    assert duplicate.encode("ab", special=False) == [256]
    untyped = Tokenizer.from_metadata(without(sentencepiece(), "token_type"))
    assert untyped.decode_bytes(untyped.encode("ab z", special=False)) == b"ab z"
    assert untyped.decode_bytes([1]) == b"" and untyped.eog_ids == {2}
    odd = [("", NORMAL), ("", CONTROL), ("x\udcff", CONTROL), ("\udcfe y", NORMAL), ("\ud800", NORMAL)]
    tokenizer = Tokenizer.from_metadata(byte_pair(odd) | {"tokenizer.ggml.merges": ["\udcfe y"]})
    assert tokenizer.decode_bytes(tokenizer.encode("xy", special=True)) == b"xy"
    assert tokenizer.token_bytes(258, special=True) == b"x\xff" and tokenizer.token_bytes(256) == b""


def test_merges_that_make_control_tokens_are_left_out() -> None:
    data = byte_pair(merges=["a b", "ab c"], pre="gpt-2")
    data["tokenizer.ggml.token_type"][257] = CONTROL  # "abc"
    tokenizer = Tokenizer.from_metadata(data)
    assert pieces_of(tokenizer, "abc") == ["ab", "c"]
    assert pieces_of(tokenizer, "abc", special=True) == ["abc"]
