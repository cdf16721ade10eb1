"""Processes of a comparison: they run in a block, and are stopped (SIGSTOP) while others answer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

PAUSE = 0.2  # seconds after an answer; our engine copies idle prefixes to host memory after 0.05 s


def descendants(pid: int) -> list[int]:
    """All descendants of a process, parents first."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
    found = [pid]
    for one in found:  # grows during the loop
        found += [child for child, parent in pairs if parent == one]
    return found[1:]


@dataclass(frozen=True, slots=True)
class Running:
    """A process and its descendants."""

    process: subprocess.Popen[bytes]

    def ids(self) -> list[int]:
        """The process ids, the process itself first."""
        return [self.process.pid, *descendants(self.process.pid)]

    def signal(self, number: int) -> None:
        for pid in self.ids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        """Lets the processes run in this block, and for PAUSE seconds more for work between requests."""
        self.signal(signal.SIGCONT)
        try:
            yield
            time.sleep(PAUSE)
        finally:
            self.signal(signal.SIGSTOP)

    def memory(self) -> list[float]:
        """The resident memory of each process in MB, the process itself first."""
        wanted = ",".join(map(str, self.ids()))
        listed = subprocess.run(
            ["ps", "-o", "rss=", "-p", wanted], capture_output=True, text=True, check=True
        )
        return [int(line) / 1024 for line in listed.stdout.split()]


@contextlib.contextmanager
def running(argv: Sequence[str], environ: Mapping[str, str], stdin: int, stdout: int) -> Iterator[Running]:
    """Runs a process until the end of the block; it may be stopped (SIGSTOP) then."""
    nowhere = subprocess.DEVNULL
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": ""} | environ  # a second start finds compiled modules
    with subprocess.Popen(argv, env=env, stdin=stdin, stdout=stdout, stderr=nowhere) as process:
        it = Running(process)
        try:
            yield it
        finally:
            all_of_it = it.ids()
            it.signal(signal.SIGCONT)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            for pid in all_of_it if process.poll() is None else all_of_it[1:]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def reads(read: Callable[[], bytes]) -> Iterator[tuple[float, bytes]]:
    """Reads to the end; yields each piece with its time."""
    while data := read():
        yield time.perf_counter(), data
