"""`Llama`: what it refuses and how, llama-cpp-python's parameters, opening models."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

import pyllamacpp
from pyllamacpp import Llama, SamplingParams, _core, compat, hub
from pyllamacpp.errors import (
    ChatTemplateError,
    ContextOverflowError,
    ModelNotFoundError,
    ParameterError,
    PyllamacppError,
)
from pyllamacpp.params import DEFAULT_KV_TYPE

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


def test_prompt_beyond_the_context(path: Path) -> None:
    with Llama(path, n_ctx=32, verbose=False) as llm:
        llm.eval([1, 2, 3])
        for call in (lambda: llm([5] * 40), lambda: llm([5] * 40, stream=True), lambda: llm([5] * 32)):
            with pytest.raises(ContextOverflowError, match=r"\b(40|32) tokens.*\b32\b"):
                call()
        with pytest.raises(ContextOverflowError, match=r"3 tokens are held and 30 more .* 32"):
            llm.eval([5] * 30)
        assert llm.eval_tokens == [1, 2, 3]
        with pytest.raises(ContextOverflowError):
            llm.create_chat_completion([{"role": "user", "content": "hello " * 50}])


@pytest.mark.parametrize("max_tokens", [None, 0, -1, 1000])
def test_answer_to_the_end_of_the_context(path: Path, max_tokens: int | None) -> None:
    with Llama(path, n_ctx=32, verbose=False) as llm:
        result = llm([5] * 10, max_tokens=max_tokens, logit_bias=ENDLESS)
        assert result["usage"]["total_tokens"] == 32
        assert result["choices"][0]["finish_reason"] == "length"


def test_end_of_generation_is_not_text(llm: Llama) -> None:
    result = llm(PROMPT, max_tokens=9, logit_bias={llm.token_eos(): 1000.0}, logprobs=1)
    assert result["choices"][0]["text"] == "" and result["choices"][0]["finish_reason"] == "stop"
    assert result["usage"]["completion_tokens"] == 0 and result["choices"][0]["logprobs"]["tokens"] == []


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "empty"),
        ("a\ud83d", "surrogate"),
        ([10**6], "outside the vocabulary"),
        ([-1], "outside"),
        ([1.5], "integers"),
        ([[1], [1, 2]], "integers"),
        (np.ones((2, 0), np.int32), "integers"),
        (b"hello", "not bytes"),  # not the tokens 104, 101, ...
        (bytearray(b"hello"), "not bytearray"),
        ({1: 2}, "not dict"),
        (None, "not NoneType"),
        (5, "not int"),
    ],
)
def test_bad_prompts(llm: Llama, prompt: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        llm(prompt)
    if "surrogate" not in message and "empty" not in message:
        for method in (llm.eval, llm.detokenize, llm.generate):
            with pytest.raises(ParameterError, match=message):
                method(prompt)


def test_empty_prompt_without_bos(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", metadata={"tokenizer.ggml.bos_token_id": None})
    with Llama(path, verbose=False) as llm, pytest.raises(ParameterError, match="empty"):
        llm("")


def test_chat_needs_a_template(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", metadata={"tokenizer.chat_template": None})
    with Llama(path, verbose=False) as llm:
        assert llm.chat_template is None
        with pytest.raises(ChatTemplateError, match="chat_template"):
            llm.create_chat_completion(MESSAGES)
    with Llama(path, chat_template="{{ messages[0]['content'] }}", verbose=False) as llm:
        llm.create_chat_completion(MESSAGES, max_tokens=1)
        assert llm.detokenize(llm.eval_tokens) == b"be brief"


def test_users_cannot_write_control_tokens(llm: Llama) -> None:
    llm.create_chat_completion([{"role": "user", "content": "<|im_end|>"}], max_tokens=1)
    assert llm.eval_tokens.count(llm.token_eos()) == 1  # the template's own
    with pytest.raises(ParameterError, match="surrogate"):
        llm.create_chat_completion([{"role": "user", "content": "\ud800"}])
    with pytest.raises(ParameterError, match="messages"):
        llm.create_chat_completion("hello")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="top_logprobs"):
        llm.create_chat_completion(MESSAGES, top_logprobs=2)


# Parameters

# llama-cpp-python's own defaults (0.3), every parameter spelled out.
CONSTRUCTOR_DEFAULTS: dict[str, Any] = {
    "n_gpu_layers": 0, "split_mode": 1, "main_gpu": 0, "tensor_split": None, "vocab_only": False,
    "use_mmap": True, "use_mlock": False, "kv_overrides": None, "seed": 4294967295, "n_ctx": 512,
    "n_batch": 512, "n_ubatch": 512, "n_threads": None, "n_threads_batch": None, "rope_scaling_type": -1,
    "pooling_type": -1, "attention_type": -1, "rope_freq_base": 0.0, "rope_freq_scale": 0.0,
    "yarn_ext_factor": -1.0, "yarn_attn_factor": 1.0, "yarn_beta_fast": 32.0, "yarn_beta_slow": 1.0,
    "yarn_orig_ctx": 0, "logits_all": False, "embedding": False, "offload_kqv": True, "flash_attn": False,
    "op_offload": None, "swa_full": None, "no_perf": False, "last_n_tokens_size": 64, "lora_base": None,
    "lora_scale": 1.0, "lora_path": None, "numa": False, "chat_format": None, "chat_handler": None,
    "draft_model": None, "tokenizer": None, "type_k": None, "type_v": None, "spm_infill": False,
    "verbose": False,
}  # fmt: skip
SAMPLING_DEFAULTS: dict[str, Any] = {
    "top_p": 0.95, "min_p": 0.05, "typical_p": 1.0, "top_k": 40, "frequency_penalty": 0.0,
    "presence_penalty": 0.0, "repeat_penalty": 1.0, "tfs_z": 1.0, "mirostat_mode": 0, "mirostat_tau": 5.0,
    "mirostat_eta": 0.1, "logits_processor": None, "grammar": None,
}  # fmt: skip
TEXT_DEFAULTS: dict[str, Any] = {"stream": False, "stop": [], "seed": None, "model": None, "logit_bias": None}
COMPLETION_DEFAULTS: dict[str, Any] = {
    **SAMPLING_DEFAULTS, **TEXT_DEFAULTS, "suffix": None, "max_tokens": 16, "temperature": 0.8,
    "logprobs": None, "echo": False, "stopping_criteria": None,
}  # fmt: skip
CHAT_DEFAULTS: dict[str, Any] = {
    **SAMPLING_DEFAULTS, **TEXT_DEFAULTS, "functions": None, "function_call": None, "tools": None,
    "tool_choice": None, "temperature": 0.2, "response_format": None, "max_tokens": None, "logprobs":
    None, "top_logprobs": None,
}  # fmt: skip
TOKEN_DEFAULTS: dict[str, Any] = {**SAMPLING_DEFAULTS, "temp": 0.8, "penalize_nl": True}


def test_every_parameter_of_llama_cpp_python_is_known(path: Path) -> None:
    with Llama(str(path), **CONSTRUCTOR_DEFAULTS) as llm:
        assert llm.n_ctx() == 512
        assert llm(PROMPT, **COMPLETION_DEFAULTS)["object"] == "text_completion"
        assert llm.create_completion(PROMPT, **COMPLETION_DEFAULTS)["object"] == "text_completion"
        assert llm.create_chat_completion(MESSAGES, **CHAT_DEFAULTS | {"max_tokens": 3})["choices"]
        assert llm.sample(**TOKEN_DEFAULTS, idx=None) >= 0
        assert next(llm.generate([1], **TOKEN_DEFAULTS, reset=True, stopping_criteria=None)) >= 0


@pytest.mark.parametrize("name", sorted(compat.CONSTRUCTOR))
def test_unsupported_constructor_parameters_are_named(path: Path, name: str) -> None:
    if True in compat.CONSTRUCTOR[name].values and False in compat.CONSTRUCTOR[name].values:
        Llama(path, verbose=False, **{name: True}).close()
    with pytest.raises(ParameterError, match=rf"^{name}='.*' is not supported yet"):
        Llama(path, **{name: "something"})
    with pytest.raises(ParameterError, match=rf"^{name}=.* is not supported yet"):
        Llama(path, **{name: np.ones(3)})


@pytest.mark.parametrize(
    ("function", "name"),
    [("create_completion", n) for n in sorted(compat.COMPLETION)]
    + [("create_chat_completion", n) for n in sorted(compat.CHAT)]
    + [("sample", n) for n in sorted(compat.SAMPLE)]
    + [("generate", n) for n in sorted(compat.SAMPLING)],
)
def test_unsupported_method_parameters_are_named(llm: Llama, function: str, name: str) -> None:
    first: dict[str, tuple[Any, ...]] = {"create_chat_completion": (MESSAGES,), "sample": ()}
    arguments = first.get(function, ([1, 2],))
    with pytest.raises(ParameterError, match=rf"^{name}='something' is not supported yet"):
        getattr(llm, function)(*arguments, **{name: "something"})
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        getattr(llm, function)(*arguments, nonsense=1)


def test_kv_types_by_name_and_number(path: Path) -> None:
    for given, want in (
        ({}, ("f16", "f16")),
        ({"type_k": None, "type_v": 1}, ("f16", "f16")),
        ({"type_k": pyllamacpp.GGML_TYPE_Q8_0, "type_v": "i16"}, ("q8_0", "i16")),
        ({"type_k": np.int32(0), "type_v": 30}, ("f32", "bf16")),
    ):
        with Llama(path, verbose=False, **given) as llm:
            llm.eval([1, 2, 3])
            assert llm.save_state().kv_types == want
    assert next(iter(_core.kv_types())) == DEFAULT_KV_TYPE
    for bad in (2, -1, True, 8.0, "q4_0", "F16", "", [1], np.ones(3)):
        for name in ("type_k", "type_v"):
            with pytest.raises(ParameterError) as error:
                Llama(path, **{name: bad})
            assert f"{name}={bad!r} is no supported type of the KV cache" in str(error.value)
            assert "f16 (1), bf16 (30), f32 (0), q8_0 (8), i16" in str(error.value)


def test_refusals_that_matter(path: Path, llm: Llama) -> None:
    with pytest.raises(ParameterError, match=r"(?s)n_gpu_layers=-1 is not supported yet.*leave it out"):
        Llama(path, n_gpu_layers=-1)
    with pytest.raises(ParameterError, match="n_threads_batch"):
        Llama(path, n_threads=1, n_threads_batch=2)
    with pytest.raises(TypeError, match="nonsense"):
        Llama(path, nonsense=1)
    with pytest.raises(ParameterError, match="tools"):
        llm.create_chat_completion(MESSAGES, tools=[{"type": "function"}])
    with pytest.raises(ParameterError, match="response_format"):
        llm.create_chat_completion(MESSAGES, response_format={"type": "json_object"})
    llm.create_chat_completion(MESSAGES, response_format={"type": "text"}, tool_choice="none", max_tokens=1)
    with pytest.raises(ParameterError, match="temperature"):
        llm(PROMPT, temperature="warm")
    with pytest.raises(ParameterError, match="1000000"):
        llm(PROMPT, logit_bias={1000000: 1.0}, stream=True)  # not at the first chunk: at once
    with pytest.raises(ParameterError, match="logits_processor"):
        llm(PROMPT, logits_processor="x")
    with pytest.raises(ParameterError, match=r"shape \(\d+,\)"):
        llm(PROMPT, logits_processor=lambda tokens, logits: logits[:5])
    for faulty in (np.nan, np.inf, -np.inf):
        with pytest.raises(ParameterError, match="logits_processor returned"):
            llm(PROMPT, logits_processor=lambda tokens, logits, faulty=faulty: logits * 0 + faulty)
    with pytest.raises(ParameterError, match="n_ctx must be"):
        Llama(path, n_ctx=10**12)
    for n in (1.5, "1", None):
        with pytest.raises(ParameterError, match="n_tokens must be"):
            llm.n_tokens = n
    for model in (None, 5, b"x"):
        with pytest.raises(ParameterError, match="model_path must be"):
            Llama(model)
    with pytest.raises(AttributeError, match=r"Llama\.ctx of llama-cpp-python has no counterpart"):
        _ = llm.ctx
    with pytest.raises(ModelNotFoundError):
        Llama(path.with_name("absent.gguf"), verbose=False)
    assert not hasattr(llm, "absent")


def test_defaults_are_those_of_sampling_params() -> None:
    defaults = SamplingParams()
    for function in (Llama.create_completion, Llama.create_chat_completion, Llama.sample, Llama.generate):
        for name, parameter in inspect.signature(function).parameters.items():
            if function is Llama.create_chat_completion and name in ("temperature", "max_tokens", "logprobs"):
                continue
            field = {"temp": "temperature"}.get(name, name)
            if hasattr(defaults, field) and field != "logit_bias":
                assert parameter.default == getattr(defaults, field), (function, name)


def test_spm_tokens_keep_their_space_one_by_one(tmp_path: Path) -> None:
    with Llama(tiny.write(tmp_path / "spm.gguf", vocab="spm"), vocab_only=True, verbose=False) as llm:
        tokens = llm.tokenize(b"hello the well")
        assert tokens[0] == llm.token_bos() and llm.detokenize(tokens) == b"hello the well"
        assert b"".join(llm.detokenize([token]) for token in tokens) == b" hello the well"
        assert llm.detokenize(tokens[1:], prev_tokens=np.array(tokens[:1])) == b" hello the well"


# Opening


def test_vocab_only(path: Path, tmp_path: Path) -> None:
    names = tiny.tensor_shapes("llama", tiny.shape_of("llama", "F32"), N_VOCAB, True)
    bare = tiny.write(tmp_path / "vocab.gguf", drop=list(names))
    for file in (path, bare):
        with Llama(file, vocab_only=True, verbose=False) as llm:
            assert llm.detokenize(llm.tokenize(b"hello")) == b"hello" and llm.n_vocab() == N_VOCAB
            for call in (lambda: llm("x"), lambda: llm.eval([1]), llm.n_ctx, lambda: llm.n_tokens):
                with pytest.raises(ParameterError, match="vocab_only"):
                    call()
    with pytest.raises(PyllamacppError):
        Llama(bare, verbose=False)
    words = {"model": "bert", "tokens": ["[UNK]", "\u2581hi"], "token_type": np.array([2, 1], np.int32)}
    bert = {f"tokenizer.ggml.{key}": value for key, value in words.items()}
    bert["tokenizer.ggml.unknown_token_id"] = 0
    bert |= {f"tokenizer.ggml.{name}_token_id": None for name in ("bos", "eos", "padding")}
    with Llama(tiny.write(bare, metadata=bert), vocab_only=True, verbose=False) as llm:
        assert llm.tokenize(b"hi", add_bos=False) == [1] and llm.token_nl() == -1


def test_verbose(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Llama(path, verbose=False) as llm:
        llm(PROMPT, max_tokens=2)
    assert capfd.readouterr() == ("", "")
    Llama(path).close()
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1 and "context 256" in err and path.name in err


def test_from_pretrained(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def from_repo(repo_id: str, filename: str | None, **options: Any) -> Path:
        asked.append((repo_id, filename, options))
        return path

    monkeypatch.setattr(hub, "from_repo", from_repo)
    llm = Llama.from_pretrained(repo_id="Qwen/Qwen3-8B-GGUF", filename="*Q8_0.gguf", verbose=False)
    output = llm("Q: Name the planets in the solar system? A: ", max_tokens=32, stop=["Q:", "\n"], echo=True)
    assert text_of(output).startswith("Q: Name the planets in the solar system? A: ")
    ((repo_id, filename, options),) = asked
    assert (repo_id, filename) == ("Qwen/Qwen3-8B-GGUF", "*Q8_0.gguf") and options["progress"] is False
    with pytest.raises(ParameterError, match="local_dir_use_symlinks"):
        Llama.from_pretrained("a/b", "c", local_dir_use_symlinks=True)


def test_importing_the_package_costs_nothing() -> None:
    code = (
        "import sys, pyllamacpp\n"
        "heavy = {'numpy', 'tokenizers', 'jinja2', 'huggingface_hub', 'dataclasses', 'importlib.metadata'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert pyllamacpp.__version__ and 'Llama' in dir(pyllamacpp)\n"
        "assert pyllamacpp.ParameterError is pyllamacpp.errors.ParameterError\n"
        "for name in pyllamacpp.__all__: getattr(pyllamacpp, name)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
