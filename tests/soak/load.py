"""Measures how many clients one core serves: the server on one CPU, fake engine and clients on the others.

    python -m tests.soak.load [--connections 500] [--seconds 10]

First all connections stream at once, and none may wait long for its first text. Then clients ask for small
answers, one after another.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

from tests.soak.soak import engines
from tests.support.places import FAKE_COMMAND, ROOT
from tests.support.processes import cpu, status

FLAGS = ("--port", "0", "--stop-grace", "0", "--max-queue", "2000", "--log-level", "warning")
CLIENTS = 50  # in the second part
LONG = {"prompt": "x", "n": 1, "max_tokens": -1}
SHORT = {"prompt": "x", "n": 1, "max_tokens": 4}


async def stream(http: aiohttp.ClientSession, url: str, until: float) -> tuple[float, int]:
    """Seconds to the first text, and the number of events until the stream is closed."""
    began, first, n_events = time.monotonic(), 0.0, 0
    async with http.post(url + "/v1/events", json=LONG) as response:
        async for line in response.content:
            if b'"stream"' in line:
                first, n_events = first or time.monotonic() - began, n_events + 1
            if time.monotonic() > until:
                break
    return first, n_events


async def ask(http: aiohttp.ClientSession, url: str, until: float) -> list[float]:
    """The duration of each request, in seconds."""
    took = []
    while (began := time.monotonic()) < until:
        async with http.post(url + "/v1/events", json=SHORT) as response:
            assert b'"done"' in await response.read()
        took.append(time.monotonic() - began)
    return took


async def load(connections: int, seconds: float) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        engine = Path(name) / "engine"
        paced = f"exec {FAKE_COMMAND} --endless --token-delay 0.1"
        engine.write_text(f'#!/bin/sh\n{paced} "$@" -np {2 * connections}\n')
        engine.chmod(0o755)
        command = (sys.executable, str(ROOT / "api.py"), *FLAGS, "--engine", str(engine))
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            assert process.stdout
            url = (await process.stdout.readline()).decode().split()[0]
            first, *others = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(process.pid, {first})
            for pid in (os.getpid(), *engines(process.pid)):
                os.sched_setaffinity(pid, others or {first})
            return await measured(url, process.pid, connections, seconds)
        finally:
            process.terminate()
            await process.wait()


async def measured(url: str, pid: int, connections: int, seconds: float) -> list[str]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        before, until = cpu(pid), time.monotonic() + seconds
        streams = await asyncio.gather(*(stream(http, url, until) for _ in range(connections)))
        busy = 100 * (cpu(pid) - before) / seconds
        firsts, n_events = sorted(first for first, _ in streams), sum(n for _, n in streams)
        memory = status(pid, "VmRSS") / 1024
        until = time.monotonic() + seconds
        answers = await asyncio.gather(*(ask(http, url, until) for _ in range(CLIENTS)))
        took = sorted(second for part in answers for second in part)
    median, late = statistics.median(firsts), took[int(0.99 * len(took))]
    return [
        f"{connections} streams at once: {n_events / seconds:.0f} events a second, "
        f"first text after {median:.2f} s (the last after {firsts[-1]:.2f} s), "
        f"{busy:.0f} % of a core, {memory:.0f} MiB",
        f"{CLIENTS} clients, small answers: {len(took) / seconds:.0f} requests a second, "
        f"median {1000 * statistics.median(took):.0f} ms, 99 % within {1000 * late:.0f} ms",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    print("\n".join(asyncio.run(load(arguments.connections, arguments.seconds))))


if __name__ == "__main__":
    main()
