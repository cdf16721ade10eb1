"""Attacks of one key on a server, in a separate process, which benchmarks/attacks.py starts.

Each attack repeats one request. Prints one line for each failure.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from tests.support import worst_bodies  # noqa: E402

WRITER, ATTACKER = "writer", "attacker"  # names of keys
MARKS = {WRITER: "zqwriterqz", ATTACKER: "zqattackerqz"}  # each request of a key has its mark
LARGE = 15_000_000  # bytes of a body, below --max-body
STALL = 5.0  # seconds in which a slow reader reads nothing

Json: TypeAlias = dict[str, Any]


class Leak(Exception):
    """An answer has a text of another key."""


@dataclass
class Client:
    """Sends the requests of one key; searches all answers for the other key's mark."""

    url: str
    name: str
    http: aiohttp.ClientSession
    dice: random.Random = field(default_factory=random.Random)
    scale: float = 1.0  # factor of the attacks' sizes
    answers: Counter[int] = field(default_factory=Counter)
    number: Iterator[int] = field(default_factory=itertools.count)

    @property
    def mark(self) -> str:
        return MARKS[self.name]

    @property
    def new(self) -> str:
        """A word that was never sent before."""
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
            raise Leak(f"{self.name} got {data[max(0, at - 100) : at + 100]!r}")
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


# Attacks: each one repeats one request

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
    question = {"role": "user", "content": c.prompt(100)}
    messages = [question, {"role": "assistant", "content": "Yes. " * 100}] * c.many(4000)
    await c.post("/apply-template", {"messages": messages})
    await c.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1})


async def stops(c: Client) -> None:
    stop = [f"{c.new}{i}".ljust(4000, "a") for i in range(c.many(1000))]
    await c.post("/v1/events", {"prompt": c.prompt(), "n": c.many(512), "max_tokens": 8, "stop": stop})


async def slow_readers(c: Client) -> None:
    """Half of the readers read nothing, the others 4 kB each 0.1 s."""
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
    """Requests that are started and cancelled as fast as possible."""
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
    """Connections that are opened and closed, with and without an incomplete request."""
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


async def stalls(c: Client) -> None:
    """Bodies that would hold the event loop, by HTTP or as a message of a WebSocket."""
    kind = c.dice.choice([*worst_bodies.VALUES, *worst_bodies.RAW])
    data = worst_bodies.body(kind, c.dice.choice(("prompt", c.new)), c.many(LARGE), op="generate", id="1")
    if c.dice.random() < 0.5:
        await c.post(c.dice.choice(("/v1/events", "/v1/chat/completions", "/tokenize")), data)
        return
    async with c.http.ws_connect(c.url + "/v1/ws") as socket:
        await socket.send_bytes(data)
        await socket.receive()


async def answers(c: Client) -> None:
    """Large answers: an exact prompt, and alternatives to each token."""
    await c.post("/v1/prompt", {"prompt": f"{c.new} " + "a dog " * c.many(170_000)})
    body = {"prompt": c.prompt(), "n": c.many(256), "max_tokens": 16, "logprobs": 100, "stream": False}
    await c.post("/v1/completions", body)


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


async def polling(c: Client) -> None:
    """KoboldCpp's polling of generations with many alternatives."""
    body = {"prompt": c.prompt(), "max_length": 800, "n": c.many(32), "logprobs": 100, "genkey": c.new}

    async def poll() -> None:
        while True:
            await c.post("/api/extra/generate/check", {"genkey": body["genkey"]})
            await c.post("/api/extra/last_logprobs", {"genkey": body["genkey"]})

    poller = asyncio.create_task(poll())
    try:
        await c.post("/api/v1/generate", body)
    finally:
        poller.cancel()
        await asyncio.wait({poller})


async def documents(c: Client) -> None:
    """Documents that take long to cut, of lines without words."""
    path = f"{c.url}/v1/memories/tales/documents/{c.new}.txt"
    async with c.http.put(path, data=b"a\n" * c.many(LARGE // 2)) as response:
        c.answers[response.status] += 1
        c.checked(await response.read())


async def searches(c: Client) -> None:
    """Searches whose filter has as many values as it may, and takes nothing."""
    words = [f"{c.new}{i}" for i in range(c.many(250))]
    conditions: Json = {f"key{i}": {"not_in": words} for i in range(62)} | {"none": {"exists": True}}
    body = {"query": c.prompt(), "k": 1000, "filter": {"metadata": conditions}}
    await c.post("/v1/memories/tales/search", body)


ATTACKS: dict[str, Attack] = {
    made.__name__: made
    for made in (
        tokenize, detokenize, schemas, grammars, templates, stops, slow_readers, rankings, websockets,
        connections, nesting, stalls, answers, biases, prefixes, scores, vectors, polling, documents,
        searches,
    )
}  # fmt: skip


# For the soak test: normal requests, and requests that ended the engine or other requests in old versions


def _ban() -> Json:
    return {str(i): False for i in range(2048)}


def hostile(c: Client) -> tuple[str, Json | bytes]:
    """A request that is refused, or ends by itself."""
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


NORMAL: tuple[tuple[str, Json, bytes], ...] = (  # path, fields, and a text that a complete answer has
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
    ),  # an error that quotes the value that was sent
)


def normal(c: Client) -> tuple[str, Json, bytes]:
    path, fields, end = c.dice.choice(NORMAL)
    word = c.new
    filled = json.loads(json.dumps(fields).replace("{}", word))
    prompt = {} if "messages" in fields or "extra" in path else {"prompt": f"{word} {c.prompt()}"}
    return path, prompt | filled, end.replace(b"{}", word.encode())


# The attacker process


async def attack(names: list[str], url: str, width: int, seconds: float, scale: float) -> list[str]:
    """Runs attacks; returns the failures."""
    until, wrong = time.monotonic() + seconds, list[str]()
    async with client(url, ATTACKER, os.getpid(), scale) as c:

        async def again(one: Attack) -> None:
            while time.monotonic() < until:
                try:
                    async with asyncio.timeout(max(0.1, until - time.monotonic())):
                        await one(c)
                except Leak as leak:
                    wrong.append(str(leak))
                except (TimeoutError, aiohttp.ClientError, OSError):
                    await asyncio.sleep(0.01)  # allowed: the server may refuse or end an attack

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("attacks", nargs="+", choices=[*ALL])
    parser.add_argument("--width", type=int, default=1, help="requests at once of each attack")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--scale", type=float, default=1, help="factor of the attacks' sizes")
    wanted = parser.parse_args()
    wrong = asyncio.run(attack(wanted.attacks, wanted.url, wanted.width, wanted.seconds, wanted.scale))
    print("\n".join(wrong))


if __name__ == "__main__":
    main()
