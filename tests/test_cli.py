"""The command line: in process with a fake `Llama`; as a process with a tiny model, signals, a terminal."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from fake_llama import FakeLlama, install
from terminal import ROOT, programs
from typer.testing import CliRunner, Result

import pyllamacpp
from pyllamacpp import errors
from pyllamacpp.cli import answer, app, options
from pyllamacpp.cli import run as run_module
from pyllamacpp.cli.options import NOT_FOR_A_TERMINAL
from pyllamacpp.cli.screen import Screen
from pyllamacpp.params import SAMPLERS, LoadParams, SamplingParams, specs

# ---- in process, with a fake Llama ------------------------------------------------------------------------


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[FakeLlama]:
    return install(monkeypatch, tmp_path)


def invoke(*arguments: str, stdin: str | bytes | None = None) -> Result:
    """Run a command; `stdin` None: a terminal-less empty input is not read when -p is given."""
    return CliRunner().invoke(app, list(arguments), input=stdin)


@pytest.fixture(autouse=True)
def runner_input_has_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """typer's runner replaces standard input by an object that select() cannot ask."""
    monkeypatch.setattr(run_module.select, "select", lambda *a: ([1], [], []))


def passed_on(params: SamplingParams) -> dict[str, Any]:
    """What `run` hands to the model."""
    return {name: getattr(params, name) for name in specs(SamplingParams) if name not in NOT_FOR_A_TERMINAL}


