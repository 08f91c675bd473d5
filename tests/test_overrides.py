"""Metadata in place of the file's: kv_overrides, rope_*, yarn_*."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from pyllamacpp import Llama, _core
from pyllamacpp.errors import ModelFileError, ParameterError, PyllamacppError

IDS = [(37 * i + 11) % 290 for i in range(60)]
YARN = {
    "llama.rope.scaling.type": "yarn",
    "llama.rope.scaling.factor": 4.0,
    "llama.rope.scaling.original_context_length": 32,
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("models") / "m.gguf")


def scores(path: Path, **given: Any) -> np.ndarray:
    with Llama(path, verbose=False, logits_all=True, **given) as llm:
        llm.eval(IDS)
        return llm.scores.copy()


# What is asked for -> the metadata of a file that says the same.
EQUAL: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "base": ({"rope_freq_base": 5e5}, {"llama.rope.freq_base": 5e5}),
    "scale": (
        {"rope_freq_scale": 0.5},
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0},
    ),
    "linear": (
        {"rope_scaling_type": 1, "rope_freq_scale": 0.25},
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
    ),
    "yarn": ({"rope_scaling_type": 2, "rope_freq_scale": 0.25, "yarn_orig_ctx": 32}, YARN),
    "yarn's parameters": (
        {
            "rope_scaling_type": 2, "rope_freq_scale": 0.25, "yarn_orig_ctx": 32, "yarn_attn_factor": 2,
            "yarn_beta_fast": 16.0, "yarn_beta_slow": 2.0,
        },
        YARN | {
            "llama.rope.scaling.attn_factor": 2.0, "llama.rope.scaling.yarn_beta_fast": 16.0,
            "llama.rope.scaling.yarn_beta_slow": 2.0,
        },
    ),
    "kv_overrides": ({"kv_overrides": {"llama.rope.freq_base": 7e4}}, {"llama.rope.freq_base": 7e4}),
    "an integer for a float": ({"kv_overrides": {"llama.logit_scale": 2}}, {"llama.logit_scale": 2}),
    "they have the last word": (
        {"kv_overrides": {"llama.rope.freq_base": 7e4}, "rope_freq_base": 5}, {"llama.rope.freq_base": 7e4}
    ),
    "an integer": ({"kv_overrides": {"llama.context_length": 99}}, {"llama.context_length": 99}),
    "a key the file lacks": ({"kv_overrides": {"llama.logit_scale": 2.0}}, {"llama.logit_scale": 2.0}),
}  # fmt: skip


@pytest.mark.parametrize("case", EQUAL)
def test_like_a_file_that_says_so(path: Path, tmp_path: Path, case: str) -> None:
    given, metadata = EQUAL[case]
    other = tiny.write(tmp_path / "other.gguf", metadata=metadata)
    got = scores(path, **given)
    assert np.array_equal(got, scores(other))
    if case != "an integer":
        assert not np.array_equal(got, scores(path))
    with Llama(path, verbose=False, **given) as llm, Llama(other, verbose=False) as same:
        assert llm.metadata == same.metadata and llm.n_ctx() == same.n_ctx()


def test_a_yarn_file_can_be_stripped(tmp_path: Path, path: Path) -> None:
    yarn = tiny.write(tmp_path / "yarn.gguf", metadata=YARN)
    assert np.array_equal(scores(yarn, rope_scaling_type=0), scores(path))
    assert not np.array_equal(scores(yarn, yarn_beta_fast=1.5), scores(yarn))
    assert np.array_equal(scores(yarn, yarn_beta_fast=32, yarn_beta_slow=1, yarn_attn_factor=1), scores(yarn))


def test_tokenizer_and_template(path: Path) -> None:
    template = {"tokenizer.chat_template": "{{ messages[0].content }}!", "tokenizer.ggml.add_bos_token": True}
    with Llama(path, kv_overrides=template, vocab_only=True, verbose=False) as llm:
        assert llm.metadata["tokenizer.ggml.add_bos_token"] == "true"
        assert llm.tokenize(b"hello")[0] == llm.token_bos()
        assert llm.chat_template is not None
        assert llm.chat_template.render([{"role": "user", "content": "x"}]) == "x!"
    for key in ("add_eos_token", "pre", "eot_token_id", "fim_pre_token_id"):
        value: Any = {"pre": "gpt-2"}.get(key, 5 if key.endswith("_id") else True)
        Llama(path, kv_overrides={f"tokenizer.ggml.{key}": value}, verbose=False).close()
    with Llama(path, kv_overrides={"llama.pooling_type": 1, "general.name": "ü"}, verbose=False) as llm:
        assert llm.pooling_type() == 1 and llm.metadata["general.name"] == "ü"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kv_overrides": {"llama.rope.freq_bse": 1.0}}, "nothing reads 'llama.rope.freq_bse'"),
        ({"kv_overrides": {"tokenizer.ggml.ad_bos_token": True}}, "nothing reads 'tokenizer.ggml.ad_bos"),
        ({"kv_overrides": {"llama.block_count": "two"}}, "has type uint32 in the file, not string"),
        ({"kv_overrides": {"llama.block_count": 2.0}}, "has type uint32 in the file, not float64"),
        ({"kv_overrides": {"tokenizer.ggml.add_bos_token": 1}}, "has type bool in the file"),
        ({"kv_overrides": {"tokenizer.ggml.tokens": "a"}}, "has type array of string"),
        ({"kv_overrides": {"llama.block_count": 2**64}}, "must map metadata keys"),
        ({"kv_overrides": {"llama.block_count": None}}, "must map metadata keys"),
        ({"kv_overrides": {"": 1}}, "must map metadata keys"),
        ({"kv_overrides": {"\ud800": 1}}, "must map metadata keys"),
        ({"kv_overrides": {"general.name": "\udcff"}}, "must map metadata keys"),
        ({"kv_overrides": {1: 1}}, "must map metadata keys"),
        ({"kv_overrides": [1]}, "must map metadata keys"),
        ({"kv_overrides": ""}, "must map metadata keys"),
        ({"yarn_beta_fast": 8.0}, "yarn_beta_fast=8.0 has no effect: the rope scaling is 'none'"),
        ({"yarn_orig_ctx": 64, "rope_scaling_type": 1}, "the rope scaling is 'linear'"),
        ({"rope_freq_scale": 0.5, "rope_scaling_type": 0}, "rope_freq_scale=0.5 has no effect"),
        ({"rope_scaling_type": 9}, "rope_scaling_type must be"),
        ({"rope_freq_base": -1}, "rope_freq_base must be"),
        ({"rope_freq_scale": float("nan")}, "rope_freq_scale must be"),
        ({"yarn_ext_factor": 0.5}, "yarn_ext_factor=0.5 is not supported yet"),
    ],
)
def test_refusals(path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Llama(path, verbose=False, **given)


def test_values_are_checked_like_the_files(path: Path) -> None:
    """An override is no way around the reader's ranges, whatever it says."""
    for key, value in (
        ("llama.attention.head_count", 0), ("llama.attention.head_count", -(2**63)),
        ("llama.block_count", 2**62),
        ("llama.rope.freq_base", float("nan")), ("llama.attention.layer_norm_rms_epsilon", float("inf")),
        ("llama.embedding_length", 63), ("general.architecture", "nonsense"), ("tokenizer.ggml.model", "x"),
        ("tokenizer.ggml.bos_token_id", 2**40),
    ):  # fmt: skip
        try:
            with pytest.warns(RuntimeWarning) if "bos" in key else _nothing():
                Llama(path, verbose=False, kv_overrides={key: value}).close()
        except PyllamacppError as error:
            assert isinstance(error, ModelFileError)
        else:
            assert "bos" in key


class _nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *exception: object) -> None: ...


def test_the_core_knows_what_was_asked_for(path: Path) -> None:
    file = _core.GgufFile(
        path, overrides={"llama.logit_scale": 2.0, "llama.nonsense": 1, "general.name": "x"}
    )
    assert set(file.unasked_overrides) == {"llama.logit_scale", "llama.nonsense"}
    _core.Model(file)
    assert file.unasked_overrides == ["llama.nonsense"] and file.metadata["general.name"] == "x"
