"""The sides of a comparison as a table: programs, their commands for a load, and how they are started."""

from __future__ import annotations

import contextlib
import functools
import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.answers import Ask, Message
from benchmarks.sides.asked import Bare, Http, OtherPipe, Pipe
from benchmarks.sides.processes import running

CACHE_RAM = "256M"  # so small that it is soon full and reused: new memory of a VM may take 3 ms per MB
THREADS = str(os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Load:
    """The load that a process is started for: sequences at once, and the cells that they need."""

    model: Path
    parallel: int
    cells: int


@dataclass(frozen=True, slots=True)
class Side:
    """A program to measure. command: its argv for a load; kind: the build of llama.cpp, None for our own."""

    label: str
    command: Callable[[Load], list[str]]
    start: Callable[[Side, Load], AbstractContextManager[Any]]
    kind: peers.Kind | None = None
    environ: tuple[tuple[str, str], ...] = ()
    per_request: bool = False

    def started(self, load: Load) -> AbstractContextManager[Any]:
        return self.start(self, load)

    def argv(self, load: Load) -> list[str]:
        """The command with the full path of the program, which is ours or one of the peers'."""
        program, *rest = self.command(load)
        return [str(peers.programs(self.kind) / program) if self.kind else str(peers.ROOT / program), *rest]


def our_server(load: Load) -> list[str]:
    given = [
        "--model",
        str(load.model),
        "--parallel",
        str(load.parallel),
        "--port",
        "0",
        "--log-level",
        "error",
    ]
    return ["api.py", *given, "--", "-t", THREADS]


def our_server_alone(load: Load) -> list[str]:
    return [*our_server(load)[:-3], "--engine-mode", "per-request", "--", "-t", THREADS]


def our_engine(load: Load) -> list[str]:
    given = ["-np", str(load.parallel), "--cache-ram", CACHE_RAM, "-t", THREADS]
    return ["build/bin/llama-batched", "-m", str(load.model), *given]


def our_engine_empty(load: Load) -> list[str]:
    return [*our_engine(load), "--cache-cells", "0", "--cache-ram", "0"]  # the last of two equal flags counts


def our_engine_packed(load: Load) -> list[str]:
    return [*our_engine(load), "--packed-weights", str(peers.cache() / "packed")]


def our_engine_of_cells(kind: str, load: Load) -> list[str]:
    return [*our_engine(load), "-fa", "on", "-ctk", kind, "-ctv", kind]


def least_server(load: Load) -> list[str]:
    program, *given = our_engine(load)
    return ["benchmarks/floor.py", str(peers.ROOT / program), *given]


def llama_server(load: Load) -> list[str]:
    given = ["-np", str(load.parallel), "-kvu", "-c", str(2 * load.cells), "-fa", "on", "-t", THREADS]
    return ["llama-server", "-m", str(load.model), "--host", "127.0.0.1", *given]


def bare_loop(load: Load) -> list[str]:
    given = ["-pps", "-kvu", "-c", str(2 * load.cells), "-fa", "on", "-b", "2048", "-ub", "512"]
    return ["llama-batched-bench", "-m", str(load.model), *given, "-t", THREADS]


def openvino(load: Load) -> list[str]:
    program = Path(__file__).with_name("openvino_lines.py")
    return [str(peers.openvino()), str(program), str(load.model), THREADS, str(load.parallel)]


@contextlib.contextmanager
def serving(side: Side, load: Load) -> Iterator[Http]:
    argv = [sys.executable, *side.argv(load)]
    with running(argv, dict(side.environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as it:
        assert it.process.stdout
        greeting = it.process.stdout.readline().decode().split()
        if not greeting:
            raise RuntimeError(f"{side.label} did not start: {argv}")
        yield Http(it, int(greeting[0].rpartition(":")[2]), "/v1/events", our_body)


@contextlib.contextmanager
def piped(side: Side, load: Load) -> Iterator[Pipe]:
    with running(side.argv(load), dict(side.environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as it:
        yield Pipe(it)


@contextlib.contextmanager
def piped_theirs(side: Side, load: Load) -> Iterator[OtherPipe]:
    with running(side.argv(load), dict(side.environ), subprocess.PIPE, subprocess.PIPE) as it:
        yield OtherPipe(it)


@contextlib.contextmanager
def serving_theirs(side: Side, load: Load) -> Iterator[Http]:
    port = free_port()
    argv = [*side.argv(load), "--port", str(port)]
    with running(argv, dict(side.environ), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as it:
        deadline = time.monotonic() + 120
        while not healthy(port):
            if it.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{side.label} did not start: {argv}")
            time.sleep(0.005)
        yield Http(it, port, "/completion", their_body)


@contextlib.contextmanager
def looping(side: Side, load: Load) -> Iterator[Bare]:
    yield Bare(side.argv(load), dict(side.environ))


def our_body(ask: Ask) -> Message:
    body = {"prompt": ask.prompt, "n": ask.n, "max_tokens": ask.tokens, "ignore_eos": True}
    return body | dict(ask.sampling)


def their_body(ask: Ask) -> Message:
    body = {"prompt": ask.prompt, "n": ask.n, "n_predict": ask.tokens, "ignore_eos": True}
    return body | {"stream": True, "cache_prompt": True} | dict(ask.sampling)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def healthy(port: int) -> bool:
    """llama-server answers 503 while it loads."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    return False


FEW_SPINS = (("GOMP_SPINCOUNT", "6000"),)  # as our engine sets it for itself

SIDES = {
    "ours": Side("llama-srb", our_server, serving),
    "alone": Side("llama-srb, per-request", our_server_alone, serving, per_request=True),
    "least": Side("least server", least_server, serving),
    "pipe": Side("llama-batched", our_engine, piped),
    "pipe, empty": Side("llama-batched, empty cache", our_engine_empty, piped),
    "server": Side("llama-server", llama_server, serving_theirs, "plain"),
    "server+": Side("llama-server, patched", llama_server, serving_theirs, "patched"),
    "bare": Side("bare loop", bare_loop, looping, "plain"),
    "bare+": Side("bare loop, patched", bare_loop, looping, "patched"),
    "pipe, packed": Side("llama-batched, packed weights", our_engine_packed, piped),
    "pipe, q8_0": Side("cells of Q8_0", functools.partial(our_engine_of_cells, "q8_0"), piped),
    "pipe, q4_0": Side("cells of Q4_0", functools.partial(our_engine_of_cells, "q4_0"), piped),
    "openvino": Side("OpenVINO GenAI", openvino, piped_theirs),
    "server, few spins": Side("llama-server, few spins", llama_server, serving_theirs, "plain", FEW_SPINS),
    "bare, few spins": Side("bare loop, few spins", bare_loop, looping, "plain", FEW_SPINS),
    "empty": Side("no idle prompts", our_engine, piped),
    "full": Side("idle prompts", our_engine, piped),
}
