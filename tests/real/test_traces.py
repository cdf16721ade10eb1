"""Traces of requests to the real engine: its own times are those of the spans."""

from __future__ import annotations

import aiohttp
import pytest

from llama_srb.config import load
from tests.support.collector import collecting
from tests.support.places import BINARY
from tests.support.served import frames, running


async def test_the_span_of_decode_lasts_as_long_as_the_engine_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    body = {"prompt": "Once upon a time there was " * 60, "n": 4, "max_tokens": 30}
    async with collecting() as collector:
        given = {"port": 0, "ctx": 4096, "engine": str(BINARY), "stop_grace": 0}
        settings = load({**given, "otlp_traces_endpoint": collector.url}, environ={})
        async with running(settings) as url, aiohttp.ClientSession() as http:
            async with http.post(url + "/v1/events", json=body) as response:
                done = frames(await response.read())[-1]
            await collector.until(lambda spans: len(spans) == 4)
    (span,) = collector.servers
    children = collector.children(span)
    lasted = {one.name: one.span.end_time_unix_nano - one.span.start_time_unix_nano for one in children}
    assert lasted["decode"] / 1e6 == pytest.approx(done["timings"]["decode_ms"], abs=0.01)
    assert lasted.keys() == {"queue", "prefill", "decode"}
    assert min(lasted.values()) > 0
    assert span.attributes["gen_ai.usage.input_tokens"] == done["prompt_tokens"]
    assert span.attributes["gen_ai.usage.output_tokens"] == done["completion_tokens"]
