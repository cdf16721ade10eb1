"""The whole server over real sockets, with the fake engine."""

import asyncio
import contextlib
import itertools
import json
import re
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from llama_srb.dialects.negotiation import negotiate
from llama_srb.http.routes import ROUTES as TABLE
from tests.support.rows import each_row
from tests.support.served import Served, Serving, closed, frames
from tests.support.waiting import PATIENCE

CANCEL_WITHIN = 5.0  # seconds; a step of the silent engine takes 30


# The event stream


@pytest.mark.parametrize("mode", ["resident", "per-request"])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/events"])
async def test_one_prompt_streams_n_continuations(serving: Serving, mode: str, path: str) -> None:
    served = await serving(engine_mode=mode)
    events = await served.events({"prompt": "Once upon a time,"}, path)
    assert [list(events[0])[:2], events[0]["count"]] == [["event", "count"], 8]
    assert [event["event"] for event in events[-1:]] == ["done"]
    assert sorted(event["index"] for event in events if event["event"] == "stop") == list(range(8))
    texts = [
        "".join(e["text"] for e in events if e["event"] == "stream" and e["index"] == i) for i in range(8)
    ]
    assert len(set(texts)) == 8


async def test_frames_look_as_documented(serving: Serving) -> None:
    served = await serving()
    status, data = await served.post({"prompt": "x", "n": 1, "max_tokens": 1})
    first, second, third, fourth, rest = data.decode().split("\n\n")
    assert first.startswith('data: {"event": "start", "count": 1, ')
    assert second.startswith('data: {"event": "stream", "index": 0, "text": " ')
    assert third.startswith('data: {"event": "stop", "index": 0, "length": 1, "stop": 0')
    assert fourth.startswith('data: {"event": "done", "count": 1')
    assert (status, rest) == (200, "")


async def test_a_decode_step_is_one_write(serving: Serving) -> None:
    served = await serving("--token-delay", "0.02")
    reader, writer = await served.connect({"prompt": "x", "n": 16, "max_tokens": 10})
    await reader.readuntil(b"\r\n\r\n")
    chunks = []
    while size := int(await reader.readline(), 16):
        chunks.append(await reader.readexactly(size))
        await reader.readexactly(2)
    writer.close()
    assert b"".join(chunks).count(b"data: ") == 16 * 10 + 16 + 2
    assert len(chunks) <= 10


@pytest.mark.parametrize("mode", ["resident", "per-request"])
async def test_a_chat_is_answered_n_times_in_both_forms(serving: Serving, mode: str) -> None:
    served = await serving(engine_mode=mode)
    asked = {"messages": [{"role": "user", "content": "Once"}], "n": 3, "max_tokens": 5, "seed": 7}
    status, data = await served.post(asked, "/v1/chat/completions")
    assert status == 200
    answers = [choice["message"]["content"] for choice in json.loads(data)["choices"]]
    assert len(set(answers)) == 3
    chunks = await served.events({**asked, "stream": True}, "/v1/chat/completions")
    texts = ["", "", ""]
    for chunk in chunks:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["delta"].get("content") or ""
    assert texts == answers
    events = await served.events(asked)
    assert "".join(e["text"] for e in events if e["event"] == "stream" and e["index"] == 0) == answers[0]


async def test_unknown_fields_are_warnings_and_with_strict_errors(serving: Serving) -> None:
    served, strict = await serving(), await serving(strict=True)
    events = await served.events({"prompt": "x", "n": 1, "temprature": 1})
    assert events[0]["warnings"] == ['"temprature" is not a known field; did you mean "temperature"?']
    status, data = await strict.post({"prompt": "x", "temprature": 1})
    assert (status, json.loads(data)["error"]["param"]) == (400, "temprature")


SCHEMA = {"type": "array", "uniqueItems": True}
MESSAGES = [{"role": "user", "content": "Once"}]
LENIENT: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": "x"}),
    ("/openai/v1/completions", {"prompt": "x"}),
    ("/openai/v1/completions", {"prompt": "x", "stream": True}),
    ("/openai/v1/completions", {"prompt": ["x", "y"]}),
    ("/openai/v1/completions", {"prompt": ["x", "y"], "stream": True}),
    ("/v1/chat/completions", {"messages": MESSAGES}),
    ("/v1/chat/completions", {"messages": MESSAGES, "stream": True}),
    ("/v1/responses", {"input": "x"}),
    ("/v1/responses", {"input": "x", "stream": True}),
    ("/v1/messages", {"messages": MESSAGES, "max_tokens": 3}),
    ("/completion", {"prompt": "x"}),
    ("/api/v1/generate", {"prompt": "x"}),
    ("/api/generate", {"prompt": "x", "stream": False}),
]


async def test_what_the_engine_leaves_out_of_a_schema_is_a_warning_everywhere(serving: Serving) -> None:
    """Behind those about fields; without lenient there are none."""
    served = await serving()
    for path, body in LENIENT:
        for lenient in (True, False):
            asked = {**body, "n": 1, "json_schema": SCHEMA, "lenient": lenient, "unknown_field": 1}
            status, data = await served.post(asked, path)
            found = re.findall(rb'"warnings": ?(\[.*?\])', data)
            assert (status, found != []) == (200, True), (path, data)
            for warnings in map(json.loads, found):
                assert "unknown_field" in warnings[0], path
                assert [one[:25] for one in warnings[1:]] == ["json_schema: /uniqueItems"][:lenient], path


async def test_requests_stream_at_the_same_time(serving: Serving) -> None:
    served = await serving()
    runs = await asyncio.gather(*(served.events({"prompt": p, "seed": 1, "n": 2}) for p in ("a", "b", "a")))
    first, other, again = ([event for event in run if event["event"] == "stream"] for run in runs)
    assert first == again != other


async def test_a_stream_without_events_gets_comments(serving: Serving) -> None:
    served = await serving("--token-delay", "30", keep_alive=0.01)
    reader, writer = await served.connect({"prompt": "x", "n": 1})
    for _ in range(3):
        await reader.readuntil(b": keep-alive\n\n")
    writer.close()


async def test_a_slow_reader_gets_all_events_and_delays_no_other_client(serving: Serving) -> None:
    served = await serving("--flood", "--endless")
    reader, writer = await served.connect({"prompt": "slow", "n": 32, "max_tokens": 300})
    transport = writer.transport
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()
    assert (await served.events({"prompt": "quick", "n": 1, "max_tokens": 3}))[-1]["event"] == "done"
    transport.resume_reading()
    data = b""
    while b'"event": "done"' not in data[-1000:]:
        data += await reader.read(1 << 16)
    assert data.count(b'"event": "stream"') == 32 * 300
    writer.close()


# Clients that leave


def close(writer: asyncio.StreamWriter) -> None:
    writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize("leave", [close, reset])
@pytest.mark.parametrize("delay", ["0.002", "30"], ids=["busy engine", "silent engine"])
@pytest.mark.parametrize("stream", [None, True], ids=["events", "openai"])
async def test_a_client_that_leaves_cancels_at_once(
    serving: Serving, leave: Callable[[asyncio.StreamWriter], None], delay: str, stream: bool | None
) -> None:
    served = await serving("--endless", "--token-delay", delay)
    body = {"prompt": "x", "n": 4, "max_tokens": -1, "stream": stream}
    reader, writer = await served.connect(body)
    await reader.readuntil(b"data: ")
    left = time.monotonic()
    leave(writer)
    assert (await served.note("cancel"))["time"] - left < CANCEL_WITHIN
    await served.note("done")


async def test_a_client_that_waits_for_a_body_and_leaves_cancels_at_once(serving: Serving) -> None:
    served = await serving("--endless")
    _, writer = await served.connect({"prompt": "x", "max_tokens": -1, "stream": False})
    await served.note("generate")
    left = time.monotonic()
    writer.close()
    assert (await served.note("cancel"))["time"] - left < CANCEL_WITHIN


async def test_a_request_and_a_sequence_are_cancelled_by_name(serving: Serving) -> None:
    served = await serving("--endless")
    async with served.http.post(
        served.url + "/v1/events", json={"prompt": "x", "n": 2, "max_tokens": -1}
    ) as response:
        start = json.loads((await response.content.readuntil(b"\n\n")).removeprefix(b"data: "))
        for path in (f"{start['id']}/1", start["id"]):
            async with served.http.delete(f"{served.url}/v1/completions/{path}") as deleted:
                assert deleted.status == 200
        events = frames(await response.read())
    assert [event["index"] for event in events if event["event"] == "stop"] == [1, 0]
    assert {event["finish_reason"] for event in events if event["event"] == "stop"} == {"cancelled"}
    async with served.http.delete(f"{served.url}/v1/completions/{start['id']}") as deleted:
        assert deleted.status == 404


# Prefix, continue, extend

LONG = {"prompt": "word " * 16_000}  # half a minute of prefill


def in_flight(served: Served, path: str, body: Any) -> asyncio.Task[tuple[int, bytes]]:
    return asyncio.create_task(served.post(body, path))


@pytest.mark.parametrize(
    "options", [{}, {"engine_mode": "per-request", "prefix_cache": "kv"}], ids=["resident", "per-request"]
)
async def test_a_prefix_is_computed_and_superseded_by_the_next(
    serving: Serving, options: dict[str, str]
) -> None:
    served = await serving(**options)
    first = in_flight(served, "/v1/prefix", LONG)
    await served.note("prefix")
    status, data = await served.post({"prompt": "Once upon", "foo": 1}, "/v1/prefix")
    answer = json.loads(data)
    assert (status, answer["prompt_tokens"], answer["cached_tokens"]) == (200, 2, 0)
    assert "superseded" not in answer
    assert len(answer["warnings"]) == 1
    status, data = await first
    assert (status, json.loads(data)["superseded"]) == (200, True)


async def test_a_prefix_takes_the_body_of_the_chat_that_will_follow(serving: Serving) -> None:
    served = await serving()
    body = {"messages": [{"role": "user", "content": "Once upon"}], "logprobs": True, "store": False}
    status, data = await served.post(body, "/v1/prefix")
    answer = json.loads(data)
    assert (status, answer.get("prompt_tokens"), "warnings" in answer) == (200, 2, False), answer


async def test_a_client_that_waits_for_a_prefix_and_leaves_cancels_at_once(serving: Serving) -> None:
    served = await serving()
    waiting = in_flight(served, "/v1/prefix", LONG)
    await served.note("prefix")
    left = time.monotonic()
    waiting.cancel()
    assert (await served.note("cancel"))["time"] - left < CANCEL_WITHIN
    await served.note("done")


async def test_per_request_mode_refuses_prefix_and_continue(serving: Serving) -> None:
    served = await serving(engine_mode="per-request")
    status, data = await served.post({"prompt": "Once"}, "/v1/prefix")
    assert (status, "--prefix-cache" in json.loads(data)["error"]["message"]) == (409, True)
    for stream in (None, False):
        status, data = await served.post({"continue": {"id": "17", "index": 0}, "stream": stream})
        assert (status, json.loads(data)["error"]["param"]) == (400, "continue")


@pytest.mark.parametrize("mode", ["resident", "per-request"])
async def test_a_running_stream_is_extended(serving: Serving, mode: str) -> None:
    served = await serving("--endless", engine_mode=mode, max_n=8)
    async with served.http.post(
        served.url + "/v1/events", json={"prompt": "x", "n": 2, "max_tokens": -1}
    ) as response:
        id = json.loads((await response.content.readuntil(b"\n\n")).removeprefix(b"data: "))["id"]
        path = f"/v1/completions/cmpl-{id}/extend"
        status, data = await served.post({"add": 3, "fork": {"index": 1, "at": 1}, "foo": 1}, path)
        warnings = ['"foo" is not a known field']
        assert (status, json.loads(data)) == (200, {"id": id, "first": 2, "count": 5, "warnings": warnings})
        for body, param in (({"add": 4}, "add"), ({"fork": {"index": 5}}, "fork.index")):
            status, data = await served.post(body, path)
            assert (status, json.loads(data)["error"]["param"]) == (400, param)
        await served.http.delete(f"{served.url}/v1/completions/{id}")
        events = frames(await response.read())
    assert {"event": "extend", "first": 2, "count": 5} in events
    assert sorted(event["index"] for event in events if event["event"] == "stop") == list(range(5))
    assert events[-1]["count"] == 5
    status, data = await served.post({"add": 1}, path)
    assert (status, "continue" in json.loads(data)["error"]["message"]) == (404, True)


async def test_openais_chunks_have_the_added_choices(serving: Serving) -> None:
    served = await serving("--endless")
    body = {"prompt": "x", "max_tokens": -1, "stream": True}
    async with served.http.post(served.url + "/v1/completions", json=body) as response:
        id = json.loads((await response.content.readuntil(b"\n\n")).removeprefix(b"data: "))["id"]
        assert (await served.post({"add": 2, "max_tokens": 400}, f"/v1/completions/{id}/extend"))[0] == 200
        chunks = frames(await response.read())
    ends = {c["choices"][0]["index"]: c["choices"][0]["finish_reason"] for c in chunks}
    assert ends == dict.fromkeys(range(3), "length")


# Errors


