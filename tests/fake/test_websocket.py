"""The WebSocket: several requests on one connection, each with its id, with the fake engine."""

import asyncio

import pytest
from aiohttp import WSCloseCode, WSMsgType, WSServerHandshakeError

from llama_srb import config
from tests.support.served import Serving, running
from tests.support.sockets import connected, event, until
from tests.support.waiting import PATIENCE


async def test_two_requests_share_a_connection_and_are_told_apart_by_their_ids(serving: Serving) -> None:
    served = await serving()
    async with connected(served) as socket:
        for id, n in (("a", 2), ("b", 3)):
            await socket.send_json({"op": "generate", "id": id, "prompt": "x", "n": n, "max_tokens": 3})
        told = await until(socket, event("done"))
        told += await until(socket, event("done"))
    for id, n in (("a", 2), ("b", 3)):
        own = [message for message in told if message["id"] == id]
        assert (own[0]["event"], own[0]["count"], len(own[0]["request"])) == ("start", n, 32)
        assert sorted(message["index"] for message in own if message["event"] == "stop") == list(range(n))
        assert own[-1]["event"] == "done"
    assert len([message for message in told if message["event"] == "stream"]) == 15


async def test_one_sequence_is_cancelled_and_the_others_go_on(serving: Serving) -> None:
    served = await serving("--endless")
    async with connected(served) as socket:
        await socket.send_json({"op": "generate", "id": "a", "prompt": "x", "n": 3, "max_tokens": 1000})
        await until(socket, event("stream"))
        await socket.send_json({"op": "cancel", "id": "a", "index": 1})
        stops = [m for m in await until(socket, event("done")) if m["event"] == "stop"]
    assert {stop["index"]: stop["finish_reason"] for stop in stops} == {
        0: "length",
        1: "cancelled",
        2: "length",
    }


async def test_a_request_is_extended_and_forked_and_cancelled(serving: Serving) -> None:
    served = await serving("--endless")
    async with connected(served) as socket:
        await socket.send_json({"op": "generate", "id": "a", "prompt": "x", "n": 1, "max_tokens": -1})
        await until(socket, event("stream"))
        await socket.send_json({"op": "extend", "id": "a", "add": 1})
        await until(socket, event("extend", first=1, count=2))
        await socket.send_json({"op": "extend", "id": "a", "fork": {"index": 0}})
        await until(socket, event("extend", first=2, count=3, id="a"))
        await until(socket, event("stream", index=2))
        await socket.send_json({"op": "cancel", "id": "a"})
        told = await until(socket, event("done"))
    assert {message["finish_reason"] for message in told if message["event"] == "stop"} == {"cancelled"}


async def test_continue_names_a_request_by_the_clients_id(serving: Serving) -> None:
    served = await serving()
    async with connected(served) as socket:
        await socket.send_json({"op": "generate", "id": "a", "prompt": "x", "n": 2, "max_tokens": 3})
        first = await until(socket, event("done"))
        await socket.send_json(
            {"op": "generate", "id": "a", "continue": {"id": "a", "index": 1}, "max_tokens": 1}
        )
        second = await until(socket, event("done"))
    assert second[0]["prompt_tokens"] == first[0]["prompt_tokens"] + 3


async def test_a_story_makes_the_prompt_as_on_other_paths(serving: Serving) -> None:
    served = await serving()
    body = {"prompt": "A cat", "story": {"memory": "It rains."}, "n": 1, "max_tokens": 1}
    there = (await served.events(body, "/v1/events"))[0]
    async with connected(served) as socket:
        await socket.send_json({"op": "generate", "id": "a", **body})
        here = (await until(socket, event("start")))[-1]
    assert (here["story"], here["prompt_tokens"]) == (there["story"], there["prompt_tokens"])


WRONG = [
    ("{", "", None, "not JSON"),
    ('{"op": "sing", "id": "a"}', "", "op", "one of generate, cancel, extend"),
    ('{"op": "generate", "prompt": "x"}', "", "id", "id is null"),
    ('{"op": "generate", "id": "b"}', "b", "prompt", "prompt is missing"),
    ('{"op": "generate", "id": "b", "prompt": "x", "n": 0}', "b", "n", "n is 0"),
    ('{"op": "generate", "id": "b", "preset": "no", "prompt": "x"}', "b", "preset", 'preset is "no"'),
    ('{"op": "cancel", "id": "b"}', "b", "id", "no request b is running"),
    ('{"op": "extend", "id": "b"}', "b", "id", "no request b is running"),
    ('{"op": "generate", "id": "a", "prompt": "x"}', "a", "id", "request a is running"),
    ('{"op": "cancel", "id": "a", "index": -1}', "a", "index", "index is -1"),
    ('{"op": "cancel", "id": "a", "index": 9}', "a", "index", "index is 9; it must be between 0 and"),
    ('{"op": "extend", "id": "a", "fork": {"index": 9}}', "a", "fork.index", "fork.index is 9"),
]


async def test_an_invalid_command_is_an_error_and_disturbs_no_request(serving: Serving) -> None:
    served = await serving("--endless")
    async with connected(served) as socket:
        await socket.send_json({"op": "generate", "id": "a", "prompt": "x", "n": 1, "max_tokens": -1})
        for text, id, param, message in WRONG:
            await socket.send_str(text)
            error = (await until(socket, event("error")))[-1]
            assert (error["id"], error.get("param")) == (id, param), text
            assert message in error["message"]
            assert ("op" in error) == (id == "a"), "it says op when the request goes on"
        await until(socket, event("stream", id="a"))


async def test_closing_the_connection_cancels_all_of_its_requests(serving: Serving) -> None:
    served = await serving("--endless")
    async with connected(served) as socket:
        await socket.send_json({"op": "generate", "id": "a", "prompt": "x", "n": 2, "max_tokens": -1})
        await until(socket, event("stream"))
    await served.note("cancel")


async def test_a_dead_engine_is_an_error_and_the_connection_stays(serving: Serving) -> None:
    served = await serving("--die-after", "5")
    async with connected(served) as socket:
        await socket.send_json({"op": "generate", "id": "a", "prompt": "x", "n": 2, "max_tokens": 50})
        assert (await until(socket, event("error")))[-1]["code"] == "engine_died"
        await socket.send_json({"op": "cancel", "id": "a"})
        assert "no request a" in (await until(socket, event("error")))[-1]["message"]


async def test_only_pages_of_known_origins_may_connect(serving: Serving) -> None:
    served = await serving(cors="http://mine")
    async with connected(served, Origin="http://mine"):
        pass
    with pytest.raises(WSServerHandshakeError) as refused:
        async with connected(served, Origin="http://other"):
            pass
    assert refused.value.status == 403


async def test_a_server_that_stops_closes_its_sockets(serving: Serving) -> None:
    served = await serving()
    settings = config.load({"engine": str(served.journal.parent / "engine"), "port": 0}, environ={})
    async with running(settings) as url:
        socket = await served.http.ws_connect(url + "/v1/ws")
        told = asyncio.create_task(socket.receive(timeout=PATIENCE))
        await asyncio.sleep(0)
    assert ((await told).type, (await told).data) == (WSMsgType.CLOSE, WSCloseCode.GOING_AWAY)
