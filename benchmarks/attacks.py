#!/usr/bin/env python3
"""How a key's attacks slow down another: .venv/bin/python benchmarks/attacks.py [--only NAME …] [--soak 900]

The real server and engine with two keys. The writer's key streams n = 4 all the time; its figures are the
seconds to the first token and between two tokens of a sequence. The attacker's key attacks from another
process. There is a row without attacks, one for each attack, and one for all at once. --soak mixes all
attacks, faulty requests and SIGHUP with normal requests of both keys. It exits with 1 if a request of the
writer failed, memory grew, or a key saw text of the other. Linux only; nothing else should run beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from benchmarks.attacker import ALL, ATTACKER, ATTACKS, WRITER, client, normal  # noqa: E402
from llama_srb.serving.keys import api_keys  # noqa: E402

ATTACKER_PROGRAM = ROOT / "benchmarks/attacker.py"
MEMORY = '[memories.tales]\nstore = { file = "tales.db" }\n'
LATE = 0.25  # seconds between two tokens
STORY = {"n": 4, "max_tokens": 400, "ignore_eos": True, "echo": True}
WIDTH, MIXED = 4, 2  # requests of an attack at once: alone, and of each in the mix
PATIENCE = 120.0  # seconds that a request of the writer may take
FLAGS = ("--ctx", "8192", "--parallel", "32", "--cache-ram", "0", "--max-n", "1024", "--write-timeout", "10",
         "--stop-grace", "1", "--log-level", "info")  # fmt: skip
SMALL_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}  # huge pages would grow memory by 2 MiB each
SETTLES = 30.0  # seconds until memory is measured after an attack
# The allowed growth of memory from the middle of a soak to its end. It is larger for large attacks (bodies of
# 15 MB), and for short soaks, in which an attack may run completely only in the second half.
MAY_GROW, SLACK_MB = 1.1, (8, 56)
LONG_SOAK, SHORT_SLACK_MB = 300.0, 150


@contextlib.contextmanager
def attacking(
    names: list[str], url: str, width: int, seconds: float, scale: float = 1.0
) -> Iterator[list[str]]:
    """Runs the attacker's process for some seconds; after the block the list has what was wrong."""
    wrong: list[str] = []
    flags = ["--width", str(width), "--seconds", str(seconds), "--scale", str(scale)]
    command = ["nice", "-n", "5", sys.executable, str(ATTACKER_PROGRAM), url, *names, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield wrong
            said, _ = process.communicate(timeout=seconds + 60)
            wrong += filter(None, said.splitlines())
            wrong += [f"the attacker ended with {process.returncode}"] * (process.returncode != 0)
        finally:
            process.kill()


# The writer


@dataclass
class Pace:
    """The times of the writer's tokens: between two of a sequence, and to the first one."""

    seconds: float = 0.0  # the duration, until the end of the last request
    gaps: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)

    def cells(self) -> list[str]:
        seconds = self.seconds
        gaps, firsts = sorted(self.gaps) or [seconds], sorted(self.firsts) or [seconds]
        steps = sorted(gaps)[:: STORY["n"]]
        late = 100 * sum(gap for gap in steps if gap > LATE) / seconds
        numbers = [statistics.median(gaps), gaps[int(0.99 * len(gaps))], gaps[-1]]
        cells = [f"{1000 * number:.1f}" for number in numbers]
        cells += [f"{late:.0f}", f"{1000 * statistics.median(firsts):.0f}", f"{1000 * firsts[-1]:.0f}"]
        failures = ", ".join(f"{count} x {what}" for what, count in self.failed.items())
        return [*cells, f"{len(self.gaps) / seconds:,.0f}", str(len(self.firsts)), failures or "0"]


INDEX = re.compile(rb'"event": "stream", "index": (\d+)')


