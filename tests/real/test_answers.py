"""Every route answers as /openapi.json says, a stream in each of its frames, and nothing besides."""

# ruff: noqa: E501 (a table)
from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import TypeAdapter

from llama_srb.dialects.messages import Message
from llama_srb.http.routes import ROUTES, Route
from tests.real.answers import JSON, NDJSON, SSE, Description, closed
from tests.support.chats import HELLO, TOOLS, scripted
from tests.support.models import CHAT_TOKENS, write_model
from tests.support.served import key_file
from tests.support.serving import LASTING, Server, serving
from tests.support.waiting import PATIENCE

PLAIN, HTML, CSS, SCRIPT, PICTURE = "text/plain", "text/html", "text/css", "text/javascript", "image/svg+xml"
ONCE = "Once upon a time,"
FEW: dict[str, Any] = {"prompt": ONCE, "max_tokens": 2}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "A story!"}], "max_tokens": 2}
INFILL = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>")
RANKED: list[dict[str, Any]] = [
    {"n": 4, "rank_by": "typical", "dedupe": True, "temperature": 0},
    {"n": 2, "best_of": 4},
]
CALL: dict[str, Any] = {"messages": HELLO, "tools": TOOLS, "n": 2, "max_tokens": 150}
CALLING: dict[str, Any] = CALL | {"sequences": [scripted("<think>", "</think>", "<tool_call>"), scripted()]}
THOUGHT: dict[str, Any] = {"messages": HELLO, "max_tokens": 9, **scripted("<think>")}


@dataclass(frozen=True)
class Case:
    """A request, and of what status and content type its answer is. path: where it is not the route's."""

    route: str
    body: Any
    status: int
    form: str
    path: str
    model: str


def of(
    route: str,
    *bodies: Any,
    status: int = 200,
    form: str = JSON,
    path: str = "",
    model: str = "storyteller",
) -> list[Case]:
    return [Case(route, body, status, form, path or route.split()[1], model) for body in bodies or (None,)]


