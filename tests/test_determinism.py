"""Promise 1: logits are the same bits however a prompt is cut, whatever ran before, on any number of threads
and on every level that has a fused multiply-add."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tiny

from pyllamacpp import _core

FUSED = [level for level in _core.levels() if level != "baseline"]
CASES = [
    ("llama", "F32"),
    ("llama", "Q4_K"),
    ("qwen2", "Q4_1"),
    ("qwen3", "Q6_K"),
    ("gemma3", "Q5_0"),
    ("gemma3", "F16"),
    ("gemma2", "Q8_0"),
    ("phi3", "Q4_0"),
    ("smollm3", "Q4_K"),
    ("olmo2", "F32"),
    ("granite", "Q5_1"),
    ("starcoder2", "F32"),
    ("command-r", "Q4_K"),
    ("glm4", "Q4_0"),
    ("stablelm", "F32"),
    ("falcon", "Q4_0"),
    ("gpt2", "Q8_0"),
    ("gptneox", "F16"),
    ("mixtral", "F32"),
    ("qwen2moe", "Q4_K"),
    ("qwen3moe", "Q4_0"),
    ("granitemoe", "Q8_0"),
    ("gpt-oss", "MXFP4"),
]
N_TOKENS = 300  # past the attention's chunk of 256 and several pages

Logits = np.ndarray


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def model_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    arch, fmt = request.param
    return tiny.write(tmp_path_factory.mktemp("tiny") / "model.gguf", arch, fmt, n_ctx=512)


@cache
def model(path: Path, n_threads: int = 1, isa: str = "") -> _core.Model:
    return _core.Model(_core.GgufFile(str(path)), n_threads=n_threads, isa=isa)


def prompt(m: _core.Model, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, m.n_vocab, N_TOKENS, dtype=np.int32)


def logits(m: _core.Model, chunk: int = N_TOKENS, *, before: bool = False) -> Logits:
    """(N_TOKENS, n_vocab), the prompt given `chunk` tokens at a time."""
    session = _core.Session(m, 512)
    if before:  # unrelated text in the same pages, longer than the prompt
        session.eval(prompt(m, seed=2))
        session.eval(prompt(m, seed=3)[:100])
        session.truncate(0)
    tokens = prompt(m)
    return np.concatenate([session.eval(tokens[i : i + chunk], "all") for i in range(0, N_TOKENS, chunk)])


@pytest.mark.parametrize("chunk", [1, 7, 64, 100])
def test_chunks(model_path: Path, chunk: int) -> None:
    assert np.array_equal(logits(model(model_path), chunk), logits(model(model_path)))


def test_threads(model_path: Path) -> None:
    want = logits(model(model_path))
    for n_threads in (2, 3):
        several = model(model_path, n_threads)
        assert np.array_equal(logits(several), want)
        assert np.array_equal(logits(several, 7), want)


def test_unrelated_text_before(model_path: Path) -> None:
    assert np.array_equal(logits(model(model_path), before=True), logits(model(model_path)))


def test_a_kept_prefix(model_path: Path) -> None:
    m = model(model_path)
    session = _core.Session(m, 512)
    tokens, other = prompt(m), prompt(m, seed=4)
    session.eval(np.concatenate([tokens[:131], other[:90]]))
    session.truncate(131)
    assert np.array_equal(session.eval(tokens[131:], "all"), logits(m)[131:])


@pytest.mark.parametrize("kv_type", _core.kv_types())
def test_kv_types(tmp_path: Path, kv_type: str) -> None:
    """Chunks, threads and levels, with keys and values of every type; layers with and without a window."""
    path = tiny.write(tmp_path / "m.gguf", "gemma3", "Q8_0", n_ctx=512)
    rows = []
    for isa in FUSED or _core.levels():
        for chunk, n_threads in ((1, 1), (64, 2), (N_TOKENS, 3)):
            m = model(path, n_threads, isa)
            session = _core.Session(m, 512, type_k=kv_type, type_v=kv_type)
            parts = np.array_split(prompt(m), range(chunk, N_TOKENS, chunk))
            rows.append(np.concatenate([session.eval(part, "all") for part in parts]))
    assert all(np.array_equal(one, rows[0]) for one in rows)
    assert np.isfinite(rows[0]).all()
    assert np.array_equal(rows[0], logits(model(path))) == (kv_type == "f16")


@pytest.mark.skipif(len(FUSED) < 2, reason="this CPU has one level with fused multiply-add")
def test_levels(model_path: Path) -> None:
    want = logits(model(model_path, isa=FUSED[0]), 100)
    for level in FUSED[1:]:
        assert np.array_equal(logits(model(model_path, isa=level), 100), want), level


def test_logits_are_worth_comparing(model_path: Path) -> None:
    rows = logits(model(model_path))
    assert np.isfinite(rows).all() and rows.std() > 0.1
    assert len({row.tobytes() for row in rows}) == N_TOKENS
