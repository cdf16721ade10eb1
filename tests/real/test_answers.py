"""Every answer of every route, and each frame of a stream, is as /openapi.json describes it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import TypeAdapter

from llama_srb.dialects.messages import Message
from llama_srb.dialects.tasks.turns import TurnMessage
from llama_srb.http.routes import ROUTES, Route
from tests.real.answer_cases import CASES, INFILL, ONCE, Case
from tests.real.answers import JSON, NDJSON, SSE, Description, closed
from tests.support.chats import HELLO
from tests.support.encoder import RANK, write_encoder
from tests.support.models import CHAT_TEMPLATE, CHAT_TOKENS, write_adapter, write_model
from tests.support.rows import each_row
from tests.support.served import key_file
from tests.support.serving import LASTING, Server, serving
from tests.support.waiting import PATIENCE

OF_RUNNING = {  # they act on a running request, and have their own tests
    "POST /v1/completions/{id}/extend",
    "DELETE /v1/completions/{id}",
    "DELETE /v1/completions/{id}/{index}",
}
LOADED, NAMED = {"model": "storyteller"}, {"model_name": "storyteller"}
LOADING = [  # one after the other: a route, its path, its body, the status and the form of its answer
    ("POST /v1/models/{name}/unload", "/v1/models/storyteller/unload", None, 200, JSON),
    ("POST /v1/models/{name}/unload", "/v1/models/other/unload", None, 404, JSON),
    ("POST /models/unload", "/models/unload", LOADED, 400, JSON),
    ("POST /models/load", "/models/load", LOADED, 200, JSON),
    ("POST /models/load", "/models/load", LOADED, 400, JSON),
    ("POST /models/load", "/models/load", {"model": "other"}, 404, JSON),
    ("POST /v1/model/load", "/v1/model/load", NAMED | {"max_seq_len": 1}, 200, SSE),
    ("POST /models/unload", "/models/unload", LOADED, 200, JSON),
    ("POST /v1/model/load", "/v1/model/load", NAMED, 200, SSE),
    ("POST /v1/model/unload", "/v1/model/unload", None, 200, JSON),
    ("POST /v1/model/load", "/v1/model/load", {}, 400, JSON),
    ("POST /v1/internal/model/load", "/v1/internal/model/load", NAMED, 200, JSON),
    ("POST /v1/internal/model/unload", "/v1/internal/model/unload", NAMED, 200, JSON),
    ("POST /v1/internal/model/unload", "/v1/internal/model/unload", {"model_name": "other"}, 404, JSON),
    ("POST /v1/models/{name}/load", "/v1/models/storyteller/load", None, 200, JSON),
    ("POST /v1/models/{name}/load", "/v1/models/other/load", None, 404, JSON),
]
EVENTS = "GET /models/sse"
FORM = "multipart/form-data; boundary=b"
FILE = b"""--b\r
Content-Disposition: form-data; name="file"; filename="in.jsonl"\r
\r
{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 2}}\r
--b\r
Content-Disposition: form-data; name="purpose"\r
\r
batch\r
--b--\r
"""
OCTETS = "application/octet-stream"
ASKED = {"input_file_id": "{file}", "endpoint": "/v1/completions", "completion_window": "24h"}
STORING: list[
    tuple[str, Any, int, str]
] = [  # one after the other: a route, its body, the answer's status and form
    ("POST /v1/files", FILE, 200, JSON),
    ("POST /v1/files", b"--b--\r\n", 400, JSON),
    ("GET /v1/files", None, 200, JSON),
    ("GET /v1/files/{file_id}", None, 200, JSON),
    ("GET /v1/files/{file_id}/content", None, 200, OCTETS),
    ("POST /v1/batches", ASKED | {"metadata": {"a": "b"}}, 200, JSON),
    ("POST /v1/batches", ASKED | {"completion_window": "1"}, 400, JSON),
    ("POST /v1/batches", ASKED | {"input_file_id": "none"}, 404, JSON),
    ("GET /v1/batches/{batch_id}", None, 200, JSON),
    ("GET /v1/batches", None, 200, JSON),
    ("POST /v1/batches/{batch_id}/cancel", None, 409, JSON),
    ("DELETE /v1/files/{file_id}", None, 200, JSON),
    ("DELETE /v1/files/{file_id}", None, 404, JSON),
    ("GET /v1/files/{file_id}", None, 404, JSON),
    ("GET /v1/files/{file_id}/content", None, 404, JSON),
    (
        "POST /v1/files",
        FILE.replace(b"max_tokens", b'ignore_eos": true, "n": 900, "max_tokens').replace(b"2}}", b"400}}"),
        200,
        JSON,
    ),
    ("POST /v1/batches", ASKED, 200, JSON),
    ("POST /v1/batches/{batch_id}/cancel", None, 200, JSON),
]
STORY = {"name": "Fox", "root": "r", "nodes": {"r": {"text": "Once"}}}
NEW, ANY = {"If-None-Match": "*"}, {"If-Match": "*"}
STORIES: list[tuple[str, str, Any, dict[str, str], int]] = [
    # one after the other: a route, what follows its path, the body, headers, the status
    ("PUT /v1/stories/{story}", "", STORY, NEW, 200),
    ("PUT /v1/stories/{story}", "", STORY | {"root": "x"}, ANY, 400),
    ("PUT /v1/stories/{story}", "", STORY | {"name": "Owl"}, NEW, 412),
    ("PUT /v1/stories/{story}", "", STORY, {}, 428),
    ("GET /v1/stories", "", None, {}, 200),
    ("GET /v1/stories/{story}", "", None, {}, 200),
    ("DELETE /v1/stories/{story}", "", None, {"If-Match": '"x"'}, 412),
    ("DELETE /v1/stories/{story}", "", None, {}, 200),
    ("DELETE /v1/stories/{story}", "?forever=true", None, ANY, 200),
    ("GET /v1/stories/{story}", "", None, {}, 404),
    ("DELETE /v1/stories/{story}", "", None, {}, 404),
]
KEPT: list[tuple[str, str, int]] = [  # one after the other: a route of a kept response, its query, the status
    ("GET /responses/{response_id}", "", 200),
    ("GET /responses/{response_id}", "?stream=true", 400),
    ("GET /responses/{response_id}/input_items", "?limit=1&order=asc", 200),
    ("GET /responses/{response_id}/input_items", "?limit=0", 400),
    ("DELETE /responses/{response_id}", "", 200),
    ("DELETE /responses/{response_id}", "", 404),
    ("GET /responses/{response_id}", "", 404),
    ("GET /responses/{response_id}/input_items", "", 404),
]
RESPONSES = ("/v1", "", "/openai/v1")
PREFIXES = ("", "/openai")
TASK = """
[memories.notes]
store = { file = "notes.db" }
chunk_tokens = 16
[tasks.story]
about = "Goes on with a story."
prelude = "Once upon a time,"
prefix = " there was a "
postfix = "."
max_tokens = 3
locked = ["top_k"]
private_tokens = ["<|secret|>"]
"""
GENERATING = {  # a path for each form of errors: a body, and the fields that ask for a stream
    "/v1/completions": ({"prompt": ONCE}, {"stream": False}, {"stream": True}),
    "/v1/events": ({"prompt": ONCE}, None, {}),
    "/v1/responses": ({"input": ONCE}, {}, {"stream": True}),
    "/completion": ({"prompt": ONCE}, {}, {"stream": True}),
    "/api/v1/generate": ({"prompt": ONCE}, {}, None),
    "/api/extra/generate/stream": ({"prompt": ONCE}, None, {}),
    "/api/generate": ({"prompt": ONCE}, {"stream": False}, {}),
    "/v1/messages": ({"messages": HELLO}, {}, {"stream": True}),
}
OVERLOADED = {"/v1/messages": 529}  # other paths answer 503
FORMS = {"/api/generate": NDJSON}  # content types of streams that are not SSE


@pytest.fixture(scope="module")
def storyteller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The bundled model, with a task that has each field."""
    file = tmp_path_factory.mktemp("tasks") / "srb.toml"
    file.write_text(TASK)
    folders = ("--files-dir", str(file.parent / "files"), "--stories", str(file.parent / "stories"))
    with serving("--ctx", "8192", "--config", str(file), *folders) as server:
        yield server


