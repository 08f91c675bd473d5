"""Logits of tiny random Hugging Face models: every architecture and rope the engine claims.

Made by tests/make_golden.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import reference_forward

from pyllamacpp import _core

TESTS = Path(__file__).resolve().parent
CASES = sorted(path.stem for path in (TESTS / "golden").glob("*.npz"))


def golden(case: str) -> tuple[str, dict[str, np.ndarray]]:
    with np.load(TESTS / "golden" / f"{case}.npz") as arrays:
        return str(TESTS / "fixtures" / f"{case}.gguf"), dict(arrays)


def test_every_architecture_has_a_case() -> None:
    assert len(CASES) == 14
    assert {case.split("_")[0] for case in CASES} == {"llama", "mistral", "qwen2", "qwen3", "gemma3"}


@pytest.mark.parametrize("case", CASES)
def test_engine_matches_hugging_face(case: str) -> None:
    path, want = golden(case)
    session = _core.Session(_core.Model(_core.GgufFile(path)), len(want["tokens"]))
    got = session.eval(want["tokens"], logits="all")
    assert got.shape == (len(want["tokens"]), want["logits"].shape[1])
    difference = np.abs(got[want["rows"]] - want["logits"]).max(axis=1)
    print(f"{case}: max |difference| {difference.max():.1e}")
    # Each feature left out (a bias, a norm, a rope parameter, the window) moves these logits by 0.04 to 1.
    worst = dict(zip(want["rows"].tolist(), difference.round(6).tolist(), strict=True))
    assert difference.max() <= 1e-3, f"by position: {worst}"


@pytest.mark.parametrize("case", CASES)
def test_reference_matches_hugging_face(case: str) -> None:
    path, want = golden(case)
    got = reference_forward.forward(Path(path), want["tokens"])[want["rows"]]
    assert np.abs(got - want["logits"]).max() <= 1e-5
