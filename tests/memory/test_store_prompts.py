"""Prompts that tasks store, with the real engine: only of requests that have begun, beside their answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from llama_srb.config import load
from tests.support.disks import full, small_disk
from tests.support.places import STORYTELLER
from tests.support.processes import children
from tests.support.rpc import Rpc, all_of, failure, port_in
from tests.support.served import bearer, key_file, running
from tests.support.waiting import PATIENCE, until

TASK = """
[memories.tales]
{more}store = {{ file = "tales.db" }}
chunk_tokens = 48
[tasks.story]
prefix = "<u>"
max_tokens = 3
n = 1
private_tokens = ["<|secret|>"]
recall = {{ memory = "tales", store_prompts = true }}
"""
KEYS: list[dict[str, Any]] = [
    {"name": "alice", "scopes": ["complete", "chat", "memory", "embed"]},
    {"name": "poor", "scopes": ["complete", "memory"], "tokens_per_minute": 1},
    {"name": "root", "scopes": ["admin"]},
]
TEXT = "The red key lies below the old oak."
PRIVATE, LONG, BROKEN = TEXT + " <|secret|>", TEXT + " word" * 5000, {"grammar": "root ::= ("}
DOCUMENTS = "/v1/memories/tales/documents"


class Client:
    """One key's requests."""

    def __init__(self, url: str, http: aiohttp.ClientSession, key: str) -> None:
        self.url, self.http, self._headers = url, http, bearer(key)

    async def ask(self, path: str, body: Any = None, method: str = "POST") -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body)
        async with self.http.request(method, self.url + path, data=data, headers=self._headers) as response:
            return response.status, await response.read()

    async def stored(self) -> list[str]:
        """The ids of the documents that the key finds."""
        status, listed = await self.ask(DOCUMENTS, method="GET")
        assert status == 200, listed
        return [one["id"] for one in json.loads(listed)["data"]]


@contextlib.asynccontextmanager
async def served(folder: Path, text: str, **options: object) -> AsyncIterator[dict[str, Client]]:
    file, keys = folder / "srb.toml", key_file(folder / "keys", *KEYS)
    file.write_text(text)
    given = {"port": 0, "ctx": 2048, "stop_grace": 0, "api_key_file": str(keys), **options}
    async with running(load(given, config=str(file), environ={})) as url, aiohttp.ClientSession() as http:
        yield {row["name"]: Client(url, http, row["name"]) for row in KEYS}


@pytest.fixture
async def clients(tmp_path: Path) -> AsyncIterator[dict[str, Client]]:
    async with served(tmp_path, TASK.format(more="")) as found:
        yield found


def prompt(text: str) -> dict[str, Any]:
    return {"model": "story", "prompt": text}


def chat(text: str) -> dict[str, Any]:
    return {"model": "story", "messages": [{"role": "user", "content": text}]}


ROUTES = {
    "/v1/tasks/story/completions": prompt,
    "/v1/tasks/story/chat": chat,
    "/v1/events": prompt,
    "/openai/v1/completions": prompt,
    "/v1/chat/completions": chat,
    "/v1/responses": lambda text: {"model": "story", "input": text},
    "/v1/messages": lambda text: {**chat(text), "max_tokens": 3},
    "/completion": prompt,
    "/complete": prompt,
}
FAULTS = {"a private token": (PRIVATE, {}), "too long": (LONG, {}), "a broken grammar": (TEXT, BROKEN)}


@pytest.mark.parametrize("path", ROUTES)
async def test_nothing_of_a_refused_request_is_stored(clients: dict[str, Client], path: str) -> None:
    alice, body_of = clients["alice"], ROUTES[path]
    for text, fields in FAULTS.values():
        status, answer = await alice.ask(path, {**body_of(text), **fields})
        assert status == 400, answer
        assert await alice.stored() == []
    assert (await alice.ask(path, body_of(TEXT)))[0] == 200
    assert len(await alice.stored()) == 1


async def test_nothing_of_a_list_of_prompts_is_stored_if_one_is_refused(clients: dict[str, Client]) -> None:
    alice, path = clients["alice"], "/openai/v1/completions"
    for text in (PRIVATE, LONG):
        assert (await alice.ask(path, {"model": "story", "prompt": [text, TEXT]}))[0] == 400
        assert await alice.stored() == []
    assert (await alice.ask(path, {"model": "story", "prompt": [TEXT, TEXT + " And?"]}))[0] == 200
    assert len(await alice.stored()) == 2


async def test_nothing_of_a_refused_turn_is_stored(clients: dict[str, Client]) -> None:
    alice = clients["alice"]
    for path, op in (("/v1/tasks/story/ws", "turn"), ("/v1/ws", "generate")):
        url = alice.url.replace("http", "ws", 1) + path + "?api_key=alice"
        async with alice.http.ws_connect(url) as socket:
            for text, fields in (*FAULTS.values(), (path + TEXT, {})):
                given = {"text": text} if op == "turn" else {"id": "a", **prompt(text)}
                before = await alice.stored()
                await socket.send_json({"op": op, **given, **fields})
                while (event := await socket.receive_json(timeout=PATIENCE))["event"] not in (
                    "done",
                    "error",
                ):
                    pass
                refused = (text, fields) in FAULTS.values()
                assert event["event"] == ("error" if refused else "done"), event
                assert len(await alice.stored()) - len(before) == (not refused)


