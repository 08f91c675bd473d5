"""The ids that Hugging Face's own pipelines give: every kind of vocabulary, special tokens, mixed scripts.

The pipelines stand here as the models' tokenizer.json files have them, special tokens being the library's
added tokens; ours are built from GGUF metadata alone. Ours do not normalize: where tokenizer.json asks for
NFC (Qwen, Command R) the ids are those of text that is NFC already, and every text decodes to itself.
"""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from test_spm_merges import reference as spm_merges
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, trainers

from pyllamacpp import _core
from pyllamacpp.text import pretokenizers
from pyllamacpp.text.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
HfTokenizer = tokenizers.Tokenizer

# --- texts -----------------------------------------------------------------------------------------

RANGES = [
    *[(0x20, 0x7E)] * 6, (0x9, 0xD), (0xA0, 0xFF), (0x100, 0x24F), (0x300, 0x36F), (0x370, 0x3FF),
    (0x400, 0x4FF), (0x5D0, 0x5EA), (0x620, 0x652), (0x660, 0x669), (0x900, 0x97F), (0xE00, 0xE7F),
    (0x1100, 0x11FF), (0x1780, 0x17FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2150, 0x218F),
    (0x2190, 0x23FF), (0x2600, 0x27BF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
    (0xFE00, 0xFE0F), (0xFF01, 0xFFEF), (0x1F300, 0x1F6FF), (0x1F900, 0x1F9FF), (0x20000, 0x20100),
]  # fmt: skip
WORDS = [
    "'s", "'S", "'ll", "'RE", " ", "  ", " " * 300, "\t", "\t\t", "\n", "\n\n\n", "\r\n", " \n", "\n ", "123",
    "1234567", "\u01c5", "\u02b0", "\u00df", "\u0663\u0664", "\u2167", "\u00bd", "e\u0301", "\u200d",
    "\u00a0", "\u3000", "\x85", "\u2028", "//", "def f(x):\n    return x[0] != 1", "HelloWorld", "helloWORLD",
    "\U0001f636\u200d\U0001f32b\ufe0f", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u1112\u1161\u11ab",
    "<s>", "<|x|>", "\u0e44\u0e17\u0e22",
    "\u0627\u0644\u0639\u064e\u0631\u0628", "\u4e2d\u6587", "\u30ab\u30bf\u30ab\u30fc",
]  # fmt: skip


def characters(rng: random.Random) -> Iterator[str]:
    while True:
        if rng.random() < 0.4:
            yield rng.choice(WORDS)
        else:
            low, high = rng.choice(RANGES)
            yield "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 6)))
        yield " " if rng.random() < 0.3 else ""


def mixed(n: int, seed: int = 0) -> list[str]:
    """n texts of a few characters to a few lines, of every script."""
    rng = random.Random(seed)
    pieces = characters(rng)
    return ["".join(next(pieces) for _ in range(rng.randint(1, 24))) for _ in range(n)]


def with_specials(n: int, specials: Sequence[str]) -> list[str]:
    """n texts in which special tokens stand everywhere, the hard cases first."""
    rng = random.Random(1)
    by_hand = [
        text.replace("<sp>", special)
        for special in specials[:8]
        for text in (
            "<sp>G",
            "<sp> G",
            "a<sp> b",
            "a <sp>b",
            "<sp>",
            " <sp> ",
            "<sp><sp>",
            "<sp>\n\nx",
            "<sp>  y",
        )
    ]
    parts = [
        lambda: rng.choice(specials),
        lambda: " ",
        lambda: "a ",
        lambda: "\n",
        lambda: mixed(1, rng.random())[0],
    ]
    return by_hand + ["".join(rng.choice(parts)() for _ in range(6)) for _ in range(n - len(by_hand))]


def assert_same(ours: Tokenizer, theirs: HfTokenizer, texts: Sequence[str], *, special: bool) -> None:
    theirs.encode_special_tokens = not special
    wanted = theirs.encode_batch(list(texts), add_special_tokens=False)
    for text, want in zip(texts, wanted, strict=True):
        assert ours.encode(text, special=special) == want.ids, ascii(text)


def added(pipeline: HfTokenizer, specials: Sequence[str], **options: bool) -> HfTokenizer:
    pipeline.add_special_tokens([AddedToken(s, normalized=False, special=True, **options) for s in specials])
    return pipeline


# --- the pipelines of tokenizer.json files ---------------------------------------------------------

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (
    CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
START, BLANKS = r"[^\r\n\p{L}\p{N}]?", r"\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (
    f"{START}{UPPER}*{LOWER}+{CONTRACTION}?|{START}{UPPER}+{LOWER}*{CONTRACTION}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + BLANKS
)
TEKKEN = f"{START}{UPPER}*{LOWER}+|{START}{UPPER}+{LOWER}*" + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + BLANKS
NOT_HAN = r"&&[^\p{Han}]]"
KIMI = (
    rf"\p{{Han}}+|{START}{UPPER[:-1]}{NOT_HAN}*{LOWER[:-1]}{NOT_HAN}+{CONTRACTION}?"
    rf"|{START}{UPPER[:-1]}{NOT_HAN}+{LOWER[:-1]}{NOT_HAN}*{CONTRACTION}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + BLANKS
)
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def isolated(*regexes: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r), "isolated") for r in regexes])


