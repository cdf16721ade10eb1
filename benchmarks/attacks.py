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
import itertools
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from llama_srb.http.auth import api_keys  # noqa: E402

WRITER, ATTACKER = "writer", "attacker"  # the names of the keys
MARKS = {WRITER: "zqwriterqz", ATTACKER: "zqattackerqz"}  # in every request of a key, so also in its answers
LATE = 0.25  # seconds between two tokens that count as late
LARGE = 15_000_000  # bytes of a body, below --max-body
STORY = {"n": 4, "max_tokens": 400, "ignore_eos": True, "echo": True}
WIDTH, MIXED = 4, 2  # requests of an attack at once: when it runs alone, and for each attack in the mix
STALL = 5.0  # seconds in which a slow reader reads nothing
PATIENCE = 120.0  # seconds that a request of the writer may take
FLAGS = ("--ctx", "8192", "--parallel", "32", "--cache-ram", "0", "--max-n", "1024", "--write-timeout", "10",
         "--stop-grace", "1", "--log-level", "info")  # fmt: skip
SMALL_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}  # huge pages would grow memory by 2 MiB each
SETTLES = 30.0  # seconds until memory is measured after an attack
# The allowed growth of memory from the middle of a soak to its end. It is larger for large attacks (bodies of
# 15 MB), and for short soaks, in which an attack may run completely only in the second half.
MAY_GROW, SLACK_MB = 1.1, (8, 56)
LONG_SOAK, SHORT_SLACK_MB = 300.0, 150

Json: TypeAlias = dict[str, Any]


class Seen(Exception):
    """An answer contained another key's mark."""


@dataclass
class Client:
    """Sends requests with a key, and searches all answers for the other key's mark."""

    url: str
    name: str
    http: aiohttp.ClientSession
    dice: random.Random = field(default_factory=random.Random)
    scale: float = 1.0  # a factor for the sizes of attacks
    answers: Counter[int] = field(default_factory=Counter)
    number: Iterator[int] = field(default_factory=itertools.count)

    @property
    def mark(self) -> str:
        return MARKS[self.name]

    @property
    def new(self) -> str:
        """A word that no request has had yet."""
        return f"{self.mark}{os.getpid()}x{next(self.number)}"

    def many(self, count: int) -> int:
        return max(1, round(self.scale * count))

    def prompt(self, words: int = 30) -> str:
        return (
            self.new + " " + " ".join(self.dice.choices(("once", "upon", "a", "time", "dog", "cat"), k=words))
        )

    def checked(self, data: bytes) -> bytes:
        other = next(mark for name, mark in MARKS.items() if name != self.name)
        if other.encode() in data:
            at = data.index(other.encode())
            raise Seen(f"{self.name} got {data[max(0, at - 100) : at + 100]!r}")
        return data

    async def post(self, path: str, body: Json | bytes) -> tuple[int, bytes]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.http.post(self.url + path, data=data) as response:
            self.answers[response.status] += 1
            return response.status, self.checked(await response.read())


@contextlib.asynccontextmanager
async def client(url: str, name: str, seed: int = 7, scale: float = 1.0) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {name}"}
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(headers=headers, connector=connector, timeout=timeout) as http:
        yield Client(url, name, http, random.Random(seed), scale)


# Attacks; each function sends one request and is called repeatedly

Attack: TypeAlias = Callable[[Client], Awaitable[object]]


