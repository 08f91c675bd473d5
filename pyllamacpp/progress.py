"""A progress bar on standard error: rich's on a terminal, one plain line elsewhere (logs, pipes)."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any


class ProgressBar:
    """`with ProgressBar("file.gguf", total) as bar: bar.to(n_bytes)`; counts bytes; `total` None: unknown.

    `show`: True or False, or None for "on, as fits standard error". A bar leaves nothing on the screen when
    done.
    """

    def __init__(self, title: str, total: int | None = None, *, show: bool | None = None) -> None:
        self._title, self._total, self._show = title, total, show
        self._done = 0
        self._rich: Any = None

    def __enter__(self) -> ProgressBar:
        if self._show is False:
            return self
        if not sys.stderr.isatty():
            print(f"Fetching {self._title}", file=sys.stderr)
            return self
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = [TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn()]
        columns += [TransferSpeedColumn(), TimeRemainingColumn()]
        self._rich = Progress(*columns, console=Console(stderr=True), transient=True)
        self._rich.add_task(self._title, total=self._total)
        self._rich.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rich is not None:
            self._rich.stop()

    def to(self, done: int) -> None:
        """`done` bytes are here."""
        self._done = done
        if self._rich is not None:
            self._rich.update(self._rich.task_ids[0], completed=done)

    def advance(self, n: float) -> None:
        """`n` more bytes are here."""
        self.to(self._done + int(n))
