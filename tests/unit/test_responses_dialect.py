"""OpenAI's responses: bodies are parsed, and events and bodies are as the openai package has them."""

# ruff: noqa: E501 (a table)

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from llama_srb.dialects import responses
from llama_srb.dialects.openai import Origin
from llama_srb.dialects.responses import Body, Frames, Output
from llama_srb.dialects.responses.items import messages_of
from llama_srb.engine.events import (
    Done,
    Error,
    Event,
    Extend,
    Progress,
    Queued,
    Start,
    Stop,
    Stream,
    TokenList,
)
from llama_srb.request.parse import Defaults
from llama_srb.request.values import RequestError
from tests.support.rows import each_row

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}
PATCH = {
    "type": "custom",
    "name": "patch",
    "format": {"type": "grammar", "syntax": "lark", "definition": "x"},
}
GROUP = {"type": "namespace", "name": "maps", "description": "", "tools": [WEATHER | {"name": "find"}]}
TOOLS = [WEATHER, PATCH, GROUP, {"type": "web_search"}]
TOKEN = {"id": 5, "text": "é", "logprob": -0.5, "top": [{"id": 5, "text": "é", "logprob": -0.5}]}


def call(index: int, arguments: str, name: str = "") -> dict[str, Any]:
    named = {"id": f"a{index}", "name": name} if name else {}
    return {"index": index, "arguments": arguments, **named}


def calls(*pieces: dict[str, Any], text: str = "") -> Stream:
    return Stream("1", 0, text, tool_calls=pieces)


START, STOP = Start("1", 1, 5, 4, 7), Stop("1", 0, 10, 1, "stop")
DONE = Done("1", 1, 5, 4, 10, {"prompt_ms": 1500.0, "decode_ms": 900.0}, reasoning_tokens=3)
RUN: list[Event] = [
    START,
    Stream("1", 0, "", reasoning="Hm"),
    Stream("1", 0, "", reasoning="."),
    Stream("1", 0, " the"),
    Stream("1", 0, "re"),
    calls(call(0, "{", "weather")),
    calls(call(0, "}")),
    calls(call(1, '{"input": "a', "patch")),
    calls(call(1, 'b"}'), call(2, "{}", "maps__find")),
    STOP,
    DONE,
]


def output(**fields: Any) -> Output:
    request, asked = responses.parse({"input": "Hello", "stream": True, **fields}, Defaults())
    return Output(request, asked, Origin("m", 3, lambda: "f"))


def frames(events: list[Event], **fields: Any) -> list[dict[str, Any]]:
    data = Frames(output(**fields)).render(events).decode()
    parts = [part.split("\n") for part in data.split("\n\n") if not part.startswith(":")]
    found = [json.loads(part[1].removeprefix("data: ")) for part in parts if part != [""]]
    assert [part[0] for part in parts if part != [""]] == [f"event: {one['type']}" for one in found]
    return found


def body(events: list[Event], **fields: Any) -> dict[str, Any]:
    answer = Body(output(**fields))
    for event in events:
        answer.take([event])
    made: dict[str, Any] = json.loads(answer.json())
    return made


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def test_each_event_is_one_of_the_openai_packages_and_has_its_number() -> None:
    events = frames(RUN, tools=TOOLS)
    for number, event in enumerate(events):
        assert EVENT.validate_python(event).to_dict()["type"] == event["type"]
        assert event["sequence_number"] == number


def test_the_order_of_events_is_openais() -> None:
    part = ["content_part.added", "{0}.delta", "{0}.delta", "{0}.done", "content_part.done"]
    added, done = "output_item.added", "output_item.done"
    arguments, custom = "function_call_arguments", "custom_tool_call_input"
    assert types(frames(RUN, tools=TOOLS)) == [
        "created", "in_progress",
        added, *(one.format("reasoning_text") for one in part), done,
        added, *(one.format("output_text") for one in part), done,
        added, f"{arguments}.delta", f"{arguments}.delta", f"{arguments}.done", done,
        added, f"{custom}.delta", f"{custom}.done", done,
        added, f"{arguments}.delta", f"{arguments}.done", done,
        "completed",
    ]  # fmt: skip


