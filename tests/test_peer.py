"""docs/llama-cpp-python.md against our signatures and tables and llama-cpp-python's own (tests/peer.json)."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import peer_table
import pytest
import tiny
from peer_table import DIFFERENCES, DIFFERENT, PEER, REFUSED, SAME, method_of, parameter_row, takes

import pyllamacpp
from pyllamacpp import Llama, _core, compat, names
from pyllamacpp.errors import ChatTemplateError, ParameterError
from pyllamacpp.params import LoadParams, SamplingParams, spec
from pyllamacpp.text.chat_formats import CHAT_FORMATS, choose_format

PARAMETERS = [(m, p, d) for m, parameters in PEER["methods"].items() for p, d in parameters.items()]
# Defaults that differ, each told in the page.
OTHER_DEFAULTS = {("__init__", name) for name in ("n_ctx", "seed")} | {("embed", "truncate")}
OTHER_DEFAULTS |= {("__init__", "pooling_type")}  # None is -1


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("models") / "m.gguf", n_ctx=256)


@pytest.fixture
def llm(path: Path) -> Iterator[Llama]:
    with Llama(path, seed=1, verbose=False) as model:
        yield model


def test_the_page_is_up_to_date() -> None:
    assert peer_table.PAGE.read_text() == peer_table.page(), "PYTHONPATH=. python tests/peer_table.py"


def test_every_note_is_of_something() -> None:
    for method, parameter in DIFFERENCES:
        if method != "*":
            assert parameter is None or parameter in PEER["methods"][method], (method, parameter)
        else:
            assert any(parameter in parameters for parameters in PEER["methods"].values()), parameter
    assert peer_table.ATTRIBUTES.keys() | compat.ATTRIBUTES.keys() <= set(PEER["attributes"])
    assert peer_table.CLASSES.keys() <= set(PEER["classes"])


@pytest.mark.parametrize(("method", "parameter", "default"), PARAMETERS)
def test_parameter(method: str, parameter: str, default: Any) -> None:
    status, note = parameter_row(method, parameter)
    inert = compat.TABLES.get(method, {}).get(parameter)
    if inert is not None:
        assert status == REFUSED or peer_table.accepts_anything(inert)
        assert note and default in inert.values, "its own default must be accepted"
        return
    assert status in (SAME, DIFFERENT)
    if method.startswith("create_chat_completion_openai"):
        return
    assert takes(method, parameter), f"{method} has no {parameter}"
    own = inspect.signature(method_of(method)).parameters.get(parameter)
    params = LoadParams if method == "__init__" else SamplingParams
    value = own.default if own else spec(params, parameter).default
    value = "required" if value is inspect.Parameter.empty else value
    if (method, parameter) in OTHER_DEFAULTS:
        assert status == DIFFERENT and value != default
    elif own is None and method == "__init__":
        assert LoadParams(**{parameter: default}) == LoadParams()
    else:
        assert value == default or (default == [] and value == ())


@pytest.mark.parametrize("name", PEER["attributes"])
def test_attribute(llm: Llama, name: str) -> None:
    llm.eval([1, 2])
    if name not in compat.ATTRIBUTES:
        getattr(llm, name)
        return
    with pytest.raises(AttributeError, match=f"Llama.{name} of llama-cpp-python has no counterpart"):
        getattr(llm, name)


@pytest.mark.parametrize("name", [n for n in PEER["methods"] if n != "__init__"])
def test_method(name: str) -> None:
    assert callable(getattr(Llama, name))


@pytest.mark.parametrize("name", PEER["classes"])
def test_class(name: str) -> None:
    if name == "suppress_stdout_stderr":
        assert not hasattr(pyllamacpp, name)
        return
    cls = getattr(pyllamacpp, name)
    if cls in names.REFUSED:
        for use in (lambda: cls(), lambda: cls.from_string("x"), lambda: cls.of(1)):
            with pytest.raises(ParameterError, match=rf"{name} is not supported yet"):
                use()


def test_constants() -> None:
    assert pyllamacpp.LLAMA_POOLING_TYPE_LAST == 3 and pyllamacpp.LLAMA_ROPE_SCALING_TYPE_YARN == 2
    assert {n: v for n, v in names.CONSTANTS.items() if n.startswith("GGML_TYPE_")} == {
        f"GGML_TYPE_{kv_type.upper()}": number
        for kv_type, number in _core.kv_types().items()
        if number is not None and kv_type != "bf16"  # for which llama-cpp-python has no name
    }
    assert pyllamacpp.GGML_TYPE_Q8_0 == 8
    for absent in ("LLAMA_FILE_MAGIC", "GGML_TYPE_Q4_0", "llama_decode", "ChatCompletion", "LlamaNonsense"):
        assert not hasattr(pyllamacpp, absent)


def test_no_pickling(llm: Llama) -> None:
    with pytest.raises(TypeError, match="open the model again"):
        pickle.dumps(llm)


def test_small_helpers() -> None:
    rows = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32)
    got = Llama.logits_to_logprobs(rows)
    np.testing.assert_allclose(np.exp(got).sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(Llama.logits_to_logprobs(rows.T, axis=0).T, got)
    assert Llama.longest_token_prefix([1, 2, 3], [1, 2, 4, 5]) == 2
    assert Llama.longest_token_prefix([1, 2], [1, 2, 4]) == 2 and Llama.longest_token_prefix([], [1]) == 0


def test_lists_of_functions(llm: Llama) -> None:
    def ban(token: int) -> Any:
        return lambda tokens, logits: np.where(np.arange(len(logits)) == token, -np.inf, logits)

    llm.eval([1, 2, 3])
    order = np.argsort(-llm.scores[-1]).tolist()
    both = pyllamacpp.LogitsProcessorList([ban(order[0]), ban(order[1])])
    assert llm.sample(temp=0, logits_processor=both) == order[2]
    assert int(both(llm.input_ids, llm.scores[-1]).argmax()) == order[2]
    stop = pyllamacpp.StoppingCriteriaList([lambda tokens, logits: len(tokens) >= 6])
    assert len(list(llm.generate([1, 2, 3], temp=0, stopping_criteria=stop))) == 3
    assert stop(np.zeros(6, np.int32), rows := np.zeros(3, np.float32)) and not stop(
        np.zeros(5, np.int32), rows
    )


def test_min_tokens_processor(llm: Llama) -> None:
    end = {llm.token_eos(): 30.0}
    assert llm([1, 2], max_tokens=9, logit_bias=end)["usage"]["completion_tokens"] == 0
    processor = pyllamacpp.MinTokensLogitsProcessor(4, llm.token_eos())
    lists = pyllamacpp.LogitsProcessorList([processor])
    result = llm([1, 2], max_tokens=4, logit_bias=end, logits_processor=lists)
    assert result["usage"]["completion_tokens"] == 4


def test_openai_objects(llm: Llama) -> None:
    messages = [{"role": "user", "content": "hello"}]
    try:
        from openai.types.chat import ChatCompletion, ChatCompletionChunk
    except ImportError:
        with pytest.raises(ParameterError, match="needs the openai package"):
            llm.create_chat_completion_openai_v1(messages, max_tokens=3)
        return
    result = llm.create_chat_completion_openai_v1(messages, max_tokens=3, logprobs=True, top_logprobs=2)
    assert isinstance(result, ChatCompletion) and result.usage is not None
    chunks = list(llm.create_chat_completion_openai_v1(messages, max_tokens=3, stream=True))
    assert all(isinstance(chunk, ChatCompletionChunk) for chunk in chunks)


# Chat formats

CONVERSATIONS = {
    "user": ["user"], "system": ["system", "user"], "turns": ["user", "assistant", "user"],
    "system, turns": ["system", "user", "assistant", "user"],
}  # fmt: skip
TEXTS = {"system": ["SYS"], "user": ["U1", "U2"], "assistant": ["A1"]}
# What llama-cpp-python renders as the authors published, of those formats where it does not always.
RIGHT = {
    "chatml": ["system", "system, turns"], "oasst_llama": ["system", "system, turns"],
    "redpajama-incite": ["system", "system, turns"], "vicuna": ["user", "turns"],
    "mistral-instruct": ["user", "turns"], "gemma": ["user", "turns"],
}  # fmt: skip
PUBLISHED = {
    "llama-2": "<s>[INST] <<SYS>>\nSYS\n<</SYS>>\n\nU1 [/INST] A1 </s><s>[INST] U2 [/INST]",
    "alpaca": "SYS\n\n### Instruction:\nU1\n\n### Response:\nA1\n\n### Instruction:\nU2\n\n### Response:\n",
    "vicuna": "SYS USER: U1 ASSISTANT: A1</s>USER: U2 ASSISTANT:",
    "openbuddy": "SYS\n\n\nUser: U1\nAssistant: A1\nUser: U2\nAssistant:",
    "snoozy": "### Instruction:\nSYS\n### Prompt: U1\n### Response: A1\n### Prompt: U2\n### Response:",
    "phind": "### System Prompt\nSYS\n\n### User Message\nU1\n\n### Assistant\nA1\n\n"
    "### User Message\nU2\n\n### Assistant\n",
    "intel": "### System:\nSYS\n### User:\nU1\n### Assistant:\nA1\n### User:\nU2\n### Assistant:\n",
    "open-orca": "SYS<|end_of_turn|>User: U1<|end_of_turn|>Assistant: A1<|end_of_turn|>"
    "User: U2<|end_of_turn|>Assistant:",
    "openchat": "SYS<|end_of_turn|>GPT4 Correct User: U1<|end_of_turn|>GPT4 Correct Assistant: A1"
    "<|end_of_turn|>GPT4 Correct User: U2<|end_of_turn|>GPT4 Correct Assistant:",
    "mistrallite": "<|system|>SYS</s><|prompter|>U1</s><|assistant|>A1</s><|prompter|>U2</s><|assistant|>",
    "zephyr": "<|system|>\nSYS</s>\n<|user|>\nU1</s>\n<|assistant|>\nA1</s>\n"
    "<|user|>\nU2</s>\n<|assistant|>\n",
    "pygmalion": "<|system|>SYS<|user|>U1<|model|>A1<|user|>U2<|model|>",
    "chatglm3": "[gMASK]sop<|system|>\n SYS<|user|>\n U1<|assistant|>\n A1<|user|>\n U2<|assistant|>",
    "saiga": "<s>system\nSYS</s><s>user\nU1</s><s>bot\nA1</s><s>user\nU2</s><s>bot\n",
    "mistral-instruct": "[INST] SYS\n\nU1 [/INST]A1</s>[INST] U2 [/INST]",
    "gemma": "<start_of_turn>user\nSYS\n\nU1<end_of_turn>\n<start_of_turn>model\nA1<end_of_turn>\n"
    "<start_of_turn>user\nU2<end_of_turn>\n<start_of_turn>model\n",
}
LLAMA = SimpleNamespace(bos_id=1, eos_id=2, piece=lambda i: ("<unk>", "<s>", "</s>")[i])


def rendered(name: str, roles: list[str]) -> str:
    chosen = choose_format({}, LLAMA, name=name, template=None)  # type: ignore[arg-type]
    assert chosen is not None
    texts = {role: iter(contents) for role, contents in TEXTS.items()}
    return chosen.template.render([{"role": role, "content": next(texts[role])} for role in roles])


@pytest.mark.parametrize("name", CHAT_FORMATS)
def test_chat_format(name: str) -> None:
    """As llama-cpp-python renders it where that is right; where it is not, as published."""
    right = RIGHT.get(name, [] if name in PUBLISHED else list(CONVERSATIONS))
    assert (name in peer_table.CHAT_DIFFERENCES) == (len(right) < len(CONVERSATIONS))
    for conversation, roles in CONVERSATIONS.items():
        equal = rendered(name, roles) == PEER["chat_formats"][name].get(conversation)
        assert equal == (conversation in right), (conversation, rendered(name, roles))
    if name in PUBLISHED:
        assert rendered(name, CONVERSATIONS["system, turns"]) == PUBLISHED[name]


def test_chat_formats_refuse_what_they_lack() -> None:
    assert set(PEER["chat_formats"]) - set(CHAT_FORMATS) == {
        "functionary", "functionary-v1", "functionary-v2", "chatml-function-calling",
    }  # fmt: skip
    for name in CHAT_FORMATS:
        chosen = choose_format({}, LLAMA, name=name, template=None)  # type: ignore[arg-type]
        assert chosen is not None
        with pytest.raises(ChatTemplateError, match=f"format {name} has no role tool"):
            chosen.template.render([{"role": "user", "content": "x"}, {"role": "tool", "content": "x"}])
    with pytest.raises(ChatTemplateError, match="needs a user message"):
        choose_format({}, LLAMA, name="llama-2", template=None).template.render(  # type: ignore
            [{"role": "system", "content": "x"}]
        )


def test_chat_format_of_a_llama(path: Path, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hello <|im_end|>"}]
    with Llama(path, chat_format="zephyr", verbose=False) as llm:
        assert llm.chat_format == "zephyr"
        llm.create_chat_completion(messages, max_tokens=1)
        held = llm.detokenize(llm.eval_tokens, special=True).decode()
        assert held == "<|user|>\nhello <|im_end|><|im_end|>\n<|assistant|>\n"  # its EOS is <|im_end|>
        assert llm.eval_tokens.count(llm.token_eos()) == 1
    with Llama(path, chat_format="vicuna", verbose=False) as llm:  # its stop string ends the answer
        stop = llm.tokenize(b"USER:", add_bos=False)
        spell = iter([*llm.tokenize(b"hi ", add_bos=False), *stop])

        def speak(tokens: Any, logits: Any) -> Any:
            return np.where(np.arange(len(logits)) == next(spell), 0, -np.inf)

        result = llm.create_chat_completion(messages, logits_processor=speak)
        assert result["choices"][0]["message"]["content"] == "hi "
        assert result["choices"][0]["finish_reason"] == "stop"
    for own in ("jinja", "chat_template.default"):
        with Llama(path, chat_format=own, verbose=False) as llm:
            assert llm.chat_template is not None and llm.chat_template.source == tiny.CHATML
    named = {"tokenizer.chat_template.short": "{{ messages[0].content }}"}
    with Llama(
        tiny.write(tmp_path / "n.gguf", metadata=named), chat_format="chat_template.short", verbose=False
    ) as llm:
        assert llm.chat_template is not None and llm.chat_template.source == "{{ messages[0].content }}"


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"chat_format": "nonsense"}, ParameterError, r"(?s)is not known.*Known: chatml, qwen, llama-2"),
        ({"chat_format": "functionary"}, ParameterError, "calls are not parsed yet"),
        ({"chat_format": "chatml-function-calling"}, ParameterError, "without tools it is chatml"),
        ({"chat_format": "chatml", "chat_template": "{{ 1 }}"}, ParameterError, "two answers"),
        ({"chat_format": "chat_template.absent"}, ChatTemplateError, "absent"),
        ({"chat_format": 5}, ParameterError, "chat_format must be a string"),
    ],
)
def test_wrong_chat_formats(path: Path, given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Llama(path, verbose=False, **given)


def test_file_without_a_template(tmp_path: Path) -> None:
    bare = tiny.write(tmp_path / "m.gguf", metadata={"tokenizer.chat_template": None})
    with pytest.raises(ParameterError, match="the model file has no chat template"):
        Llama(bare, chat_format="jinja", verbose=False)
    with Llama(bare, chat_format="chatml", verbose=False) as llm:
        assert llm.create_chat_completion([{"role": "user", "content": "x"}], max_tokens=1)
