"""The real anthropic client against the real server, the real engine and a model with a template."""

# ruff: noqa: E501 (a table)
from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Literal

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic, beta_tool
from anthropic.types import Message
from pydantic import BaseModel

from tests.support.chats import CITIES, HELLO, TOOLS, scripted
from tests.support.rows import each_row
from tests.support.served import key_file
from tests.support.serving import LASTING, Server, serving
from tests.support.waiting import PATIENCE

SCHEMA = TOOLS[0]["function"]["parameters"]
WEATHER: dict[str, Any] = {"name": "weather", "description": "Of a city.", "input_schema": SCHEMA}
TIME: dict[str, Any] = {"name": "time", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}}
RED_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": RED_PIXEL}}


@pytest.fixture(scope="module")
def server(chat_model: Path) -> Iterator[Server]:
    with serving("--model", str(chat_model), "--ctx", "16384") as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Anthropic]:
    with Anthropic(base_url=server.url, api_key="-", max_retries=0) as client:
        yield client


def asked(script: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """The arguments of a message. script: fields of this server that choose the model's first tokens."""
    script = scripted() if script is None else script
    return {"model": "chat", "messages": HELLO, "max_tokens": 8, "extra_body": script, **fields}


def ask(client: Anthropic, **fields: Any) -> Message:
    answer = client.messages.create(**asked(**fields))
    assert isinstance(answer, Message)
    return answer


def stream(client: Anthropic, **fields: Any) -> Message:
    """The message that the client joins from a stream's events."""
    with client.messages.stream(**asked(**fields)) as events:
        return events.get_final_message()


def a_call(**more: Any) -> dict[str, Any]:
    """Arguments that force a tool call, and end the text after it."""
    script = scripted("<tool_call>", "</tool_call>")
    script["logit_bias"].append([0, 300])  # token 0 ends the text as soon as the grammar allows it
    given = {"tools": [WEATHER, TIME], "tool_choice": {"type": "any"}, "max_tokens": 400, "script": script}
    return given | more


# Messages


def test_a_message(client: Anthropic) -> None:
    message = ask(client)
    (block,) = message.content
    assert block.type == "text"
    assert block.text
    assert (message.type, message.role, message.model) == ("message", "assistant", "chat")
    assert (message.stop_reason, message.stop_sequence) == ("max_tokens", None)
    assert message.id.startswith("msg_")
    assert message.usage.output_tokens == 8
    assert "warnings" not in message.to_dict()


def test_a_stream_and_a_body_have_the_same_message(client: Anthropic) -> None:
    script = {"temperature": 0, **scripted()}
    whole, joined = ask(client, script=script), stream(client, script=script)
    assert joined.content[0].to_dict()["text"] == whole.content[0].to_dict()["text"]
    assert (joined.stop_reason, joined.usage.output_tokens) == (whole.stop_reason, 8)
    assert joined.usage.cache_read_input_tokens


def test_the_order_of_events(client: Anthropic) -> None:
    events = list(client.messages.create(stream=True, **asked()))
    kinds = [event.type for event in events]
    deltas = kinds.count("content_block_delta")
    assert kinds == [
        "message_start", "content_block_start", *["content_block_delta"] * deltas, "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    assert deltas >= 2
    begun = events[0].message  # type: ignore[union-attr]
    assert (begun.content, begun.stop_reason, begun.usage.output_tokens) == ([], None, 0)


async def test_the_asynchronous_client(server: Server) -> None:
    async with AsyncAnthropic(base_url=server.url, auth_token="-", max_retries=0) as client:
        async with client.messages.stream(**asked()) as events:
            text = "".join([piece async for piece in events.text_stream])
        assert text == await events.get_final_text()


def test_the_system_prompt_and_earlier_messages_are_in_the_prompt(client: Anthropic) -> None:
    def tokens(**fields: Any) -> int:
        return client.messages.count_tokens(model="chat", **{"messages": HELLO, **fields}).input_tokens

    alone = tokens()
    assert tokens(system="Be brief.") > alone
    assert tokens(system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]) == (
        tokens(system="Be brief.")
    )
    assert tokens(tools=[WEATHER]) > alone
    called = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "a", "name": "weather", "input": {}}],
    }
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "7"}]}
    thought = {"type": "thinking", "thinking": "It may rain there.", "signature": "unsigned"}
    both = tokens(messages=[*HELLO, called, result])
    assert both > alone
    assert tokens(messages=[*HELLO, called | {"content": [thought, *called["content"]]}, result]) > both


COUNTED: dict[str, dict[str, Any]] = {
    "plain": {},
    "system": {"system": "Be brief."},
    "tools": {"tools": [WEATHER, TIME]},
    "no thinking": {"thinking": {"type": "disabled"}},
    "begun": {"messages": [*HELLO, {"role": "assistant", "content": "It is"}]},
}


@pytest.mark.parametrize("fields", COUNTED.values(), ids=list(COUNTED))
def test_counted_tokens_are_those_of_the_message(client: Anthropic, fields: dict[str, Any]) -> None:
    counted = client.messages.count_tokens(model="chat", **{"messages": HELLO, **fields})
    usage = ask(client, **fields).usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    assert counted.to_dict().keys() == {"input_tokens"}


def test_sampler_fields_of_this_server_are_extras(client: Anthropic) -> None:
    script = {"seed": 5, "temperature": 0.9, "min_p": 0.1, "banned_strings": ["e"], **scripted()}
    first, again = (ask(client, script=script).content[0].to_dict() for _ in range(2))
    assert first == again
    assert "e" not in str(first["text"])
    best = ask(client, script={"best_of": 4, **scripted()})
    assert best.usage.output_tokens == 32
    assert len(best.content) == 1


# Why a message ends


def test_a_stop_sequence_ends_a_message_and_is_named(client: Anthropic) -> None:
    text = ask(client, script={"temperature": 0, **scripted()}).content[0].to_dict()["text"]
    letter = str(text)[3]
    for told in (ask, stream):
        message = told(client, script={"temperature": 0, **scripted()}, stop_sequences=["<<END>>", letter])
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", letter)
        assert letter not in str([block.to_dict()["text"] for block in message.content])


def test_a_message_that_ends_by_itself_ends_its_turn(client: Anthropic) -> None:
    script = scripted()
    script["logit_bias"].append([0, 300])
    message = ask(client, script=script)
    assert (message.stop_reason, message.content, message.usage.output_tokens) == ("end_turn", [], 1)


# Tools


@pytest.mark.parametrize("told", [ask, stream], ids=["body", "stream"])
def test_a_required_tool_is_called(client: Anthropic, told: Any) -> None:
    message = told(client, **a_call(tool_choice={"type": "tool", "name": "time"}))
    assert message.stop_reason == "tool_use"
    (block,) = message.content
    assert (block.type, block.name) == ("tool_use", "time")
    assert block.id
    assert block.input["city"] in CITIES


def test_the_input_of_a_tool_streams_as_json(client: Anthropic) -> None:
    with client.messages.stream(**asked(**a_call())) as events:
        seen = list(events)
        message = events.get_final_message()
    pieces = [event.partial_json for event in seen if event.type == "input_json"]
    assert len(pieces) >= 2
    (block,) = message.content
    assert block.type == "tool_use"
    assert json.loads("".join(pieces)) == block.input


def test_a_tool_may_be_called_after_thinking(client: Anthropic) -> None:
    script = scripted("<think>", "</think>", "<tool_call>")
    fields: dict[str, Any] = {"script": script, "tools": [WEATHER, TIME], "max_tokens": 150}
    for told in (ask, stream):
        message = told(client, **fields, tool_choice={"type": "auto"})
        assert {block.type for block in message.content} - {"thinking"} == {"tool_use"}


def test_no_tool_is_called_where_there_is_none_to_choose(client: Anthropic) -> None:
    fields = a_call(tool_choice={"type": "none"}, script=scripted(), max_tokens=8)
    assert [block.type for block in ask(client, **fields).content] == ["text"]


def test_a_call_and_its_result_go_into_the_next_prompt(client: Anthropic) -> None:
    called = ask(client, **a_call(tool_choice={"type": "any", "disable_parallel_tool_use": True}))
    (use,) = called.content
    assert use.type == "tool_use"
    result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "7"}]}
    messages = [
        *HELLO,
        {"role": "assistant", "content": called.content},
        {"role": "user", "content": [result]},
    ]
    answer = ask(client, messages=messages, tools=[WEATHER, TIME])
    assert [block.type for block in answer.content] == ["text"]
    first, second = (
        one.usage.input_tokens + (one.usage.cache_read_input_tokens or 0) for one in (called, answer)
    )
    assert second > first


def test_the_tool_runner_calls_and_asks_again(client: Anthropic) -> None:
    seen: list[str] = []

    @beta_tool
    def weather(city: Literal["Ulm", "Bonn"]) -> str:
        """The weather in a city."""
        seen.append(city)
        return "7 degrees"

    fields = asked(**a_call(tools=[weather]))
    messages = list(client.beta.messages.tool_runner(**fields, max_iterations=3))
    assert [message.stop_reason for message in messages] == ["tool_use"] * 3
    assert len(seen) in (2, 3)
    assert set(seen) <= set(CITIES)
    read = [one.usage.input_tokens + (one.usage.cache_read_input_tokens or 0) for one in messages]
    assert read == sorted(set(read))


# Thinking


@pytest.mark.parametrize("told", [ask, stream], ids=["body", "stream"])
def test_thinking_is_a_block_with_a_signature(client: Anthropic, told: Any) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    message = told(client, script={"seed": 3, **scripted("<think>")}, max_tokens=9, thinking=thinking)
    (thought,) = message.content
    assert thought.type == "thinking"
    assert thought.thinking
    assert thought.signature
    assert "warnings" not in message.to_dict()


def test_thinking_ends_when_its_budget_is_used_up(client: Anthropic) -> None:
    thinking = {"type": "enabled", "budget_tokens": 5}
    message = ask(client, script={"seed": 3, **scripted("<think>")}, max_tokens=12, thinking=thinking)
    assert [block.type for block in message.content] == ["thinking", "text"]


def test_a_body_and_a_stream_think_the_same(client: Anthropic) -> None:
    fields: dict[str, Any] = {"script": {"seed": 3, **scripted("<think>")}, "max_tokens": 9}
    assert ask(client, **fields).content[0].to_dict() == stream(client, **fields).content[0].to_dict()


def test_thinking_goes_back_into_the_conversation(client: Anthropic) -> None:
    thought = ask(client, script={"seed": 3, **scripted("<think>")}, max_tokens=9)
    messages = [*HELLO, {"role": "assistant", "content": thought.content}, *HELLO]
    assert ask(client, messages=messages).content


# Structured outputs


class Place(BaseModel):
    city: Literal["Ulm", "Bonn"]


def test_a_message_is_parsed_as_a_model_of_pydantic(client: Anthropic) -> None:
    fields = asked(max_tokens=200)
    message = client.messages.parse(**fields, output_format=Place)
    assert message.parsed_output
    assert message.parsed_output.city in CITIES
    with client.messages.stream(**fields, output_format=Place) as events:
        assert events.get_final_message().parsed_output


# Fields of Anthropic's betas


def test_beta_fields_are_accepted_or_warned_about(client: Anthropic) -> None:
    edits: list[Any] = [
        {"type": "clear_thinking_20251015", "keep": "all"},
        {"type": "clear_tool_uses_20250919"},
    ]
    message = client.beta.messages.create(
        **asked(), betas=["context-management-2025-06-27"], context_management={"edits": edits},
        metadata={"user_id": "x"}, service_tier="auto", output_config={"effort": "low"},
    )  # fmt: skip
    (warning,) = message.to_dict()["warnings"]  # type: ignore[misc]
    assert str(warning).startswith("context_management.edits[1] is ")


# Errors


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": -8}, "max_tokens is -8; it must be between -1 and 2147483647"),
    ({"extra_body": {"temperature": 101}}, "temperature is 101; it must be between 0 and 100"),
    ({"messages": [{"role": "user", "content": [IMAGE]}]}, "image input is not supported: messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": "word " * 5000}]}, "prompt is too long: "),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0] is of type web_search_20250305"),
    ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "x"}}, 'tool_choice.name is "x"'),
    ({"stop_sequences": 7}, "stop_sequences is 7"),
    ({"extra_body": {"n": 2}}, "n is 2; it must be 1: an answer is one message"),
    ({"extra_body": {"mcp_servers": [{"url": "x"}]}}, "mcp_servers is "),
]  # fmt: skip


@each_row("streamed", [False, True], ids=["body", "stream"])
@each_row(("fields", "message"), REFUSALS, ids=lambda value: str(value)[:40])
def test_a_bad_request_is_an_error_with_the_reason(
    client: Anthropic, fields: dict[str, Any], message: str, streamed: bool
) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(stream=streamed, **asked(**fields))
    error = caught.value.body
    assert isinstance(error, dict)
    assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
    assert error["error"]["message"].startswith(message)
    assert caught.value.request_id


def test_counting_refuses_as_messages_do(client: Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="image input is not supported"):
        client.messages.count_tokens(model="chat", messages=[{"role": "user", "content": [IMAGE]}])  # type: ignore[list-item]


def test_a_request_has_an_id(client: Anthropic) -> None:
    answer = client.messages.with_raw_response.create(**asked())
    assert answer.headers["request-id"] == answer.headers["x-request-id"]
    message = answer.parse()
    assert message._request_id == answer.headers["request-id"]  # noqa: SLF001 (the client's documented name)


