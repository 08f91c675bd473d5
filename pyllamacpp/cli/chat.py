"""The interactive chat: keeps the conversation, streams the answers."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from ..errors import ContextOverflowError, PyllamacppError
from ..params import SamplingParams
from .answer import chat_chunks, completion_chunks, print_answer
from .guard import print_error

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from .. import Llama

HELP = """/clear  forget the conversation
/quit   leave (also Ctrl-D, or Ctrl-C twice)
/help   this text
Ctrl-C  stops an answer"""


class Chat:
    """One conversation with a model. raw: every line is a text to complete, and nothing is kept."""

    def __init__(
        self, llm: Llama, params: SamplingParams, *, system: str | None, raw: bool, verbose: bool
    ) -> None:
        self._llm, self._params, self._raw, self._verbose = llm, params, raw, verbose
        self._opening = [] if system is None else [{"role": "system", "content": system}]
        self._messages = list(self._opening)

    def loop(self) -> None:
        """Read lines and answer them until the user leaves."""
        session = _prompt_session()
        print("/help for help, Ctrl-D to quit", file=sys.stderr)
        interrupted = False
        while True:
            try:
                line = session.prompt("> ")
            except EOFError:
                return
            except KeyboardInterrupt:
                if interrupted:
                    return
                interrupted = True
                print("Ctrl-C again or Ctrl-D to quit", file=sys.stderr)
                continue
            interrupted = False
            if re.fullmatch(r"\s*/[a-z]*\s*", line):
                if not self._command(line.strip()):
                    return
            elif line.strip():
                self._answer(line)

    def _command(self, command: str) -> bool:
        """False to leave."""
        if command in ("/quit", "/exit"):
            return False
        if command == "/clear":
            self._messages = list(self._opening)
            print("The conversation is forgotten.", file=sys.stderr)
        else:
            print(HELP if command == "/help" else f"no command {command}\n{HELP}", file=sys.stderr)
        return True

    def _answer(self, line: str) -> None:
        """Answer a line; what cannot be answered is reported and not kept."""
        asked = [*self._messages, {"role": "user", "content": line}]
        try:
            if self._raw:
                chunks = completion_chunks(self._llm, line, self._params)
            else:
                chunks = chat_chunks(self._llm, asked, self._params)
            answer = print_answer(self._llm, chunks, verbose=self._verbose)
        except KeyboardInterrupt:  # before the first token
            print("stopped", file=sys.stderr)
        except ContextOverflowError as error:
            print_error(
                ContextOverflowError(
                    error.args[0], "/clear forgets the conversation; -c sets a larger context."
                )
            )
        except PyllamacppError as error:
            print_error(error)
        else:
            if answer.finish_reason == "length":
                print(f"({length_note(self._params)})", file=sys.stderr)
            self._messages = [*asked, {"role": "assistant", "content": answer.text}]


def length_note(params: SamplingParams) -> str:
    """Why an answer ended before the model had ended it."""
    if params.max_tokens is None:
        return "stopped: the context is full"
    return f"stopped after --max-tokens {params.max_tokens}, or with a full context"


def _prompt_session() -> PromptSession[str]:
    """Line editing with a history of this session; on standard error: standard output is answers only."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.output import create_output

    return PromptSession(output=create_output(sys.stderr if sys.stderr.isatty() else sys.stdout))
