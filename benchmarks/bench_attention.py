"""Attention alone: milliseconds per layer, beside the read bandwidth measured in the same run.

python benchmarks/bench_attention.py [--types f16,i16] [--threads 2] [--heads 32 --kv-heads 8 --head-dim 64]
"""

from __future__ import annotations

import argparse

import numpy as np

from pyllamacpp import _core


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--level", default=_core.levels()[-1], choices=_core.levels())
    parser.add_argument(
        "--types", default=",".join(_core.kv_types()), help="of keys and values, or K/V, as in q8_0/i16"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=15)
    a = parser.parse_args()
    print(f"{a.level}, {a.threads} threads, {a.heads}/{a.kv_heads} heads of {a.head_dim}, {a.layers} layers")
    for types in a.types.split(","):
        measure(a, types)


def measure(a: argparse.Namespace, types: str) -> None:
    depth, prompt, scale = 4096, 512, a.head_dim**-0.5
    type_k, _, type_v = types.partition("/")
    cache = _core.KvAttention(
        a.level,
        n_head=a.heads,
        n_head_kv=a.kv_heads,
        head_dim_k=a.head_dim,
        head_dim_v=a.head_dim,
        n_positions=depth + prompt,
        n_threads=a.threads,
        n_layers=a.layers,
        type_k=type_k,
        type_v=type_v or type_k,
    )
    rng = np.random.default_rng(0)
    kv = rng.standard_normal((depth + prompt, a.kv_heads, a.head_dim), dtype=np.float32)
    for layer in range(a.layers):
        cache.store(0, kv, kv, layer)
    q = rng.standard_normal((prompt, a.heads, a.head_dim), dtype=np.float32)

    print(f"\n{types:24}{'ms/layer':>10}{'best':>8}{'GB/s':>8}{'GMAC/s':>8}")
    for name, n_pages in (("read 4096 positions", depth // 64), ("read 512 positions", 512 // 64)):
        report(
            name,
            cache.time_read(n_pages, repeats=a.repeats),
            a.layers,
            gigabytes=n_pages * cache.page_bytes / 1e9,
        )
    for name, n, pos in (
        ("decode at 512", 1, 511),
        ("decode at 4096", 1, depth - 1),
        ("8 tokens at 4096", 8, depth - 8),
        ("prefill 512 at 0", prompt, 0),
        ("prefill 512 at 4096", prompt, depth),
    ):
        ms = cache.time(q[:n], pos, scale=scale, repeats=a.repeats if n < prompt else 3)
        gigabytes = (pos + n) / 64 * cache.page_bytes / 1e9
        macs = a.layers * sum(pos + i + 1 for i in range(n)) * a.heads * a.head_dim * 2 / 1e9
        report(name, ms, a.layers, gigabytes=gigabytes if n == 1 else None, macs=macs)


def report(
    name: str, ms: list[float], layers: int, *, gigabytes: float | None = None, macs: float | None = None
) -> None:
    median, best = float(np.median(ms)), min(ms)
    rate = f"{gigabytes / median * 1e3:8.1f}" if gigabytes else " " * 8
    work = f"{macs / median * 1e3:8.1f}" if macs else ""
    print(f"{name:24}{median / layers:10.4f}{best / layers:8.4f}{rate}{work}")


if __name__ == "__main__":
    main()
