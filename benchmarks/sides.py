"""The sides of a comparison: processes that answer the same requests, with the time of each token.

A side is started for a load, answers one request in each round, and is stopped (SIGSTOP) while others answer.
It knows neither rows nor tables. Prompts are token ids, so that all sides have equally many; the end of text
is ignored.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks import peers
from benchmarks.answers import Answer, Ask, Figures, Message, answer_of, bench_table, messages

PAUSE = 0.2  # seconds after an answer; our engine copies idle prefixes to host memory after 0.05 s
CACHE_RAM = "256M"  # so small that it is soon full and reused: new memory of a VM may take 3 ms per MB
TIMEOUT = 900.0  # seconds without a byte; the slowest prompt takes 150 s on two cores
THREADS = str(os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Load:
    """The load that a process is started for: sequences at once, and the cells that they need."""

    model: Path
    parallel: int
    cells: int


# Processes


def descendants(pid: int) -> list[int]:
    """All descendants of a process, parents first."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
    found = [pid]
    for one in found:  # grows during the loop
        found += [child for child, parent in pairs if parent == one]
    return found[1:]


@dataclass(frozen=True, slots=True)
class Running:
    """A process and its descendants."""

    process: subprocess.Popen[bytes]

    def ids(self) -> list[int]:
        """The process ids, the process itself first."""
        return [self.process.pid, *descendants(self.process.pid)]

    def signal(self, number: int) -> None:
        for pid in self.ids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        """Lets the processes run in this block, and for PAUSE seconds more for work between requests."""
        self.signal(signal.SIGCONT)
        try:
            yield
            time.sleep(PAUSE)
        finally:
            self.signal(signal.SIGSTOP)

    def memory(self) -> list[float]:
        """The resident memory of each process in MB, the process itself first."""
        wanted = ",".join(map(str, self.ids()))
        listed = subprocess.run(
            ["ps", "-o", "rss=", "-p", wanted], capture_output=True, text=True, check=True
        )
        return [int(line) / 1024 for line in listed.stdout.split()]


@contextlib.contextmanager
def running(side: Side, argv: Sequence[str], stdin: int, stdout: int) -> Iterator[Running]:
    """Runs a process until the end of the block; it may be stopped (SIGSTOP) then."""
    environ, nowhere = os.environ | dict(side.environ), subprocess.DEVNULL
    with subprocess.Popen(argv, env=environ, stdin=stdin, stdout=stdout, stderr=nowhere) as process:
        it = Running(process)
        try:
            yield it
        finally:
            all_of_it = it.ids()
            it.signal(signal.SIGCONT)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            for pid in all_of_it if process.poll() is None else all_of_it[1:]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def reads(read: Callable[[], bytes]) -> Iterator[tuple[float, bytes]]:
    """Reads to the end; yields each piece with its time."""
    while data := read():
        yield time.perf_counter(), data


# Processes that answer requests


class Asked:
    """A running process that answers requests."""

    def __init__(self, it: Running) -> None:
        self.running = it

    def ask(self, ask: Ask) -> Answer:
        raise NotImplementedError

    def rates(self, ask: Ask) -> Figures:
        """Tokens per second: prefill, if the prompt is new, and decode of all sequences."""
        with self.running.awake():
            answer = self.ask(ask)
        cold = {} if answer.cached_tokens else {"prefill": len(ask.prompt) / answer.first}
        return {"decode": answer.rate} | cold

    def facts(self) -> Figures:
        server, *engine = self.running.memory()
        return {"server MB": server} | ({"engine MB": sum(engine)} if engine else {})


