"""No request, whatever its bytes, keeps other clients waiting: the longest stretch of the server's event loop.

Each route that reads a body is here by its row in the routes' table, with the worst bodies of the largest
size. The gate has a part of the product, scripts/long the whole one.
"""

# ruff: noqa: E501 (tables)
from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from llama_srb.batch.records import StoredFile, new_id
from llama_srb.batch.store import Store
from llama_srb.grpc.messages import SERVICE, message_class
from llama_srb.http.routes import ROUTES, Route
from tests.support.hostile import NAMES
from tests.support.long import IS_LONG, amount
from tests.support.rows import each_row
from tests.support.rpc import port_in
from tests.support.stalls import LONGEST, Watched, watching
from tests.support.waiting import PATIENCE
from tests.support.worst_bodies import RAW, VALUES, body

LARGEST = (16 << 20) - 1024  # bytes: --max-body
N_FILES = 10_000  # of one list
PLACES = {"name": "story", "id": "17", "story": "s"}  # in paths
CONFIG = """
[tasks.story]
prelude = "Once"
postfix = "!"
private_tokens = ["<secret>"]

[tasks.chronicle]
max_tokens = 3
recall = { memory = "tales", store_prompts = true }

[memories.tales]
store = { file = "tales.db" }
"""
KINDS = [*VALUES, *RAW]
BODIES = [route for route in ROUTES if route.method in ("POST", "PUT") and route.request and not route.files]
FILES = [route for route in ROUTES if route.files]
SOCKETS = [route for route in ROUTES if 101 in route.answers]


def part_of(gate: list[str], long: list[str]) -> list[str]:
    """The kinds that run in the gate, and in scripts/long."""
    return long if IS_LONG else gate


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    (folder / "srb.toml").write_text(CONFIG)
    for name in ("stories", "files", "adapters"):
        (folder / name).mkdir()
    fill(folder / "files")
    flags = (
        "--config",
        "srb.toml",
        "--stories",
        "stories",
        "--files-dir",
        "files",
        "--adapters-dir",
        "adapters",
    )
    with watching(
        folder,
        *flags,
        "--max-n",
        "1024",
        "--grpc",
        "0",
        "--log-level",
        "info",
        "--",
        "--alternatives",
        "--dimensions",
        "256",
    ) as watched:
        request(watched, "POST", "/v1/events", json.dumps({"prompt": "x", "max_tokens": 1}).encode())
        yield watched


def fill(folder: Path) -> None:
    """Makes a store that lists many files."""
    asyncio.run(add_file(folder))
    names = "owner, filename, bytes, purpose, created_at, expires_at, path"
    with contextlib.closing(sqlite3.connect(folder / "batches.db")) as db, db:
        for i in range(1, N_FILES):
            db.execute(
                f"INSERT INTO files (id, {names}) SELECT ?, {names} FROM files LIMIT 1", (f"file-{i}",)
            )


async def add_file(folder: Path) -> None:
    async with Store(folder) as store:
        id, now = new_id("file-"), int(time.time())
        path = store.relative(store.upload(id))
        await store.add_file(StoredFile(id, "", "a.jsonl", 0, "batch", now, now + 9999, path))


def request(
    server: Watched, method: str, path: str, data: bytes | None = None, content_type: str = "application/json"
) -> bytes:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)) as one:
        one.request(method, path, data, {"Content-Type": content_type, "If-None-Match": "*"})
        response = one.getresponse()
        assert response.status < 500 or response.status == 501, response.read()[:300]
        return response.read()


def path_of(route: Route) -> str:
    path = route.path
    for name, value in PLACES.items():
        path = path.replace(f"{{{name}}}", value)
    return path


# Large bodies


def product() -> list[tuple[Route, str, str]]:
    """Routes, kinds of bodies and fields. In the gate each kind once, and the routes in turn."""
    dice = random.Random(7)
    rows = [(route, kind, dice.choice(NAMES)) for route in BODIES for kind in KINDS]
    return rows if IS_LONG else [rows[i * (len(KINDS) * 3 + 1) % len(rows)] for i in range(len(KINDS))]


def named(value: object) -> str:
    return value.path if isinstance(value, Route) else str(value)


@each_row(("route", "kind", "field"), product, ids=named)
def test_no_body_stops_the_event_loop(route: Route, kind: str, field: str, server: Watched) -> None:
    data = body(kind, field, LARGEST)
    assert server.longest(lambda: request(server, route.method, path_of(route), data)) <= LONGEST


def numbers(**more: Any) -> dict[str, Any]:
    return {"prompt": "x", "max_tokens": 1, **more}


