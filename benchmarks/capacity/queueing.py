"""The engine as a queue: what happens to requests, step by step, if a step takes as long as was measured.

It follows docs/architecture.md: all running sequences get a token in each step, prompts get what is left of
it, the oldest first; a sequence starts when a slot is free. Left out: cells that run out, and the disk.
"""

from __future__ import annotations

import bisect
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

BATCH = 512  # tokens of a step
PREFILL = 0.1  # seconds of prefill in a step in which sequences decode, too (engine/schedule/planner.cpp)
FEWEST = 64  # tokens of prefill in such a step


@dataclass(frozen=True, slots=True)
class Job:
    """One request: its time in seconds, the new tokens of its prompt, and n answers of `tokens`."""

    at: float
    new: int
    n: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Costs:
    """What was measured, in seconds: steps by their rows (rising), a token of prefill, a step's own cost, and
    the time of a request outside of the engine."""

    steps: tuple[tuple[int, float], ...]
    token: float
    step: float
    outside: float

    def decode(self, rows: int) -> float:
        """A step of so many rows, between two measured ones on a straight line; beyond them on the last."""
        if rows == 0:
            return 0.0
        known = [one for one, _ in self.steps]
        i = min(max(bisect.bisect_left(known, rows), 1), len(known) - 1)
        (a, low), (b, high) = self.steps[i - 1], self.steps[i]
        return max(low + (high - low) * (rows - a) / (b - a), 0.0)

    def times(self, factor: float) -> Costs:
        """The same, with steps that take so many times as long."""
        steps = tuple((rows, factor * one) for rows, one in self.steps)
        return replace(self, steps=steps, token=factor * self.token, step=factor * self.step)

    def of(self, rows: int, prefill: int) -> float:
        """A step of so many rows and tokens of prompts."""
        return (self.decode(rows) if rows else self.step) + prefill * self.token


@dataclass(slots=True)
class Seen:
    """What a client sees of a request, in seconds from its arrival."""

    first: float = 0.0
    whole: float = 0.0


@dataclass(slots=True)
class _Request:
    job: Job
    seen: Seen
    missing: int  # tokens of the prompt
    waiting: int  # sequences
    begun: bool = False  # the prompt is complete
    left: list[int] = field(default_factory=list)  # tokens that each running sequence still gets


def simulate(jobs: Sequence[Job], costs: Costs, parallel: int) -> list[Seen]:
    """What the clients of one server see; jobs in order of arrival."""
    seen = [Seen() for _ in jobs]
    coming = deque(zip(jobs, seen, strict=True))
    active: list[_Request] = []
    queue: deque[_Request] = deque()
    now = 0.0
    while coming or queue or active:
        if not queue and not active:
            now = max(now, coming[0][0].at + costs.outside / 2)
        while coming and coming[0][0].at + costs.outside / 2 <= now:
            job, to = coming.popleft()
            queue.append(_Request(job, to, job.new, job.n))
        while queue and len(active) < parallel:
            active.append(queue.popleft())
        now += _step(active, costs, parallel)
        for one in active:
            since = now - one.job.at + costs.outside / 2
            if one.left and one.seen.first == 0.0:
                one.seen.first = since
            one.left = [left for left in one.left if left > 0]
            if not one.left and not one.waiting:
                one.seen.whole = since
        active = [one for one in active if one.left or one.waiting]
    return seen


def _step(active: list[_Request], costs: Costs, parallel: int) -> float:
    """One step; returns its seconds."""
    live = sum(len(one.left) for one in active)
    for one in active:  # sequences that found no slot when their prompt was complete
        while one.begun and one.waiting and live < parallel:
            _start(one, 0)
            live += 1
    rows = live
    for one in active:
        one.left = [left - 1 for left in one.left]
    most = max(FEWEST, round(PREFILL / costs.token)) if rows else BATCH
    budget, prefill = min(BATCH - rows, most), 0
    for one in active:
        if one.missing and budget:
            taken = min(one.missing, budget)
            one.missing -= taken
            budget -= taken
            prefill += taken
        if not one.missing and not one.begun:
            one.begun = True
            while one.waiting and live < parallel:
                _start(one, 1)  # the prompt's last row gives the first token
                live += 1
    return costs.of(rows, prefill)


def _start(one: _Request, had: int) -> None:
    one.waiting -= 1
    one.left.append(one.job.tokens - had)


def arrivals(count: int, rate: float, dice: random.Random) -> Iterator[float]:
    """Times of a Poisson process, in seconds; rate: requests a second."""
    at = 0.0
    for _ in range(count):
        at += dice.expovariate(rate)
        yield at


def quantile(found: Sequence[float], share: float) -> float:
    ordered = sorted(found)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
