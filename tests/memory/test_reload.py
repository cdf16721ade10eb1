"""SIGHUP on a server with memories, with the real engine: they come, change and go, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from llama_srb.config import Settings, load
from tests.support.models import write_model
from tests.support.places import STORYTELLER
from tests.support.served import running
from tests.support.waiting import PATIENCE, soon, until

CHECKED = "SIGHUP: keys, presets and model were checked"
KEPT = "models, tasks and memories stay as they were: "
TALES = '[memories.tales]\nstore = { file = "tales.db" }\nchunk_tokens = 48\nsearch = "meaning"\n'
WIKI = '[memories.wiki]\nstore = { file = "wiki.db" }\nchunk_tokens = 48\nsearch = "meaning"\n'
CAT = "The cat sleeps on the warm roof."
SHIP = "A ship sails over the cold sea."


def story(memory: str, **fields: object) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in fields.items()]
    recall = f'recall = {{ memory = "{memory}", retrieve = 1 }}'
    return "\n".join(["[tasks.story]", 'prefix = "<u>"', "max_tokens = 2", recall, *lines]) + "\n"


class Reloaded:
    """A server whose file of settings changes."""

    def __init__(self, file: Path, http: aiohttp.ClientSession, log: pytest.LogCaptureFixture) -> None:
        self.file, self.http, self.log, self.url = file, http, log, ""

    def read(self) -> Settings:
        return load({"port": 0, "ctx": 2048, "stop_grace": 0}, config=str(self.file), environ={})

    async def reload(self, text: str) -> list[str]:
        """The log's lines about memories, and about faults."""
        self.file.write_text(text)
        self.log.clear()
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: CHECKED in self.log.messages)
        start = "SIGHUP: memories: "
        return [one.removeprefix(start) for one in self.log.messages if one.startswith((start, KEPT))]

    async def ask(self, method: str, path: str, data: Any = None) -> tuple[int, Any]:
        data = json.dumps(data) if isinstance(data, dict) else data
        async with self.http.request(method, self.url + path, data=data) as response:
            return response.status, json.loads(await response.read())

    async def put(self, memory: str, id: str, text: Any) -> tuple[int, Any]:
        return await self.ask("PUT", f"/v1/memories/{memory}/documents/{id}.txt", text)

    async def recalled(self, text: str = "Where is it?") -> list[tuple[str, str]]:
        """Memory and document of what the task has recalled."""
        status, answer = await self.ask(
            "POST", "/v1/tasks/story/completions", {"prompt": text, "n": 1, "stream": False}
        )
        assert status == 200, answer
        return [(one["memory"], one["document"]) for one in answer.get("recalled", [])]

    def connections(self, name: str) -> int:
        """How often this process has a file open."""
        path, found = self.file.parent / name, 0
        for one in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                found += one.readlink() == path
        return found


@contextlib.asynccontextmanager
async def served(folder: Path, text: str, log: pytest.LogCaptureFixture) -> AsyncIterator[Reloaded]:
    log.set_level("INFO")
    file = folder / "srb.toml"
    file.write_text(text)
    async with aiohttp.ClientSession() as http:
        server = Reloaded(file, http, log)
        async with running(server.read(), server.read) as server.url:
            yield server


async def test_memories_come_change_and_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with served(tmp_path, TALES, caplog) as server:
        assert (await server.put("tales", "cat", CAT))[0] == 201
        n_open = server.connections("tales.db")
        assert n_open > 0
        assert await server.reload(WIKI + TALES + "shared = true\n") == ["added wiki; changed tales"]
        assert server.connections("tales.db") == n_open, "the store stays open"
        listed = (await server.ask("GET", "/v1/memories"))[1]["data"]
        assert [(one["id"], one["shared"]) for one in listed] == [("wiki", False), ("tales", True)]
        assert (await server.put("wiki", "ship", SHIP))[0] == 201
        assert (await server.ask("GET", "/v1/memories/tales/documents/cat.txt"))[1]["text"] == CAT
        assert await server.reload(WIKI) == ["removed tales"]
        assert (await server.ask("GET", "/v1/memories/tales/documents"))[0] == 404
        await until(lambda: not server.connections("tales.db"))
        assert await server.reload(TALES) == ["added tales; removed wiki"]
        assert (await server.ask("GET", "/v1/memories/tales/documents/cat.txt"))[1]["text"] == CAT
    assert server.connections("tales.db") == server.connections("wiki.db") == 0


async def test_a_document_that_is_being_sent_is_stored_and_then_the_memory_closes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path, TALES, caplog) as server:
        rest = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield CAT.encode()
            await rest.wait()
            yield b" " + SHIP.encode()

        put = asyncio.create_task(server.put("tales", "both", body()))
        await until(lambda: _has_temporary_file(tmp_path))
        assert await server.reload("ctx = 2048\n") == ["removed tales"]
        assert (await server.put("tales", "late", CAT))[0] == 404
        assert server.connections("tales.db") > 0
        rest.set()
        assert (await soon(put))[0] == 201
        await until(lambda: not server.connections("tales.db"))
        assert await server.reload(TALES) == ["added tales"]
        document = (await server.ask("GET", "/v1/memories/tales/documents/both.txt"))[1]
        assert document["text"] == f"{CAT} {SHIP}"