def test_a_body_has_the_items_of_the_stream() -> None:
    made = body(RUN, tools=TOOLS)
    assert made == frames(RUN, tools=TOOLS)[-1]["response"]
    Response.model_validate(made)
    thought, message, weather, patch, find = made["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert message["content"][0]["text"] == " there"
    assert (weather["type"], weather["call_id"], weather["arguments"]) == ("function_call", "a0", "{}")
    assert (patch["type"], patch["name"], patch["input"]) == ("custom_tool_call", "patch", "ab")
    assert (find["namespace"], find["name"], find["arguments"]) == ("maps", "find", "{}")
    assert len({item["id"] for item in made["output"]}) == 5
    assert {item["status"] for item in made["output"]} == {"completed"}
    assert (made["id"], made["status"], made["completed_at"]) == ("resp_1", "completed", 5)


def test_items_are_added_empty_and_each_delta_belongs_to_its_item() -> None:
    place = {}
    for event in frames(RUN, tools=TOOLS):
        if event["type"] == "response.output_item.added":
            place = {"output_index": event["output_index"], "item_id": event["item"]["id"]}
            item = event["item"]
            assert item.get("content", []) == []
            assert item.get("arguments", item.get("input", "")) == ""
        elif "item_id" in event:
            assert {name: event[name] for name in place} == place


def test_usage_has_cached_tokens_and_those_of_the_reasoning() -> None:
    usage = body(RUN, tools=TOOLS)["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (5, 10, 15)
    assert usage["input_tokens_details"] == {"cached_tokens": 4, "cache_write_tokens": 0}
    assert usage["output_tokens_details"]["reasoning_tokens"] == 3


@pytest.mark.parametrize("reason", ["length", "timeout", "cancelled", "surplus", "pruned"])
def test_an_answer_that_was_cut_off_is_incomplete(reason: str) -> None:
    why = reason if reason in ("surplus", "pruned") else "max_output_tokens"
    events = [*RUN[:8], Stop("1", 0, 9, 0, reason), DONE]
    *_, ended, last = frames(events, tools=TOOLS)
    assert (ended["item"]["status"], ended["item"]["input"]) == ("incomplete", '{"input": "a')
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "incomplete")
    assert last["response"]["incomplete_details"] == {"reason": why}
    assert last["response"]["completed_at"] is None
    assert [item["status"] for item in body(events)["output"]][:-1] == ["completed"] * 3


def test_the_rest_of_a_call_comes_before_the_text_behind_it() -> None:
    events: list[Event] = [
        START,
        calls(call(0, "{", "weather")),
        calls(call(0, "}"), text=" Done."),
        STOP,
        DONE,
    ]
    called, message = body(events)["output"]
    assert (called["arguments"], message["content"][0]["text"]) == ("{}", " Done.")


def test_all_of_an_answer_in_one_event_is_the_same_answer() -> None:
    """As with best_of, whose candidates are held back."""
    pieces = [piece for event in RUN if isinstance(event, Stream) for piece in event.tool_calls]
    at_once = Stream("1", 0, " there", reasoning="Hm.", tool_calls=tuple(pieces))
    assert body([START, at_once, STOP, DONE], tools=TOOLS) == body(RUN, tools=TOOLS)


def test_sequences_that_were_added_are_not_in_the_response() -> None:
    added: list[Event] = [Extend("1", 1, 2), Stream("1", 1, "x"), Stop("1", 1, 1, 0, "length")]
    assert body([*RUN[:-2], *added, *RUN[-2:]], tools=TOOLS) == body(RUN, tools=TOOLS)


def test_an_error_fails_the_response_also_before_it_was_created() -> None:
    error = Error("engine_died", "it died", "1")
    told_until: list[list[Event]] = [[Queued("1", 3), error], [*RUN[:4], error]]
    for events in told_until:
        told = frames(events)
        assert types(told)[:2] == ["created", "in_progress"]
        last = EVENT.validate_python(told[-1])
        assert (last.type, last.response.status, last.response.id) == ("response.failed", "failed", "resp_1")
        assert last.response.error.message == "it died"
    assert Frames(output()).render([Queued("1", 3)]) == b": queued at position 3\n\n"


def test_logprobs_are_those_of_the_text() -> None:
    token = TokenList.of([TOKEN])
    events: list[Event] = [
        START,
        Stream("1", 0, "", token, reasoning="Hm"),
        Stream("1", 0, "", token),  # held back
        Stream("1", 0, "éé", token),
        STOP,
        DONE,
    ]
    one = {"token": "é", "logprob": -0.5, "bytes": [195, 169]}
    told = [one | {"top_logprobs": [one]}] * 2
    request, _ = responses.parse({"input": "x", "top_logprobs": 1}, Defaults())
    assert request.logprobs == 1
    assert body(events)["output"][1]["content"][0]["logprobs"] == told
    (delta,) = [event for event in frames(events) if event["type"] == "response.output_text.delta"]
    assert delta["logprobs"] == told


def test_an_answer_repeats_the_request() -> None:
    asked = {
        "instructions": "Be brief.", "metadata": {"a": "b"}, "temperature": 0.5, "top_p": 0.25, "tools": TOOLS,
        "tool_choice": "none", "parallel_tool_calls": False, "max_output_tokens": 8, "truncation": "auto",
        "reasoning": {"effort": "low", "summary": None}, "user": "u", "prompt_cache_key": "k",
        "presence_penalty": 0.5,
    }  # fmt: skip
    made = body(RUN, **asked)
    weather, *others = TOOLS
    told = {
        "tools": [weather | {"description": None}, *others],
        "frequency_penalty": 0,
        "presence_penalty": 0.5,
    }
    assert {name: made[name] for name in asked | told} == asked | told
    assert (made["store"], made["previous_response_id"], made["background"]) == (False, None, False)
    (warning,) = made["warnings"]
    assert warning == 'tools[3] is of type "web_search", which this server does not have'


def test_what_an_answer_repeats_is_whole() -> None:
    """As Open Responses' schema has it."""
    schema = {"type": "object"}
    form = {"type": "json_schema", "schema": schema}
    whole = form | {"name": "", "description": None, "strict": True}
    made = body(
        RUN, text={"format": form, "verbosity": "low"}, tools=[item("function", name="f", strict=False)]
    )
    assert made["text"] == {"format": whole, "verbosity": "low"}
    assert made["tools"] == [item("function", name="f", description=None, parameters=None, strict=False)]


def test_llama_servers_fields_are_in_the_events_that_its_clients_read() -> None:
    events: list[Event] = [Start("1", 1, 64, 8, 7), Progress("1", 40, 64), *RUN[1:5]]
    events += [Stop("1", 0, 4, 0, "length"), DONE]
    told = frames(events, timings_per_token=True, return_progress=True)
    for event in told:
        EVENT.validate_python(event)
        assert ("timings" in event) == (event["type"].endswith((".delta", ".completed"))), event["type"]
        assert ("prompt_progress" in event) == (event["type"] == "response.in_progress")
    progress = [event["prompt_progress"] for event in told if "prompt_progress" in event]
    assert [(one["processed"], one["cache"], one["total"]) for one in progress] == [
        (8, 8, 64),
        (40, 8, 64),
        (64, 8, 64),
    ]
    last = told[-1]
    assert (last["type"], last["response"]["status"]) == ("response.completed", "incomplete")
    assert (last["timings"]["prompt_ms"], last["timings"]["predicted_n"]) == (1500, 4)
    plain = frames(events)
    assert not any({"timings", "prompt_progress"} & event.keys() for event in plain)
    assert types(plain).count("in_progress") == 1


# Requests


def fields(**body: Any) -> dict[str, Any]:
    """The arguments of the engine's command."""
    request, _ = responses.parse({"input": "Hello", **body}, Defaults(n=8))
    made = request.engine_fields()
    return made | {name: json.loads(made[name]) for name in ("messages", "tools") if name in made}


def test_the_default_is_one_answer_without_a_limit() -> None:
    assert fields() == {
        "messages": [{"role": "user", "content": "Hello"}], "n": 1, "max_tokens": -1,
    }  # fmt: skip


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def texts(kind: str, *texts: str) -> list[dict[str, Any]]:
    return [item(kind, text=text) for text in texts]


A_CALL = item("function_call", call_id="a", name="weather", arguments="{}")
CALLED = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
THOUGHT = item("reasoning", id="rs", summary=[], content=texts("reasoning_text", "Hm"))
SAID = item("message", role="assistant", id="m", status="completed", content=texts("output_text", "Hi"))
USER, MODEL = {"role": "user"}, {"role": "assistant"}
CONVERSATIONS: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]] = [
    ([USER | {"content": "x"}], [USER | {"content": "x"}]),
    ([USER | {"content": texts("input_text", "x")}], [USER | {"content": "x"}]),
    ([USER | {"content": texts("input_text", "x", "y")}], [USER | {"content": texts("text", "x", "y")}]),
    ([THOUGHT, SAID, A_CALL], [MODEL | {"content": "Hi", "reasoning_content": "Hm", "tool_calls": [CALLED]}]),
    ([A_CALL, A_CALL], [MODEL | {"content": "", "tool_calls": [CALLED, CALLED]}]),
    ([SAID, SAID], [MODEL | {"content": "Hi"}] * 2),
    ([A_CALL, SAID], [MODEL | {"content": "", "tool_calls": [CALLED]}, MODEL | {"content": "Hi"}]),
    ([THOUGHT, A_CALL], [MODEL | {"content": "", "reasoning_content": "Hm", "tool_calls": [CALLED]}]),
    (
        [item("function_call_output", call_id="a", output="7")],
        [{"role": "tool", "tool_call_id": "a", "content": "7"}],
    ),
    (
        [item("custom_tool_call_output", call_id="a", output=texts("input_text", "7"))],
        [{"role": "tool", "tool_call_id": "a", "content": "7"}],
    ),
    (
        [item("custom_tool_call", call_id="a", name="patch", input='"')],
        [
            MODEL
            | {
                "content": "",
                "tool_calls": [
                    CALLED | {"function": {"name": "patch", "arguments": '{"input":"\\""}'}}
                ],
            }
        ],
    ),
    (
        [A_CALL | {"namespace": "maps"}],
        [
            MODEL
            | {
                "content": "",
                "tool_calls": [CALLED | {"function": {"name": "maps__weather", "arguments": "{}"}}],
            }
        ],
    ),
    ([item("reasoning", summary=texts("summary_text", "Hm")), SAID],
     [MODEL | {"content": "Hi", "reasoning_content": "Hm"}]),
    ([item("reasoning", summary=[], content=None, encrypted_content="…"), SAID], [MODEL | {"content": "Hi"}]),
    ([USER | {"content": "x"}, {"role": "developer", "content": "y"}],
     [USER | {"content": "x"}, {"role": "system", "content": "y"}]),
]  # fmt: skip


