"""Files made to do harm: headers out of proportion, names that a terminal would obey, odd vocabularies."""

from __future__ import annotations

import itertools
import os
import resource
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from gguf import GGUFValueType as VT
from test_gguf import Raw, keys, tensors

from pyllamacpp import _core
from pyllamacpp.errors import ModelFileError, PyllamacppError, UnsupportedModelError
from pyllamacpp.text.chat import ChatTemplate
from pyllamacpp.text.tokenizer import Tokenizer

# --- headers ------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def refused(path: Path, match: str, kind: type[PyllamacppError] = ModelFileError) -> str:
    """Quickly, in little memory, in one sentence with a hint."""
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(kind, match=match) as caught:
        _core.Model(_core.GgufFile(path))
    assert time.process_time() - started < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10
    assert caught.value.hint and "\n" not in caught.value.args[0]
    return str(caught.value.args[0])


def test_more_entries_than_any_model_has(path: Path) -> None:
    n = 2**16 + 1
    raw = keys(n)
    raw.data += b"".join(struct.pack("<Q5sIB", 5, b"%05d" % i, VT.UINT8, 0) for i in range(n))
    path.write_bytes(raw.data)
    refused(path, "65537 entries; at most 65536")
    path.write_bytes(bytes(tensors(2**20 + 1).data) + bytes(30 << 20))
    refused(path, "1048577 entries; at most 1048576")


@pytest.mark.parametrize("n_bytes", [2**28, 2**31, 2**32])
def test_a_header_as_large_as_its_file(path: Path, n_bytes: int) -> None:
    string = keys().key("k", VT.STRING).u64(n_bytes)
    array = keys().key("k", VT.ARRAY).u32(VT.UINT8).u64(n_bytes)
    name = tensors().u64(n_bytes)
    for raw in (string, array, name):
        path.write_bytes(raw.data)
        os.truncate(path, n_bytes + 4096)  # a hole: it takes no room on the disk
        refused(path, "more than 128 MiB")


def test_a_header_of_many_reads(path: Path) -> None:
    texts = [f"{i:01000}" for i in range(20_000)]
    raw = keys(2).key("texts", VT.ARRAY).u32(VT.STRING).u64(len(texts))
    raw.data += b"".join(struct.pack("<Q", len(text)) + text.encode() for text in texts)
    raw.key("end", VT.STRING).text("x" * 5_000_000)
    path.write_bytes(raw.data)
    metadata = _core.GgufFile(path).metadata
    assert metadata["texts"] == texts and len(metadata["end"]) == 5_000_000
    for n in range(0, len(raw.data), 2_000_003):
        os.truncate(path, len(raw.data) - 1 - n)
        refused(path, "remain")


NASTY = "a\x1b[31m\n\r\x00\x7f\u0085b" + "c" * 500


def test_names_out_of_a_file_do_not_reach_the_terminal(path: Path) -> None:
    files = [
        (keys().key(NASTY, 99), ModelFileError),
        (keys(2).key(NASTY, VT.UINT8, b"1").key(NASTY, VT.UINT8, b"1"), ModelFileError),
        (tensors().tensor(NASTY, [8], 4711), UnsupportedModelError),
        (tensors().tensor(NASTY, [8], offset=1 << 20), ModelFileError),
        (keys().key("general.architecture", VT.STRING).text(NASTY), UnsupportedModelError),
    ]
    for raw, kind in files:
        path.write_bytes(raw.data)
        message = refused(path, r"a\\x1b\[31m\\x0a\\x0d\\x00\\x7f\\xc2\\x85bccc", kind)
        assert message.replace("…", "").isprintable() and len(message) < 800
    tiny.write(path, extra={NASTY: np.ones(4, np.float32)})
    refused(path, r"a\\x1b\[31m", UnsupportedModelError)
    tiny.write(path, metadata={"llama.rope.scaling.type": NASTY})
    refused(path, r"a\\x1b\[31m", UnsupportedModelError)


