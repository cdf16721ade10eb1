#!/usr/bin/env python3
"""How many writers a machine serves: .venv/bin/python benchmarks/capacity/run.py MODEL.gguf

Measures what steps of one server cost, simulates its queue with that (queueing.py), fits both on a run at
45 % of the capacity that it foresees, checks the simulation on runs at 30, 60 and 85 %, and prints how many
such servers 1,000 to a million writers need. Requests arrive at random (Poisson); most go on with a story
whose prompt is known, the others are cold. It exits with 1 if a request did not end with done. Nothing else
should run beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT)]

from benchmarks.answers import words  # noqa: E402
from benchmarks.capacity.queueing import Costs, Job, Seen, arrivals, quantile, simulate  # noqa: E402
from benchmarks.loads.serving import serving  # noqa: E402

EVENT = re.compile(rb'"event": ?"(\w+)"')
PATIENCE = 300.0  # seconds that a request may take
SHARES = (0.3, 0.6, 0.85)  # of the capacity
FIT = 0.45  # of the capacity
SAFE = 0.6  # of the capacity: the largest share that was met
BOUNDS = {0.5: 0.15, 0.99: 0.35}  # how far a quantile may be off
LONGEST = 1200  # tokens of a story, before its writer begins another one
WRITERS = (1_000, 10_000, 100_000, 1_000_000)


@dataclass(slots=True)
class Timed:
    """What a client saw of one request: seconds from its begin to its first token and its end."""

    first: float = 0.0
    whole: float = 0.0
    gap: float = 0.0  # mean time between tokens
    wrong: str = ""


@dataclass(slots=True)
class Stories:
    """Prompts of writers: a share of them is cold, the others go on with a story."""

    given: argparse.Namespace
    dice: random.Random
    known: list[tuple[int, ...]] = field(default_factory=list)
    made: int = 0

    def next(self) -> tuple[tuple[int, ...], int]:
        """A prompt, and how many of its tokens are new."""
        self.made += 1
        if not self.known or self.dice.random() < self.given.cold:
            new = words(self.dice.randint(self.given.shortest, self.given.longest), ("cold", self.made))
            self.known.append(new)
            return new, len(new)
        i = self.dice.randrange(max(len(self.known) - 20, 0), len(self.known))
        more = words(self.given.more, ("more", self.made))
        prompt = self.known[i] + more
        self.known[i] = prompt
        if len(prompt) > LONGEST:
            del self.known[i]
        return prompt, len(more)


async def ask(http: aiohttp.ClientSession, prompt: Sequence[int], n: int, tokens: int) -> Timed:
    body: dict[str, Any] = {"prompt": list(prompt), "n": n, "max_tokens": tokens, "ignore_eos": True}
    seen, began, last, rest = Timed(), time.monotonic(), b"", b""
    try:
        async with asyncio.timeout(PATIENCE), http.post("/v1/events", json=body) as answer:
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                events = EVENT.findall(b"\n".join(lines))
                if b"stream" in events and not seen.first:
                    seen.first = time.monotonic() - began
                last = events[-1] if events else last
    except (TimeoutError, aiohttp.ClientError) as error:
        last = repr(error).encode()
    seen.whole = time.monotonic() - began
    seen.gap = (seen.whole - seen.first) / max(tokens - 1, 1)
    seen.wrong = "" if last == b"done" else last.decode()
    return seen


async def measure(http: aiohttp.ClientSession, given: argparse.Namespace) -> Costs:
    """What steps cost behind prompts of the usual length, by requests that come alone or all at once."""
    stories = Stories(given, random.Random(2))
    usual = round(statistics.mean(len(stories.next()[0]) for _ in range(1000)))

    async def known(*what: object) -> tuple[int, ...]:
        prompt = words(usual, what)
        await ask(http, prompt, 1, 1)
        return prompt

    async def median(more: int) -> float:
        """Of requests whose prompts go on with a known one by so many tokens; 0: known prompts."""
        found = []
        for i in range(20):
            prompt = await known("alone", more, i)
            found.append((await ask(http, prompt + words(more, ("more", i)), 1, 1)).whole)
        return statistics.median(found)

    outside, short, long = await median(0), await median(32), await median(224)
    token = max(long - short, 1e-4) / (224 - 32)  # of a cold start's noise it may be none
    steps = []
    for requests, n in [
        (1, 1),
        (1, 2),
        (1, 4),
        *((k, 4) for k in (2, 3, 4, 6, 8) if 4 * k <= given.parallel),
    ]:
        gaps = []
        for i in range(4):
            prompts = [await known("steps", requests, n, i, k) for k in range(requests)]
            found = await asyncio.gather(*(ask(http, prompt, n, 48) for prompt in prompts))
            gaps += [one.gap for one in found]
        steps.append((requests * n, statistics.median(gaps)))
    print(f"prompts of {usual} tokens")
    return Costs(tuple(steps), token, max(short - outside - 32 * token, 0.0), outside)


def jobs_of(stories: Stories, times: Iterator[float], given: argparse.Namespace) -> Iterator[tuple[Job, Any]]:
    for at in times:
        prompt, new = stories.next()
        yield Job(at, new, given.n, given.tokens), prompt


def capacity(costs: Costs, given: argparse.Namespace) -> float:
    """Requests a second of a server that never waits for one."""
    pairs = jobs_of(Stories(given, random.Random(1)), iter([0.0] * 2000), given)
    seen = simulate([job for job, _ in pairs], costs, given.parallel)
    return len(seen) / max(one.whole for one in seen)


async def play(http: aiohttp.ClientSession, jobs: list[tuple[Job, Any]]) -> list[Timed]:
    """Sends each request at its time."""
    began = time.monotonic()

    async def one(job: Job, prompt: Sequence[int]) -> Timed:
        await asyncio.sleep(job.at - (time.monotonic() - began))
        return await ask(http, prompt, job.n, job.tokens)

    return await asyncio.gather(*(one(job, prompt) for job, prompt in jobs))


def compared(share: float, real: list[Timed], foreseen: list[Seen]) -> Iterator[str]:
    """Rows: measured and foreseen, and how far off; a miss of a bound is marked."""
    for what in ("first", "whole"):
        cells = []
        for q, bound in BOUNDS.items():
            a = quantile([getattr(one, what) for one in real], q)
            b = quantile([getattr(one, what) for one in foreseen], q)
            off = b / a - 1
            cells += [
                f"{1000 * a:.0f}",
                f"{1000 * b:.0f}",
                f"{off:+.0%}{' miss' if abs(off) > bound else ''}",
            ]
        yield f"| {share:.0%} | {what} | {' | '.join(cells)} |"


async def fitted(http: aiohttp.ClientSession, costs: Costs, given: argparse.Namespace) -> Costs:
    """The costs beside all else that a loaded server does: one factor for steps, and the time outside.

    They are chosen so that the medians of a run at FIT of the capacity are met.
    """
    rate = FIT * capacity(costs, given)
    stories = Stories(given, random.Random("fit"))
    jobs = list(jobs_of(stories, arrivals(given.requests // 2, rate, stories.dice), given))
    real = await play(http, jobs)

    def foreseen(factor: float) -> list[Seen]:
        return simulate([job for job, _ in jobs], costs.times(factor), given.parallel)

    def median(found: Sequence[Any], what: str) -> float:
        return statistics.median(getattr(one, what) for one in found)

    low, high = 0.5, 4.0
    for _ in range(12):
        factor = (low + high) / 2
        off = median(real, "whole") - median(real, "first")
        off -= median(foreseen(factor), "whole") - median(foreseen(factor), "first")
        low, high = (factor, high) if off > 0 else (low, factor)
    outside = costs.outside + median(real, "first") - median(foreseen(low), "first")
    print(f"fitted at {FIT:.0%}: steps take {low:.2f} times as long, outside {1000 * outside:.1f} ms")
    return replace(costs.times(low), outside=max(outside, 0.0))


async def check(http: aiohttp.ClientSession, costs: Costs, given: argparse.Namespace) -> list[str]:
    """Runs at shares of the capacity, beside the simulation."""
    print("| load | ms | median | foreseen | off | p99 | foreseen | off |\n|---|---|---|---|---|---|---|---|")
    wrong, most = [], capacity(costs, given)
    for share in SHARES:
        dice = random.Random(f"check {share}")
        times = arrivals(given.requests, share * most, dice)
        jobs = list(jobs_of(Stories(given, dice), times, given))
        real = await play(http, jobs)
        foreseen = simulate([job for job, _ in jobs], costs, given.parallel)
        print("\n".join(compared(share, real, foreseen)), flush=True)
        wrong += [one.wrong for one in real if one.wrong]
    return wrong


def most_of(costs: Costs, given: argparse.Namespace) -> tuple[float, float, list[Seen]]:
    """The largest rate, in requests a second, at which 95 % have their first token in time; its share.

    It is at most SAFE: near the capacity the simulation is too good.
    """
    most, found = capacity(costs, given), (0.0, 0.0, list[Seen]())
    for percent in range(10, round(100 * SAFE) + 1, 5):
        dice = random.Random(f"most {percent}")
        rate = most * percent / 100
        jobs = [job for job, _ in jobs_of(Stories(given, dice), arrivals(3000, rate, dice), given)]
        seen = simulate(jobs, costs, given.parallel)
        if quantile([one.first for one in seen], 0.95) > given.patience:
            break
        found = rate, percent / 100, seen
    return found


def table(costs: Costs, given: argparse.Namespace) -> Iterator[str]:
    rate, share, seen = most_of(costs, given)
    if not rate:
        yield f"even at a tenth of the capacity 5 % wait more than {given.patience} s for their first token"
        return
    whole = statistics.mean(one.whole for one in seen)
    yield f"{given.model.name}; a writer thinks {given.think:g} s; n = {given.n} of {given.tokens} tokens."
    yield f"A server takes {rate:.1f} requests/s ({share:.0%} of its capacity); one takes {whole:.2f} s."
    yield "| writers | requests/s | streams at once | tokens/s | servers |\n|---|---|---|---|---|"
    for writers in WRITERS:
        all_of = writers / (given.think + whole)
        cells = (all_of, all_of * whole, all_of * given.n * given.tokens, -(-all_of // rate))
        yield f"| {writers:,} | {' | '.join(f'{one:,.0f}' for one in cells)} |"


async def run(given: argparse.Namespace) -> int:
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with (
        serving(model=given.model, ctx=given.ctx, parallel=given.parallel, max_queue=10_000) as (url, _),
        aiohttp.ClientSession(url, connector=connector, timeout=timeout) as http,
    ):
        costs = await measure(http, given)
        steps = ", ".join(f"{rows}: {1000 * one:.2f}" for rows, one in costs.steps)
        print(f"steps, ms by rows: {steps}")
        print(f"prefill {1e6 * costs.token:.0f} us a token, {1000 * costs.step:.1f} ms a step; ", end="")
        print(f"outside {1000 * costs.outside:.1f} ms; capacity {capacity(costs, given):.1f} requests/s")
        costs = await fitted(http, costs, given)
        print(f"capacity {capacity(costs, given):.1f} requests/s\n")
        wrong = await check(http, costs, given)
    print()
    print("\n".join(table(costs, given)))
    print("\n".join(f"WRONG: {line}" for line in wrong[:20]))
    return int(bool(wrong))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    rows: tuple[tuple[str, float, str], ...] = (
        ("requests", 1000, "in each run"),
        ("n", 4, "sequences of a request"),
        ("tokens", 32, "of each"),
        ("cold", 0.2, "share of requests whose prompt is new"),
        ("shortest", 80, "tokens of a new prompt"),
        ("longest", 320, "tokens of a new prompt"),
        ("more", 32, "new tokens of a story that goes on"),
        ("think", 30.0, "seconds between a writer's requests"),
        ("patience", 1.0, "seconds within which 95 % shall have their first token"),
        ("ctx", 65536, "cells"),
        ("parallel", 32, "sequences at once"),
    )
    for name, default, what in rows:
        parser.add_argument(
            f"--{name}", type=type(default), default=default, help=f"{what} (default: {default})"
        )
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
