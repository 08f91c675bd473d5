"""`Llama`: threads, open streams, interruptions and errors in between, closing, memory."""

from __future__ import annotations

import copy
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from pyllamacpp import Llama, _core, generation, opening, request
from pyllamacpp.errors import ParameterError, PyllamacppError

PROMPT = "the hello and the well"
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
N_VOCAB = len(tiny.bpe_vocab()["tokenizer.ggml.tokens"])
ENDLESS = {i: -math.inf for i in range(N_VOCAB - 3, N_VOCAB)}  # no control token: nothing ends the answer


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("models") / "bpe.gguf", "llama", "F32", n_ctx=256)


@pytest.fixture
def llm(path: Path) -> Iterator[Llama]:
    with Llama(path, seed=1, verbose=False) as model:
        yield model


def text_of(result: dict[str, Any]) -> str:
    text: str = result["choices"][0]["text"]
    return text


def test_threads_are_served_in_turn(llm: Llama) -> None:
    prompts = ["the hello", "and the well", "in the well of", "hello"]
    want = {p: text_of(llm(p, max_tokens=25)) for p in prompts}
    got: list[tuple[str, str]] = []

    def ask(prompt: str) -> None:
        for _ in range(5):
            chunks = llm(prompt, max_tokens=25, stream=True)
            got.append((prompt, "".join(text_of(c) for c in chunks)))

    threads = [threading.Thread(target=ask, args=(p,)) for p in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(got) == 20 and all(want[prompt] == text for prompt, text in got)


def test_an_open_stream_keeps_its_turn(llm: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "_PATIENCE", 0.05)
    stream = llm(PROMPT, max_tokens=30, stream=True, logit_bias=ENDLESS)
    next(stream)
    done = threading.Event()
    other = threading.Thread(target=lambda: (llm("hello", max_tokens=2), done.set()))
    other.start()
    assert not done.wait(0.1)
    with pytest.raises(ParameterError, match="stream of the same Llama open"):
        llm("hello")
    assert llm.n_tokens > 0 and llm.scores.shape[0] == 1  # reading is allowed
    stream.close()
    assert done.wait(30)
    other.join()
    for chunk in llm(PROMPT, max_tokens=30, stream=True):
        if chunk["choices"][0]["text"]:
            break
    llm("hello", max_tokens=1)  # an abandoned stream gives its turn back


def test_a_stream_is_carried_on_by_another_thread(llm: Llama) -> None:
    """As in a pool of workers: the one that began it may get the next request before the stream has ended."""
    want = text_of(llm(PROMPT, max_tokens=8))
    stream = llm(PROMPT, max_tokens=8, stream=True)
    texts = [text_of(next(stream))]

    def carry_on() -> None:
        time.sleep(0.1)
        texts.extend(map(text_of, stream))

    worker = threading.Thread(target=carry_on, daemon=True)
    worker.start()
    assert text_of(llm("hello", max_tokens=2)) == text_of(llm("hello", max_tokens=2))
    worker.join()
    assert "".join(texts) == want


def test_a_request_inside_a_request(llm: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused at once, whatever other threads there are: this one cannot go on meanwhile."""
    monkeypatch.setattr(generation, "_PATIENCE", 60)
    finished = threading.Event()
    threading.Thread(target=finished.wait, daemon=True).start()
    began = time.monotonic()
    with pytest.raises(ParameterError, match="stream of the same Llama open"):
        llm(PROMPT, logits_processor=lambda tokens, logits: llm("hello"))
    finished.set()
    assert time.monotonic() - began < 30


def test_callbacks_cannot_write_to_what_is_held(llm: Llama) -> None:
    def write(tokens: np.ndarray, logits: np.ndarray) -> np.ndarray:
        tokens[:] = 0
        return logits

    def write_logits(tokens: np.ndarray, logits: np.ndarray) -> bool:
        logits[:] = 0
        return False

    want = text_of(llm(PROMPT, max_tokens=10))
    for callbacks in ({"logits_processor": write}, {"stopping_criteria": write_logits}):
        with pytest.raises(ValueError, match="read-only"):
            llm(PROMPT, max_tokens=3, **callbacks)
    assert text_of(llm(PROMPT, max_tokens=10)) == want


def test_keyboard_interrupt_between_tokens(path: Path, llm: Llama) -> None:
    calls = 0

    def interrupted(tokens: np.ndarray, logits: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == 9:
            os.kill(os.getpid(), signal.SIGINT)
        return logits

    with pytest.raises(KeyboardInterrupt):
        llm(PROMPT, max_tokens=None, logits_processor=interrupted, logit_bias=ENDLESS)
    assert calls in (9, 10)
    with Llama(path, seed=1, verbose=False) as fresh:
        assert text_of(llm(PROMPT, max_tokens=20)) == text_of(fresh(PROMPT, max_tokens=20))


@pytest.mark.parametrize("logits_all", [False, True])
def test_interruption_anywhere_leaves_the_object_whole(path: Path, logits_all: bool) -> None:
    """Interrupt the n-th line run in `Context`, `Turn` and the token loop, for every n."""
    llm = Llama(path, seed=1, n_batch=4, logits_all=logits_all, verbose=False)
    want = text_of(llm(PROMPT, max_tokens=6, logit_bias=ENDLESS))
    rows = llm.scores.copy()
    ours = {code for f in vars(generation.Context).values() if (code := getattr(f, "__code__", None))}
    ours |= {code for f in vars(generation.Turn).values() if (code := getattr(f, "__code__", None))}
    ours |= {f.__code__ for f in (generation.draws, request.whole, request.Run.pieces)}
    for n in range(1000):
        left = n

        def trace(frame: Any, event: str, argument: Any) -> Any:
            nonlocal left
            if frame.f_code not in ours:
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            llm("zz yy xx hello", max_tokens=2)
            ended = True
        except KeyboardInterrupt:
            ended = False
        finally:
            sys.settrace(None)
        assert llm.n_tokens == 0 or llm.scores.shape[0] == (llm.n_tokens if logits_all else 1)
        if ended or n % 5 == 0:
            assert text_of(llm(PROMPT, max_tokens=6, logit_bias=ENDLESS)) == want
            assert np.array_equal(llm.scores, rows)
        if ended:
            break
    assert ended and n > 20
    llm.close()


def test_an_error_in_a_callback_leaves_the_object_whole(llm: Llama) -> None:
    want = text_of(llm(PROMPT, max_tokens=10))

    def fail(tokens: np.ndarray, logits: np.ndarray) -> np.ndarray:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        llm("hello", logits_processor=fail)
    assert text_of(llm(PROMPT, max_tokens=10)) == want


def test_closed_is_closed(path: Path) -> None:
    llm = Llama(path, verbose=False)
    stream = llm(PROMPT, max_tokens=50, stream=True, logit_bias=ENDLESS)
    next(stream)
    llm.close()
    llm.close()
    with pytest.raises(ParameterError, match="closed"):
        list(stream)
    calls = [
        lambda: llm(PROMPT), lambda: llm.create_chat_completion(MESSAGES), lambda: llm.tokenize(b"x"),
        lambda: llm.detokenize([1]), lambda: llm.eval([1]), lambda: llm.scores, llm.sample, llm.reset,
        lambda: llm.n_tokens, llm.n_ctx, llm.n_vocab, llm.n_embd, lambda: llm.generate([1]), llm.token_eos,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ParameterError, match="closed"):
            call()


def test_close_frees_the_model(path: Path) -> None:
    llm = Llama(path, verbose=False)
    llm(PROMPT, max_tokens=3)
    model = weakref.ref(llm._model)
    llm.close()
    assert model() is None
    dropped = Llama(path, verbose=False)
    dropped(PROMPT, max_tokens=3)
    model = weakref.ref(dropped._model)
    del dropped
    assert model() is None


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident size from /proc")
def test_memory_stays_flat(tmp_path: Path) -> None:
    big = tiny.write(tmp_path / "big.gguf", n_layer=24)

    def cycle() -> int:
        with Llama(big, verbose=False) as llm:
            llm(PROMPT, max_tokens=2)
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = max(cycle() for _ in range(5))
    after = min(cycle() for _ in range(20))
    assert after - before < 5 * big.stat().st_size


def test_no_copies(llm: Llama) -> None:
    for copying in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            copying(llm)


def test_the_interpreter_exits_cleanly_with_a_stream_open(path: Path) -> None:
    code = (
        "import sys, pyllamacpp\n"
        "llm = pyllamacpp.Llama(sys.argv[1], verbose=False)\n"
        "stream = llm('hello', max_tokens=None, stream=True)\n"
        "next(stream)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, timeout=60, check=True
    )
    assert done.stderr == b""


@pytest.mark.parametrize("name", ["self", "messages", "tools", "tokenizer", "n_ctx", "special_in_content"])
def test_no_variable_takes_the_place_of_our_own(llm: Llama, name: str) -> None:
    with pytest.raises(ParameterError, match=f"{name} is not the caller's to give"):
        llm.create_chat_completion(MESSAGES, chat_template_kwargs={name: 1})


def test_an_interrupt_does_not_wait_for_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny.write(tmp_path / "m.gguf", "llama", "Q4_0")
    ended = []

    def endless(file: _core.GgufFile, **arguments: object) -> None:
        deadline = time.monotonic() + 20
        try:
            while time.monotonic() < deadline:
                file.tensor("output_norm.weight")
        except PyllamacppError:
            ended.append("stopped")
            raise

    def interrupted(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(opening._core, "Model", endless)
    monkeypatch.setattr(opening.Tokenizer, "from_metadata", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Llama(path, verbose=False)
    assert ended == ["stopped"]
