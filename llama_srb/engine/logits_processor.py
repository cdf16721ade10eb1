"""One's own logits processor, and the process in which it runs beside the engine.

A server that is started with `--logits-processor my.module:make` calls `make(vocabulary)` once. What it
returns has a method `apply(rows, sequences)`: it gets the rows of logits from which the next tokens of one
request's sequences are drawn, and changes them, or returns others:

    class Shorter:
        def __init__(self, vocabulary):
            self.ends = list(vocabulary.ends)

        def apply(self, rows, sequences):
            for row, sequence in zip(rows, sequences):
                row[self.ends] += 0.1 * len(sequence.output)

    make = Shorter

Requests ask for it by `logits_processor`: true, or an object that each of their sequences has as `arguments`.
The engine draws again and again from the same beginning (a text goes back, a request is continued), so what
`apply` does should follow from its arguments alone.

engine/schedule/outside_processor.h says what comes over the socket and lies in the shared memory.
"""

from __future__ import annotations

import importlib
import json
import mmap
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from llama_srb.engine.stderr import OWN_PREFIX

Logits = NDArray[np.float32]
Tokens = NDArray[np.int32]
SOCKET, MEMORY = 3, 4  # descriptors


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """pieces: the bytes of each token, by id. ends: the tokens that end a text."""

    pieces: tuple[bytes, ...]
    ends: frozenset[int]


@dataclass(frozen=True, slots=True)
class RowSequence:
    """A sequence of the request `request`. prompt, output: ids of its tokens, valid until `apply` returns."""

    request: str
    index: int
    arguments: dict[str, Any]
    prompt: Tokens
    output: Tokens


class Processor(Protocol):
    """What MODULE:FUNCTION returns."""

    def apply(self, rows: Logits, sequences: Sequence[RowSequence]) -> Logits | None:
        """Changes the rows, one a sequence with a logit for each token, or returns as many others.

        A logit is a number, or -inf for a token that is not drawn; one at least is a number.
        """


def load(name: str, vocabulary: Vocabulary) -> Processor:
    """What the function of MODULE:FUNCTION makes; TypeError if it has no `apply`."""
    module, _, function = name.partition(":")
    make: Any = importlib.import_module(module)
    for part in function.split("."):
        make = getattr(make, part)
    processor: Processor = make(vocabulary)
    if not callable(getattr(processor, "apply", None)):
        raise TypeError(f"{name} returned {processor!r}, which has no method apply(rows, sequences)")
    return processor


class _Memory:
    """The shared memory: row i, and behind it the tokens of its sequence, lie at i * stride."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._vocab, rows, stride = asked["n_vocab"], asked["n_rows"], asked["stride"] // 4
        shared = mmap.mmap(MEMORY, 4 * stride * rows)
        self._floats = np.frombuffer(shared, np.float32).reshape(rows, stride)
        self._ids = np.frombuffer(shared, np.int32).reshape(rows, stride)

    def rows(self, n: int) -> Logits:
        return self._floats[:n, : self._vocab]

    def tokens(self, i: int, prompt: int, output: int) -> tuple[Tokens, Tokens]:
        begin, middle = self._vocab, self._vocab + prompt
        return self._ids[i, begin:middle], self._ids[i, middle : middle + output]


def _process(processor: Processor, memory: _Memory, asked: dict[str, Any]) -> None:
    rows = memory.rows(len(asked["rows"]))
    sequences = [
        RowSequence(
            asked["id"], one["index"], one["arguments"], *memory.tokens(i, one["prompt"], one["output"])
        )
        for i, one in enumerate(asked["rows"])
    ]
    made = processor.apply(rows, sequences)
    if made is not None and made is not rows:
        if np.shape(made) != rows.shape:
            raise ValueError(
                f"apply returned an array of the shape {np.shape(made)}; it must be {rows.shape}"
            )
        rows[:] = made


class _Faults:
    """What is said of exceptions: their text to the engine, to the server's log one traceback a second."""

    def __init__(self) -> None:
        self._last = -1.0

    def told(self, work: Callable[[], None]) -> dict[str, str]:
        """Does the work; the answer to a line, with the error if there was one."""
        try:
            work()
        except Exception as error:
            if time.monotonic() > self._last + 1:
                self._last = time.monotonic()
                self._log(traceback.format_exc())
            text = f"{type(error).__name__}: {error}"[:2000]
            return {"error": text.encode(errors="replace").decode()}
        return {}

    def _log(self, trace: str) -> None:
        for line in trace.encode(errors="replace").decode().splitlines():
            print(f"{OWN_PREFIX}the logits processor: {line}", file=sys.stderr, flush=True)


def main(name: str) -> None:
    """Answers the engine's lines until its end of the socket closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the engine ends it
    with socket.socket(fileno=SOCKET) as end, end.makefile("rb") as lines:
        asked = json.loads(lines.readline())
        memory, ends = _Memory(asked), frozenset(asked["ends"])
        vocabulary = Vocabulary(tuple(piece.encode("latin-1") for piece in asked["pieces"]), ends)
        found, faults = list[Processor](), _Faults()

        def say(answer: dict[str, str]) -> None:
            end.sendall(json.dumps(answer).encode() + b"\n")

        say(faults.told(lambda: found.append(load(name, vocabulary))))
        for line in lines:
            asked = json.loads(line)
            say(faults.told(lambda: _process(found[0], memory, asked)))  # noqa: B023 # called at once
