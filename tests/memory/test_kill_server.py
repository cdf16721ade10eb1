"""A server is killed while documents are put: no document that was answered is lost, none is half there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
from pathlib import Path

import aiohttp

from tests.support.documents import pdf
from tests.support.processes import text_of as read_text
from tests.support.serving import serving
from tests.support.waiting import until

KILLS = 5  # the store itself is killed 20 times in test_kill.py
MEMORY = """
[memories.tales]
store = { file = "tales.db" }
chunk_tokens = 16
chunk_overlap = 0
"""


def text_of(number: int) -> str:
    return " ".join(f"Traveller {i} of tale {number} came through the gate." for i in range(60))


async def put_until_killed(url: str, pid: int, first: int, delay: float) -> list[int]:
    """Puts documents until the server is killed, `delay` seconds after the first answer; those answered."""
    done: list[int] = []
    async with aiohttp.ClientSession() as http:
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            for number in range(first, first + 1000):
                path = f"{url}/v1/memories/tales/documents/{number}.txt"
                async with http.put(path, data=text_of(number), skip_auto_headers=["Content-Type"]) as answer:
                    assert answer.status == 201
                    await answer.read()
                if not done:
                    asyncio.get_running_loop().call_later(delay, os.kill, pid, signal.SIGKILL)
                done.append(number)
    return done


async def stored(url: str) -> dict[int, tuple[str, int]]:
    """The texts of all documents and their numbers of chunks."""
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{url}/v1/memories/tales/documents?limit=500") as answer:
            rows = json.loads(await answer.read())["data"]
        texts = {}
        for row in rows:
            async with http.get(f"{url}/v1/memories/tales/documents/{row['id']}") as answer:
                texts[int(row["id"][:-4])] = json.loads(await answer.read())["text"], row["chunks"]
        query = json.dumps({"query": text_of(0)[:60], "k": 1000})
        async with http.post(f"{url}/v1/memories/tales/search", data=query) as answer:
            found = {int(one["document"][:-4]) for one in json.loads(await answer.read())["data"]}
    assert found == texts.keys(), "each document is found"
    return texts


def readers(pid: int) -> list[Path]:
    """The subprocesses of a server that read documents."""
    found = [Path(f"/proc/{id}") for list in Path(f"/proc/{pid}/task").glob("*/children")
             for id in read_text(list).split()]  # fmt: skip
    return [one for one in found if "documents.child" in read_text(one / "cmdline")]


async def test_a_stop_of_the_server_answers_who_waits_and_ends_what_reads(tmp_path: Path) -> None:
    file, slow = tmp_path / "srb.toml", pdf([], [b"BT /F1 12 Tf " + b"(x) Tj " * 2_000_000 + b"ET"])
    file.write_text(MEMORY)
    with (
        serving("--ctx", "2048", "--config", str(file)) as server,
        contextlib.closing(server.connect()) as connection,
    ):
        connection.request("PUT", "/v1/memories/tales/documents/slow.pdf", slow)
        await until(lambda: readers(server.pid))
        (reader,) = readers(server.pid)
        os.kill(server.pid, signal.SIGTERM)
        answer = await asyncio.to_thread(connection.getresponse)
        assert (answer.status, json.loads(answer.read())["error"]["code"]) == (503, "shutting_down")
        await until(lambda: not read_text(reader / "cmdline"))
        await until(lambda: not read_text(Path(f"/proc/{server.pid}/cmdline")))


async def test_a_kill_of_the_server_loses_no_document_that_was_answered(tmp_path: Path) -> None:
    file, drawn = tmp_path / "srb.toml", random.Random(3)
    file.write_text(MEMORY)
    answered: list[int] = []
    for _ in range(KILLS):
        with serving("--ctx", "2048", "--config", str(file)) as server:
            before = await stored(server.url)
            assert {*answered} <= before.keys() <= {*answered, max(answered, default=-1) + 1}
            first = max(before, default=-1) + 1
            answered = [
                *before,
                *await put_until_killed(server.url, server.pid, first, drawn.uniform(0, 1.5)),
            ]
    with serving("--ctx", "2048", "--config", str(file)) as server:
        last = await stored(server.url)
    assert {*answered} <= last.keys() <= {*answered, max(answered) + 1}
    assert all(text == text_of(number) for number, (text, _) in last.items())
    assert min(chunks for _, chunks in last.values()) > 100, "the numbers of 60 sentences take 110 or more"