async def tokenize(c: Client) -> None:
    await c.post("/tokenize", b'{"content":"%b %b"}' % (c.new.encode(), b"a dog " * c.many(LARGE // 6)))


async def detokenize(c: Client) -> None:
    await c.post("/detokenize", b'{"tokens":[%b1]}' % (b"300," * c.many(900_000)))


async def schemas(c: Client) -> None:
    properties = {f"{c.new}{i}": {"type": "string", "maxLength": 50} for i in range(c.many(300))}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    await c.post("/v1/completions", {"prompt": c.new, "n": 1, "max_tokens": 2, "json_schema": schema})


async def grammars(c: Client) -> None:
    words = " | ".join(f'"{c.new}{i}" [a-z]{{1,9}}' for i in range(c.many(8000)))
    await c.post("/v1/events", {"prompt": c.new, "n": 1, "max_tokens": 2, "grammar": f"root ::= ({words})+"})


async def templates(c: Client) -> None:
    said = {"role": "user", "content": c.prompt(100)}
    messages = [said, {"role": "assistant", "content": "Yes. " * 100}] * c.many(4000)
    await c.post("/apply-template", {"messages": messages})
    await c.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1})


async def stops(c: Client) -> None:
    stop = [f"{c.new}{i}".ljust(4000, "a") for i in range(c.many(1000))]
    await c.post("/v1/events", {"prompt": c.prompt(), "n": c.many(512), "max_tokens": 8, "stop": stop})


async def slow_readers(c: Client) -> None:
    """Half of the readers read nothing, the others 4 kB every 0.1 s."""
    body = {"prompt": c.prompt(), "n": c.many(512), "max_tokens": 100, "ignore_eos": True, "logprobs": 100}
    paths = ("/v1/events", "/completion", "/api/extra/generate/stream")
    async with c.http.post(c.url + c.dice.choice(paths), json=body | {"stream": True}) as response:
        if c.dice.random() < 0.5:
            await asyncio.sleep(STALL)
            return
        for _ in range(int(STALL / 0.1)):
            c.checked(await response.content.read(4096))
            await asyncio.sleep(0.1)


async def rankings(c: Client) -> None:
    body = {
        "prompt": c.prompt(),
        "n": c.many(1024),
        "max_tokens": 20,
        "ignore_eos": True,
        "rank_by": "diversity",
    }
    await c.post("/v1/events", body)


async def websockets(c: Client) -> None:
    """Starts and cancels requests as fast as possible."""
    async with c.http.ws_connect(c.url + "/v1/ws") as socket:
        for i in range(c.many(500)):
            fields = {"prompt": c.prompt(), "n": 16, "max_tokens": 200, "logprobs": 20}
            await socket.send_json({"op": "generate", "id": str(i), **fields})
            await socket.send_json({"op": "cancel", "id": str(i), "index": 0})
            await socket.send_json({"op": "cancel", "id": str(i)})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.002):
                    c.checked(str((await socket.receive()).data).encode())


async def connections(c: Client) -> None:
    """Opens connections and leaves them, with and without half a request."""
    host, port = c.url.removeprefix("http://").split(":")
    for sent in (
        b"",
        b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
        b"\x16\x03\x01",
    ):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        writer.close()
    body = {"prompt": c.prompt(), "n": 64, "max_tokens": -1}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05), c.http.post(c.url + "/v1/events", json=body) as response:
            await response.content.readany()


async def nesting(c: Client) -> None:
    depth = c.dice.choice((500, c.many(5_000_000)))
    for path in ("/v1/events", "/v1/completions", "/api/generate"):
        await c.post(path, b'{"prompt":"%b","x":%b%b}' % (c.new.encode(), b"[" * depth, b"]" * depth))


async def biases(c: Client) -> None:
    bias = {str(i): -1e9 + c.dice.random() for i in range(2000)} | {
        f"{c.new}{i}": -1 for i in range(c.many(50_000))
    }
    await c.post("/v1/events", {"prompt": c.prompt(), "n": c.many(512), "max_tokens": 8, "logit_bias": bias})


async def prefixes(c: Client) -> None:
    await c.post("/v1/prefix", {"prompt": [c.dice.randrange(300, 2000) for _ in range(1000)]})


async def scores(c: Client) -> None:
    texts = [c.prompt(100) for _ in range(c.many(1024))]
    await c.post("/v1/score", {"prompt": c.prompt(500), "texts": texts, "logprobs": 100})


async def vectors(c: Client) -> None:
    await c.post("/v1/embeddings", {"input": [c.prompt(200) for _ in range(c.many(2048))]})


async def looking_on(c: Client) -> None:
    """Polls, as KoboldCpp's clients do, a generation with many alternatives."""
    body = {"prompt": c.prompt(), "max_length": 800, "n": c.many(32), "logprobs": 100, "genkey": c.new}

    async def look() -> None:
        while True:
            await c.post("/api/extra/generate/check", {"genkey": body["genkey"]})
            await c.post("/api/extra/last_logprobs", {"genkey": body["genkey"]})

    looking = asyncio.create_task(look())
    try:
        await c.post("/api/v1/generate", body)
    finally:
        looking.cancel()
        await asyncio.wait({looking})


ATTACKS: dict[str, Attack] = {
    made.__name__: made
    for made in (
        tokenize, detokenize, schemas, grammars, templates, stops, slow_readers, rankings, websockets,
        connections, nesting, biases, prefixes, scores, vectors, looking_on,
    )
}  # fmt: skip


# For the soak: requests that once ended the engine or other clients' requests, and normal requests


def _ban() -> Json:
    return {str(i): False for i in range(2048)}


