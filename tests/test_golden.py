"""Logits of tiny random Hugging Face models: every architecture and rope the engine claims.

Made by tests/make_golden.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import reference_forward

from pyllamacpp import _core

TESTS = Path(__file__).resolve().parent
CASES = sorted(path.stem for path in (TESTS / "golden").glob("*.npz"))
REFERENCE_CASES = [
    case for case in CASES if case.split("_")[0] in ("llama", "mistral", "qwen2", "qwen3", "gemma3")
]


def golden(case: str) -> tuple[str, dict[str, np.ndarray]]:
    with np.load(TESTS / "golden" / f"{case}.npz") as arrays:
        return str(TESTS / "fixtures" / f"{case}.gguf"), dict(arrays)


def test_every_architecture_has_a_case() -> None:
    assert len(CASES) == 38
    files = [_core.GgufFile(golden(case)[0]) for case in CASES]
    assert {file.metadata["general.architecture"] for file in files} == set(_core.architectures())


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


# What a case is there to prove -> the case without it: keys to change or remove, tensors to scale or remove.
FEATURES: dict[str, tuple[str, dict[str, Any], dict[str, float | None]]] = {
    "layers without rope": ("smollm3", {"general.architecture": "llama"}, {}),
    "attention softcap": ("gemma2", {"attn_logit_softcapping": None}, {}),
    "logit softcap": ("gemma2", {"final_logit_softcapping": None}, {}),
    "window of every other layer": ("gemma2", {"attention.sliding_window": None}, {}),
    "no window between": ("gemma2", {"attention.sliding_window_pattern": 4}, {}),
    "window of all layers": ("phi3", {"attention.sliding_window": None}, {}),
    "window beside LayerNorm": ("starcoder2", {"attention.sliding_window": None}, {}),
    "longrope's magnitude": ("phi3_short", {"rope.scaling.attn_factor": None}, {}),
    "longrope's short factors": ("phi3_short", {}, {"rope_factors_short": 2}),
    "longrope's long factors": ("phi3_long", {"rope.scaling.original_context_length": 512}, {}),
    "embedding scale": ("granite", {"embedding_scale": None}, {}),
    "residual scale": ("granite", {"residual_scale": None}, {}),
    "attention scale": ("granite", {"attention.scale": None}, {}),
    "logit scale, divided by": ("granite", {"logit_scale": 1 / 0.6}, {}),
    "logit scale, multiplied by": ("command-r", {"logit_scale": None}, {}),
    "each head's own norm": ("command-r_qk-norm", {}, {"blk.0.attn_q_norm": None}),
    "each head's own LayerNorm": ("stablelm_parallel", {}, {"blk.0.attn_k_norm": None}),
    "norm of all heads": ("olmo2", {}, {"blk.0.attn_q_norm": 2}),
    "windows said layer by layer": ("olmo3", {"attention.sliding_window_pattern": None}, {}),
    "yarn outside the windows alone": ("olmo3", {"rope.scaling.type": "none"}, {}),
    "partial rope": ("glm4", {"rope.dimension_count": 8}, {}),
    "norms after the branches": ("glm4", {}, {"blk.0.post_ffw_norm": 2}),
    "parallel residual": ("gptneox", {"use_parallel_residual": False}, {}),
    "sequential residual": ("gptneox_sequential", {"use_parallel_residual": True}, {}),
    "LayerNorm's bias": ("gptneox", {}, {"blk.0.attn_norm.bias": 0}),
    "fused projections' bias": ("gptneox", {}, {"blk.0.attn_qkv.bias": 0}),
    "the two norms of falcon": ("falcon_two-norms", {}, {"blk.0.attn_norm_2.weight": 2}),
    "learned positions": ("gpt2", {}, {"position_embd": 0}),
    "the second expert": ("mixtral", {"expert_used_count": 1}, {}),
    "expert weights as they are": ("qwen2moe", {"expert_weights_norm": True}, {}),
    "expert weights that add up to one": ("qwen3moe", {"expert_weights_norm": False}, {}),
    "the shared expert": ("qwen2moe", {}, {"blk.0.ffn_up_shexp": 0}),
    "the shared expert's gate": ("qwen2moe", {}, {"blk.0.ffn_gate_inp_shexp": 0}),
    "attention sinks": ("gpt-oss", {}, {"blk.0.attn_sinks": 3}),
    "the router's bias": ("gpt-oss", {}, {"blk.0.ffn_gate_inp.bias": 0}),
    "the experts' biases": ("gpt-oss", {}, {"blk.0.ffn_down_exps.bias": 0}),
    "gpt-oss's window": ("gpt-oss", {"attention.sliding_window": None}, {}),
}


def without(path: str, keys: dict[str, Any], tensors: dict[str, float | None], to: Path) -> Path:
    """The GGUF file with other keys (below the architecture unless they say `general.`) and with tensors, by
    the start of their names, multiplied by a number; None: without."""
    reader = gguf.GGUFReader(path)
    values = {name: f.contents() for name, f in reader.fields.items() if not name.startswith("GGUF.")}
    old = values["general.architecture"]
    values |= {key if key.startswith("general.") else f"{old}.{key}": value for key, value in keys.items()}
    new = values["general.architecture"]
    writer = gguf.GGUFWriter(to, new)
    for name, value in values.items():
        if value is not None and name != "general.architecture":
            writer.add_key_value(
                name.replace(f"{old}.", f"{new}."), value, gguf.GGUFValueType.get_type(value)
            )
    for tensor in reader.tensors:
        factors = [factor for start, factor in tensors.items() if tensor.name.startswith(start)]
        if factors != [None]:
            writer.add_tensor(tensor.name, tensor.data * np.float32(factors[0]) if factors else tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return to


@pytest.mark.parametrize("feature", FEATURES)
def test_a_missing_feature_would_be_seen(feature: str, tmp_path: Path) -> None:
    case, keys, tensors = FEATURES[feature]
    path, want = golden(case)
    model = _core.Model(_core.GgufFile(str(without(path, keys, tensors, tmp_path / "m.gguf"))))
    got = _core.Session(model, len(want["tokens"])).eval(want["tokens"], logits="all")
    assert np.abs(got[want["rows"]] - want["logits"]).max() > 0.01


@pytest.mark.parametrize("case", REFERENCE_CASES)
def test_reference_matches_hugging_face(case: str) -> None:
    path, want = golden(case)
    got = reference_forward.forward(Path(path), want["tokens"])[want["rows"]]
    assert np.abs(got - want["logits"]).max() <= 1e-5
