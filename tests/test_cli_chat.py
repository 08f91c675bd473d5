"""The chat: with a fake `Llama` and typed lines; as the real program in a pseudo-terminal."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from fake_llama import FakeLlama, install
from prompt_toolkit.history import FileHistory
from terminal import ENTERED, PROMPT, Terminal, programs
from typer.testing import CliRunner

from pyllamacpp import errors
from pyllamacpp.cli import app, chat, editor
from pyllamacpp.cli import run as run_module
from pyllamacpp.cli.attachments import read_text, with_files
from pyllamacpp.cli.conversation import Conversation
from pyllamacpp.cli.settings import PARAMETERS, SWITCHES, Settings
from pyllamacpp.errors import ParameterError
from pyllamacpp.params import SamplingParams
from pyllamacpp.text.chat import ChatTemplate


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[FakeLlama]:
    made = install(monkeypatch, tmp_path)
    made.pieces = ["Yes."]
    return made


class Lines:
    """A prompt session that types these lines; an exception among them is raised."""

    def __init__(self, *lines: str | BaseException) -> None:
        self.lines = list(lines)
        self.drafts: list[str] = []

    def prompt(self, message: str, default: str = "", **rest: Any) -> str:
        self.drafts.append(default)
        line = self.lines.pop(0) if self.lines else EOFError()
        if isinstance(line, BaseException):
            raise line
        return line


def converse(
    fake: type[FakeLlama], monkeypatch: pytest.MonkeyPatch, *lines: str | BaseException,
    system: str | None = None, **params: Any,
) -> tuple[list[Any], Lines]:  # fmt: skip
    """What the model was asked in a chat of these lines, as (role, content) of all messages."""
    session = Lines(*lines)
    monkeypatch.setattr(chat, "_prompt_session", lambda keep_history: session)
    fake.asked.clear()
    settings = Settings(SamplingParams(**params))
    chat.Chat(fake("m"), settings, system=system, raw=False).loop()  # type: ignore[arg-type]
    assert session.lines == []
    return [[(m["role"], m["content"]) for m in messages] for _, messages, _ in fake.asked], session


YES = ("assistant", "Yes.")


def user(text: str) -> tuple[str, str]:
    return ("user", text)


def test_keeps_and_clears_the_conversation(
    fake: type[FakeLlama], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (
        "one",
        "",
        "two",
        "/clear",
        "three",
        "/usr/bin what",
        "//clear",
        '"""\nfour\n\nfive\n"""',
        "/quit",
    )
    asked, _ = converse(fake, monkeypatch, *lines, system="S")
    s = ("system", "S")
    assert asked == [
        [s, user("one")],
        [s, user("one"), YES, user("two")],
        [s, user("three")],
        [s, user("three"), YES, user("/usr/bin what")],
        [s, user("three"), YES, user("/usr/bin what"), YES, user("/clear")],
        [s, user("three"), YES, user("/usr/bin what"), YES, user("/clear"), YES, user("four\n\nfive")],
    ]
    out, err = capsys.readouterr()
    assert out == "Yes.\n" * 6
    assert err.count("12 tokens read (3 kept)") == 6
    assert "context 19 of 1000" in err


def test_help_names_every_command(
    fake: type[FakeLlama], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, _ = converse(fake, monkeypatch, "/help", "/cler", "/nonsense", "/bye")
    err = capsys.readouterr().err
    assert asked == []
    assert all(f"\n{name} " in err for name in chat.COMMANDS if name != "/help")
    assert "no command /cler; did you mean /clear?" in err and "no command /nonsense\n" in err


def test_survives_errors_and_interrupts(
    fake: type[FakeLlama], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.pieces = ["^C", "never"]
    asked, session = converse(fake, monkeypatch, "one", "two", EOFError())
    assert asked == [[user("one")], [user("two")]] and session.drafts == ["", "one", "two"]
    fake.pieces = ["part", "^C", "ial", "never"]
    asked, _ = converse(fake, monkeypatch, "one", "two", EOFError())
    assert asked[1] == [user("one"), ("assistant", "partial"), user("two")]
    fake.error = errors.ContextOverflowError("too long", "use n_ctx")
    asked, _ = converse(fake, monkeypatch, "one", "two", EOFError())
    assert asked == [[user("one")], [user("two")]]
    assert "/clear" in capsys.readouterr().err


def test_leaves_after_two_interrupts_in_a_row(fake: type[FakeLlama], monkeypatch: pytest.MonkeyPatch) -> None:
    stop = KeyboardInterrupt
    assert len(converse(fake, monkeypatch, stop(), "one", stop(), stop())[0]) == 1


def test_retry_undo_and_system(
    fake: type[FakeLlama], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ("/undo", "/retry", "one", "/retry", "two", "/undo", "three", "/system Be brief", "/retry",
             "/system none", "/retry")  # fmt: skip
    asked, session = converse(fake, monkeypatch, *lines)
    s = ("system", "Be brief")
    assert asked == [
        [user("one")],
        [user("one")],
        [user("one"), YES, user("two")],
        [user("one"), YES, user("three")],
        [s, user("one"), YES, user("three")],
        [user("one"), YES, user("three")],
    ]
    assert session.drafts[6] == "two", "what is taken back can be written anew"
    err = capsys.readouterr().err
    assert err.count("nothing has been asked yet") == 2 and "system message: Be brief" in err
    converse(fake, monkeypatch, "one", "/retry", seed=4)
    assert "with seed 4 the answer is the same" in capsys.readouterr().err


def test_set_changes_what_is_asked(
    fake: type[FakeLlama], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (
        "/set temp 0.5",
        "/set stop 'the end' \"x\"",
        "/set top-k 7",
        "/set think off",
        "one",
        "/set temperature default",
        "/set stop none",
        "/set think default",
        "two",
        "/set top_k many",
        "/set top_p 7",
        "/set tmperature 1",
        "/set think maybe",
        "/set min_p",
        "/set",
        "/show",
    )
    fake.chat_template = ChatTemplate("{{ thinking }}{{ messages }}")
    converse(fake, monkeypatch, *lines, temperature=0.9)
    (_, _, first), (_, _, second) = fake.asked
    assert (first["temperature"], first["stop"], first["top_k"]) == (0.5, ("the end", "x"), 7)
    assert first["chat_template_kwargs"] == {"enable_thinking": False, "thinking": False}
    assert (second["temperature"], second["stop"], second["top_k"]) == (0.9, (), 7)
    assert second["chat_template_kwargs"] == {}
    err = capsys.readouterr().err
    assert "top_k must be an integer in [-1, 2147483647], not 'many'" in err
    assert "top_p must be a finite number in [0, 1], not 7.0" in err
    assert "there is no tmperature to set; did you mean temperature?" in err
    assert "think is one of auto, on, off" in err
    assert all(f"\n{name} " in err for name in [*PARAMETERS, *SWITCHES])
    assert "sampling   temperature 0.9, top_k 7" in err and "m.gguf" in err


def test_set_takes_every_parameter_and_variables_of_the_template(
    fake: type[FakeLlama], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (
        '/set stop ["\\n", "End"]', '/set logit_bias {"5": -1.5}', '/set logit_bias {"5"',
        "/set logit_bias 3", "/set template.effort high", "/set template.n 3", "/set template.a-b 1", "one",
        "/set logit_bias none", "/set template.n default", "two", "/set think off", "/set",
    )  # fmt: skip
    converse(fake, monkeypatch, *lines)
    (_, _, first), (_, _, second) = fake.asked
    assert first["stop"] == ("\n", "End") and first["logit_bias"] == {5: -1.5}
    assert first["chat_template_kwargs"] == {"effort": "high", "n": 3}
    assert "logit_bias" not in second and second["chat_template_kwargs"] == {"effort": "high"}
    err = capsys.readouterr().err
    assert err.count("error: logit_bias must be") == 2 and "error: 'a-b' cannot be the name" in err
    assert "error: this model's chat template cannot switch thinking" in err
    assert "\nthink auto" in err and '\ntemplate.effort "high"' in err
    values = {"min_tokens": "2", "typical_p": "0.9", "mirostat_tau": "4.0", "seed": "9", "dry_base": "2.0"}
    for name in PARAMETERS:
        chosen = Settings(SamplingParams())
        if name in values:
            assert chosen.set(name, values[name]) == f"{name} {values[name]}"
        assert chosen.set(name, "default") == Settings(SamplingParams()).shown(name)


def test_variables_of_the_template_from_the_command_line(
    fake: type[FakeLlama], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module.select, "select", lambda *a: ([1], [], []))
    run = ["run", "m.gguf", "-p", "x"]
    fake.chat_template = ChatTemplate("{{ enable_thinking }}{{ messages }}")
    result = CliRunner().invoke(app, [*run, "--no-think", "--chat-template-kwargs", '{"a": 1}'])
    assert result.exit_code == 0, result.stderr
    assert fake.asked[0][2]["chat_template_kwargs"] == {"a": 1, "enable_thinking": False, "thinking": False}
    fake.chat_template = ChatTemplate("{{ messages }}")
    for more, why in (
        (["--think"], "cannot switch thinking"), (["--chat-template-kwargs", "{"], "is not JSON"),
        (["--chat-template-kwargs", "[1]"], "must be a JSON object"), (["--raw", "--think"], "need a chat"),
    ):  # fmt: skip
        result = CliRunner().invoke(app, [*run, *more])
        assert result.exit_code == 2 and why in result.stderr


def test_repair_can_be_refused(fake: type[FakeLlama], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(messages: Any, **rest: Any) -> Any:
        raise errors.ChatTemplateError("No system role")

    monkeypatch.setattr(run_module.select, "select", lambda *a: ([1], [], []))
    monkeypatch.setattr(fake, "create_chat_completion", staticmethod(refuse))
    result = CliRunner().invoke(app, ["run", "m.gguf", "-p", "x", "--system", "S", "--no-repair"])
    assert result.exit_code == 5 and result.stderr == "error: No system role\n"


def test_files_go_with_the_next_message(
    fake: type[FakeLlama], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a b.py").write_text("x = '''\n```\n'''")
    (tmp_path / "wide.txt").write_bytes("é\n".encode("utf-16"))
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "long").write_text("x" * 1000)
    lines = ("/file a b.py", f"/file '{tmp_path}/wide.txt'", "/file binary", "/file latin", "/file long",
             "/file .", "/file none", "/file", "what?", "more")  # fmt: skip
    asked, _ = converse(fake, monkeypatch, *lines)
    message = "a b.py:\n````\nx = '''\n```\n'''\n````\n\nwide.txt:\n```\né\n```\n\nwhat?"
    assert asked == [[user(message)], [user(message), YES, user("more")]]
    err = capsys.readouterr().err
    for told in ("binary is no text: it holds zero bytes", "latin is no text: it is not utf-8 at byte 3",
                 "long has 1000 tokens, the context 1000", ". is a folder", "none is no file",
                 "a path has to follow"):  # fmt: skip
        assert told in err
    assert with_files("", [(Path("x"), "y\n")]) == "x:\n```\ny\n```\n\n"
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbfz")
    assert read_text(tmp_path / "marked") == "z"


def test_saved_conversations_go_on(
    fake: type[FakeLlama], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "other.json").write_text("mine")
    lines = ("one", "/save c.json", "two", "/save c.json", "/save other.json", "no", "/save")
    converse(fake, monkeypatch, *lines, system="S")
    assert (tmp_path / "other.json").read_text() == "mine"
    saved = json.loads((tmp_path / "c.json").read_text())
    assert [m["role"] for m in saved["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    assert stat.S_IMODE((tmp_path / "c.json").stat().st_mode) == 0o600
    asked, _ = converse(fake, monkeypatch, "/load c.json", "three", "/save other.json", "y")
    assert asked == [[("system", "S"), user("one"), YES, user("two"), YES, user("three")]]
    assert json.loads((tmp_path / "other.json").read_text())["messages"][-1]["content"] == "Yes."
    assert "4 messages" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"), ("[" * 100_000, "not JSON"), ('"x"', "no list of messages"), ("{}", "no list"),
        ("[3]", "message 1 has no role"), ('[{"role": "user", "content": 4}]', "content of message 1"),
        ('{"messages": [{"role": "user"}, {"role": 1}]}', "message 2 has no role"), ("\xff", "not JSON"),
    ],
)  # fmt: skip
def test_what_is_no_conversation_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "x").write_bytes(text.encode("latin-1"))
    with pytest.raises(ParameterError, match=why):
        Conversation.load(tmp_path / "x")
    with pytest.raises(ParameterError, match="cannot read"):
        Conversation.load(tmp_path / "none")
    with pytest.raises(ParameterError, match="cannot write"):
        Conversation().save(tmp_path / "no" / "folder", "m")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read in (Conversation.load, read_text):
        with pytest.raises(ParameterError):
            read(tmp_path / "pipe")


def test_saving_fails_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c"
    conversation = Conversation("S")
    conversation.save(path, "m")
    before = path.read_bytes()

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    conversation.keep([{"role": "user", "content": "x"}], "y", "thought")
    with pytest.raises(ParameterError, match="No space left"):
        conversation.save(path, "m")
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_settings_refuse_what_has_no_effect() -> None:
    settings = Settings(SamplingParams())
    with pytest.raises(ParameterError, match="no effect"):
        settings.set("samplers", "top_k") and settings.set("min_p", "0.3")
    assert settings.set("samplers", "top_k,min_p,temperature") == "samplers 'top_k' 'min_p' 'temperature'"
    assert settings.set("samplers", "none") == "samplers none" and settings.params.samplers is None
    assert settings.set("n", "-1") == "max_tokens none"


def test_history_is_private_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    history = editor._history()
    assert stat.S_IMODE(editor.history_path().stat().st_mode) == 0o600
    assert stat.S_IMODE(editor.history_path().parent.stat().st_mode) == 0o700
    for i in range(30):
        history.store_string(f"{i} " + "x" * 50_000)
    kept = list(editor._history().load_history_strings())  # type: ignore[attr-defined]
    assert kept[0].startswith("29 ") and 5 < len(kept) < 15
    assert all(re.fullmatch(r"\d+ x{50000}", one) for one in kept)
    editor.history_path().chmod(0o644)
    history = editor._history()
    assert stat.S_IMODE(editor.history_path().stat().st_mode) == 0o600
    history.append_string(" not for long")
    assert next(iter(editor._history().load_history_strings())) != " not for long"  # type: ignore[attr-defined]
    monkeypatch.setattr(FileHistory, "store_string", lambda *arguments: os.mkdir("/dev/null"))
    history.append_string("the disk is full")
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    assert type(editor._history()).__name__ == "InMemoryHistory"


@pytest.mark.parametrize(
    ("text", "still_open", "message"),
    [
        ("hello", False, "hello"), ('"""', True, '"""'), ('"""a', True, '"""a'), ('""""""', False, ""),
        ('"""a\nb"""', False, "a\nb"), ('"""\na\n"""', False, "a"), ('say """ now', False, 'say """ now'),
        ('"""a""" b', True, '"""a""" b'),
    ],
)  # fmt: skip
def test_triple_quotes(text: str, still_open: bool, message: str) -> None:
    assert editor.is_open(text) is still_open
    assert editor.unquoted(text) == message


THINKER = ChatTemplate("{{ messages | length }}{{ '</think>' if enable_thinking is false else '<think>' }}")


def test_thoughts_are_told_apart(
    fake: type[FakeLlama], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.chat_template = THINKER
    fake.pieces = ["So", ".</thi", "nk>\n\nYe", "s."]
    converse(fake, monkeypatch, "one", "/set reasoning hide", "two", "/set reasoning raw", "three")
    shown = ["(thinking)\nSo.\n(answer)\nYes.\n", "Yes.\n", "So.</think>\n\nYes.\n"]
    assert capsys.readouterr().out == "".join(shown)
    thought = {"role": "assistant", "content": "Yes.", "reasoning_content": "So."}
    assert [fake.asked[i][1][-2] for i in (1, 2)] == [thought, thought]
    fake.pieces = ["Yes</think>."]
    converse(fake, monkeypatch, "/set think off", "one")
    assert capsys.readouterr().out == "Yes</think>.\n", "the prompt has opened no thoughts"


@pytest.mark.parametrize(
    ("arguments", "out"),
    [((), "Yes.\n"), (("--reasoning", "show"), "(thinking)\nSo.\n(answer)\nYes.\n"),
     (("--reasoning", "raw"), "So.</think>Yes.\n")],
)  # fmt: skip
def test_thoughts_of_one_answer(
    fake: type[FakeLlama], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], out: str
) -> None:
    monkeypatch.setattr(run_module.select, "select", lambda *a: ([1], [], []))
    fake.chat_template = THINKER
    fake.pieces = ["So.</think>Yes."]
    result = CliRunner().invoke(app, ["run", "m.gguf", "-p", "x", *arguments])
    assert (result.exit_code, result.stdout) == (0, out)
    assert CliRunner().invoke(app, ["run", "m.gguf", "-p", "x", "--reasoning", "no"]).exit_code == 2


def test_a_strict_template_gets_its_conversation(
    fake: type[FakeLlama], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = fake.create_chat_completion

    def strict(self: FakeLlama, messages: Any, **arguments: Any) -> Any:
        if messages[0]["role"] == "system":
            raise errors.ConversationRefusedError("no system, please")
        return ask(self, messages, **arguments)

    monkeypatch.setattr(fake, "create_chat_completion", strict)
    asked, _ = converse(fake, monkeypatch, "one", "two", system="S")
    assert asked == [[user("S\n\none")], [user("S\n\none"), YES, user("two")]]
    assert capsys.readouterr().err.count("the system message was put before the first question") == 2


# ---- the real program in a terminal -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Answers of likeliest tokens do not end before its context is full, which takes long."""
    return str(tiny.write(tmp_path_factory.mktemp("chat") / "tiny.gguf", "llama", "F32", n_ctx=100_000))


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Any]:
    with programs(tmp_path) as start:
        yield start


