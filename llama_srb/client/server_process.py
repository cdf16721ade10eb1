"""A server started from Python: `with llama_srb.serve(model="m.gguf") as client: client.complete("Once")`.

It runs `llama-srb serve` as a subprocess, reads its address from its first line, and ends it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from llama_srb import config
from llama_srb.client import Client, ClientError

START_TIMEOUT = 120.0  # seconds, for a large model from a slow disk; the argument `timeout` replaces it
END_TIMEOUT = 10.0  # seconds; longer than the server takes to end its engine (twice stop_grace)


class NotStarted(ClientError):
    """The server did not start; the message is its last line on stderr."""


@contextmanager
def serve(
    model: str | Path | None = None, *, timeout: float = START_TIMEOUT, **settings: Any
) -> Iterator[Client]:
    """Starts a server on a free port of this computer, returns its client, and ends it with the block.

    model: a GGUF file, or None for the bundled storyteller. settings: those of docs/settings.md, as ctx=8192;
    environment variables (LLAMA_SRB_*) are ignored. NotStarted if it is not ready in `timeout` seconds.
    """
    given = {"model": model, "host": "127.0.0.1", "port": 0, "stop_grace": 0, **settings}
    try:
        inherited = config.environment(given)
    except config.SettingsError as error:
        raise NotStarted(str(error), code="not_started") from None
    command = [sys.executable, "-P", "-m", "llama_srb.cli", "serve"]
    with subprocess.Popen(
        command,
        env=inherited,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        last_line: deque[str] = deque(maxlen=1)
        reader = threading.Thread(target=_read_stderr, args=(process, last_line), daemon=True)
        reader.start()
        try:
            with Client(_address(process, timeout, reader, last_line), api_key=_key(settings)) as client:
                yield client
        finally:
            _end(process)
            reader.join()


def _read_stderr(process: subprocess.Popen[str], last_line: deque[str]) -> None:
    """Keeps the last line of stderr. A full pipe would block the server, so all of it is read."""
    assert process.stderr is not None
    for line in process.stderr:
        last_line.append(line.strip())


def _address(
    process: subprocess.Popen[str], timeout: float, reader: threading.Thread, last_line: deque[str]
) -> str:
    """Waits for the server's first line on stdout, which begins with its address."""
    assert process.stdout is not None
    killer = threading.Timer(timeout, process.kill)
    killer.start()
    try:
        address = process.stdout.readline().partition(" ")[0]
    finally:
        killer.cancel()
    if address.startswith(("http", "unix:")):
        return address
    process.wait()
    reader.join()
    reason = last_line[-1].removeprefix("Error: ") if last_line else f"no answer in {timeout:g} s"
    raise NotStarted(reason, code="not_started")


def _key(settings: dict[str, Any]) -> str | None:
    key = settings.get("api_key")
    return key if key is None or isinstance(key, str) else key[0]


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_TIMEOUT)
    process.kill()
