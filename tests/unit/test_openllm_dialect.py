"""OpenLLM-Server's shapes: what is read of a body, and what the answers have."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from llama_srb.dialects.common.reply import ServerInfo
from llama_srb.dialects.openllm import REPLIES, merged
from llama_srb.engine.events import Done, Start, Stop, Stream
from llama_srb.request.values import RequestError
from tests.support.rows import each_row

ABOUT = ServerInfo("m")
STORY = [{"role": "system", "content": "Be brief."}]


def answer(path: str, body: dict[str, Any], texts: list[str]) -> Any:
    reply = REPLIES[path](merged(body), ABOUT)
    n = len(texts)
    reply.take([Start("a", n, 3, 0, 1)])
    for i, text in enumerate(texts):
        reply.take([Stream("a", i, text), Stop("a", i, 2, 1, "stop")])
    reply.take([Done("a", n, 3, 0, 2 * n)])
    return orjson.loads(reply.json())


def test_the_configuration_has_the_request_s_fields_and_is_in_the_answer() -> None:
    body = {"prompt": "x", "configuration": {"n": 2, "max_tokens": 3, "temp": 0.5, "stop": ["#"]}}
    request = REPLIES["/complete"](merged(body), ABOUT).request
    assert (request.n, request.max_tokens, request.stop) == (2, 3, ("#",))
    assert request.sampling.temperature == 0.5
    got = answer("/complete", body, ["a", "b"])
    assert [(one["index"], one["text"], one["finish_reason"]) for one in got["choices"]] == [
        (0, "a", "stop"),
        (1, "b", "stop"),
    ]
    assert got["configuration"] == body["configuration"]


def test_a_field_of_the_configuration_beats_one_beside_it() -> None:
    body = {"prompt": "x", "n": 2, "configuration": {"n": 3}}
    assert REPLIES["/complete"](merged(body), ABOUT).request.n == 3


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        ({"message": "Hi"}, [{"role": "user", "content": "Hi"}]),
        ({"message": {"role": "user", "content": "Hi"}}, [{"role": "user", "content": "Hi"}]),
        ({"messages": STORY, "message": "Hi"}, [*STORY, {"role": "user", "content": "Hi"}]),
        ({"messages": STORY}, STORY),
    ],
)
def test_a_message_is_the_last_turn(body: dict[str, Any], messages: list[Any]) -> None:
    assert orjson.loads(REPLIES["/chat"](merged(body), ABOUT).request.messages) == messages


def test_a_chat_has_a_message_or_with_more_than_one_choices() -> None:
    one = answer("/chat", {"message": "Hi"}, ["Hello"])
    assert one["message"] == {"role": "assistant", "content": "Hello"}
    assert "choices" not in one
    two = answer("/chat", {"message": "Hi", "configuration": {"n": 2}}, ["Hello", "Ho"])
    assert [one["message"]["content"] for one in two["choices"]] == ["Hello", "Ho"]
    assert "message" not in two


@each_row(
    ("path", "body", "param"),
    [
        ("/complete", {}, "prompt"),
        ("/complete", {"prompt": "x", "configuration": 3}, "configuration"),
        ("/complete", {"prompt": "x", "configuration": {"n": 0}}, "n"),
        ("/complete", {"prompt": "x", "configuration": {"stream": True}}, "stream"),
        ("/chat", {}, "message"),
        ("/chat", {"message": 3}, "message"),
        ("/chat", {"message": "x", "messages": 3}, "messages"),
    ],
)
def test_a_wrong_field_is_named(path: str, body: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as raised:
        REPLIES[path](merged(body), ABOUT)
    assert raised.value.param == param


@pytest.mark.parametrize("field", ["prompt_logprobs", "return_token_ids", "return_entropies"])
def test_a_field_whose_answer_has_no_place_is_a_warning(field: str) -> None:
    value = 1 if field == "prompt_logprobs" else True
    got = answer("/complete", {"prompt": "x", "configuration": {field: value}}, ["a"])
    assert got["warnings"] == [f"{field} is not used: answers of this path have no place for it"]


def test_an_unknown_field_is_a_warning() -> None:
    got = answer("/complete", {"prompt": "x", "configuration": {"unknown_field": 1}}, ["a"])
    assert "unknown_field" in got["warnings"][0]
