"""The table of architectures: what README says of it, and what a file that does not fit it is told."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from pyllamacpp import _core, errors

README = Path(__file__).resolve().parents[1] / "README.md"
TABLE = re.compile(r"(?<=\| architecture \(`general\.architecture`\) \| models \|\n\|---\|---\|\n)(\|.*\n)+")


def table() -> str:
    return "".join(f"| `{name}` | {models} |\n" for name, models in _core.architectures().items())


def load(path: Path) -> _core.Model:
    return _core.Model(_core.GgufFile(str(path)), n_threads=1)


def test_readme_lists_them() -> None:
    found = TABLE.search(README.read_text())
    assert found and found.group() == table(), f"run python {Path(__file__).name} with PYTHONPATH=."


def test_all_have_a_tiny_model() -> None:
    assert {row.name or name for name, row in tiny.ARCHS.items()} == set(_core.architectures())


def test_an_unknown_one_is_told_all_that_are_known(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", metadata={"general.architecture": "mamba"})
    with pytest.raises(errors.UnsupportedModelError, match="'mamba' is not supported") as caught:
        load(path)
    for name in _core.architectures():
        assert re.search(rf"\b{name}\b", str(caught.value) + (caught.value.hint or "")), name


REFUSED: dict[str, tuple[str, dict[str, Any], type[Exception], str]] = {
    "heads differ by layer": (
        "llama",
        {"metadata": {"llama.attention.head_count": [4, 2]}},
        errors.UnsupportedModelError,
        "head_count differs from layer to layer",
    ),
    "feed-forwards differ by layer": (
        "llama",
        {"metadata": {"llama.feed_forward_length": [128, 64]}},
        errors.UnsupportedModelError,
        "feed_forward_length differs from layer to layer",
    ),
    "a tensor without a place": (
        "llama",
        {"extra": {"blk.1.ssm_a": np.ones(3, np.float32)}},
        errors.UnsupportedModelError,
        "blk.1.ssm_a has no use",
    ),
    "no norm before the feed-forward": (
        "llama",
        {"drop": ["blk.1.ffn_norm.weight"]},
        errors.MissingTensorError,
        "blk.1.ffn_norm.weight",
    ),
    "experts in the metadata alone": (
        "llama",
        {"metadata": {"llama.expert_count": 4, "llama.expert_used_count": 2}},
        errors.MissingTensorError,
        "speaks of 4 experts",
    ),
    "no gate": ("llama", {"drop": ["blk.0.ffn_gate.weight"]}, errors.MissingTensorError, "blk.0.ffn_gate"),
    "no post norm": (
        "olmo2",
        {"drop": ["blk.0.post_ffw_norm.weight"]},
        errors.MissingTensorError,
        "blk.0.post_ffw_norm",
    ),
    "a router without experts": (
        "mixtral",
        {"metadata": {"llama.expert_count": None}},
        errors.MissingTensorError,
        "blk.0.ffn_up.weight",
    ),
    "more experts used than there are": (
        "mixtral",
        {"metadata": {"llama.expert_used_count": 6}},
        errors.ModelFileError,
        "expert_used_count",
    ),
    "a number of experts that contradicts the tensors": (
        "mixtral",
        {"metadata": {"llama.expert_count": 4}},
        errors.TensorShapeError,
        "blk.0.ffn_gate_inp.weight: expected 4 x 64 from the metadata, the file has 5 x 64",
    ),
    "experts chosen by sigmoid": (
        "mixtral",
        {"metadata": {"llama.expert_gating_func": 2}},
        errors.UnsupportedModelError,
        "chooses its experts in a way",
    ),
    "experts in groups": (
        "mixtral",
        {"metadata": {"llama.expert_group_count": 2}},
        errors.UnsupportedModelError,
        "chooses its experts in a way",
    ),
    "fused projections of a wrong size": (
        "phi3",
        {"reshape": {"blk.0.attn_qkv.weight": (96, 64)}},
        errors.TensorShapeError,
        "blk.0.attn_qkv.weight: expected 128 x 64",
    ),
    "longrope without its short factors": (
        "phi3",
        {"extra": {"rope_factors_long.weight": np.ones(8, np.float32)}},
        errors.MissingTensorError,
        "rope_factors_short",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tmp_path: Path, case: str) -> None:
    arch, changes, error, message = REFUSED[case]
    with pytest.raises(error, match=re.escape(message)):
        load(tiny.write(tmp_path / "m.gguf", arch, **changes))


def test_no_position_past_the_learned_ones(tmp_path: Path) -> None:
    model = load(tiny.write(tmp_path / "m.gguf", "gpt2"))
    _core.Session(model, tiny.N_POSITIONS)
    with pytest.raises(errors.ContextOverflowError, match="512 positions"):
        _core.Session(model, tiny.N_POSITIONS + 1)


@pytest.mark.parametrize("arch", ["mixtral", "qwen2moe", "gpt-oss"])
def test_equal_experts_are_chosen_by_id(tmp_path: Path, arch: str) -> None:
    """With a router of zeros all are equal: the first are used, and the last one's weights do not matter."""
    name = tiny.ARCHS[arch].name or arch
    n = tiny.ARCHS[arch].n_expert

    def logits(seed: int, used: int) -> np.ndarray:
        path = tmp_path / f"{seed}.gguf"
        tiny.write(
            path, arch, metadata={f"{name}.expert_used_count": used}, edit=zero_router_and_reseed(seed, n)
        )
        return _core.Session(load(path), 64).eval(np.arange(20, dtype=np.int32), "all")

    assert np.array_equal(logits(1, n - 1), logits(2, n - 1))
    assert not np.array_equal(logits(1, n), logits(2, n))


@pytest.mark.parametrize("layout", ["a tensor for each", "gate and up in one"])
def test_experts_in_other_layouts(tmp_path: Path, layout: str) -> None:
    """Mixtral's files of 2023 have a tensor for each expert, some newer ones gate and up in one tensor."""
    stacks: dict[str, np.ndarray] = {}

    def keep(name: str, values: np.ndarray) -> np.ndarray:
        if "_exps.weight" in name:
            stacks[name.removesuffix("_exps.weight")] = values
        return values

    usual = tiny.write(tmp_path / "usual.gguf", "mixtral", edit=keep)
    if layout == "a tensor for each":
        gone = list(stacks)
        extra = {f"{name}.{i}.weight": m for name, stack in stacks.items() for i, m in enumerate(stack)}
    else:
        gone = [name for name in stacks if not name.endswith("ffn_down")]
        pairs = [(name, name.replace("ffn_gate", "ffn_up")) for name in gone if name.endswith("ffn_gate")]
        extra = {
            f"{gate}_up_exps.weight": np.concatenate([stacks[gate], stacks[up]], axis=1) for gate, up in pairs
        }
    drop = [f"{name}_exps.weight" for name in gone]
    other = tiny.write(tmp_path / "other.gguf", "mixtral", drop=drop, extra=extra)
    tokens = np.arange(20, dtype=np.int32)
    want, got = (_core.Session(load(path), 64).eval(tokens, "all") for path in (usual, other))
    assert np.array_equal(got, want)
    if layout == "a tensor for each":
        del extra["blk.1.ffn_up.3.weight"]
        with pytest.raises(errors.MissingTensorError, match=r"blk\.1\.ffn_up\.3\.weight"):
            load(tiny.write(tmp_path / "less.gguf", "mixtral", drop=drop, extra=extra))


def zero_router_and_reseed(seed: int, n_expert: int) -> Callable[[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)

    def edit(name: str, values: np.ndarray) -> np.ndarray:
        if ".ffn_gate_inp." in name:
            return np.zeros_like(values)
        if "_exps.weight" in name:
            values = values.copy()
            values[n_expert - 1] = rng.standard_normal(values.shape[1:])
        return values

    return edit


if __name__ == "__main__":
    README.write_text(TABLE.sub(table(), README.read_text()))
    sys.exit(0)
