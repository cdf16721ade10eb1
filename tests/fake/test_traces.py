"""Traces: spans of requests as a collector gets them, with the fake engine and a real HTTP receiver."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from llama_srb.config import SettingsError, load
from llama_srb.serving.observe import gen_ai
from llama_srb.serving.observe.otel import MAX_BATCH, MAX_SPANS, OtelTraces
from tests.support.collector import Collector, Received, collecting
from tests.support.places import FAKE_COMMAND, ROOT
from tests.support.rows import each_row
from tests.support.rpc import Rpc, all_of, port_in
from tests.support.served import Served, Serving
from tests.support.sockets import connected, event, until
from tests.support.waiting import PATIENCE
from tests.support.waiting import until as holds

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
PHASES = ["queue", "prefill", "decode"]
SECRET = "hunter2"
CHAT = [{"role": "user", "content": SECRET}]


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")  # milliseconds, not 5 s
    async with collecting() as collector:
        yield collector


Start = Callable[..., Awaitable[Served]]


@pytest.fixture
def start(serving: Serving, collector: Collector) -> Start:
    """A function that starts servers whose traces the collector gets."""

    async def started(*flags: str, **options: Any) -> Served:
        return await serving(*flags, otlp_traces_endpoint=collector.url, **options)

    return started


async def server_span(collector: Collector, name: str = "") -> Received:
    """The only server span, of those with this name, once it has come."""
    await collector.until(lambda _: any(one.name.endswith(name) for one in collector.servers))
    (found,) = (one for one in collector.servers if one.name.endswith(name))
    return found


async def test_a_request_is_one_server_span_with_three_children_however_many_tokens_it_has(
    start: Start, collector: Collector
) -> None:
    served = await start("--endless")
    for n, tokens in ((1, 1), (8, 50)):
        await served.post({"prompt": "one two", "n": n, "max_tokens": tokens}, "/v1/events", **SAMPLED)
    await collector.until(lambda spans: len(collector.servers) == 2)
    assert len(collector.spans) == 2 * 4
    for span in collector.servers:
        assert (span.span.trace_id.hex(), span.span.parent_span_id.hex()) == (TRACE, PARENT)
        children = collector.children(span)
        assert [child.name for child in children] == PHASES
        assert {child.span.trace_id.hex() for child in children} == {TRACE}
        times = [(child.span.start_time_unix_nano, child.span.end_time_unix_nano) for child in children]
        assert times[0][1] == times[1][0], "each phase begins where the one before ends"
        assert times[1][1] == times[2][0]
        edges = [span.span.start_time_unix_nano, *(t for pair in times for t in pair)]
        assert edges == sorted(edges)
        assert edges[-1] <= span.span.end_time_unix_nano


async def test_the_attributes_are_those_of_the_conventions(start: Start, collector: Collector) -> None:
    served = await start()
    body = {
        "prompt": "one two three", "n": 4, "max_tokens": 5, "temperature": 0.5, "top_k": 7, "seed": 3,
        "stop": [SECRET],
    }  # fmt: skip
    url, headers = served.url + "/v1/events", {"X-Request-Id": "mine"}
    async with served.http.post(url, json=body, headers=headers) as response:
        first = json.loads((await response.read()).split(b"\n")[0].removeprefix(b"data: "))
    span = await server_span(collector)
    assert span.name == "POST /v1/events"
    assert span.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/events",
        "http.response.status_code": 200,
        "http.response.header.x-request-id": ["mine"],
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "llama_srb",
        "gen_ai.request.model": "storyteller",
        "gen_ai.response.model": "storyteller",
        "gen_ai.request.choice.count": 4,
        "gen_ai.request.max_tokens": 5,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_k": 7.0,
        "gen_ai.request.seed": 3,
        "gen_ai.response.id": first["id"],
        "gen_ai.response.finish_reasons": ["length"] * 4,
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.output_tokens": 20,
    }
    _, prefill, decode = collector.children(span)
    assert prefill.attributes == {
        "gen_ai.usage.input_tokens": 3, "gen_ai.usage.cache_read.input_tokens": 0,
    }  # fmt: skip
    assert decode.attributes == {"gen_ai.usage.output_tokens": 20}
    assert span.resource["service.name"] == "llama-srb"
    assert span.schema == gen_ai.SCHEMA_URL


def test_each_name_is_one_of_the_conventions() -> None:
    registry = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    constants = [value for name, value in vars(gen_ai).items() if name.isupper() and isinstance(value, str)]
    names = {value for value in constants if value.startswith("gen_ai.")}
    names |= {name for name, _ in gen_ai.SAMPLING.values()} | gen_ai.TEXTS
    assert len(names) == 20
    assert names - registry == set()


@pytest.mark.parametrize("shown", [False, True])
async def test_texts_are_in_spans_only_with_log_prompts(
    start: Start, collector: Collector, shown: bool
) -> None:
    served = await start("--endless", log_prompts=shown)
    told = await served.events(
        {"prompt": SECRET, "n": 2, "max_tokens": 3, "stop": [SECRET + "!"]}, "/v1/events"
    )
    await served.post({"messages": CHAT, "max_tokens": 3, "stream": False}, "/v1/chat/completions")
    await served.post({"prompt": SECRET, "lora": [{"name": SECRET}]})
    await collector.until(lambda _: len(collector.servers) == 3)
    sent = "\n".join(str(one.span) for one in collector.spans)
    assert (SECRET in sent) == shown
    generated = [
        "".join(one["text"] for one in told if one.get("index") == i and "text" in one) for i in (0, 1)
    ]
    assert all(generated)
    (span,) = (one for one in collector.servers if one.name.endswith("/v1/events"))
    assert gen_ai.TEXTS & span.attributes.keys() == (gen_ai.TEXTS if shown else set())
    if shown:
        output = json.loads(span.attributes["gen_ai.output.messages"])
        assert [one["parts"][0]["content"] for one in output] == generated
        for one in collector.servers[:2]:
            (message,) = json.loads(one.attributes["gen_ai.input.messages"])
            assert message == {"role": "user", "parts": [{"type": "text", "content": SECRET}]}


async def test_long_texts_are_cut(start: Start, collector: Collector) -> None:
    served = await start("--long-line", "100000", log_prompts=True)
    await served.post({"prompt": "x" * 100_000, "n": 3, "max_tokens": 2, "stop": ["y" * 50_000]})
    span = await server_span(collector)
    assert sum(map(len, (str(value) for value in span.attributes.values()))) < 20_000


async def test_a_wrong_traceparent_is_passed_over_and_an_unsampled_one_obeyed(
    start: Start, collector: Collector
) -> None:
    served = await start()
    for parent in ("00-x", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00", ""):
        await served.post({"prompt": "x", "n": 1, "max_tokens": 1}, traceparent=parent)
    await served.post({"prompt": "x", "n": 1, "max_tokens": 1}, "/v1/events", **SAMPLED)
    await server_span(collector, "/v1/events")
    found = [one.span for one in collector.servers if one.name.endswith("/v1/completions")]
    assert [(span.trace_id.hex() == TRACE, span.parent_span_id) for span in found] == [(False, b"")] * 3


async def test_each_kind_of_request_has_its_spans(start: Start, collector: Collector) -> None:
    served = await start("--endless")
    rows: list[tuple[str, Any, str | None, int]] = [  # path, body, operation, generations
        ("/v1/chat/completions", {"messages": CHAT, "max_tokens": 2, "n": 2}, "chat", 1),
        ("/v1/completions", {"prompt": ["x", "y z"], "max_tokens": 2, "n": 2}, "text_completion", 2),
        ("/api/generate", {"prompt": "x", "options": {"num_predict": 2}}, "text_completion", 1),
        ("/v1/messages", {"messages": CHAT, "max_tokens": 2}, "chat", 1),
        ("/v1/embeddings", {"input": "x"}, "embeddings", 0),
        ("/tokenize", {"content": "x"}, None, 0),
    ]
    for at, (path, body, operation, generations) in enumerate(rows):
        assert (await served.post({"stream": False, **body}, path))[0] == 200
        await collector.until(lambda _, count=at + 1: len(collector.servers) == count)  # type: ignore[misc]
        span = collector.servers[-1]
        assert (span.name, span.attributes.get("gen_ai.operation.name")) == (f"POST {path}", operation)
        names = [child.name for child in collector.children(span)]
        assert sorted(names) == sorted(PHASES * generations), path
    (several,) = (one for one in collector.servers if one.name == "POST /v1/completions")
    usage = {name: several.attributes[f"gen_ai.usage.{name}"] for name in ("input_tokens", "output_tokens")}
    assert (usage, several.attributes["gen_ai.request.choice.count"]) == (
        {"input_tokens": 3, "output_tokens": 8},
        2,
    )
    assert several.attributes["gen_ai.response.finish_reasons"] == ["length"] * 4


async def test_looks_at_health_and_metrics_and_unknown_paths_are_no_spans(
    start: Start, collector: Collector
) -> None:
    served = await start()
    for path in ("/health", "/metrics", "/v1/stats", "/", "/nothing"):
        async with served.http.get(served.url + path) as response:
            await response.read()
    await served.post({"prompt": "x", "n": 1, "max_tokens": 1}, "/v1/events")
    await server_span(collector)
    assert [one.name for one in collector.servers] == ["POST /v1/events"]


async def test_a_route_is_named_without_the_prefix(start: Start, collector: Collector) -> None:
    served = await start(api_prefix="/llm")
    async with served.http.get(f"{served.url}/health") as response:
        assert response.status == 200
    await served.post({"prompt": "x", "n": 1, "max_tokens": 1}, "/v1/events")
    span = await server_span(collector)
    assert (span.name, len(collector.servers)) == ("POST /v1/events", 1)


# What goes wrong


async def test_a_refused_request_is_a_span_without_children(start: Start, collector: Collector) -> None:
    served = await start()
    await served.post({"prompt": "x", "n": -1}, "/v1/events")
    span = await server_span(collector)
    assert (span.attributes["http.response.status_code"], span.failed) == (400, False)
    assert collector.children(span) == []


async def test_an_engine_that_dies_in_a_stream_is_an_error(start: Start, collector: Collector) -> None:
    served = await start("--die-after", "3", "--endless")
    await served.events({"prompt": "x", "n": 2, "max_tokens": -1})
    span = await server_span(collector)
    assert (span.failed, span.attributes["error.type"]) == (True, "engine_died")
    assert span.span.status.message == "", "messages may quote requests"
    assert [child.name for child in collector.children(span)] == PHASES


async def test_a_server_that_drains_answers_with_an_error(start: Start, collector: Collector) -> None:
    served = await start()
    async with served.http.post(served.url + "/drain") as response:
        assert response.status == 200
    await served.post({"prompt": "x"}, "/v1/events")
    span = await server_span(collector, "/v1/events")
    assert (span.failed, span.attributes["error.type"]) == (True, "503")


async def test_a_client_that_leaves_ends_its_span_and_no_error_is_told(
    start: Start, collector: Collector
) -> None:
    served = await start("--endless", parallel=1)
    body, address = {"prompt": "x", "max_tokens": -1}, served.url + "/v1/events"
    async with served.http.post(address, json={**body, "n": 1}) as decoding:
        await decoding.content.readuntil(b'"event": "stream"')
        waiting = asyncio.create_task(served.post({**body, "n": 2}, "/v1/events"))
        await served.note("generate", count=2)
        waiting.cancel()
        await collector.until(lambda _: len(collector.servers) == 1)
    await collector.until(lambda spans: len(collector.servers) == 2 and len(spans) == 2 + 4)
    queued, running = sorted(collector.servers, key=lambda one: len(collector.children(one)))
    assert [child.name for child in collector.children(queued)] == ["queue"]
    assert [child.name for child in collector.children(running)] == PHASES
    assert not queued.failed
    assert not running.failed


# Other connections


async def test_each_request_on_a_websocket_is_a_span_of_its_own(start: Start, collector: Collector) -> None:
    served = await start()
    async with connected(served, **SAMPLED) as socket:
        for id, body in (("a", {"n": 2}), ("b", {"n": 3}), ("c", {"n": -1})):
            message = {"op": "generate", "id": id, "prompt": "x", "max_tokens": 3, **body}
            await socket.send_json(message)
            await until(socket, lambda told: told["event"] in ("done", "error"))
        await collector.until(lambda _: len(collector.servers) == 3)
    assert {one.name for one in collector.servers} == {"GET /v1/ws"}
    assert {one.span.parent_span_id.hex() for one in collector.servers} == {PARENT}
    by_n = {one.attributes.get("gen_ai.request.choice.count"): one for one in collector.servers}
    assert by_n.keys() == {2, 3, None}
    assert [len(collector.children(by_n[n])) for n in (2, 3, None)] == [3, 3, 0]


async def test_each_turn_of_a_chat_is_a_span(start: Start, collector: Collector, tmp_path: Path) -> None:
    await start()  # writes the engine's script
    file = tmp_path / "srb.toml"
    file.write_text(f'engine = "{tmp_path / "engine"}"\n[tasks.story]\nmax_tokens = 3\nn = 2')
    served = await start(config=str(file))
    async with connected(served, "/v1/tasks/story/ws", **SAMPLED) as socket:
        for _ in range(2):
            await socket.send_json({"op": "turn", "text": "x"})
            await until(socket, event("done"))
        await collector.until(lambda _: len(collector.servers) == 2)
    assert {one.span.trace_id.hex() for one in collector.servers} == {TRACE}
    assert all(len(collector.children(one)) == 3 for one in collector.servers)


async def test_a_grpc_call_takes_over_the_trace_in_its_metadata(
    start: Start, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="llama_srb.server")
    await start(grpc=0)
    async with Rpc(port_in(caplog.text)) as rpc:
        rpc.metadata = (*rpc.metadata, *SAMPLED.items())
        await all_of(rpc.complete(prompt="x", n=3, max_tokens=2))
    span = await server_span(collector)
    assert (span.name, span.span.parent_span_id.hex()) == ("llama_srb.v1.LlamaSrb/Complete", PARENT)
    assert span.attributes["rpc.method"] == "Complete"
    assert span.attributes["gen_ai.request.choice.count"] == 3
    assert [child.name for child in collector.children(span)] == PHASES


# The collector


async def test_what_is_left_is_sent_when_the_server_stops(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    async with collecting() as collector:
        served = await serving(otlp_traces_endpoint=collector.url)
        await served.post({"prompt": "x", "n": 1, "max_tokens": 1})
        assert collector.spans == []
        await served.stack.aclose()
        assert len(collector.spans) == 4


async def test_a_dead_collector_costs_no_request_and_one_line(
    serving: Serving, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    caplog.set_level("INFO", logger="llama_srb.server")
    async with collecting() as collector:
        collector.status = 500
        served = await serving(otlp_traces_endpoint=collector.url)
        for _ in range(5):
            assert (await served.post({"prompt": "x", "n": 1, "max_tokens": 1}))[0] == 200
            before = collector.messages
            await holds(lambda before=before: collector.messages > before)  # type: ignore[misc]
        await holds(lambda: "takes no traces" in caplog.text)
        collector.status = 200
        await served.post({"prompt": "x", "n": 1, "max_tokens": 1})
        await holds(lambda: "takes traces again" in caplog.text)
    assert caplog.text.count("takes no traces") == 1
    assert "opentelemetry" not in caplog.text


async def test_of_a_collector_that_hangs_a_bounded_number_of_spans_is_kept(collector: Collector) -> None:
    collector.open.clear()
    async with OtelTraces(load({"otlp_traces_endpoint": collector.url}, environ={})) as traces:
        for _ in range(MAX_BATCH):
            with traces.request("before", {}, {}):
                pass
        await holds(lambda: collector.messages)
        for _ in range(2 * MAX_SPANS):
            with traces.request("then", {}, {}):
                pass
        collector.open.set()
    names = [one.name for one in collector.spans]
    assert MAX_SPANS - MAX_BATCH <= names.count("then") <= MAX_SPANS


async def test_a_collector_that_hangs_does_not_hold_up_the_end(collector: Collector) -> None:
    collector.open.clear()
    async with asyncio.timeout(PATIENCE):
        async with OtelTraces(load({"otlp_traces_endpoint": collector.url}, environ={})) as traces:
            with traces.request("x", {}, {}):
                pass
    assert collector.spans == []


# Off


def imported(folder: Path, *arguments: str) -> set[str]:
    """The top-level packages that a server has imported when it is ready."""
    command = [sys.executable, "-X", "importtime", "-m", "llama_srb.cli", "serve", "--port", "0", *arguments]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://")
        process.send_signal(signal.SIGTERM)
    lines = (folder / "log").read_text().splitlines()
    return {line.rpartition("|")[2].strip().split(".")[0] for line in lines if "|" in line}


def test_without_the_setting_nothing_of_it_is_imported(tmp_path: Path) -> None:
    engine = tmp_path / "engine"
    engine.write_text(f'#!/bin/sh\nexec {FAKE_COMMAND} "$@"\n')
    engine.chmod(0o755)
    ours = {"opentelemetry", "requests"}
    assert ours & imported(tmp_path, "--engine", str(engine)) == set()
    assert (
        ours & imported(tmp_path, "--engine", str(engine), "--otlp-traces-endpoint", "http://127.0.0.1:1")
        == ours
    )


async def test_without_its_packages_the_start_says_what_to_install(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "llama_srb.serving.observe.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(Exception, match=r"needs the package opentelemetry.*llama-srb\[otel\]"):
        await serving(otlp_traces_endpoint="http://127.0.0.1:1")


@each_row(
    ("given", "read"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces"),
        ("https://box.example/", "https://box.example/v1/traces"),
        ("http://[::1]:4318/custom/path", "http://[::1]:4318/custom/path"),
        ("localhost:4318", None),
        ("ftp://localhost", None),
        ("http://", None),
    ],
)
def test_the_address_of_the_collector(given: str, read: str | None) -> None:
    if read is None:
        with pytest.raises(SettingsError, match="http://localhost:4318"):
            load({"otlp_traces_endpoint": given}, environ={})
    else:
        assert load({"otlp_traces_endpoint": given}, environ={}).otlp_traces_endpoint == read
