"""Writes the events of a step to stdout, the log to stderr, and a journal for tests."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def dumped(value: Any) -> str:
    """JSON as the engine writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Output:
    """Collects the lines of a step, and writes them at once."""

    def __init__(self, journal: str | None) -> None:
        self.journal = journal
        self.lines: list[str] = []

    def event(self, event: str, **fields: Any) -> None:
        self.lines.append(dumped({"event": event, **fields}) + "\n")

    def line(self, text: str) -> None:
        """Adds a complete line; an empty one is left out."""
        self.lines.append(text)

    def change_last(self, old: str, new: str) -> None:
        self.lines[-1] = self.lines[-1].replace(old, new)

    def halve_last(self) -> None:
        self.lines[-1] = self.lines[-1][: len(self.lines[-1]) // 2]

    def write(self) -> None:
        data = memoryview("".join(self.lines).encode())
        self.lines.clear()
        while data:
            try:
                data = data[os.write(1, data) :]
            except BrokenPipeError:
                os._exit(0)

    def log(self, text: str) -> None:
        print("fake engine: " + text, file=sys.stderr, flush=True)

    def note(self, what: str, **more: Any) -> None:
        """Adds an entry to the journal, by which tests check what this process did."""
        if self.journal:
            entry = {"time": time.monotonic(), "pid": os.getpid(), "what": what, **more}
            with open(self.journal, "a") as journal:
                journal.write(json.dumps(entry) + "\n")
