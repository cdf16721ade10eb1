"""Requests that the openai package and Codex really sent, against a model that calls a tool once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.clients.captured import Captured, read
from tests.support.agent import ANSWER, ARGUMENT, THOUGHT, write_agent_model
from tests.support.rows import each_row
from tests.support.serving import Server, serving

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
OPENAI = {one.what: one for one in read("openai_responses.json")}
CODEX = {one.what: one for one in read("codex.json")}
SAID = [("message", ANSWER)]
CALLED = [("reasoning", THOUGHT), ("function_call", ARGUMENT)]
CALLED_CUSTOM = [("reasoning", THOUGHT), ("custom_tool_call", ARGUMENT)]
PARSED = [("message", '{"kind":"file"}')]
EXPECTED = {  # the items of the output, each with its text, by the request
    "create": SAID, "settings": SAID, "stream": SAID, "cut off": [("message", ANSWER[:2])],
    "tools, 1": CALLED, "tools, 2": SAID, "required": CALLED, "custom": CALLED_CUSTOM,
    "parse": PARSED, "parse tool": CALLED, "helper": PARSED,
    "a function, 1": CALLED, "a function, 2": SAID,
    "a custom tool, 1": CALLED_CUSTOM, "a custom tool, 2": SAID,
}  # fmt: skip
REFUSED = {"stored": "previous_response_id", "background": "background"}


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    """Servers by the tool that their model calls: exec_command or shell, apply_patch."""
    folder = tmp_path_factory.mktemp("agents")
    for names in ("esw", "a"):
        write_agent_model(folder / f"{names}.gguf", names)
    with (
        serving("--model", str(folder / "esw.gguf"), "--ctx", "65536", "--request-timeout", "60") as first,
        serving("--model", str(folder / "a.gguf"), "--ctx", "65536", "--request-timeout", "60") as second,
    ):
        yield {"esw": first, "a": second}


def server_of(agents: dict[str, Server], what: str) -> Server:
    return agents["a" if what.startswith("a custom tool") else "esw"]


def events_of(data: bytes) -> list[dict[str, Any]]:
    *parts, rest = data.decode().split("\n\n")
    assert rest == "", "the last frame is complete"
    lines = [part.split("\n") for part in parts if not part.startswith(":")]
    events: list[dict[str, Any]] = [json.loads(line.removeprefix("data: ")) for _, line in lines]
    assert [name for name, _ in lines] == [f"event: {event['type']}" for event in events]
    return events


def response_of(request: Captured, data: bytes) -> dict[str, Any]:
    """The response; each event of a stream must be one of the openai package's."""
    if not request.fields.get("stream"):
        body: dict[str, Any] = json.loads(data)
        return body
    events = events_of(data)
    for number, event in enumerate(events):
        assert EVENT.validate_python(event).type == event["type"]
        assert event["sequence_number"] == number
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    last: dict[str, Any] = events[-1]["response"]
    assert last["output"] == done
    return last


def text_of(item: dict[str, Any]) -> str:
    if item["type"] == "function_call":
        (text,) = json.loads(item["arguments"]).values()
    elif item["type"] == "custom_tool_call":
        text = item["input"]
    else:
        (part,) = item["content"]
        text = part["text"]
    assert isinstance(text, str)
    return text


def test_there_is_an_expectation_for_each_request() -> None:
    assert EXPECTED.keys() | REFUSED.keys() | {"too little context, 1"} == OPENAI.keys() | CODEX.keys()


@each_row("what", EXPECTED)
def test_a_request_is_answered_as_its_client_expects(agents: dict[str, Server], what: str) -> None:
    request = (OPENAI | CODEX)[what]
    status, _, data = request.send(server_of(agents, what))
    assert status == 200, data
    response = response_of(request, data)
    Response.model_validate(response)
    assert [(item["type"], text_of(item)) for item in response["output"]] == EXPECTED[what]
    cut_off = what == "cut off"
    assert response["status"] == ("incomplete" if cut_off else "completed")
    assert response["incomplete_details"] == ({"reason": "max_output_tokens"} if cut_off else None)


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_here_is_refused_by_name(agents: dict[str, Server], what: str) -> None:
    status, _, data = OPENAI[what].send(agents["esw"])
    error = json.loads(data)["error"]
    assert (status, error["param"], error["type"]) == (400, REFUSED[what], "invalid_request_error")
    assert "here" in error["message"]


SHELL = {
    "type": "function", "name": "shell", "description": "Runs a command.",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}  # fmt: skip


def test_the_ai_sdk_names_a_thought_and_openais_agents_the_response(agents: dict[str, Server]) -> None:
    """As @ai-sdk/openai 3.0.141 and openai-agents 0.24.0 send it (tests/conformance/responses.py)."""
    server, user = (
        agents["esw"],
        {"role": "user", "content": [{"type": "input_text", "text": "What is here?"}]},
    )
    asked = {"model": "agent", "tools": [SHELL], "tool_choice": "auto"}
    _, first = server.json("POST", "/v1/responses", asked | {"input": [user]})
    thought, call = first["output"]
    said = {name: call[name] for name in ("type", "call_id", "name", "arguments")}
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "README.md"}
    reference = {"type": "item_reference", "id": thought["id"]}
    forms = (
        {"input": [user, reference, said, result]},
        {"input": [result], "previous_response_id": first["id"]},
        {"input": [user, thought, call, result], "store": False},
    )
    answers = [server.json("POST", "/v1/responses", asked | one)[1] for one in forms]
    texts = [[text_of(item) for item in one["output"]] for one in answers]
    assert texts == [[ANSWER]] * 3
    assert len({one["usage"]["input_tokens"] for one in answers}) == 1


def test_codexs_next_request_finds_its_prompt_in_the_cache(agents: dict[str, Server]) -> None:
    used = [
        response_of(CODEX[what], CODEX[what].send(agents["esw"])[2])["usage"]
        for what in ("a function, 1", "a function, 2")
    ]
    assert used[1]["input_tokens_details"]["cached_tokens"] > 0.9 * used[0]["input_tokens"]


def test_codex_is_told_of_the_tools_that_are_not_here(agents: dict[str, Server]) -> None:
    """tool_search and web_search; custom tools and namespaces are here."""
    request = CODEX["a custom tool, 1"]
    warnings = response_of(request, request.send(agents["a"])[2])["warnings"]
    assert [warning.split('"')[1] for warning in warnings] == ["tool_search", "web_search"]
    tools = {tool["type"] for one in CODEX.values() for tool in one.fields["tools"]}
    assert tools == {"function", "custom", "namespace", "tool_search", "web_search"}


def test_too_long_a_prompt_of_codex_is_a_bad_request(tmp_path: Path) -> None:
    write_agent_model(tmp_path / "agent.gguf")
    with serving("--model", str(tmp_path / "agent.gguf"), "--ctx", "4096") as server:
        status, _, data = CODEX["too little context, 1"].send(server)
    error = json.loads(data)["error"]
    assert (status, error["param"]) == (400, "input")
    assert "exceeds" in error["message"]
