"""Reading the user's messages: line editing, several lines, history, completion."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output

from .screen import dimmed

if TYPE_CHECKING:
    from collections.abc import Callable

_QUOTES = '"""'
_HISTORY_BYTES = 1 << 20


def make_session(
    commands: Mapping[str, str], names: Callable[[], Iterable[str]], *, keep_history: bool
) -> PromptSession[str]:
    """A prompt on standard error, as standard output is for answers only.

    commands: name -> what its argument is: "PATH", "NAME" (one of names()) or anything else.
    """
    session: PromptSession[str] = PromptSession(
        output=create_output(sys.stderr if sys.stderr.isatty() else sys.stdout),
        history=_history() if keep_history else InMemoryHistory(),
        completer=_Commands(commands, names),
        complete_while_typing=False,
        key_bindings=_bindings(),
        multiline=True,
        prompt_continuation=lambda width, line, soft: "… ".rjust(width) if not soft else "",
        enable_history_search=False,
    )
    session.default_buffer.on_text_changed += lambda buffer: setattr(
        session, "bottom_toolbar", _hint(buffer.text)
    )
    return session


def unquoted(text: str) -> str:
    """The message between triple quotes; any other as it is."""
    inner = text.strip()
    if len(inner) >= 2 * len(_QUOTES) and inner.startswith(_QUOTES) and inner.endswith(_QUOTES):
        return inner[len(_QUOTES) : -len(_QUOTES)].strip("\n")
    return text


def is_open(text: str) -> bool:
    """A block of triple quotes has begun and not ended: the next Enter belongs to the message."""
    inner = text.strip()
    ended = len(inner) >= 2 * len(_QUOTES) and inner.endswith(_QUOTES)
    return inner.startswith(_QUOTES) and not ended


def _hint(text: str) -> str | None:
    """What the keys do, only where one could not know it."""
    if is_open(text):
        return f"Enter: next line · {_QUOTES} Enter: send · Ctrl-C: discard"
    return "Enter: send · Alt-Enter: next line · Ctrl-C: discard" if "\n" in text else None


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_open(buffer.text):
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @bindings.add("c-c")
    def _(event: KeyPressEvent) -> None:
        """As in a shell: discard what is written; an empty prompt is for the chat to answer."""
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return bindings


class _Commands(Completer):
    """Completes /commands, and what comes after those that know."""

    def __init__(self, commands: Mapping[str, str], names: Callable[[], Iterable[str]]) -> None:
        self._commands = commands
        self._names = names
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        command, space, argument = text.partition(" ")
        if not space:
            choices, begun = [name + " " * bool(what) for name, what in self._commands.items()], text
        elif self._commands.get(command) == "PATH":
            yield from self._paths.get_completions(Document(argument), event)
            return
        elif self._commands.get(command) == "NAME" and " " not in argument:
            choices, begun = [*self._names()], argument
        else:
            return
        for choice in choices:
            if choice.startswith(begun):
                yield Completion(choice, -len(begun))


def history_path() -> Path:
    """In $XDG_STATE_HOME/pyllamacpp, else ~/.local/state/pyllamacpp; on a Mac where its programs keep it."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "pyllamacpp" / "history"
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "pyllamacpp" / "history"


def _history() -> History:
    """What was asked in earlier chats, from a file only its owner can read; without one, of this chat."""
    try:
        path = history_path()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            os.fchmod(handle, 0o600)
        finally:
            os.close(handle)
        _shorten(path)
    except (OSError, RuntimeError) as error:  # RuntimeError: nobody's home
        print(dimmed(f"no history is kept: {error}"), file=sys.stderr)
        return InMemoryHistory()
    return _PrivateHistory(str(path))


class _PrivateHistory(FileHistory):
    """Like a shell's: what begins with a blank is not remembered. A full disk costs the history, no chat."""

    _told = False

    def append_string(self, string: str) -> None:
        if not string.startswith(" "):
            super().append_string(string)

    def store_string(self, string: str) -> None:
        try:
            super().store_string(string)
        except OSError as error:
            if not self._told:
                print(dimmed(f"\nno history is kept from here on: {error}"), file=sys.stderr)
            self._told = True


def _shorten(path: Path) -> None:
    """Forget the older half of a long history. An entry begins with a comment after an empty line."""
    if path.stat().st_size <= _HISTORY_BYTES:
        return
    data = path.read_bytes()
    _, found, rest = data[-_HISTORY_BYTES // 2 :].partition(b"\n\n#")
    path.write_bytes(b"\n#" + rest if found else b"")
