"""A `Llama` without a model, for tests of what is around it: it answers with given pieces."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pyllamacpp
from pyllamacpp.text.chat import ChatTemplate


class FakeLlama:
    """Records how it was made and asked. A piece "^C" sends SIGINT to this process instead of text."""

    made: list[dict[str, Any]] = []  # noqa: RUF012
    asked: list[tuple[str, Any, dict[str, Any]]] = []  # noqa: RUF012
    pieces: list[str] = []  # noqa: RUF012
    finish_reason = "stop"
    chat_template: object | None = ChatTemplate("{{ messages }}")
    error: Exception | None = None
    last_seed = 7
    n_tokens = 0
    model_path = "m.gguf"
    last_run = SimpleNamespace(
        usage={
            "prompt_tokens": 15,
            "completion_tokens": 4,
            "total_tokens": 19,
            "prompt_tokens_details": {"cached_tokens": 3},
        }
    )

    def __init__(self, path: object, **arguments: Any) -> None:
        self.made.append({"path": str(path), **arguments})

    def __enter__(self) -> FakeLlama:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def n_ctx(self) -> int:
        return 1000

    def tokenize(self, text: bytes, **arguments: Any) -> list[int]:
        return list(text)

    def create_chat_completion(self, messages: Any, **arguments: Any) -> Iterator[dict[str, Any]]:
        self.asked.append(("chat", [dict(m) for m in messages], arguments))
        if self.error is not None:
            raise self.error
        return self._chat()

    def create_completion(self, prompt: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        self.asked.append(("text", prompt, arguments))
        return self._text()

    def _told(self) -> Iterator[str]:
        for piece in self.pieces:
            FakeLlama.n_tokens += 1
            if piece == "^C":
                os.kill(os.getpid(), signal.SIGINT)
            else:
                yield piece

    def _chat(self) -> Iterator[dict[str, Any]]:
        yield {"choices": [{"delta": {"role": "assistant"}, "finish_reason": None}]}
        for piece in self._told():
            yield {"choices": [{"delta": {"content": piece}, "finish_reason": None}]}
        yield {"choices": [{"delta": {}, "finish_reason": self.finish_reason}]}

    def _text(self) -> Iterator[dict[str, Any]]:
        for piece in self._told():
            yield {"choices": [{"text": piece, "finish_reason": None}]}
        yield {"choices": [{"text": "", "finish_reason": self.finish_reason}]}


def install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> type[FakeLlama]:
    """`Llama` replaced by one that answers "Hello world."; resolving needs a file, so m.gguf is one."""

    class Fake(FakeLlama):
        made: list[dict[str, Any]] = []  # noqa: RUF012
        asked: list[tuple[str, Any, dict[str, Any]]] = []  # noqa: RUF012
        pieces = ["Hel", "lo world."]  # noqa: RUF012

    monkeypatch.setitem(vars(pyllamacpp), "Llama", Fake)
    (folder / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    return Fake