async def test_a_crash_in_mid_stream_is_an_error_event_and_the_next_request_works(
    serving: Serving, tmp_path: Path
) -> None:
    served = await serving("--die-after", "20", "--only-first", str(tmp_path / "been here"))
    events = await served.events({"prompt": "x"})
    assert [events[0]["event"], events[-1]["event"], events[-1]["code"]] == ["start", "error", "engine_died"]
    assert (await served.events({"prompt": "x"}))[-1]["event"] == "done"


async def test_a_refusal_of_the_engine_is_a_400(serving: Serving) -> None:
    served = await serving()
    status, data = await served.post({"prompt": "word " * 20_000})
    error = json.loads(data)["error"]
    assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", "prompt")
    assert (error["type"], error["n_prompt_tokens"]) == ("exceed_context_size_error", 20_000)
    assert error["n_ctx"] == 16_384
    assert "20000" in error["message"]
    assert status == (await served.post({"prompt": "word " * 20_000, "stream": False}))[0]


async def test_max_body_and_max_n_are_settings(serving: Serving) -> None:
    """tests/support/bad_input.py has all other bad input."""
    served = await serving(max_body=65_536, max_n=16)
    for body, status, bound in ((b" " * 70_000, 413, "65536"), ({"prompt": "x", "n": 17}, 400, "16")):
        answered, data = await served.post(body)
        assert (answered, bound in json.loads(data)["error"]["message"]) == (status, True)


ROUTES = [
    ("GET", "/v1/completions", 405, "POST"),
    ("GET", "/v1/events", 405, "POST"),
    ("POST", "/health", 405, "GET,HEAD"),
    ("GET", "/nothing", 404, None),
]


async def test_wrong_routes_and_methods_are_json_too(serving: Serving) -> None:
    served = await serving()
    for method, path, status, allowed in ROUTES:
        async with served.http.request(method, served.url + path) as response:
            assert (response.status, response.content_type) == (status, "application/json")
            assert (await response.json())["error"]["type"] == "invalid_request_error"
            assert (response.headers.get("Allow") or "").replace(" ", "") == (allowed or "")


