"""Classes of Pydantic in the client: each is its schema in a body, and what a text is parsed as."""

from __future__ import annotations

import json
from typing import Any

import httpx
from pydantic import BaseModel

from llama_srb.client.answer import Answer
from llama_srb.client.core import Connection
from llama_srb.client.events import Done, Prompt, Start, Stop, Text


class Fox(BaseModel):
    name: str


def test_a_class_stands_wherever_a_body_has_a_schema() -> None:
    body = {"json_schema": Fox, "then": {"json_schema": Fox}, "tools": [{"function": {"parameters": Fox}}]}
    with httpx.Client() as http:
        sent = json.loads(Connection("http://localhost", None).post(http, "/v1/events", body).content)
    schema = Fox.model_json_schema()
    assert sent == {
        "json_schema": schema,
        "then": {"json_schema": schema},
        "tools": [{"function": {"parameters": schema}}],
    }


def parsed(body: dict[str, Any], *texts: str) -> list[Any]:
    answer = Answer(body)
    answer.take(Start(len(texts), "1", 1, 0, 1))
    answer.take(Prompt("Once"))
    for index, text in enumerate(texts):
        answer.take(Text(index, text))
        assert answer.choice(index).parsed is None, "it runs"
        answer.take(Stop(index, 1, 1, "stop"))
    answer.take(Done(len(texts), 1, 0, 1))
    return [choice.parsed for choice in answer.choices]


def test_each_text_is_an_object_of_the_class_unless_it_was_cut() -> None:
    whole, cut = '{"name": "Rudi"}', '{"name": "Ru'
    assert parsed({"json_schema": Fox}, whole, cut) == [Fox(name="Rudi"), None]
    assert parsed({"json_schema": Fox.model_json_schema()}, whole) == [None]
    assert parsed({"then": {"json_schema": Fox}}, whole) == [Fox(name="Rudi")]
    assert parsed({"json_schema": Fox, "then": {"choice": ["a"]}}, whole) == [None]
