"""Runs the command line for its tests: llama-srb as a process, with the fake engine."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support import forked
from tests.support.places import FAKE_COMMAND, ROOT
from tests.support.waiting import PATIENCE


class Bench:
    """A folder with an engine; runs commands and servers in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = folder / "journal"
        self.engine = folder / "engine"
        self.engine.write_text(f'#!/bin/sh\nexec {FAKE_COMMAND} --journal {self.journal} "$@"\n')
        self.engine.chmod(0o755)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "llama_srb.cli", *arguments]

    @property
    def environ(self) -> dict[str, str]:
        ours = {key: value for key, value in os.environ.items() if not key.startswith("LLAMA_SRB_")}
        return ours | {
            "PYTHONPATH": str(ROOT),
            "LLAMA_SRB_ENGINE": str(self.engine),
            "LLAMA_SRB_PORT": "0",
        }

    def run(self, *arguments: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        return forked.run(
            self.command(*arguments),
            env=self.environ | environ,
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    @contextlib.contextmanager
    def serving(self, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """Runs a server; yields it and the first line that it prints."""
        command = self.command("serve", *arguments)
        with forked.Popen(
            command,
            env=self.environ,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                yield process, process.stdout.readline()
            finally:
                process.kill()

    def on_terminal(
        self, *arguments: str, size: tuple[int, int] = (80, 24), interrupt_at: str | None = None
    ) -> tuple[int, str]:
        """Runs a command on its own terminal, with ^C at a text if given; returns exit code and output."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        environ = {key: value for key, value in self.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
        process = subprocess.Popen(
            ["setsid", "--ctty", *self.command(*arguments)],
            env=environ | {"TERM": "xterm-256color"},
            cwd=self.folder,
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        try:
            return self._watched(process, master, interrupt_at)
        finally:
            process.kill()
            process.wait()
            os.close(master)

    def _watched(
        self, process: subprocess.Popen[bytes], master: int, interrupt_at: str | None
    ) -> tuple[int, str]:
        output, deadline = b"", time.monotonic() + PATIENCE
        while select.select([master], [], [], PATIENCE)[0] and time.monotonic() < deadline:
            try:
                chunk = os.read(master, 1 << 16)
            except OSError:  # EIO: the other end is closed
                return process.wait(PATIENCE), output.decode(errors="replace")
            output += chunk
            if interrupt_at is not None and interrupt_at in plain(output.decode(errors="replace")):
                os.write(master, b"\x03")
                interrupt_at = None
        raise TimeoutError(output[-1000:])

    def engines(self) -> set[int]:
        """The ids of the engine processes that were started."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return {json.loads(line)["pid"] for line in lines}

    def assert_no_orphan(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while any(map(alive, self.engines())):
            assert time.monotonic() < deadline, "an engine was left"
            time.sleep(0.005)


def plain(output: str) -> str:
    """Removes the escape sequences from a terminal's output."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output).replace("\r\n", "\n")


def alive(pid: int) -> bool:
    """Whether the process runs. A zombie, which waits for its parent (a container's init, say), does not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False
