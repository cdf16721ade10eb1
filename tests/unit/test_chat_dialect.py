"""OpenAI's chat completions: bodies are parsed, and chunks and bodies are rendered as its clients expect."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from llama_srb.dialects.openai import Origin, chat
from llama_srb.dialects.openai.chat import Body, Chunks
from llama_srb.engine.events import Again, Done, Error, Event, Extend, Queued, Start, Stop, Stream, TokenList
from llama_srb.request.parse import Defaults
from llama_srb.request.values import RequestError

HELLO = [{"role": "user", "content": "Hello"}]
TOKEN = {"id": 5, "text": "é", "logprob": -0.5, "top": [{"id": 5, "text": "é", "logprob": -0.5}]}
RUN: list[Event] = [
    Start("1", 2, 5, 4, 7),
    Stream("1", 1, " the"),
    Stream("1", 0, "", reasoning="Hm"),
    Stream("1", 0, "", reasoning="."),
    Stream("1", 1, "re"),
    Stop("1", 1, 2, 1, "stop"),
    Stream("1", 0, "", tool_calls=({"index": 0, "id": "a1", "name": "weather", "arguments": "{"},)),
    Stream("1", 0, "", tool_calls=({"index": 0, "arguments": "}"},)),
    Stream("1", 0, "", tool_calls=({"index": 1, "id": "a2", "name": "time", "arguments": ""},)),
    Stop("1", 0, 9, 1, "stop"),
    Done("1", 2, 5, 4, 11, reasoning_tokens=2),
]
CALLS = [
    {"id": "a1", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
    {"id": "a2", "type": "function", "function": {"name": "time", "arguments": ""}},
]


def frames(events: list[Event], **fields: Any) -> list[Any]:
    request, form = chat.parse({"messages": HELLO, "n": 2, "stream": True, **fields}, Defaults())
    data = Chunks(request, form, Origin("m", 3, lambda: "b1")).render(events).decode()
    parts = [part.removeprefix("data: ") for part in data.split("\n\n") if part]
    return [part if part.startswith(("[", ":")) else json.loads(part) for part in parts]


def body(events: list[Event], **fields: Any) -> Any:
    answer = Body(
        chat.parse({"messages": HELLO, "n": 2, **fields}, Defaults())[0],
        Origin("m", 3, lambda: "b1"),
    )
    for event in events:
        answer.take([event])
    return json.loads(answer.json())


def test_a_body_has_a_message_for_each_choice() -> None:
    made = body(RUN)
    first, second = made["choices"]
    assert first["message"] == {
        "role": "assistant", "content": None, "refusal": None, "reasoning_content": "Hm.", "reasoning": "Hm.",
        "tool_calls": CALLS,
    }  # fmt: skip
    assert second["message"] == {"role": "assistant", "content": " there", "refusal": None}
    assert [first["finish_reason"], second["finish_reason"]] == ["tool_calls", "stop"]
    assert (made["id"], made["object"]) == ("chatcmpl-1", "chat.completion")
    assert made["usage"]["completion_tokens"] == 11
    assert made["usage"]["completion_tokens_details"] == {"reasoning_tokens": 2}
    guessed = replace(RUN[-1], timings={"draft_n": 9, "draft_n_accepted": 7})
    assert body([*RUN[:-1], guessed])["usage"]["completion_tokens_details"] == {
        "reasoning_tokens": 2, "accepted_prediction_tokens": 7, "rejected_prediction_tokens": 2,
    }  # fmt: skip


def test_chunks_are_deltas_that_begin_with_the_role() -> None:
    *chunks, end = frames(RUN)
    assert end == "[DONE]"
    deltas: list[list[Any]] = [[], []]
    for chunk in chunks:
        (choice,) = chunk["choices"]
        deltas[choice["index"]].append(choice["delta"])
    role = {"role": "assistant", "content": ""}
    assert deltas[1] == [role, {"content": " the"}, {"content": "re"}, {}]
    thoughts = [{"reasoning_content": piece, "reasoning": piece} for piece in ("Hm", ".")]
    assert deltas[0][:3] == [role, *thoughts]
    assert deltas[0][3]["tool_calls"] == [
        {"index": 0} | CALLS[0] | {"function": {"name": "weather", "arguments": "{"}}
    ]
    assert deltas[0][4]["tool_calls"] == [{"index": 0, "function": {"arguments": "}"}}]
    ends = {c["choices"][0]["index"]: c["choices"][0]["finish_reason"] for c in chunks}
    assert ends == {0: "tool_calls", 1: "stop"}


def test_a_choice_that_was_cut_off_in_a_call_is_not_finished() -> None:
    events: list[Event] = [
        RUN[0],
        RUN[6],
        Stop("1", 0, 3, 0, "length"),
        Stop("1", 1, 0, 0, "cancelled"),
        RUN[-1],
    ]
    assert [choice["finish_reason"] for choice in body(events)["choices"]] == ["length", "length"]


def test_chunks_and_bodies_have_logprobs() -> None:
    ended = [Stop("1", index, 1, 0, "length") for index in (0, 1)]
    events: list[Event] = [RUN[0], Stream("1", 0, "é", TokenList.of([TOKEN])), *ended, RUN[-1]]
    one = {"token": "é", "logprob": -0.5, "bytes": [195, 169]}
    told = {"content": [one | {"top_logprobs": [one]}]}
    fields = {"logprobs": True, "top_logprobs": 1}
    assert frames(events, **fields)[2]["choices"][0]["logprobs"] == told
    assert body(events, **fields)["choices"][0]["logprobs"] == told
    assert body(events)["choices"][0]["logprobs"] is None


def test_usage_comes_last_when_it_is_wanted() -> None:
    *chunks, last, end = frames(RUN, stream_options={"include_usage": True})
    assert (last["choices"], last["usage"]["total_tokens"], end) == ([], 16, "[DONE]")
    assert all(chunk["usage"] is None for chunk in chunks)


def test_an_extended_request_has_more_choices() -> None:
    events = [*RUN[:-1], Extend("1", 2, 3), Stream("1", 2, "x"), Stop("1", 2, 1, 0, "length"), RUN[-1]]
    assert body(events)["choices"][2]["message"]["content"] == "x"
    roles = [c["choices"][0]["index"] for c in frames(events)[:-1] if "role" in c["choices"][0]["delta"]]
    assert roles == [0, 1, 2]


def test_a_retried_choice_has_only_its_last_text() -> None:
    again: list[Event] = [Again("1", 0), Stream("1", 0, "x"), Stop("1", 0, 1, 1, "stop")]
    first = body([*RUN[:-1], *again, RUN[-1]])["choices"][0]
    assert first["message"] == {"role": "assistant", "content": "x", "refusal": None}
    assert first["finish_reason"] == "stop"


def test_choices_come_in_the_order_of_their_ranking() -> None:
    made = body([*RUN[:-1], Done("1", 2, 5, 4, 11, ranking=(1, 0))])["choices"]
    assert [choice["finish_reason"] for choice in made] == ["stop", "tool_calls"]
    assert [choice["index"] for choice in made] == [0, 1]


def test_errors_and_waiting_are_frames() -> None:
    queued, error = frames([Queued("1", 3), Error("engine_died", "it died", "1")])
    assert queued == ": queued at position 3"
    assert error["error"]["code"] == "engine_died"


def test_unknown_fields_are_named_before_the_first_choice() -> None:
    first = frames(RUN, temprature=1)[0]
    assert (first["choices"], len(first["warnings"])) == ([], 1)
    assert body(RUN, temprature=1)["warnings"] == first["warnings"]


def test_the_default_is_one_choice_without_a_limit() -> None:
    request, form = chat.parse({"messages": HELLO}, Defaults(n=8))
    assert (request.n, request.max_tokens, request.logprobs, form.stream) == (1, -1, None, False)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messages": None}, "messages is missing"),
        ({"logprobs": 3}, "logprobs is 3; it must be true or false"),
        (
            {"logprobs": True, "top_logprobs": 101},
            "top_logprobs is 101; it must be a whole number between 0 and 100",
        ),
        ({"top_logprobs": 2}, "top_logprobs is given without logprobs"),
        ({"stream": 1}, "stream is 1; it must be true or false"),
    ],
    ids=str,
)
def test_an_invalid_body_is_refused_with_a_message(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        chat.parse({"messages": HELLO, **fields}, Defaults())
    assert caught.value.message == message
