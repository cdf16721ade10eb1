"""Child processes, the CPU time and memory of a process, a lock between processes, programs to install."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support import forked


def children() -> set[int]:
    """The ids of child processes that were not reaped yet, zombies included, but for the one that forks."""
    lists = list(Path("/proc/self/task").glob("*/children"))  # Linux; 100 times faster than ps
    if lists:
        return {int(pid) for path in lists for pid in text_of(path).split()} - forked.FIRST
    listing = subprocess.Popen(["ps", "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, text=True)
    pairs = [tuple(map(int, line.split())) for line in listing.communicate()[0].splitlines()]
    return {pid for pid, parent in pairs if parent == os.getpid() and pid != listing.pid}


def cpu(pid: int) -> float:
    """The CPU time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def status(pid: int, name: str) -> int:
    """A number from /proc/PID/status, such as VmRSS in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def text_of(path: Path) -> str:
    """The file's text; empty if its thread has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@contextlib.contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """A lock that one test process of this machine holds while the others wait."""
    with open(Path(tempfile.gettempdir()) / f"llama-srb-{os.getuid()}-{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def installed(package: str, *names: str) -> str | None:
    """The path of a system program. If it is missing, its package is installed (as root on Debian)."""
    with one_at_a_time("apt-get"):  # the second of two at once would fail
        found = next(filter(None, map(shutil.which, names)), None)
        if found or os.geteuid() != 0 or not shutil.which("apt-get"):
            return found
        for command in (["update"], ["install", "-y", "--no-install-recommends", package]):
            subprocess.run(["apt-get", "-qq", *command], stdout=subprocess.DEVNULL, check=False)
        return next(filter(None, map(shutil.which, names)), None)