def test_keys_scopes_sizes_and_limits_have_errors_of_their_own(tmp_path: Path) -> None:
    keys = key_file(
        tmp_path / "keys",
        {"name": "anyone", "scopes": ["chat"]},
        {"name": "other", "scopes": ["complete"]},
        {"name": "poor", "scopes": ["chat"], "tokens_per_minute": 1},
    )
    flags = ("--ctx", "4096", "--api-key-file", str(keys), "--max-body", "64K", "--strict")
    with serving(*flags) as server, ExitStack() as clients:

        def caller(**key: str) -> Anthropic:
            made = Anthropic(base_url=server.url, max_retries=0, **{"api_key": None, **key})
            return clients.enter_context(made)

        fields = asked(script={}, model="storyteller")
        assert caller(api_key="anyone").messages.create(**fields).content
        assert caller(auth_token="anyone").messages.create(**fields).content
        with pytest.raises(anthropic.AuthenticationError, match="there is no such key"):
            caller(api_key="nobody").messages.create(**fields)
        with pytest.raises(anthropic.PermissionDeniedError, match="this needs chat"):
            caller(api_key="other").messages.create(**fields)
        with pytest.raises(anthropic.NotFoundError, match="there is no model claude here"):
            caller(api_key="anyone").messages.create(**fields | {"model": "claude"})
        long = [{"role": "user", "content": "x" * 70_000}]
        with pytest.raises(anthropic.APIStatusError) as caught:
            caller(api_key="anyone").messages.create(**fields | {"messages": long})
        assert (caught.value.status_code, caught.value.type) == (413, "request_too_large")
        deadline = time.monotonic() + PATIENCE
        with pytest.raises(anthropic.RateLimitError, match="has spent its 1 tokens a minute"):
            _until_refused(caller(api_key="poor"), fields, deadline)


def _until_refused(client: Anthropic, fields: dict[str, Any], deadline: float) -> None:
    while time.monotonic() < deadline:  # until the first request is counted
        client.messages.create(**fields)


def test_a_full_queue_is_overload() -> None:
    flags = ("--ctx", "8192", "--parallel", "1", "--max-queue", "1", "--", *LASTING)
    endless = asked(script={"ignore_eos": True}, max_tokens=8000)
    with (
        serving(*flags) as server,
        Anthropic(base_url=server.url, api_key="-", max_retries=0) as client,
        client.messages.create(stream=True, **endless) as running,
        closing(server.connect()) as waiting,
    ):
        assert next(iter(running)).type == "message_start"
        waiting.request("POST", "/v1/messages", json.dumps({"messages": HELLO}))
        deadline = time.monotonic() + PATIENCE
        while server.json("GET", "/v1/stats")[1]["requests_open"] != 2:
            assert time.monotonic() < deadline
        with pytest.raises(anthropic.OverloadedError) as caught:
            client.messages.create(**asked(script={}))
    assert (caught.value.status_code, caught.value.type) == (529, "overloaded_error")


def test_a_time_limit_is_an_error_of_its_own() -> None:
    flags = ("--ctx", "8192", "--parallel", "1", "--queue-timeout", "1", "--", *LASTING)
    endless = asked(script={"ignore_eos": True}, max_tokens=8000)
    with (
        serving(*flags) as server,
        Anthropic(base_url=server.url, api_key="-", max_retries=0) as client,
        client.messages.create(stream=True, **endless) as running,
    ):
        assert next(iter(running)).type == "message_start"
        with pytest.raises(anthropic.APIStatusError) as caught:
            client.messages.create(**asked(script={}))
        assert (caught.value.status_code, caught.value.type) == (504, "timeout_error")
        with (
            client.messages.create(stream=True, **asked(script={})) as waiting,
            pytest.raises(anthropic.APIStatusError) as caught,
        ):
            next(iter(waiting))
        assert (caught.value.status_code, caught.value.type) == (200, "timeout_error")


def test_models_are_listed(client: Anthropic) -> None:
    assert [model.id for model in client.models.list()] == ["chat"]


def test_leaving_early_ends_the_request(client: Anthropic, server: Server) -> None:
    endless = asked(script={"ignore_eos": True, **scripted()}, max_tokens=4000)
    with client.messages.create(stream=True, **endless) as events:
        id = next(iter(events)).message.id.removeprefix("msg_")  # type: ignore[union-attr]
    while server.call("DELETE", f"/v1/completions/{id}")[0] != 404:
        pass  # until the server has noticed; an uncancelled request would take seconds