@each_row(("items", "messages"), CONVERSATIONS, ids=lambda value: str(value)[:60])
def test_items_become_a_chats_messages(items: list[Any], messages: list[Any]) -> None:
    assert messages_of(None, items) == messages


def test_what_the_system_says_first_is_one_message() -> None:
    items = [{"role": "developer", "content": "two"}, {"role": "system", "content": "three"}]
    first, second = messages_of("one", [*items, USER | {"content": "x"}])
    assert first == {"role": "system", "content": "one\n\ntwo\n\nthree"}
    assert second["role"] == "user"


def test_the_output_can_be_the_next_input() -> None:
    made = body(RUN, tools=TOOLS)["output"]
    (message,) = messages_of(None, made)
    assert (message["reasoning_content"], message["content"]) == ("Hm.", " there")
    assert [one["function"]["name"] for one in message["tool_calls"]] == ["weather", "patch", "maps__find"]
    assert message["tool_calls"][1]["function"]["arguments"] == '{"input":"ab"}'


def test_tools_become_functions() -> None:
    weather, patch, find = (tool["function"] for tool in fields(tools=TOOLS)["tools"])
    assert weather == {
        "name": "weather", "description": "", "parameters": {"type": "object"}, "strict": True,
    }  # fmt: skip
    assert (patch["name"], [*patch["parameters"]["properties"]]) == ("patch", ["input"])
    assert "grammar (lark):\nx" in patch["description"]
    assert find["name"] == "maps__find"
    assert "tools" not in fields(tools=[{"type": "web_search"}], tool_choice="auto")


