"""Speed of the matrix products, by format and instruction-set level, beside plain reading of the same memory.

    python benchmarks/bench_matmul.py [--levels avx512vnni,avx2] [--formats Q4_K,Q6_K] [--mb 64] [--tokens 1,4,16,128]

One thread. GMAC/s for every number of tokens; for one token also GB/s of weights, and what a plain read reaches in the
same moment. Best of several rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from pyllamacpp import _core

COLS = 4096


def best(rounds: int, fn: Callable[[], object]) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        fn()
        times.append(time.perf_counter() - start)
    return min(times)


def bench(level: str, name: str, weights: int, block_bytes: int, mb: float, tokens: list[int]) -> str:
    row_bytes = COLS // weights * block_bytes
    rows = max(1, int(mb * 1e6 / row_bytes / 16)) * 16
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 60, (rows, row_bytes), dtype=np.uint8)  # any f16 or e8m0 of such bytes is finite
    start = time.perf_counter()
    panels = _core.Panels(level, name, raw)
    repack = raw.size / (time.perf_counter() - start)
    read = panels.n_bytes / best(7, panels.read)
    line = f"{level:11} {name:7} repack {repack / 1e9:5.1f} GB/s  read {read / 1e9:5.1f} GB/s |"
    for n in tokens:
        x = rng.standard_normal((n, COLS), dtype=np.float32)
        seconds = best(7 if n < 64 else 2, lambda x=x: panels.matmul(x))
        line += f"  {n}: {rows * COLS * n / seconds / 1e9:5.1f} GMAC/s"
        if n == 1:
            line += f" ({panels.n_bytes / seconds / 1e9:.1f} GB/s)"
    return line


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--levels", default=",".join(_core.levels()))
    parser.add_argument("--formats", default=",".join(f[0] for f in _core.formats()))
    parser.add_argument("--mb", type=float, default=64, help="megabytes of weights")
    parser.add_argument("--tokens", default="1,2,4,16,128")
    args = parser.parse_args()
    blocks = {name: (weights, n_bytes) for name, _, weights, n_bytes in _core.formats()}
    for level in args.levels.split(","):
        for name in args.formats.split(","):
            print(
                bench(level, name, *blocks[name], args.mb, [int(n) for n in args.tokens.split(",")]),
                flush=True,
            )


if __name__ == "__main__":
    main()