# fmt: off
CASES = [
    *of("POST /v1/completions",
        FEW | {"stream": False}, FEW | {"model": "other"},
        FEW | {"stream": False, "echo": True, "logprobs": 1, "n": 2, "foo": 1},
        FEW | {"stream": False, "prompt": [ONCE, "The end"], "n": 2, "logprobs": 0, "foo": 1},
        *(FEW | {"stream": False, "max_tokens": 6, **ranked} for ranked in RANKED),
        *(FEW | {"stream": False, "prompt": [ONCE, "The"], "max_tokens": 6, **ranked} for ranked in RANKED)),
    *of("POST /v1/completions", {"prompt": "a", "suffix": "b", "stream": False, "max_tokens": 2}, model="able"),
    *of("POST /v1/completions",
        FEW, FEW | {"stream": True}, FEW | {"n": 2, "echo": True, "logprobs": 1, "foo": 1},
        FEW | {"stream": True, "n": 2, "echo": True, "logprobs": 1, "foo": 1, "stream_options": {"include_usage": True}},
        FEW | {"stream": True, "prompt": [ONCE, "The end"], "n": 2, "echo": True, "foo": 1},
        *(FEW | {"stream": True, "stream_options": {"include_usage": True}, **ranked} for ranked in RANKED),
        *(FEW | {"stream": True, "prompt": [ONCE, "The"], **ranked} for ranked in RANKED), form=SSE),
    *of("POST /v1/completions", {"n": 0}, status=400),
    *of("POST /v1/completions", b" " * (16 << 20) + b" ", status=413),
    *of("POST /v1/chat/completions",
        CHAT, CHAT | {"model": "other", "n": 3, "logprobs": True, "top_logprobs": 1, "foo": 1},
        *(CHAT | ranked for ranked in RANKED)),
    *of("POST /v1/chat/completions", CALLING, CALLING | {"logprobs": True}, THOUGHT, model="able"),
    *of("POST /v1/chat/completions",
        *(one | {"stream": True, "stream_options": {"include_usage": True}} for one in (
            CHAT, CHAT | {"n": 3, "logprobs": True, "top_logprobs": 1, "foo": 1},
            *(CHAT | ranked for ranked in RANKED))), form=SSE),
    *of("POST /v1/chat/completions", CALLING | {"stream": True}, THOUGHT | {"stream": True, "logprobs": True},
        form=SSE, model="able"),
    *of("POST /v1/chat/completions", {"messages": [{"content": "x"}]}, status=400),
    *of("POST /chat/completions", CHAT), *of("POST /chat/completions", CHAT | {"stream": True}, form=SSE),
    *of("POST /v1/events",
        FEW, FEW | {"n": 40}, FEW | {"n": 2, "echo": True, "logprobs": 2, "foo": 1, "stop": ["a"]},
        {"prompt": ONCE * 150, "max_tokens": 1, "cache": False}, *(FEW | ranked for ranked in RANKED), form=SSE),
    *of("POST /v1/events", CALLING, CALLING | {"logprobs": 1}, THOUGHT, form=SSE, model="able"),
    *of("POST /v1/events", {"prompt": 7}, status=400),
    *of("POST /v1/completions/{id}/extend", {"add": 1}, status=404, path="/v1/completions/17/extend"),
    *of("POST /v1/completions/{id}/extend", {"add": -1}, status=400, path="/v1/completions/17/extend"),
    *of("POST /v1/prefix", {"prompt": ONCE, "foo": 1}, {"prompt": ONCE}, CHAT),
    *of("POST /v1/prefix", {"prompt": 7}, status=400),
    *of("POST /v1/score", {"texts": "a"}, {"prompt": ONCE, "texts": [" a", "b", [417]], "logprobs": 1, "foo": 1}),
    *of("POST /v1/score", {"texts": []}, status=400),
    *of("POST /v1/embeddings",
        {"input": [ONCE, "x"], "foo": 1}, {"input": ONCE, "dimensions": 8},
        {"input": ONCE, "encoding_format": "base64"}),
    *of("POST /v1/embeddings", {"input": 7}, status=400),
    *of("DELETE /v1/completions/{id}", status=404, path="/v1/completions/17"),
    *of("DELETE /v1/completions/{id}/{index}", status=404, path="/v1/completions/17/0"),
    *of("GET /v1/ws", status=400),
    *of("GET /v1/models"), *of("GET /models"),
    *of("GET /v1/models/{name}", path="/v1/models/storyteller"),
    *of("GET /v1/models/{name}", status=404, path="/v1/models/other"),
    *of("GET /v1/adapters"), *of("GET /lora-adapters"), *of("GET /v1/presets"), *of("GET /v1/samplers"),
    *of("GET /openapi.json"), *of("GET /health"), *of("GET /health/live"), *of("GET /health/ready"),
    *of("GET /v1/stats"), *of("GET /metrics", form=PLAIN), *of("GET /", form=HTML),
    *of("GET /studio/{file}", form=HTML, path="/studio/index.html"),
    *of("GET /studio/{file}", form=CSS, path="/studio/style.css"),
    *of("GET /studio/{file}", form=SCRIPT, path="/studio/app.js"),
    *of("GET /studio/{file}", form=PICTURE, path="/studio/icon.svg"),
    *of("GET /studio/{file}", status=404, path="/studio/none.css"),

    *of("POST /completion",
        FEW, FEW | {"n": 3, "n_probs": 2, "foo": 1}, FEW | {"prompt": [[417, 435]], "return_tokens": True},
        FEW | {"n_probs": 3, "post_sampling_probs": True}, *(FEW | ranked for ranked in RANKED)),
    *of("POST /completion",
        *(one | {"stream": True} for one in (
            FEW, FEW | {"n": 3, "n_probs": 2, "foo": 1}, FEW | {"return_tokens": True},
            FEW | {"n_probs": 3, "post_sampling_probs": True}, *(FEW | ranked for ranked in RANKED))), form=SSE),
    *of("POST /completions", FEW), *of("POST /completions", FEW | {"stream": True}, form=SSE),
    *of("POST /infill", {"input_prefix": "a", "input_suffix": "b"}, status=501),
    *of("POST /infill", {"input_prefix": "a", "input_suffix": "b", "n_predict": 2, "n": 2}, model="able"),
    *of("POST /infill", {"input_prefix": "a", "input_suffix": "b", "n_predict": 2, "stream": True},
        form=SSE, model="able"),
    *of("POST /tokenize", {"content": ONCE}, {"content": "an 狐", "with_pieces": True},
        {"prompt": ONCE, "add_special_tokens": False}, {}),
    *of("POST /v1/tokenize", {"prompt": ONCE}),
    *of("POST /apply-template", {"messages": HELLO}), *of("POST /apply-template", {}, status=400),
    *of("POST /detokenize", {"tokens": [417, 435]}), *of("POST /v1/detokenize", {"tokens": [417]}),
    *of("GET /props"), *of("GET /props", model="able"), *of("GET /slots"),
    *of("POST /embedding", {"content": ONCE}, {"input": [ONCE, [417, 435]], "dimensions": 8}),
    *of("POST /embedding", {}, status=400),
    *of("POST /embeddings", {"input": ONCE}), *of("POST /embeddings", {"input": []}, status=400),

    *of("POST /api/v1/generate",
        FEW, FEW | {"n": 3, "logprobs": True, "trim_stop": False, "stop": [" "], "foo": 1, "genkey": "K"},
        *(FEW | ranked for ranked in RANKED)),
    *of("POST /api/extra/generate/stream",
        FEW, FEW | {"n": 3, "logprobs": True, "foo": 1, "genkey": "S"}, *(FEW | ranked for ranked in RANKED), form=SSE),
    *of("POST /api/extra/generate/check", {"genkey": "no"}, {"genkey": "K"}, {}),
    *of("GET /api/extra/generate/check"),
    *of("POST /api/extra/abort", {"genkey": "no"}),
    *of("POST /api/extra/last_logprobs", {"genkey": "no"}, {"genkey": "K"}, {"genkey": "S"}),
    *of("GET /api/extra/last_logprobs"), *of("GET /api/extra/perf"),
    *of("POST /api/extra/tokencount", {"prompt": ONCE}), *of("POST /api/extra/detokenize", {"ids": [417]}),
    *of("POST /api/v1/token-count", {"prompt": ONCE}),
    *of("GET /api/v1/model"), *of("GET /api/v1/info/version"), *of("GET /api/v1/config/max_context_length"),
    *of("GET /api/v1/config/max_length"), *of("GET /api/v1/config/soft_prompts_list"),
    *of("GET /api/v1/config/soft_prompt"), *of("GET /api/extra/version"),
    *of("GET /api/extra/true_max_context_length"), *of("GET /api/extra/preloadstory"),

    *of("POST /v1/internal/encode", {"text": ONCE}), *of("POST /v1/internal/decode", {"tokens": [417]}),
    *of("POST /v1/internal/token-count", {"text": ONCE}),
    *of("POST /v1/internal/logits", FEW, FEW | {"use_samplers": True, "top_logits": 3, "n": 4, "foo": 1}),
    *of("POST /v1/internal/logits", {"prompt": ONCE, "top_logits": 0.5}, status=400),
    *of("POST /v1/internal/chat-prompt", {"messages": HELLO}), *of("POST /v1/internal/chat-prompt", {}, status=400),
    *of("POST /v1/internal/stop-generation", None, {}),
    *of("GET /v1/internal/health"), *of("GET /v1/internal/lora/list"), *of("GET /v1/internal/model/info"),
    *of("GET /v1/internal/model/list"),
    *of("POST /v1/token/encode", {"text": ONCE, "add_bos_token": False}),
    *of("POST /v1/token/decode", {"tokens": [417]}), *of("GET /v1/model"), *of("GET /v1/model/list"),

    *of("POST /api/generate",
        {"model": "storyteller"}, {"keep_alive": 0},
        *(FEW | {"stream": False} | more for more in ({}, {"n": 2, "logprobs": True, "foo": 1}, *RANKED))),
    *of("POST /api/generate",
        *(FEW | more for more in ({}, {"logprobs": True, "top_logprobs": 2}, {"n": 2, "logprobs": True, "foo": 1}, *RANKED)),
        form=NDJSON),
    *of("POST /api/generate", {"prompt": "a", "suffix": "b", "num_predict": 2}, {"prompt": "Why?", "num_predict": 9, **scripted("<think>")},
        form=NDJSON, model="able"),
    *of("POST /api/generate", {"model": "other"}, status=404),
    *of("POST /api/chat",
        {"messages": [], "keep_alive": 0},
        *(CHAT | {"stream": False} | more for more in ({}, {"n": 2, "logprobs": True, "foo": 1}, *RANKED))),
    *of("POST /api/chat", CALLING | {"stream": False}, THOUGHT | {"stream": False}, model="able"),
    *of("POST /api/chat",
        *(CHAT | more for more in ({}, {"n": 2, "logprobs": True, "foo": 1}, *RANKED)), form=NDJSON),
    *of("POST /api/chat", CALLING, THOUGHT, form=NDJSON, model="able"),
    *of("POST /api/chat", {"messages": HELLO, "n": 0}, status=400),
    *of("POST /api/embed", {"model": "storyteller", "input": [ONCE, "The end"]}, {"input": "The end. " * 3000}),
    *of("POST /api/embed", {"model": "other", "input": "x"}, status=404),
    *of("POST /api/embeddings", {"prompt": ONCE}, {"prompt": "The end. " * 3000}),
    *of("POST /api/embeddings", {}, status=400),
    *of("POST /api/show", {"model": "storyteller"}), *of("POST /api/show", {"model": "storyteller:latest"}),
    *of("POST /api/show", {"model": "other"}, status=404),
    *of("GET /api/tags"), *of("GET /api/ps"), *of("GET /api/version"),
]
# fmt: on
OF_RUNNING = {  # answered only while something runs: tests of their own
    "POST /v1/completions/{id}/extend",
    "DELETE /v1/completions/{id}",
    "DELETE /v1/completions/{id}/{index}",
}
GENERATING = {  # a path for each form that errors have: a body, and what asks for a stream
    "/v1/completions": ({"prompt": ONCE}, {"stream": False}, {"stream": True}),
    "/v1/events": ({"prompt": ONCE}, None, {}),
    "/completion": ({"prompt": ONCE}, {}, {"stream": True}),
    "/api/v1/generate": ({"prompt": ONCE}, {}, None),
    "/api/extra/generate/stream": ({"prompt": ONCE}, None, {}),
    "/api/generate": ({"prompt": ONCE}, {"stream": False}, {}),
}
FORMS = {"/api/generate": NDJSON}  # of streams; others are SSE