READ = {  # bodies whose many values are used, not only read: path and fields
    "biases": ("/v1/events", lambda: numbers(logit_bias={str(i): 1 for i in range(100_000)})),
    "biases of sequences": ("/v1/events", lambda: numbers(n=1024, sequences=[
        {"logit_bias": {str(i): 1 for i in range(amount(300, 390))}}] * 1024)),
    "spread numbers": ("/v1/events", lambda: numbers(n=1024, **{name: {"from": 0.5, "to": 1} for name in (
        "temperature", "top_p", "min_p", "typical_p", "xtc_probability", "presence_penalty", "dry_base")})),
    "ids": ("/v1/events", lambda: numbers(prompt=list(range(900_000)))),
    "private tokens": ("/v1/tasks/story/completions", lambda: numbers(
        prompt="a" * amount(1_000_000, 4_000_000), private_tokens=["a" * 94 + "b" + str(i) for i in range(amount(30, 100))])),
    "messages": ("/v1/chat/completions", lambda: {"max_tokens": 1, "messages": [
        {"role": "user", "content": "x" * 1000}] * 10_000}),
}  # fmt: skip


@each_row("kind", [*READ])
def test_no_use_of_a_body_stops_the_event_loop(kind: str, server: Watched) -> None:
    path, fields = READ[kind]
    data = json.dumps(fields()).encode()
    assert server.longest(lambda: request(server, "POST", path, data)) <= LONGEST


# Files

DOCUMENTS = {
    "lines": ("text/plain", b"a\n"),
    "prose": ("text/plain", b"Some words of a story, and then some more. "),
    "one word": ("text/plain", b"a"),
    "elements": ("text/html", b"<p>"),
    "archives": ("application/epub+zip", b"PK\x03\x04"),
}
FORM = b'--x\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'


def file_of(route: Route, kind: str) -> tuple[str, bytes]:
    """The Content-Type and the body of the largest file; in a form if the route takes one."""
    content_type, unit = DOCUMENTS[kind]
    data = unit * (amount(2 << 20, LARGEST) // len(unit))
    if content_type in route.files:
        return content_type, data
    parts = FORM % (b"purpose", b"batch") + FORM.replace(b'"%b"', b'"%b"; filename="a.jsonl"') % (
        b"file",
        data,
    )
    return "multipart/form-data; boundary=x", parts + b"--x--\r\n"


@each_row("kind", [*DOCUMENTS])
@each_row("route", FILES, ids=lambda route: route.path)
def test_no_file_stops_the_event_loop(route: Route, kind: str, server: Watched) -> None:
    content_type, data = file_of(route, kind)
    path = path_of(route).replace("{memory}", "tales").replace("{document}", "x")
    assert server.longest(lambda: request(server, route.method, path, data, content_type)) <= LONGEST


# WebSockets and gRPC


@each_row("kind", part_of(["objects", "only quotes"], KINDS))
@each_row("route", [route.path for route in SOCKETS])
def test_no_message_stops_the_event_loop(route: str, kind: str, server: Watched) -> None:
    data = body(kind, "prompt", LARGEST, op="generate", id="1")
    url = f"http://127.0.0.1:{server.port}" + route.replace("{name}", "story")

    async def send() -> None:
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.ws_connect(url) as socket:
            await socket.send_bytes(data)
            await socket.receive(PATIENCE)

    assert server.longest(lambda: asyncio.run(send())) <= LONGEST


def repeated(name: str, **fields: Any) -> bytes:
    """A message as often as fits: repeated fields and Structs of all copies are put together."""
    one: bytes = message_class(name)(**fields).SerializeToString()
    return one * (LARGEST // len(one))


def values(name: str, count: int) -> bytes:
    """A message with a Struct of as many numbers, each with another name."""
    message = message_class(name)()
    message.fields.update({str(i): i for i in range(count)})
    data: bytes = message.SerializeToString()
    return data


MESSAGES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a long prompt": ("Complete", lambda: message_class("CompleteRequest")(prompt="a" * LARGEST).SerializeToString()),
    "texts": ("Complete", lambda: repeated("CompleteRequest", stop=["abcdefghijklmnopqrstuvwxyz"])),
    "members": ("Complete", lambda: values("CompleteRequest", amount(30_000, 150_000))),
    "messages": ("Chat", lambda: repeated("ChatRequest", messages=[{"role": "user", "content": "a" * 1600}])),
    "inputs": ("Embed", lambda: repeated("EmbedRequest", input=["abcdefghijklmnopqrstuvwxyz"])),
}  # fmt: skip


@each_row("kind", part_of(["a long prompt", "members"], [*MESSAGES]))
def test_no_grpc_message_stops_the_event_loop(kind: str, server: Watched) -> None:
    method, make = MESSAGES[kind]
    data = make()

    def send() -> None:
        with (
            grpc.insecure_channel(f"127.0.0.1:{port_in(server.beginning)}") as channel,
            contextlib.suppress(grpc.RpcError),
        ):
            for _ in channel.unary_stream(f"/{SERVICE}/{method}")(data, timeout=PATIENCE):
                pass

    assert server.longest(send) <= LONGEST


# Many requests at once

CROWD = 250  # below --max-queue
CROWDS: dict[str, tuple[str, dict[str, Any]]] = {
    "completions": ("/v1/completions", {"prompt": "some words", "max_tokens": 3, "stream": False}),
    "prompts that are stored": ("/v1/completions", {"prompt": "words %d", "model": "chronicle", "stream": False}),
    "vectors": ("/v1/embeddings", {"input": "some words"}),
}  # fmt: skip


async def crowd(port: int, path: str, fields: dict[str, Any]) -> None:
    """As many requests, whose bytes come at the same time."""
    async with asyncio.timeout(PATIENCE):
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CROWD)]
        for number, (_, writer) in enumerate(streams):
            data = json.dumps(fields).replace("%d", str(number)).encode()
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        for reader, writer in streams:
            assert b" 200 " in await reader.readline()
            await reader.read()
            writer.close()


