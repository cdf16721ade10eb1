"""A drain: new requests get 503, what was accepted finishes, and it can be undone. With the fake engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.measured import measured
from tests.support.places import ROOT
from tests.support.served import Served, Serving, bearer, frames, key_file
from tests.support.sockets import connected, event, until
from tests.support.waiting import PATIENCE, soon

ENDLESS = {"prompt": "x", "n": 2, "max_tokens": -1}
NEW = [  # each kind of request that an engine would serve
    ("/v1/completions", {"prompt": "x"}),
    ("/v1/completions", {"prompt": ["x", "y"], "stream": False}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ("/v1/embeddings", {"input": "x"}),
    ("/v1/score", {"texts": ["x"]}),
    ("/v1/prefix", {"prompt": "x"}),
    ("/v1/prompt", {"prompt": "x"}),
    ("/tokenize", {"content": "x"}),
    ("/completion", {"prompt": "x"}),
    ("/api/generate", {"model": "storyteller", "prompt": "x"}),
    ("/api/v1/generate", {"prompt": "x"}),
    ("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}),
    ("/v1/responses", {"input": "x"}),
]


async def asked(served: Served, method: str, path: str) -> tuple[int, Any]:
    async with served.http.request(method, served.url + path) as response:
        return response.status, json.loads(await response.read())


async def drained(served: Served, query: str = "") -> dict[str, Any]:
    status, state = await asked(served, "POST", "/drain" + query)
    assert status == 200
    return dict(state)


async def streaming(served: Served, body: dict[str, Any]) -> tuple[aiohttp.ClientResponse, dict[str, Any]]:
    """A stream that has begun, and its start event."""
    response = await served.http.post(served.url + "/v1/events", json=body)
    line = await response.content.readline()
    return response, json.loads(line.removeprefix(b"data: "))


async def test_new_requests_get_503_in_each_dialect_and_running_ones_finish(serving: Serving) -> None:
    served = await serving("--endless")
    stream, start = await streaming(served, ENDLESS)
    assert await drained(served) == {"status": "draining", "requests_open": 1, "websockets_open": 0}
    for path, body in NEW:
        async with served.http.post(served.url + path, json=body) as response:
            text = await response.text()
            expected = 529 if path == "/v1/messages" else 503  # Anthropic's status for it
            assert (response.status, "drains" in text) == (expected, True), (path, text)
            assert response.headers["Retry-After"] == "5", path
    for path in ("/v1/ws", "/v1/tasks/none/ws"):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await served.http.ws_connect(served.url + path)
        assert refused.value.status == (503 if path == "/v1/ws" else 404)
    assert (await served.post({"add": 1}, f"/v1/completions/{start['id']}/extend"))[0] == 200
    assert (await asked(served, "DELETE", f"/v1/completions/{start['id']}"))[0] == 200
    told = frames(await stream.read())
    assert sorted(one["index"] for one in told if one["event"] == "stop") == [0, 1, 2]
    assert told[-1]["event"] == "done"


async def test_health_and_ready_turn_503_and_back(serving: Serving) -> None:
    served = await serving()
    paths = ("/health", "/health/ready", "/health/live")
    await drained(served)
    states = [(await asked(served, "GET", path)) for path in paths]
    assert [status for status, _ in states] == [503, 503, 200]
    assert states[0][1] == {"status": "draining", "progress": 1.0}
    assert (await asked(served, "GET", "/v1/stats"))[1]["status"] == "ready"
    assert (await measured(served)).sum("llama_srb_draining") == 1
    assert await asked(served, "DELETE", "/drain") == (
        200,
        {"status": "serving", "requests_open": 0, "websockets_open": 0},
    )
    assert [(await asked(served, "GET", path))[0] for path in paths] == [200, 200, 200]
    assert (await measured(served)).sum("llama_srb_draining") == 0
    assert (await served.post({"prompt": "x", "max_tokens": 1}))[0] == 200


async def test_a_request_that_waits_in_the_queue_finishes(serving: Serving) -> None:
    served = await serving("--endless", parallel=1)
    first, start = await streaming(served, {**ENDLESS, "n": 1})
    second = asyncio.create_task(served.events({"prompt": "y", "n": 1, "max_tokens": 3}))
    await served.note("generate", count=2)
    assert (await drained(served))["requests_open"] == 2
    await asked(served, "DELETE", f"/v1/completions/{start['id']}")
    assert (await soon(second))[-1]["event"] == "done"
    first.close()


async def test_an_open_websocket_is_served_until_its_client_closes_it(serving: Serving) -> None:
    served = await serving()
    async with connected(served) as socket:
        assert (await drained(served))["websockets_open"] == 1
        await socket.send_json({"op": "generate", "id": "a", "prompt": "x", "n": 2, "max_tokens": 3})
        assert (await until(socket, event("done")))[0]["event"] == "start"
        last = asyncio.create_task(drained(served, "?wait=30"))
    assert (await soon(last))["websockets_open"] == 0


async def test_a_chat_on_a_websocket_goes_on(serving: Serving, tmp_path: Path) -> None:
    file = tmp_path / "srb.toml"
    engine = tmp_path / "engine"
    await serving()  # writes the engine's script
    file.write_text(f'engine = "{engine}"\n[tasks.story]\nmax_tokens = 3\nn = 1')
    served = await serving(config=str(file))
    async with connected(served, "/v1/tasks/story/ws") as socket:
        await drained(served)
        for _ in range(2):
            await socket.send_json({"op": "turn", "text": "x"})
            assert (await until(socket, event("done")))[-1]["event"] == "done"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await served.http.ws_connect(served.url + "/v1/tasks/story/ws")
    assert refused.value.status == 503


async def test_with_wait_it_answers_when_the_last_request_is_over(serving: Serving) -> None:
    served = await serving("--endless")
    stream, start = await streaming(served, ENDLESS)
    waiting = asyncio.create_task(drained(served, "?wait=30"))
    async with asyncio.timeout(PATIENCE):
        while (await asked(served, "GET", "/health"))[0] == 200:
            pass
    assert not waiting.done()
    await asked(served, "DELETE", f"/v1/completions/{start['id']}")
    assert await soon(waiting) == {"status": "draining", "requests_open": 0, "websockets_open": 0}
    await stream.read()
    assert (await drained(served, "?wait=30"))["requests_open"] == 0, "at once, since nothing is open"


async def test_with_wait_it_answers_after_that_time_at_the_latest(serving: Serving) -> None:
    served = await serving("--endless")
    stream, _ = await streaming(served, ENDLESS)
    assert (await drained(served, "?wait=0.05"))["requests_open"] == 1
    stream.close()


async def test_an_undo_ends_the_wait(serving: Serving) -> None:
    served = await serving("--endless")
    stream, _ = await streaming(served, ENDLESS)
    waiting = asyncio.create_task(drained(served, "?wait=30"))
    async with asyncio.timeout(PATIENCE):
        while (await asked(served, "GET", "/health"))[0] == 200:
            pass
    await asked(served, "DELETE", "/drain")
    assert (await soon(waiting))["status"] == "serving"
    stream.close()


@pytest.mark.parametrize("wait", ["soon", "-1", "3601", "nan", "inf", ""])
async def test_a_wrong_wait_is_refused_and_begins_no_drain(serving: Serving, wait: str) -> None:
    served = await serving()
    status, answer = await asked(served, "POST", f"/drain?wait={wait}")
    assert (status, answer["error"]["param"]) == (400, "wait")
    assert (await asked(served, "GET", "/health"))[0] == 200


# The command


async def command(*arguments: str) -> tuple[int | None, str]:
    """Exit code and standard error of `llama-srb drain`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "llama_srb.cli", "drain", *arguments, cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    return process.returncode, errors.decode()


