"""Fill-in-the-middle, and prompts far beyond the context."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny

from pyllamacpp import Llama
from pyllamacpp.errors import ContextOverflowError, ParameterError
from pyllamacpp.text.chat import ChatTemplate
from pyllamacpp.text.extent import refuse_beyond
from pyllamacpp.text.tokenizer import Tokenizer
from pyllamacpp.text.vocabulary import CONTROL, NORMAL

PREFIX, SUFFIX = "def hello(", "):\n  return"


def with_tokens(vocab: dict[str, Any], *pieces: str, types: int = CONTROL, **ids: str) -> dict[str, Any]:
    """The vocabulary with further tokens; ids: metadata key -> piece."""
    tokens = [*vocab["tokenizer.ggml.tokens"], *pieces]
    more = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [*vocab["tokenizer.ggml.token_type"], *[types] * len(pieces)],
        **{f"tokenizer.ggml.{key}_token_id": tokens.index(piece) for key, piece in ids.items()},
    }
    if "tokenizer.ggml.scores" in vocab:
        more["tokenizer.ggml.scores"] = [*vocab["tokenizer.ggml.scores"], *[0.0] * len(pieces)]
    return {**vocab, **more}


def tokenizer(vocab: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_metadata(vocab)


QWEN = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
KNOWN = {
    "Qwen2.5-Coder, CodeGemma": QWEN,
    "StarCoder": ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    "SantaCoder": ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    "DeepSeek": ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # noqa: RUF001
    "CodeLlama": ("▁<PRE>", "▁<SUF>", "▁<MID>"),
}


def write(path: Path, vocab: dict[str, Any]) -> Path:
    rows = {"token_embd.weight": (len(vocab["tokenizer.ggml.tokens"]), 64)}
    return tiny.write(path, metadata=vocab, reshape=rows, n_ctx=128)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("models") / "fim.gguf", with_tokens(tiny.bpe_vocab(), *QWEN))


@pytest.fixture
def llm(path: Path) -> Iterator[Llama]:
    with Llama(path, seed=1, verbose=False) as model:
        yield model


def parts(llm: Llama) -> tuple[list[int], list[int], list[int]]:
    marks = [llm.tokenize(mark.encode(), add_bos=False, special=True)[0] for mark in QWEN]
    return marks, llm.tokenize(PREFIX.encode()), llm.tokenize(SUFFIX.encode())


def test_prompt(path: Path, llm: Llama) -> None:
    (pre, suf, mid), before, after = parts(llm)
    result = llm(PREFIX, suffix=SUFFIX, max_tokens=1, echo=True)
    assert llm.eval_tokens == [pre, *before, suf, *after, mid]
    assert result["usage"]["prompt_tokens"] == len(llm.eval_tokens)
    assert result["choices"][0]["text"].startswith(PREFIX)
    want = llm(llm.eval_tokens, max_tokens=9, seed=4)["choices"][0]["text"]
    assert llm.create_completion(PREFIX, SUFFIX, 9, seed=4)["choices"][0]["text"] == want
    chunks = llm(PREFIX, suffix=SUFFIX, max_tokens=9, seed=4, stream=True)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == want
    with Llama(path, spm_infill=True, verbose=False) as other:
        other(PREFIX, suffix=SUFFIX, max_tokens=1)
        assert other.spm_infill and other.eval_tokens == [suf, *after, pre, *before, mid]
    llm("", suffix="", max_tokens=1)
    assert llm.eval_tokens == [pre, suf, mid]


def test_texts_are_not_read_as_control_tokens(llm: Llama) -> None:
    (pre, suf, mid), _, _ = parts(llm)
    llm("a<|fim_middle|>", suffix="<|im_end|><|fim_suffix|>b", max_tokens=1)
    held = llm.eval_tokens
    assert (held.count(pre), held.count(suf), held.count(mid), held.count(llm.token_eos())) == (1, 1, 1, 0)
    assert llm.detokenize(held, special=True).decode() == (
        "<|fim_prefix|>a<|fim_middle|><|fim_suffix|><|im_end|><|fim_suffix|>b<|fim_middle|>"
    )


@pytest.mark.parametrize("marks", KNOWN.values(), ids=KNOWN)
def test_known_tokens(marks: tuple[str, str, str]) -> None:
    known = tokenizer(with_tokens(tiny.bpe_vocab(), *marks, types=NORMAL))
    n = known.n_vocab
    assert [known.fill_ids[name] for name in ("fim_pre", "fim_suf", "fim_mid")] == [n - 3, n - 2, n - 1]
    assert known.token_bytes(n - 1) == b""  # control, whatever the file says


@pytest.mark.parametrize("keys", [("fim_pre", "fim_suf", "fim_mid"), ("prefix", "suffix", "middle")])
def test_tokens_named_by_the_file(keys: tuple[str, str, str]) -> None:
    pieces = ("[A]", "[B]", "[C]")
    named = with_tokens(tiny.bpe_vocab(), *QWEN, *pieces, **dict(zip(keys, pieces, strict=True)))
    known = tokenizer(named)
    n = known.n_vocab
    assert [known.fill_ids[name] for name in ("fim_pre", "fim_suf", "fim_mid")] == [n - 3, n - 2, n - 1]


def test_sentencepiece(tmp_path: Path) -> None:
    """As CodeLlama was trained: BOS first, a space before the prefix, none before the suffix; <EOT> ends."""
    vocab = with_tokens(tiny.spm_vocab(), *KNOWN["CodeLlama"], "▁<EOT>")
    with Llama(write(tmp_path / "m.gguf", vocab), verbose=False) as llm:
        n = llm.n_vocab()
        llm("the", suffix="an", max_tokens=1)
        space = llm.tokenize(b"the", add_bos=False)
        assert llm.eval_tokens[: 2 + len(space)] == [llm.token_bos(), n - 4, *space]
        assert llm.detokenize(llm.eval_tokens[2 + len(space) :]) == b"an"
        assert n - 1 in llm.tokenizer().eog_ids


def test_refusals(path: Path, llm: Llama, tmp_path: Path) -> None:
    message = r"(?s)no token for fim_pre, fim_suf, fim_mid.*leave suffix"
    other = Llama(tiny.write(tmp_path / "m.gguf"), verbose=False)
    with other, pytest.raises(ParameterError, match=message):
        other("a", suffix="b")
    partly = write(tmp_path / "p.gguf", with_tokens(tiny.bpe_vocab(), *QWEN[:2]))
    with Llama(partly, verbose=False) as other, pytest.raises(ParameterError, match="no token for fim_mid"):
        other("a", suffix="b", stream=True)
    for prompt, suffix in (([1, 2], "b"), ("a", b"b"), ("a", 5), ("a", ["b"])):
        with pytest.raises(ParameterError, match="suffix needs"):
            llm(prompt, suffix=suffix)
    with pytest.raises(ParameterError, match="surrogate"):
        llm("a", suffix="\ud800")
    with pytest.raises(ContextOverflowError, match="context of 128"):
        llm("a", suffix="x y " * 100)


# Prompts far beyond the context


@pytest.mark.parametrize(
    "text", ["hello and " * 1_000_000, "a" * 10_000_000, " " * 10_000_000, "😶" * 3_000_000]
)
def test_ten_megabytes_are_refused_at_once(llm: Llama, text: str) -> None:
    calls = (
        lambda: llm(text),
        lambda: llm(text, stream=True),
        lambda: llm("a", suffix=text) if text[0] != " " else llm(text),
        lambda: llm.create_chat_completion([{"role": "user", "content": text}]),
    )
    for call in calls:
        start = time.process_time()
        with pytest.raises(ContextOverflowError, match=r"more than \d+ tokens.*context of 128"):
            call()
        assert time.process_time() - start < 2.5
    assert llm("hello", max_tokens=1)["usage"]["prompt_tokens"] >= 1


def test_no_text_that_fits_is_refused() -> None:
    """The bound counts what cutting may add, so it never errs against the caller."""
    known = tokenizer(tiny.bpe_vocab())
    for text in ("the hello " * 40_000, "a" * 300_000, "well and of " * 30_000):
        n = len(known.encode(text, special=False))
        refuse_beyond(known, text, n, special=False)
        with pytest.raises(ContextOverflowError):
            refuse_beyond(known, text, n // 25, special=False)
        with pytest.raises(ContextOverflowError):
            refuse_beyond(known, "", 10, special=False, before=11)
    control = "<|endoftext|>" * 20_000  # ten times as many tokens where it is text
    refuse_beyond(known, control, 20_000, special=True)
    with pytest.raises(ContextOverflowError):
        refuse_beyond(known, control, 20_000, special=False)
    template = ChatTemplate("{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}")
    messages = [{"role": "user", "content": "<"}] * 50_000  # marked, it would be four tokens
    assert len(template.encode(known, messages, n_ctx=100_000)) == 100_000
    with pytest.raises(ContextOverflowError, match=r"more than \d+ tokens"):
        template.encode(known, messages, n_ctx=99_000)
