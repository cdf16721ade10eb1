"""A benchmark's request, and its answer: tokens, and the time at which each one came. Pure."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

Figures: TypeAlias = dict[str, float]
Message: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: n sequences with `tokens` tokens each. sampling: the same fields for all sides."""

    prompt: tuple[int, ...]
    n: int
    tokens: int
    sampling: tuple[tuple[str, int | float], ...] = ()


def words(count: int, seed: object) -> tuple[int, ...]:
    """Random token ids that are plain words in all vocabularies; the smallest vocabulary has 2,048 tokens."""
    draw = random.Random(repr(seed))
    return tuple(draw.randrange(300, 2000) for _ in range(count))


@dataclass(frozen=True, slots=True)
class Answer:
    """By sequence: the times of its tokens, in seconds since the request, and its length in tokens."""

    times: dict[int, list[float]]
    lengths: dict[int, int]
    cached_tokens: int

    @property
    def first(self) -> float:
        return min(times[0] for times in self.times.values())

    @property
    def last(self) -> float:
        return max(times[-1] for times in self.times.values())

    @property
    def rate(self) -> float:
        """Tokens per second over all sequences, without first tokens, whose time belongs to the prompt."""
        took = max(self.last - self.first, 0.001)  # a slow reader may get all tokens in one read
        return sum(length - 1 for length in self.lengths.values()) / took

    @property
    def gaps(self) -> list[float]:
        """Seconds between successive tokens of a sequence, for all sequences."""
        return [b - a for times in self.times.values() for a, b in itertools.pairwise(times)]


def answer_of(began: float, reads: Iterable[tuple[float, bytes]], n: int) -> Answer:
    """Parses the bytes after the measurement: our lines or frames, or llama-server's frames."""
    times: dict[int, list[float]] = {}
    lengths: dict[int, int] = {}
    cached = 0
    for at, message in messages(reads):
        if message.get("event") == "error" or "error" in message:
            raise RuntimeError(f"a request failed: {message}")
        if message.get("event") == "stream" or message.get("content"):
            times.setdefault(message["index"], []).append(at - began)
        if length := message.get("length") or message.get("tokens_predicted"):
            lengths[message["index"]] = length
        cached = message.get("cached_tokens") or message.get("timings", {}).get("cache_n") or cached
    if len(lengths) != n:
        raise RuntimeError(f"{len(lengths)} of {n} sequences came to an end")
    return Answer(times, lengths, cached)


def messages(reads: Iterable[tuple[float, bytes]]) -> Iterator[tuple[float, Message]]:
    """The JSON objects, one for each line or frame, with the time of the read that completed it."""
    rest = b""
    for at, data in reads:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            text = line.removeprefix(b"data: ").strip()
            if text.startswith(b"{"):
                yield at, json.loads(text)


def bench_table(text: str) -> Iterator[Figures]:
    """The rows of llama-batched-bench's table, by column: PP, TG, B, N_KV, S_PP t/s, S_TG t/s and more."""
    lines = [line.strip("| \n") for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.split("|")] for line in lines if not line.startswith("-")]
    return (dict(zip(cells[0], map(float, row), strict=True)) for row in cells[1:])