def test_prompt_is_answered_through_the_chat_template(fake: type[FakeLlama]) -> None:
    loading = ("-c", "99", "-t", "2", "-ctk", "q8_0")
    result = invoke("run", "m.gguf", "-p", "Hi", "--system", "Be brief", *loading, "--seed", "5")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Hello world.\n", "")
    assert fake.made == [
        {
            "path": "m.gguf", "n_ctx": 99, "n_threads": 2, "type_k": "q8_0", "type_v": "f16", "pre": None,
            "chat_template": None, "verbose": False,
        }
    ]  # fmt: skip
    ((kind, messages, arguments),) = fake.asked
    assert kind == "chat"
    assert messages == [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi"}]
    want = SamplingParams(max_tokens=None, temperature=0.2, seed=5)
    assert arguments == {"stream": True, "chat_template_kwargs": {}, **passed_on(want)}


def test_raw_completes_text_with_the_given_sampling(fake: type[FakeLlama]) -> None:
    fake.chat_template = None
    result = invoke(
        "run", "-m", "m.gguf", "-p", "Once", "--raw", "--max-tokens", "9", "--temp", "0", "--top-k", "3",
        "--top-p", "0.5", "--min-p", "0.1", "--repeat-penalty", "1.2",
    )  # fmt: skip
    assert (result.exit_code, result.stdout) == (0, "Hello world.\n")
    assert fake.asked == [
        ("text", "Once", {
            "stream": True,
            **passed_on(SamplingParams(
                max_tokens=9, temperature=0.0, top_k=3, top_p=0.5, min_p=0.1, repeat_penalty=1.2,
            )),
        })
    ]  # fmt: skip
    invoke("run", "m.gguf", "-p", "Once", "--raw")
    assert fake.asked[1][2]["temperature"] == 0.8 and fake.asked[1][2]["max_tokens"] is None


@pytest.mark.parametrize(
    ("prompt", "stdin", "expected"),
    [
        (None, "piped\n", "piped"), (None, "two\nlines\r\n", "two\nlines"),
        ("Sum up:", "text\n", "Sum up:\n\ntext"),
        ("alone", "", "alone"), (None, "  spaced  \n\n", "  spaced  \n"),
    ],
)  # fmt: skip
def test_piped_input_is_the_prompt(
    fake: type[FakeLlama], prompt: str | None, stdin: str, expected: str
) -> None:
    result = invoke("run", "m.gguf", *(["-p", prompt] if prompt else []), stdin=stdin)
    assert result.exit_code == 0, result.stderr
    assert fake.asked[0][1] == [{"role": "user", "content": expected}]


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "message"),
    [
        (["-p", ""], "", 2, "the prompt is empty"),
        ([], "", 2, "the prompt is empty"),
        ([], b"\x80abc", 2, "not UTF-8: byte 0x80 at offset 0"),
        (["-p", "x", "--top-p", "2"], "", 2, "top_p must be a finite number in [0, 1], not 2.0"),
        (["-p", "x", "--temp", "nan"], "", 2, "temperature must be a finite number"),
        (["-p", "x", "--top-k", "-5"], "", 2, "top_k must be an integer in [-1, 2147483647], not -5"),
        (["-p", "x", "-c", "-1"], "", 2, "n_ctx must be an integer in [0, 2147483647] or None, not -1"),
        (["-p", "x", "-m", "other.gguf"], "", 2, "two models are given"),
        (["-p", "x", "-m", ""], "", 2, "two models are given"),
        (["-p", "x", "--raw", "--system", "y"], "", 2, "--system"),
        (["-p", "x", "--seed", "a"], "", 2, "--seed"),
        (["-p", "x", "--nonsense"], "", 2, "--nonsense"),
        (["-p", "x", "--chat-template", "no-such-file"], "", 5, "cannot read the chat template no-such-file"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_before_loading(
    fake: type[FakeLlama], arguments: list[str], stdin: str | bytes, code: int, message: str
) -> None:
    result = invoke("run", "m.gguf", *arguments, stdin=stdin)
    assert result.exit_code == code and result.stdout == ""
    assert message in result.stderr
    assert fake.made == []


def test_model_without_template_names_the_options(fake: type[FakeLlama]) -> None:
    fake.chat_template = None
    result = invoke("run", "m.gguf", "-p", "x")
    assert result.exit_code == 5 and "--raw" in result.stderr and "--chat-template FILE" in result.stderr


def test_chat_template_file_is_read(fake: type[FakeLlama], tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text("{{ messages }}", encoding="utf-8")
    invoke("run", "m.gguf", "-p", "x", "--chat-template", "t.jinja", "--pre", "qwen2")
    assert fake.made[0]["chat_template"] == "{{ messages }}" and fake.made[0]["pre"] == "qwen2"


def test_unknown_model_is_one_message_with_a_hint(fake: type[FakeLlama]) -> None:
    for empty in (["run", ""], ["run", "-m", ""]):  # an unset variable of a script is not the default model
        result = invoke(*empty, "-p", "x")
        assert result.exit_code == 3 and result.stderr.startswith("error: no such model: ''")
    result = invoke("run", "smolm2", "-p", "x")
    assert result.exit_code == 3
    assert result.stderr.startswith("error: no such model: 'smolm2'\nhint: Did you mean smollm2?")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "kind",
    [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.PyllamacppError)],
)
def test_every_error_gives_its_exit_code(fake: type[FakeLlama], kind: type[errors.PyllamacppError]) -> None:
    fake.error = kind("what happened", "what to do")
    result = invoke("run", "m.gguf", "-p", "x")
    assert result.exit_code == kind.exit_code
    assert result.stderr == "error: what happened\nhint: what to do\n" and result.stdout == ""


def test_a_bug_is_one_line_and_a_traceback_with_v(fake: type[FakeLlama]) -> None:
    fake.error = KeyError("oops")
    result = invoke("run", "m.gguf", "-p", "x")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: KeyError: 'oops'\nhint:") and "Traceback" not in result.stderr
    assert "Traceback" in invoke("run", "m.gguf", "-p", "x", "-v").stderr


def test_full_context_and_verbose_are_told_on_standard_error(fake: type[FakeLlama]) -> None:
    fake.finish_reason = "length"
    result = invoke("run", "m.gguf", "-p", "x")
    assert (result.stdout, result.stderr) == ("Hello world.\n", "stopped: the context is full\n")
    assert invoke("run", "m.gguf", "-p", "x", "--max-tokens", "2").stderr == ""
    told = invoke("run", "m.gguf", "-p", "x", "-v", "--max-tokens", "2").stderr
    assert "12 tokens read (3 kept)" in told and "seed 7" in told


def test_interrupt_keeps_the_partial_answer(fake: type[FakeLlama]) -> None:
    fake.pieces = ["Hel", "^C", "lo", "never"]
    result = invoke("run", "m.gguf", "-p", "x")
    assert (result.exit_code, result.stdout) == (130, "Hello\n")
    fake.pieces = ["^C", "never"]
    result = invoke("run", "m.gguf", "-p", "x")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "")


