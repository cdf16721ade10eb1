"""Responses by the real openai client against the real server, engine and a model with a template."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI, pydantic_function_tool
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, Field

from tests.real.test_answers import engine_of
from tests.support.chats import CITIES, TOOLS, scripted
from tests.support.rows import each_row
from tests.support.serving import Server, serving
from tests.support.waiting import until

HELLO = "Hello there, how is the weather in Ulm today?"
FUNCTIONS: list[Any] = [{"type": "function", "strict": True, **tool["function"]} for tool in TOOLS]


class Place(BaseModel):
    city: Literal["Ulm", "Bonn"]


class Weather(BaseModel):
    """The weather of a city."""

    unit: Literal["C", "F"]
    city: Literal["Ulm", "Bonn"] = Field(description="Where.")


@pytest.fixture(scope="module")
def server(chat_model: Path) -> Iterator[Server]:
    with serving("--model", str(chat_model), "--ctx", "16384") as server:
        yield server


@pytest.fixture(scope="module")
def openai(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.url + "/v1", api_key="-", max_retries=0) as client:
        yield client


def asked(script: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    extra = scripted() | (script or {})
    return {"model": "chat", "input": HELLO, "max_output_tokens": 8, "extra_body": extra, **fields}


def respond(openai: OpenAI, **fields: Any) -> Response:
    answer = openai.responses.create(**asked(**fields))
    assert isinstance(answer, Response)
    return answer


def stream(openai: OpenAI, **fields: Any) -> list[ResponseStreamEvent]:
    with openai.responses.create(stream=True, **asked(**fields)) as events:
        return list(events)


def ending(*tokens: str) -> dict[str, Any]:
    """Sampling settings that force these control tokens, and then the end of the text, where it may end."""
    script = scripted(*tokens)
    script["logit_bias"].append([0, 300 if "<tool_call>" in tokens else 20])
    return script


CALL: dict[str, Any] = {
    "script": ending("<tool_call>", "</tool_call>"),
    "tools": FUNCTIONS,
    "max_output_tokens": 400,
}


def test_a_response_has_text_and_usage(openai: OpenAI) -> None:
    answer = respond(openai, instructions="Be brief.", metadata={"a": "b"}, store=True)
    assert (answer.object, answer.model, answer.status) == ("response", "chat", "incomplete")
    assert answer.incomplete_details
    assert answer.incomplete_details.reason == "max_output_tokens"
    (message,) = answer.output
    assert message.type == "message"
    assert (answer.id[:5], message.id[:4], message.status) == ("resp_", "msg_", "incomplete")
    assert answer.output_text
    assert (answer.instructions, answer.metadata, answer.error) == ("Be brief.", {"a": "b"}, None)
    assert answer.usage
    assert (answer.usage.output_tokens, answer.usage.total_tokens - 8) == (8, answer.usage.input_tokens)
    again = respond(openai, instructions="Be brief.").usage
    assert again
    assert again.input_tokens_details.cached_tokens > 0


def test_an_answer_that_ends_by_itself_is_completed(openai: OpenAI) -> None:
    answer = respond(openai, script={"stop": [" "]}, max_output_tokens=400, temperature=0)
    assert (answer.status, answer.incomplete_details) == ("completed", None)
    assert answer.completed_at
    assert answer.completed_at >= answer.created_at
    assert " " not in answer.output_text


def test_a_stream_and_a_body_have_the_same_text(openai: OpenAI) -> None:
    whole = respond(openai, temperature=0)
    events = stream(openai, temperature=0)
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert len(deltas) > 1
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    last = events[-1]
    assert last.type == "response.incomplete"
    assert last.response.output_text == whole.output_text
    assert last.response.usage
    assert last.response.usage.output_tokens == 8


def test_the_clients_stream_helper_reads_a_text_to_its_end(openai: OpenAI) -> None:
    fields = asked(script={"stop": [" "]}, max_output_tokens=400, temperature=0)
    with openai.responses.stream(**fields) as events:
        snapshots = [event.snapshot for event in events if event.type == "response.output_text.delta"]
        final = events.get_final_response()
    assert (
        final.output_text
        == snapshots[-1]
        == respond(openai, **{**fields, "script": {"stop": [" "]}}).output_text
    )


def test_the_required_tool_is_called(openai: OpenAI) -> None:
    answer = respond(openai, **CALL, tool_choice={"type": "function", "name": "weather"})
    (call,) = answer.output
    assert call.type == "function_call"
    assert (answer.status, call.status, call.name) == ("completed", "completed", "weather")
    assert json.loads(call.arguments)["city"] in CITIES


def test_the_client_joins_the_pieces_of_a_call(openai: OpenAI) -> None:
    with openai.responses.stream(**asked(**CALL, tool_choice="required")) as events:
        pieces = [event for event in events if event.type == "response.function_call_arguments.delta"]
        final = events.get_final_response()
    (call,) = final.output
    assert call.type == "function_call"
    assert len(pieces) > 1
    assert pieces[-1].snapshot == call.arguments
    assert call.parsed_arguments == json.loads(call.arguments)


def test_a_call_and_its_result_go_into_the_next_prompt(openai: OpenAI) -> None:
    first = respond(openai, **CALL, tool_choice="required")
    (call,) = first.output
    assert call.type == "function_call"
    conversation = [
        {"role": "user", "content": HELLO},
        *(item.model_dump(exclude_none=True) for item in first.output),
        {"type": "function_call_output", "call_id": call.call_id, "output": "7 degrees"},
    ]
    answer = respond(openai, input=conversation, tools=FUNCTIONS)
    assert answer.output_text
    assert answer.usage
    assert first.usage
    assert answer.usage.input_tokens > first.usage.input_tokens


def test_a_custom_tools_call_is_a_text(openai: OpenAI) -> None:
    tool = {"type": "custom", "name": "write", "description": "Writes a text."}
    fields = CALL | {
        "tools": [tool],
        "tool_choice": {"type": "custom", "name": "write"},
        "max_output_tokens": 60,
    }
    (call,) = respond(openai, **fields).output
    assert (call.type, call.name) == ("custom_tool_call", "write")  # type: ignore[union-attr]
    kinds = [event.type for event in stream(openai, **fields)]
    assert kinds.index("response.custom_tool_call_input.done") > kinds.index("response.output_item.added")


def test_reasoning_is_an_item_of_its_own(openai: OpenAI) -> None:
    fields: dict[str, Any] = {"script": scripted("<think>") | {"seed": 3}, "max_output_tokens": 9}
    answer = respond(openai, **fields)
    (thought,) = answer.output
    assert thought.type == "reasoning"
    assert thought.content
    assert thought.summary == []
    assert answer.output_text == ""
    assert answer.usage
    assert answer.usage.output_tokens_details.reasoning_tokens == 9
    events = stream(openai, **fields)
    deltas = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
    assert "".join(deltas) == thought.content[0].text


def test_a_thought_comes_before_the_text(openai: OpenAI) -> None:
    answer = respond(openai, script=scripted("<think>", "</think>"), max_output_tokens=40)
    assert [item.type for item in answer.output][-1] == "message"
    back = respond(
        openai, input=[{"role": "user", "content": HELLO}, *answer.output, {"role": "user", "content": "x"}]
    )
    assert back.output_text


def test_a_text_is_parsed_as_a_pydantic_model(openai: OpenAI) -> None:
    fields = asked(max_output_tokens=200)
    answer = openai.responses.parse(text_format=Place, **fields)
    assert answer.output_parsed
    assert answer.output_parsed.city in CITIES
    with openai.responses.stream(text_format=Place, **fields) as events:
        final = events.get_final_response()
    assert final.output_parsed
    assert final.output_parsed.city in CITIES


def test_a_text_fits_any_json_object(openai: OpenAI) -> None:
    fields = {"text": {"format": {"type": "json_object"}}, "script": ending(), "max_output_tokens": 400}
    assert isinstance(json.loads(respond(openai, **fields).output_text), dict)


def test_a_calls_arguments_are_parsed_as_a_pydantic_model(openai: OpenAI) -> None:
    fields = CALL | {"tools": [pydantic_function_tool(Weather)], "tool_choice": "required"}
    (call,) = openai.responses.parse(**asked(**fields)).output
    assert call.type == "function_call"
    assert isinstance(call.parsed_arguments, Weather)


def test_logprobs_are_those_of_the_tokens(openai: OpenAI) -> None:
    fields: dict[str, Any] = {
        "top_logprobs": 2,
        "include": ["message.output_text.logprobs"],
        "temperature": 0,
    }
    (message,) = respond(openai, **fields).output
    assert message.type == "message"
    (part,) = message.content
    assert part.type == "output_text"
    assert part.logprobs
    assert len(part.logprobs) == 8
    assert {len(token.top_logprobs) for token in part.logprobs} == {2}
    deltas = [event for event in stream(openai, **fields) if event.type == "response.output_text.delta"]
    assert [token.token for delta in deltas for token in delta.logprobs] == [
        one.token for one in part.logprobs
    ]


def test_a_tool_that_only_openai_has_is_a_warning(openai: OpenAI) -> None:
    answer = respond(openai, tools=[{"type": "web_search"}], tool_choice="auto")
    assert answer.output_text
    (warning,) = answer.model_dump()["warnings"]
    assert warning == 'tools[0] is of type "web_search", which this server does not have'


def test_a_long_conversation_is_truncated_if_the_client_wants_it(openai: OpenAI) -> None:
    items = [{"role": role, "content": "word " * 1000} for role in ("user", "assistant") * 5]
    items.append({"role": "user", "content": HELLO})
    answer = respond(openai, input=items, truncation="auto")
    assert answer.usage
    assert answer.usage.input_tokens < 4096
    with pytest.raises(BadRequestError) as caught:
        respond(openai, input=items)
    assert caught.value.param == "input"


def test_a_response_is_the_best_of_four(openai: OpenAI) -> None:
    assert respond(openai, script={"best_of": 4}).output_text


@each_row(
    ("fields", "param", "message"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "send the whole conversation as input"),
        ({"conversation": "conv_1"}, "conversation", "there are no conversations here"),
        ({"background": True}, "background", "no response goes on by itself here"),
        ({"script": {"n": 4}}, "n", "a response is one answer"),
        ({"tools": [{"type": "function", "name": ""}]}, "tools", "tools[0].name"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
         "input[0].content[0]", "only text"),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_an_invalid_request_is_a_bad_request(
    openai: OpenAI, fields: dict[str, Any], param: str, message: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        respond(openai, **fields)
    assert (caught.value.param, caught.value.type) == (param, "invalid_request_error")
    assert message in caught.value.message


def test_the_tokens_of_an_input_are_counted(openai: OpenAI) -> None:
    fields: dict[str, Any] = {"input": HELLO, "instructions": "Be brief.", "tools": FUNCTIONS}
    counted = openai.responses.input_tokens.count(model="chat", **fields)
    assert counted.object == "response.input_tokens"
    usage = respond(openai, **fields).usage
    assert usage
    assert usage.input_tokens == counted.input_tokens


def test_a_response_has_a_system_fingerprint(openai: OpenAI) -> None:
    assert respond(openai).model_dump()["system_fingerprint"].startswith("b")


def test_tools_that_the_template_does_not_know_are_a_warning(lasting: Server) -> None:
    """The bundled model has no template that takes tools; an agent gets a text from it."""
    with OpenAI(base_url=lasting.url + "/v1", api_key="-", max_retries=0) as client:
        answer = client.responses.create(model="x", input=HELLO, tools=FUNCTIONS, max_output_tokens=4)
        assert answer.output_text
        assert "knows no tools" in answer.model_dump()["warnings"][0]
        with pytest.raises(BadRequestError):
            client.responses.create(model="x", input=HELLO, tools=FUNCTIONS, tool_choice="required")


def test_a_response_goes_on_from_an_earlier_one(openai: OpenAI) -> None:
    """The instructions of the earlier one are not carried over, as OpenAI says; its items are."""
    first = respond(openai, instructions="Be brief. " * 20, temperature=0)
    assert first.store
    sent: Any = {"input": "And tomorrow?", "temperature": 0}
    second = respond(openai, previous_response_id=first.id, **sent)
    (said,) = first.output
    conversation: Any = [
        {"role": "user", "content": HELLO},
        said,
        {"role": "user", "content": "And tomorrow?"},
    ]
    named = [conversation[0], {"type": "item_reference", "id": said.id}, conversation[2]]
    for whole in (conversation, named):
        again = respond(openai, **sent | {"input": whole}, store=False)
        assert again.usage
        assert second.usage
        assert again.output_text == second.output_text
        assert again.usage.input_tokens == second.usage.input_tokens
        with pytest.raises(NotFoundError):
            openai.responses.retrieve(again.id)
    counted = openai.responses.input_tokens.count(
        model="chat", input="And tomorrow?", previous_response_id=first.id
    )
    assert counted.input_tokens == second.usage.input_tokens
    assert second.previous_response_id == first.id


def test_a_stored_response_is_read_and_deleted(openai: OpenAI) -> None:
    *_, last = stream(openai, input=[{"role": "user", "content": one} for one in "abc"])
    assert last.type == "response.incomplete"
    kept = openai.responses.retrieve(last.response.id)
    assert kept == last.response
    items = openai.responses.input_items.list(kept.id, limit=2, order="asc")
    assert [item.content for item in items] == [*"abc"]  # type: ignore[union-attr]
    assert len({item.id for item in items}) == 3
    openai.responses.delete(kept.id)
    with pytest.raises(BadRequestError) as refused:
        respond(openai, previous_response_id=kept.id)
    assert refused.value.code == "previous_response_not_found"
    for gone in (openai.responses.retrieve, openai.responses.delete, openai.responses.input_items.list):
        with pytest.raises(NotFoundError) as caught:
            gone(kept.id)
        assert caught.value.code == "response_not_found"
    with pytest.raises(NotFoundError) as missing:
        respond(openai, input=[{"type": "item_reference", "id": kept.output[0].id}])
    assert (missing.value.code, missing.value.param) == ("item_not_found", "input[0]")


async def test_a_client_that_leaves_ends_its_response(server: Server) -> None:
    async with AsyncOpenAI(base_url=server.url + "/v1", api_key="-", max_retries=0) as client:
        fields = asked(script={"ignore_eos": True}, max_output_tokens=None)
        events = await client.responses.create(stream=True, **fields)
        async for event in events:
            if event.type == "response.output_text.delta":
                break
        await events.close()
    await until(lambda: server.json("GET", "/v1/stats")[1]["requests_open"] == 0)


def test_a_response_is_cancelled_by_its_id(server: Server, openai: OpenAI) -> None:
    fields = asked(script={"ignore_eos": True}, max_output_tokens=None)
    with openai.responses.create(stream=True, **fields) as events:
        first = next(iter(events))
        assert first.type == "response.created"
        status, answer = server.json("DELETE", f"/v1/completions/{first.response.id}")
        assert (status, answer["cancelled"]) == (200, True)
        assert list(events)[-1].type == "response.incomplete"


def test_a_response_fails_when_its_engine_dies(chat_model: Path) -> None:
    with (
        serving("--model", str(chat_model), "--ctx", "16384") as server,
        OpenAI(base_url=server.url + "/v1", api_key="-", max_retries=0) as client,
    ):
        told = []
        fields = asked(script={"ignore_eos": True}, max_output_tokens=None)
        with client.responses.create(stream=True, **fields) as events:
            for event in events:
                told.append(event)
                if event.type == "response.output_text.delta":
                    os.kill(engine_of(server), signal.SIGKILL)
                    break
            told += events
        last = told[-1]
    assert last.type == "response.failed"
    assert last.response.error
    assert (last.response.status, last.response.error.code) == ("failed", "server_error")
    assert [event.sequence_number for event in told] == list(range(len(told)))


def test_llama_servers_clients_get_progress_and_timings(server: Server) -> None:
    """As tools/server/tests/unit/test_compat_oai_responses.py of llama.cpp has it."""
    body = {"input": HELLO * 10, "max_output_tokens": 8, "stream": True, **scripted()}
    data = server.call("POST", "/responses", body | {"timings_per_token": True, "return_progress": True})[2]
    events = [json.loads(line[6:]) for line in data.decode().split("\n") if line.startswith("data: ")]
    progress = [event["prompt_progress"] for event in events if "prompt_progress" in event]
    assert progress
    assert all(one["total"] >= one["processed"] >= one["cache"] for one in progress)
    timed = {event["type"] for event in events if "timings" in event}
    assert timed == {"response.output_text.delta", "response.completed"}
    assert events[-1]["timings"]["predicted_per_second"] > 0
    assert events[-1]["response"]["status"] == "incomplete"


@pytest.mark.parametrize("path", ["/responses", "/openai/v1/responses"])
def test_other_addresses_answer_alike(server: Server, path: str) -> None:
    status, answer = server.json("POST", path, {"input": HELLO, "max_output_tokens": 3, **scripted()})
    assert (status, answer["object"], answer["usage"]["output_tokens"]) == (200, "response", 3)
