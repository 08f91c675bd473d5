"""The interactive chat: messages, commands, answers."""

from __future__ import annotations

import contextlib
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ContextOverflowError, ParameterError, PyllamacppError
from ..params import SamplingParams
from .answer import chat_chunks, completion_chunks, print_answer, thinking
from .attachments import read_text, with_files
from .conversation import Conversation, Message
from .guard import print_error
from .screen import Screen, dimmed
from .settings import PARAMETERS, SWITCHES, Settings, nearest

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from .. import Llama

_KEYS = '''Enter sends; Alt-Enter begins a new line, as does Enter between """ and """.
Ctrl-C stops an answer; Ctrl-D, or Ctrl-C twice, leaves. A message that begins with / is written with //.'''
_TO_EDIT = 2000  # characters of a message that is put back into the prompt


class Command(NamedTuple):
    """One /command: what may follow it, what it does, and the method of `Chat`."""

    argument: str
    help: str
    run: Callable[[Chat, str], None]


class Leave(Exception):
    """The user has had enough."""


class Chat:
    """One conversation with a model. raw: every message is a text to complete, and nothing is kept."""

    def __init__(
        self,
        llm: Llama,
        settings: Settings,
        *,
        system: str | None,
        raw: bool,
        keep_history: bool = True,
        repair: bool = True,
    ) -> None:
        """keep_history: for the next chat. repair: conversations that the template refuses."""
        self._llm, self._settings, self._raw, self._repair = llm, settings, raw, repair
        if not raw:
            self._variables()  # a switch that is not there is told now
        self._conversation = Conversation(system)
        self._files: list[tuple[Path, str]] = []
        self._saved_as: Path | None = None
        self._session = _prompt_session(keep_history)
        self._draft = ""  # what the next prompt begins with

    def loop(self) -> None:
        """Read messages and answer them until the user leaves."""
        with contextlib.suppress(KeyboardInterrupt):  # a second one that came before the prompt was there
            self._loop()

    def _loop(self) -> None:
        _tell("/help for help, Ctrl-D to leave")
        interrupted = False
        while True:
            draft, self._draft = self._draft, ""
            try:
                text = self._session.prompt("> ", default=draft, multiline=True)
                interrupted = False
                self._obey(text)
            except (EOFError, Leave):
                return
            except KeyboardInterrupt:
                if interrupted:
                    return
                interrupted = True
                _tell("Ctrl-C again or Ctrl-D to leave")
            except PyllamacppError as error:
                print_error(error)

    def _obey(self, text: str) -> None:
        """A command or a message."""
        from .editor import unquoted

        name, _, argument = text.strip().partition(" ")
        if name.startswith("/") and name.count("/") == 1:
            command = COMMANDS.get(name)
            if command is None:
                raise ParameterError(
                    f"there is no command {name}{nearest(name, list(COMMANDS))}",
                    "/help lists them; a message that begins with / is written with //.",
                )
            command.run(self, argument.strip())
            return
        message = unquoted(text.replace("//", "/", 1) if name.startswith("//") else text)
        if message.strip() or self._files:
            self._say(message)

    # Answers

    def _say(self, text: str) -> None:
        if self._raw:
            self._finish(print_answer(self._llm, completion_chunks(self._llm, text, self._params),
                                      self._screen()).speed)  # fmt: skip
            return
        content = with_files(text, self._files)
        if self._answer([*self._conversation.messages, {"role": "user", "content": content}]):
            self._files = []
        else:
            self._draft = text

    def _answer(self, asked: list[Message]) -> bool:
        """Answer the last of the messages. False, and nothing is kept, if it was stopped before it began."""
        try:
            chunks, splitter = chat_chunks(
                self._llm,
                self._conversation.with_system(asked),
                self._params,
                reasoning=self._settings["reasoning"],
                variables=self._variables(),
                repair=self._repair,
            )
            answer = print_answer(self._llm, chunks, self._screen(), splitter)
        except KeyboardInterrupt:  # before the first token
            _tell("stopped")
            return False
        except ContextOverflowError as error:
            raise ContextOverflowError(
                error.args[0],
                "/undo takes the last question back, /clear forgets all; -c sets a larger context.",
            ) from None
        self._conversation.keep(asked, answer.text, answer.reasoning)
        if answer.finish_reason == "length":
            _tell(f"({length_note(self._params)})")
        self._finish(answer.speed)
        return True

    def _variables(self) -> dict[str, Any]:
        """Of the chat template."""
        variables, template = dict(self._settings.variables), self._llm.chat_template
        if self._settings["think"] == "auto" or template is None:
            return variables
        return {**variables, **thinking(template, self._settings["think"] == "on", variables)}

    def _finish(self, speed: str) -> None:
        if self._settings["speed"] == "on":
            _tell(speed)

    def _screen(self) -> Screen:
        return Screen(
            thoughts=self._settings["reasoning"] != "hide",
            markdown=self._settings["markdown"] == "on" and not self._raw,
        )

    @property
    def _params(self) -> SamplingParams:
        return self._settings.params

    # Commands

    def help(self, argument: str) -> None:
        _tell_table([(f"{name} {command.argument}", command.help) for name, command in COMMANDS.items()])
        print(_KEYS, file=sys.stderr)

    def system(self, argument: str) -> None:
        if argument:
            self._conversation.system = None if argument == "none" else argument
        told = self._conversation.system
        _tell("no system message" if told is None else f"system message: {told}")

    def set(self, argument: str) -> None:
        name, _, value = argument.partition(" ")
        if value.strip():
            told = self._settings.set(name, value.strip())
            if name == "think":
                self._check_think()
            _tell(told)
            return
        rows = self._settings.table()
        if name:
            rows = [row for row in rows if row[0].split(" ")[0] == name.replace("-", "_")]
            if not rows:
                raise ParameterError(f"there is no {name} to set{nearest(name, [*SWITCHES, *PARAMETERS])}")
        _tell_table(rows)

    def _check_think(self) -> None:
        """Refuse a switch that this template lacks."""
        try:
            self._variables()
        except PyllamacppError:
            self._settings.set("think", "auto")
            raise

    def show(self, argument: str) -> None:
        llm, messages = self._llm, self._conversation.messages
        template = "none (raw)" if self._raw else "the model's own" if llm.chat_template else "none"
        rows = {
            "model": llm.model_path,
            "context": f"{llm.n_tokens} of {llm.n_ctx()} tokens in use, {llm.n_ctx() - llm.n_tokens} left",
            "template": template,
            "system": self._conversation.system or "none",
            "messages": f"{len(messages)}" + (f", {len(self._files)} files attached" if self._files else ""),
            "last seed": str(llm.last_seed),
            "sampling": ", ".join(self._settings.changed()) or "as usual",
        }
        _tell_table(list(rows.items()))

    def save(self, argument: str) -> None:
        path = self._path(argument)
        if path.exists() and path != self._saved_as and not self._agrees(f"{path} exists. Write over it?"):
            _tell("not saved")
            return
        self._conversation.save(path, self._llm.model_path)
        self._saved_as = path
        _tell(f"saved as {path}")

    def load(self, argument: str) -> None:
        path = self._path(argument)
        self._conversation = Conversation.load(path)
        self._saved_as = path
        _tell(f"{len(self._conversation.messages)} messages")

    def clear(self, argument: str) -> None:
        self._conversation.messages = []
        self._files = []
        _tell("The conversation is forgotten.")

    def retry(self, argument: str) -> None:
        before = self._conversation.without_last()
        if self._params.seed is not None:
            _tell(f"with seed {self._params.seed} the answer is the same: /set seed none")
        self._answer([*before, self._conversation.messages[len(before)]])

    def undo(self, argument: str) -> None:
        before = self._conversation.without_last()
        taken = self._conversation.messages[len(before)]["content"]
        self._conversation.messages = before
        if isinstance(taken, str) and len(taken) <= _TO_EDIT:
            self._draft = taken
        _tell("taken back: the last question and its answer")

    def file(self, argument: str) -> None:
        path = self._path(argument)
        text = read_text(path)
        n_tokens = len(self._llm.tokenize(text.encode("utf-8"), add_bos=False))
        if n_tokens >= self._llm.n_ctx():
            raise ParameterError(
                f"{path} has {n_tokens} tokens, the context {self._llm.n_ctx()}",
                "Take a part of it, or start with a larger context (-c).",
            )
        self._files.append((path, text))
        _tell(f"{path.name}, {n_tokens} tokens, goes with your next message")

    def quit(self, argument: str) -> None:
        raise Leave

    def _path(self, argument: str) -> Path:
        if not argument:
            raise ParameterError("a path has to follow the command")
        try:
            path = Path(argument.strip("'\"") if argument[0] in "'\"" else argument).expanduser()
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                path.stat()
        except (OSError, ValueError, RuntimeError) as error:  # too long; a zero byte; ~nobody
            why = error.strerror if isinstance(error, OSError) else error
            raise ParameterError(f"{argument!r} is no path: {why}") from None
        return path

    def _agrees(self, question: str) -> bool:
        try:
            answer = self._session.prompt(f"{question} [y/N] ", default="", multiline=False)
        except EOFError:  # no answer; the chat goes on
            return False
        return answer.strip().lower() in ("y", "yes")


