"""Sessions in every order, from threads, in forked children, at the interpreter's end, in little memory."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tiny
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from numpy.typing import NDArray

from pyllamacpp import _core
from pyllamacpp.errors import MemoryLimitError, ParameterError

IDS = ((np.arange(300) * 37 + 11) % 290).astype(np.int32)
PRELUDE = """
import os, resource, sys, threading, time
import numpy as np
from pyllamacpp import _core, errors
IDS = ((np.arange(300) * 37 + 11) % 290).astype(np.int32)
model = _core.Model(_core.GgufFile(sys.argv[1]), n_threads=3)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("session") / "m.gguf", "gemma3", "Q4_0", n_ctx=512, tied=False)


@pytest.fixture(scope="module")
def model(path: Path) -> _core.Model:
    return _core.Model(_core.GgufFile(path), n_threads=3)


def rows(model: _core.Model, ids: NDArray[np.int32] = IDS) -> NDArray[np.float32]:
    return _core.Session(model, len(ids)).eval(ids, "all")


def run(path: Path, program: str) -> str:
    """What a fresh interpreter prints; it must end well, and soon."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program, str(path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout


class AnyOrder(RuleBasedStateMachine):
    """A session is always as a fresh one that was given its tokens at once."""

    model: _core.Model

    def __init__(self) -> None:
        super().__init__()
        self.session = _core.Session(self.model, 200)
        self.held: list[int] = []
        self.saved: tuple[list[int], NDArray[np.uint8]] = ([], self.session.save())

    @rule(
        ids=st.lists(st.integers(0, 299), min_size=1, max_size=90),
        which=st.sampled_from(["none", "last", "all"]),
    )
    def evaluate(self, ids: list[int], which: str) -> None:
        tokens = np.array(ids, np.int32)
        if len(self.held) + len(ids) > 200:
            with pytest.raises(ParameterError):
                self.session.eval(tokens, which)  # type: ignore[arg-type]
            return
        got = self.session.eval(tokens, which)  # type: ignore[arg-type]
        self.held += ids
        wanted = rows(self.model, np.array(self.held, np.int32))
        assert (got == wanted[len(wanted) - len(got) :]).all()

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        self.held = self.held[: int(share * len(self.held))]
        self.session.truncate(len(self.held))

    @rule()
    def save(self) -> None:
        self.saved = (list(self.held), self.session.save())
        assert self.saved[1].nbytes == self.session.kv_bytes

    @rule(elsewhere=st.booleans())
    def restore(self, elsewhere: bool) -> None:
        self.held, pages = list(self.saved[0]), self.saved[1]
        if elsewhere:
            self.session = _core.Session(self.model, 200)
        self.session.restore(len(self.held), pages)

    @rule(n_tokens=st.sampled_from([-1, 1, 64, 129, 201]), byte=st.integers(0, 255))
    def refused_pages(self, n_tokens: int, byte: int) -> None:
        n_pages = 0 if n_tokens < 0 else 4 if n_tokens == 201 else (n_tokens + 63) // 64
        n_bytes = n_pages * 64 * self.model.kv_bytes_per_token()
        odd = np.full(n_bytes + (n_tokens <= 64), byte if n_tokens > 64 else 0, np.uint8)
        if n_tokens == 129 and byte & 0x7C != 0x7C:
            return  # these are pages
        with pytest.raises(ParameterError):
            self.session.restore(n_tokens, odd)

    @rule(ids=st.lists(st.integers(0, 299), min_size=1, max_size=90))
    def embed(self, ids: list[int]) -> None:
        if len(self.held) + len(ids) <= 200:
            got = self.session.embed(np.array(ids, np.int32))
            self.held += ids
            whole = _core.Session(self.model, 200).embed(np.array(self.held, np.int32))
            assert (got == whole[-len(ids) :]).all()

    @rule(bad=st.sampled_from([[], [-1], [300], [5, 2**31 - 1]]))
    def refused(self, bad: list[int]) -> None:
        with pytest.raises(ParameterError):
            self.session.eval(np.array(bad, np.int32))
        with pytest.raises(ParameterError):
            self.session.truncate(len(self.held) + 1)

    @invariant()
    def counts(self) -> None:
        assert self.session.n_tokens == len(self.held)


def test_any_order(model: _core.Model) -> None:
    AnyOrder.model = model
    case = AnyOrder.TestCase
    case.settings = settings(max_examples=20, stateful_step_count=14, deadline=None, derandomize=True)
    case("runTest").runTest()


def test_threads_share_a_model_and_a_session(model: _core.Model) -> None:
    wanted = rows(model)
    shared = _core.Session(model, 4 * 5 * 50)
    equal: list[bool] = []

    def work() -> None:
        for _ in range(5):
            equal.append(bool((rows(model) == wanted).all()))
            shared.eval(IDS[:50])
            assert shared.kv_bytes > 0

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert equal == [True] * 20 and shared.n_tokens == 4 * 5 * 50


def test_a_session_outlives_its_model(path: Path, model: _core.Model) -> None:
    session = _core.Session(_core.Model(_core.GgufFile(path)), 40)
    gc.collect()
    assert (session.eval(IDS[:40], "all") == rows(model, IDS[:40])).all()


def test_idle_threads_use_no_cpu(model: _core.Model) -> None:
    rows(model)
    time.sleep(0.05)  # longer than helpers watch for more work
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.03


def test_logits_that_cannot_fit_are_refused(model: _core.Model) -> None:
    with pytest.raises(MemoryLimitError, match="MiB"):
        _core.Session(model, 1 << 30).eval(np.zeros(1 << 29, np.int32), "all")


@pytest.mark.parametrize(("type_k", "type_v"), [("f16", "f16"), ("f32", "i16"), ("q8_0", "bf16")])
def test_kv_bytes_are_as_planned(path: Path, model: _core.Model, type_k: str, type_v: str) -> None:
    session = _core.Session(model, 512, type_k=type_k, type_v=type_v)
    assert session.kv_types == (type_k, type_v)
    session.eval(np.resize(IDS, 512), "none")
    per_token = model.kv_bytes_per_token(type_k=type_k, type_v=type_v)
    plan = _core.plan_context(_core.GgufFile(path), type_k=type_k, type_v=type_v)
    assert session.kv_bytes == 512 * per_token == 512 * plan["kv_bytes_per_token"]


def test_forked_child_computes_the_same(path: Path) -> None:
    """Its pool has no threads left; more threads of its own must not be taken for them."""
    program = """