ALLOWED = {"type": "allowed_tools", "mode": "auto"}


@each_row(
    ("choice", "names", "chosen"),
    [
        ("required", ["weather", "patch", "maps__find"], "required"),
        ("none", ["weather", "patch", "maps__find"], "none"),
        ({"type": "function", "name": "weather"}, ["weather"], "required"),
        ({"type": "function", "name": "find"}, ["maps__find"], "required"),
        ({"type": "custom", "name": "patch"}, ["patch"], "required"),
        (ALLOWED | {"tools": [{"type": "function", "name": "weather"}]}, ["weather"], "auto"),
        (
            ALLOWED | {"mode": "required", "tools": [{"type": "custom", "name": "patch"}]},
            ["patch"],
            "required",
        ),
    ],
    ids=str,
)
def test_a_choice_keeps_the_tools_that_may_be_called(choice: Any, names: list[str], chosen: str) -> None:
    made = fields(tools=TOOLS, tool_choice=choice)
    assert [tool["function"]["name"] for tool in made["tools"]] == names
    assert made["tool_choice"] == chosen


def test_other_fields_become_the_chats() -> None:
    schema = {"type": "object", "properties": {}}
    form = {"type": "json_schema", "name": "x", "schema": schema, "strict": True}
    assert json.loads(fields(text={"format": form})["json_schema"]) == schema
    assert json.loads(fields(text={"format": {"type": "json_object"}})["json_schema"]) == {"type": "object"}
    assert "json_schema" not in fields(text={"format": {"type": "text"}, "verbosity": "low"})
    assert fields(reasoning={"effort": "none"})["enable_thinking"] is False
    assert fields(reasoning={"effort": "low"})["chat_template_kwargs"] == {"reasoning_effort": "low"}
    assert fields(max_output_tokens=7)["max_tokens"] == 7
    assert fields(include=["message.output_text.logprobs"])["logprobs"] == 0
    assert "logprobs" not in fields(include=["reasoning.encrypted_content"], top_logprobs=0)
    assert fields(min_p=0.5, stop="x") == fields() | {"stop": ["x"], "sampling": {"min_p": 0.5}}
    assert responses.parse({"input": "x", "truncation": "auto"}, Defaults())[1].limit
    assert responses.parse({"input": "x", "truncation": "disabled"}, Defaults())[1].limit is None


