"""What /metrics counts of generations, of keys and under vLLM's names, with the fake engine."""

from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.support.measured import measured, measured_when
from tests.support.models import write_adapter
from tests.support.served import SECRET, Served, Serving, bearer, key_file
from tests.support.several import serve
from tests.support.sockets import connected, event, until

FINISHED = "llama_srb_finished_sequences_total"
HISTOGRAMS = ("queue_seconds", "request_seconds", "first_token_seconds")
CHAT = [{"role": "user", "content": "x"}]


async def stream(served: Served, body: dict[str, Any], **headers: str) -> Any:
    """A stream that has begun."""
    response = await served.http.post(served.url + "/v1/events", json=body, headers=headers)
    await response.content.readline()
    return response


async def until_finished(served: Served, count: int) -> dict[str, float]:
    """Waits until `count` sequences have ended; returns them by finish_reason."""
    found = await measured_when(served, lambda m: sum(m.by("dialect", FINISHED).values()) >= count)
    return found.by("finish_reason", FINISHED)


async def test_each_sequence_is_counted_once_with_its_dialect_and_its_end(serving: Serving) -> None:
    served = await serving("--endless", parallel=4)
    for path, body in (
        ("/v1/completions", {"prompt": "x", "n": 6, "max_tokens": 2}),
        ("/v1/completions", {"prompt": ["x", "y"], "n": 2, "max_tokens": 2, "stream": False}),
        ("/v1/completions", {"prompt": "x", "n": 2, "best_of": 5, "max_tokens": 2, "stream": False}),
        ("/v1/chat/completions", {"messages": CHAT, "n": 2, "max_tokens": 2}),
        ("/api/generate", {"prompt": "x", "options": {"num_predict": 2}}),
        ("/v1/events", {"prompt": "x", "n": 3, "max_tokens": -1, "timeout": 1}),
        ("/v1/completions", {"prompt": "x", "n": -1}),
        ("/v1/embeddings", {"input": "x"}),
    ):
        await served.post(body, path)
    async with connected(served) as socket:
        await socket.send_json({"op": "generate", "id": "a", "prompt": "x", "n": 2, "max_tokens": 2})
        await until(socket, event("done"))
    leaving = await stream(served, {"prompt": "x", "n": 7, "max_tokens": -1})
    leaving.close()
    ended = await until_finished(served, 6 + 4 + 5 + 2 + 1 + 3 + 2 + 7)
    assert ended == {"length": 20, "timeout": 3, "cancelled": 7}
    by_dialect = (await measured(served)).by("dialect", FINISHED)
    assert by_dialect == {"events": 16, "openai": 11, "ollama": 1, "websocket": 2}


async def test_what_an_error_ends_is_counted_as_error(serving: Serving, tmp_path: Path) -> None:
    served = await serving("--die-after", "9", "--endless", "--only-first", str(tmp_path / "been here"))
    told = await served.events({"prompt": "x", "n": 3, "max_tokens": -1})
    assert told[-1]["event"] == "error"
    assert (await measured(served)).by("finish_reason", FINISHED) == {"error": 3}
    assert (await measured(served)).sum("llama_srb_request_seconds_count") == 0


async def test_times_and_sizes_are_histograms_of_requests(serving: Serving) -> None:
    served = await serving()
    await served.events({"prompt": "one two three", "n": 4, "max_tokens": 5})
    await served.post({"prompt": "x", "stream": False, "n": 1, "max_tokens": 5})
    found = await measured(served)
    counts = {name: found.sum(f"llama_srb_{name}_count") for name in HISTOGRAMS}
    assert counts == dict.fromkeys(HISTOGRAMS, 2)
    sums = {
        name: found.sum(f"llama_srb_request_{name}_sum") for name in ("prompt_tokens", "completion_tokens")
    }
    assert sums == {"prompt_tokens": 4, "completion_tokens": 25}
    parts = [found.sum(f"llama_srb_{name}_sum") for name in HISTOGRAMS]
    assert 0 <= parts[0] <= parts[2] <= parts[1], "queued, then the first text, then the end"


async def test_a_request_that_is_cancelled_in_the_queue_has_no_times(serving: Serving) -> None:
    served = await serving("--endless", parallel=1)
    first = await stream(served, {"prompt": "x", "n": 1, "max_tokens": -1})
    second = asyncio.create_task(served.post({"prompt": "x", "n": 2, "max_tokens": -1}, "/v1/events"))
    await served.note("generate", count=2)
    second.cancel()
    assert await until_finished(served, 2) == {"cancelled": 2}
    assert (await measured(served)).sum("llama_srb_queue_seconds_count") == 1
    first.close()


