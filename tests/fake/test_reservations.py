"""Every command for the engine needs a reservation: limits of keys, queue and time apply to each path."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import random
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse

from llama_srb.http.websockets.requests import MAX_EXTENDING, MAX_RUNNING
from tests.support import waiting
from tests.support.places import ROOT
from tests.support.served import Served, Serving, bearer, key_file
from tests.support.sockets import connected, event, until
from tests.support.waiting import PATIENCE

WORDS = "one two three four five six seven eight nine ten"
SAYS_WORDS = [{"role": "user", "content": WORDS}]
ENDLESS = {"prompt": "x", "n": 1, "max_tokens": -1}
GENERATE = {"op": "generate", "prompt": "x", "n": 1, "max_tokens": -1}
PATHS: Mapping[str, tuple[str, dict[str, Any]]] = {  # by op: a path that sends it to the engine, a body
    "generate": ("/v1/events", {"prompt": WORDS, "n": 1, "max_tokens": 2}),
    "chat": ("/v1/chat/completions", {"messages": SAYS_WORDS, "max_tokens": 2}),
    "prefix": ("/v1/prefix", {"prompt": WORDS}),
    "score": ("/v1/score", {"prompt": "x", "texts": [WORDS]}),
    "embed": ("/v1/embeddings", {"input": WORDS}),
    "rerank": ("/v1/rerank", {"query": "one", "documents": [WORDS.removeprefix("one ")]}),
    "tokenize": ("/v1/internal/encode", {"text": WORDS}),
    "detokenize": ("/v1/internal/decode", {"tokens": list(range(10))}),
    "template": ("/v1/internal/chat-prompt", {"messages": SAYS_WORDS}),
}
OF_THE_OPERATOR = {"load_adapter", "unload_adapter", "pin", "unpin"}  # limits of clients do not apply to them
OF_MEMORIES = {"count_tokens"}  # with the reservation of a document: tests/memory/test_http.py
OF_ONE_THAT_RUNS = {"extend", "cancel"}  # they act on a request that has its reservation
OWN = {
    ("watchdog.py", "status"),
    ("health.py", "status"),
    ("served.py", "status"),
    ("cache_budget.py", "limits"),
}
"""Commands of the server itself: the watchdog's, for /metrics and /v1/stats, at the start, after loads."""
WARM_UP = {("served.py", "run")}  # the prefix of --prompt, in the mode per-request
ANSWERED = [op for op in PATHS if op != "template"]  # ops that the fake engine answers
each_op = pytest.mark.parametrize("op", PATHS)


async def ask(served: Served, op: str, key: str = "") -> tuple[int, str | None]:
    """The status and the error's code."""
    path, body = PATHS[op]
    status, data = await served.post(body, path, **(bearer(key) if key else {}))
    return status, json.loads(data)["error"]["code"] if status >= 400 else None


@contextlib.asynccontextmanager
async def endless(served: Served, key: str = "") -> AsyncIterator[Any]:
    """A generation that runs or waits for the length of the block; yields its first event."""
    headers = bearer(key) if key else {}
    async with served.http.post(served.url + "/v1/events", json=ENDLESS, headers=headers) as response:
        yield await response.content.readuntil(b"\n\n")


def begun(served: Served) -> list[str]:
    return [note["what"] for note in served.noted() if note["what"] in PATHS]


# Paths and reservations


def ops() -> set[str]:
    """The commands of docs/engine-protocol.md."""
    text = (ROOT / "docs/engine-protocol.md").read_text()
    return set(
        re.findall(r"^\| `(\w+)` \|", text.partition("## Commands")[2].partition("## Events")[0], re.M)
    )


def test_each_op_of_the_protocol_has_a_path_here() -> None:
    assert ops() == {*PATHS, *OF_MEMORIES, *OF_ONE_THAT_RUNS, *OF_THE_OPERATOR, *(op for _, op in OWN)}


VERBS = {"generate", "generate_all", "prefix", "run", "command"}
THE_POOLS = {"admission.py"}
NO_SERVER = {"complete.py", "client.py"}