@each_row("kind", [*CROWDS])
def test_no_crowd_of_requests_stops_the_event_loop(kind: str, server: Watched) -> None:
    assert server.longest(lambda: asyncio.run(crowd(server.port, *CROWDS[kind]))) <= LONGEST


# Large answers

MANY = {"n": 1024, "max_tokens": amount(3, 20), "ignore_eos": True}
ANSWERS: dict[str, tuple[str, str, Any]] = {
    "files": ("GET", f"/v1/files?limit={N_FILES}", None),
    "logprobs": ("POST", "/v1/completions", {"prompt": "x", "logprobs": 20, "stream": False} | MANY),
    "logprobs of llama-server": ("POST", "/completion", {"prompt": "x", "n_probs": 20} | MANY),
    "a chat with top_logprobs": ("POST", "/v1/chat/completions", {
        "messages": [{"role": "user", "content": "x"}], "logprobs": True, "top_logprobs": 20} | MANY),
    "a stream": ("POST", "/v1/events", {"prompt": "x", "logprobs": 20} | MANY),
    "an exact prompt": ("POST", "/v1/prompt", {"prompt": "a b c " * 170_000}),
    "an exact prompt of parts": ("POST", "/v1/prompt", {"prompt": [{"text": "a b c "}] * 10_000}),
    "tokens with pieces": ("POST", "/tokenize", {"content": "a b c " * 170_000, "with_pieces": True}),
    "a big story": ("POST", "/v1/prompt", {"prompt": "some words\n" * 100_000, "story": {"search": 100_000, "lore": [
        {"keys": [f"k{i}"], "text": "t" * 100} for i in range(1000)]}}),
}  # fmt: skip


@each_row("kind", [*ANSWERS])
def test_no_answer_stops_the_event_loop(kind: str, server: Watched) -> None:
    method, path, fields = ANSWERS[kind]
    data = None if fields is None else json.dumps(fields).encode()
    assert server.longest(lambda: request(server, method, path, data)) <= LONGEST


# Kept responses

HALF = LARGEST // 2
MEMBERS = amount(
    80_000, 150_000
)  # the garbage collector looks at them twice: as they came and as they are named
INPUTS: dict[str, Callable[[], list[Any]]] = {  # of a response that later requests name
    "one text": lambda: [{"role": "user", "content": "a" * HALF}],
    "messages": lambda: [{"role": "user", "content": "x" * (HALF // 10_000)}] * 4900,
    "parts": lambda: [{"role": "user", "content": [{"type": "input_text", "text": "a" * 2000}] * 3500}],
    "unknown members": lambda: [{"role": "user", "content": "x", "y": {str(i): [] for i in range(MEMBERS)}}],
    "unknown lists": lambda: [{"role": "user", "content": "x", "y": [[]] * 190_000}],
}


@each_row("kind", [*INPUTS])
def test_no_kept_response_stops_the_event_loop(kind: str, server: Watched) -> None:
    """It is kept, gone on from, its items are named often, it is read, listed and forgotten."""
    asked: dict[str, Any] = {"input": INPUTS[kind](), "max_output_tokens": 1}
    data = json.dumps(asked).encode()
    kept: list[str] = []

    def keep() -> None:
        answer = json.loads(request(server, "POST", "/v1/responses", data))
        assert answer.get("store"), answer
        kept.append(answer["id"])

    assert server.longest(keep) <= LONGEST, "keep"
    id = kept[-1]
    more = json.dumps({"input": "x", "previous_response_id": id, "max_output_tokens": 1}).encode()
    named = [{"type": "item_reference", "id": f"msg_{id.removeprefix('resp_')}_{i}"} for i in ("i0", "0")]
    often = json.dumps({"input": [*named * 4900, {"role": "user", "content": "x"}]}).encode()
    once = json.dumps({"input": [named[0]], "max_output_tokens": 1}).encode()
    one = f"/v1/responses/{id}"
    for method, path, sent in (
        ("POST", "/v1/responses", more),
        ("POST", "/v1/responses", often),
        ("POST", "/v1/responses", once),
        ("GET", one, None),
        ("GET", one + "/input_items?limit=100", None),
        ("DELETE", one, None),
    ):
        longest = server.longest(
            lambda method=method, path=path, sent=sent: request(server, method, path, sent)
        )  # type: ignore[misc]
        assert longest <= LONGEST, (method, path, (sent or b"")[:60], longest)
