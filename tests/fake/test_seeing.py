"""Metrics, stats, health and log lines of a server."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from llama_srb.serving.observe import logs
from tests.support.served import Served, Serving, bearer, key_file
from tests.support.waiting import PATIENCE, until


async def text_of(served: Served, path: str, **headers: str) -> tuple[int, str]:
    async with served.http.get(served.url + path, headers=headers) as response:
        return response.status, await response.text()


async def measured(served: Served) -> dict[tuple[str, ...], float]:
    """Every sample of /metrics, by its name and the values of its labels."""
    status, text = await text_of(served, "/metrics")
    assert status == 200
    families = text_string_to_metric_families(text)
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


async def test_metrics_count_requests_tokens_and_times(serving: Serving) -> None:
    served = await serving()
    for _ in range(2):
        await served.events({"prompt": "one two three", "n": 4, "max_tokens": 5})
    _, sent = await served.post({"prompt": "x", "stream": False, "max_tokens": 5, "draft": True})
    guessed = {"accepted_prediction_tokens": 4, "rejected_prediction_tokens": 1}
    assert json.loads(sent)["usage"]["completion_tokens_details"] == guessed
    await served.post({"prompt": "x", "options": {"num_predict": 5}}, "/api/generate")
    await served.post({"prompt": "x", "n": -1}, "/v1/events")
    await served.post(b"{", "/nowhere")
    found = await measured(served)
    expected = {
        ("llama_srb_requests_total", "events", "/v1/completions", "200"): 2,
        ("llama_srb_requests_total", "openai", "/v1/completions", "200"): 1,
        ("llama_srb_requests_total", "ollama", "/api/generate", "200"): 1,
        ("llama_srb_requests_total", "events", "/v1/events", "400"): 1,
        ("llama_srb_requests_total", "none", "other", "404"): 1,
        ("llama_srb_prompt_tokens_total",): 8,
        ("llama_srb_completion_tokens_total",): 50,
        ("llama_srb_engine_step_tokens_total",): 50,
        ("llama_srb_engine_draft_prompt_tokens_total",): 5,
        ("llama_srb_first_token_seconds_count", ""): 4,
        ("llama_srb_engine_starts_total",): 1,
        ("llama_srb_engine_ready",): 1,
    }
    assert {name: found[name] for name in expected} == expected
    assert found["llama_srb_between_tokens_seconds_count", ""] <= 16
    steps = found["llama_srb_engine_steps_total",]
    assert steps >= 20
    assert found["llama_srb_engine_step_seconds_total",] == 2 * steps
    assert found["llama_srb_engine_model_seconds_total",] == 1.5 * steps
    assert found["llama_srb_engine_memory_bytes",] > 1_000_000


async def test_metrics_count_engines_and_answer_while_one_hangs(serving: Serving, tmp_path: Path) -> None:
    crashed = await serving("--die-after", "3", "--only-first", str(tmp_path / "been here"))
    assert (await crashed.events({"prompt": "x"}))[-1]["event"] == "error"
    assert (await crashed.events({"prompt": "x"}))[-1]["event"] == "done"
    assert (await measured(crashed))["llama_srb_engine_starts_total",] == 2
    hung = await serving("--hang-after", "1")
    stream = asyncio.create_task(hung.post({"prompt": "x"}))
    await hung.note("hanging")
    assert (await measured(hung))["llama_srb_requests_open",] == 1
    stream.cancel()


async def test_stats_are_counts_as_an_object(serving: Serving) -> None:
    served = await serving()
    await served.events({"prompt": "one two", "n": 3, "max_tokens": 5})
    status, text = await text_of(served, "/v1/stats")
    stats = json.loads(text)
    shown = {name: stats[name] for name in ("status", "requests", "prompt_tokens", "completion_tokens")}
    assert shown == {"status": "ready", "requests": 1, "prompt_tokens": 2, "completion_tokens": 15}
    assert (status, stats["engine"]["requests"]) == (200, 0)


async def test_metrics_need_their_scope(serving: Serving, tmp_path: Path) -> None:
    file = key_file(tmp_path / "keys", {"name": "ann"}, {"name": "scraper", "scopes": ["metrics"]})
    served = await serving(api_key_file=str(file))
    for path in ("/metrics", "/v1/stats"):
        statuses = [(await text_of(served, path, **bearer(key)))[0] for key in ("ann", "scraper")]
        assert statuses == [403, 200]


async def test_live_and_ready_have_their_own_paths(serving: Serving) -> None:
    served = await serving("--exit-while-loading", "1", "--only-first", "/dev/null")
    for path in ("/health", "/health/live", "/health/ready"):
        assert await text_of(served, path) == (200, '{"status":"ok"}\n')


NAMES = [("a-name.of_mine", True), ("", False), ("two words", False), ("x" * 65, False), ("ä", False)]


@pytest.mark.parametrize(("wanted", "taken"), NAMES)
async def test_the_answer_has_the_request_id_of_the_log_line(
    serving: Serving, caplog: pytest.LogCaptureFixture, wanted: str, taken: bool
) -> None:
    caplog.set_level("INFO")
    served = await serving()
    url = served.url + "/v1/events"
    body = {"prompt": "x", "n": 1, "max_tokens": 1}
    async with served.http.post(url, json=body, headers={"X-Request-Id": wanted}) as response:
        name = response.headers["X-Request-Id"]
        await response.read()
    assert (name == wanted) == taken
    assert logs.PLAIN_ID.fullmatch(name)
    async with asyncio.timeout(PATIENCE):
        while name not in caplog.text:  # noqa: ASYNC110 (the line is written after the answer)
            await asyncio.sleep(0.005)


async def test_a_client_that_leaves_before_the_answer_begins_is_a_line_in_the_log(
    serving: Serving, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    served = await serving("--endless")
    prepare = web.StreamResponse.prepare

    async def prepare_too_late(self: web.StreamResponse, http: web.Request) -> object:
        if isinstance(http, web.Request) and http.transport:
            http.transport.close()  # aiohttp has not cancelled the handler yet
        return await prepare(self, http)

    monkeypatch.setattr(web.StreamResponse, "prepare", prepare_too_late)
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await served.post({"prompt": "x", "n": 1, "max_tokens": -1}, "/v1/events")
    await served.note("cancel")
    await until(lambda: "client left" in caplog.text)
    assert "Traceback" not in caplog.text


async def test_the_log_says_why_a_page_was_refused_and_how_to_let_it_in(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    served = await serving()
    assert (await text_of(served, "/v1/models", Origin="https://lite.koboldai.net"))[0] == 403
    await until(lambda: "--cors https://lite.koboldai.net would let them" in caplog.text)


def test_json_lines_hold_name_and_fields_and_exceptions() -> None:
    form = logs.formatter("json")
    logs.request_id.set("seven")
    record = logging.LogRecord("llama_srb.x", logging.INFO, "", 0, "a %s\nb", ("line",), None)
    record.fields = {"seconds": 1.5}
    line = form.format(record)
    row = json.loads(line)
    assert "\n" not in line
    shown = {name: row[name] for name in ("level", "logger", "message", "request_id", "seconds")}
    assert shown == {
        "level": "info", "logger": "llama_srb.x", "message": "a line\nb", "request_id": "seven",
        "seconds": 1.5,
    }  # fmt: skip


@pytest.mark.parametrize("shown", [False, True])
async def test_prompts_are_logged_only_when_asked_for(
    serving: Serving, caplog: pytest.LogCaptureFixture, shown: bool
) -> None:
    logs.show_wire(shown)
    caplog.set_level("DEBUG")
    served = await serving()
    await served.events({"prompt": "hunter2", "n": 1, "max_tokens": 1})
    logs.show_wire(True)
    assert ("hunter2" in caplog.text) == shown
