"""Streaming an answer to standard output, so that Ctrl-C stops the answer."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..errors import ParameterError
from ..params import SamplingParams, specs
from ..text.reasoning import Delta, ReasoningSplitter
from ..text.repair import repaired
from .options import NOT_FOR_A_TERMINAL
from .screen import dimmed

if TYPE_CHECKING:
    from .. import Llama
    from ..text.chat import ChatTemplate
    from .screen import Screen


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said and why it ended: "stop", "length" or "interrupted". speed: in words."""

    text: str
    reasoning: str
    finish_reason: str
    speed: str


_THINK_SWITCHES = ("enable_thinking", "thinking")  # as templates call it
Chunks = Iterator[dict[str, Any]]


def chat_chunks(
    llm: Llama,
    messages: Sequence[Mapping[str, Any]],
    params: SamplingParams,
    *,
    reasoning: str,
    variables: Mapping[str, Any] | None = None,
    repair: bool = True,
) -> tuple[Chunks, ReasoningSplitter | None]:
    """The answer to a conversation and what tells its thoughts apart; None where nothing is to be told apart.

    reasoning: "raw" leaves thoughts in the answer. variables: of the template.
    repair: change a conversation that the template refuses, if that helps, and say so on standard error.
    """
    variables = variables or {}

    def ask(messages: Sequence[Mapping[str, Any]]) -> tuple[Chunks, ReasoningSplitter | None]:
        template = llm.chat_template
        thoughts = None if template is None else template.reasoning
        chunks = llm.create_chat_completion(
            messages, stream=True, chat_template_kwargs=variables, **_arguments(params)
        )
        if template is None or thoughts is None or reasoning == "raw":
            return iter(chunks), None
        opened = thoughts.opened_by(template.render(messages, **variables))
        return iter(chunks), ReasoningSplitter(thoughts, opened=opened)

    asked, done = repaired(ask, messages) if repair else (ask(messages), [])
    if done:
        print(dimmed(f"(for this model's template {' and '.join(done)})"), file=sys.stderr)
    return asked


def completion_chunks(llm: Llama, prompt: str, params: SamplingParams) -> Iterator[dict[str, Any]]:
    return iter(llm.create_completion(prompt, stream=True, **_arguments(params)))


def _arguments(params: SamplingParams) -> dict[str, Any]:
    arguments = {n: getattr(params, n) for n in specs(SamplingParams) if n not in NOT_FOR_A_TERMINAL}
    return {**arguments, "logit_bias": params.logit_bias} if params.logit_bias else arguments


def thinking(template: ChatTemplate, wanted: bool, variables: Mapping[str, Any]) -> dict[str, Any]:
    """The variables that let the model think before it answers, or not, by whatever name the template knows.

    Error: ParameterError where the template writes the same prompt either way.
    """
    question = [{"role": "user", "content": "?"}]
    on, off = (dict.fromkeys(_THINK_SWITCHES, value) for value in (True, False))
    if template.render(question, **{**variables, **on}) == template.render(question, **{**variables, **off}):
        raise ParameterError(
            "this model's chat template cannot switch thinking on or off",
            "Leave it out; --chat-template-kwargs sets other variables of the template.",
        )
    return on if wanted else off


def print_answer(
    llm: Llama, chunks: Iterator[dict[str, Any]], screen: Screen, splitter: ReasoningSplitter | None = None
) -> Answer:
    """Show an answer as it comes. The first Ctrl-C ends it between two tokens."""
    thoughts: list[str] = []
    answer: list[str] = []

    def show(delta: Delta) -> None:
        for text, said in ((delta.reasoning, thoughts), (delta.content, answer)):
            if text:
                said.append(text)
                screen.write(text, reasoning=said is thoughts)

    reason = "stop"
    clock = _Clock(llm)
    with _interrupts() as interrupts:
        try:
            for chunk in chunks:
                choice = chunk["choices"][0]
                text = choice.get("text") or choice.get("delta", {}).get("content") or ""
                if text:
                    clock.tick()
                    interrupts.gentle = True
                    show(splitter.push(text) if splitter else Delta("", text))
                reason = choice["finish_reason"] or reason
                if interrupts.wanted:
                    reason = "interrupted"
                    break
            if hasattr(chunks, "close"):
                chunks.close()
            show(splitter.flush() if splitter else Delta("", ""))
        finally:
            screen.finish()
    return Answer("".join(answer), "".join(thoughts), reason, clock.report())


class _Interrupts:
    """`gentle`: Ctrl-C sets `wanted` and only a second one raises KeyboardInterrupt; else the first does."""

    gentle = False
    wanted = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        if not self.gentle or self.wanted:
            raise KeyboardInterrupt
        self.wanted = True


@contextlib.contextmanager
def _interrupts() -> Iterator[_Interrupts]:
    interrupts = _Interrupts()
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:  # a background job: the terminal's Ctrl-C is not for us
        yield interrupts
        return
    signal.signal(signal.SIGINT, interrupts.handle)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)


class _Clock:
    """Tokens and times of an answer."""

    def __init__(self, llm: Llama) -> None:
        self._llm = llm
        self._start = self._first = self._last = time.perf_counter()
        self._first_n = self._last_n = 0

    def tick(self) -> None:
        self._last, self._last_n = time.perf_counter(), self._llm.n_tokens
        if not self._first_n:
            self._first, self._first_n = self._last, self._last_n

    def report(self) -> str:
        """Tokens read and written, a second; how much of the context they fill."""
        run = self._llm.last_run
        if run is None or not self._first_n:
            return "no tokens"
        usage = run.usage
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        read, seconds = usage["prompt_tokens"] - cached, self._first - self._start
        tokens, kept = "token" if read == 1 else "tokens", f" ({cached} kept)" if cached else ""
        parts = [f"{read} {tokens} read{kept} in {seconds:.2f} s"]
        if read and seconds:
            parts[0] += f", {read / seconds:.0f}/s"
        n, seconds = self._last_n - self._first_n, self._last - self._first
        speed = f", {n / seconds:.1f}/s" if n and seconds else ""
        parts.append(f"{usage['completion_tokens']} written{speed}")
        parts.append(f"context {usage['total_tokens']} of {self._llm.n_ctx()}")
        return " · ".join(parts)
