"""Responses that are kept: what a client names is as if it had sent it, and nobody else can name it."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.support.long import amount
from tests.support.served import Served, Serving, bearer, key_file

Json: TypeAlias = dict[str, Any]
UNKNOWN = "0" * 32
STEPS = 25
FIXED = {"seed": 5, "max_output_tokens": 12}


@dataclass
class Client:
    """A client by its key, and what it knows: the items of the whole conversation by its last response."""

    served: Served
    key: str
    conversations: dict[str, list[Json]] = field(default_factory=dict)
    items: dict[str, Json] = field(default_factory=dict)

    async def ask(self, body: Json) -> tuple[int, Json]:
        status, data = await self.served.post({**FIXED, **body}, "/v1/responses", **bearer(self.key))
        return status, json.loads(data) if body.get("stream") is not True else _last(data)

    async def call(self, method: str, path: str) -> tuple[int, Json]:
        url = f"{self.served.url}/v1/responses/{path}"
        async with self.served.http.request(method, url, headers=bearer(self.key)) as response:
            return response.status, await response.json()

    def take(self, answer: Json, conversation: list[Json]) -> None:
        self.conversations[answer["id"]] = [*conversation, *answer["output"]]
        self.items |= {item["id"]: item for item in answer["output"]}


def _last(data: bytes) -> Json:
    (*_, last) = (json.loads(line[6:]) for line in data.decode().split("\n") if line.startswith("data: "))
    answer: Json = last["response"]
    return answer


def told(answer: Json) -> tuple[Any, ...]:
    """What must be the same of two answers to the same conversation."""
    texts = [part["text"] for item in answer["output"] for part in item["content"]]
    return texts, answer["status"], answer["usage"]["input_tokens"]


@pytest.mark.parametrize("seed", range(amount(2, 60)))
async def test_what_a_client_names_is_as_if_it_had_sent_it(
    serving: Serving, tmp_path: Path, seed: int
) -> None:
    """Histories of two keys: chains, branches, references, streams, and what is forgotten or another's."""
    dice = random.Random(seed)
    file = key_file(tmp_path / "keys", {"name": "ann"}, {"name": "bob"})
    served = await serving(api_key_file=str(file), ctx=100_000)
    clients = [Client(served, "ann"), Client(served, "bob")]
    gone: set[str] = set()
    for step in range(STEPS):
        client, other = dice.sample(clients, 2)
        body: Json = {"stream": dice.random() < 0.5, "instructions": dice.choice((None, f"note {step}"))}
        own = [{"type": "message", "role": "user", "content": f"step {step}"}]
        named = list[Json]()
        before = list[Json]()
        if client.conversations and dice.random() < 0.7:
            body["previous_response_id"] = id = dice.choice([*client.conversations])
            before = client.conversations[id]
        for id in dice.sample([*client.items], min(len(client.items), dice.choice((0, 0, 1, 3)))):
            own.append(client.items[id])
            named.append({"type": "item_reference", "id": id})
        sent = [own[0], *named]
        stores = dice.random() < 0.8
        status, answer = await client.ask(body | {"input": sent, "store": stores})
        assert status == 200, answer
        plain = {"instructions": body["instructions"], "input": [*before, *own], "store": False}
        status, whole = await client.ask(plain)
        assert (status, told(whole)) == (200, told(answer))
        assert (answer["store"], whole["store"]) == (stores, False)
        gone.add(whole["id"])
        if stores:
            client.take(answer, [*before, *own])
            assert await client.call("GET", answer["id"]) == (200, answer)
            status, items = await client.call("GET", f"{answer['id']}/input_items?order=asc")
            assert [one | {"id": ""} for one in items["data"]] == [one | {"id": ""} for one in own]
        else:
            gone.add(answer["id"])
        if client.conversations and dice.random() < 0.2:
            deleted = dice.choice([*client.conversations])
            status, answer = await client.call("DELETE", deleted)
            assert (status, answer) == (200, {"id": deleted, "object": "response", "deleted": True})
            _forget(client, deleted, gone)
        await _see_nothing(client, [*gone, *other.conversations])


