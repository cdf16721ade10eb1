"""How far a batch is: a bar on a terminal, else a line from time to time; on stderr."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from llama_srb.batch.run import Counts
from llama_srb.cli import say

PERIOD = 10.0  # seconds between two lines


class Progress:
    """Shows the counts of a run, for a `with` block around it; at its end one line sums up."""

    def __init__(self, counts: Counts) -> None:
        self._counts, self._before = counts, counts.done
        console = Console(stderr=True)
        self._bar = Bar(
            BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), console=console,
            transient=True, disable=not console.is_terminal or console.is_dumb_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=counts.total, completed=counts.done)

    def __enter__(self) -> Self:
        self._began = self._told = time.monotonic()
        if self._before:
            say(f"{self._before} of {self._counts.total} lines were answered before")
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        seconds, tokens = time.monotonic() - self._began, self._counts.tokens
        speed = f"; {tokens} tokens, {tokens / max(seconds, 0.001):.0f}/s" if tokens else ""
        say(f"{self._lines} in {seconds:.1f} s{speed}")

    @property
    def _lines(self) -> str:
        counts = self._counts
        failed = f", {counts.failed} failed" if counts.failed else ""
        return f"{counts.done} of {counts.total} lines{failed}"

    def show(self, message: str) -> None:
        """Is called after each line, and with a message."""
        if message:
            say(message)
        if not self._bar.disable:
            self._bar.update(self._task, completed=self._counts.done, description=self._pace())
        elif time.monotonic() - self._told >= PERIOD:
            self._told = time.monotonic()
            say(f"{self._lines}, {self._pace()}")

    def _pace(self) -> str:
        """The rate, and the time that is left at this rate."""
        counts, seconds = self._counts, max(time.monotonic() - self._began, 0.001)
        if not (rate := (counts.done - self._before) / seconds):
            return "no line yet"
        left = round((counts.total - counts.done) / rate)
        clock = f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02}"
        return f"{rate:.3g} lines/s, {counts.tokens / seconds:.0f} tokens/s, {clock} left"
