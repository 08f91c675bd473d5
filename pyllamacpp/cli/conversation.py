"""What has been said in a chat, and its file: OpenAI's messages in JSON."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from ..errors import ParameterError

Message = dict[str, Any]

_FORMAT = "pyllamacpp chat"
_LARGEST = 64 << 20  # bytes of a file of messages


class Conversation:
    """A system message, if there is one, and the messages after it."""

    def __init__(self, system: str | None = None) -> None:
        self.system = system
        self.messages: list[Message] = []

    def with_system(self, messages: list[Message] | None = None) -> list[Message]:
        """All messages, as a model is asked."""
        opening = [] if self.system is None else [{"role": "system", "content": self.system}]
        return opening + (self.messages if messages is None else messages)

    def keep(self, asked: list[Message], answer: str, reasoning: str) -> None:
        """Go on from an answer. reasoning: kept beside it, as templates expect it; often empty."""
        message = {"role": "assistant", "content": answer}
        if reasoning:
            message["reasoning_content"] = reasoning
        self.messages = [*asked, message]

    def without_last(self) -> list[Message]:
        """The messages before the user's last one.

        Error: ParameterError if there is none.
        """
        at = next(
            (i for i in reversed(range(len(self.messages))) if self.messages[i]["role"] == "user"), None
        )
        if at is None:
            raise ParameterError("nothing has been asked yet")
        return self.messages[:at]

    def save(self, path: Path, model: str) -> None:
        """Write the conversation; the file is whole or as it was.

        Error: ParameterError if it cannot be written.
        """
        text = json.dumps(
            {"format": _FORMAT, "version": 1, "model": model, "messages": self.with_system()},
            ensure_ascii=False,
            indent=2,
        )
        try:
            _write_whole(path, text.encode("utf-8", "surrogatepass") + b"\n")
        except OSError as error:
            raise ParameterError(f"cannot write {path}: {error.strerror or error}") from None

    @classmethod
    def load(cls, path: Path) -> Conversation:
        """A saved conversation, or any list of messages in JSON.

        Error: ParameterError if it is neither.
        """
        messages = _read(path)
        conversation = cls()
        if messages and messages[0]["role"] == "system" and isinstance(messages[0]["content"], str):
            conversation.system = messages.pop(0)["content"]
        conversation.messages = messages
        return conversation


def _write_whole(path: Path, data: bytes) -> None:
    """A conversation is private: only its owner may read it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _read(path: Path) -> list[Message]:
    def refuse(why: str) -> ParameterError:
        return ParameterError(f"{path} is no saved conversation: {why}")

    if os.path.exists(path) and not os.path.isfile(path):  # a device or a pipe may have no end
        raise ParameterError(f"cannot read {path}: it is no file")
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise refuse("it is no regular file")
        if path.stat().st_size > _LARGEST:
            raise refuse(f"it is larger than {_LARGEST >> 20} MiB")
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ParameterError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise refuse(f"not JSON ({error})") from None
    messages = data.get("messages") if isinstance(data, dict) else data
    if not isinstance(messages, list):
        raise refuse("it holds no list of messages")
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise refuse(f"message {i + 1} has no role")
        if not isinstance(message.setdefault("content", None), (str, list, type(None))):
            raise refuse(f"the content of message {i + 1} is neither text nor a list of parts")
    return messages
