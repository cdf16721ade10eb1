"""Sends mixed traffic to a real server, with random faults, and checks that nothing is left at the end.

    python -m tests.soak.soak --minutes 60 [--seed 7]

Clients of all dialects ask, leave, time out and send rubbish; engines are killed and stopped, the model is
replaced, the server gets SIGHUP. No process, descriptor, thread, task or cell may be left. Memory may grow by at most
5 % from the end of the first part to that of the second, and from the third to the fourth (the engine's only
then, since earlier it is killed now and then). Exits with 1 and names the fault if there is one.
"""

# ruff: noqa: E501, ASYNC240 (a table; files of /proc)
from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.places import ROOT
from tests.support.processes import status

N_CLIENTS = 12
PARTS = (0.3, 0.4, 0.15, 0.15)  # shares of the time; after the first part the server's caches are full
N_HARMED = 2  # the number of parts with faults; the others have none
MAY_GROW = 1.05
ENGINE_SLACK = 8 << 20  # bytes: freed pages between used ones; it returns them once they are 64 MiB
SMALL_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}  # otherwise the engine grows by 2 MiB at a time
STEP_TIMEOUT = 10
POOL = min(
    32, (os.cpu_count() or 1) + 4
)  # asyncio's executor makes so many threads, as it needs them, and keeps them
SETTLES = 45  # seconds; the watchdog finds a stopped engine, and another one loads
FLAGS = ("--port", "0", "--ctx", "8192", "--parallel", "8", "--cache-ram", "0", "--max-queue", "64",
         "--max-unread", "20000", "--step-timeout", str(STEP_TIMEOUT), "--load-timeout", "30", "--stop-grace", "1")  # fmt: skip

WORDS = ("Once", "upon", "a", "time", "there", "was", "the", "big", "red", "dog", "and", "cat")
CHAT = [{"role": "user", "content": "Tell me a story."}]
# path, body, and the end of a complete stream; {} is replaced by words
TRAFFIC: list[tuple[str, str, dict[str, Any], bytes]] = [
    ("events", "/v1/completions", {"n": 8}, b'"event": "done"'),
    ("events, many", "/v1/events", {"n": 64, "max_tokens": 8}, b'"event": "done"'),
    ("events, diverse", "/v1/events", {"n": 4, "diversity": "arithmetic", "dedupe": True}, b'"event": "done"'),
    ("OpenAI, stream", "/v1/completions", {"n": 2, "stream": True}, b"[DONE]"),
    ("OpenAI", "/v1/completions", {"n": 3, "best_of": 6, "rank_by": "logprob", "stream": False}, b'"usage"'),
    ("OpenAI, schema", "/v1/completions", {"stream": False, "json_schema": {"type": "object"}}, b'"usage"'),
    ("OpenAI, chat", "/v1/chat/completions", {"n": 2, "messages": CHAT}, b'"usage"'),
    ("llama-server", "/completion", {"stream": True, "cache_prompt": False}, b'"stop":true'),
    ("KoboldAI", "/api/v1/generate", {"max_length": 12}, b'"results"'),
    ("Ollama", "/api/generate", {"options": {"num_predict": 12}}, b'"done":true'),
    ("prefix", "/v1/prefix", {}, b'"prompt_tokens"'),
    ("score", "/v1/score", {"texts": [" a dog.", " a cat."]}, b'"usage"'),
    ("embeddings", "/v1/embeddings", {"input": ["a dog", "a cat"]}, b'"embedding"'),
    ("tokenize", "/tokenize", {"content": "a dog"}, b'"tokens"'),
    ("timeout", "/v1/events", {"max_tokens": -1, "ignore_eos": True, "timeout": 0.3}, b'"event": "done"'),
]  # fmt: skip
RUBBISH = [b"", b"{", b"[]", b'{"prompt": 7}', b'{"prompt": "x", "n": 0}', b'{"prompt": "x", "grammar": "root ::="}',
           b'{"prompt": "x", "json_schema": {"$ref": "#"}}', b'{"prompt":"' + b"a" * 100_000 + b'"}']  # fmt: skip
EXPECTED = {200, 400, 500, 503}  # 500: the engine died, 503: the queue is full, or there is no engine now


@dataclass(frozen=True)
class Left:
    """The resources of an idle server."""

    processes: int
    descriptors: int
    threads: int
    tasks: int
    live_cells: int
    memory: int  # bytes of the server
    engine_memory: int

    @property
    def shown(self) -> str:
        sizes = f"{self.memory / 2**20:.1f} MiB, engine {self.engine_memory / 2**20:.1f} MiB"
        counts = f"{self.processes} processes, {self.descriptors} descriptors, {self.threads} threads"
        return f"{counts}, {self.tasks} tasks, {self.live_cells} live cells, {sizes}"


