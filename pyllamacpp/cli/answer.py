"""Streaming an answer to standard output, so that Ctrl-C stops the answer."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from ..params import SamplingParams, specs
from .options import NOT_FOR_A_TERMINAL

if TYPE_CHECKING:
    from .. import Llama
    from .conversation import Message
    from .screen import Screen


@dataclass(frozen=True, slots=True)
class Answer:
    """What was said and why it ended: "stop", "length" or "interrupted". speed: in words."""

    text: str
    reasoning: str
    finish_reason: str
    speed: str


class Splitter(Protocol):
    """Tells thoughts from the answer: pieces of (is it a thought, text)."""

    def feed(self, text: str) -> list[tuple[bool, str]]: ...
    def finish(self) -> list[tuple[bool, str]]: ...


class _NoThoughts:
    """All of it is the answer."""

    def feed(self, text: str) -> list[tuple[bool, str]]:
        return [(False, text)]

    def finish(self) -> list[tuple[bool, str]]:
        return []


def chat_chunks(
    llm: Llama, messages: list[Message], params: SamplingParams, template: dict[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    chunks = llm.create_chat_completion(
        messages, stream=True, chat_template_kwargs=template, **_arguments(params)
    )
    return iter(chunks)


def completion_chunks(llm: Llama, prompt: str, params: SamplingParams) -> Iterator[dict[str, Any]]:
    return iter(llm.create_completion(prompt, stream=True, **_arguments(params)))


def _arguments(params: SamplingParams) -> dict[str, Any]:
    return {name: getattr(params, name) for name in specs(SamplingParams) if name not in NOT_FOR_A_TERMINAL}


def print_answer(
    llm: Llama, chunks: Iterator[dict[str, Any]], screen: Screen, splitter: Splitter | None = None
) -> Answer:
    """Show an answer as it comes. The first Ctrl-C ends it between two tokens."""
    split = splitter or _NoThoughts()
    said: dict[bool, list[str]] = {False: [], True: []}

    def show(pieces: list[tuple[bool, str]]) -> None:
        for thought, text in pieces:
            said[thought].append(text)
            screen.write(text, reasoning=thought)

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
                    show(split.feed(text))
                reason = choice["finish_reason"] or reason
                if interrupts.wanted:
                    reason = "interrupted"
                    break
            if hasattr(chunks, "close"):
                chunks.close()
            show(split.finish())
        finally:
            screen.finish()
    return Answer("".join(said[False]), "".join(said[True]), reason, clock.report())


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
        parts = [f"{read} tokens read{f' ({cached} kept)' if cached else ''} in {seconds:.2f} s"]
        if read and seconds:
            parts[0] += f", {read / seconds:.0f}/s"
        n, seconds = self._last_n - self._first_n, self._last - self._first
        speed = f", {n / seconds:.1f}/s" if n and seconds else ""
        parts.append(f"{usage['completion_tokens']} written{speed}")
        parts.append(f"context {usage['total_tokens']} of {self._llm.n_ctx()}")
        parts.append(f"seed {self._llm.last_seed}")
        return " · ".join(parts)
