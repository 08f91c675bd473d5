"""Memory stays flat: over models opened and closed, requests, errors and abandoned streams."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tiny

PRELUDE = """
import gc, os, sys
from pyllamacpp import Llama, LlamaRAMCache, errors
def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4096
path = sys.argv[1]
"""


def grown(program: str, path: Path) -> list[int]:
    """KiB by which the resident memory of a fresh process has grown, as it prints."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program, str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [int(line) >> 10 for line in done.stdout.split()]


def test_fifty_models(tmp_path: Path) -> None:
    """A model of 6 MiB: one that stayed would show."""
    path = tiny.write(tmp_path / "m.gguf", "llama", "Q8_0", formats={"token_embd.weight": "Q4_K"}, n_layer=8)
    assert path.stat().st_size > 4 << 20
    program = """
def cycle(i):
    llm = Llama(path, n_ctx=256, verbose=False, logits_all=i % 2 == 0, n_threads=2)
    llm("hello", max_tokens=4)
    if i % 5 == 0:  # an error in the middle
        try:
            llm([1] * 500)
        except errors.ContextOverflowError:
            pass
        try:
            llm("hello", max_tokens=9, logits_processor=lambda tokens, logits: 1 / 0)
        except ZeroDivisionError:
            pass
    if i % 5 == 1:  # a stream nobody reads to its end
        stream = llm("hello", max_tokens=50, stream=True)
        next(stream)
        if i % 2:
            stream.close()
        del stream
    if i % 5 == 2:
        state = llm.save_state()
        llm.load_state(state)
        llm.embed("hello and the well")
    if i % 5 == 3:
        llm.set_cache(LlamaRAMCache())
        llm("the well", max_tokens=4)
    if i % 5 == 4:  # never closed: left to the collector
        return
    llm.close()
for i in range(50):
    cycle(i)
    if i == 14:
        before = resident()
print(resident() - before)
print(len(os.listdir("/proc/self/fd")) << 10)
print(len(os.listdir("/proc/self/task")) << 10)
"""
    kib, n_files, n_threads = grown(program, path)
    print(f"{kib} KiB in 35 cycles")
    assert kib < 4096 and n_files < 12 and n_threads < 8


def test_failed_openings(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", "llama", "Q8_0", n_layer=16)
    program = """
for i in range(60):
    for wrong in ({"chat_format": "x"}, {"n_ctx": 2**30}, {"kv_overrides": {"llama.x": 1}}, {"pre": "x"}):
        try:
            Llama(path, verbose=False, **wrong)
            raise SystemExit("not refused")
        except errors.PyllamacppError:
            pass
    if i == 9:
        before = resident()
print(resident() - before)
"""
    assert grown(program, path)[0] < 4096


def test_a_thousand_requests(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", n_ctx=256)
    program = """
llm = Llama(path, verbose=False)
messages = [{"role": "user", "content": "hello"}]
for i in range(1000):
    kind = i % 5
    if kind == 0:
        llm("the well " + "of " * (i % 40), max_tokens=3, logprobs=2)
    elif kind == 1:
        llm.create_chat_completion(messages, max_tokens=3)
    elif kind == 2:
        next(llm("hello", max_tokens=50, stream=True))
    elif kind == 3:
        llm.embed(["hello", "well"])
    else:
        try:
            llm([5] * 300)
        except errors.ContextOverflowError:
            pass
    if i == 299:
        before = resident()
print(resident() - before)
"""
    kib = grown(program, path)[0]
    print(f"{kib} KiB in 700 requests")
    assert kib < 2048
