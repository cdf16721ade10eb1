"""What the sides have in common once they run: they answer the same requests, with the time of each token.

Prompts are token ids, so that all sides have equally many; the end of text is ignored. Rows and tables are
not known here.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from benchmarks.answers import Answer, Ask, Figures, Message, answer_of, bench_table, messages
from benchmarks.sides.processes import Running, reads

TIMEOUT = 900.0  # seconds without a byte; the slowest prompt takes 150 s on two cores


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
        began = time.perf_counter()
        with self.post(self._path, self._write(ask)) as response:
            return answer_of(began, list(reads(lambda: response.read1(1 << 16))), ask.n)

    @contextlib.contextmanager
    def post(self, path: str, body: Message) -> Iterator[http.client.HTTPResponse]:
        """The answer to a request, whose body is not yet read."""
        sent = json.dumps(body)
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT)) as it:
            it.request("POST", path, sent, {"Content-Type": "application/json"})
            response = it.getresponse()
            if response.status != 200:
                raise RuntimeError(f"{path} answered {response.status}: {response.read(500)!r}")
            yield response


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
        with self.running.awake():
            cells = self.status()["cells_used"]
        return {"engine MB": self.running.memory()[0], "cells": cells}

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


class OtherPipe(Pipe):
    """Another program that reads such commands, of which only the lines are known."""

    rates = Asked.rates

    def facts(self) -> Figures:
        return {"engine MB": self.running.memory()[0]}


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
