"""Fuzz target of what is text: templates, vocabularies, tokenizers and streams. Needs `pip install atheris`.

python tests/fuzz/fuzz_text.py [FOLDER ...] [-max_total_time=60]     as libFuzzer
python tests/fuzz/fuzz_text.py --replay FOLDER ...                   each file once, without atheris
"""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

with contextlib.ExitStack() as instrumented:
    if "--replay" not in sys.argv:
        import atheris

        instrumented.enter_context(atheris.instrument_imports(include=["pyllamacpp"]))
    from pyllamacpp.errors import PyllamacppError
    from pyllamacpp.text.chat import ChatTemplate
    from pyllamacpp.text.stream import TextStream
    from pyllamacpp.text.tokenizer import Tokenizer

SECONDS = 3  # of CPU, more than any input of this length needs
MESSAGES = [
    {"role": "system", "content": "Be <|im_end|> brief."},
    {"role": "user", "content": [{"type": "text", "text": "Hi\ue000"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "f", "arguments": '{"a": [1]}'}}],
    },
    {"role": "tool", "content": "x" * 100},
]
TOKENS = [*(chr(b) for b in range(0x21, 0x7F)), "\u0120", "\u0120a", "ab", "<|im_start|>", "<|im_end|>"]
PLAIN = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [1] * (len(TOKENS) - 2) + [3, 3],
    "tokenizer.ggml.merges": ["a b", "\u0120 a"],
}


def template(data: bytes) -> None:
    """A template of any text, on a conversation with everything in it."""
    made = ChatTemplate(data.decode("utf-8", "surrogateescape"))
    tokenizer = Tokenizer.from_metadata(PLAIN)
    assert isinstance(made.render(MESSAGES, tools=[{"type": "function", "function": {"name": "f"}}]), str)
    made.encode(tokenizer, MESSAGES)


def vocabulary(data: bytes) -> None:
    """A vocabulary of any pieces, types, scores and merges, and a text for it: lines of a file."""
    kinds = ("gpt2", "llama", "bert", "t5", "gemma4", "whitespace")
    flags, _, rest = data.partition(b"\n")
    lines = rest.decode("utf-8", "surrogateescape").split("\n")
    numbers = list(flags[1:]) or [1]
    n = min(len(lines), 1 + numbers[0])
    tokens, others = lines[:n], lines[n:]
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": kinds[flags[0] % len(kinds)] if flags else "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [numbers[i % len(numbers)] % 8 for i in range(n)],
        "tokenizer.ggml.scores": [float(-numbers[i % len(numbers)]) for i in range(n)],
        "tokenizer.ggml.merges": [line for line in others if " " in line],
        "tokenizer.ggml.unknown_token_id": numbers[-1],
        "tokenizer.ggml.bos_token_id": numbers[-1] // 2,
    }
    tokenizer = Tokenizer.from_metadata(metadata)
    for special in (False, True):
        ids = tokenizer.with_bos(tokenizer.encode_bytes(rest, special=special))
        assert all(0 <= i < tokenizer.n_vocab for i in ids)
        whole = tokenizer.decode_bytes(ids, special=True, first=False)
        assert whole == b"".join(tokenizer.token_bytes(i, special=True) for i in ids)
    ChatTemplate("{{ messages[0].content }}").encode(
        tokenizer, [{"role": "user", "content": "a\u00e4<|im_end|>"}]
    )


def stream(data: bytes) -> None:
    """Any bytes in any chunks with any stop strings give what the whole text gives."""
    head, _, text = data.partition(b"\n")
    stops = [stop for stop in head.decode("utf-8", "replace").split("\t") if stop]
    whole = TextStream(stops)
    expected = whole.push(text) + whole.flush()
    cut = TextStream(stops)
    step = 1 + len(head) % 5
    pieces = [cut.push(text[i : i + step]) for i in range(0, len(text), step)]
    assert ("".join(pieces) + cut.flush(), cut.stopped) == (expected, whole.stopped)
    assert not any(stop in expected for stop in stops)


TARGETS: tuple[Callable[[bytes], None], ...] = (template, vocabulary, stream)


def one_input(data: bytes) -> None:
    """The first byte chooses the target."""
    if not data:
        return
    start = time.process_time()
    with contextlib.suppress(PyllamacppError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        TARGETS[data[0] % len(TARGETS)](data[1:])
    assert time.process_time() - start < SECONDS


def main() -> None:
    if "--replay" not in sys.argv:
        atheris.Setup(sys.argv, one_input)
        atheris.Fuzz()
        return
    for folder in sys.argv[sys.argv.index("--replay") + 1 :]:
        for path in sorted(Path(folder).iterdir()):
            print(path.name)
            one_input(path.read_bytes())


if __name__ == "__main__":
    main()
