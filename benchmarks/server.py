#!/usr/bin/env python3
"""The server's overhead around the engine: .venv/bin/python benchmarks/server.py [--events N] [--real]

The real server runs between a fake engine, which writes as fast as it is read or step by step, and clients
that only read. One row for each case: events per second, and the server's CPU time and memory. Afterwards it
checks that all events came in order. The server has one core, everything else shares another. --real uses the
real engine: the server's share of CPU time, and of the time to the first token in the mode per-request. Linux
only; nothing else should run beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import http.client
import io
import itertools
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from llama_srb import config  # noqa: E402
from llama_srb.engine.commands import encode_generate  # noqa: E402
from llama_srb.request.fields import CompletionRequest  # noqa: E402
from tests.fake_engine import PREPARED, word  # noqa: E402

PROMPT, SEED = "Once upon a time,", 7
READ_SIZE = 1 << 20
SERVER_CORE, OTHER_CORE = 0, 1
PACED_SECONDS = 6.0
SHARE_N, SHARE_TOKENS = 32, 64
STARTS = 15


@dataclass(frozen=True)
class Case:
    """One case. step_ms: the engine's pause between steps, so that a read gets one step; None: no pause."""

    dialect: str
    n: int
    requests: int = 1
    step_ms: float | None = None

    def engine(self, folder: Path) -> Path:
        """Writes the fake engine as an executable program."""
        pause = "--flood" if self.step_ms is None else f"--token-delay {self.step_ms / 1000}"
        program = folder / "engine"
        fake = f"{sys.executable} -I -S {ROOT}/tests/fake_engine"
        program.write_text(f'#!/bin/sh\nexec {fake} --torrent {pause} "$@"\n')
        program.chmod(0o755)
        return program

    def body(self, max_tokens: int) -> bytes:
        form = {"stream": True} if self.dialect == "openai" else {}
        fields = {"prompt": PROMPT, "n": self.n, "max_tokens": max_tokens, "seed": SEED}
        return json.dumps(fields | form).encode()

    def max_tokens(self, events: int) -> int:
        if self.step_ms is not None:
            return int(1000 * PACED_SECONDS / self.step_ms)
        return max(1, events // (self.n * self.requests))


CASES = (
    *(Case(dialect, n) for dialect in ("events", "openai") for n in (8, 32, 64)),
    *(Case(dialect, n=8, requests=8) for dialect in ("events", "openai")),
    *(Case(dialect, n=32, step_ms=5.0) for dialect in ("events", "openai")),
    Case("events", n=32, step_ms=160.0),  # about what a model of 0.5B takes on two cores
)


@dataclass(frozen=True)
class Row:
    """One measurement; CPU time is the server's, user and system."""

    case: Case
    events: int
    seconds: float
    cpu_seconds: float
    idle_mb: float
    most_mb: float

    def cells(self) -> list[str]:
        case = self.case
        pace = "flood" if case.step_ms is None else f"{1000 / case.step_ms:.0f} steps/s"
        rates = [self.events / self.seconds, self.events / self.cpu_seconds]
        share = 100 * self.cpu_seconds / self.seconds
        return [
            case.dialect, str(case.n), str(case.requests), pace, *(f"{rate:,.0f}" for rate in rates),
            f"{1e5 * self.cpu_seconds / self.events:.2f}", f"{share:.1f} %", f"{self.idle_mb:.0f}",
            f"{self.most_mb:.0f}",
        ]  # fmt: skip


HEADS = [
    "dialect", "n", "requests", "engine", "events/s", "events per CPU s", "CPU s per 100k", "of a core",
    "MB idle", "MB at most",
]  # fmt: skip


# The server as a process, as the kernel sees it


@dataclass(frozen=True)
class Server:
    pid: int
    port: int

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of all threads: utime and stime of /proc/PID/stat, but with nanoseconds."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    @property
    def engines(self) -> list[int]:
        return list(map(int, Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()))

    def megabytes(self, name: str) -> float:
        """Resident memory: VmRSS is the current one, VmHWM the maximum so far."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024 / 1e6

    def pin(self) -> None:
        """Binds the server to one core, the engine and this process to the other."""
        os.sched_setaffinity(self.pid, {SERVER_CORE})
        for pid in (0, *self.engines):
            os.sched_setaffinity(pid, {OTHER_CORE})


@contextlib.contextmanager
def serving(*arguments: str | Path) -> Iterator[Server]:
    ours = {key: value for key, value in os.environ.items() if not key.startswith("LLAMA_SRB_")}
    command = [ROOT / "api.py", "--port", "0", "--stop-grace", "0", "--log-level", "warning", *arguments]
    with subprocess.Popen(command, env=ours, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if not (greeting := process.stdout.readline()):
                sys.exit("server.py: the server did not start")
            yield Server(process.pid, int(greeting.split()[0].rsplit(":", 1)[1]))
        finally:
            process.terminate()


# Clients, which only read during the measurement, and check afterwards


def ask(server: Server, body: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port))
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


def read_all(connections: list[socket.socket]) -> list[bytes]:
    """Reads each connection to its end and closes it."""
    pieces: dict[int, list[bytes]] = {connection.fileno(): [] for connection in connections}
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                if piece := key.fileobj.recv(READ_SIZE):  # type: ignore[union-attr]
                    pieces[key.fd].append(piece)
                else:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
    return [b"".join(each) for each in pieces.values()]


class _Read:
    """Data that was read from a socket, for http.client."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def body_of(answer: bytes) -> bytes:
    response = http.client.HTTPResponse(_Read(answer))  # type: ignore[arg-type]
    response.begin()
    if response.status != 200:
        sys.exit(f"server.py: status {response.status}: {response.read()!r}")
    return response.read()


def texts(dialect: str, answer: bytes) -> Iterator[tuple[int, str]]:
    """The index and text of each stream event."""
    for frame in body_of(answer).split(b"\n\n"):
        data: Any = orjson.loads(frame[6:]) if frame.startswith(b"data: {") else {}
        if dialect == "events" and data.get("event") == "stream":
            yield data["index"], data["text"]
        for choice in data.get("choices", ()):
            if choice["finish_reason"] is None:
                yield choice["index"], choice["text"]


def check(case: Case, max_tokens: int, answer: bytes) -> None:
    """Exits with an error unless all n texts are complete and in order."""
    came: list[list[str]] = [[] for _ in range(case.n)]
    for index, text in texts(case.dialect, answer):
        came[index].append(text)
    for index, story in enumerate(came):
        said = [word(PROMPT, SEED, index, position) for position in range(PREPARED)]
        if story != list(itertools.islice(itertools.cycle(said), max_tokens)):
            sys.exit(
                f"server.py: {case}: sequence {index} is not what the engine wrote ({len(story)} events)"
            )


# With the fake engine: the server's throughput


def measure(case: Case, events: int) -> Row:
    max_tokens = case.max_tokens(events)
    with tempfile.TemporaryDirectory() as folder, serving("--engine", case.engine(Path(folder))) as server:
        server.pin()
        idle_mb, cpu_began, began = server.megabytes("VmRSS"), server.cpu_seconds, time.perf_counter()
        answers = read_all([ask(server, case.body(max_tokens)) for _ in range(case.requests)])
        seconds, cpu_seconds = time.perf_counter() - began, server.cpu_seconds - cpu_began
        most_mb = server.megabytes("VmHWM")
    for answer in answers:
        check(case, max_tokens, answer)
    return Row(case, max_tokens * case.n * case.requests, seconds, cpu_seconds, idle_mb, most_mb)


def printed(rows: list[Row]) -> str:
    lines = [HEADS, *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADS))]
    aligned = ([cell.ljust(w) for cell, w in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in aligned)


# With the real engine: the server's share of CPU time and of the time to the first token


def share(model: list[str]) -> str:
    """The server's CPU time while the engine computes on all cores."""
    with serving(*model) as server:
        body = Case("events", SHARE_N).body(SHARE_TOKENS)
        cpu_began, began = server.cpu_seconds, time.perf_counter()
        read_all([ask(server, body)])
        seconds, cpu_seconds = time.perf_counter() - began, server.cpu_seconds - cpu_began
    cores = os.cpu_count() or 1
    of_all = 100 * cpu_seconds / seconds / cores
    return (
        f"n = {SHARE_N}, {SHARE_TOKENS} tokens each: {seconds:.1f} s, of which the server's CPU time "
        f"{cpu_seconds:.3f} s: {of_all:.2f} % of {cores} cores"
    )


def first_token(model: list[str], options: dict[str, Any]) -> str:
    """The time from a request to its first stream event: with the server, and with the engine alone."""
    mode = "per-request"
    command = config.load({"engine_mode": mode, **options}, config=None).engine_command
    asked, alone = [], []
    with serving("--engine-mode", mode, *model) as server:
        for _ in range(STARTS):
            asked.append(asked_first_token_ms(server))
            alone.append(alone_first_token_ms(command))
    through, without = statistics.median(asked), statistics.median(alone)
    return f"first token, {mode}: {through:.1f} ms from POST, {without:.1f} ms with the engine alone"


def asked_first_token_ms(server: Server) -> float:
    began, data = time.perf_counter(), b""
    with ask(server, Case("events", n=8).body(max_tokens=4)) as connection:
        while b'"stream"' not in data:
            data += connection.recv(READ_SIZE)
        seconds = time.perf_counter() - began
        read_all([connection])
    while server.engines:  # its end must not overlap with the next one's start
        time.sleep(0.005)
    return 1000 * seconds


def alone_first_token_ms(command: tuple[str, ...]) -> float:
    line, began = (
        encode_generate("1", CompletionRequest(prompt=PROMPT, n=8, max_tokens=4)),
        time.perf_counter(),
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write(line)
        process.stdin.close()
        while b'"stream"' not in process.stdout.readline():
            pass
        seconds = time.perf_counter() - began
        process.stdout.read()
    return 1000 * seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000, help="of each flood (default: 1000000)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--real", action="store_true", help="ask the real engine instead")
    parser.add_argument("--model", type=Path, help="with --real: a GGUF file (default: the bundled model)")
    wanted = parser.parse_args()
    if wanted.real:
        model = ["--model", str(wanted.model)] if wanted.model else []
        print(share(model))
        print(first_token(model, {"model": wanted.model} if wanted.model else {}))
        return
    rows = [measure(case, wanted.events) for case in CASES]
    print(json.dumps([dataclasses.asdict(row) for row in rows], indent=1) if wanted.json else printed(rows))


if __name__ == "__main__":
    main()