# `tokenizer.ggml.pre` -> the cuts of the original.
ORIGINALS: dict[str, pre_tokenizers.PreTokenizer] = {
    "gpt-2": isolated(GPT2),
    "llama-bpe": isolated(LLAMA3),
    "dbrx": isolated(LLAMA3),
    "glm4": isolated(LLAMA3),
    "qwen2": isolated(QWEN2),
    "stablelm2": isolated(QWEN2),
    "qwen35": isolated(
        CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + BLANKS
    ),
    "gpt-4o": isolated(O200K),
    "llama4": isolated(O200K),
    "minimax-m2": isolated(O200K),
    "tekken": isolated(TEKKEN),
    "kimi-k2": isolated(KIMI),
    "starcoder": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), isolated(GPT2)]),
    "command-r": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), isolated(GPT2)]),
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), isolated(GPT2)]),
    "deepseek-coder": pre_tokenizers.Sequence([
        isolated("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
        pre_tokenizers.Digits(individual_digits=True),
    ]),
    "deepseek-v3": isolated(
        r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|" + BLANKS,
    ),
    "bloom": isolated(" ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"),
}  # fmt: skip

SCRIPTS = st.text(
    st.one_of(
        st.sampled_from("\t\n\r '/1a aAbsStTlLvV.\u0130\u01c5\u02b0\u0301\u4e2d\u3042\u0663\u00b2\U0001f600"),
        *[st.characters(min_codepoint=low, max_codepoint=high) for low, high in RANGES[5:]],
    ),
    max_size=24,
)


@pytest.mark.parametrize("name", ORIGINALS)
@settings(max_examples=80, deadline=None)
@given(text=SCRIPTS)
def test_cuts_are_the_originals(name: str, text: str) -> None:
    ours = isolated(*pretokenizers.lookup(name).regexes)
    assert ours.pre_tokenize_str(text) == ORIGINALS[name].pre_tokenize_str(text)


# --- vocabularies made here, one of each kind ------------------------------------------------------

CHAT = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "[INST]"]


def metadata(kind: str, pieces: Sequence[str], types: Sequence[int], **more: Any) -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": kind,
        "tokenizer.ggml.tokens": list(pieces),
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def learned(pipeline: HfTokenizer, trainer: Any) -> HfTokenizer:
    pipeline.train_from_iterator(
        mixed(300, seed=9) + ["the hello and the well in the house, a ab abc"] * 30, trainer
    )
    return pipeline