@pytest.fixture(scope="module")
def able(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A model with tokens for infill, a chat template that takes tools, and an adapter."""
    path = tmp_path_factory.mktemp("able") / "able.gguf"
    adapter = path.with_name("adapter.gguf")
    write_adapter(adapter, "llama", 0)
    adapters = ("--adapters", f"pirate={adapter}", "--adapters-dir", str(adapter.parent))
    template = CHAT_TEMPLATE.read_text()
    write_model(path, "llama", chat_template=template, control=[*INFILL, *CHAT_TOKENS], context=4096)
    with serving("--model", str(path), "--ctx", "8192", *adapters) as server:
        yield server


@pytest.fixture(scope="module")
def description(storyteller: Server) -> Description:
    return Description(storyteller.json("GET", "/openapi.json")[1])


@each_row("case", CASES, ids=lambda case: f"{case.route} {case.status} {str(case.body)[:60]}")
def test_answers_are_as_described(
    storyteller: Server, able: Server, description: Description, case: Case
) -> None:
    server = able if case.model == "able" else storyteller
    accept = {"Accept": SSE} if case.form == SSE and case.route.startswith("PUT") else {}
    status, headers, data = server.call(case.route.split()[0], case.path, case.body, case.sent_as, **accept)
    assert (status, headers.get_content_type()) == (case.status, case.form), data[:1000]
    description.check(case.route, status, case.form, data)


def test_every_route_has_an_answer_here_in_each_of_its_forms() -> None:
    answered = {(case.route, case.form) for case in CASES if case.status == 200}
    answered |= {(route, JSON) for route in OF_RUNNING}
    answered |= {(route, JSON) for route, *_, status in STORIES if status == 200}
    kept = [route.split() for route, _, status in KEPT if status == 200]
    answered |= {(f"{method} {prefix}{path}", JSON) for prefix in RESPONSES for method, path in kept}
    storing = [(route, form) for route, _, status, form in STORING if status == 200]
    answered |= {
        (route.replace("/", prefix + "/", 1), form) for route, form in storing for prefix in PREFIXES
    }
    answered |= {(route, form) for route, _, _, status, form in LOADING if status == 200} | {(EVENTS, SSE)}
    answered |= {(f"POST {path}", JSON) for path in RANKING}
    described = {
        (f"{route.method} {route.path}", form)
        for route in ROUTES
        for form in (route.answers[200].content if 200 in route.answers else ())
    }
    assert answered == described


RANKING = ("/v1/rerank", "/rerank", "/v2/rerank", "/reranking", "/v1/reranking")


def test_answers_of_a_model_that_ranks_are_as_described(description: Description, tmp_path: Path) -> None:
    write_encoder(tmp_path / "ranker.gguf", RANK)
    bodies = [
        {"query": "a", "documents": ["b", {"text": "c"}]},
        {"query": "a", "texts": ["b"], "return_text": True},
    ]
    with serving("--model", str(tmp_path / "ranker.gguf"), "--rerank") as server:
        for path in RANKING:
            for body in bodies:
                status, headers, data = server.call("POST", path, body)
                assert (status, headers.get_content_type()) == (200, JSON), data
                description.check(f"POST {path}", status, JSON, data)


# Running requests


def opened(stack: ExitStack, server: Server, path: str, body: Any) -> HTTPResponse:
    """Opens a stream, and yields it once it has begun."""
    connection = stack.enter_context(closing(server.connect()))
    connection.request("POST", path, json.dumps(body))
    response = connection.getresponse()
    assert response.status == 200, response.read()
    return response


def test_routes_that_act_on_a_running_request_answer_as_described(
    lasting: Server, description: Description
) -> None:
    body = {"prompt": ONCE, "n": 2, "max_tokens": -1, "ignore_eos": True}
    with ExitStack() as stack:
        response = opened(stack, lasting, "/v1/events", body)
        begun = response.readline()
        path = f"/v1/completions/{json.loads(begun[6:])['id']}"
        acts: list[tuple[str, str, Any]] = [
            ("POST /v1/completions/{id}/extend", f"{path}/extend", {"add": 1, "foo": 1}),
            ("DELETE /v1/completions/{id}/{index}", f"{path}/1", None),
            ("DELETE /v1/completions/{id}", path, None),
        ]
        for route, at, fields in acts:
            status, _, data = lasting.call(route.split()[0], at, fields)
            assert status == 200, data
            description.check(route, 200, JSON, data)
        told = begun + response.read()
    assert b'"event": "extend"' in told
    description.check("POST /v1/events", 200, SSE, told)


def test_routes_that_load_answer_as_described(description: Description) -> None:
    with serving("--ctx", "1024") as server, closing(server.connect()) as listening:
        listening.request("GET", "/models/sse")
        events = listening.getresponse()
        for route, path, body, wanted, wanted_form in LOADING:
            status, headers, data = server.call("POST", path, body)
            assert (status, headers.get_content_type()) == (wanted, wanted_form), (path, body, data)
            description.check(route, status, wanted_form, data)
        told = b""
        while told.count(b'"loaded"') < 4:
            told += events.readline() + events.readline()
        assert b'"progress"' in told
        description.check(EVENTS, 200, SSE, told)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_files_and_batches_answer_as_described(
    storyteller: Server, description: Description, prefix: str
) -> None:
    ids = {"file": "", "batch": ""}
    for plain, body, wanted, wanted_form in STORING:
        route = plain.replace("/", prefix + "/", 1)
        method, path = route.split()
        filled = (
            json.loads(json.dumps(body).replace("{file}", ids["file"])) if isinstance(body, dict) else body
        )
        at = path.format(file_id=ids["file"], batch_id=ids["batch"])
        status, headers, data = storyteller.call(
            method, at, filled, FORM if plain == "POST /v1/files" else JSON
        )
        assert (status, headers.get_content_type()) == (wanted, wanted_form), (route, data)
        description.check(route, status, wanted_form, data)
        if method == "POST" and status == 200:
            told = json.loads(data)
            ids[told["object"]] = told["id"]
        if (plain, wanted) == ("GET /v1/batches", 200):
            until_over(storyteller, ids["batch"])


def until_over(server: Server, batch: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while server.json("GET", f"/v1/batches/{batch}")[1]["status"] != "completed":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_stories_answer_as_described(storyteller: Server, description: Description) -> None:
    for route, query, body, sent, wanted in STORIES:
        method, path = route.split()
        at = path.format(story="s") + query
        status, headers, data = storyteller.call(method, at, body, **sent)
        assert (status, headers.get_content_type()) == (wanted, JSON), (route, data)
        description.check(route, status, JSON, data)
    status, headers, data = storyteller.call("GET", "/v1/stories")
    assert json.loads(data)["data"][0]["state"] == "removed"


@pytest.mark.parametrize("prefix", RESPONSES)
def test_kept_responses_answer_as_described(
    storyteller: Server, description: Description, prefix: str
) -> None:
    asked = {"input": [{"role": "user", "content": one} for one in "ab"], "max_output_tokens": 2}
    _, first = storyteller.json("POST", f"{prefix}/responses", asked)
    for plain, query, wanted in KEPT:
        method, path = plain.split()
        at = prefix + path.format(response_id=first["id"]) + query
        status, headers, data = storyteller.call(method, at)
        assert (status, headers.get_content_type()) == (wanted, JSON), (plain, data)
        description.check(f"{method} {prefix}{path}", status, JSON, data)
    for fields, wanted in (
        ({"previous_response_id": first["id"], "input": "x"}, 400),
        ({"input": [{"type": "item_reference", "id": first["output"][0]["id"]}]}, 404),
    ):
        status, _, data = storyteller.call("POST", f"{prefix}/responses", fields)
        assert status == wanted
        description.check(f"POST {prefix}/responses", status, JSON, data)


async def test_a_websockets_messages_are_as_declared(storyteller: Server) -> None:
    schema = closed(TypeAdapter(Message).json_schema())
    description = Description({"paths": {}, "components": {}})
    fields = {"prompt": ONCE, "n": 2, "max_tokens": 3}
    commands = [
        {"op": "generate", "id": "a", **fields, "echo": True, "logprobs": 1, "foo": 1},
        {
            "op": "generate",
            "id": "b",
            **fields,
            "rank_by": "typical",
            "dedupe": True,
            "diversity_stats": True,
        },
        {"op": "cancel", "id": "none"},
        {"op": "no"},
        {"op": "generate", "id": "c", "prompt": 7},
    ]
    told: list[Any] = []
    async with aiohttp.ClientSession() as session, session.ws_connect(storyteller.url + "/v1/ws") as socket:
        for command in commands:
            await socket.send_json(command)
        while (names := [one["event"] for one in told]).count("done") < 2 or "error" not in names:
            told.append(await socket.receive_json(timeout=PATIENCE))
    assert {"start", "prompt", "stream", "stop", "done", "error"} <= {one["event"] for one in told}
    for one in told:
        description.check_value(schema, one)


async def test_the_messages_of_a_chat_on_a_websocket_are_as_declared(storyteller: Server) -> None:
    schema = closed(TypeAdapter(TurnMessage).json_schema())
    description = Description({"paths": {}, "components": {}})
    turn: dict[str, Any] = {"op": "turn", "text": "cat", "n": 2}
    commands: list[dict[str, Any]] = [
        turn | {"echo": True, "logprobs": 0, "foo": 1},
        {"op": "choose", "index": 1},
        turn | {"rank_by": {"vote": {"regex": "[a-z]"}}, "diversity_stats": True},
        {"op": "no"},
        turn | {"prompt": "x"},
        turn | {"text": "x" * 40_000},
    ]
    told: list[Any] = []
    url = storyteller.url + "/v1/tasks/story/ws"
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        for command in commands:
            await socket.send_json(command)
            told.append(await socket.receive_json(timeout=PATIENCE))
            while command["op"] == "turn" and told[-1]["event"] not in ("done", "error"):
                told.append(await socket.receive_json(timeout=PATIENCE))
    assert {"start", "prompt", "stream", "stop", "done", "chosen", "error"} <= {one["event"] for one in told}
    for one in told:
        description.check_value(schema, one)


# Errors


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys = key_file(
        tmp_path_factory.mktemp("keys") / "keys",
        {"name": "anyone", "scopes": ["complete", "chat", "embed", "metrics", "admin"]},
        {"name": "poor", "tokens_per_minute": 1},
    )
    with serving("--ctx", "4096", "--api-key-file", str(keys), "--max-body", "64K") as server:
        yield server


def call(server: Server, route: Route, body: Any, **headers: str) -> tuple[int, bytes]:
    path = route.path.format(id="17", index="0", name="none", file="none.css", memory="none", document="none",
                             file_id="none", batch_id="none", story="none", response_id="resp_0")  # fmt: skip
    with closing(server.connect()) as connection:
        connection.request(route.method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()


ANYONE = {"Authorization": "Bearer anyone"}


@each_row("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_refuses_as_described(guarded: Server, description: Description, route: Route) -> None:
    refusals: list[tuple[int, bytes | None, dict[str, str]]] = [
        (403, None, {"Origin": "http://evil.example"})
    ]
    if route.scopes:
        refusals.append((401, None, {"Authorization": "Bearer no"}))
    if route.request:
        refusals += [(400, b"[", ANYONE), (413, b" " * (64 << 10) + b" ", ANYONE)]
    for expected, body, headers in refusals:
        status, data = call(guarded, route, body, **headers)
        assert status == expected, data
        description.check(f"{route.method} {route.path}", status, JSON, data)


@each_row("path", GENERATING)
def test_a_key_without_tokens_is_refused_as_described(
    guarded: Server, description: Description, path: str
) -> None:
    (route,) = (route for route in ROUTES if route.path == path)
    body = json.dumps(GENERATING[path][0] | {"max_tokens": 3})
    deadline, status, data = time.monotonic() + PATIENCE, 200, b""
    while status == 200 and time.monotonic() < deadline:  # until the first request is counted
        status, data = call(guarded, route, body, Authorization="Bearer poor")
    assert status == 429, data
    description.check(f"POST {path}", status, JSON, data)


def test_a_per_request_server_refuses_a_prefix_as_described(description: Description) -> None:
    with serving("--engine-mode", "per-request", "--ctx", "1024") as server:
        status, _, data = server.call("POST", "/v1/prefix", {"prompt": ONCE})
        assert status == 409, data
        description.check("POST /v1/prefix", status, JSON, data)


ENDLESS = {"max_tokens": -1, "max_length": None, "ignore_eos": True}


def test_a_full_queue_is_an_error_in_each_dialects_form(description: Description) -> None:
    flags = ("--ctx", "8192", "--parallel", "1", "--max-queue", "1", "--", *LASTING)
    with serving(*flags) as server, closing(server.connect()) as waiting, ExitStack() as stack:
        opened(stack, server, "/v1/events", {"prompt": ONCE, "n": 1, **ENDLESS}).readline()
        waiting.request("POST", "/v1/events", json.dumps({"prompt": ONCE, "n": 1}))
        until_open(server, 2)
        for path, (body, *_) in GENERATING.items():
            status, _, data = server.call("POST", path, body)
            assert status == OVERLOADED.get(path, 503), data
            description.check(f"POST {path}", status, JSON, data)


def until_open(server: Server, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while server.json("GET", "/v1/stats")[1]["requests_open"] != count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def until_unready(server: Server) -> tuple[int, bytes]:
    """The answer of /health before the next engine is ready."""
    deadline, status, data = time.monotonic() + PATIENCE, 200, b""
    while status == 200 and time.monotonic() < deadline:
        status, _, data = server.call("GET", "/health")
    return status, data


def engine_of(server: Server) -> int:
    (pid,) = {
        int(pid)
        for path in Path(f"/proc/{server.pid}/task").glob("*/children")
        for pid in path.read_text().split()
        if "llama-batched" in Path(f"/proc/{pid}/cmdline").read_text()
    }
    return pid


def test_a_dead_engine_is_an_error_in_each_dialects_form(description: Description) -> None:
    with serving("--ctx", "65536", "--", *LASTING) as server, ExitStack() as stack:
        whole: dict[str, Any] = {}
        streams: dict[str, tuple[bytes, HTTPResponse]] = {}
        for path, (body, asks_whole, asks_stream) in GENERATING.items():
            if asks_whole is not None:
                whole[path] = stack.enter_context(closing(server.connect()))
                whole[path].request("POST", path, json.dumps(body | ENDLESS | asks_whole))
            if asks_stream is not None:
                response = opened(stack, server, path, body | ENDLESS | asks_stream)
                streams[path] = (response.readline(), response)
        until_open(server, len(whole) + len(streams))
        os.kill(engine_of(server), signal.SIGKILL)
        status, data = until_unready(server)
        description.check("GET /health", status, JSON, data)
        for path, connection in whole.items():
            response = connection.getresponse()
            assert response.status == 500
            description.check(f"POST {path}", 500, JSON, response.read())
        for path, (begun, response) in streams.items():
            told = begun + response.read()
            assert b"error" in told or b"detail" in told
            description.check(f"POST {path}", 200, FORMS.get(path, SSE), told)
