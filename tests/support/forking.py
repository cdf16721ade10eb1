"""The process whose forks are llama-srb's commands (forked.py): `python -m tests.support.forking SOCKET`."""

import ctypes
import json
import os
import signal
import socket
import sys
from importlib import import_module

from llama_srb import cli

CLONE_PARENT = 0x8000  # the new process's parent is ours, not we
SYS_CLONE = {"x86_64": 56}.get(os.uname().machine, 220)


def main(commands: socket.socket) -> None:
    """Forks a process for each command. Returns in these processes; ends itself with the other side."""
    for name in cli.COMMANDS:
        import_module(f"llama_srb.cli.{name}")
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lack the other threads"
    while True:
        text, files, _, _ = socket.recv_fds(commands, 1 << 20, 3)
        if not text:
            os._exit(0)
        pid = fork()
        if pid == 0:
            commands.close()
            become(json.loads(text), files)
            return
        for file in files:
            os.close(file)
        commands.send(str(pid).encode())


def fork() -> int:
    """os.fork() for a process that is its caller's sibling, so that who asked for it can wait for it."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid = int(ctypes.PyDLL(None).syscall(SYS_CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return pid


def become(command: dict, files: list[int]) -> None:
    """Takes the command's files, folder, variables and session."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", 1 if os.isatty(1) else -1, closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    os.chdir(command["cwd"])
    os.environ.clear()
    os.environ.update(command["environ"])
    if command["new_session"]:
        os.setsid()
    sys.argv = ["llama-srb", *command["argv"]]


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
    cli.main()