async def test_a_websocket_says_why_a_memory_cannot_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path, TASK.format(more="")) as clients:
        alice = clients["alice"]
        assert (await alice.ask("/v1/tasks/story/completions", {"prompt": TEXT}))[0] == 200
        file = tmp_path / "tales.db"
        with contextlib.closing(sqlite3.connect(file)) as database, database:  # as after `memory rebuild`
            database.execute("update state set generation = generation + 1, changes = changes + 1")
        _, answer = await alice.ask("/v1/tasks/story/completions", {"prompt": TEXT})
        why = json.loads(answer)["error"]
        assert why["code"] == "memory_unusable"
        for path, op in (("/v1/tasks/story/ws", "turn"), ("/v1/ws", "generate")):
            async with alice.http.ws_connect(
                alice.url.replace("http", "ws", 1) + path + "?api_key=alice"
            ) as socket:
                given = {"text": TEXT} if op == "turn" else {"id": "a", **prompt(TEXT)}
                await socket.send_json({"op": op, **given})
                event = await socket.receive_json(timeout=PATIENCE)
                assert (event["event"], event["code"], event["message"]) == (
                    "error",
                    why["code"],
                    why["message"],
                )
        assert "Traceback" not in caplog.text


async def test_nothing_of_a_refused_call_is_stored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="llama_srb.server")
    async with (
        served(tmp_path, TASK.format(more=""), grpc=0) as clients,
        Rpc(port_in(caplog.text), key="alice") as rpc,
    ):
        alice = clients["alice"]
        for text in (PRIVATE, LONG):
            code, *_ = await failure(rpc.complete(**prompt(text)))
            assert code == grpc.StatusCode.INVALID_ARGUMENT
            assert await alice.stored() == []
        await all_of(rpc.complete(**prompt(TEXT)))
        assert len(await alice.stored()) == 1


async def test_a_spent_budget_loses_no_prompt_of_a_request_that_was_accepted(
    clients: dict[str, Client],
) -> None:
    poor = clients["poor"]
    assert (await poor.ask("/v1/tasks/story/completions", {"prompt": TEXT}))[0] == 200
    assert len(await poor.stored()) == 1
    assert (await poor.ask("/v1/tasks/story/completions", {"prompt": TEXT}))[0] == 429


async def test_an_answer_does_not_wait_until_its_prompt_is_stored(tmp_path: Path) -> None:
    models = "".join(f'[models.{name}]\npath = "{STORYTELLER}"\npreload = true\n' for name in ("one", "two"))
    text = models + TASK.format(more='embedding_model = "two"\n').replace("prefix", 'model = "one"\nprefix')
    async with served(tmp_path, text) as clients, contextlib.AsyncExitStack() as stack:
        alice = clients["alice"]
        engines = [int(pid) for pid in sorted(children()) if b"llama-batched" in _command(pid)]
        status, answer = await alice.ask("/v1/embeddings", {"model": "two", "input": "hi"})
        assert status == 200, answer
        one, two = engines
        for pid in engines:
            stack.callback(os.kill, pid, signal.SIGCONT)
        os.kill(one, signal.SIGSTOP)
        asked = asyncio.create_task(alice.ask("/v1/tasks/story/completions", {"prompt": TEXT}))
        async with asyncio.timeout(PATIENCE):
            while not await _open_requests(clients["root"], "one"):
                pass
        os.kill(two, signal.SIGSTOP)
        os.kill(one, signal.SIGCONT)
        status, answer = await asked
        assert (status, b'"done"' in answer) == (200, True), answer
        again = asyncio.create_task(alice.ask("/v1/prompt", {"model": "story", "prompt": "Which key?"}))
        os.kill(two, signal.SIGCONT)
        _, made = await again
        assert {"kind": "recall", "text": TEXT + "\n"}.items() <= json.loads(made)["parts"][-3].items()


async def test_a_server_that_stops_stores_each_prompt_or_says_that_it_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    count = 60
    async with served(tmp_path, TASK.format(more="")) as clients:
        texts = [f"Question {i}?" for i in range(count)]
        asked = {"model": "story", "prompt": texts, "max_tokens": 1}
        status, answer = await clients["alice"].ask("/openai/v1/completions", asked)
        assert status == 200, answer
    with contextlib.closing(sqlite3.connect(tmp_path / "tales.db")) as db:
        (there,) = db.execute("SELECT count(*) FROM documents").fetchone()
    said = re.findall(r"memory tales: (?:a|(\d+)) prompts? of key alice (?:was|were) not stored", caplog.text)
    assert there + sum(int(one or 1) for one in said) >= count  # a write that has begun may end
    assert "Traceback" not in caplog.text


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


async def _open_requests(client: Client, model: str) -> int:
    _, stats = await client.ask("/v1/stats", method="GET")
    count: int = json.loads(stats)["models"][model]["requests_open"]
    return count


async def test_on_a_full_disk_a_prompt_is_not_stored_and_a_document_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", "2m") as folder:
        async with served(folder, TASK.format(more="")) as clients:
            alice, ask = clients["alice"], {"prompt": TEXT}
            assert (await alice.ask("/v1/tasks/story/completions", ask))[0] == 200
            (id,) = await alice.stored()
            with full(folder):
                assert (await alice.ask("/v1/tasks/story/completions", {"prompt": TEXT * 9}))[0] == 200
                await until(lambda: "memory tales: a prompt of key alice was not stored: " in caplog.text)
                status, answer = await alice.ask(f"{DOCUMENTS}/{id}", method="DELETE")
                assert (status, b"full" in answer) == (503, True), answer
                assert await alice.stored() == [id]
            assert (await alice.ask(f"{DOCUMENTS}/{id}", method="DELETE"))[0] == 200
            assert await alice.stored() == []
            assert "Traceback" not in caplog.text