@pytest.fixture(scope="module")
def storyteller() -> Iterator[Server]:
    with serving("--ctx", "8192") as server:
        yield server


@pytest.fixture(scope="module")
def able(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A model with tokens for infill, and with a chat template that knows tools."""
    path = tmp_path_factory.mktemp("able") / "able.gguf"
    template = Path(__file__).with_name("chat_template.jinja").read_text()
    write_model(path, "llama", chat_template=template, control=[*INFILL, *CHAT_TOKENS], context=4096)
    with serving("--model", str(path), "--ctx", "8192") as server:
        yield server


@pytest.fixture(scope="module")
def description(storyteller: Server) -> Description:
    return Description(storyteller.json("GET", "/openapi.json")[1])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.route} {case.status} {str(case.body)[:60]}")
def test_answers_are_as_described(
    storyteller: Server, able: Server, description: Description, case: Case
) -> None:
    server = able if case.model == "able" else storyteller
    status, headers, data = server.call(case.route.split()[0], case.path, case.body)
    assert (status, headers.get_content_type()) == (case.status, case.form), data[:1000]
    description.check(case.route, status, case.form, data)


def test_every_route_has_an_answer_here_in_each_of_its_forms() -> None:
    answered = {(case.route, case.form) for case in CASES if case.status == 200}
    answered |= {(route, JSON) for route in OF_RUNNING}
    described = {
        (f"{route.method} {route.path}", form)
        for route in ROUTES
        for form in (route.answers[200].content if 200 in route.answers else ())
    }
    assert answered == described


# What runs


def opened(stack: ExitStack, server: Server, path: str, body: Any) -> HTTPResponse:
    """A stream that has begun."""
    connection = stack.enter_context(closing(server.connect()))
    connection.request("POST", path, json.dumps(body))
    response = connection.getresponse()
    assert response.status == 200, response.read()
    return response


def test_what_acts_on_a_running_request_answers_as_described(
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


async def test_a_websockets_messages_are_as_declared(storyteller: Server) -> None:
    schema = closed(TypeAdapter(Message).json_schema())
    description = Description({"paths": {}, "components": {}})
    fields = {"prompt": ONCE, "n": 2, "max_tokens": 3}
    commands = [
        {"op": "generate", "id": "a", **fields, "echo": True, "logprobs": 1, "foo": 1},
        {"op": "generate", "id": "b", **fields, "rank_by": "typical", "dedupe": True},
        {"op": "cancel", "id": "none"},
        {"op": "no"},
        {"op": "generate", "id": "c", "prompt": 7},
    ]
    told: list[Any] = []
    async with aiohttp.ClientSession() as session, session.ws_connect(storyteller.url + "/v1/ws") as socket:
        for command in commands:
            await socket.send_json(command)
        while sum(one["event"] == "done" for one in told) < 2:
            told.append(await socket.receive_json(timeout=PATIENCE))
    assert {"start", "prompt", "stream", "stop", "done", "error"} <= {one["event"] for one in told}
    for one in told:
        description.check_value(schema, one)


# What goes wrong


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    keys = key_file(
        tmp_path_factory.mktemp("keys") / "keys",
        {"name": "anyone", "scopes": ["complete", "chat", "embed", "metrics"]},
        {"name": "poor", "tokens_per_minute": 1},
    )
    with serving("--ctx", "4096", "--api-key-file", str(keys), "--max-body", "64K") as server:
        yield server


def call(server: Server, route: Route, body: Any, **headers: str) -> tuple[int, bytes]:
    path = route.path.format(id="17", index="0", name="none", file="none.css")
    with closing(server.connect()) as connection:
        connection.request(route.method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()


ANYONE = {"Authorization": "Bearer anyone"}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
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


@pytest.mark.parametrize("path", GENERATING)
def test_a_key_without_tokens_is_refused_as_described(
    guarded: Server, description: Description, path: str
) -> None:
    (route,) = (route for route in ROUTES if route.path == path)
    body = json.dumps(GENERATING[path][0] | {"max_tokens": 3})
    deadline, status, data = time.monotonic() + PATIENCE, 200, b""
    while status == 200 and time.monotonic() < deadline:  # until the first one is counted
        status, data = call(guarded, route, body, Authorization="Bearer poor")
    assert status == 429, data
    description.check(f"POST {path}", status, JSON, data)


def test_what_keeps_nothing_refuses_a_prefix_as_described(description: Description) -> None:
    with serving("--engine-mode", "per-request", "--ctx", "1024") as server:
        status, _, data = server.call("POST", "/v1/prefix", {"prompt": ONCE})
        assert status == 409, data
        description.check("POST /v1/prefix", status, JSON, data)


ENDLESS = {"max_tokens": -1, "max_length": None, "ignore_eos": True}


def test_a_full_queue_is_told_in_each_dialects_form(description: Description) -> None:
    flags = ("--ctx", "8192", "--parallel", "1", "--max-queue", "1", "--", *LASTING)
    with serving(*flags) as server, closing(server.connect()) as waiting, ExitStack() as stack:
        opened(stack, server, "/v1/events", {"prompt": ONCE, "n": 1, **ENDLESS}).readline()
        waiting.request("POST", "/v1/events", json.dumps({"prompt": ONCE, "n": 1}))
        until_open(server, 2)
        for path, (body, *_) in GENERATING.items():
            status, _, data = server.call("POST", path, body)
            assert status == 503, data
            description.check(f"POST {path}", status, JSON, data)


def until_open(server: Server, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while server.json("GET", "/v1/stats")[1]["requests_open"] != count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def engine_of(server: Server) -> int:
    (pid,) = {
        int(pid)
        for path in Path(f"/proc/{server.pid}/task").glob("*/children")
        for pid in path.read_text().split()
        if "llama-batched" in Path(f"/proc/{pid}/cmdline").read_text()
    }
    return pid


def test_an_engine_that_dies_is_told_in_each_dialects_form(description: Description) -> None:
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
        for path, connection in whole.items():
            response = connection.getresponse()
            assert response.status == 500
            description.check(f"POST {path}", 500, JSON, response.read())
        for path, (begun, response) in streams.items():
            told = begun + response.read()
            assert b"error" in told or b"detail" in told
            description.check(f"POST {path}", 200, FORMS.get(path, SSE), told)