COMMANDS = {
    "/help": Command("", "this text", Chat.help),
    "/system": Command("[TEXT]", "show or set the system message; none: without one", Chat.system),
    "/set": Command("[NAME [VALUE]]", "show or set parameters; default: as the chat began", Chat.set),
    "/show": Command("", "the model, the context, the settings that differ", Chat.show),
    "/save": Command("PATH", "save the conversation", Chat.save),
    "/load": Command("PATH", "go on with a saved one", Chat.load),
    "/clear": Command("", "forget the conversation", Chat.clear),
    "/retry": Command("", "answer the last question anew", Chat.retry),
    "/undo": Command("", "take the last question back, to write it anew", Chat.undo),
    "/file": Command("PATH", "put a text file into the next message", Chat.file),
    "/quit": Command("", "leave", Chat.quit),
    "/exit": Command("", "leave", Chat.quit),
    "/bye": Command("", "leave", Chat.quit),
}


def length_note(params: SamplingParams) -> str:
    """Why an answer ended before the model had ended it."""
    if params.max_tokens is None:
        return "stopped: the context is full; /undo or /clear makes room, -c sets a larger one"
    return f"stopped after --max-tokens {params.max_tokens}, or with a full context"


def _tell(text: str) -> None:
    print(dimmed(text), file=sys.stderr)


def _tell_table(rows: list[tuple[str, str]]) -> None:
    """Two columns, the second folded to fit the terminal."""
    left = max(len(name) for name, _ in rows) + 2
    width = max(20, shutil.get_terminal_size().columns - left - 1)
    for name, value in rows:
        first, *more = textwrap.wrap(value, width) or [""]
        print(f"{name:<{left}}{first}".rstrip(), file=sys.stderr)
        for line in more:
            print(" " * left + line, file=sys.stderr)


def _prompt_session(keep_history: bool) -> PromptSession[str]:
    from .editor import make_session

    arguments = {name: command.argument.strip("[]").split(" ")[0] for name, command in COMMANDS.items()}
    return make_session(arguments, lambda: [*SWITCHES, *PARAMETERS], keep_history=keep_history)
