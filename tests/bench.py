"""What tests of the command line share: llama-srb as a process, with the fake engine behind it."""

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

CHECKOUT = Path(__file__).resolve().parents[1]
FAKE = CHECKOUT / "tests" / "fake_engine"
MODEL = CHECKOUT / "models" / "storyteller.gguf"
TIMEOUT = 20.0  # far above what any test needs; only a hang reaches it


class Bench:
    """A folder with an engine, and the ways to start a server in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = folder / "journal"
        self.engine = folder / "engine"
        self.engine.write_text(f'#!/bin/sh\nexec python3 {FAKE} --journal {self.journal} "$@"\n')
        self.engine.chmod(0o755)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "llama_srb.cli", *arguments]

    @property
    def environ(self) -> dict[str, str]:
        ours = {key: value for key, value in os.environ.items() if not key.startswith("LLAMA_SRB_")}
        return ours | {
            "PYTHONPATH": str(CHECKOUT),
            "LLAMA_SRB_ENGINE": str(self.engine),
            "LLAMA_SRB_PORT": "0",
        }

    def run(self, *arguments: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=self.environ | environ,
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )

    @contextlib.contextmanager
    def serving(self, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """A server and the line that it greets with."""
        command = self.command("serve", *arguments)
        with subprocess.Popen(
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
        """Exit code and all output of a process on its own terminal; ^C is typed once a text is there."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        environ = {key: value for key, value in self.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
        process = subprocess.Popen(
            self.command(*arguments),
            env=environ | {"TERM": "xterm-256color"},
            cwd=self.folder,
            preexec_fn=lambda: os.login_tty(slave),
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
        output, deadline = b"", time.monotonic() + TIMEOUT
        while select.select([master], [], [], TIMEOUT)[0] and time.monotonic() < deadline:
            try:
                chunk = os.read(master, 1 << 16)
            except OSError:  # EIO: the other end is closed
                return process.wait(TIMEOUT), output.decode(errors="replace")
            output += chunk
            if interrupt_at is not None and interrupt_at in plain(output.decode(errors="replace")):
                os.write(master, b"\x03")
                interrupt_at = None
        raise TimeoutError(output[-1000:])

    def engines(self) -> set[int]:
        """The engines that have been started."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return {json.loads(line)["pid"] for line in lines}

    def assert_no_orphan(self) -> None:
        deadline = time.monotonic() + TIMEOUT
        while any(map(alive, self.engines())):
            assert time.monotonic() < deadline, "an engine was left"
            time.sleep(0.005)


def plain(output: str) -> str:
    """A terminal's output without its escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output).replace("\r\n", "\n")


def alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped (by a container's init, say) does not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False
