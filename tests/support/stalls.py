"""A server program that says each stretch of its event loop, and how fast this machine is."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from tests.support.bench import Bench

LONGEST = 0.05 * 1.6  # seconds of CPU between two turns of the loop: the bound, and the effect of other tests
USUAL = 0.009, 0.018  # seconds of CPU that the fixed work, numbers and lists, takes there
TRIES = 3  # for a stretch that is too long: what else runs here makes it longer, never shorter
PROGRAM = """
from llama_srb.serving.observe import loop_watch
loop_watch.PERIOD, loop_watch.LOGGED = 0.005, 0.015
from llama_srb.cli import main
main()
"""
STALL = re.compile(r"stood still for [\d.]+ s \(([\d.]+) s of CPU\) during (.*)")


FIXED_WORK = """
import gc, time
def numbers():
    sum(i * i for i in range(200_000))
def lists():
    kept = [[i] for i in range(100_000)]
    gc.collect()
def cpu(work):
    began = time.thread_time()
    work()
    return time.thread_time() - began
print(*(min(cpu(work) for _ in range(3)) for work in (numbers, lists)))
"""


def slowness() -> float:
    """How many times as long as a usual machine this one takes; at least 1.

    Fresh memory, and the garbage collector's look at it, can be slow where numbers are not.
    """
    ran = subprocess.run([sys.executable, "-IS", "-c", FIXED_WORK], stdout=subprocess.PIPE, check=True)
    return max(1.0, *(float(cpu) / usual for cpu, usual in zip(ran.stdout.split(), USUAL, strict=True)))


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
            longest = max((float(cpu) for cpu, _ in STALL.findall(text)), default=0.0)
            longest /= slowness() if longest > LONGEST else 1
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
