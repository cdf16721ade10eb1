"""Starts the command line in a fork of the test's process, which has imported what each start imports anew.

A start of Python with it takes 0.7 s of CPU, a fork 0.03. The process is a child as any other: its id, its
signals, its folder, its environment and its streams are its own. tests/journeys and tests/real start Python.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import io
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from llama_srb import cli


def popen(
    arguments: tuple[str, ...],
    environ: Mapping[str, str],
    folder: Path,
    before: Callable[[], object] = int,
    **options: Any,
) -> subprocess.Popen[Any]:
    """As subprocess.Popen for `llama-srb ARGUMENTS`. before: runs in the child at first."""

    own = dict(environ)  # it may be os.environ

    def child() -> NoReturn:
        try:
            before()
            _forget(own)
            code = _main(arguments)
        except BaseException:
            traceback.print_exc()
            code = 70
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        os._exit(code)

    # Popen waits until the child has closed all that it does not keep, or has become another program.
    return subprocess.Popen(["llama-srb", *arguments], cwd=folder, preexec_fn=child, **options)


def run(
    arguments: tuple[str, ...], environ: Mapping[str, str], folder: Path, stdin: str = "", timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run for `llama-srb ARGUMENTS`."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with popen(arguments, environ, folder, text=True, **pipes) as process:
        try:
            output, errors = process.communicate(stdin, timeout)
        finally:
            process.kill()
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


def _forget(environ: Mapping[str, str]) -> None:
    """Gives up what belongs to the test: its descriptors, handlers, streams and environment."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    signal.set_wakeup_fd(-1)
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL),
                            (signal.SIGPIPE, signal.SIG_IGN), (signal.SIGCHLD, signal.SIG_DFL)):  # fmt: skip
        signal.signal(number, handler)
    gc.unfreeze()
    atexit._clear()  # noqa: SLF001 (nothing public does it)
    asyncio.set_event_loop_policy(None)
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    os.environ.clear()
    os.environ.update(environ)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 (open as long as the process)
    sys.stdout = _written(1, "strict", line_buffering=os.isatty(1))
    sys.stderr = _written(2, "backslashreplace", line_buffering=True)
    sys.argv = ["llama-srb"]


def _written(descriptor: int, errors: str, *, line_buffering: bool) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        open(descriptor, "wb", closefd=False), errors=errors, line_buffering=line_buffering
    )


def _main(arguments: tuple[str, ...]) -> int:
    sys.argv += arguments
    try:
        cli.main()
    except SystemExit as end:
        code = end.code
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 (as Python's own end)
    atexit._run_exitfuncs()  # noqa: SLF001
    return code if isinstance(code, int) else 0
