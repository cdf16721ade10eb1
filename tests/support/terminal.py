"""Commands as a person types them: a server that runs until Ctrl+C, and commands that end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.support.places import ROOT
from tests.support.waiting import PATIENCE


def environ(**others: str) -> dict[str, str]:
    """The variables of this process but those of the server, with a free port."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_SRB_")}
    return ours | {"LLAMA_SRB_PORT": "0"} | others


@dataclass(frozen=True)
class Started:
    """A server at `url`, and what it has told on stderr."""

    url: str
    process: subprocess.Popen[str]
    told: IO[str]

    def interrupt(self) -> None:
        """Ctrl+C: the terminal sends SIGINT to all of its processes."""
        os.killpg(self.process.pid, signal.SIGINT)

    def messages(self) -> str:
        return read(self.told)


@contextlib.contextmanager
def started(*command: str, folder: Path = ROOT, stdout: IO[str] | None = None) -> Iterator[Started]:
    """Runs a command that serves, and ends it by Ctrl+C. With `stdout` its address is read from its log."""
    with (
        tempfile.TemporaryFile("w+") as told,
        subprocess.Popen(
            command,
            cwd=folder,
            env=environ(),
            stdout=stdout or subprocess.PIPE,
            stderr=told,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield Started(address_of(process, told), process, told)
        finally:
            end(process)


def address_of(process: subprocess.Popen[str], told: IO[str]) -> str:
    """Waits for the line that a server prints, or has in its log if it cannot print."""
    deadline = time.monotonic() + PATIENCE
    printed = process.stdout.readline() if process.stdout else ""
    while not (found := re.search(r"http://[\w.:]+", printed)):
        assert time.monotonic() < deadline, "it neither serves nor ends"
        assert process.poll() is None, f"it did not start: {read(told)}"
        time.sleep(0.02)
        printed = read(told)
    return found[0]


def read(file: IO[str]) -> str:
    """What is in the file, to which another process writes."""
    return os.pread(file.fileno(), 1 << 20, 0).decode()


def end(process: subprocess.Popen[str]) -> None:
    """By Ctrl+C, or by force if that takes too long."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def at_prompt(*command: str, folder: Path = ROOT, **others: str) -> tuple[int, str, str]:
    """Exit code, output and messages of a command that ends."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environ(**others),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr
