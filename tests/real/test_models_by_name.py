"""A server of models with real engines: the types of its answers, and adapters that are named as models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_srb.bundled import CHECKOUT
from tests.real.answers import JSON, NDJSON, SSE, Description
from tests.support.models import write_adapter, write_model
from tests.support.rows import each_row
from tests.support.serving import Server, serving

ONCE = "Once upon a time,"
FEW: dict[str, Any] = {"prompt": ONCE, "max_tokens": 2, "n": 1, "temperature": 0}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
DIFFERENT = 0.2  # the least |Δ logprob| between two sets of adapters (test_adapters.py)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("several")
    write_model(folder / "small.gguf", "qwen3")
    for seed in (0, 1):
        write_adapter(folder / f"{seed}.gguf", "qwen3", seed)
    (folder / "srb.toml").write_text(f"""
        [models.tale]
        path = "{CHECKOUT}/models/storyteller.gguf"
        aliases = ["gpt"]
        preload = true
        ctx = 4096
        [models.small]
        path = "small.gguf"
        ctx = 2048
        [models.small.adapters]
        one = "0.gguf"
        two = "1.gguf"
        [models.broken]
        path = "small.gguf"
        engine_args = ["--cache-type-k", "no-such-type"]
        """)
    with serving("--config", str(folder / "srb.toml")) as server:
        yield server


@pytest.fixture(scope="module")
def description(server: Server) -> Description:
    return Description(server.json("GET", "/openapi.json")[1])


def score(server: Server, **fields: Any) -> float:
    status, answer = server.json("POST", "/v1/score", {"prompt": ONCE, "texts": [" a dog"], **fields})
    assert status == 200, answer
    return float(answer["data"][0]["sum"])


def test_an_adapters_name_is_its_model_with_the_adapter_and_without_a_name_it_is_off(server: Server) -> None:
    base = score(server, model="small")
    for name, id in (("one", 0), ("two", 1)):
        named = score(server, model=name)
        assert abs(named - base) > DIFFERENT
        assert named == pytest.approx(score(server, model="small", lora=[{"id": id, "scale": 1}]), abs=1e-3)
    assert score(server, model="small", lora=[]) == pytest.approx(base, abs=1e-3)


CASES: list[tuple[str, Any, int, str]] = [
    ("GET /v1/models", None, 200, JSON),
    ("GET /v1/stats", None, 200, JSON),
    ("GET /v1/loads", None, 200, JSON),
    ("GET /server_info", None, 200, JSON),
    ("GET /model_info", None, 200, JSON),
    ("GET /health", None, 200, JSON),
    ("GET /api/tags", None, 200, JSON),
    ("GET /api/ps", None, 200, JSON),
    ("GET /v1/model/list", None, 200, JSON),
    ("GET /v1/internal/model/list", None, 200, JSON),
    *((f"POST {path}", {**body, "model": model}, status, JSON)
      for model, status in (("gpt", 200), ("small", 200), ("one", 200), ("onne", 404))
      for path, body in (
          ("/openai/v1/completions", FEW),
          ("/v1/chat/completions", CHAT),
          ("/v1/responses", {"input": "Hi", "max_output_tokens": 2}),
          ("/completion", FEW),
          ("/api/v1/generate", {"prompt": ONCE, "max_length": 2}),
          ("/api/chat", {**CHAT, "stream": False, "options": {"num_predict": 2}, "max_tokens": None}),
          ("/v1/messages", CHAT),
          ("/v1/messages/count_tokens", CHAT),
          ("/v1/prefix", {"prompt": ONCE}),
          ("/tokenize", {"content": ONCE}),
      )),
    ("POST /v1/events", {**FEW, "model": "one"}, 200, SSE),
    ("POST /api/generate", {"model": "one", "prompt": ONCE, "options": {"num_predict": 2}}, 200, NDJSON),
    ("POST /v1/completions", {**FEW, "model": "broken", "stream": False}, 503, JSON),
]  # fmt: skip


@each_row(("route", "body", "status", "form"), CASES)
def test_answers_are_as_described(
    server: Server, description: Description, route: str, body: Any, status: int, form: str
) -> None:
    method, path = route.split()
    found, headers, data = server.call(method, path, body)
    assert (found, headers.get_content_type()) == (status, form), data[:1000]
    description.check(route, status, form, data)


def test_the_answers_of_a_model_are_those_of_a_server_of_its_own(server: Server, tmp_path: Path) -> None:
    with serving("--ctx", "4096") as alone:
        expected = alone.json("POST", "/openai/v1/completions", {**FEW, "max_tokens": 20})[1]
    found = server.json("POST", "/openai/v1/completions", {**FEW, "max_tokens": 20, "model": "gpt"})[1]
    assert found["choices"] == expected["choices"]
    assert found["system_fingerprint"] == expected["system_fingerprint"]


def test_a_model_that_fails_disturbs_no_other(server: Server) -> None:
    server.call("POST", "/v1/completions", {**FEW, "model": "broken", "stream": False})
    states = {one["id"]: one["status"]["value"] for one in server.json("GET", "/v1/models")[1]["data"]}
    assert (states["broken"], states["tale"]) == ("failed", "loaded")
    status, answer = server.json("GET", "/health/ready")
    assert (status, list(answer["failed"])) == (200, ["broken"])
    told = server.events({**FEW, "model": "gpt"}, "/v1/events")
    assert told[-1]["event"] == "done"
    assert json.dumps(told)