async def test_the_command_drains_waits_and_undoes(serving: Serving, tmp_path: Path) -> None:
    keys = key_file(tmp_path / "keys", {"name": "boss", "scopes": ["admin"]}, {"name": "ann"})
    served = await serving("--endless", api_key_file=str(keys))
    url = ("--url", served.url, "--api-key", "boss")
    stream = await served.http.post(served.url + "/v1/events", json=ENDLESS, headers=bearer("ann"))
    start = json.loads((await stream.content.readline()).removeprefix(b"data: "))
    assert await command(*url) == (
        0,
        f"llama-srb: {served.url} is draining: 1 requests and 0 WebSockets are open\n",
    )
    code, said = await command(*url, "--wait", "0.05")
    assert (code, said.splitlines()[-1]) == (
        1,
        "llama-srb: 1 requests and 0 WebSockets are open after 0.05 s",
    )
    waiting = asyncio.create_task(command(*url, "--wait", "30"))
    async with served.http.delete(
        f"{served.url}/v1/completions/{start['id']}", headers=bearer("ann")
    ) as response:
        assert response.status == 200
    assert (await soon(waiting))[0] == 0
    assert await command(*url, "--undo") == (
        0,
        f"llama-srb: {served.url} is serving: 0 requests and 0 WebSockets are open\n",
    )
    with contextlib.closing(stream):
        await stream.read()


async def test_the_command_says_in_one_line_what_is_wrong(serving: Serving) -> None:
    served = await serving(api_key="boss")
    for arguments, code, told in (
        (("--url", served.url), 2, "a key is needed"),
        (("--url", "http://127.0.0.1:1"), 1, "127.0.0.1:1"),
        (("--wait", "1", "--undo"), 2, "exclude each other"),
    ):
        ended = await command(*arguments)
        assert (ended[0], told in ended[1], ended[1].count("\n")) == (code, True, 1), ended


async def test_the_command_speaks_to_a_socket(serving: Serving, tmp_path: Path) -> None:
    place = f"unix:{tmp_path / 's'}"
    await serving(host=place)
    expected = f"llama-srb: {place} is draining: 0 requests and 0 WebSockets are open\n"
    assert await command("--url", place, "--wait", "1") == (0, expected)
