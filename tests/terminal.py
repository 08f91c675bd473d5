"""The real program in processes of their own, also in a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def programs(home: Path) -> Iterator[Any]:
    """A function that starts `pyllamacpp ARGUMENTS`, with caches and state in `home`.

    What still runs at the end is killed.
    """
    ours = {"PYTHONPATH": str(ROOT), "PYLLAMACPP_CACHE": str(home / "cache"), "HF_HUB_OFFLINE": "1",
            "XDG_STATE_HOME": str(home / "state"), "TERM": "xterm"}  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []

    def start(
        *arguments: str, entry: tuple[str, ...] = ("-m", "pyllamacpp"), **rest: Any
    ) -> subprocess.Popen[bytes]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **rest}
        line = [sys.executable, *entry, *arguments]
        started.append(subprocess.Popen(line, env={**os.environ, **ours}, **streams))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


# So that Ctrl-C typed into the terminal becomes a signal.
OWN_TERMINAL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
# The editor switches bracketed paste on before it shows its prompt, and off when a line is entered.
PROMPT = r"\x1b\[\?2004h[\s\S]*>"
ENTERED = r"\x1b\[\?2004l"


class Terminal:
    """A process in a pseudo-terminal."""

    def __init__(self, command: Any, *arguments: str) -> None:
        self.fd, child = pty.openpty()
        entry = ("-c", OWN_TERMINAL + "from pyllamacpp.cli import main; main()")
        streams = {"stdin": child, "stdout": child, "stderr": child}
        self.process = command(*arguments, entry=entry, start_new_session=True, **streams)
        os.close(child)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def wait_for(self, pattern: str, seconds: float = 30) -> None:
        """Read until what came since the last match has the pattern; forget it then."""
        end = time.monotonic() + seconds
        while not (match := re.search(pattern, self.seen)):
            left = end - time.monotonic()
            assert left > 0 and select.select([self.fd], [], [], left)[0], (
                f"no {pattern!r}: {self.seen[-2000:]!r}"
            )
            try:
                self.seen += os.read(self.fd, 4096).decode("utf-8", "replace")
            except OSError:
                pytest.fail(f"ended before {pattern!r}: {self.seen[-2000:]!r}")
            if "\x1b[6n" in self.seen:  # the editor asks where the cursor is
                self.seen = self.seen.replace("\x1b[6n", "")
                self.type("\x1b[1;1R")
        self.seen = self.seen[match.end() :]

    def close(self) -> int:
        code = int(self.process.wait(timeout=30))
        os.close(self.fd)
        return code