def test_terminal_does_not_obey_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    pieces = ["\x1b[31mred\x1b]0;title\x07 \x9b2J\r", "tab\there\n", "\x7f é 🎉"]
    shown = []
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stdout", stream)
        chunks = iter([{"choices": [{"text": p, "finish_reason": None}]} for p in pieces])
        told = answer.print_answer(FakeLlama("m"), chunks, Screen(thoughts=True, markdown=False))  # type: ignore[arg-type]
        assert told.text == "".join(pieces)
        shown.append(stream.getvalue())
    assert shown[1] == "".join(pieces) + "\n"
    assert shown[0] == "␛[31mred␛]0;title␇ \ufffd2J␍tab\there\n␡ é 🎉\n"


def test_options_come_from_the_parameters() -> None:
    for params in (SamplingParams, LoadParams):
        for name, rule in specs(params).items():
            made = options.option(params, name, "panel")
            assert made.help == rule.help
            assert [made.default, *made.param_decls] == list(rule.flags or ("--" + name.replace("_", "-"),))
    text = invoke("run", "--help").stdout
    for flag in (
        "--max-tokens",
        "--temp",
        "--top-k",
        "--top-p",
        "--min-p",
        "--repeat-penalty",
        "--seed",
        "-c",
        "-t",
    ):
        assert flag in text


def test_every_sampler_has_its_option(fake: type[FakeLlama]) -> None:
    given = {
        "min_tokens": 2, "typical_p": 0.9, "top_n_sigma": 1.5, "xtc_probability": 0.5, "xtc_threshold": 0.2,
        "dynatemp_range": 0.1, "dynatemp_exponent": 2.0, "frequency_penalty": 0.1, "presence_penalty": 0.2,
        "penalty_last_n": 7, "dry_multiplier": 0.8, "dry_base": 2.0, "dry_allowed_length": 3,
        "dry_penalty_last_n": 100, "dry_sequence_breakers": ("x", "y z"), "stop": ("End",),
    }  # fmt: skip
    flags = []
    for name, value in given.items():
        for one in value if isinstance(value, tuple) else (value,):
            flags += ["--" + name.replace("_", "-"), str(one)]
    result = invoke("run", "m.gguf", "-p", "x", "--samplers", ",".join(reversed(SAMPLERS)), *flags)
    assert result.exit_code == 0, result.stderr
    assert fake.asked[0][2].items() >= {**given, "samplers": tuple(reversed(SAMPLERS))}.items()
    invoke("run", "m.gguf", "-p", "x", "--mirostat-mode", "2", "--mirostat-tau", "4", "--mirostat-eta", "0.2")
    assert fake.asked[1][2].items() >= {"mirostat_mode": 2, "mirostat_tau": 4.0, "mirostat_eta": 0.2}.items()
    result = invoke("run", "m.gguf", "-p", "x", "--samplers", "top_k,nonsense")
    assert result.exit_code == 2 and "nonsense" in result.stderr and "typical_p" in result.stderr


# ---- as a process, with a tiny model ----------------------------------------------------------------------