def test_in_a_terminal(command: Any, model: str, tmp_path: Path) -> None:
    terminal = Terminal(command, "run", model, "--temp", "0", "-n", "4000")
    terminal.wait_for(PROMPT)
    terminal.type("first\x1b\rsecond\r")  # Alt-Enter
    terminal.wait_for(ENTERED + r"[\s\S]*?([^\x1b\s])\1{4}")  # this model repeats itself
    terminal.type("\x03")  # in the middle of an answer
    terminal.wait_for(r"tokens read in .* written")
    terminal.wait_for(PROMPT)
    terminal.type("\x1b[200~pasted\nlines\x1b[201~\r")
    terminal.wait_for(r"kept\) in")
    terminal.wait_for(PROMPT)
    terminal.type("/sa\t")
    terminal.wait_for("ve")  # the rest of /save, or all of it
    terminal.type(f"{tmp_path}/c.json\r")
    terminal.wait_for("saved as")
    terminal.wait_for(PROMPT)
    terminal.type("\x04")
    assert terminal.close() == 0
    saved = json.loads((tmp_path / "c.json").read_text())["messages"]
    assert [m["content"] for m in saved if m["role"] == "user"] == ["first\nsecond", "pasted\nlines"]
    assert all(m["content"] for m in saved)

    again = Terminal(command, "run", model, "--temp", "0", "-n", "1")
    again.wait_for(PROMPT)
    again.type("\x1b[A\x1b[A")  # history of the other process: the command, then the message
    again.wait_for("pasted")
    again.type("\x03")  # discards the line
    again.wait_for(r"\x1b\[")
    again.type("\x03")
    again.wait_for("again")
    again.wait_for(PROMPT)
    again.type("\x03")
    assert again.close() == 0


