"""The field end over HTTP, with the real engine and the bundled model."""

from __future__ import annotations

import re
from typing import Any

import pytest

from llama_srb import Client
from tests.real.test_finish import CHAT, values_of
from tests.support.rows import each_row
from tests.support.serving import Server

TALE: dict[str, Any] = {
    "prompt": "Once upon a time, there was a little",
    "n": 8,
    "max_tokens": 200,
    "seed": 5,
}
SENTENCE = re.compile(r"[^.!?]*[.!?]+[\"\']?")  # of the bundled model's stories, which have no abbreviations


def stops_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted((one for one in events if one["event"] == "stop"), key=lambda one: int(one["index"]))


def texts_of(events: list[dict[str, Any]], n: int = 8) -> list[str]:
    return ["".join(one["text"] for one in events if one["event"] == "stream" and one["index"] == i)
            for i in range(n)]  # fmt: skip


@pytest.mark.parametrize("more", [{}, {"n": 40}, {"banned_strings": ["zebra"]}], ids=str)
def test_texts_are_the_first_sentences_of_what_the_model_writes(server: Server, more: dict[str, Any]) -> None:
    events = server.events({**TALE, **more, "end": {"sentences": 1}})
    for text, stop in zip(texts_of(events, more.get("n", 8)), stops_of(events), strict=True):
        assert (stop["finish_reason"], stop["end"]) == ("stop", "sentences")
        assert SENTENCE.fullmatch(text) or re.search("[.!?][\"'] [a-z]", text), text


def test_no_step_is_computed_behind_the_token_that_shows_the_end(server: Server) -> None:
    events = server.events({**TALE, "return_token_ids": True, "logprobs": 0, "end": {"sentences": 2}})
    for index, text in enumerate(texts_of(events)):
        drawn = "".join(token["text"] for one in events if one["event"] == "stream" and one["index"] == index
                        for token in one["tokens"])  # fmt: skip
        behind = drawn.removeprefix(text)
        assert drawn.startswith(text)
        assert re.fullmatch(r"\s*\S*", behind), "the next word's first token"


def test_a_paragraph_ends_at_a_line_break_and_a_blank_line_counts_once(server: Server) -> None:
    both = {"grammar": 'root ::= "\\nOne. A.\\n\\nTwo. B. \\nThree." [a-z]*'}
    for k, text in {1: "\nOne. A.", 2: "\nOne. A.\n\nTwo. B."}.items():
        events = server.events({**TALE, **both, "end": {"paragraphs": k}})
        assert texts_of(events) == [text] * 8
        assert {stop["end"] for stop in stops_of(events)} == {"paragraphs"}


def test_max_tokens_come_first(server: Server) -> None:
    events = server.events({**TALE, "max_tokens": 3, "end": {"sentences": 3}})
    assert all("end" not in stop and stop["finish_reason"] == "length" for stop in stops_of(events))


def test_a_text_goes_on_behind_its_sentence(server: Server) -> None:
    events = server.events({**TALE, "end": {"sentences": 1}})
    first = texts_of(events)[2]
    name = {"id": events[0]["id"], "index": 2}
    more = server.events({"continue": name, "n": 1, "max_tokens": 200, "end": {"sentences": 1}})
    assert more[0]["event"] == "start"
    assert more[0]["prompt_tokens"] > events[0]["prompt_tokens"]
    (second,) = texts_of(more, 1)
    assert (first[-1] in ".!?\"'", second[0].isspace(), second[-1] in ".!?\"'") == (True, True, True)


def test_the_client_says_that_a_sentence_ended_a_text(server: Server) -> None:
    with Client(server.url) as client:
        choices = client.complete(**TALE, end={"sentences": 1})
    assert {choice.end for choice in choices} == {"sentences"}


BODIES: list[tuple[str, dict[str, Any], str, str]] = [
    ("/v1/completions", {**TALE}, "stop_reason", "sentences"),
    ("/v1/chat/completions", {**TALE, **CHAT}, "stop_reason", "sentences"),
    ("/completion", {**TALE, "n": None, "n_cmpl": 8}, "stop_type", "eos"),
    ("/api/v1/generate", {**TALE}, "finish_reason", "stop"),
    ("/api/generate", {**TALE, "model": None}, "done_reason", "stop"),
]


@each_row(("path", "body", "name", "reason"), BODIES, ids=[path for path, *_ in BODIES])
def test_every_api_ends_a_text_at_a_sentence(
    server: Server, path: str, body: dict[str, Any], name: str, reason: str
) -> None:
    status, answer = server.json("POST", path, {**body, "stream": False, "end": {"sentences": 1}})
    assert status == 200, answer
    assert set(values_of(answer, name)) == {reason}


def test_a_wrong_end_is_refused(server: Server) -> None:
    for end, param in (({"sentences": 0}, "end.sentences"), ({"lines": 1}, "end"), (3, "end"),
                       ({"sentences": 1, "paragraphs": 1}, "end")):  # fmt: skip
        status, answer = server.json("POST", "/v1/completions", {**TALE, "end": end})
        assert (status, answer["error"]["param"]) == (400, param)