wanted = _core.Session(model, 300).eval(IDS, "all")
child = os.fork()
if child == 0:
    for _ in range(4):
        threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
    session = _core.Session(model, 300)
    same = (session.eval(IDS, "all") == wanted).all()
    del session, model
    os._exit(0 if same else 1)
status = os.waitpid(child, 0)[1]
print(os.waitstatus_to_exitcode(status), (_core.Session(model, 300).eval(IDS, "all") == wanted).all())
"""
    assert run(path, program) == "0 True\n"


def test_child_forked_while_the_model_computes(path: Path) -> None:
    program = """
session = _core.Session(model, 1 << 20)
stop = False
def work():
    while not stop:
        session.eval(IDS, "none")
thread = threading.Thread(target=work)
thread.start()
seen = set()
for _ in range(20):
    child = os.fork()
    if child == 0:
        try:
            _core.Session(model, 9).eval(IDS[:9])
        except errors.ParameterError as error:
            os._exit(0 if "fork" in str(error) else 3)
        os._exit(0)  # forked between two steps
    seen.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop = True
thread.join()
print(seen)
"""
    assert run(path, program) == "{0}\n"


def test_interpreter_ends_while_threads_compute(path: Path) -> None:
    program = """
def work():
    session = _core.Session(model, 40)
    while True:
        session.truncate(0)
        session.eval(IDS[:40])
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
print("end")
"""
    assert run(path, program) == "end\n"


def test_little_memory_is_an_error_and_undone(path: Path) -> None:
    program = """
used = int(open("/proc/self/statm").read().split()[0]) * 4096
def limit(mib):
    resource.setrlimit(resource.RLIMIT_AS, (used + (mib << 20) if mib else -1, -1))
session = _core.Session(model, 4096)
session.eval(IDS)
for mib in range(1, 100, 7):
    limit(mib)
    try:
        _core.Model(_core.GgufFile(sys.argv[1]), n_threads=8)
    except (errors.MemoryLimitError, errors.ParameterError):  # the latter: a thread's stack does not fit
        pass
    try:
        session.eval(np.resize(IDS, 3000), "all")
        session.truncate(300)
    except errors.MemoryLimitError:
        assert session.n_tokens == 300
limit(0)
fresh = _core.Session(model, 400)
fresh.eval(IDS)
print((session.eval(IDS[:9]) == fresh.eval(IDS[:9])).all())
"""
    assert run(path, program) == "True\n"


def test_opening_and_closing_keeps_memory_flat(path: Path) -> None:
    program = """
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
for i in range(50):
    _core.Session(_core.Model(_core.GgufFile(sys.argv[1]), n_threads=2), 300).eval(IDS)
    if i == 9:
        before = resident()
print(resident() - before < 4 << 20, len(os.listdir("/proc/self/fd")) < 12)
"""
    assert run(path, program) == "True True\n"
