#!/usr/bin/env python3
"""What a full batch costs a writer beside it: .venv/bin/python benchmarks/loads/priority.py MODEL.gguf

Serves the model, and sends a writer's requests one after the other: some alone, some beside a batch, whose
requests (`Priority: u=7`, of mixed lengths) fill all sequences; alone and beside alternate. Prints for both
the median and the 90th percentile of the time to the first token, less one step of the batch, and of the time
between tokens, with the ratios, and the batch's rate. It exits with 1 if a request did not end with done.
Nothing else should run beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT)]

from benchmarks.loads.serving import serving  # noqa: E402

WORDS = ("once", "upon", "a", "time", "dog", "cat", "river", "said", "old", "house", "under", "moon")
BATCH = {"Priority": "u=7"}
PATIENCE = 300.0  # seconds that a request may take
REST = 1.0  # seconds


@dataclass
class Seen:
    """Times of requests, in seconds."""

    firsts: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    tokens: int = 0
    wrong: list[str] = field(default_factory=list)


async def ask(
    url: str, http: aiohttp.ClientSession, body: dict[str, Any], seen: Seen, **headers: str
) -> None:
    """One request of one sequence: the time of each of its tokens, seen as it comes."""
    last, before, begun = "", time.monotonic(), False
    try:
        async with (
            asyncio.timeout(PATIENCE),
            http.post(f"{url}/v1/events", json=body, headers=headers) as answer,
        ):
            async for line in answer.content:
                if line.startswith(b"data:"):
                    last = json.loads(line[5:])["event"]
                    if last == "stream":
                        now = time.monotonic()
                        (seen.gaps if begun else seen.firsts).append(now - before)
                        seen.tokens, before, begun = seen.tokens + 1, now, True
    except (TimeoutError, aiohttp.ClientError) as error:
        last = repr(error)
    if last != "done" or not begun:
        seen.wrong.append(last)


def body_of(dice: random.Random, words: int, tokens: int) -> dict[str, Any]:
    prompt = " ".join(dice.choices(WORDS, k=words))
    return {
        "prompt": prompt,
        "n": 1,
        "max_tokens": tokens,
        "ignore_eos": True,
        "seed": dice.randrange(1 << 30),
    }


async def write(
    url: str, http: aiohttp.ClientSession, dice: random.Random, seen: Seen, given: argparse.Namespace
) -> None:
    """The writer's requests of one part, with a rest before each."""
    for _ in range(given.requests):
        await asyncio.sleep(given.rest)
        await ask(url, http, body_of(dice, given.words, given.tokens), seen)


@contextlib.asynccontextmanager
async def batch(
    url: str, http: aiohttp.ClientSession, seen: Seen, given: argparse.Namespace
) -> AsyncIterator[None]:
    """Keeps every sequence of the server busy with requests of a batch."""
    dice = random.Random(7)

    async def line() -> None:
        while True:
            tokens = dice.randint(given.batch_tokens // 2, given.batch_tokens * 3 // 2)
            await ask(url, http, body_of(dice, given.words, tokens), seen, **BATCH)

    lines = [asyncio.create_task(line()) for _ in range(given.parallel + given.parallel // 4)]
    try:
        full = len(seen.firsts) + given.parallel
        while len(seen.firsts) < full:  # noqa: ASYNC110 (many set it, each time)
            await asyncio.sleep(REST)
        seen.gaps.clear()  # those of the steps that computed all the prompts
        yield
    finally:
        for one in lines:
            one.cancel()
        await asyncio.gather(*lines, return_exceptions=True)
        await asyncio.sleep(REST)


async def step_of_batch(url: str, http: aiohttp.ClientSession, given: argparse.Namespace) -> float:
    """Seconds between two tokens of a sequence of the full batch, when no writer is there."""
    seen = Seen()
    async with batch(url, http, seen, given):
        await asyncio.sleep(6 * REST)
        return statistics.median(seen.gaps)


def row(name: str, alone: list[float], beside: list[float], less: float) -> str:
    def cells(found: list[float]) -> Iterator[float]:
        ordered = sorted(found)
        yield from (statistics.median(ordered), ordered[int(0.9 * len(ordered))])

    pairs = list(zip(cells(alone), cells(beside), strict=True))
    times = [f"{1000 * one:.2f}" for pair in pairs for one in pair]
    return f"| {name} | {' | '.join(times)} | {(pairs[0][1] - less) / pairs[0][0]:.2f} |"


async def measure(given: argparse.Namespace) -> list[str]:
    dice, alone, beside, lines = random.Random(1), Seen(), Seen(), Seen()
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with (
        serving(model=given.model, ctx=given.ctx, parallel=given.parallel) as (url, _),
        aiohttp.ClientSession(connector=connector, timeout=timeout) as http,
    ):
        step = await step_of_batch(url, http, given)
        for _ in range(given.parts):
            await write(url, http, dice, alone, given)
            async with batch(url, http, lines, given):
                await write(url, http, dice, beside, given)
    print(f"one step of the batch: {1000 * step:.2f} ms; it wrote {lines.tokens} tokens beside the writer")
    print(
        "| ms | alone, median | beside | alone, 90 % | beside | ratio of medians |\n|---|---|---|---|---|---|"
    )
    print(row("first token (ratio: less one step)", alone.firsts, beside.firsts, step))
    print(row("between tokens", alone.gaps, beside.gaps, 0.0))
    return [line for seen in (alone, beside, lines) for line in seen.wrong]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    defaults = {
        "parts": 4,
        "requests": 6,
        "words": 60,
        "tokens": 48,
        "batch_tokens": 200,
        "ctx": 16384,
        "parallel": 32,
    }
    for name, default in defaults.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=int, default=default, help=f"default: {default}"
        )
    parser.add_argument("--rest", type=float, default=0.3, help="seconds before each request (default: 0.3)")
    wrong = asyncio.run(measure(parser.parse_args()))
    print("\n".join(f"WRONG: {line}" for line in wrong[:20]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
