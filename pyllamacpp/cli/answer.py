"""Streaming an answer to standard output, so that Ctrl-C stops the answer."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..params import SamplingParams, specs
from .options import NOT_FOR_A_TERMINAL

if TYPE_CHECKING:
    from .. import Llama

# A model must not drive the terminal: control characters but newline and tab are shown as pictures.
_PICTURES = {
    **{c: 0x2400 + c for c in range(0x20) if chr(c) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What was printed and why it ended: "stop", "length" or "interrupted"."""

    text: str
    finish_reason: str


def chat_chunks(
    llm: Llama, messages: list[dict[str, str]], params: SamplingParams
) -> Iterator[dict[str, Any]]:
    return iter(llm.create_chat_completion(messages, stream=True, **_arguments(params)))


def completion_chunks(llm: Llama, prompt: str, params: SamplingParams) -> Iterator[dict[str, Any]]:
    return iter(llm.create_completion(prompt, stream=True, **_arguments(params)))


def _arguments(params: SamplingParams) -> dict[str, Any]:
    return {name: getattr(params, name) for name in specs(SamplingParams) if name not in NOT_FOR_A_TERMINAL}


def print_answer(llm: Llama, chunks: Iterator[dict[str, Any]], *, verbose: bool) -> Answer:
    """Print an answer as it comes and end it with a newline. The first Ctrl-C ends it between two tokens.

    On a terminal control characters are made visible; a pipe or file gets the text as it is.
    """
    terminal = sys.stdout.isatty()
    parts: list[str] = []
    reason = "stop"
    clock = _Clock(llm)
    with _interrupts() as interrupts:
        for chunk in chunks:
            choice = chunk["choices"][0]
            text = choice.get("text") or choice.get("delta", {}).get("content") or ""
            if text:
                clock.tick()
                interrupts.gentle = True
                parts.append(text)
                sys.stdout.write(text.translate(_PICTURES) if terminal else text)
                sys.stdout.flush()
            reason = choice["finish_reason"] or reason
            if interrupts.wanted:
                reason = "interrupted"
                break
        if hasattr(chunks, "close"):
            chunks.close()
    answer = "".join(parts)
    if not answer.endswith("\n"):
        print(flush=True)
    if verbose:
        print(clock.report(), file=sys.stderr)
    return Answer(answer, reason)


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
    """Times of an answer, for -v."""

    def __init__(self, llm: Llama) -> None:
        self._llm = llm
        self._start = self._first = self._last = time.perf_counter()
        self._first_n = self._last_n = 0

    def tick(self) -> None:
        self._last, self._last_n = time.perf_counter(), self._llm.n_tokens
        if not self._first_n:
            self._first, self._first_n = self._last, self._last_n

    def report(self) -> str:
        n, seconds = self._last_n - self._first_n, self._last - self._first
        speed = f", then {n} tokens at {n / seconds:.1f} tokens/s" if n and seconds else ""
        return f"first token after {self._first - self._start:.2f} s{speed}; seed {self._llm.last_seed}"