def hostile(c: Client) -> tuple[str, Json | bytes]:
    """A faulty request, which is refused or ends by itself."""
    once: Json = {"prompt": c.prompt(), "n": 2, "max_tokens": 5}
    kwargs: Any = {"a": 1}
    for _ in range(200):
        kwargs = {"a": [kwargs]}
    chat = {"messages": [{"role": "user", "content": c.new}], "chat_template_kwargs": kwargs, "max_tokens": 3}
    return c.dice.choice([
        ("/v1/events", once | {"temperature": 1e-38, "logprobs": 20, "logprobs_mode": "processed"}),
        ("/v1/completions", once | {"temperature": 1e-45, "logprobs": 5, "stream": True}),
        ("/v1/events", once | {"logit_bias": _ban()}),
        ("/v1/events", once | {"logit_bias": _ban(), "logprobs": 5, "logprobs_mode": "processed"}),
        ("/v1/chat/completions", chat),
        ("/v1/events", b'{"prompt":"%b","x":%b}' % (c.new.encode(), b'{"a":' * 100_000)),
        ("/v1/events", once | {"grammar": f'root ::= "{c.new}'}),
        ("/v1/events", once | {"json_schema": {"$ref": f"#/{c.new}"}}),
        ("/v1/score", {"prompt": c.new, "texts": [c.new, ""]}),
        ("/v1/events", once | {c.new: 1, "n": 0}),
    ])  # fmt: skip


NORMAL: tuple[tuple[str, Json, bytes], ...] = (  # path, fields, bytes that a complete answer contains
    ("/v1/events", {"n": 4, "max_tokens": 60, "echo": True}, b'"event": "done"'),
    ("/v1/completions", {"n": 2, "max_tokens": 40, "echo": True, "stream": True}, b"[DONE]"),
    ("/v1/completions", {"n": 3, "max_tokens": 30, "echo": True, "stream": False, "logprobs": 3}, b'"usage"'),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "{}"}], "max_tokens": 20}, b'"usage"'),
    ("/completion", {"n_predict": 30, "n_probs": 5}, b'"stop":true'),
    ("/api/v1/generate", {"max_length": 30, "genkey": "K", "logprobs": True}, b'"results"'),
    ("/api/extra/generate/check", {"genkey": "K"}, b'"results"'),
    ("/api/extra/last_logprobs", {"genkey": "K"}, b'"logprobs"'),
    ("/v1/score", {"texts": [" a dog", " {}"]}, b'"usage"'),
    (
        "/v1/events",
        {"n": 1, "max_tokens": 3, "temperature": "{}"},
        b"{}",
    ),  # an error that quotes the request
)


def normal(c: Client) -> tuple[str, Json, bytes]:
    path, fields, end = c.dice.choice(NORMAL)
    word = c.new
    filled = json.loads(json.dumps(fields).replace("{}", word))
    prompt = {} if "messages" in fields or "extra" in path else {"prompt": f"{word} {c.prompt()}"}
    return path, prompt | filled, end.replace(b"{}", word.encode())


# The attacker, which is another process


async def attack(names: list[str], url: str, width: int, seconds: float, scale: float) -> list[str]:
    """Runs the attacks; returns what was wrong."""
    until, wrong = time.monotonic() + seconds, list[str]()
    async with client(url, ATTACKER, os.getpid(), scale) as c:

        async def again(one: Attack) -> None:
            while time.monotonic() < until:
                try:
                    async with asyncio.timeout(max(0.1, until - time.monotonic())):
                        await one(c)
                except Seen as seen:
                    wrong.append(str(seen))
                except (TimeoutError, aiohttp.ClientError, OSError):
                    await asyncio.sleep(0.01)  # allowed: the server may refuse it or cut it off

        async with asyncio.TaskGroup() as group:
            for name in names:
                for _ in range(width):
                    group.create_task(again(ALL[name]))
    return wrong


async def hostile_once(c: Client) -> None:
    await c.post(*hostile(c))


async def normal_once(c: Client) -> None:
    path, body, _ = normal(c)
    await c.post(path, body)


ALL: dict[str, Attack] = {**ATTACKS, "hostile": hostile_once, "normal": normal_once}


@contextlib.contextmanager
def attacking(
    names: list[str], url: str, width: int, seconds: float, scale: float = 1.0
) -> Iterator[list[str]]:
    """Runs the attacker's process for some seconds; after the block the list has what was wrong."""
    wrong: list[str] = []
    flags = [
        "--url",
        url,
        "--width",
        str(width),
        "--seconds",
        str(seconds),
        "--scale",
        str(scale),
        "--attack",
        *names,
    ]
    command = [sys.executable, __file__, *flags]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.nice(5)
    ) as process:
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

    seconds: float = 0.0  # that it was asked for, and until the last one ended
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
        rows = [api_keys.Key(hash=api_keys.hashed(key), name=key) for key in (WRITER, ATTACKER)]
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
    parser.add_argument("--attack", nargs="*", help=argparse.SUPPRESS)  # this process is the attacker
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--width", type=int, default=1, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.attack is not None:
        print(
            "\n".join(
                asyncio.run(attack(wanted.attack, wanted.url, wanted.width, wanted.seconds, wanted.scale))
            )
        )
        return 0
    if wanted.soak is None:
        asyncio.run(table(wanted.only, wanted.seconds))
        return 0
    said, wrong = asyncio.run(soak(wanted.soak, wanted.scale))
    print("\n".join(said + [f"WRONG: {line}" for line in wrong]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