def test_fields_of_openais_that_change_nothing_here_are_no_warning() -> None:
    quiet = {
        "store": True, "metadata": {}, "service_tier": "auto", "safety_identifier": "s", "user": "u",
        "prompt_cache_key": "k", "background": False, "conversation": None, "previous_response_id": None,
        "stream_options": {"include_obfuscation": False}, "include": ["reasoning.encrypted_content"],
        "max_tool_calls": 3, "client_metadata": {},
    }  # fmt: skip
    assert responses.parse({"input": "x", **quiet}, Defaults(strict=True))[0].warnings == ()


IMAGE = item("input_image", image_url="data:")
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"input": None}, "input", "input is missing"),
    ({"input": []}, "input", "input is []; it must be a text, or a list of items, at least one"),
    ({"input": [7]}, "input[0]", "input[0] is 7; it must be an object with a type"),
    ({"input": [item("web_search_call", id="m")]}, "input[0]", 'input[0].type is "web_search_call"; it must be'),
    ({"input": [USER | {"content": [IMAGE]}]}, "input[0].content[0]",
     'input[0].content[0] is of type "input_image"; this server takes only text'),
    ({"input": [{"role": "model", "content": "x"}]}, "input[0].role", 'input[0].role is "model"; it must be one of'),
    ({"input": [item("function_call", name="x", arguments="{}")]}, "input[0].call_id", "input[0].call_id is null"),
    ({"conversation": "conv_1"}, "conversation", 'conversation is "conv_1", but there are no conversations here'),
    ({"background": True}, "background", "background is true, but no response goes on by itself here"),
    ({"prompt": {"id": "p"}}, "prompt", 'prompt is {"id": "p"}, but no prompts are stored here'),
    ({"messages": []}, "messages", "messages is [], but that belongs to /v1/chat/completions"),
    ({"timings_per_token": 1}, "timings_per_token", "timings_per_token is 1; it must be true or false"),
    ({"n": 2}, "n", "n is 2; it must be 1: a response is one answer, /v1/chat/completions gives n"),
    ({"max_output_tokens": 0}, "max_output_tokens", "max_output_tokens is 0; it must be between 1"),
    ({"top_logprobs": 21}, "top_logprobs", "top_logprobs is 21; it must be between 0 and 20"),
    ({"truncation": "left"}, "truncation", 'truncation is "left"; it must be "auto" or "disabled"'),
    ({"text": {"format": {"type": "xml"}}}, "text.format", 'text.format is {"type": "xml"}; it must be an object'),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", "text.format.schema is null; it must be"),
    ({"reasoning": {"effort": 3}}, "reasoning.effort", "reasoning.effort is 3; it must be a text"),
    ({"instructions": []}, "instructions", "instructions is []; it must be a text"),
    ({"tools": {}}, "tools", "tools is {}; it must be a list of tools"),
    ({"tools": [7]}, "tools", "tools[0] is 7; it must be an object with a type"),
    ({"tools": [{"type": "function"}]}, "tools", "tools[0].name is null; it must be a text, not empty"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice",
     'tool_choice is {"type": "function", "name": "x"}; it must be one of tools by its type and name'),
    ({"tools": [WEATHER], "tool_choice": {"type": "web_search"}}, "tool_choice",
     'tool_choice is {"type": "web_search"}; it must be of type "function", "custom" or "allowed_tools"'),
    ({"tools": [WEATHER], "tool_choice": "some"}, "tool_choice", 'tool_choice is "some"; it must be one of auto'),
    ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice",
     'tool_choice is "required", but tools has no function that can be called'),
]  # fmt: skip


@each_row(("body", "param", "message"), REFUSED, ids=lambda value: str(value)[:50])
def test_an_invalid_body_is_refused_with_a_message(body: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        responses.parse({"input": "Hello", **body}, Defaults())
    assert caught.value.message.startswith(message)
    assert (caught.value.param, caught.value.status) == (param, 400)
