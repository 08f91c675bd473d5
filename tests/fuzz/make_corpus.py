"""Writes the seeds of the fuzz targets into tests/fuzz/corpus; inputs that once failed (`found-*`) stay.

PYTHONPATH=tests python tests/fuzz/make_corpus.py
"""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import numpy as np
import tiny
from tiny import Shape

CORPUS = Path(__file__).with_name("corpus")


def gguf_seeds(folder: Path) -> None:
    """The smallest model of each architecture, and other features of files."""
    shape = Shape(n_embd=8, n_layer=1, n_ff=8, n_head=1, n_head_kv=1, head_dim=8)
    for arch in sorted(tiny.ARCHS.keys() - {"granitemoe", "qwen3moe"}):  # large, and much like the other two
        metadata = {"tokenizer.ggml.tokens": ["a", "b", "c"], f"{arch}.context_length": 8}
        tiny.write(
            folder / arch, arch, shape=shape, vocab=None, tied=True, metadata=metadata,
            reshape={"token_embd.weight": (3, 8), "position_embd.weight": (8, 8)},
        )  # fmt: skip
    for name, scaling in {
        "yarn": {"type": "yarn", "factor": 4.0, "original_context_length": 4},
        "linear": {"type": "linear", "factor": 2.0},
    }.items():
        keys = {f"llama.rope.scaling.{key}": value for key, value in scaling.items()}
        keys["general.alignment"] = 8
        tiny.write(
            folder / f"llama-{name}", shape=shape, vocab=None, tied=False, metadata=keys, n_ctx=8,
            reshape={"token_embd.weight": (3, 8), "output.weight": (3, 8)},
        )  # fmt: skip


def spm_seeds(folder: Path) -> None:
    texts = [
        b"a",
        b"b",
        b"ab",
        b"abab",
        b"\xe2\x96\x81",
        b"\xe2\x96\x81a",
        b"a",
        b"",
        b"\xc3",
        b"\xa4",
        b"\xc3\xa4",
    ]
    tokens = [
        struct.pack("<H", len(text)) + text + struct.pack("<BbB", 0, -i, 0) for i, text in enumerate(texts)
    ]
    (folder / "words").write_bytes(b"".join(tokens))
    (folder / "repeated").write_bytes(b"".join(tokens[:3] * 8))
    typed = [struct.pack("<H", 1) + b"a" + struct.pack("<BfBi", 1, 1 / (t + 1), 1, t) for t in range(8)]
    (folder / "types").write_bytes(b"".join(typed))
    nan = struct.pack("<H", 1) + b"a" + struct.pack("<BfB", 1, float("nan"), 0)
    (folder / "nan").write_bytes(nan)


def sampler_seeds(folder: Path) -> None:
    random = np.random.default_rng(0)
    for i, size in enumerate(itertools.chain([0, 20, 60], [200] * 5, [900] * 3)):
        (folder / f"random-{i}").write_bytes(random.integers(0, 256, size, dtype=np.uint8).tobytes())


def text_seeds(folder: Path) -> None:
    templates = {
        "chatml": tiny.CHATML,
        "tools": "{% for t in tools %}{{ t | tojson(indent=2) }}{{ t.function.name }}{% endfor %}",
        "calls": "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments.a[0] }}"
        "{{ c.function.arguments | tojson | from_json }}{% endfor %}{% endfor %}",
        "macro": "{% macro f(m) %}{{ m.content | trim | upper }}{% endmacro %}{% set n = namespace(i=0) %}"
        "{% for m in messages if m.role != 'x' %}{% set n.i = n.i + loop.index %}{{ f(m)[:3] ~ n.i }}"
        "{% endfor %}{{ strftime_now('%Y') }}{% generation %}x{% endgeneration %}",
        "methods": "{{ bos_token + 'a,b'.split(',') | join('-') }}{{ '%s' % 1 }}{{ 'abc'[1:2] }}"
        "{{ raise_exception('no') if messages | length > 9 else messages | map(attribute='role') | list }}",
    }
    for name, source in templates.items():
        (folder / f"template-{name}").write_bytes(b"\0" + source.encode())
    for kind, name in enumerate(("gpt2", "llama", "bert", "t5", "gemma4", "whitespace")):
        lines = [
            "a",
            "b",
            "ab",
            "▁a",
            "<0x41>",
            "<0xGG>",
            "<0x-1>",
            "<s>",
            "ä",
            "",
            "Ġ",
            "\udcff",
            "a b",
            "hello ab a",
        ]
        pieces = "\n".join(lines).encode("utf-8", "surrogateescape")
        types = bytes([kind, 11, 1, 1, 1, 6, 6, 6, 3, 1, 1, 1, 1, 2])
        (folder / f"vocabulary-{name}").write_bytes(b"\1" + types + b"\n" + pieces)
    (folder / "stream-stops").write_bytes("\2ab\tabc\täb\nxxabäbaab".encode())
    (folder / "stream-invalid").write_bytes(b"\2aa\n\xf0\x9f\x98a\xffaab")


def main() -> None:
    makers = {"gguf": gguf_seeds, "spm_merges": spm_seeds, "sampler": sampler_seeds, "text": text_seeds}
    for name, make in makers.items():
        folder = CORPUS / f"fuzz_{name}"
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if not old.name.startswith("found-"):
                old.unlink()
        make(folder)


if __name__ == "__main__":
    main()