class Http(Asked):
    """A server; write() makes the body of a request."""

    def __init__(self, it: Running, port: int, path: str, write: Callable[[Ask], Message]) -> None:
        super().__init__(it)
        self._port, self._path, self._write = port, path, write

    def ask(self, ask: Ask) -> Answer:
        body = json.dumps(self._write(ask))
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT)
        with contextlib.closing(connection):
            began = time.perf_counter()
            connection.request("POST", self._path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise RuntimeError(f"{self._path} answered {response.status}: {response.read(500)!r}")
            return answer_of(began, list(reads(lambda: response.read1(1 << 16))), ask.n)


class Pipe(Asked):
    """llama-batched without a server."""

    def __init__(self, it: Running) -> None:
        super().__init__(it)
        assert it.process.stdin
        assert it.process.stdout
        self._stdin: IO[bytes] = it.process.stdin
        self._output = it.process.stdout.fileno()
        self._count = 0

    def ask(self, ask: Ask) -> Answer:
        began = time.perf_counter()
        return answer_of(began, self._generate(ask), ask.n)

    def rates(self, ask: Ask) -> Figures:
        """Rates by the engine's own clock; `around`: the percentage of a step's time outside the model.

        Its output is read only every 20 ms, so that the reader takes no core from the engine.
        """
        with self.running.awake():
            before = self.status()
            read = self._generate(ask, pause=0.02)
            after = self.status()
        *_, (_, done) = messages(read)
        if done["event"] != "done":
            raise RuntimeError(f"a request failed: {done}")
        timings = done["timings"]
        cold = {} if done["cached_tokens"] else {"prefill": 1000 * len(ask.prompt) / timings["prompt_ms"]}
        steps, model = (after[name] - before[name] for name in ("step_us", "model_us"))
        rate = 1000 * (done["completion_tokens"] - ask.n) / timings["decode_ms"]
        return {"decode": rate, "around": 100 * (1 - model / steps)} | cold

    def prefix(self, prompt: tuple[int, ...]) -> None:
        """Prefills a prompt, which then stays in idle cells."""
        self._call("prefix", tokens=prompt)

    def status(self) -> Message:
        """The engine's status."""
        return next(message for _, message in messages(self._call("status")) if message["event"] == "result")

    def facts(self) -> Figures:
        return {"engine MB": self.running.memory()[0], "cells": self.status()["cells_used"]}

    def _generate(self, ask: Ask, pause: float = 0) -> list[tuple[float, bytes]]:
        wanted = {"tokens": ask.prompt, "n": ask.n, "max_tokens": ask.tokens}
        return self._call("generate", pause, **wanted, sampling={"ignore_eos": True} | dict(ask.sampling))

    def _call(self, op: str, pause: float = 0, **fields: Any) -> list[tuple[float, bytes]]:
        """Sends a command and reads up to its closing event, with `pause` seconds between two reads."""
        self._count += 1
        command = {"op": op, "id": str(self._count)} | fields
        self._stdin.write(json.dumps(command).encode() + b"\n")
        self._stdin.flush()
        end = [b'{"event":"%b","id":"%d"' % (word, self._count) for word in (b"done", b"result", b"error")]
        found: list[tuple[float, bytes]] = []
        for at_and_data in reads(self._read):
            found.append(at_and_data)
            if any(word in at_and_data[1] for word in end):  # never split: a step's events are one write
                return found
            time.sleep(pause)
        raise RuntimeError(f"llama-batched ended while it was asked to {op}")

    def _read(self) -> bytes:
        if not select.select([self._output], [], [], TIMEOUT)[0]:
            raise TimeoutError(f"llama-batched has been silent for {TIMEOUT:.0f} s")
        return os.read(self._output, 1 << 20)


class Bare:
    """llama-batched-bench, one process for each figure, without requests, sampling and a first token."""

    def __init__(self, command: Sequence[str], environ: dict[str, str]) -> None:
        self._command, self._environ = command, os.environ | environ

    def rates(self, ask: Ask) -> Figures:
        """Runs it, and again if it printed no row, which its log thread sometimes loses at the end."""
        shape = ["-npp", str(len(ask.prompt)), "-ntg", str(ask.tokens), "-npl", str(ask.n)]
        for _ in range(5):
            done = subprocess.run(
                [*self._command, *shape],
                env=self._environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                timeout=TIMEOUT, check=True,
            )  # fmt: skip
            for row in bench_table(done.stdout):
                return {"decode": row["S_TG t/s"], "prefill": row["S_PP t/s"]}
        raise RuntimeError(f"{self._command[0]} printed no row: {done.stdout!r}")


# The sides


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


def least_server(load: Load) -> list[str]:
    program, *given = our_engine(load)
    return ["benchmarks/floor.py", str(peers.ROOT / program), *given]


def llama_server(load: Load) -> list[str]:
    given = ["-np", str(load.parallel), "-kvu", "-c", str(2 * load.cells), "-fa", "on", "-t", THREADS]
    return ["llama-server", "-m", str(load.model), "--host", "127.0.0.1", *given]


def bare_loop(load: Load) -> list[str]:
    given = ["-pps", "-kvu", "-c", str(2 * load.cells), "-fa", "on", "-b", "2048", "-ub", "512"]
    return ["llama-batched-bench", "-m", str(load.model), *given, "-t", THREADS]


@contextlib.contextmanager
def serving(side: Side, load: Load) -> Iterator[Http]:
    argv = [sys.executable, *side.argv(load)]
    with running(side, argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as it:
        assert it.process.stdout
        greeting = it.process.stdout.readline().decode().split()
        if not greeting:
            raise RuntimeError(f"{side.label} did not start: {argv}")
        yield Http(it, int(greeting[0].rpartition(":")[2]), "/v1/events", our_body)


@contextlib.contextmanager
def piped(side: Side, load: Load) -> Iterator[Pipe]:
    with running(side, side.argv(load), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as it:
        yield Pipe(it)


@contextlib.contextmanager
def serving_theirs(side: Side, load: Load) -> Iterator[Http]:
    port = free_port()
    argv = [*side.argv(load), "--port", str(port)]
    with running(side, argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as it:
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
    "server, few spins": Side("llama-server, few spins", llama_server, serving_theirs, "plain", FEW_SPINS),
    "bare, few spins": Side("bare loop, few spins", bare_loop, looping, "plain", FEW_SPINS),
    "empty": Side("no idle prompts", our_engine, piped),
    "full": Side("idle prompts", our_engine, piped),
}