def test_is_left_by_two_interrupts(command: Any, model: str) -> None:
    terminal = Terminal(command, "run", model, "--no-history")
    terminal.wait_for(PROMPT)
    terminal.type("\x03")
    terminal.wait_for("again")
    terminal.wait_for(PROMPT)
    terminal.type("\x03")
    assert terminal.close() == 0


@pytest.mark.parametrize("command", ["/file", "/load", "/save"])
@pytest.mark.parametrize("path", ["~nobodyatall/x", "a\0b", "a" * 300, "\0"])
def test_what_is_no_path_does_not_end_the_chat(
    fake: type[FakeLlama],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    path: str,
) -> None:
    asked, _ = converse(fake, monkeypatch, f"{command} {path}", "one")
    assert asked == [[user("one")]]
    assert "is no path: " in capsys.readouterr().err


def test_no_answer_to_a_question_is_no(
    fake: type[FakeLlama], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "held").write_text("mine")
    asked, _ = converse(fake, monkeypatch, "/save held", EOFError(), "one")
    assert asked == [[user("one")]] and (tmp_path / "held").read_text() == "mine"


def test_messages_have_lines_after_a_question(
    fake: type[FakeLlama], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What prompt_toolkit is given for one prompt stays for the next ones."""
    (tmp_path / "held").write_text("mine")
    given: list[Any] = []
    real = Lines.prompt

    def prompt(self: Lines, message: str, default: str = "", **rest: Any) -> str:
        given.append(rest.get("multiline"))
        return real(self, message, default, **rest)

    monkeypatch.setattr(Lines, "prompt", prompt)
    converse(fake, monkeypatch, "/save held", "n", "one")
    assert given == [True, False, True, True]


def test_endless_files_are_no_conversations() -> None:
    with pytest.raises(ParameterError, match="it is no file"):
        Conversation.load(Path("/dev/zero"))


def test_history_that_can_no_longer_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    history = editor._history()
    shutil.rmtree(tmp_path / "state")
    history.append_string("one")
    history.append_string("two")
    assert capsys.readouterr().err.count("no history is kept from here on") == 1
    assert history.get_strings()[-2:] == ["one", "two"]