N_CTX = 100_000


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Answers of likeliest tokens do not end before its context is full, which takes long."""
    return str(tiny.write(tmp_path_factory.mktemp("cli") / "tiny.gguf", "llama", "F32", n_ctx=N_CTX))


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Any]:
    with programs(tmp_path) as start:
        yield start


def test_one_shot_process(command: Any, model: str) -> None:
    arguments = ("run", model, "-p", "the sun", "--max-tokens", "8", "--seed", "1")
    outputs = [command(*arguments).communicate(timeout=60) for _ in range(2)]
    assert outputs[0][0] and outputs[0] == outputs[1] and outputs[0][1] == b""
    process = command(*arguments[:2], *arguments[4:], stdin=subprocess.PIPE)
    assert process.communicate(b"the sun\n", timeout=60) == outputs[0], "piped input is the same prompt"
    assert process.returncode == 0


def test_bad_files_end_with_their_code(command: Any, model: str, tmp_path: Path) -> None:
    (tmp_path / "page.gguf").write_text("<!DOCTYPE html><html></html>")
    for path, code in ((str(tmp_path / "page.gguf"), 4), (str(tmp_path / "none.gguf"), 3)):
        process = command("run", path, "-p", "x")
        out, err = process.communicate(timeout=60)
        assert process.returncode == code and out == b""
        assert err.startswith(b"error: ") and b"Traceback" not in err
    process = command("run", model, "-p", "word " * 50, "-c", "64")
    assert process.communicate(timeout=60)[1].startswith(b"error: ") and process.returncode == 2


def test_interrupt_while_starting_leaves_no_traceback(command: Any, model: str) -> None:
    code = (
        "import os, signal, sys, builtins; real = builtins.__import__\n"
        "def stop(name, *rest):\n"
        "    if name == 'typer': os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = stop\n"
        "from pyllamacpp.__main__ import main; main()"
    )
    process = command("run", model, "-p", "x", entry=("-c", code))
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (-signal.SIGINT, b"", b"")


def test_background_job_leaves_interrupts_to_others(command: Any, model: str) -> None:
    """A shell starts its background jobs with SIGINT ignored."""
    entry = ("-c", "from pyllamacpp.__main__ import main; main()")
    ignore = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    process = command("run", model, "-p", "x", "--raw", "--max-tokens", "300", entry=entry, **ignore)
    assert process.stdout.read(1)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_closed_standard_input_is_no_prompt(command: Any, model: str) -> None:
    closed = {"stdin": None, "preexec_fn": lambda: os.close(0)}
    process = command("run", model, **closed)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2 and out == b"" and err.startswith(b"error: the prompt is empty")
    process = command("run", model, "-p", "x", "--max-tokens", "2", **closed)
    assert process.communicate(timeout=60)[1] == b"" and process.returncode == 0


def test_reader_that_leaves_ends_it_quietly(command: Any, model: str) -> None:
    process = command("run", model, "-p", "x", "--raw", "--temp", "0")
    assert process.stdout.read(1)
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert process.stderr.read() == b""


def test_interrupted_process_keeps_what_it_said(command: Any, model: str) -> None:
    process = command("run", model, "-p", "x", "--raw", "--temp", "0")
    first = process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=60)
    assert process.returncode == 130 and (first + rest).endswith(b"\n") and err == b""


def test_pull_prints_the_path(model: str) -> None:
    assert invoke("pull", model).stdout == model + "\n"
    assert invoke("pull", "nothing.gguf").exit_code == 3


def test_tokenize_shows_ids_and_pieces(model: str) -> None:
    with pyllamacpp.Llama(model, vocab_only=True, verbose=False) as llm:
        ids = llm.tokenize(b"the hello", add_bos=False)
    lines = invoke("tokenize", model, "the hello", "--no-bos").stdout.splitlines()
    assert [int(line.split()[0]) for line in lines] == ids
    told = json.loads(invoke("tokenize", model, "--no-bos", "--json", stdin="the hello").stdout)
    assert [t["id"] for t in told] == ids and "".join(t["piece"] for t in told) == "theĠhello"
    plain = json.loads(invoke("tokenize", model, "<|im_end|>", "--json").stdout)
    special = json.loads(invoke("tokenize", model, "<|im_end|>", "--json", "--special").stdout)
    assert len(plain) > len(special) and special[-1]["piece"] == "<|im_end|>"


def test_info_tells_what_a_model_is(model: str, tmp_path: Path) -> None:
    facts = json.loads(invoke("info", model, "--json").stdout)
    assert facts["architecture"] == "llama" and facts["kind"] == "model" and facts["chat_template"] is True
    assert list(facts["formats"]) == ["F32"] and facts["bytes"] == 4 * facts["parameters"]
    assert (
        facts["memory"]["n_ctx"]
        == facts["memory"]["n_ctx_train"]
        == facts["shape"]["context_length"]
        == N_CTX
    )
    text = invoke("info", model).stdout
    assert "architecture" in text and "F32 100.0 %" in text and "KiB a token as f16," in text

    small = json.loads(invoke("info", model, "--json", "-ctk", "q8_0", "--cache-type-v", "i16").stdout)
    assert facts["kv_types"] == ["f16", "f16"] and small["kv_types"] == ["q8_0", "i16"]
    assert small["memory"]["kv_bytes_per_token"] < facts["memory"]["kv_bytes_per_token"]
    assert "a token as q8_0 and i16," in invoke("info", model, "-ctk", "q8_0", "-ctv", "i16").stdout
    refused = invoke("info", model, "-ctk", "q4_0")
    assert refused.exit_code == 2 and "no supported type of the KV cache" in refused.stderr

    projector = tiny.write(tmp_path / "p.gguf", metadata={"general.architecture": "clip"})
    result = invoke("info", str(projector))
    assert result.exit_code == 0 and "projector" in result.stdout and "cannot be run" in result.stdout
    adapter = tiny.write(tmp_path / "a.gguf", metadata={"general.type": "adapter"})
    assert "adapter" in json.loads(invoke("info", str(adapter), "--json").stdout)["kind"]
    (tmp_path / "x.gguf").write_bytes(b"no model")
    assert invoke("info", str(tmp_path / "x.gguf")).exit_code == 4


def test_doctor_tells_level_threads_and_memory() -> None:
    report = json.loads(invoke("doctor", "--json").stdout)
    assert report["cpu"]["level"] in report["cpu"]["levels"] and report["cpu"]["threads"] >= 1
    assert report["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    text = invoke("doctor").stdout
    assert (
        f"{report['cpu']['level']} ({report['cpu']['why']})" in text
        and report["cpu"]["threads_why"] in text
        and report["cpu"]["cores_found"] in text
    )


def test_version_and_help() -> None:
    assert invoke("--version").stdout == f"pyllamacpp {pyllamacpp.__version__}\n"
    assert all(name in invoke("--help").stdout for name in ("run", "pull", "info", "tokenize", "doctor"))


def test_only_what_is_needed_is_imported() -> None:
    code = (
        "import sys; import pyllamacpp.cli;"
        "heavy = {'numpy', 'rich', 'prompt_toolkit', 'tokenizers', 'jinja2', 'huggingface_hub', 'filelock'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


@pytest.mark.parametrize(("how", "more"), [([], set()), (["--raw"], {"jinja2"})], ids=["chat", "raw"])
def test_an_answer_imports_only_what_it_needs(
    command: Any, model: str, how: list[str], more: set[str]
) -> None:
    """Each of these would stand between a user and the first token; more: what that way of asking adds."""
    code = (
        "import sys; from pyllamacpp.cli import app; app(sys.argv[1:], standalone_mode=False);"
        "print(*sys.modules, file=sys.stderr)"
    )
    process = command("run", model, "-p", "Hi", "--max-tokens", "1", *how, entry=("-c", code))
    imported = set(process.communicate(timeout=60)[1].decode().split())
    assert process.returncode == 0 and {"pyllamacpp.llama", "tokenizers", "numpy"} <= imported
    heavy = {
        "rich", "prompt_toolkit", "markdown_it", "pygments", "huggingface_hub", "filelock", "tqdm", "httpx",
        "requests", "asyncio", "email", "http", "ssl", "multiprocessing", "unittest", "statistics",
        "importlib.metadata", "numpy.random", "numpy.fft", "numpy.ma", "numpy.polynomial", "numpy.testing",
    }  # fmt: skip
    assert not imported & (heavy | more)