async def test_no_answer_to_head_has_a_body_so_the_next_answer_is_read(serving: Serving) -> None:
    served = await serving()
    wrong = []
    for route in [route for route in TABLE if "HEAD" in route.methods]:
        path = re.sub(r"\{[^}]*\}", "x", route.pattern)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
        writer.write(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        try:
            async with asyncio.timeout(PATIENCE):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = await reader.read()
        except (TimeoutError, asyncio.IncompleteReadError) as error:
            answer = repr(error).encode()
        writer.close()
        if not answer.startswith(b"HTTP/1.1 200 OK\r\n"):
            wrong.append((path, answer[:100]))
    assert wrong == []


SLASHES = [
    ("GET", "/v1/models/", "there is no /v1/models/ here; did you mean /v1/models?"),
    ("POST", "/v1//completions", "there is no /v1//completions here; did you mean /v1/completions?"),
    ("POST", "//v1/completions/", "there is no //v1/completions/ here; did you mean /v1/completions?"),
    ("GET", "//nothing", "there is no //nothing here"),
    ("GET", "//", "there is no // here"),
]


@pytest.mark.parametrize(("method", "path", "message"), SLASHES)
async def test_a_slash_too_many_is_a_404_that_names_the_path(
    serving: Serving, method: str, path: str, message: str
) -> None:
    served = await serving()
    async with served.http.request(method, URL(served.url + path, encoded=True)) as response:
        assert (response.status, (await response.json())["error"]["message"]) == (404, message)


async def test_a_slash_too_many_is_an_error_in_the_form_of_the_paths_server(serving: Serving) -> None:
    served = await serving()
    for path, read in (
        ("//api/tags", lambda e: e["error"]),
        ("/api/v1/model/", lambda e: e["detail"]["msg"]),
        ("//props", lambda e: (e["error"]["type"] == "not_found_error") * e["error"]["message"]),
    ):
        async with served.http.get(URL(served.url + path, encoded=True)) as response:
            said = read(await response.json())
        assert (response.status, "did you mean" in said) == (404, True)


async def test_an_unknown_path_is_an_error_in_the_form_of_the_api_that_it_belongs_to(
    serving: Serving,
) -> None:
    served = await serving()
    for path, read in (
        ("/v1/messages/batches", lambda e: e["error"]["message"] * (e["type"] == "error")),
        ("/api/nothing", lambda e: e["error"]),
        ("/api/extra/nothing", lambda e: e["detail"]["msg"]),
        ("/v1/nothing", lambda e: e["error"]["message"]),
    ):
        async with served.http.get(served.url + path) as response:
            assert (response.status, read(await response.json())) == (404, f"there is no {path} here")


# The other routes


async def test_health_reports_the_state_while_loading(serving: Serving) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    loading = asyncio.create_task(serving("--no-ready", port=port))
    async with aiohttp.ClientSession() as http:
        for _ in itertools.count():
            with contextlib.suppress(aiohttp.ClientConnectorError):
                async with http.get(f"http://127.0.0.1:{port}/health") as response:
                    state = await response.json()
                    if state["status"] == "loading" and state["progress"] == 0.5:
                        assert response.status == 503
                        break
            await asyncio.sleep(0.01)
    loading.cancel()
    await asyncio.wait({loading})


async def test_health_is_ok_when_ready(serving: Serving) -> None:
    served = await serving()
    async with served.http.get(served.url + "/health") as response:
        assert (response.status, await response.json()) == (200, {"status": "ok"})


async def test_models_has_the_facts_of_the_file(serving: Serving) -> None:
    served = await serving()
    async with served.http.get(served.url + "/v1/models") as response:
        (model,) = (await response.json())["data"]
    assert (model["id"], model["object"]) == ("storyteller", "model")
    assert model["meta"]["parameters"] == 4_458_752
    assert (model["meta"]["context"], model["meta"]["n_ctx"]) == (1024, 16384)


async def test_samplers_gives_the_table(serving: Serving) -> None:
    served = await serving()
    async with served.http.get(served.url + "/v1/samplers") as response:
        tables = await response.json()
    rows = {row["name"]: row for row in tables["samplers"]}
    assert (rows["temperature"]["default"], rows["temperature"]["aliases"]) == (0.8, ["temp"])
    assert {"preset", "dynatemp_low", "response_format"} <= tables["converted"].keys()


ORIGINS = [
    ("*", "http://a", "*"),
    ("http://a http://b", "http://b", "http://b"),
    ("http://a", "http://c", None),
    ("", "x", None),
]


@pytest.mark.parametrize(("setting", "origin", "allowed"), ORIGINS)
async def test_pages_of_allowed_origins_may_call(
    serving: Serving, setting: str, origin: str, allowed: str | None
) -> None:
    served = await serving(cors=setting)
    asked = {"Origin": origin, "Access-Control-Request-Headers": "content-type"}
    async with served.http.options(served.url + "/v1/completions", headers=asked) as preflight:
        assert preflight.status == 204
        assert preflight.headers.get("Access-Control-Allow-Origin") == allowed
        assert preflight.headers["Access-Control-Allow-Headers"] == "content-type"
    async with served.http.post(
        served.url + "/v1/events", json={"prompt": "x", "n": 1}, headers=asked
    ) as response:
        assert response.headers.get("Access-Control-Allow-Origin") == allowed


# OpenAI's form


NEGOTIATION: list[tuple[dict[str, Any], str, str]] = [
    ({}, "", "events"),
    ({}, "*/*", "events"),
    ({}, "text/event-stream", "events"),
    ({"stream": None, "model": None}, "*/*", "events"),
    ({}, "application/json", "openai"),
    ({}, "application/json, text/event-stream", "openai"),
    ({"stream": True}, "*/*", "openai"),
    ({"stream": False}, "text/event-stream", "openai"),
    ({"model": "m"}, "*/*", "openai"),
]


@each_row(("body", "accept", "dialect"), NEGOTIATION)
def test_accept_header_and_fields_choose_the_dialect(body: dict[str, Any], accept: str, dialect: str) -> None:
    assert negotiate("/v1/completions", body, accept=accept, default="events")[0] == dialect


async def test_openais_stream_and_body_have_the_same_texts(serving: Serving) -> None:
    served = await serving()
    body = {"prompt": "x", "n": 8, "seed": 3, "model": "storyteller"}
    status, data = await served.post({**body, "stream": True})
    assert data.endswith(b"data: [DONE]\n\n")
    streamed = [""] * 8
    for chunk in frames(data):
        (choice,) = chunk["choices"]
        streamed[choice["index"]] += choice["text"]
    whole = json.loads((await served.post(body))[1])
    assert [choice["text"] for choice in whole["choices"]] == streamed
    assert (status, whole["usage"]["completion_tokens"]) == (200, 8 * 16)


GUESSED: list[tuple[str, dict[str, Any], str, str | None]] = [  # path, body, content type, X-Form-Rule
    ("/v1/completions", {}, "text/event-stream", "default"),
    ("/v1/completions", {"api_type": "koboldcpp"}, "application/json", "client-marks"),
    ("/v1/completions", {"stream": False}, "application/json", None),
    ("/v1/events", {"api_type": "koboldcpp"}, "text/event-stream", None),
    ("/openai/v1/completions", {}, "application/json", None),
]


@pytest.mark.parametrize(("path", "body", "kind", "rule"), GUESSED)
async def test_a_header_names_the_rule_that_guessed_the_form(
    serving: Serving, path: str, body: dict[str, Any], kind: str, rule: str | None
) -> None:
    served = await serving()
    async with served.http.post(served.url + path, json={"prompt": "x", "n": 1} | body) as response:
        assert (response.status, response.content_type) == (200, kind)
        assert response.headers.get("X-Form-Rule") == rule


async def test_a_refused_guess_is_named_too(serving: Serving) -> None:
    served = await serving()
    async with served.http.post(served.url + "/v1/completions", json={"prompt": 1, "user": "u"}) as response:
        assert (response.status, response.headers["X-Form-Rule"]) == (400, "client-marks")


async def test_the_default_form_is_a_setting(serving: Serving) -> None:
    served = await serving(default_form="openai")
    for path, kind in (("/v1/completions", "application/json"), ("/v1/events", "text/event-stream")):
        async with served.http.post(served.url + path, json={"prompt": "x", "n": 1}) as response:
            assert (response.status, response.content_type) == (200, kind)


async def test_accept_may_stand_in_several_lines(serving: Serving) -> None:
    served = await serving()
    accept = [("Accept", "*/*"), ("Accept", "application/json")]
    async with served.http.post(
        served.url + "/v1/completions", json={"prompt": "x"}, headers=accept
    ) as response:
        assert response.content_type == "application/json"


async def test_all_of_openais_paths_are_under_openai_too(serving: Serving) -> None:
    served = await serving()
    async with served.http.get(served.url + "/openai/v1/models") as response:
        models = await response.json()
    async with served.http.get(f"{served.url}/openai/v1/models/{models['data'][0]['id']}") as response:
        assert response.status == 200
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    status, answer = await served.post(chat, "/openai/v1/chat/completions")
    assert (status, json.loads(answer)["object"]) == (200, "chat.completion")


async def test_accepting_json_gets_json(serving: Serving) -> None:
    served = await serving()
    status, data = await served.post({"prompt": "x"}, Accept="application/json")
    assert (status, len(json.loads(data)["choices"])) == (200, 1)


# Several prompts in one request

MANY = {"prompt": ["a", "b", "c"], "n": 2, "max_tokens": 500, "stream": True}


async def id_of(reader: asyncio.StreamReader) -> str:
    """The id in the first chunk of a stream, which is read no further."""
    while b"cmpl-" not in (line := await reader.readline()):
        assert line
    return str(json.loads(line.partition(b"data: ")[2])["id"])


async def test_one_id_ends_all_prompts_of_a_request(serving: Serving) -> None:
    served = await serving("--endless")
    reader, _ = await served.connect(MANY)
    async with served.http.delete(f"{served.url}/v1/completions/{await id_of(reader)}") as response:
        assert response.status == 200
    rest = (await reader.readuntil(b"[DONE]")).decode()
    assert rest.count('"finish_reason":"length"') == 6
    async with served.http.delete(f"{served.url}/v1/completions/{'0' * 32}") as response:
        assert response.status == 404


async def test_sequences_are_counted_over_all_prompts(serving: Serving) -> None:
    served = await serving("--endless")
    reader, _ = await served.connect(MANY)
    id = await id_of(reader)
    for index, status in ((3, 200), (9, 400)):
        async with served.http.delete(f"{served.url}/v1/completions/{id}/{index}") as response:
            assert response.status == status
    while b'"finish_reason":"length"' not in (line := await reader.readline()):
        assert line
    assert json.loads(line.partition(b"data: ")[2])["choices"][0]["index"] == 3
    body = json.dumps({"add": 1}).encode()
    status, _ = await served.post(body, f"/v1/completions/{id}/extend")
    assert status == 404, "which of the prompts?"


async def test_a_client_that_leaves_cancels_all_its_prompts(serving: Serving) -> None:
    served = await serving("--endless")
    reader, writer = await served.connect(MANY)
    await id_of(reader)
    await closed(writer)
    async with asyncio.timeout(PATIENCE):
        while len([note for note in served.noted() if note["what"] == "cancel"]) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
