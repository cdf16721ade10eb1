"""A server started from Python: `with llama_srb.serve(model="m.gguf") as client: client.complete("Once")`.

It is `llama-srb serve` in a process of its own, of which this knows the greeting and how to end it.
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

START_TIMEOUT = 120.0  # seconds: a large model from a slow disk; `timeout` is for larger ones
END_TIMEOUT = 10.0  # seconds: more than the engine's own grace, twice


class NotStarted(ClientError):
    """The server has not started; the message is what it said last."""


@contextmanager
def serve(
    model: str | Path | None = None, *, timeout: float = START_TIMEOUT, **settings: Any
) -> Iterator[Client]:
    """A client of a server that ends with the block, on a free port of this computer.

    model is a GGUF file, the bundled storyteller if None; settings are those of docs/operations.md, as
    ctx=8192; the environment's (LLAMA_SRB_*) do not count. NotStarted if not ready in timeout seconds.
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
        said: deque[str] = deque(maxlen=1)
        listener = threading.Thread(target=_listen, args=(process, said), daemon=True)
        listener.start()
        try:
            with Client(_greeted(process, timeout, listener, said), api_key=_key(settings)) as client:
                yield client
        finally:
            _end(process)
            listener.join()


def _listen(process: subprocess.Popen[str], said: deque[str]) -> None:
    """A pipe that nobody reads would block the server sooner or later."""
    assert process.stderr is not None
    for line in process.stderr:
        said.append(line.strip())


def _greeted(
    process: subprocess.Popen[str], timeout: float, listener: threading.Thread, said: deque[str]
) -> str:
    """The address that the server greets with."""
    assert process.stdout is not None
    bound = threading.Timer(timeout, process.kill)
    bound.start()
    try:
        address = process.stdout.readline().partition(" ")[0]
    finally:
        bound.cancel()
    if address.startswith("http"):
        return address
    process.wait()
    listener.join()
    reason = said[-1].removeprefix("Error: ") if said else f"no answer in {timeout:g} s"
    raise NotStarted(reason, code="not_started")


def _key(settings: dict[str, Any]) -> str | None:
    key = settings.get("api_key")
    return key if key is None or isinstance(key, str) else key[0]


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_TIMEOUT)
    process.kill()
