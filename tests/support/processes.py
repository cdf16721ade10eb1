"""Processes of the tests: which there are, what they use, and one at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


def children() -> set[int]:
    """Processes that this one has started and not yet reaped, zombies included."""
    lists = list(Path("/proc/self/task").glob("*/children"))  # 100 times faster than ps, where there is one
    if lists:
        return {int(pid) for path in lists for pid in text_of(path).split()}
    listing = subprocess.Popen(["ps", "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, text=True)
    pairs = [tuple(map(int, line.split())) for line in listing.communicate()[0].splitlines()]
    return {pid for pid, parent in pairs if parent == os.getpid() and pid != listing.pid}


def cpu(pid: int) -> float:
    """Seconds of a core that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def status(pid: int, name: str) -> int:
    """A number of /proc/PID/status, such as VmRSS in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def text_of(path: Path) -> str:
    """Nothing, if the thread of this file has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@contextlib.contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Held by one process of the tests on this machine, the others wait."""
    with open(Path(tempfile.gettempdir()) / f"llama-srb-{os.getuid()}-{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def installed(package: str, *names: str) -> str | None:
    """The path of a program of the system; as root on Debian its package is installed if it is missing."""
    with one_at_a_time(package):
        found = next(filter(None, map(shutil.which, names)), None)
        if found or os.geteuid() != 0 or not shutil.which("apt-get"):
            return found
        for command in (["update"], ["install", "-y", "--no-install-recommends", package]):
            subprocess.run(["apt-get", "-qq", *command], stdout=subprocess.DEVNULL, check=False)
        return next(filter(None, map(shutil.which, names)), None)
