#!/usr/bin/env python3
"""Prefill and decode speed of a model: random tokens, the forward pass only, no sampling, one warm-up.

    bench_model.py MODEL.gguf [-p 512] [-n 64] [-d 0,4096] [-t THREADS] [-r 3] [--isa LEVEL]

Prints JSON: tokens per second at each depth (tokens already in the context). To compare with another engine,
alternate runs of both on the quiet machine and take medians: one figure alone says little.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from pyllamacpp import _core


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("-p", type=int, default=512, help="tokens of a prefill, 0 to skip")
    parser.add_argument("-n", type=int, default=64, help="decoded tokens, 0 to skip")
    parser.add_argument("-d", default="0", help="depths, comma-separated")
    parser.add_argument("-t", type=int, default=0, help="threads")
    parser.add_argument("-r", type=int, default=3, help="repetitions")
    parser.add_argument("--isa", default="", help="force an instruction-set level")
    args = parser.parse_args()
    depths = [int(d) for d in args.d.split(",")]

    start = time.perf_counter()
    model = _core.Model(_core.GgufFile(args.model), n_threads=args.t, isa=args.isa)
    session = _core.Session(model, max(depths) + args.p + args.n + 64)
    load = time.perf_counter() - start
    rng = np.random.default_rng(0)

    def run(n: int) -> float:
        """Seconds to evaluate n random tokens at once."""
        tokens = rng.integers(0, model.n_vocab, n, dtype=np.int32)
        begin = time.perf_counter()
        session.eval(tokens, "last")
        return time.perf_counter() - begin

    def go_to(depth: int) -> None:
        if session.n_tokens < depth:
            run(depth - session.n_tokens)
        session.truncate(depth)

    run(min(args.p or 1, 64))
    run(1)
    runs = []
    for depth in depths:
        prefill, decode = [], []
        for _ in range(args.r):
            if args.p:
                go_to(depth)
                prefill.append(round(args.p / run(args.p), 2))
            if args.n:
                go_to(depth)
                decode.append(round(args.n / sum(run(1) for _ in range(args.n)), 2))
        runs.append({"depth": depth, "pp": prefill, "tg": decode})
    head = {"isa": model.isa, "threads": model.n_threads, "load_s": round(load, 3)}
    print(json.dumps({**head, "runs": runs}))


if __name__ == "__main__":
    main()
