"""Text files that go into the next message of a chat."""

from __future__ import annotations

import codecs
from pathlib import Path

from ..errors import ParameterError

_LARGEST = 16 << 20  # bytes; more than any context holds
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, or in UTF-16 with its mark.

    Error: ParameterError if it cannot be read, is too large, or is no text.
    """
    try:
        if not path.is_file():
            raise ParameterError(f"{path} is {'a folder' if path.is_dir() else 'no file'}")
        if path.stat().st_size > _LARGEST:
            raise ParameterError(f"{path} is larger than {_LARGEST >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise ParameterError(f"cannot read {path}: {error.strerror or error}") from None
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        raise ParameterError(f"{path} is no text: it is not {error.encoding} at byte {error.start}") from None
    if "\0" in text:
        raise ParameterError(f"{path} is no text: it holds zero bytes")
    return text


def with_files(text: str, files: list[tuple[Path, str]]) -> str:
    """A message with the files before it, each in a fence longer than any in it."""
    blocks = []
    for path, content in files:
        fence = "```"
        while fence in content:
            fence += "`"
        end = "" if content.endswith("\n") else "\n"
        blocks.append(f"{path.name}:\n{fence}\n{content}{end}{fence}\n\n")
    return "".join(blocks) + text