def pieces_of(pipeline: HfTokenizer) -> list[str]:
    vocabulary = pipeline.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def byte_pair() -> tuple[Tokenizer, HfTokenizer]:
    theirs = HfTokenizer(models.BPE(ignore_merges=True))
    theirs.pre_tokenizer = pre_tokenizers.Sequence(
        [isolated(LLAMA3), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learned(theirs, trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, special_tokens=CHAT))
    merges: list[tuple[str, str]] = json.loads(theirs.to_str())["model"]["merges"]
    pieces = pieces_of(theirs)
    types = [CONTROL if p in CHAT else NORMAL for p in pieces]
    lines = [" ".join(pair) for pair in merges]
    return Tokenizer.from_metadata(metadata("gpt2", pieces, types, merges=lines, pre="llama-bpe")), theirs


def sentencepiece(pieces: Sequence[str], scores: Sequence[float], types: Sequence[int]) -> HfTokenizer:
    """Llama's, with `legacy`: a blank goes before the text and before what follows a special token."""
    ids = {piece: i for i, piece in enumerate(pieces)}
    model = models.BPE(
        vocab=ids,
        merges=spm_merges(pieces, scores, types),
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    pipeline = HfTokenizer(model)
    pipeline.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    return pipeline


def sentencepiece_pair() -> tuple[Tokenizer, HfTokenizer]:
    trained = HfTokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    learned(trained, trainers.BpeTrainer(vocab_size=1500, show_progress=False))
    special = ["<unk>", *CHAT]
    pieces = special + [f"<0x{b:02X}>" for b in range(256)]
    types = [UNKNOWN] + [CONTROL] * len(CHAT) + [BYTE] * 256
    learned_pieces = pieces_of(trained)
    pieces += learned_pieces
    types += [NORMAL] * len(learned_pieces)
    scores = -np.arange(len(pieces), dtype=np.float32)
    ours = Tokenizer.from_metadata(metadata("llama", pieces, types, scores=scores))
    return ours, added(sentencepiece(pieces, scores.tolist(), types), special)


def word_piece() -> tuple[Tokenizer, HfTokenizer]:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    theirs = HfTokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    theirs.normalizer = normalizers.BertNormalizer()
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    learned(theirs, trainers.WordPieceTrainer(vocab_size=1500, special_tokens=special))
    pieces = pieces_of(theirs)
    types = [UNKNOWN if p == "[UNK]" else CONTROL if p in special else NORMAL for p in pieces]
    spelled = [
        p if kind != NORMAL else p[2:] if p.startswith("##") else "\u2581" + p
        for p, kind in zip(pieces, types, strict=True)
    ]
    ids = {"unknown_token_id": 1, "cls_token_id": 2, "seperator_token_id": 3, "padding_token_id": 0}
    return Tokenizer.from_metadata(metadata("bert", spelled, types, **ids)), theirs


def unigram() -> tuple[Tokenizer, HfTokenizer]:
    special = ["<pad>", "</s>", "<unk>"]
    theirs = HfTokenizer(models.Unigram())
    theirs.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    learned(theirs, trainers.UnigramTrainer(vocab_size=6000, special_tokens=special, unk_token="<unk>"))
    entries = json.loads(theirs.to_str())["model"]["vocab"]
    pieces, scores = zip(*entries, strict=True)
    scores = np.array(scores, np.float32)  # as a file has them: ties depend on the last bit
    theirs.model = models.Unigram(
        list(zip(pieces, scores.tolist(), strict=True)), unk_id=2, byte_fallback=False
    )
    types = [UNKNOWN if p == "<unk>" else CONTROL if p in special else NORMAL for p in pieces]
    data = metadata("t5", pieces, types, scores=scores, unknown_token_id=2)
    return Tokenizer.from_metadata(data), theirs


MADE = {
    "byte-pair": byte_pair,
    "sentencepiece": sentencepiece_pair,
    "wordpiece": word_piece,
    "unigram": unigram,
}


@pytest.mark.parametrize("kind", MADE)
def test_every_kind(kind: str) -> None:
    ours, theirs = MADE[kind]()
    specials = {"wordpiece": ["[CLS]", "[SEP]", "[PAD]", "[MASK]"], "unigram": ["</s>", "<pad>"]}.get(
        kind, CHAT
    )
    assert_same(ours, theirs, mixed(250), special=False)
    assert_same(ours, theirs, with_specials(250, specials), special=True)


# --- published vocabularies ------------------------------------------------------------------------


def vocabulary(name: str) -> dict[str, Any]:
    path = SHARED / "vocab" / f"ggml-vocab-{name}.gguf"
    if not path.exists():
        pytest.skip(f"the published vocabulary {path.name} is not here")
    data: dict[str, Any] = _core.GgufFile(str(path)).metadata
    return data


def original(name: str, data: dict[str, Any]) -> HfTokenizer:
    """As the model's tokenizer.json has it, around the vocabulary of the file."""
    pieces: list[str] = data["tokenizer.ggml.tokens"]
    types: list[int] = data["tokenizer.ggml.token_type"].tolist()
    if data["tokenizer.ggml.model"] == "llama":
        pipeline = sentencepiece(pieces, data["tokenizer.ggml.scores"].tolist(), types)
        specials = [p for p, t in zip(pieces, types, strict=True) if t in (UNKNOWN, CONTROL, USER)]
        keeping = ["<unk>", "<s>", "<|endoftext|>"] if name == "phi-3" else specials
        added(pipeline, [s for s in specials if s in keeping])
        return added(pipeline, [s for s in specials if s not in keeping], rstrip=True)
    if name == "bert-bge":
        bare = [p if p[:1] == "[" and t != NORMAL else p[1:] if p[0] == "\u2581" else "##" + p
                for p, t in zip(pieces, types, strict=True)]  # fmt: skip
        model = models.WordPiece(
            {p: i for i, p in enumerate(bare)}, unk_token="[UNK]", max_input_chars_per_word=100
        )
        pipeline = HfTokenizer(model)
        pipeline.normalizer, pipeline.pre_tokenizer = (
            normalizers.BertNormalizer(),
            pre_tokenizers.BertPreTokenizer(),
        )
        return added(pipeline, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    merges = [tuple(line.split(" ", 1)) for line in data["tokenizer.ggml.merges"]]
    ids = {piece: i for i, piece in enumerate(pieces)}
    pipeline = HfTokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=name == "llama-bpe"))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=name in ("gpt-2", "falcon"))
    steps = {
        "gpt-2": [level],
        "falcon": [
            pre_tokenizers.Punctuation("contiguous"), level, pre_tokenizers.Digits(individual_digits=False),
            isolated("[0-9][0-9][0-9]"),
        ],
        "llama-bpe": [isolated(LLAMA3), level],
        "qwen2": [isolated(QWEN2), level],
    }[name]  # fmt: skip
    pipeline.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return added(pipeline, [p for p, t in zip(pieces, types, strict=True) if t == CONTROL])