async def write(url: str, seconds: float) -> Pace:
    """Streams one request after another."""
    pace, start = Pace(), time.monotonic()
    until = start + seconds
    async with client(url, WRITER) as c:
        while time.monotonic() < until:
            began, last, rest = time.monotonic(), dict[bytes, float](), b""
            try:
                async with asyncio.timeout(PATIENCE):
                    body = STORY | {"prompt": c.prompt()}
                    async with c.http.post(c.url + "/v1/events", json=body) as response:
                        while data := await response.content.readany():
                            now = time.monotonic()
                            *whole, rest = (rest + c.checked(data)).split(b"\n\n")
                            for index in INDEX.findall(b"\n".join(whole)):
                                if index in last:
                                    pace.gaps.append(now - last[index])
                                elif not last:
                                    pace.firsts.append(now - began)
                                last[index] = now
                            ended = b'"event": "done"' in data
                        if response.status != 200 or not ended:
                            pace.failed[str(response.status)] += 1
                            await asyncio.sleep(0.1)
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                pace.failed[type(error).__name__] += 1
    pace.seconds = time.monotonic() - start
    return pace


# The server


@dataclass(frozen=True)
class Server:
    url: str
    pid: int
    log: Path

    @property
    def engines(self) -> list[int]:
        tasks = Path(f"/proc/{self.pid}/task").glob("*/children")
        return [int(child) for task in tasks for child in task.read_text().split()]

    @property
    def megabytes(self) -> tuple[float, float]:
        """The memory of the server and of its engine."""
        return _megabytes(self.pid), sum(map(_megabytes, self.engines))

    async def settled(self) -> tuple[float, float]:
        """The same, after all requests have ended and memory has stopped falling."""
        deadline, before = time.monotonic() + SETTLES, (float("inf"), float("inf"))
        while time.monotonic() < deadline:
            await asyncio.sleep(1)
            now = self.megabytes
            if sum(now) > sum(before) - 0.5 and await self._is_idle():
                break
            before = now
        return self.megabytes

    async def _is_idle(self) -> bool:
        async with client(self.url, "watcher") as c, c.http.get(c.url + "/v1/stats") as response:
            return bool((await response.json())["requests_open"] == 0)


def _megabytes(pid: int) -> float:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
    return 0.0


@contextlib.asynccontextmanager
async def serving(*flags: str) -> AsyncIterator[Server]:
    """Runs the real server with the bundled model and three keys."""
    with tempfile.TemporaryDirectory() as name:
        file, log = Path(name) / "keys", Path(name) / "log"
        settings, scopes = Path(name) / "srb.toml", (*api_keys.USUAL, "memory")
        settings.write_text(MEMORY)
        rows = [
            api_keys.Key(hash=api_keys.hashed(key), name=key, scopes=scopes) for key in (WRITER, ATTACKER)
        ]
        rows.append(api_keys.Key(hash=api_keys.hashed("watcher"), name="watcher", scopes=("metrics",)))
        api_keys.write(file, rows)
        ours = {key: value for key, value in os.environ.items() if not key.startswith("LLAMA_SRB_")}
        command = [
            sys.executable,
            str(ROOT / "api.py"),
            "--port",
            "0",
            "--api-key-file",
            str(file),
            "--config",
            str(settings),
            *FLAGS,
            *flags,
        ]
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=stderr, env=ours | SMALL_PAGES
            )
            try:
                assert process.stdout is not None
                url = (await process.stdout.readline()).decode().split()[0]
                yield Server(url, process.pid, log)
            finally:
                if process.returncode is None:
                    process.terminate()
                await process.wait()


# The table

HEADS = ["attack", "p50 ms", "p99 ms", "max ms", f"% late (> {1000 * LATE:.0f} ms)", "first ms", "max ms",
         "tokens/s", "requests", "failed", "server MiB", "engine MiB"]  # fmt: skip


async def row(name: str, names: list[str], width: int, seconds: float) -> list[str]:
    """Measures one row, with a new server, so that the memory of another attack does not count."""
    async with serving() as server:
        await write(server.url, 1)
        before = server.megabytes
        with (
            attacking(names, server.url, width, seconds + 1) if names else contextlib.nullcontext([]) as wrong
        ):
            await asyncio.sleep(1 if names else 0)
            pace = await write(server.url, seconds)
        after = await server.settled()
        deaths = server.log.read_text().count("the engine ended while")
    memory = [f"{was:.0f} → {now:.0f}" for was, now in zip(before, after, strict=True)]
    for line in wrong + [f"{name}: the engine died {deaths} times"] * (deaths > 0):
        print(f"WRONG: {line}", flush=True)
    return [name, *pace.cells(), *memory]


