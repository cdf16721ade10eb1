"""Runs llama-batched without the server, synchronously: sends commands, returns complete answers."""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import termios
import time
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.places import BINARY, STORYTELLER
from tests.support.processes import cpu

LIMIT = 120.0  # seconds; an answer takes milliseconds, but the machine may be busy

Event = dict[str, Any]


@dataclass
class Answer:
    """The events of one request, each with the number of its line; texts and tokens by sequence."""

    events: list[Event] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return bool(self.events) and self.events[-1]["event"] in ("done", "error", "result")

    def named(self, name: str) -> list[Event]:
        return [event for event in self.events if event["event"] == name]

    @property
    def start(self) -> Event:
        return self.named("start")[0]

    @property
    def done(self) -> Event:
        assert self.events[-1]["event"] == "done", self.events[-1]
        return self.events[-1]

    @cached_property
    def stops(self) -> list[Event]:
        """The stop events, ordered by index. Each sequence stops exactly once."""
        stops = sorted(self.named("stop"), key=lambda event: event["index"])
        assert [stop["index"] for stop in stops] == list(range(self.done["count"]))
        return stops

    def _streams(self) -> list[list[Event]]:
        streams: list[list[Event]] = [[] for _ in self.stops]
        for event in self.named("stream"):
            streams[event["index"]].append(event)
        return streams

    @cached_property
    def pieces(self) -> list[list[str]]:
        return [[event["text"] for event in stream] for stream in self._streams()]

    @property
    def texts(self) -> list[str]:
        return ["".join(pieces) for pieces in self.pieces]

    @cached_property
    def tokens(self) -> list[list[Event]]:
        """Needs logprobs: id, text, logprob and top of each token that has text."""
        return [
            [token for event in stream for token in event.get("tokens", [])] for stream in self._streams()
        ]

    @property
    def ids(self) -> list[list[int]]:
        return [[token["id"] for token in tokens] for tokens in self.tokens]

    @property
    def lengths(self) -> list[int]:
        return [stop["length"] for stop in self.stops]


def unread(pipe: int) -> int:
    """The number of bytes in a pipe that its reader has not read yet."""
    count = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def no_number(word: str) -> Any:
    """Refuses NaN and Infinity, which Python's parser accepts and JSON does not have."""
    raise ValueError(f"{word} is no number of JSON")


class Lines:
    """A running llama-batched: `with Lines("-np", "8") as engine: engine.generate(prompt="Once")`."""

    def __init__(self, *flags: str, model: Path = STORYTELLER) -> None:
        self._argv = [str(BINARY), "-m", str(model), *flags]
        self._ids = iter(range(1_000_000))
        self._rest = b""
        self._n_read = 0
        self._answers: dict[str, Answer] = {}

    def __enter__(self) -> Lines:
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(self._argv, stdin=pipe, stdout=pipe, stderr=null, bufsize=0)
        while self.read()["event"] != "ready":
            pass
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        assert self._process.stdin
        assert self._process.stdout
        if kind:
            self._process.kill()
        self._process.stdin.close()
        self._process.stdout.close()  # so that it exits at once, even if requests run
        self._process.wait(LIMIT)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, *commands: dict[str, Any]) -> list[str]:
        """Sends all commands in one write; returns their ids."""
        commands = tuple({"id": str(next(self._ids))} | command for command in commands)
        for command in commands:
            self._answers.setdefault(command["id"], Answer())
        self.write("".join(json.dumps(command) + "\n" for command in commands).encode())
        return [command["id"] for command in commands]

    def write(self, data: bytes) -> None:
        """Writes lines, which need not be commands."""
        assert self._process.stdin
        while data:
            data = data[os.write(self._process.stdin.fileno(), data) :]

    def send_amid(self, command: dict[str, Any]) -> None:
        """Sends a command about a request that cannot have ended: its unread lines fill more than a pipe.

        The engine reads the command before this test reads on. Otherwise, on a busy machine, its reader
        thread may wait so long for a core that the request ends first.
        """
        self.send(command)
        assert self._process.stdin
        deadline = time.monotonic() + LIMIT
        while unread(self._process.stdin.fileno()):
            assert time.monotonic() < deadline, f"the engine reads nothing for {LIMIT} seconds"
            assert self._process.poll() is None, "the engine has ended"
            time.sleep(0.001)

    def read(self) -> Event:
        """Reads the next event, and adds it to its request's answer."""
        assert self._process.stdout
        deadline = time.monotonic() + LIMIT
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], deadline - time.monotonic())
            assert ready, f"no line for {LIMIT} seconds"
            chunk = os.read(self._process.stdout.fileno(), 1 << 20)
            assert chunk, f"the engine has ended with {self._process.wait(LIMIT)}"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        self._n_read += 1
        event: Event = json.loads(line.decode(), parse_constant=no_number)  # strictly: UTF-8, finite numbers
        event["line"] = self._n_read
        if event.get("id") in self._answers:
            self._answers[event["id"]].events.append(event)
        return event

    def answers(self, ids: Iterable[str]) -> list[Answer]:
        """Reads until all of these requests have ended; returns their answers."""
        answers = [self._answers[id] for id in ids]
        while not all(answer.over for answer in answers):
            self.read()
        return answers

    def generate_all(self, *requests: dict[str, Any]) -> list[Answer]:
        """Runs these requests at the same time."""
        ids = self.send(*({"op": "generate"} | request for request in requests))
        return self.answers(ids)

    def generate(self, **request: Any) -> Answer:
        return self.generate_all(request)[0]

    def ask(self, op: str, **fields: Any) -> Event:
        """Sends a command that generates nothing; returns its answer."""
        (answer,) = self.answers(self.send({"op": op} | fields))
        return answer.events[-1]

    def wait_for_trim(self, n_idle: int) -> None:
        """Waits until idle prefixes hold at most n_idle cells: an idle engine evicts them one by one."""
        deadline = time.monotonic() + LIMIT / 4
        while (status := self.ask("status"))["cells_idle"] > n_idle:
            assert time.monotonic() < deadline, status
            time.sleep(0.001)

    def wait_for_sleep(self) -> None:
        """Waits until the engine uses no CPU time."""
        deadline = time.monotonic() + LIMIT / 4
        before = -1.0
        while (now := cpu(self.pid)) > before:
            assert time.monotonic() < deadline
            before = now
            time.sleep(0.1)