def calls_without_reservation(file: Path) -> set[tuple[str, str]]:
    """Calls to the engine without a reservation: file, and the op or the call."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            verb, whose = node.func.attr, ast.unparse(node.func.value)
            if verb in VERBS and whose.rpartition(".")[2].strip("_") == "pool":
                op = node.args[0].value if isinstance(node.args[0], ast.Constant) else verb
                found.add((file.name, str(op)))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "encode" and file.name == "watchdog.py":
            assert isinstance(node.args[0], ast.Constant)
            found.add((file.name, str(node.args[0].value)))
    return found


def test_only_the_servers_own_commands_bypass_admission() -> None:
    files = [file for file in (ROOT / "llama_srb").rglob("*.py") if file.name not in THE_POOLS | NO_SERVER]
    assert set().union(*map(calls_without_reservation, files)) == OWN | WARM_UP


async def test_the_servers_own_commands_need_no_slot(serving: Serving, tmp_path: Path) -> None:
    file = key_file(tmp_path / "keys", {"name": "one", "concurrent": 1, "scopes": ["complete", "metrics"]})
    served = await serving("--endless", api_key_file=str(file), parallel=1, max_queue=1)
    async with endless(served, "one"):
        for path in ("/metrics", "/v1/stats"):
            async with served.http.get(served.url + path, headers=bearer("one")) as response:
                assert response.status == 200


async def test_concurrent_requests_share_one_status_command(serving: Serving) -> None:
    served = await serving("--endless", "--hang-after", "1")
    async with endless(served):
        await served.note("hanging")
        for _ in range(3):
            async with served.http.get(served.url + "/v1/stats") as response:
                assert (await response.json())["requests_open"] <= 2


# Priority


@each_op
@pytest.mark.parametrize(("urgency", "expected"), [("u=7", 1), ("i, u=7", 1), ("u=6", None), ("u=77", None)])
async def test_only_the_least_urgent_requests_yield_to_all_others(
    serving: Serving, op: str, urgency: str, expected: int | None
) -> None:
    served = await serving()
    path, body = PATHS[op]
    await served.post(body, path, Priority=urgency)
    (noted,) = [note for note in served.noted() if note["what"] == op]
    assert noted.get("priority") == expected


# Concurrent requests


@each_op
async def test_each_op_but_a_prefix_counts_as_concurrent(serving: Serving, tmp_path: Path, op: str) -> None:
    file = key_file(tmp_path / "keys", {"name": "one", "concurrent": 1})
    served = await serving("--endless", api_key_file=str(file))
    async with endless(served, "one"):
        expected = (200, None) if op == "prefix" else (429, "rate_limit_exceeded")
        assert await ask(served, op, "one") == expected


async def test_a_prefix_takes_no_slot_from_a_request(serving: Serving, tmp_path: Path) -> None:
    file = key_file(tmp_path / "keys", {"name": "one", "concurrent": 1})
    served = await serving("--token-delay", "0.05", api_key_file=str(file))
    prefix = asyncio.create_task(served.post({"prompt": "x " * 1000}, "/v1/prefix", **bearer("one")))
    await served.note("prefix")
    assert await ask(served, "generate", "one") == (200, None)
    assert not prefix.done()
    prefix.cancel()


@pytest.mark.parametrize("op", [op for op in ANSWERED if op != "prefix"])
async def test_of_many_requests_at_once_only_max_concurrent_are_admitted(
    serving: Serving, tmp_path: Path, op: str
) -> None:
    file = key_file(tmp_path / "keys", {"name": "two", "concurrent": 2}, {"name": "other"})
    served = await serving("--endless", "--hang-after", "1", api_key_file=str(file))
    async with endless(served, "other"):
        await served.note("generate")
        await asyncio.sleep(0.05)  # until the engine hangs, and answers nothing more
        asked = [asyncio.create_task(ask(served, op, "two")) for _ in range(20)]
        await waiting.until(lambda: sum(task.done() for task in asked) >= 18)
        done, left = await asyncio.wait(asked, timeout=2)
        assert {task.result() for task in done} == {(429, "rate_limit_exceeded")}
        assert len(left) == (2 if op != "generate" else 0) or len(done) == 18
        for task in left:
            task.cancel()
        await asyncio.wait(left)


async def test_a_list_of_prompts_takes_as_many_slots(serving: Serving, tmp_path: Path) -> None:
    file = key_file(tmp_path / "keys", {"name": "two", "concurrent": 2})
    served = await serving("--endless", api_key_file=str(file))

    async def of(*prompts: str) -> tuple[int, str]:
        body = {"prompt": prompts, "n": 1, "max_tokens": 2, "stream": False}
        status, data = await served.post(body, **bearer("two"))
        return status, data.decode()

    status, said = await of("a", "b", "c")
    assert (status, json.loads(said)["error"]["code"]) == (429, "rate_limit_exceeded")
    assert begun(served) == [], "it is refused as a whole"
    for _ in range(3):
        assert (await of("a", "b"))[0] == 200
    async with endless(served, "two"):
        assert [(await of("a", "b"))[0], (await of("a"))[0]] == [429, 200]


async def test_a_refusal_has_retry_after_if_a_retry_can_succeed(serving: Serving, tmp_path: Path) -> None:
    """A retry can succeed when a request of the key has ended, but not with a list longer than the limit."""
    file = key_file(tmp_path / "keys", {"name": "two", "concurrent": 2})
    served = await serving("--endless", api_key_file=str(file))
    async with endless(served, "two"):
        waits = []
        for prompts in (["a", "b"], ["a", "b", "c"]):
            body = {"prompt": prompts, "n": 1, "max_tokens": 2, "stream": False}
            url = served.url + "/v1/completions"
            async with served.http.post(url, json=body, headers=bearer("two")) as response:
                assert response.status == 429
                waits.append(response.headers.get("Retry-After"))
    assert waits == ["1", None]


async def test_when_a_list_of_prompts_ends_all_its_slots_are_free(serving: Serving, tmp_path: Path) -> None:
    file = key_file(tmp_path / "keys", {"name": "two", "concurrent": 2})
    served = await serving("--endless", api_key_file=str(file))
    body = {"prompt": ["a", "b"], "n": 1, "max_tokens": -1, "stream": True}
    for at in range(1, 4):
        async with served.http.post(served.url + "/v1/completions", json=body, headers=bearer("two")) as got:
            assert got.status == 200
            await served.note("generate", 2 * at)
            assert await ask(served, "tokenize", "two") == (429, "rate_limit_exceeded")
        await served.note("done", 2 * at)


PACKET = 300


async def generated(served: Served, socket: ClientWebSocketResponse) -> int:
    """The number of generates that the engine has read; a cancel follows them all."""
    await socket.send_json({"op": "cancel", "id": "0"})
    await until(socket, event("done", id="0"))
    return begun(served).count("generate")


async def refusals(socket: ClientWebSocketResponse, count: int) -> set[str]:
    """Reads so many errors; returns their codes."""
    async with asyncio.timeout(PATIENCE):
        return {(await until(socket, event("error")))[-1]["code"] for _ in range(count)}


async def test_commands_in_one_packet_are_counted_one_by_one(serving: Serving, tmp_path: Path) -> None:
    file = key_file(tmp_path / "keys", {"name": "two", "concurrent": 2})
    served = await serving("--endless", api_key_file=str(file))
    async with connected(served, **bearer("two")) as socket:
        for at in range(PACKET):  # without yielding to the server
            await socket.send_json(GENERATE | {"id": str(at)})
        assert await refusals(socket, PACKET - 2) == {"rate_limit_exceeded"}
        assert await generated(served, socket) == 2


async def test_a_generate_and_its_cancel_in_one_packet_release_the_slot(
    serving: Serving, tmp_path: Path
) -> None:
    file = key_file(tmp_path / "keys", {"name": "one", "concurrent": 1})
    served = await serving("--endless", api_key_file=str(file))
    async with connected(served, **bearer("one")) as socket:
        for at in range(20):
            await socket.send_json(GENERATE | {"id": str(at)})
            await socket.send_json({"op": "cancel", "id": str(at)})
            told = await until(socket, lambda said: said["event"] in ("done", "error"))
            assert (told[-1]["event"], told[-1]["id"]) == ("done", str(at))
    assert await ask(served, "generate", "one") == (200, None)


async def test_a_lost_connection_releases_its_slots(serving: Serving, tmp_path: Path) -> None:
    file = key_file(tmp_path / "keys", {"name": "two", "concurrent": 2})
    served = await serving("--endless", api_key_file=str(file))
    for at in range(1, 4):
        async with connected(served, **bearer("two")) as socket:
            for id in "ab":
                await socket.send_json(GENERATE | {"id": id})
            await until(socket, event("stream", id="b"))
        await served.note("done", 2 * at)
    for path, body in (("/v1/events", {"prompt": "x " * 20000}), ("/detokenize", {"tokens": ["x"]})):
        for _ in range(3):
            assert (await served.post(body, path, **bearer("two")))[0] == 400
    both = {"prompt": ["a", "b"], "max_tokens": 1, "n": 1, "stream": False}
    assert (await served.post(both, **bearer("two")))[0] == 200


async def test_an_engine_that_dies_releases_all_slots(serving: Serving, tmp_path: Path) -> None:
    file = key_file(tmp_path / "keys", {"name": "two", "concurrent": 2})
    served = await serving("--poison", "arsenic", api_key_file=str(file))
    both = {"prompt": ["a", "arsenic"], "max_tokens": 1000, "n": 1, "stream": False}
    for _ in range(2):
        assert (await served.post(both, **bearer("two")))[0] == 500
    assert (await served.post(both | {"prompt": ["a", "b"]}, **bearer("two")))[0] == 200


@pytest.mark.parametrize(("mode", "rounds"), [("resident", 20), ("per-request", 4)])
async def test_after_random_clients_all_slots_are_free(
    serving: Serving, tmp_path: Path, mode: str, rounds: int
) -> None:
    """Clients of every path, which leave at any time."""
    most, dice = 6, random.Random(3)
    file = key_file(tmp_path / "keys", {"name": "six", "concurrent": most})
    served = await serving("--endless", api_key_file=str(file), parallel=4, engine_mode=mode)

    async def leave(op: str) -> None:
        path, body = PATHS[op]
        many = {"prompt": ["a", "b", "c"], "n": 1, "max_tokens": -1, "stream": True}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(dice.uniform(0, 0.05)):
                if dice.random() < 0.3:
                    await served.post(many, **bearer("six"))
                else:
                    await served.post(
                        body | ({"max_tokens": -1} if op == "generate" else {}), path, **bearer("six")
                    )

    async def on_a_socket() -> None:
        async with connected(served, **bearer("six")) as socket:
            for at in range(4):
                await socket.send_json(GENERATE | {"id": str(at)})
                if dice.random() < 0.5:
                    await socket.send_json({"op": "cancel", "id": str(at)})
            await asyncio.sleep(dice.uniform(0, 0.05))

    for _ in range(rounds):
        await asyncio.gather(*(leave(dice.choice(list(PATHS))) for _ in range(8)), on_a_socket())
    all_places = {"prompt": ["a"] * most, "n": 1, "max_tokens": 1, "stream": False}
    async with asyncio.timeout(PATIENCE):
        while (await served.post(all_places, **bearer("six")))[0] != 200:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.02)


async def test_a_command_for_a_requests_own_use_needs_no_second_slot(
    serving: Serving, tmp_path: Path
) -> None:
    file = key_file(tmp_path / "keys", {"name": "one", "concurrent": 1, "scopes": ["complete", "embed"]})
    served = await serving(api_key_file=str(file), max_queue=1)
    body = {
        "model": "storyteller",
        "prompt": "x " * 500,
        "stream": False,
        "options": {"num_ctx": 100, "num_predict": 2},
    }
    for _ in range(3):
        status, data = await served.post(body, "/api/generate", **bearer("one"))
        assert status == 200, data
    assert {"tokenize", "generate"} <= set(begun(served))


# The queue


@contextlib.asynccontextmanager
async def full(serving: Serving) -> AsyncIterator[Served]:
    """A server with one running and one waiting request, which is the maximum."""
    served = await serving("--endless", parallel=1, max_queue=1)
    async with endless(served) as first, endless(served) as second:
        assert b'"start"' in first
        assert b'"queued"' in second
        yield served


@each_op
async def test_each_op_is_refused_by_a_full_queue(serving: Serving, op: str) -> None:
    async with full(serving) as served:
        path, body = PATHS[op]
        async with served.http.post(served.url + path, json=body) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "5")
            assert (await response.json())["error"]["code"] == "queue_full"


async def test_a_list_of_prompts_too_long_for_the_queue_is_refused_as_a_whole(serving: Serving) -> None:
    served = await serving("--endless", parallel=1, max_queue=4)
    body = {"prompt": list("abcde"), "n": 1, "max_tokens": 2, "stream": False}
    status, data = await served.post(body)
    assert (status, json.loads(data)["error"]["code"]) == (503, "queue_full")
    assert begun(served) == []
    assert (await served.post(body | {"prompt": list("abcd")}))[0] == 200


RECALLING = """
parallel = 1
max_queue = 8
[memories.tales]
store = {{ file = "{folder}/tales.db" }}
[tasks.story]
max_tokens = -1
recall = {{ memory = "tales", store_prompts = true }}
"""
FLOODS: Mapping[str, tuple[str, dict[str, Any]]] = {  # paths and bodies, of which one client sends many
    "generate": ("/v1/events", ENDLESS),
    "chat": ("/v1/chat/completions", {"messages": SAYS_WORDS, "max_tokens": 9, "stream": True}),
    "prompts": ("/v1/completions", {"prompt": ["x"] * 4, "max_tokens": 9, "stream": True}),
    "a task that recalls": ("/v1/events", {"prompt": WORDS, "model": "story"}),
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_no_client_fills_the_queue_for_another(serving: Serving, tmp_path: Path, flood: str) -> None:
    """One client holds all 8 places; the second has half of them beyond these, the third a third."""
    path, body = FLOODS[flood]
    file = key_file(tmp_path / "keys", *({"name": name} for name in "abc"))
    config = tmp_path / "srb.toml"
    config.write_text(RECALLING.format(folder=tmp_path))
    engine = {"engine": str(tmp_path / "engine"), "engine_args": ("--endless", "--dimensions", "256")}
    served = await serving(config=str(config), api_key_file=str(file), **engine)

    async def refused(key: str) -> bool:
        async with served.http.post(served.url + path, json=body, headers=bearer(key)) as response:
            if response.status == 200:
                await gone.wait()
            elif (await response.json())["error"]["code"] != "queue_full":
                raise AssertionError(await response.text())
            return response.status == 503

    async def refusals(key: str, sent: int, waiting_then: int) -> None:
        """Of as many requests only so many wait; the others are refused."""
        asked = [group.create_task(refused(key)) for _ in range(sent)]
        most = waiting_then // len(body["prompt"]) if isinstance(body.get("prompt"), list) else waiting_then
        await waiting.until(lambda: sum(one.done() and one.result() for one in asked) == sent - most)

    async with endless(served, "a"), asyncio.TaskGroup() as group:
        gone = asyncio.Event()
        await refusals("a", 12, 8)
        await refusals("b", 12, 4)
        async with endless(served, "c") as third:
            assert b'"queued"' in third
        await refusals("a", 1, 0)
        gone.set()


async def test_commands_in_one_packet_are_checked_against_the_queue_one_by_one(serving: Serving) -> None:
    """The only sequence is taken, so that none of them begins, and leaves the queue, in the meantime."""
    served = await serving("--endless", parallel=1, max_queue=4)
    async with connected(served) as socket:
        await socket.send_json(GENERATE | {"id": "running"})
        await until(socket, event("stream", id="running"))
        for at in range(50):
            await socket.send_json(GENERATE | {"id": str(at)})
        assert await refusals(socket, 46) == {"queue_full"}
        assert await generated(served, socket) == 1 + 4


# Time


@each_op
async def test_each_op_ends_at_its_timeout(serving: Serving, op: str) -> None:
    served = await serving("--endless", "--hang-after", "1", request_timeout=1)
    running = asyncio.create_task(served.post(ENDLESS, "/v1/events"))
    await served.note("hanging")
    if op in ("generate", "chat"):  # whose stream may have begun
        path, body = PATHS[op]
        assert b"timed_out" in (await served.post(body, path))[1]
    else:
        assert await ask(served, op) == (503, "timed_out")
    running.cancel()


async def test_a_prefix_that_takes_too_long_is_an_error(serving: Serving) -> None:
    served = await serving("--token-delay", "0.05", request_timeout=0.3)
    status, data = await served.post({"prompt": "x " * 1000}, "/v1/prefix")
    assert (status, json.loads(data)["error"]["code"]) == (503, "timed_out")
    await served.note("cancel")


# Budgets of tokens


@pytest.mark.parametrize("op", ANSWERED)
async def test_each_op_is_charged(serving: Serving, tmp_path: Path, op: str) -> None:
    file = key_file(tmp_path / "keys", {"name": "poor", "tokens_per_minute": 5})
    served = await serving(api_key_file=str(file))
    assert await ask(served, op, "poor") == (200, None)
    for another in PATHS:
        assert await ask(served, another, "poor") == (429, "rate_limit_exceeded")


async def test_a_command_for_a_requests_own_use_is_not_charged_twice(
    serving: Serving, tmp_path: Path
) -> None:
    file = key_file(tmp_path / "keys", {"name": "poor", "tokens_per_minute": 150})
    served = await serving(api_key_file=str(file))
    body = {"model": "storyteller", "prompt": "x " * 500, "stream": False}
    options = {"options": {"num_ctx": 100, "num_predict": 2}}
    assert (await served.post(body | options, "/api/generate", **bearer("poor")))[0] == 200
    assert await ask(served, "generate", "poor") == (200, None)


async def test_without_tokens_left_an_extend_is_refused(serving: Serving, tmp_path: Path) -> None:
    file = key_file(tmp_path / "keys", {"name": "poor", "tokens_per_minute": 5})
    served = await serving("--endless", api_key_file=str(file))
    async with connected(served, **bearer("poor")) as socket:
        await socket.send_json(GENERATE | {"id": "a"})
        await until(socket, event("stream"))
        assert await ask(served, "tokenize", "poor") == (200, None)
        await socket.send_json({"op": "extend", "id": "a", "add": 1})
        assert await refusals(socket, 1) == {"rate_limit_exceeded"}
        await until(socket, event("stream", id="a"))


async def test_extends_in_one_packet_are_bounded(serving: Serving) -> None:
    served = await serving("--endless", "--hang-after", "1")
    async with connected(served) as socket:
        await socket.send_json(GENERATE | {"id": "a"})
        await served.note("hanging")
        for _ in range(MAX_RUNNING + MAX_EXTENDING + 10):
            await socket.send_json({"op": "extend", "id": "a", "add": 0, "max_tokens": 10})
        assert await refusals(socket, 10) == {"queue_full"}


async def test_an_extend_beyond_max_n_is_refused(serving: Serving, tmp_path: Path) -> None:
    file = key_file(tmp_path / "keys", {"name": "few", "max_n": 2})
    served = await serving("--endless", api_key_file=str(file))
    async with connected(served, **bearer("few")) as socket:
        await socket.send_json(GENERATE | {"id": "a"})
        await until(socket, event("stream"))
        await socket.send_json({"op": "extend", "id": "a", "add": 2})
        error = (await until(socket, event("error")))[-1]
        assert (error["op"], error["param"]) == ("extend", "add")
        await until(socket, event("stream", id="a"))