PUBLISHED = ["gpt-2", "falcon", "llama-bpe", "qwen2", "llama-spm", "phi-3", "bert-bge"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_vocabularies(name: str) -> None:
    data = vocabulary(name)
    ours, theirs = Tokenizer.from_metadata(data), original(name, data)
    texts = mixed(250)
    assert_same(ours, theirs, texts, special=False)
    assert_same(ours, theirs, with_specials(250, sorted(ours.control_texts, key=len)[:20]), special=True)
    if name == "bert-bge":  # forgets case, accents and blanks
        return
    missing = {chr(b) for b in range(128)} - {chr(b) for b in ours._byte_ids}  # Falcon has no token for some
    for text in texts:  # and back, whole or token by token
        text = "".join(c for c in text if c not in missing)
        ids = ours.encode(text, special=False)
        assert ours.decode_bytes(ids) == text.encode()
        assert b"".join(ours.decode_bytes([i], first=k == 0) for k, i in enumerate(ids)) == text.encode()


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_few_hundred_kilobytes(name: str) -> None:
    """Of random scripts, of code and of prose."""
    files = [
        *ROOT.glob("*.md"),
        *(ROOT / "csrc" / "model").glob("*.cpp"),
        *(ROOT / "tests").glob("test_c*.py"),
    ]
    texts = mixed(2500, seed=5) + [f.read_text("utf-8") for f in [*files, *SHARED.rglob("*.inp")]]
    assert sum(len(text.encode()) for text in texts) > 300_000
    data = vocabulary(name)
    assert_same(Tokenizer.from_metadata(data), original(name, data), texts, special=False)


def test_text_is_not_normalized() -> None:
    """Not even where tokenizer.json does: what goes in comes out."""
    ours = Tokenizer.from_metadata(vocabulary("qwen2"))
    for text in ("e\u0301", "\u1112\u1161\u11ab", "\u2126"):
        assert unicodedata.normalize("NFC", text) != text
        assert ours.decode_bytes(ours.encode(text, special=False)).decode() == text
