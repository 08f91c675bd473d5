"""A model file that is written to while it is open: an error, no crash and no other model's answer."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny

from pyllamacpp import _core
from pyllamacpp.errors import ModelFileError

IDS = ((np.arange(40) * 37 + 11) % 290).astype(np.int32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.gguf"


def uses_of_the_file(file: _core.GgufFile) -> list[Callable[[], object]]:
    return [
        lambda: _core.Model(file),
        lambda: file.tensor("output_norm.weight"),
        lambda: _core.plan_context(file),
    ]


@pytest.mark.parametrize("tied", [True, False])
def test_a_file_cut_short_while_open(path: Path, tied: bool) -> None:
    whole = tiny.write(path, tied=tied).read_bytes()
    file = _core.GgufFile(path)
    session = _core.Session(_core.Model(file), 16)
    plain = session.eval(IDS[:8])
    session.truncate(4)
    for n in (0, 4096, len(whole) - 1):
        path.write_bytes(whole)
        os.truncate(path, n)
        for use in uses_of_the_file(file):
            with pytest.raises(ModelFileError, match="has become shorter since it was opened"):
                use()
        if tied:  # all weights are in memory: the file is not read any more
            assert (session.eval(IDS[4:8]) == plain).all()
            session.truncate(4)
        else:  # embeddings are looked up in it
            with pytest.raises(ModelFileError, match="shorter"):
                session.eval(IDS[4:8])
        assert session.n_tokens == 4
    assert file.metadata["general.architecture"] == "llama"  # read when it was opened


@pytest.mark.parametrize("same_bytes", [True, False])
def test_a_file_written_over_at_the_same_size(path: Path, same_bytes: bool) -> None:
    whole = tiny.write(path, tied=False).read_bytes()
    file = _core.GgufFile(path)
    session = _core.Session(_core.Model(file), 16)
    session.eval(IDS[:4])
    old = path.stat()
    path.write_bytes(whole if same_bytes else whole[:-4096] + bytes(4096))
    for use in [*uses_of_the_file(file), lambda: session.eval(IDS[4:8])]:
        with pytest.raises(ModelFileError, match="has been written to since it was opened"):
            use()
    assert session.n_tokens == 4
    os.utime(
        path, ns=(old.st_atime_ns, old.st_mtime_ns)
    )  # as archivers do: no longer to be told from the old one
    _core.plan_context(file)


def test_a_file_that_is_replaced_stays_as_it_was(path: Path, tmp_path: Path) -> None:
    plain = _core.Session(_core.Model(_core.GgufFile(tiny.write(path, tied=False))), 16).eval(IDS[:8])
    file = _core.GgufFile(path)
    session = _core.Session(_core.Model(file), 16)
    os.replace(tiny.write(tmp_path / "new.gguf", "qwen2"), path)
    assert (session.eval(IDS[:8]) == plain).all()
    path.unlink()
    session.truncate(0)
    assert (session.eval(IDS[:8]) == plain).all()
    assert (_core.Session(_core.Model(file), 16).eval(IDS[:8]) == plain).all()


LOAD_WHILE_CUT = """
import os, sys, threading
from pyllamacpp import _core, errors
path, size = sys.argv[1], os.path.getsize(sys.argv[1])
whole = open(path, "rb").read()
stop, counts = threading.Event(), {"loaded": 0, "refused": 0}

def cut():
    n = 0
    while not stop.is_set():
        n = (n * 48271 + 11) % size
        os.truncate(path, n)
        with open(path, "r+b") as file:
            file.write(whole)

thread = threading.Thread(target=cut)
thread.start()
for _ in range(150):
    try:
        file = _core.GgufFile(path)
        session = _core.Session(_core.Model(file, n_threads=2), 8)
        for position in range(8):
            session.eval([position])
        file.metadata, [file.tensor(info.name) for info in file.tensors]
        counts["loaded"] += 1
    except errors.ModelFileError:
        counts["refused"] += 1
stop.set()
thread.join()
print(counts["refused"])
"""


def test_a_file_that_is_cut_and_restored_all_the_time(path: Path) -> None:
    tiny.write(path, "llama", "Q4_0", tied=False)
    command = [sys.executable, "-c", LOAD_WHILE_CUT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 0


def test_a_shard_written_to(tmp_path: Path) -> None:
    tiny.write(tmp_path / "m.gguf", "llama", "Q8_0", tensors_per_shard=8)
    first, second, _ = sorted(tmp_path.glob("m-*.gguf"))
    file = _core.GgufFile(first)
    os.truncate(second, second.stat().st_size - 1)
    with pytest.raises(ModelFileError, match=r"m-00002-of-00003.*shorter"):
        _core.Model(file)


def test_threads_read_one_file_at_once(path: Path) -> None:
    file = _core.GgufFile(tiny.write(path, tied=False))
    expected = _core.Session(_core.Model(file), 40).eval(IDS)
    equal: list[bool] = []

    def work() -> None:
        for _ in range(4):
            equal.append(
                bool((_core.Session(_core.Model(file, n_threads=2), 40).eval(IDS) == expected).all())
            )

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert equal == [True] * 12


LOAD_ONCE = """
import resource, sys
from pyllamacpp import _core
import numpy
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = _core.Model(_core.GgufFile(sys.argv[1]), n_threads=2)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, model.weight_bytes >> 10)
"""


def test_weights_are_never_in_memory_twice(path: Path) -> None:
    shape = tiny.Shape(n_embd=512, n_layer=4, n_ff=2048, n_head=8, n_head_kv=8, head_dim=64)
    tiny.write(path, "llama", "F16", shape=shape, vocab=None)
    command = [sys.executable, "-c", LOAD_ONCE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    grown, weights = map(int, done.stdout.split())
    assert weights > 30 << 10
    assert grown < 1.1 * weights + (8 << 10)
