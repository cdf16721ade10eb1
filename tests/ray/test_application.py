"""Two servers and two ingresses on one node: what a server does alone, it does behind Ray Serve, too."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from tests.ray.conftest import application, cluster_of, open_at, open_at_all, until, workers_of
from tests.support.serving import Server
from tests.support.waiting import PATIENCE

LONG: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True}
SHORT: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 8, "ignore_eos": True}


@pytest.fixture(scope="module")
def served() -> Iterator[Server]:
    with cluster_of(cpus=2) as cluster, application(cluster, 2, {"worker_name": "own"}) as made:
        yield made


def started(stream: Any) -> dict[str, Any]:
    """The start event of an open stream."""
    return json.loads(stream.readline().removeprefix(b"data: "))


def opened(served: Server, **fields: Any) -> Any:
    body = json.dumps({**LONG, **fields}).encode()
    return urllib.request.urlopen(urllib.request.Request(served.url + "/v1/events", body), timeout=60)


def rest(stream: Any) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix(b"data: ")) for line in stream if line.startswith(b"data: ")]


def test_eight_sequences_stream_as_events(served: Server) -> None:
    events = served.events({**SHORT, "n": 8})
    assert events[0]["event"] == "start"
    assert events[0]["count"] == 8
    assert sorted(e["index"] for e in events if e["event"] == "stop") == list(range(8))
    assert events[-1]["event"] == "done"
    assert events[-1]["completion_tokens"] == 64


@pytest.fixture
def client(served: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=served.url + "/v1", api_key="none") as client:
        yield client


def test_the_openai_package_chats(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Tell me a story."}]
    answer = client.chat.completions.create(model="storyteller", messages=messages, n=2, max_tokens=8)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all(choice.message.content for choice in answer.choices)
    stream = client.chat.completions.create(
        model="storyteller", messages=messages, n=2, max_tokens=8, stream=True
    )
    reasons = [c.finish_reason for chunk in stream for c in chunk.choices if c.finish_reason]
    assert len(reasons) == 2


def test_the_openai_package_gets_the_servers_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature is 200"):
        client.completions.create(model="storyteller", prompt="Once", temperature=200)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/models", None, 200),
        ("GET", "/", None, 200),
        ("GET", "/health", None, 200),
        ("GET", "/metrics", None, 200),
        ("GET", "/studio/nothing.js", None, 404),
        ("POST", "/tokenize", {"content": "Once"}, 200),
        ("POST", "/v1/score", {"prompt": "Once", "texts": [" upon"]}, 200),
        ("POST", "/v1/completions", {"prompt": "", "max_tokens": 2}, 200),
        ("POST", "/v1/completions", b"{", 400),
        ("POST", "/v1/completions", b"\xff", 400),
        ("GET", "/v1/completions", None, 405),
        ("GET", "/w/nobody/v1/models", None, 404),
        ("DELETE", "/v1/completions/" + "0" * 32, None, 404),
    ],
)
def test_each_kind_of_route_is_passed_on(
    served: Server, method: str, path: str, body: Any, status: int
) -> None:
    found, headers, data = served.call(method, path, body)
    assert found == status, data
    assert len(headers.get_all("Date", [])) == 1


def test_the_affinity_holds_across_two_ingresses(served: Server) -> None:
    stories = {
        "fox": "There was a fox named Rudi who lived in a little house by the river. " * 8,
        "king": "The old king had three sons, and none of them could whistle at all. " * 8,
    }
    places: dict[str, set[str]] = {name: set() for name in stories}
    before = posts_of_ingresses()
    for turn in range(12):
        for name, story in stories.items():
            body = {"prompt": story, "max_tokens": 12, "ignore_eos": True, "temperature": 0}
            status, headers, data = served.call("POST", "/openai/v1/completions", body)
            assert status == 200, data
            answer = json.loads(data)
            usage = answer["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            if turn:  # all but the end of the prompt is in the cells of the story's worker
                assert cached >= usage["prompt_tokens"] - 4, (name, turn)
            places[name].add(headers["X-Worker"])
            stories[name] += answer["choices"][0]["text"]
    assert all(len(workers) == 1 for workers in places.values())
    assert places["fox"] != places["king"], "a new story goes to the server with the least text"
    grown = [after - had for had, after in zip(before, posts_of_ingresses(), strict=True)]
    assert min(grown) > 0, "both ingresses had some of the requests"
    assert len(grown) == 2


def posts_of_ingresses() -> list[int]:
    """How many POST requests each ingress replica has logged."""
    logs = Path(os.environ["RAY_TMPDIR"]).glob("ray/session_latest/logs/serve/replica_*Ingress*.log")
    return [log.read_text().count("POST / 200") for log in sorted(logs)]


def test_a_request_is_cancelled_by_its_id(served: Server) -> None:
    with opened(served, n=2) as stream:
        id = started(stream)["id"]
        assert served.json("DELETE", f"/v1/completions/{id}") == (200, {"id": id, "cancelled": True})
        events = rest(stream)
    assert {e["finish_reason"] for e in events if e["event"] == "stop"} == {"cancelled"}
    assert events[-1]["event"] == "done"


def test_a_request_is_extended_and_continued_where_it_is(served: Server) -> None:
    for _ in range(4):  # more than there are servers: chance would miss
        with opened(served, n=1, max_tokens=300) as stream:
            id = started(stream)["id"]
            status, answer = served.json("POST", f"/v1/completions/{id}/extend", {"add": 1})
            assert (status, answer["count"]) == (200, 2)
            events = rest(stream)
        assert events[-1]["event"] == "done"
        assert len([e for e in events if e["event"] == "stop"]) == 2
        body = {"continue": {"id": id, "index": 0}, "max_tokens": 4, "n": 1}
        assert served.events(body)[0]["prompt_tokens"] > 300


def test_a_client_that_leaves_ends_its_sequences(served: Server) -> None:
    for n in (1, 8):
        with opened(served, n=n) as stream:
            started(stream)
            worker = stream.headers["X-Worker"]
            assert open_at(served, worker) == 1
        until(lambda at=worker: open_at(served, at) == 0)


def test_a_client_that_leaves_before_the_answer_begins_ends_its_request(served: Server) -> None:
    connection = served.connect()
    connection.request("POST", "/openai/v1/completions", json.dumps({**LONG, "n": 8}))
    until(lambda: open_at_all(served) == 1)
    connection.close()
    until(lambda: open_at_all(served) == 0)


async def test_a_websocket_carries_requests_and_cancels(served: Server) -> None:
    async with websocket(served) as socket:
        await socket.send_json({"op": "generate", "id": "a", **SHORT, "n": 2})
        events = [await socket.receive_json()]
        while events[-1]["event"] != "done":
            events.append(await socket.receive_json())
        assert len([e for e in events if e["event"] == "stop"]) == 2
        await socket.send_json({"op": "generate", "id": "b", **LONG, "n": 2})
        await socket.send_json({"op": "cancel", "id": "b"})
        while events[-1]["event"] != "done" or events[-1]["id"] != "b":
            events.append(await socket.receive_json())
        assert "cancelled" in {e["finish_reason"] for e in events if e["event"] == "stop"}
        await socket.send_json({"op": "generate", "id": "c", **LONG, "n": 2})
        assert (await socket.receive_json())["event"] == "start"
        assert open_at_all(served) == 1
    until(lambda: open_at_all(served) == 0)


async def test_a_request_of_a_websocket_is_found_by_its_id_on_any_connection(served: Server) -> None:
    for _ in range(4):  # more than there are servers: chance would miss
        async with websocket(served) as socket:
            await socket.send_json({"op": "generate", "id": "0" * 32, **LONG, "n": 1})
            id = (await socket.receive_json())["request"]
            path = f"/v1/completions/{id}"
            status, answer = await asyncio.to_thread(served.json, "POST", f"{path}/extend", {"add": 1})
            assert (status, answer["count"]) == (200, 2)
            found = await asyncio.to_thread(served.json, "DELETE", path)
            assert found == (200, {"id": id, "cancelled": True})
            while (await socket.receive_json())["event"] != "done":
                pass


def test_a_servers_own_name_does_not_stand_beside_its_name_here(served: Server) -> None:
    _, headers, _ = served.call("GET", "/v1/models")
    assert headers.get_all("X-Worker") in [[name] for name in workers_of(served)]


async def test_a_websocket_reaches_the_server_that_its_path_names(served: Server) -> None:
    for worker in workers_of(served):
        async with websocket(served, f"/w/{worker}") as socket:
            await socket.send_json({"op": "generate", "id": "a", **LONG})
            assert (await socket.receive_json())["event"] == "start"
            assert open_at(served, worker) == 1
        until(lambda at=worker: open_at(served, at) == 0)


@contextlib.asynccontextmanager
async def websocket(served: Server, prefix: str = "") -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    # A ping begins the time limit of aiohttp's receive() anew, so the whole block has one.
    async with (
        asyncio.timeout(PATIENCE),
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{served.url}{prefix}/v1/ws") as socket,
    ):
        yield socket


def test_every_port_is_on_loopback(served: Server) -> None:
    ours = {inode for pid in descendants(os.getpid()) for inode in sockets(pid)}
    listening = [
        address
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        for address, state, inode in [(line.split()[1], line.split()[3], line.split()[9])]
        if state == "0A" and inode in ours
    ]
    assert listening
    loopback = ("0100007F:", "0000000000000000FFFF00000100007F:", "00000000000000000000000001000000:")
    assert [one for one in listening if not one.startswith(loopback)] == []


def descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield int(child)
            yield from descendants(int(child))


def sockets(pid: int) -> Iterator[str]:
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[8:-1]


def test_a_response_is_found_where_it_was_made(client: openai.OpenAI) -> None:
    """Each of eight is kept by one of the two servers, and named by its id, in a path or in a body."""
    made = [
        client.responses.create(model="storyteller", input=f"Tale {i}", max_output_tokens=4) for i in range(8)
    ]
    for i, one in enumerate(made):
        more = client.responses.create(
            model="storyteller", input="And then?", previous_response_id=one.id, max_output_tokens=4
        )
        assert more.previous_response_id == one.id
        assert f"Tale {i}" in str(client.responses.input_items.list(one.id).data)
        assert client.responses.retrieve(one.id).output_text == one.output_text
        client.responses.delete(one.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(one.id)