def test_tensors_without_dimensions_or_one_byte_from_the_end(path: Path) -> None:
    path.write_bytes(tensors().tensor("t", [], 0, 0).body(3).data)
    refused(path, "truncated")
    raw = tensors(2).tensor("a", [2**62 // 4], 24).tensor("b", [1], 24, 2**62)
    path.write_bytes(raw.body(64).data)
    refused(path, "truncated")
    path.write_bytes(Raw().header(n_tensors=1).tensor("t", [2**64 // 4 - 1]).body(32).data)
    refused(path, r"2\^63 weights|2\^64 bytes")


@pytest.mark.parametrize(
    ("metadata", "match"),
    [
        ({"general.architecture": ""}, "names no architecture"),
        ({"general.architecture": None}, "names no architecture"),
        ({"general.architecture": "foo"}, "'foo' is not supported"),
        ({"general.architecture": "clip"}, "multimodal projector"),
        ({"general.architecture": "flux"}, "diffusion"),
        ({"general.type": "adapter"}, "LoRA adapter"),
        ({"general.type": "mmproj"}, "multimodal projector"),
        ({"general.type": "imatrix"}, "importance matrix"),
    ],
)
def test_files_of_other_kinds_say_what_they_are(path: Path, metadata: dict[str, Any], match: str) -> None:
    tiny.write(path, metadata=metadata)
    files = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for _ in range(3):
        refused(path, match, UnsupportedModelError)
    if files:
        assert len(os.listdir("/proc/self/fd")) == files  # none is left open


# --- vocabularies -------------------------------------------------------------------------------------------

KINDS = ("gpt2", "llama", "bert", "t5", "gemma4", "whitespace")
ODD_PIECES = {
    "negative byte": "<0x-1>", "no byte": "<0xGG>", "half a byte": "<0x1>", "byte and a half": "<0x100>",
    "spaced byte": "<0x 1>", "signed byte": "<0x+1>", "other digits": "<0x\u0661\u0662>", "unclosed": "<0x41",
    "empty": "", "NUL": "\0", "blanks": " " * 300, "megabyte": "ab" * 2**19, "invalid UTF-8": "\udcff\udcfe",
    "half a character": "\udce2\udc96", "surrogate": "\ud83d", "line break": "a\nb", "marker": "\ue000",
    "SentencePiece space": "\u2581", "twice": "a", "private": "\U0010ffff", "mark": "\u0301",
}  # fmt: skip
TEXT = "ab <0x-1> \0\U0010ffff\ue000  a\nb\u0301\u2581 <0xGG>"


def vocabulary(kind: str, piece: str, piece_type: int, **more: Any) -> dict[str, Any]:
    letters = ["a", "b", "ab", "\u2581", "\u2581a", "<unk>", "\u0120", *(f"<0x{b:02X}>" for b in range(256))]
    types = [1, 1, 1, 1, 1, 2, 1, *([6] * 256)]
    return {
        "tokenizer.ggml.model": kind,
        "tokenizer.ggml.tokens": [*letters, piece],
        "tokenizer.ggml.token_type": np.array([*types, piece_type], np.int32),
        "tokenizer.ggml.scores": np.zeros(len(letters) + 1, np.float32),
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.unknown_token_id": 5,
        "tokenizer.ggml.bos_token_id": 5,
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("piece", ODD_PIECES.values(), ids=list(ODD_PIECES))
def test_any_piece_of_any_type(kind: str, piece: str) -> None:
    """The vocabulary is refused, or encodes and decodes with ids that it has."""
    for piece_type in range(7):
        started = time.process_time()
        try:
            tokenizer = Tokenizer.from_metadata(vocabulary(kind, piece, piece_type))
            last = tokenizer.n_vocab - 1
            for special in (False, True):
                for text in (TEXT, piece[:1000]):
                    ids = tokenizer.encode_bytes(text.encode("utf-8", "surrogatepass"), special=special)
                    assert all(0 <= i <= last for i in ids)
                    parts = [tokenizer.token_bytes(i, special=special) for i in ids]
                    assert tokenizer.decode_bytes(ids, special=special, first=False) == b"".join(parts)
            assert (
                isinstance(tokenizer.token_bytes(last, special=True), bytes)
                and tokenizer.piece(last) == piece
            )
            messages = [{"role": "user", "content": TEXT}]
            ChatTemplate("{{ bos_token ~ messages[0].content }}").encode(tokenizer, messages)
        except PyllamacppError as error:
            assert "\n" not in error.args[0]
        assert time.process_time() - started < 3


@pytest.mark.parametrize("piece", ["<0x-1>", "<0xGG>", "<0x1>", "<0x100>", "<0x+1>", "<0x 1>", "<0x41"])
def test_only_two_hexadecimal_digits_are_a_byte(piece: str) -> None:
    tokenizer = Tokenizer.from_metadata(vocabulary("llama", piece, 6))
    assert tokenizer.token_bytes(tokenizer.n_vocab - 1) == piece.encode()
    assert tokenizer.decode_bytes(tokenizer.encode_bytes(b"\xff\x01A", special=False)) == b"\xff\x01A"


@pytest.mark.parametrize("odd", [-1, 7, 2**31 - 1, -(2**31)])
def test_types_out_of_range(odd: int) -> None:
    with pytest.raises(ModelFileError, match=rf"token_type holds {odd}; the types are 0 to 6"):
        Tokenizer.from_metadata(vocabulary("llama", "x", odd))


@pytest.mark.parametrize("merges", [
    ["a b", "a b"], ["b a", "ab a"], ["a  b"], [" a b"], ["", "a b"], ["x y"], ["a b"] * 1000,
    ["\u2581 a", "a b"], ["ab ab", "a b"], ["a \udcff"], ["a b c"], ["\0 \0"],
])  # fmt: skip
def test_odd_merges(merges: list[str]) -> None:
    try:
        tokenizer = Tokenizer.from_metadata(vocabulary("gpt2", "ba", 1, merges=merges))
    except ModelFileError as error:
        assert "\n" not in error.args[0]
    else:
        assert tokenizer.decode_bytes(tokenizer.encode("abba", special=False)) == b"abba"


@pytest.mark.parametrize("score", [np.inf, -np.inf, 1e38, -1e38, 1e-45, 0.0])
@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_scores_of_any_size(kind: str, score: float) -> None:
    data = vocabulary(kind, "ba", 1)
    data["tokenizer.ggml.scores"][2] = score
    tokenizer = Tokenizer.from_metadata(data)
    assert tokenizer.decode_bytes(tokenizer.encode("abba", special=False)) == b"abba"


# --- texts --------------------------------------------------------------------------------------------------

SHORT = [bytes(pair) for n in (1, 2) for pair in itertools.product(range(256), repeat=n)]
VOCABULARIES = sorted((Path(__file__).parents[1].parent / "shared/data/vocab").glob("*.gguf"))


@pytest.mark.parametrize("make", [tiny.bpe_vocab, tiny.spm_vocab])
def test_every_string_of_one_or_two_bytes(make: Any) -> None:
    tokenizer = Tokenizer.from_metadata(make())
    random = np.random.default_rng(0)
    longer = [random.bytes(n) for n in (3, 4) for _ in range(4000)]
    for data in [*SHORT, *longer]:
        assert tokenizer.decode_bytes(tokenizer.encode_bytes(data, special=False)) == data


@pytest.mark.slow
@pytest.mark.parametrize("path", VOCABULARIES, ids=lambda path: path.stem)
def test_short_strings_in_published_vocabularies(path: Path) -> None:
    tokenizer = Tokenizer.from_metadata(_core.GgufFile(path).metadata)
    lossless = tokenizer.decode_bytes(tokenizer.encode_bytes(b"\xff", special=False)) == b"\xff"
    for data in SHORT:
        decoded = tokenizer.decode_bytes(tokenizer.encode_bytes(data, special=False))
        assert decoded == data or not lossless


UNITS = [
    "the fox, aged 7. ",
    "x = [1];\t\n",
    "你好世界",
    "👩‍👩‍👧🇩🇪",
    "😀",
    "a",
    " ",
    "\n",
    "1",
    "<",
    "aA",
    "e\u0301",
]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("make", [tiny.bpe_vocab, tiny.spm_vocab])
def test_a_hundred_kilobytes_of_anything(make: Any, unit: str) -> None:
    tokenizer = Tokenizer.from_metadata(make())
    text = unit * (100_000 // len(unit.encode()))
    started = time.process_time()
    ids = tokenizer.encode(text, special=True)
    assert time.process_time() - started < 2  # quadratic time is more
    assert tokenizer.decode_bytes(ids) == text.encode()


@pytest.mark.slow
@pytest.mark.parametrize("path", VOCABULARIES, ids=lambda path: path.stem)
def test_megabytes_in_published_vocabularies(path: Path) -> None:
    tokenizer = Tokenizer.from_metadata(_core.GgufFile(path).metadata)
    for unit in UNITS:
        size = 5_000_000 if unit == "a" else 500_000
        started = time.process_time()
        tokenizer.encode(unit * (size // len(unit.encode())), special=True)
        assert time.process_time() - started < size / 80_000, unit


@pytest.mark.slow
def test_conversations_of_a_hundred_thousand_messages() -> None:
    messages = [{"role": "user", "content": "hello"}] * 100_000
    assert ChatTemplate(tiny.CHATML).render(messages).count("hello") == 100_000


def test_a_conversation_of_every_private_character() -> None:
    tokenizer, template = Tokenizer.from_metadata(tiny.bpe_vocab()), ChatTemplate(tiny.CHATML)
    characters = "".join(map(chr, range(0xE000, 0xF8FE)))
    text = "x" * 100_000 + characters
    started = time.process_time()
    ids = template.encode(tokenizer, [{"role": "user", "content": text}])
    assert time.process_time() - started < 3
    assert text.encode() in tokenizer.decode_bytes(ids)
    with pytest.raises(PyllamacppError, match="every private-use character"):
        template.encode(tokenizer, [{"role": "user", "content": characters + "\uf8fe"}])


@pytest.mark.parametrize("arguments", ["[" * 100_000 + "]" * 100_000, '{"a":' * 5000 + "1" + "}" * 5000])
def test_deep_arguments(arguments: str) -> None:
    call = {"function": {"name": "f", "arguments": arguments}}
    messages = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    source = "{{ messages[0].tool_calls[0].function.arguments | from_json }}"
    with pytest.raises(PyllamacppError, match=r"deep|nest|fail"):
        ChatTemplate(source).render(messages)