@dataclass
class Soak:
    """One server, its clients and faults, and counts of both."""

    url: str
    process: asyncio.subprocess.Process
    model: Path
    dice: random.Random
    http: aiohttp.ClientSession = field(init=False)
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    # Clients

    async def part(self, seconds: float, pause: float | None) -> None:
        """Runs clients, each with one request after another, and a fault every `pause` seconds, if any."""
        until = time.monotonic() + seconds
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as self.http:
            harm = [] if pause is None else [self._harm(until, min(30.0, pause))]
            await asyncio.gather(*(self._client(until) for _ in range(N_CLIENTS)), *harm)

    async def _client(self, until: float) -> None:
        acts = [
            (self._ask, 12),
            (self._leave, 4),
            (self._send_rubbish, 2),
            (self._read_slowly, 1),
            (self._talk, 1),
        ]
        while time.monotonic() < until:
            (act,) = self.dice.choices([act for act, _ in acts], [weight for _, weight in acts])
            try:
                async with asyncio.timeout(120):
                    await act()
            except TimeoutError:
                self.wrong.append(f"{act.__name__} took more than 120 s")
            except (aiohttp.ClientError, ConnectionError) as error:
                self.wrong.append(f"{act.__name__}: {error!r}")

    def _request(self) -> tuple[str, str, dict[str, Any], bytes]:
        name, path, fields, end = self.dice.choice(TRAFFIC)
        prompt = " ".join(self.dice.choices(WORDS, k=30))
        body = {"max_tokens": self.dice.randint(1, 40)} | fields
        return name, path, body if "messages" in body or "input" in body else {"prompt": prompt} | body, end

    async def _ask(self) -> None:
        name, path, body, end = self._request()
        async with self.http.post(self.url + path, json=body) as response:
            data = await response.read()
        whole = end in data if response.status == 200 else response.status in EXPECTED
        ended = (
            "whole" if response.status == 200 and whole else "error" if whole or b"error" in data else "cut"
        )
        self.outcomes[f"{name}: {ended}"] += 1
        if ended == "cut":
            self.wrong.append(f"{name}: {response.status} {data[-200:]!r}")

    async def _leave(self) -> None:
        _, path, body, _ = self._request()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.dice.random() * 0.5):
                async with self.http.post(self.url + path, json=body | {"max_tokens": -1}) as response:
                    await response.content.readany()
        self.outcomes["left"] += 1

    async def _send_rubbish(self) -> None:
        async with self.http.post(self.url + "/v1/completions", data=self.dice.choice(RUBBISH)) as response:
            data = await response.read()
        self.outcomes[f"rubbish: {response.status}"] += 1
        if response.status not in EXPECTED or (response.status == 500 and b'"engine_died"' not in data):
            self.wrong.append(f"rubbish: {response.status} {data[-200:]!r}")

    async def _read_slowly(self) -> None:
        """Reads so slowly that the server may cut the connection."""
        body = {"prompt": "Once", "n": 64, "max_tokens": 60, "ignore_eos": True}
        with contextlib.suppress(aiohttp.ClientError):
            async with self.http.post(self.url + "/v1/events", json=body) as response:
                await asyncio.sleep(1)
                await response.read()
        self.outcomes["slow reader"] += 1

    async def _talk(self) -> None:
        """Two requests on a WebSocket, only one of which is read to its end."""
        async with self.http.ws_connect(self.url + "/v1/ws") as socket:
            for id in ("a", "b"):
                await socket.send_json(
                    {"op": "generate", "id": id, "prompt": "Once", "n": 2, "max_tokens": 20}
                )
            async for message in socket:
                if json.loads(message.data)["event"] in ("done", "error"):
                    break
        self.outcomes["WebSocket"] += 1

    # Faults

    async def _harm(self, until: float, pause: float) -> None:
        faults = [self._kill, self._stop, self._hang_up, self._replace_model]
        while time.monotonic() + 2 * pause < until:
            await asyncio.sleep(self.dice.uniform(0.5, 1.5) * pause)
            fault = self.dice.choice(faults)
            self.faults[fault.__name__.strip("_")] += 1
            fault()

    def _kill(self) -> None:
        for pid in engines(self.process.pid):
            os.kill(pid, signal.SIGKILL)

    def _stop(self) -> None:
        for pid in engines(self.process.pid)[:1]:
            os.kill(pid, signal.SIGSTOP)

    def _hang_up(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def _replace_model(self) -> None:
        fresh = self.model.with_suffix(".new")
        shutil.copyfile(self.model, fresh)
        fresh.replace(self.model)
        self._hang_up()

    # Leftovers

    async def fill(self) -> None:
        """Uses all cells, and fills the engine's history of ended requests' tokens (16 MiB), at once: both take memory
        with their first use, and only unbounded growth is a fault."""
        cells = {"prompt": "Once", "n": 8, "max_tokens": 1000, "ignore_eos": True}
        tokens = {"prompt": [300] * 1000, "n": 1, "max_tokens": 1}
        bodies = iter([cells, *([tokens] * (2**24 // (4 * 1000)))])

        async def client(http: aiohttp.ClientSession) -> None:
            for body in bodies:
                async with http.post(self.url + "/v1/completions", json=body | {"stream": False}) as response:
                    assert response.status == 200, await response.text()
                    await response.read()

        patient = aiohttp.ClientTimeout(total=1800)  # the first one is as slow as the machine lets all be
        async with aiohttp.ClientSession(timeout=patient) as http:
            await asyncio.gather(*(client(http) for _ in range(8)))

    async def left(self, at_most: Left | None = None) -> Left:
        """The resources of the server once it is idle; closing connections get a moment to end."""
        deadline = time.monotonic() + SETTLES
        while True:
            await asyncio.sleep(0.2)
            found = await self._look()
            idle = found.live_cells == 0 and found.processes == 1
            if time.monotonic() > deadline or (idle and not (at_most and more(at_most, found))):
                return found

    async def _look(self) -> Left:
        pid = self.process.pid
        descriptors = len(
            os.listdir(f"/proc/{pid}/fd")
        )  # before the question, whose connection may stay for a moment
        stats = await self._stats()
        engine = stats.get("engine") or {}
        live = engine.get("cells_used", 0) - engine.get("cells_idle", 0) + stats["requests_open"]
        memory, own = status(pid, "VmRSS") << 10, engines(pid)
        return Left(len(own), descriptors, status(pid, "Threads"), stats["tasks"], live,
                    memory, stats["engine_memory_bytes"])  # fmt: skip

    async def _stats(self) -> dict[str, Any]:
        async with (
            aiohttp.ClientSession() as http,
            http.get(self.url + "/v1/stats", headers={"Connection": "close"}) as response,
        ):
            stats: dict[str, Any] = await response.json()
        return stats


def engines(pid: int) -> list[int]:
    """The server's child processes that are alive."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for task in tasks for child in task.read_text().split()]
    return [child for child in found if Path(f"/proc/{child}/exe").exists()]


@contextlib.asynccontextmanager
async def server(folder: Path, log: Path) -> AsyncIterator[tuple[str, asyncio.subprocess.Process, Path]]:
    model = folder / "model.gguf"
    shutil.copyfile(ROOT / "models/storyteller.gguf", model)
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(ROOT / "api.py"), "--model", str(model), *FLAGS,
            stdout=asyncio.subprocess.PIPE, stderr=stderr, env=os.environ | SMALL_PAGES,
        )  # fmt: skip
        try:
            assert process.stdout
            yield (await process.stdout.readline()).decode().split()[0], process, model
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def soak(seconds: float, seed: int) -> tuple[list[str], list[str]]:
    """Counts of what happened, and the faults found."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        async with server(Path(folder), log) as (url, process, model):
            one, found = Soak(url, process, model, random.Random(seed)), list[Left]()
            for i, share in enumerate(PARTS):
                if i == N_HARMED:
                    await one.fill()
                await one.part(share * seconds, seconds / 12 if i < N_HARMED else None)
                found.append(await one.left(found[0] if found else None))
            pids = engines(process.pid)
        before, harmed, calm, after = found
        wrong = [*one.wrong, *more(before, after)]
        wrong += grown("memory, with faults", before.memory, harmed.memory)
        wrong += grown("memory, calm", calm.memory, after.memory)
        wrong += grown("memory of the engine", calm.engine_memory, after.engine_memory, ENGINE_SLACK)
        wrong += [f"exit code {process.returncode}"] * (process.returncode != 0)
        wrong += [f"engine {pid} outlives its server" for pid in pids if Path(f"/proc/{pid}/exe").exists()]
        wrong += complaints(log.read_text())
    requests = sum(one.outcomes.values())
    said = [f"{requests} requests, {sum(one.faults.values())} faults in {seconds:.0f} s"]
    said += [f"  {n:6d} {what}" for what, n in sorted((one.outcomes + one.faults).items())]
    names = ("after the first part", "after faults", "calm", "at the end")
    return [*said, *(f"{name}: {left.shown}" for name, left in zip(names, found, strict=True))], wrong


def more(before: Left, after: Left) -> list[str]:
    """The resources that have grown; threads by more than a pool may have made in the meantime."""
    made_late = {"processes": 0, "descriptors": 0, "threads": POOL, "tasks": 0, "live_cells": 0}
    rows = [(name, getattr(before, name), getattr(after, name), late) for name, late in made_late.items()]
    return [f"{name}: {was} before, {now} after" for name, was, now, late in rows if now > was + late]


def complaints(log: str) -> list[str]:
    """Log lines that a server must never write, each with the lines after it."""
    return [log[found.start() :][:4000] for found in re.finditer("Traceback|.*internal error", log)]


def grown(what: str, before: int, after: int, slack: int = 0) -> list[str]:
    sizes = f"{what}: {before / 2**20:.1f} MiB before, {after / 2**20:.1f} after"
    return [sizes] if after > max(MAY_GROW * before, before + slack) else []


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    said, wrong = asyncio.run(soak(60 * arguments.minutes, arguments.seed))
    print("\n".join(said + [f"WRONG: {line}" for line in wrong]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
