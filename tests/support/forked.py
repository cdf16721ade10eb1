"""Starts llama-srb's commands as forks of a process that has imported it: 0.1 instead of 0.6 CPU-seconds.

`Popen` and `run` are subprocess's own for `python -m llama_srb.cli …` and `python api.py …`. The command is
a child of the caller, with a folder, variables, files and a session of its own. What Python reads when it
starts is that of the first process: with other variables of that kind, or rare options of Popen, a command
starts by itself. /proc shows the first process's command line and variables: a test that reads these starts
its command itself.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from tests.support.places import ROOT
from tests.support.waiting import PATIENCE

PYTHON = os.environ.get("PEER_PYTHON", sys.executable)  # another one runs the tests of tests/peer
AT_START = ("PYTHON", "COVERAGE_", "LANG", "LC_", "SSL_", "LD_", "TZ", "MALLOC_")  # beginnings of variables
COMMANDS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (  # a line's first words: what the cli gets
    ((PYTHON, "-m", "llama_srb.cli"), ()),
    ((PYTHON, str(ROOT / "api.py")), ("serve",)),
)
MEASURED = "COVERAGE_PROCESS_START"
FIRST: set[int] = set()
"""The id of the process that forks, once there is one."""


class Popen(subprocess.Popen[Any]):
    """subprocess.Popen, which forks llama-srb."""

    def _execute_child(self, *given: Any) -> None:
        args, executable, preexec_fn, _, pass_fds, cwd, env, _, _, shell, *pipes, _ = given[:17]
        *user, new_session, group = given[17:]
        rare = executable or preexec_fn or pass_fds or shell or (*user, group) != (None, None, None, -1, -1)
        rare = rare or MEASURED in os.environ  # coverage writes down nothing of forks
        words = None if rare or sys.platform != "linux" else _words(args)
        environ: Mapping[str, str] = os.environ if env is None else env
        if words is None or _at_start(environ) != _at_start(os.environ):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        stdin, _, _, stdout, _, stderr = pipes
        self.pid = _fork(
            {
                "argv": words,
                "cwd": os.path.abspath(cwd or "."),
                "environ": dict(environ),
                "new_session": new_session,
            },
            [own if file == -1 else file for own, file in enumerate((stdin, stdout, stderr))],
        )
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run(
    command: Any,
    *,
    input: Any = None,
    timeout: float = PATIENCE,
    capture_output: bool = False,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """subprocess.run with Popen."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(command, **options) as process:
        try:
            stdout, stderr = process.communicate(input, timeout)
        except:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, stdout, stderr)
    if check:
        done.check_returncode()
    return done


def _words(args: Any) -> list[str] | None:
    """What llama_srb.cli gets if this command line calls it, else None."""
    words = [args] if isinstance(args, (str, bytes, os.PathLike)) else [os.fspath(word) for word in args]
    for beginning, command in COMMANDS:
        if tuple(words[: len(beginning)]) == beginning:
            return [*command, *words[len(beginning) :]]
    return None


def _at_start(environ: Mapping[str, str]) -> dict[str, str]:
    ours = ("PYTHONPATH", str(ROOT))  # the first process has it
    return {
        name: value for name, value in environ.items() if name.startswith(AT_START) and (name, value) != ours
    }


def _fork(command: dict[str, Any], files: list[int]) -> int:
    """The id of a new process that runs the command with these files as 0, 1 and 2."""
    first = _first()
    socket.send_fds(first, [json.dumps(command).encode()], files)
    return int(first.recv(64))


@cache
def _first() -> socket.socket:
    """The socket of the process that forks, which ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [PYTHON, "-P", "-m", "tests.support.forking", str(theirs.fileno())]
        environ = dict(os.environ, PYTHONPATH=str(ROOT))
        process = subprocess.Popen(
            command, cwd=ROOT, env=environ, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    FIRST.add(process.pid)
    return ours