def line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


async def table(only: list[str], seconds: float) -> None:
    print(line(HEADS) + "\n" + line(["---"] * len(HEADS)), flush=True)
    rows = [("none", list[str](), 0), *((name, [name], WIDTH) for name in ATTACKS)]
    rows.append(("all at once", list(ATTACKS), MIXED))
    for name, names, width in rows:
        if not only or name in only:
            print(line(await row(name, names, width, seconds)), flush=True)


# The soak


async def soak(seconds: float, scale: float = 1.0) -> tuple[list[str], list[str]]:
    """Runs a soak; returns a summary, and what was wrong."""
    said, wrong, sizes = list[str](), list[str](), list[tuple[float, float]]()
    async with serving() as server:
        engines = server.engines
        outcomes: Counter[str] = Counter()
        for half in (seconds / 2, seconds / 2):
            with attacking(list(ALL), server.url, 1, half, scale) as seen:
                found, faults = await _write_requests(server, half)
            wrong += seen + faults
            outcomes += found
            sizes.append(await server.settled())
        wrong += [f"the engine is another one: {engines}, {server.engines}"] * (engines != server.engines)
        log = server.log.read_text()
        wrong += [log[at.start() :][:2000] for at in re.finditer("Traceback|.*internal error", log)]
    slack = SLACK_MB[0] + scale * SLACK_MB[1] + (0 if seconds >= LONG_SOAK else SHORT_SLACK_MB)
    for what, middle, end in zip(("server", "engine"), *sizes, strict=True):
        said.append(f"memory of the {what}: {middle:.0f} MiB in the middle, {end:.0f} MiB at the end")
        wrong += said[-1:] * (end > MAY_GROW * middle + slack)
    answers = ", ".join(f"{count} x {what}" for what, count in sorted(outcomes.items()))
    return [f"{seconds:.0f} s; the second key's requests: {answers}", *said], wrong


async def _write_requests(server: Server, seconds: float) -> tuple[Counter[str], list[str]]:
    """Sends the writer's requests, two at a time, and sometimes SIGHUP to the server."""
    until, found, wrong = time.monotonic() + seconds, Counter[str](), list[str]()
    async with client(server.url, WRITER) as c:

        async def ask() -> None:
            while time.monotonic() < until:
                path, body, end = normal(c)
                try:
                    async with asyncio.timeout(PATIENCE):
                        status, data = await c.post(path, body)
                        while status == 503 and b'"queue_full"' in data:
                            found["refused while the queue was full, and sent again"] += 1
                            await asyncio.sleep(0.5)
                            status, data = await c.post(path, body)
                except Exception as error:
                    wrong.append(f"{path}: {error!r}")
                    continue
                whole = end in data and (status == 200 or "temperature" in body)
                found["done" if whole else "not done"] += 1
                if not whole:
                    wrong.append(f"{path}: {status} {data[-300:]!r}")

        async def hang_up() -> None:
            while time.monotonic() < until:
                os.kill(server.pid, signal.SIGHUP)
                await asyncio.sleep(3)

        await asyncio.gather(ask(), ask(), hang_up())
    return found, wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[], choices=["none", *ATTACKS, "all at once"])
    parser.add_argument("--seconds", type=float, default=20, help="duration of each row (default: 20)")
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="run all attacks mixed, for so long")
    parser.add_argument("--scale", type=float, default=1, help="size of a soak's attacks (default: 1)")
    wanted = parser.parse_args()
    if wanted.soak is None:
        asyncio.run(table(wanted.only, wanted.seconds))
        return 0
    said, wrong = asyncio.run(soak(wanted.soak, wanted.scale))
    print("\n".join(said + [f"WRONG: {line}" for line in wrong]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
