"""The exact requests of the anthropic package and of Claude Code against the real server and engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import peers
from tests.clients.captured import Captured, read
from tests.support.models import CHAT_TEMPLATE, CHAT_TOKENS, write_model
from tests.support.rows import each_row
from tests.support.serving import Server, serving

PACKAGE, AGENT = read("anthropic.json"), read("claude_code.json")
JSON, SSE = "application/json", "text/event-stream"
REFUSED = ("too few tokens", "image")
CONTEXT = 131_072
ASKED = [one for one in AGENT if one.method == "POST"]


@pytest.fixture(scope="module")
def able(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A model whose template takes tools, with room for an agent's prompt."""
    path = tmp_path_factory.mktemp("able") / "able.gguf"
    template = CHAT_TEMPLATE.read_text()
    write_model(path, "llama", chat_template=template, control=list(CHAT_TOKENS), context=CONTEXT)
    with serving("--model", str(path), "--ctx", str(CONTEXT)) as server:
        yield server


def events_of(data: bytes) -> list[Any]:
    """The events of a stream, whose blocks are counted from 0 and of which one at a time is open."""
    *frames, rest = data.decode().split("\n\n")
    assert rest == ""
    events = []
    for frame in frames:
        name, told = frame.split("\n")
        events.append(json.loads(told.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    blocks = [(one["type"], one["index"]) for one in events if one["type"].startswith("content_block")]
    count = len({index for _, index in blocks})
    for i in range(count):
        kinds = [kind.removeprefix("content_block_") for kind, index in blocks if index == i]
        assert (kinds[0], kinds[-1], set(kinds[1:-1]) - {"delta"}) == ("start", "stop", set())
    assert [index for _, index in blocks] == sorted(index for _, index in blocks)
    return events


def message_of(server: Server, one: Captured) -> Any:
    """The message of an answer; of a stream without its content."""
    status, headers, data = one.send(server)
    form = SSE if one.fields.get("stream") else JSON
    assert (status, headers.get_content_type()) == (200, form), data
    if form == JSON:
        return json.loads(data)
    first, *_, end, last = events_of(data)
    assert (first["type"], end["type"], last) == ("message_start", "message_delta", {"type": "message_stop"})
    return first["message"] | end["delta"] | {"usage": end["usage"]}


def is_message(one: Captured) -> bool:
    return one.target == "/v1/messages" and one.what not in REFUSED and "thread" not in one.fields


def test_the_package_has_sent_every_kind_of_request() -> None:
    assert sum(map(is_message, PACKAGE)) >= 10
    assert any("thread" in one.fields for one in PACKAGE if one.body)
    assert {one.target for one in PACKAGE} == {"/v1/messages", "/v1/messages/count_tokens", "/v1/models"}


@each_row("one", list(filter(is_message, PACKAGE)), ids=str)
def test_the_packages_requests_are_answered(able: Server, one: Captured) -> None:
    message = message_of(able, one)
    assert (message["type"], message["role"], message["model"]) == ("message", "assistant", "able")
    assert message["stop_reason"] in ("end_turn", "max_tokens", "tool_use")
    assert message["usage"]["output_tokens"] > 0


@pytest.mark.parametrize("one", [one for one in PACKAGE if one.target.endswith("count_tokens")], ids=str)
def test_the_package_counts_what_a_message_has(able: Server, one: Captured) -> None:
    status, _, data = one.send(able)
    assert status == 200
    usage = message_of(able, replace(one, target="/v1/messages").having(max_tokens=1))["usage"]
    assert json.loads(data) == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


@pytest.mark.parametrize(
    "one", [one for one in PACKAGE if one.what in REFUSED or (one.body and "thread" in one.fields)], ids=str
)
def test_what_cannot_be_done_is_refused_in_anthropics_form(able: Server, one: Captured) -> None:
    status, headers, data = one.send(able)
    answer = json.loads(data)
    assert (status, headers.get_content_type(), answer["type"]) == (400, JSON, "error")
    assert answer["error"]["type"] == "invalid_request_error"


def test_the_package_lists_models(able: Server) -> None:
    (one,) = (one for one in PACKAGE if one.target == "/v1/models")
    status, _, data = one.send(able)
    assert (status, [model["id"] for model in json.loads(data)["data"]]) == (200, ["able"])


# Claude Code


def test_the_agent_finds_the_server(able: Server) -> None:
    for one in AGENT:
        if one.method == "HEAD":
            status, _, data = one.send(able)
            assert (status, data) == (200, b"")


@pytest.mark.parametrize("one", ASKED, ids=str)
def test_the_agents_prompt_is_counted(able: Server, one: Captured) -> None:
    status, _, data = replace(one, target="/v1/messages/count_tokens?beta=true").send(able)
    assert status == 200, data
    assert json.loads(data)["input_tokens"] > 20_000


@pytest.mark.parametrize("one", ASKED, ids=str)
def test_an_agent_with_too_long_a_prompt_is_told_so_in_the_words_it_knows(
    server: Server, one: Captured
) -> None:
    status, _, data = one.having(tools=[]).send(server)
    assert status == 400
    assert b"prompt is too long: " in data
    assert b" tokens > 1023 maximum" in data


def test_the_agents_second_request_finds_the_prompt_of_its_first(
    able: Server,
) -> None:
    first, second = (one.having(max_tokens=4) for one in ASKED if one.what == "default model")
    assert "tool_result" not in first.body
    assert "tool_result" in second.body
    begun = message_of(able, first)["usage"]
    usage = message_of(able, second)["usage"]
    assert usage["cache_read_input_tokens"] > 0.9 * (begun["input_tokens"] + begun["cache_read_input_tokens"])
    assert usage["output_tokens"] == 4


FAMILIES = (
    "Qwen3.5-4B",
    "Qwen-Qwen3-0.6B",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "GLM-4.6",
    "openai-gpt-oss-120b",
)


@pytest.mark.parametrize("family", FAMILIES)
def test_templates_of_real_families_take_the_agents_conversation(tmp_path: Path, family: str) -> None:
    template = Path(peers.setting("CMAKE_HOME_DIRECTORY"), "models/templates", family + ".jinja")
    path = tmp_path / "family.gguf"
    write_model(path, "llama", chat_template=template.read_text(), control=list(CHAT_TOKENS), context=CONTEXT)
    with serving("--model", str(path), "--ctx", "1024") as server:
        for one in ASKED:
            status, _, data = replace(one, target="/v1/messages/count_tokens").send(server)
            assert status == 200, data
            assert json.loads(data)["input_tokens"] > 20_000
