"""What a side is asked, and what its answer says: tokens, and when each of them came. Pure."""

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
    """One request: n sequences of so many tokens each; fields of sampling go to engines only."""

    prompt: tuple[int, ...]
    n: int
    tokens: int
    sampling: tuple[tuple[str, int | float], ...] = ()


def words(count: int, seed: object) -> tuple[int, ...]:
    """Random ids; they are plain words in each of the vocabularies, the smallest of which has 2,048."""
    draw = random.Random(repr(seed))
    return tuple(draw.randrange(300, 2000) for _ in range(count))


@dataclass(frozen=True, slots=True)
class Answer:
    """When each token's text came, in seconds from the request on, and how many tokens; by sequence."""

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
        """Tokens per second over all sequences but for the first ones, which belong to the prompt."""
        took = max(self.last - self.first, 0.001)  # a late reader may find all of it in one read
        return sum(length - 1 for length in self.lengths.values()) / took

    @property
    def gaps(self) -> list[float]:
        """Seconds between neighbouring tokens of a sequence, of all sequences."""
        return [b - a for times in self.times.values() for a, b in itertools.pairwise(times)]


def answer_of(began: float, reads: Iterable[tuple[float, bytes]], n: int) -> Answer:
    """What the bytes meant, worked out when the clock has stopped: our lines or frames, or llama-server's."""
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
    """The JSON objects, one a line or frame, with the time of the read that completed each."""
    rest = b""
    for at, data in reads:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            text = line.removeprefix(b"data: ").strip()
            if text.startswith(b"{"):
                yield at, json.loads(text)


def bench_table(text: str) -> Iterator[Figures]:
    """The rows of llama-batched-bench's table, by its heads: PP, TG, B, N_KV, S_PP t/s, S_TG t/s and more."""
    lines = [line.strip("| \n") for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.split("|")] for line in lines if not line.startswith("-")]
    return (dict(zip(cells[0], map(float, row), strict=True)) for row in cells[1:])