async def test_only_configured_adapters_are_labels(serving: Serving, tmp_path: Path) -> None:
    folder = tmp_path / "adapters"
    folder.mkdir()
    for path in (tmp_path / "pirate.gguf", folder / "step-1.gguf", folder / "step-2.gguf"):
        write_adapter(path, "llama", 0)
    served = await serving(adapters=f"pirate={tmp_path / 'pirate.gguf'}", adapters_dir=str(folder))
    for name in ("step-1", "step-2"):
        body = {"lora_name": name, "lora_path": f"{name}.gguf"}
        assert (await served.post(body, "/v1/load_lora_adapter"))[0] == 200
    for named in (
        {"model": "pirate"},
        {"lora": [{"name": "pirate", "scale": 0.5}]},
        {"lora": [{"id": 0}]},
        {"lora": [{"id": 0}, {"name": "step-1", "scale": 0}]},
        {"model": "step-1"},
        {"lora": [{"name": "step-2"}]},
        {"lora": [{"id": 1}]},
        {"lora": [{"name": "pirate"}, {"name": "step-2"}]},
        {"lora": [{"name": "pirate", "scale": 0}]},
        {"lora": []},
        {"model": "no-such-model"},
        {},
    ):
        assert (await served.post({"prompt": "x", "n": 1, "max_tokens": 1, **named}))[0] == 200, named
    found = await measured(served)
    assert found.by("adapter", FINISHED) == {"pirate": 4, "other": 4, "": 4}
    assert found.by("adapter", "llama_srb_request_seconds_count") == {"pirate": 4, "other": 4, "": 4}


async def test_tokens_are_counted_by_the_names_of_keys_and_all_jwts_as_other(
    serving: Serving, tmp_path: Path
) -> None:
    file = key_file(tmp_path / "keys", {"name": "ann"}, {"name": "ben", "scopes": ["admin"]})
    served = await serving(api_key_file=str(file), jwt_secret=SECRET)
    claims = {"exp": time.time() + 60, "scope": "complete embed"}
    tokens = [jwt.encode({"sub": f"user-{i}", **claims}, SECRET, "HS256") for i in range(3)]
    for key in ("ann", "ann", "ben", *tokens):
        body = {"prompt": "one two three", "n": 2, "max_tokens": 5, "stream": False}
        assert (await served.post(body, **bearer(key)))[0] == 200
    assert (await served.post({"input": "one two"}, "/v1/embeddings", **bearer("ann")))[0] == 200
    found = await measured(served, **bearer("ben"))
    assert found.by("key", "llama_srb_key_tokens_total") == {"ann": 2 * 13 + 2, "ben": 13, "other": 3 * 13}


async def test_without_keys_tokens_have_no_key(serving: Serving) -> None:
    served = await serving()
    await served.post({"prompt": "one two", "n": 2, "max_tokens": 5, "stream": False})
    assert (await measured(served)).by("key", "llama_srb_key_tokens_total") == {"": 12}


async def test_vllms_names_have_the_sequences_that_run_and_wait(serving: Serving) -> None:
    served = await serving("--endless", parallel=4)
    streams = [await stream(served, {"prompt": "x", "n": 6, "max_tokens": -1})]
    found = await measured(served)
    names = {"num_requests_running": 4, "num_requests_waiting": 2}
    assert {name: found.sum(f"vllm:{name}", model_name="storyteller") for name in names} == names
    assert 0 < found.sum("vllm:kv_cache_usage_perc") < 0.1
    assert found.sum("vllm:kv_cache_usage_perc") == found.sum("llama_srb_kv_cache_usage_ratio")
    queued = asyncio.create_task(served.post({"prompt": "y", "n": 3}, "/v1/events"))
    await served.note("generate", count=2)
    assert (await measured(served)).sum("vllm:num_requests_waiting") == 2 + 3
    queued.cancel()
    streams[0].close()
    await until_finished(served, 9)
    found = await measured(served)
    assert {found.sum(f"vllm:{name}") for name in names} == {0}


@pytest.mark.parametrize("mode", ["resident", "per-request"])
async def test_vllms_names_have_numbers_when_no_engine_answers(serving: Serving, mode: str) -> None:
    served = await serving("--hang-after", "1", engine_mode=mode, max_engines=1)
    found = await measured(served)
    assert found.sum("vllm:num_requests_running") == 0
    streaming = await stream(served, {"prompt": "x", "n": 3})
    await served.note("hanging")
    waiting = asyncio.create_task(served.post({"prompt": "y", "n": 2}, "/v1/events"))

    numbers = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    found = await measured_when(served, lambda m: [m.sum(name) for name in numbers] == [3, 2])
    assert not math.isnan(found.sum("vllm:kv_cache_usage_perc"))
    waiting.cancel()
    streaming.close()


async def test_by_model_each_metric_of_generations_has_its_models_name(
    serving: Serving, tmp_path: Path
) -> None:
    several = await serve(serving, tmp_path, {"tale": {"aliases": ["gpt"]}, "poem": {}})
    for model, n in (("tale", 1), ("gpt", 2), ("poem", 3)):
        body = {"prompt": "x", "max_tokens": 2, "n": n, "model": model, "stream": False}
        assert (await several.served.post(body))[0] == 200
    found = await measured(several.served)
    assert found.by("model", FINISHED) == {"tale": 3, "poem": 3}
    assert found.by("model", "llama_srb_request_seconds_count") == {"tale": 2, "poem": 1}
    assert found.by("model", "llama_srb_key_tokens_total") == {"tale": 8, "poem": 7}
    names = {one.labels["model_name"] for one in found.samples if one.name.startswith("vllm:")}
    assert names == {"tale", "poem"}


async def test_stats_have_the_sums(serving: Serving) -> None:
    served = await serving()
    await served.post({"prompt": "one two", "n": 3, "max_tokens": 5, "stream": False})
    async with served.http.get(served.url + "/v1/stats") as response:
        stats = await response.json()
    assert (stats["finished_sequences"], stats["key_tokens"]) == (3, 17)
