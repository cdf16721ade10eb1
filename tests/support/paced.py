"""Runs llama-batched so that a test chooses how far its lines are read, and can read its log."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.lines import LIMIT, Answer, Lines
from tests.support.places import STORYTELLER


class Paced(Lines):
    """Lines, with the log in a file. Unread lines fill the pipe, and soon block the engine."""

    def __init__(self, log: Path, *flags: str, model: Path = STORYTELLER, **env: str) -> None:
        super().__init__(*flags, model=model)
        self._log = log
        self._env = os.environ | env

    def __enter__(self) -> Paced:
        pipe = subprocess.PIPE
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._argv, stdin=pipe, stdout=pipe, stderr=log, env=self._env, bufsize=0
            )
        while self.read()["event"] != "ready":
            pass
        return self

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for_log(self, condition: Callable[[str], bool]) -> None:
        """Waits for a line in the log, which llama.cpp writes later, from its own thread."""
        deadline = time.monotonic() + LIMIT / 4
        while not condition(self.log):
            assert time.monotonic() < deadline, self.log[-1000:]
            time.sleep(0.01)

    def begin(self, **request: Any) -> str:
        """Sends a request; returns its id."""
        return self.send({"op": "generate"} | request)[0]

    def answer(self, id: str) -> Answer:
        """The part of its answer that was read."""
        return self._answers[id]

    def read_until(self, id: str, event: str, index: int | None = None, n: int = 1) -> Answer:
        """Reads until a request has had n events of this name (of one sequence, if index is given)."""
        answer = self.answer(id)
        while sum(index in (None, found.get("index")) for found in answer.named(event)) < n:
            assert not answer.over, answer.events[-1]
            self.read()
        return answer

    def finish(self) -> str:
        """Closes stdin, waits until requests, writes to disk and the process have ended; returns the log."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        while self._process.stdout.read(1 << 20):
            pass
        assert self._process.wait(LIMIT) == 0
        return self.log


COUNTED = {"LLAMA_KV_CACHE_DEBUG": "1"}  # with -lv 5 llama.cpp logs its number of used cells in each step


def cells_used(log: str) -> list[int]:
    """The number of used cells in each step, before the step takes its own."""
    return [int(n) for n in re.findall(r"find_slot: stream\[0\], .* used = +(\d+)", log)]
