"""A server program that says each stretch of its event loop, and how fast this machine is."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from tests.support.bench import Bench

LONGEST = 0.05 * 1.6  # seconds of CPU between two turns of the loop: the bound, and the effect of other tests
USUAL = 0.009  # seconds of CPU that fixed_loop() takes there
TRIES = 3  # for a stretch that is too long: what else runs here makes it longer, never shorter
PROGRAM = """
from llama_srb.serving.observe import loop_watch
loop_watch.PERIOD, loop_watch.LOGGED = 0.005, 0.015
from llama_srb.cli import main
main()
"""
STALL = re.compile(r"stood still for [\d.]+ s \(([\d.]+) s of CPU\) during (.*)")


def fixed_loop() -> float:
    """Seconds of CPU that a loop of a fixed length takes."""
    began = time.thread_time()
    sum(i * i for i in range(200_000))
    return time.thread_time() - began


class Watched:
    """A server that logs each stretch of its event loop above 15 ms."""

    def __init__(self, url: str, log: TextIO) -> None:
        self.port, self._log = int(url.rpartition(":")[2]), log
        self.beginning = log.read()

    def longest(self, request: Callable[[], object]) -> float:
        """Seconds of CPU of the longest stretch in a request, on a usual machine."""
        return min(self._stretches(request))

    def _stretches(self, request: Callable[[], object]) -> Iterator[float]:
        for _ in range(TRIES):
            self._log.read()
            request()
            text = self._log.read()
            assert "Traceback" not in text, text[-3000:]
            factor = max(1.0, min(fixed_loop() for _ in range(3)) / USUAL)
            longest = max((float(cpu) for cpu, _ in STALL.findall(text)), default=0.0) / factor
            yield longest
            if longest <= LONGEST:
                return


@contextlib.contextmanager
def watching(folder: Path, *arguments: str) -> Iterator[Watched]:
    bench, log = Bench(folder), folder / "log"
    command = [sys.executable, "-c", PROGRAM, "serve", *arguments]
    with (
        log.open("wb") as stderr,
        subprocess.Popen(
            command, env=bench.environ, cwd=folder, stdout=subprocess.PIPE, stderr=stderr, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[0].rstrip("/")
            with log.open(errors="replace") as said:
                yield Watched(url, said)
        finally:
            process.kill()