def _has_temporary_file(folder: Path) -> bool:
    """Whether a body is being received: into a file without a name."""
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(one.readlink())
            if target.startswith(str(folder)) and "(deleted)" in target:
                return True
    return False


async def test_a_task_recalls_from_another_memory_and_an_open_chat_from_the_old_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path, TALES + WIKI + story("tales"), caplog) as server:
        await server.put("tales", "cat", CAT)
        await server.put("wiki", "ship", SHIP)
        assert await server.recalled() == [("tales", "cat.txt")]
        async with server.http.ws_connect(server.url + "/v1/tasks/story/ws") as socket:

            async def turn() -> list[tuple[str, str]]:
                await socket.send_json({"op": "turn", "text": "Where is it?", "n": 1})
                found: list[tuple[str, str]] = []
                while (event := await socket.receive_json(timeout=PATIENCE))["event"] != "done":
                    assert event["event"] != "error", event
                    found += [(one["memory"], one["document"]) for one in event.get("recalled", [])]
                return found

            assert await turn() == [("tales", "cat.txt")]
            assert await server.reload(WIKI + story("wiki")) == ["removed tales"]
            assert await server.recalled() == [("wiki", "ship.txt")]
            assert await turn() == [("tales", "cat.txt")]
            assert await server.reload(WIKI) == ["no change"]
            assert await turn() == [("tales", "cat.txt")]
            assert server.connections("tales.db") > 0
        await until(lambda: not server.connections("tales.db"))


FAULTS: dict[str, tuple[str, str]] = {  # the new file; a part of the message
    "a file that is no memory": (TALES + WIKI.replace("wiki.db", "srb.toml"), "memory wiki"),
    "an unknown field": (TALES + "chunk_token = 5\n", "did you mean chunk_tokens?"),
    "a memory that a task needs": (WIKI + story("tales"), "[memories.tales]"),
    "chunks that the model cannot take": (TALES.replace("48", "8000"), "chunk_tokens is 8000"),
    "one store of two memories": (TALES + WIKI.replace("wiki.db", "tales.db"), "have one store"),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_one_fault_and_all_stays_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    async with served(tmp_path, TALES + story("tales"), caplog) as server:
        await server.put("tales", "cat", CAT)
        n_open = server.connections("tales.db")
        text, part = FAULTS[name]
        (line,) = await server.reload(text)
        assert line.startswith(KEPT)
        assert part in line
        assert "Traceback" not in caplog.text
        assert await server.recalled() == [("tales", "cat.txt")]
        assert (await server.ask("GET", "/v1/memories/wiki/documents"))[0] == 404
        assert (server.connections("tales.db"), server.connections("wiki.db")) == (n_open, 0)
        assert await server.reload(TALES + WIKI) == ["added wiki"]


async def test_another_embedding_model_is_refused_until_the_vectors_are_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_model(tmp_path / "other.gguf", "qwen3")
    models = f'[models.one]\npath = "{STORYTELLER}"\n[models.two]\npath = "other.gguf"\n'
    one, two = (f'embedding_model = "{name}"\n' for name in ("one", "two"))
    async with served(tmp_path, models + TALES + one + WIKI + one, caplog) as server:
        await server.put("tales", "cat", CAT)
        (line,) = await server.reload(models + TALES + two + WIKI + one)
        assert "run llama-srb memory rebuild tales" in line
        assert await server.reload(models + TALES + one + WIKI + two) == ["changed wiki"], "it has no texts"
        assert (await server.put("wiki", "ship", SHIP))[0] == 201
        found = (await server.ask("POST", "/v1/memories/wiki/search", {"query": SHIP}))[1]["data"]
        assert [one["document"] for one in found] == ["ship.txt"]
        found = (await server.ask("POST", "/v1/memories/tales/search", {"query": CAT}))[1]["data"]
        assert [one["document"] for one in found] == ["cat.txt"]


async def test_no_request_and_no_document_is_lost_while_memories_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path, TALES + story("tales"), caplog) as server:
        await server.put("tales", "cat", CAT)
        statuses: list[int] = []
        stored: list[str] = []
        over = False

        async def asks() -> None:
            while not over:
                status, _ = await server.ask(
                    "POST", "/v1/tasks/story/completions", {"prompt": CAT, "n": 1, "stream": False}
                )
                statuses.append(status)

        async def puts(client: int) -> None:
            while not over:
                id = f"{client}-{len(stored)}"
                status, _ = await server.put("tales", id, f"Traveller {id} came by.")
                statuses.append(status)
                stored.append(f"{id}.txt")

        clients = [asyncio.create_task(one) for one in (asks(), asks(), puts(0), puts(1))]
        for k in range(6):
            wiki = WIKI if k % 2 else ""
            tales = TALES + f"shared = {json.dumps(k % 3 == 0)}\n"
            assert len(await server.reload(tales + wiki + story("tales", n=1 + k % 2))) == 1
            enough = len(statuses) + 6
            await until(lambda enough=enough: len(statuses) >= enough)
        over = True
        await soon(asyncio.gather(*clients))
        assert set(statuses) <= {200, 201}
        listed = (await server.ask("GET", "/v1/memories/tales/documents?limit=500"))[1]["data"]
        assert {one["id"] for one in listed} == {"cat.txt", *stored}
        assert "Traceback" not in caplog.text
