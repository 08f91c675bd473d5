"""Time and memory of tokenizing long texts, and whether twice the text takes twice the time.

    python benchmarks/bench_tokenizer.py MODEL.gguf ... [--mb 10] [--texts prose,a]
    python benchmarks/bench_tokenizer.py MODEL.gguf --pre all --mb 1  # every pre-tokenizer

A row: what was tokenized, MB/s, time of the text / time of half of it (more than 2.6 is marked), bytes of
memory at the peak per byte of text, tokens. Each row runs in a process of its own, for its memory's sake.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from pyllamacpp import _core
from pyllamacpp.text import pretokenizers
from pyllamacpp.text.tokenizer import Tokenizer

PROSE = "The quick brown fox, aged 7, jumps over the lazy dog's 12 friends; nobody minded (much).\n"
CODE = "    for (int i = 0; i < n; i++) { total += values[i] * 0x1F; }\t// it's done\r\n"
CJK = "你好,世界。これはテストです。안녕하세요 세계 ๑๒๓ ประเทศไทย "
EMOJI = "👩‍👩‍👧‍👦🇩🇪👍🏽 "
UNITS = {
    "prose": PROSE, "code": CODE, "CJK": CJK, "emoji": EMOJI, "one emoji": "😀", "a": "a", "space": " ",
    "newline": "\n", "1": "1", "<": "<", "ab": "ab", "A": "A", "aA": "aA", "a'": "a'", ".": ".", "tab": "\t ",
    "CR LF": "\r\n", "space a": " a", "a1": "a1", "mark": "e\u0301", "!\\n": "!\n", "'s": "'s", "/": "/\n",
    "nbsp": "\u00a0", "zero": "\0", "ﬁ": "ﬁ", "हि": "हिन्दी", "<|": "<|im", "_": "\u2581",
}  # fmt: skip


def text_of(unit: str, n_bytes: int) -> str:
    return unit * (n_bytes // len(unit.encode()))


def measure(path: str, pre: str | None, unit: str, n_bytes: int) -> str:
    tokenizer = Tokenizer.from_metadata(_core.GgufFile(path).metadata, pre=pre)
    tokenizer.encode("warm up", special=True)
    texts = [text_of(unit, n_bytes // 2), text_of(unit, n_bytes)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, n_tokens = [], 0
    for text in texts:
        start = time.process_time()
        n_tokens = len(tokenizer.encode(text, special=True))
        seconds.append(time.process_time() - start)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    half, whole = seconds
    mark = " !" if whole > 2.6 * half and whole > 0.05 else "  "
    speed, ratio, share = n_bytes / whole / 1e6, whole / half, grown / n_bytes
    return f"{speed:8.2f} MB/s  x{ratio:5.2f}{mark} {share:6.1f} B/B {n_tokens:9}"


def in_own_process(function: Callable[..., str], *args: object) -> str:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+")
    parser.add_argument("--mb", type=float, default=10)
    parser.add_argument("--texts", default=",".join(UNITS), help="names, separated by commas")
    parser.add_argument("--pre", help="another pre-tokenizer, or `all`")
    options = parser.parse_args()
    for path in options.models:
        for pre in pretokenizers.names() if options.pre == "all" else [options.pre]:
            for name in options.texts.split(","):
                row = in_own_process(measure, path, pre, UNITS[name], int(options.mb * 1e6))
                print(f"{Path(path).stem:26} {pre or '':18} {name:10} {row}", flush=True)


if __name__ == "__main__":
    main()
