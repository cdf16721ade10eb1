"""Chats by the real openai client against the real server, the real engine and a model with a template."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.support.chats import CITIES, HELLO, TOOLS, scripted
from tests.support.serving import Server, serving


@pytest.fixture(scope="module")
def server(chat_model: Path) -> Iterator[Server]:
    with serving("--model", str(chat_model), "--ctx", "16384") as server:
        yield server


@pytest.fixture(scope="module")
def openai(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.url + "/v1", api_key="-", max_retries=0) as client:
        yield client


def chat(openai: OpenAI, *, script: dict[str, Any] | None = None, **fields: Any) -> ChatCompletion:
    asked = {"model": "chat", "messages": HELLO, "max_tokens": 8, "extra_body": script or {}, **fields}
    answer = openai.chat.completions.create(**asked)
    assert isinstance(answer, ChatCompletion)
    return answer


def stream(
    openai: OpenAI, *, script: dict[str, Any] | None = None, **fields: Any
) -> list[ChatCompletionChunk]:
    asked = {"model": "chat", "messages": HELLO, "max_tokens": 8, "extra_body": script or {}, **fields}
    with openai.chat.completions.create(stream=True, **asked) as chunks:
        return list(chunks)


def a_call() -> dict[str, Any]:
    """Sampling settings that force a tool call, and end the text after it."""
    script = scripted("<tool_call>", "</tool_call>")
    script["logit_bias"].append([0, 300])  # token 0 ends the text as soon as the grammar allows it
    return script


def test_eight_answers_in_one_body(openai: OpenAI) -> None:
    answer = chat(openai, n=8, script=scripted())
    assert [choice.index for choice in answer.choices] == list(range(8))
    assert len({choice.message.content for choice in answer.choices}) > 1
    assert {choice.finish_reason for choice in answer.choices} == {"length"}
    assert {choice.message.role for choice in answer.choices} == {"assistant"}
    assert (answer.object, answer.model) == ("chat.completion", "chat")
    assert answer.usage
    assert answer.usage.completion_tokens == 64


def test_eight_answers_stream(openai: OpenAI) -> None:
    chunks = stream(openai, n=8, script=scripted(), stream_options={"include_usage": True})
    texts = [""] * 8
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        texts[choice.index] += choice.delta.content or ""
    assert all(texts)
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens == 64
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_and_a_body_have_the_same_messages(openai: OpenAI) -> None:
    script = {"temperature": 0, **scripted()}
    whole = chat(openai, script=script).choices[0].message.content
    parts = [
        choice.delta.content or "" for chunk in stream(openai, script=script) for choice in chunk.choices
    ]
    assert "".join(parts) == whole


def test_each_choice_calls_the_required_tool(openai: OpenAI) -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    answer = chat(openai, n=3, tools=TOOLS, tool_choice=choice, max_tokens=400, script=a_call())
    for one in answer.choices:
        assert one.finish_reason == "tool_calls"
        assert one.message.content is None
        assert one.message.tool_calls
        (call,) = one.message.tool_calls
        assert call.type == "function"
        assert call.function.name == "weather"
        assert json.loads(call.function.arguments)["city"] in CITIES


def test_the_client_joins_the_pieces_of_a_call(openai: OpenAI) -> None:
    with openai.chat.completions.stream(
        model="chat", messages=HELLO, tools=TOOLS, tool_choice="required", max_tokens=400,
        extra_body=a_call(),
    ) as events:  # fmt: skip
        final = events.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls"
    assert final.message.tool_calls
    (call,) = final.message.tool_calls
    assert call.function.name in ("weather", "time")
    assert set(json.loads(call.function.arguments)) == {"unit", "city"}


def test_a_call_and_its_result_go_into_the_next_prompt(openai: OpenAI) -> None:
    called = chat(openai, tools=TOOLS, tool_choice="required", max_tokens=400, script=a_call())
    first = called.choices[0].message
    assert first.tool_calls
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "7"}
    answer = chat(openai, messages=[*HELLO, first, result], tools=TOOLS, script=scripted())
    assert answer.choices[0].message.content
    assert answer.usage
    assert called.usage
    assert answer.usage.prompt_tokens > called.usage.prompt_tokens


def test_reasoning_is_reasoning_content(openai: OpenAI) -> None:
    fields: dict[str, Any] = {"script": {"seed": 3, **scripted("<think>")}, "max_tokens": 9}
    message = chat(openai, **fields).choices[0].message
    thought = message.model_dump()["reasoning_content"]
    assert thought
    assert message.content == ""
    deltas = [choice.delta.model_dump() for chunk in stream(openai, **fields) for choice in chunk.choices]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == thought


def test_an_answer_fits_the_response_format(openai: OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": CITIES}},
        "required": ["city"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    answer = chat(openai, n=3, response_format=form, max_tokens=200, script=scripted())
    for choice in answer.choices:
        assert json.loads(choice.message.content or "")["city"] in CITIES


def test_logprobs_are_those_of_the_tokens(openai: OpenAI) -> None:
    choice = chat(openai, logprobs=True, top_logprobs=2, script=scripted()).choices[0]
    assert choice.logprobs
    assert choice.logprobs.content
    assert len(choice.logprobs.content) == 8
    for token in choice.logprobs.content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 2


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"messages": [{"role": "user", "content": "x " * 9000}]}, "prompt"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_invalid_chat_is_a_bad_request(openai: OpenAI, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        chat(openai, **fields)
    assert caught.value.param == param


def test_the_event_stream_takes_messages_too(server: Server) -> None:
    script = scripted("<think>", "</think>")
    asked = {"messages": HELLO, "n": 2, "max_tokens": 12, **script}
    events = server.events(asked)
    assert [events[0]["event"], events[-1]["event"]] == ["start", "done"]
    assert any(event.get("text") for event in events if event["event"] == "stream")
    status, body = server.json("POST", "/v1/completions", {"messages": HELLO, "stream": False})
    assert (status, body["error"]["param"]) == (400, "messages")
