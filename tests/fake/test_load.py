"""Queues are bounded and slow requests, bodies and readers are ended, without effect on other clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.served import Serving, bearer, frames, key_file
from tests.support.waiting import PATIENCE

ENDLESS = {"prompt": "x", "n": 1, "max_tokens": -1}


async def test_a_full_queue_is_503_with_retry_after(serving: Serving) -> None:
    served = await serving("--endless", parallel=1, max_queue=1)
    async with served.http.post(served.url + "/v1/events", json=ENDLESS) as first:
        await first.content.readuntil(b"\n\n")
        async with served.http.post(served.url + "/v1/events", json=ENDLESS) as second:
            assert b'"queued"' in await second.content.readuntil(b"\n\n")
            async with served.http.post(served.url + "/v1/events", json=ENDLESS) as third:
                assert (third.status, third.headers["Retry-After"]) == (503, "5")
                assert (await third.json())["error"]["code"] == "queue_full"


async def test_a_request_that_waits_too_long_is_an_error_and_a_running_one_goes_on(serving: Serving) -> None:
    served = await serving("--endless", parallel=1, queue_timeout=0.2)
    async with served.http.post(served.url + "/v1/events", json=ENDLESS) as first:
        await first.content.readuntil(b"\n\n")
        events = await served.events(ENDLESS)
        assert [events[0]["event"], events[-1]["code"]] == ["queued", "timed_out"]
        for _ in range(50):
            assert b'"stream"' in await first.content.readuntil(b"\n\n")


TIME_LIMITS = {"server": ({"request_timeout": 1}, {}), "request": ({}, {"timeout": 1}),
               "the sooner": ({"request_timeout": 60}, {"timeout": 1})}  # fmt: skip


@pytest.mark.parametrize(("settings", "fields"), TIME_LIMITS.values(), ids=TIME_LIMITS)
async def test_a_request_that_runs_too_long_ends_with_its_text_so_far(
    serving: Serving, settings: dict[str, Any], fields: dict[str, Any]
) -> None:
    served = await serving("--endless", **settings)
    events = await served.events({**ENDLESS, "n": 2, **fields})
    assert [e["finish_reason"] for e in events if e["event"] == "stop"] == ["timeout"] * 2
    assert (events[-1]["event"], events[-1]["completion_tokens"] > 2) == ("done", True)


@pytest.mark.parametrize("mode", ["resident", "per-request"])
async def test_a_request_whose_time_is_over_before_it_begins_is_an_error(serving: Serving, mode: str) -> None:
    served = await serving("--endless", parallel=1, engine_mode=mode, max_engines=1)
    async with served.http.post(served.url + "/v1/events", json=ENDLESS) as first:
        await first.content.readuntil(b"\n\n")
        status, data = await served.post({**ENDLESS, "timeout": 0.2, "stream": False})
        assert (status, b"0.2 s (timeout)" in data) == (503, True)


async def test_other_apis_report_a_request_that_ran_too_long_as_unfinished(serving: Serving) -> None:
    served = await serving("--endless")
    paths = {"/v1/completions": "finish_reason", "/completion": "stop_type", "/api/generate": "done_reason"}
    body = {"prompt": "x", "stream": False, "timeout": 1, "max_tokens": -1}
    found = {}
    for path, name in paths.items():
        status, data = await served.post(body, path)
        found[name] = (status, f'"{name}":"{"limit" if name == "stop_type" else "length"}"' in data.decode())
    assert found == dict.fromkeys(paths.values(), (200, True))


async def test_a_client_with_many_requests_does_not_delay_another(serving: Serving, tmp_path: Path) -> None:
    """In per-request mode the pool decides the order; the resident engine schedules by the same rule."""
    file = key_file(tmp_path / "keys", {"name": "ann"}, {"name": "bob"})
    options = {"api_key_file": str(file), "engine_mode": "per-request", "max_engines": 1}
    served = await serving("--load-seconds", "0.3", **options)  # so that none ends before all have arrived
    order = []

    async def ask(name: str, n: int) -> None:
        body = {"prompt": "x", "n": n, "max_tokens": 2}
        async with served.http.post(served.url + "/v1/events", json=body, headers=bearer(name)) as response:
            assert b'"done"' in await response.read()
        order.append(name)

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for name, n in [*[("ann", 256)] * 5, ("bob", 1)]:
            group.create_task(ask(name, n))
            await asyncio.sleep(0.02)  # so that they arrive in this order
    assert order.index("bob") <= 2
    assert sorted(order) == ["ann"] * 5 + ["bob"]


async def test_a_reader_that_falls_behind_is_cut_off_alone(serving: Serving) -> None:
    served = await serving("--flood", "--endless", max_unread=2000)
    reader, writer = await served.connect({"prompt": "slow", "n": 32, "max_tokens": -1})
    transport = writer.transport
    assert isinstance(transport, asyncio.Transport)
    transport.pause_reading()
    await served.note("cancel")
    assert (await served.events({"prompt": "x", "n": 1, "max_tokens": 3}))[-1]["event"] == "done"
    transport.resume_reading()
    with contextlib.suppress(ConnectionError):  # a reset is fine, too
        while await reader.read(1 << 16):
            pass


async def test_a_reader_that_could_not_run_during_a_burst_is_not_behind(serving: Serving) -> None:
    served = await serving("--flood", max_unread=10)
    body = {"prompt": "x", "n": 32, "max_tokens": 100, "stream": False}
    status, answer = await served.post(body)
    assert (status, json.loads(answer)["usage"]["completion_tokens"] > 1000) == (200, True)


async def test_a_body_that_never_ends_is_408(serving: Serving) -> None:
    served = await serving(body_timeout=0.1)
    host, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    assert b" 408 " in await reader.readline()
    writer.close()


PADDING = b"a" * 5000
HEADERS = {
    "a long line": b"GET /" + 2 * PADDING + b" HTTP/1.1\r\n\r\n",
    "a long field": b"GET / HTTP/1.1\r\nX-A: " + 2 * PADDING + b"\r\n\r\n",
    "a long name": b"GET / HTTP/1.1\r\n" + 2 * PADDING + b": 1\r\n\r\n",
    "many fields": b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 5000 + b"\r\n",
    "a field that never ends": b"GET / HTTP/1.1\r\nX-A: " + 20 * PADDING,
}


@pytest.mark.parametrize("sent", HEADERS.values(), ids=HEADERS)
async def test_headers_are_bounded(serving: Serving, sent: bytes) -> None:
    served = await serving()
    host, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    async with asyncio.timeout(PATIENCE):
        assert b" 400 " in await reader.readline()
    writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n"])
async def test_a_connection_without_a_request_is_closed(serving: Serving, sent: bytes) -> None:
    served = await serving(idle_timeout=0.1)
    host, port = served.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    assert await reader.read() == b""
    writer.close()


async def test_500_connections_at_once_are_all_served(serving: Serving) -> None:
    """Server and clients share one thread here; tests/soak/load.py measures the server alone."""
    served = await serving("--flood", max_queue=1000)
    body: dict[str, Any] = {"prompt": "x", "n": 1, "max_tokens": 2}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def one() -> str:
            async with http.post(served.url + "/v1/events", json=body) as response:
                return str(frames(await response.read())[-1]["event"])

        assert await asyncio.gather(*(one() for _ in range(500))) == ["done"] * 500
