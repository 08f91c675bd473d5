#!/usr/bin/env python3
"""pyllamacpp beside llama-cpp-python, run by run in turn, on the same file, tokens and threads.

    compare.py MODEL.gguf --peer-python VENV/bin/python [-p 512] [-n 64] [-d 0,4096] [-t 2] [-r 5] [--kv f16]
    compare.py MODEL.gguf --peer-python VENV/bin/python --start [--n-ctx 4096]

Each engine lives in a process of its own, in its own environment (pip install llama-cpp-python, built on
this machine: the line "system" tells what it was built with), and is told through a pipe what to do. Ratios
are of runs next to each other, because machines are noisy: their median, smallest and largest. Shares are of
the limit measured in between (pyllamacpp/bench.py). --kv: types of keys and values, as "q8_0", or "i16:f16"
for different ones of ours and the peer's. --start: whole processes instead, from their start to the first
token, and their peak memory; there a ratio below 1 is the better.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from pyllamacpp import _core
from pyllamacpp.bench import BenchParams, BenchTest

WORKER = Path(__file__).with_name("compare_worker.py")
PROMPT = "The capital of France is"
OURS, PEER = "pyllamacpp", "llama_cpp"
PAUSE = 0.05  # seconds: the other engine's threads go to sleep


class Worker:
    """An engine's process."""

    def __init__(self, python: str, engine: str, **opening: Any) -> None:
        self._engine = engine
        self._process = subprocess.Popen(
            [python, str(WORKER), engine], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.facts = self._ask(opening)

    def __call__(self, command: str, **arguments: Any) -> dict[str, Any]:
        return self._ask([command, arguments])

    def _ask(self, message: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has said why
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._engine} ended, exit code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def alternate(repeats: int, ours: Callable[[], Any], peer: Callable[[], Any]) -> list[tuple[Any, Any]]:
    """Pairs of neighbours; who comes first changes from pair to pair."""
    pairs = []
    for i in range(repeats):
        order = (ours, peer) if i % 2 == 0 else (peer, ours)
        results = {}
        for one in order:
            time.sleep(PAUSE)
            results[one] = one()
        pairs.append((results[ours], results[peer]))
    return pairs


def compare_speed(args: argparse.Namespace, params: BenchParams, kv: str) -> dict[str, Any]:
    kv_ours, _, kv_peer = kv.partition(":")
    kv_peer = kv_peer or kv_ours
    n_ctx = max(params.n_ctx(depth) for depth in params.depths)
    opening = {"path": args.model, "n_ctx": n_ctx, "threads": args.t}
    ours = Worker(sys.executable, OURS, **opening, type_k=kv_ours, type_v=kv_ours)
    peer = Worker(args.peer_python, PEER, **opening, type_k=kv_peer, type_v=kv_peer)
    tests = [[test.kind, test.n, test.depth] for test in params.tests]
    rng = random.Random(0)

    def tokens(n: int) -> list[int]:
        return [rng.randrange(ours.facts["n_vocab"]) for _ in range(n)]

    def one_run(worker: Worker, test: BenchTest, ids: list[int]) -> Callable[[], float]:
        arguments = {"depth": test.depth, "tokens": ids, "at_once": test.kind == "pp"}
        return lambda: test.n / float(worker("run", **arguments)["seconds"])

    rows: list[dict[str, Any]] = []
    sampled = ours("limits", tests=tests)
    for depth in params.depths:
        context, warm_up = tokens(depth), tokens(64)
        for worker in (ours, peer):
            worker("fill", tokens=context)
            worker("run", depth=depth, tokens=warm_up[: max(params.n_prompt + params.n_gen)], at_once=True)
            worker("run", depth=depth, tokens=warm_up[:2], at_once=False)
        for test in (test for test in params.tests if test.depth == depth):
            ids = tokens(test.n)
            pairs = alternate(args.r, one_run(ours, test, ids), one_run(peer, test, ids))
            rows.append(
                {
                    "test": test.name,
                    "n": test.n,
                    "kv": kv,
                    "ours": [a for a, _ in pairs],
                    "peer": [b for _, b in pairs],
                }
            )
            sampled = ours("limits", tests=tests)
            print(f"{test.name} {kv}: done", file=sys.stderr)
    for row in rows:
        least = sampled["least_s"][row["test"]] / row.pop("n")
        row.update(shares={who: least * median(row[who]) for who in ("ours", "peer")})
    ours.close()
    peer.close()
    return {"ours": ours.facts, "peer": peer.facts, "limits": sampled["limits"], "rows": rows}


def first_token(command: Sequence[str]) -> tuple[float, int]:
    """Seconds from a process's start to its first output, and its peak memory."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    first = process.stdout.read(1)
    seconds = time.perf_counter() - began
    process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if not first or process.returncode:
        raise SystemExit(f"{' '.join(command)} gave no token: exit code {process.returncode}")
    return seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def compare_start(args: argparse.Namespace) -> dict[str, Any]:
    keywords: dict[str, int] = {"n_threads": args.t} if args.t else {}
    if args.n_ctx:
        keywords["n_ctx"] = args.n_ctx
    script = [str(WORKER), "start"]
    rest = [args.model, json.dumps(keywords), PROMPT]
    command_line = [sys.executable, "-m", "pyllamacpp", "run", args.model, "--raw", "-p", PROMPT]
    command_line += ["--max-tokens", "1", "--temp", "0", "-t", str(args.t), "-c", str(args.n_ctx)]
    peer = [args.peer_python, *script, PEER, *rest]
    rows = []
    for name, ours in (
        ("Llama(…)", [sys.executable, *script, OURS, *rest]),
        ("pyllamacpp run, Llama(…)", command_line),
    ):
        first_token(ours), first_token(peer)  # the file comes into the page cache
        pairs = alternate(args.r, partial(first_token, ours), partial(first_token, peer))
        for i, what in enumerate(("first token, s", "peak memory, MiB")):
            unit = 1 << 20 if i else 1
            both = {who: [pair[j][i] / unit for pair in pairs] for j, who in enumerate(("ours", "peer"))}
            rows.append({"test": f"{what}: {name}", "kv": f"n_ctx {args.n_ctx or 'default'}", **both})
    return {"rows": rows}


def machine() -> dict[str, Any]:
    cpu = _core.cpu_info()
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {"cpu": model, "threads": cpu["threads"], "level": cpu["level"], "system": platform.platform()}


def cells(row: dict[str, Any]) -> list[str]:
    ratios = [a / b for a, b in zip(row["ours"], row["peer"], strict=True)]
    spread = f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
    shares = row.get("shares")
    digits = 2 if row["test"].startswith("first") else 1
    return [
        row["test"],
        row["kv"],
        f"{median(row['ours']):.{digits}f}",
        f"{median(row['peer']):.{digits}f}",
        spread,
        *([f"{100 * shares['ours']:.0f} %", f"{100 * shares['peer']:.0f} %"] if shares else []),
    ]


def table(report: dict[str, Any], markdown: bool) -> str:
    rows = [cells(row) for row in report["rows"]]
    headings = ["test", "KV", "pyllamacpp", "llama.cpp", "ratio (min-max)", "of limit", "llama.cpp's"]
    headings = headings[: len(rows[0])]
    if markdown:
        lines = [headings, ["---"] * len(headings), *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)
    widths = [max(len(line[i]) for line in (headings, *rows)) for i in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (headings, *rows)
    )


def head(report: dict[str, Any]) -> list[str]:
    where = report["machine"]
    lines = [
        f"{report['model']} on {where['cpu']}, {where['level']}, {report['threads']} threads, "
        f"{report['date']}"
    ]
    for who in ("ours", "peer"):
        if facts := report.get(who):
            lines.append(
                f"{facts['lib']}: load {facts['load_s']} s, {facts['threads']} threads, "
                f"system {facts['system']}"
            )
    if limits := report.get("limits"):
        peaks = ", ".join(
            f"{k.removesuffix('_gmac_s')} {v['median']:.0f}"
            for k, v in limits.items()
            if k.endswith("gmac_s")
        )
        lines.append(
            f"this machine meanwhile: reads {limits['read_gb_s']['median']:.1f} GB/s; "
            f"multiplies {peaks} GMAC/s"
        )
    return lines


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("model")
    parser.add_argument("--peer-python", required=True, help="Python of an environment with llama-cpp-python")
    parser.add_argument("-p", default="512", help="tokens of prefills, comma-separated; 0: none")
    parser.add_argument("-n", default="64", help="decoded tokens, comma-separated; 0: none")
    parser.add_argument("-d", default="0", help="depths, comma-separated")
    parser.add_argument("-t", type=int, default=_core.cpu_info()["threads"], help="threads of both")
    parser.add_argument("-r", type=int, default=5, help="runs of each engine")
    parser.add_argument("--kv", default="f16", help="types of keys and values, comma-separated")
    parser.add_argument("--start", action="store_true", help="whole processes, to the first token")
    parser.add_argument("--n-ctx", type=int, default=0, help="with --start; 0: each one's default")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()

    report: dict[str, Any] = {
        "model": Path(args.model).name,
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "threads": args.t,
    }
    if args.start:
        report |= compare_start(args)
    else:
        p, n, d = (tuple(int(part) for part in text.split(",")) for text in (args.p, args.n, args.d))
        params = BenchParams(n_prompt=p, n_gen=n, depths=d, repeats=args.r)
        by_kv = [compare_speed(args, params, kv) for kv in args.kv.split(",")]
        report |= {**by_kv[-1], "rows": [row for one in by_kv for row in one["rows"]]}
    if args.json:
        print(json.dumps(report))
        return
    separator = "\n\n" if args.markdown else "\n"
    print(separator.join(["\n".join(head(report)), table(report, args.markdown)]))


if __name__ == "__main__":
    main()
