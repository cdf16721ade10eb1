"""Fair scheduling between clients whose requests wait in the real engine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.lines import Lines
from tests.support.rows import each_row
from tests.support.served import bearer, key_file
from tests.support.serving import serving


def test_the_client_with_the_fewest_sequences_is_admitted_next() -> None:
    long = {"op": "generate", "prompt": "x", "n": 2, "max_tokens": 100, "sampling": {"ignore_eos": True}}
    clients = ["ann", "ann", "ann", "ann", "bob", "ann", "cy", "bob"]
    with Lines("-np", "2") as engine:
        ids = engine.send(*(long | {"client": client} for client in clients))
        starts = sorted((one.start["line"], i) for i, one in enumerate(engine.answers(ids)))
    assert {clients[i] for _, i in starts[:4]} == {"ann", "bob", "cy"}
    assert [i for _, i in starts if clients[i] == "ann"] == [0, 1, 2, 3, 5], "each one's own in order"


COMMANDS = 20  # of one client, each of 16 texts


@each_row(("op", "field"), [("embed", "input"), ("score", "texts")])
def test_one_text_waits_for_no_more_than_a_share_of_another_clients(op: str, field: str) -> None:
    """The second client comes when the first command of the many has ended: nearly all others wait then."""
    text = "The cat sleeps. A dog runs by. " * 6
    with Lines("-t", "1", "-c", "8192", "-np", "32") as engine:
        many = engine.send(*[{"op": op, field: [text] * 16, "client": "ann"}] * COMMANDS)
        while engine.read()["event"] != "done":
            pass
        (one,) = engine.send({"op": op, field: [text], "client": "bob"})
        *all_of_ann, bob = engine.answers([*many, one])
    later = [answer for answer in all_of_ann if answer.done["line"] > bob.done["line"]]
    assert len(later) > COMMANDS * 0.7, "of the many"
    order = [answer.done["line"] for answer in all_of_ann]
    assert order == sorted(order), "each one's own in order"


MEMORY = """
[memories.tales]
store = { file = "tales.db" }
[tasks.story]
max_tokens = 2
recall = { memory = "tales", retrieve = 1 }
"""
ASKED: dict[str, dict[str, Any]] = {
    "/v1/memories/tales/search": {"query": "a cat"},
    "/v1/tasks/story/completions": {"prompt": "A cat", "stream": False},
    "/v1/embeddings": {"input": "a cat"},
    "/v1/score": {"texts": ["a cat"]},
}


async def test_a_key_that_searches_a_memory_waits_for_no_other_keys_texts(tmp_path: Path) -> None:
    """Nor do its recalls, vectors and scores."""
    file = tmp_path / "srb.toml"
    file.write_text(MEMORY)
    keys = key_file(
        tmp_path / "keys", *({"name": n, "scopes": ["complete", "embed", "memory"]} for n in ("ann", "bob"))
    )
    with serving("--ctx", "8192", "--config", str(file), "--api-key-file", str(keys)) as server:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(120)) as http:

            async def ask(key: str, path: str, body: dict[str, Any]) -> None:
                async with http.post(server.url + path, data=json.dumps(body), headers=bearer(key)) as answer:
                    assert answer.status == 200, await answer.text()
                    await answer.read()

            put = http.put(
                server.url + "/v1/memories/tales/documents/x",
                data="A cat sleeps.",
                headers={**bearer("bob"), "Content-Type": "text/plain"},
            )
            async with put as answer:
                assert answer.status == 201
            texts = {"input": ["The cat sleeps. A dog runs by. " * 6] * 16}
            many = [asyncio.create_task(ask("ann", "/v1/embeddings", texts)) for _ in range(2 * COMMANDS)]
            await asyncio.wait(many, return_when=asyncio.FIRST_COMPLETED)
            for path, body in ASKED.items():
                await ask("bob", path, body)
            assert sum(not one.done() for one in many) > COMMANDS, "bob's four are done before most of ann's"
            await asyncio.gather(*many)
