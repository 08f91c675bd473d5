"""Threads: one model used by several, and more of them than the machine has or gives."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from pyllamacpp import _core

MODEL = Path(__file__).parent / "fixtures" / "llama.gguf"


def tokens(seed: int, n_vocab: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, n_vocab, 50, dtype=np.int32)


def test_sessions_of_one_model_in_several_threads() -> None:
    model = _core.Model(_core.GgufFile(str(MODEL)), n_threads=2)
    prompts = [tokens(seed, model.n_vocab) for seed in range(3)]
    alone = [_core.Session(model, 64).eval(p, "all") for p in prompts]
    wrong: list[int] = []

    def work(i: int) -> None:
        session = _core.Session(model, 64)
        for _ in range(100):
            session.truncate(0)
            if not (session.eval(prompts[i], "all") == alone[i]).all():
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(prompts))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.parametrize("n_threads", [1, 3, 16])
def test_more_threads_than_cpus(n_threads: int) -> None:
    file = _core.GgufFile(str(MODEL))
    one, many = (_core.Model(file, n_threads=n) for n in (1, n_threads))
    prompt = tokens(0, one.n_vocab)
    assert (_core.Session(one, 64).eval(prompt, "all") == _core.Session(many, 64).eval(prompt, "all")).all()


def test_more_threads_than_the_system_starts() -> None:
    code = f"""
import resource
from pyllamacpp import _core, errors
file = _core.GgufFile({str(MODEL)!r})
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))  # stacks take address space
try:
    _core.Model(file, n_threads=1000)
except errors.PyllamacppError as e:
    print(type(e).__name__, e.hint)
assert _core.Model(file, n_threads=2).n_threads == 2
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "fewer threads" in done.stdout


def test_a_model_works_in_a_forked_process() -> None:
    code = f"""
import os
import numpy as np
from pyllamacpp import _core
model = _core.Model(_core.GgufFile({str(MODEL)!r}), n_threads=2)
session = _core.Session(model, 64)
prompt = np.arange(40, dtype=np.int32)
before = session.eval(prompt, "all")
child = os.fork()
if child == 0:  # the helper threads stayed with the parent
    session.truncate(0)
    same = (session.eval(prompt, "all") == before).all()
    del session, model
    os._exit(0 if same else 3)
assert os.waitpid(child, 0)[1] == 0
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