def _forget(client: Client, deleted: str, gone: set[str]) -> None:
    """What goes on from a response, or names an item of it, is gone with it."""
    hex = deleted.removeprefix("resp_")
    ids = {id for id in client.items if hex in id}
    for id, conversation in [*client.conversations.items()]:
        if id == deleted or any(item.get("id") in ids for item in conversation):
            del client.conversations[id]
    client.items = {id: item for id, item in client.items.items() if id not in ids}
    gone.add(deleted)


async def _see_nothing(client: Client, ids: list[str]) -> None:
    """What is gone, and what another client has, are as an id that never was."""

    async def faults(id: str) -> list[str]:
        hex = id.removeprefix("resp_")
        asked = [
            await client.ask({"input": "x", "previous_response_id": id}),
            await client.ask({"input": [{"type": "item_reference", "id": f"msg_{hex}_0"}]}),
            await client.ask({"input": [{"id": f"msg_{hex}_i0"}]}),
            await client.call("GET", id),
            await client.call("DELETE", id),
            await client.call("GET", id + "/input_items"),
        ]
        return [json.dumps(one).replace(hex, UNKNOWN) for one in asked]

    unknown = await faults("resp_" + UNKNOWN)
    assert [one[1:4] for one in unknown] == ["400", "404", "404", "404", "404", "404"]
    for id in random.Random(len(ids)).sample(sorted(ids), min(3, len(ids))):
        assert await faults(id) == unknown


# Bounds


async def test_a_server_forgets_by_number_and_by_age_and_keeps_none_if_told_so(serving: Serving) -> None:
    few, short, none = [await serving(**options) for options in (
        {"responses": 3}, {"responses_age": "1s"}, {"responses": 0})]  # fmt: skip
    client = Client(few, "-")
    ids = [(await client.ask({"input": "x"}))[1]["id"]]
    for _ in range(3):
        status, answer = await client.ask({"input": "x", "previous_response_id": ids[-1]})
        assert status == 200, answer
        ids.append(answer["id"])
    assert [(await client.call("GET", id))[0] for id in ids] == [404, 200, 200, 200]
    status, answer = await client.ask({"input": "x", "previous_response_id": ids[-1]})
    assert (status, answer["error"]["code"]) == (400, "previous_response_not_found"), "its first one is gone"
    client = Client(short, "-")
    id = (await client.ask({"input": "x"}))[1]["id"]
    assert (await client.call("GET", id))[0] == 200
    await asyncio.sleep(1.1)
    assert (await client.call("GET", id))[0] == 404
    client = Client(none, "-")
    status, answer = await client.ask({"input": "x"})
    assert (status, answer["store"]) == (200, False)
    for body, code in (
        ({"input": "x", "previous_response_id": answer["id"]}, "previous_response_not_found"),
        ({"input": [{"type": "item_reference", "id": answer["output"][0]["id"]}]}, "item_not_found"),
    ):
        status, said = await client.ask(body)
        assert said["error"]["code"] == code
        assert "--responses 0" in said["error"]["message"]


# Ends

ENDLESS = {"input": "x", "stream": True, "max_output_tokens": None, "ignore_eos": True}


async def test_what_was_cancelled_is_kept_and_what_its_client_left_or_an_engine_failed_is_not(
    serving: Serving,
) -> None:
    served = await serving("--token-delay", "0.005")
    client = Client(served, "-")
    async with served.http.post(served.url + "/v1/responses", json=ENDLESS) as response:
        id = _created(await response.content.readuntil(b"\n\n"))
        async with served.http.delete(f"{served.url}/v1/completions/{id}") as ended:
            assert ended.status == 200
        answer = _last(await response.read())
    assert answer["status"] == "incomplete"
    assert await client.call("GET", id) == (200, answer)
    assert (await client.ask({"input": "x", "previous_response_id": id}))[0] == 200
    async with served.http.post(served.url + "/v1/responses", json=ENDLESS) as response:
        left = _created(await response.content.readuntil(b"\n\n"))
        response.close()
    await served.note("done", 3)
    assert (await client.call("GET", left))[0] == 404
    dying = await serving("--die-after", "3")
    status, answer = await Client(dying, "-").ask({"input": "x", "stream": True})
    assert (status, answer["status"]) == (200, "failed")
    assert (await Client(dying, "-").call("GET", answer["id"]))[0] == 404


def _created(frame: bytes) -> str:
    id: str = _last(frame)["id"]
    return id
