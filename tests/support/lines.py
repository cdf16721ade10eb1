"""llama-batched by itself, synchronously: one process, commands in, whole answers out."""

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

LIMIT = 120.0  # seconds; a bound for what takes milliseconds, on a machine that does other things too

Event = dict[str, Any]


@dataclass
class Answer:
    """The events of one request, each with its line's number, and what they come to for each sequence."""

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
        """By index; each sequence stops exactly once."""
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
        """With logprobs: id, text, logprob, top of each token that is text."""
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
    """Bytes that were written to a pipe, and nobody has read yet."""
    count = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def no_number(word: str) -> Any:
    """Python reads NaN and Infinity, which JSON has not."""
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
        self._process.stdout.close()  # it ends at once, whatever runs
        self._process.wait(LIMIT)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, *commands: dict[str, Any]) -> list[str]:
        """All commands in one write; their ids."""
        commands = tuple({"id": str(next(self._ids))} | command for command in commands)
        for command in commands:
            self._answers.setdefault(command["id"], Answer())
        self.write("".join(json.dumps(command) + "\n" for command in commands).encode())
        return [command["id"] for command in commands]

    def write(self, data: bytes) -> None:
        """Lines that need not be commands."""
        assert self._process.stdin
        while data:
            data = data[os.write(self._process.stdin.fileno(), data) :]

    def send_amid(self, command: dict[str, Any]) -> None:
        """To a request that cannot end yet: nobody reads its lines, which are more than a pipe holds.

        The engine has read the command before we read on. On a busy machine its thread for that may wait so
        long for a core that the request would have ended.
        """
        self.send(command)
        assert self._process.stdin
        deadline = time.monotonic() + LIMIT
        while unread(self._process.stdin.fileno()):
            assert time.monotonic() < deadline, f"the engine reads nothing for {LIMIT} seconds"
            assert self._process.poll() is None, "the engine has ended"
            time.sleep(0.001)

    def read(self) -> Event:
        """The next event; its request's answer has it too."""
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
        """Reads until each of these requests has ended."""
        answers = [self._answers[id] for id in ids]
        while not all(answer.over for answer in answers):
            self.read()
        return answers

    def generate_all(self, *requests: dict[str, Any]) -> list[Answer]:
        """Requests that run beside each other."""
        ids = self.send(*({"op": "generate"} | request for request in requests))
        return self.answers(ids)

    def generate(self, **request: Any) -> Answer:
        return self.generate_all(request)[0]

    def ask(self, op: str, **fields: Any) -> Event:
        """The answer to a command that generates nothing."""
        (answer,) = self.answers(self.send({"op": op} | fields))
        return answer.events[-1]

    def wait_for_trim(self, n_idle: int) -> None:
        """Until idle prefixes hold at most n_idle cells: while nothing runs, one after the other leaves."""
        deadline = time.monotonic() + LIMIT / 4
        while (status := self.ask("status"))["cells_idle"] > n_idle:
            assert time.monotonic() < deadline, status
            time.sleep(0.001)

    def wait_for_sleep(self) -> None:
        """Until it takes no processor's time."""
        deadline = time.monotonic() + LIMIT / 4
        before = -1.0
        while (now := cpu(self.pid)) > before:
            assert time.monotonic() < deadline
            before = now
            time.sleep(0.1)
