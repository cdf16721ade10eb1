"""Sends generated bad bodies to a real server: no 5xx, no traceback, no growth of memory.

    python -m tests.soak.bodies [--count 100000] [--seed 7] [--engine build/bin/llama-batched]

By default the engine is the fake one, so that only the server is tested. Exits with 1 if it finds a fault.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import aiohttp

from tests.soak.soak import grown
from tests.support.hostile import requests
from tests.support.places import FAKE_COMMAND, ROOT
from tests.support.processes import status

N_CLIENTS = 8
WARM_UP = 0.3  # share of the bodies after which the server's caches are full
NOT_FOR_THIS_MODEL = 501  # llama-server's answer to /infill


async def send(url: str, process: int, count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Counts of answers by status, and the faults found."""
    queue, found, wrong, sizes = iter(requests(count, seed)), Counter[str](), list[str](), list[int]()

    async def client(http: aiohttp.ClientSession) -> None:
        for path, body in queue:
            async with http.post(url + path, data=body) as response:
                answer = await response.read()
            found[str(response.status)] += 1
            asked_for = response.status == NOT_FOR_THIS_MODEL or b'"timed_out"' in answer  # timeout: 1e-320
            if response.status >= 500 and not asked_for:
                wrong.append(f"{response.status} {path} {body[:300]!r}: {answer[:300]!r}")
            if sum(found.values()) in (int(WARM_UP * count), count):
                sizes.append(status(process, "VmRSS") << 10)

    async with aiohttp.ClientSession() as http:
        await asyncio.gather(*(client(http) for _ in range(N_CLIENTS)))
    return found, wrong + grown("memory", sizes[0], sizes[-1])


async def try_bodies(count: int, seed: int, engine: Path | None = None) -> tuple[list[str], list[str]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if engine is None:
            engine = folder / "engine"
            engine.write_text(f'#!/bin/sh\nexec {FAKE_COMMAND} --flood "$@"\n')
            engine.chmod(0o755)
        log, began = folder / "log", time.monotonic()
        flags = ("--port", "0", "--engine", str(engine), "--stop-grace", "0")
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable, str(ROOT / "api.py"), *flags, stdout=asyncio.subprocess.PIPE, stderr=stderr
            )
            try:
                assert process.stdout
                url = (await process.stdout.readline()).decode().split()[0]
                found, wrong = await send(url, process.pid, count, seed)
                descriptors = len(os.listdir(f"/proc/{process.pid}/fd"))
            finally:
                process.terminate()
                await process.wait()
        wrong += [
            line for line in log.read_text().splitlines() if "Traceback" in line or "internal error" in line
        ]
    answers = ", ".join(f"{n} of {code}" for code, n in sorted(found.items()))
    return [
        f"{count} bodies in {time.monotonic() - began:.0f} s: {answers}; {descriptors} descriptors"
    ], wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--engine", type=Path)
    arguments = parser.parse_args()
    said, wrong = asyncio.run(try_bodies(arguments.count, arguments.seed, arguments.engine))
    print("\n".join(said + [f"WRONG: {line}" for line in wrong[:20]]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
