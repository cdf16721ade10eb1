#!/usr/bin/env python3
"""Models by name, with room for two of three: .venv/bin/python benchmarks/loads/models_by_name.py MODEL.gguf

Serves three models (copies of MODEL.gguf) on two servers; one has room for two of them, one for all. Clients
ask a model at random, one request after the other; the servers alternate, a part of the requests each.
Prints for each server the seconds to the first token of the requests whose model was loaded, and of those
that waited for a load; the loads; the memory of the engines. It exits with 1 if a request was cut or memory
was above the limit. Linux only; nothing else should run beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT)]

from benchmarks.loads.serving import serving  # noqa: E402
from llama_srb.config import load  # noqa: E402
from llama_srb.models.model_memory import memory_of  # noqa: E402
from llama_srb.models.served import served  # noqa: E402

NAMES = ("first", "second", "third")
ROOM = {"two": 2, "three": 4}  # the limit of memory, in estimates of one model's need
PATIENCE = 300.0  # seconds that a request may take
CHECKS = 0.1  # seconds between two measurements of the engines' memory
WORDS = ("once", "upon", "a", "time", "dog", "cat", "river", "said", "old", "house", "under", "moon")
EVENT = re.compile(rb'"event": "(\w+)"')


@dataclass
class Side:
    """One server, and what its requests saw. loaded, waited: seconds to the first token."""

    room: str
    url: str
    pid: int
    limit: int  # bytes
    loaded: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0
    peak: int = 0  # bytes

    def measure_memory(self) -> None:
        """Adds up the memory of the engines."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/children")
        self.peak = max(
            self.peak, sum(memory_of(int(pid)) for task in tasks for pid in task.read_text().split())
        )

    def row(self, loads: int) -> str:
        firsts = [_milliseconds(found) for found in (self.loaded, self.waited)]
        memory = f"{self.peak >> 20:,} of {self.limit >> 20:,}"
        cells = [self.room, len(self.loaded), *firsts[0], len(self.waited), *firsts[1], loads, memory]
        return "| " + " | ".join(map(str, [*cells, f"{self.seconds:.0f}", len(self.wrong)])) + " |"


HEADS = ["room for", "model loaded", "median ms", "p99 ms", "model not loaded", "median ms", "p99 ms",
         "loads", "engines' memory, MiB", "seconds", "cut"]  # fmt: skip


def _milliseconds(found: list[float]) -> list[str]:
    ordered = sorted(found)
    return (
        [f"{1000 * one:.0f}" for one in (statistics.median(ordered), ordered[int(0.99 * len(ordered))])]
        if ordered
        else ["", ""]
    )


@contextlib.asynccontextmanager
async def serving_three(folder: Path, room: str, given: argparse.Namespace) -> AsyncIterator[Side]:
    """Runs a server of the three models."""
    file = folder / f"{room}.toml"
    top = f"ctx = {given.ctx}\nparallel = {given.parallel}\n"
    tables = "\n".join(f'[models.{name}]\npath = "{folder / name}.gguf"\npreload = true' for name in NAMES)
    file.write_text(top + tables)
    limit = ROOM[room] * served(load({}, config=str(file)).models[0]).need
    file.write_text(f"models_memory = {limit}\n{top}{tables}")
    async with serving(config=file) as (url, process):
        yield Side(room, url, process.pid, limit)


async def ask(side: Side, http: aiohttp.ClientSession, body: dict[str, Any]) -> None:
    """One request: all its sequences must end, and the stream with done."""
    began, seen, first, waits = time.monotonic(), list[bytes](), 0.0, False
    try:
        async with asyncio.timeout(PATIENCE), http.post(side.url + "/v1/events", json=body) as response:
            async for line in response.content:
                found = EVENT.findall(line)
                seen += found
                waits |= b"loading" in found
                if b"stream" in found and not first:
                    first = time.monotonic() - began
    except (TimeoutError, aiohttp.ClientError) as error:
        side.wrong.append(repr(error))
    if seen.count(b"stop") != body["n"] or seen[-1:] != [b"done"]:
        side.wrong.append(f"{body['model']}: {seen[-3:]}")
    (side.waited if waits else side.loaded).append(first)


async def part(side: Side, bodies: Iterator[dict[str, Any]], clients: int) -> None:
    """Sends these requests by some clients at once."""
    began, done = time.monotonic(), asyncio.Event()

    async def client(http: aiohttp.ClientSession) -> None:
        for body in bodies:
            await ask(side, http, body)

    async def watch() -> None:
        while not done.is_set():
            side.measure_memory()
            await asyncio.sleep(CHECKS)

    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as http,
        asyncio.TaskGroup() as all_,
    ):
        all_.create_task(watch())
        await asyncio.gather(*(client(http) for _ in range(clients)))
        done.set()
    side.seconds += time.monotonic() - began


def bodies(count: int, seed: int, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The requests of one part, the same for each server."""
    dice = random.Random(seed)
    for _ in range(count):
        prompt = " ".join(dice.choices(WORDS, k=given.words))
        request = {"n": given.n, "max_tokens": given.tokens, "ignore_eos": True}
        yield {"model": dice.choice(NAMES), "prompt": prompt} | request


async def loads_of(side: Side) -> int:
    """How often an engine was started, the first loads included."""
    async with aiohttp.ClientSession() as http, http.get(side.url + "/metrics") as response:
        found = re.findall(r"^llama_srb_engine_starts_total\S* (\S+)", await response.text(), re.MULTILINE)
    return int(sum(map(float, found)))


async def measure(folder: Path, given: argparse.Namespace) -> list[str]:
    """Both servers; returns what was wrong."""
    async with contextlib.AsyncExitStack() as stack:
        sides = [await stack.enter_async_context(serving_three(folder, room, given)) for room in ROOM]
        for seed in range(given.parts):
            for side in sides if seed % 2 else sides[::-1]:
                await part(side, bodies(given.requests // given.parts, seed, given), given.clients)
        print("| " + " | ".join(HEADS) + " |\n|" + "---|" * len(HEADS))
        for side in sides:
            print(side.row(await loads_of(side)), flush=True)
    two, three = (statistics.median(side.loaded) for side in sides)
    print(f"median first token of a loaded model, room for two / for three: {two / three:.2f}")
    above = [f"room for {side.room}: memory above the limit" for side in sides if side.peak > side.limit]
    return [f"room for {side.room}: {line}" for side in sides for line in side.wrong] + above


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    for name, default in (("requests", 3000), ("parts", 6), ("clients", 32), ("n", 2), ("tokens", 16)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
    parser.add_argument("--words", type=int, default=40, help="of a prompt (default: 40)")
    parser.add_argument("--ctx", type=int, default=8192, help="default: 8192")
    parser.add_argument("--parallel", type=int, default=32, help="default: 32")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for model in NAMES:
            shutil.copy(given.model, Path(name) / f"{model}.gguf")
        wrong = asyncio.run(measure(Path(name), given))
    print("\n".join(f"WRONG: {line}" for line in wrong[:20]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
