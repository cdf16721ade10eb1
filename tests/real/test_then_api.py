"""Second answers over HTTP: both engine modes, every dialect's bodies and streams, usage, ranking."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.rows import each_row
from tests.support.serving import Server, serving

Body = dict[str, Any]
SO = " So:"
THEN: Body = {"text": SO, "regex": "[ab]{3}"}
BOTH: Body = {**THEN, "return_free": True}
LONG: Body = {"ignore_eos": True, "seed": 4, "max_tokens": 6}
ONCE: Body = {"prompt": "Once upon a time,", **LONG}
CHAT: Body = {"messages": [{"role": "user", "content": "A story!"}], **LONG}
SECOND = re.compile("[ab]{3}")
WHOLE = re.compile(r".+ So:[ab]{3}", re.DOTALL)


@pytest.fixture(scope="module", params=["resident", "per-request"])
def either(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each engine mode, with four sequences at a time."""
    with serving("--ctx", "4096", "--parallel", "4", "--engine-mode", request.param) as server:
        yield server


def frames(server: Server, path: str, body: Body) -> list[Any]:
    """The objects of a stream, of server-sent events or of lines."""
    status, headers, data = server.call("POST", path, body)
    assert status == 200, data
    lines = data.decode().splitlines()
    if "ndjson" in headers["Content-Type"]:
        return [json.loads(line) for line in lines]
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def events_of(server: Server, body: Body) -> tuple[list[str], list[Body], Body]:
    """The texts, the stop events in order, and done."""
    events = server.events(body, "/v1/events")
    stops = sorted((e for e in events if e["event"] == "stop"), key=lambda stop: stop["index"])
    texts = ["".join(e["text"] for e in events if e["event"] == "stream" and e["index"] == i)
             for i in range(len(stops))]  # fmt: skip
    return texts, stops, events[-1]


def test_the_event_stream_has_second_answers_in_waves(either: Server) -> None:
    texts, stops, done = events_of(either, {**ONCE, "n": 10, "then": THEN})
    assert len(texts) == 10
    assert all(map(SECOND.fullmatch, texts))
    assert all(stop["free_length"] == 6 and stop["finish_reason"] == "stop" for stop in stops)
    assert done["completion_tokens"] == sum(stop["length"] for stop in stops)


def test_an_event_stands_between_two_answers(either: Server) -> None:
    events = either.events({**ONCE, "n": 3, "then": BOTH}, "/v1/events")
    for index in range(3):
        own = [event for event in events if event.get("index") == index]
        border = [event["event"] for event in own].index("then")
        assert list(own[border])[:4] == ["event", "index", "length", "stop"]
        assert own[border]["finish_reason"] == "length"
        free, second = ("".join(e["text"] for e in part if e["event"] == "stream")
                        for part in (own[:border], own[border:]))  # fmt: skip
        assert free
        assert SECOND.fullmatch(second)


def test_a_request_is_cancelled_in_its_second_answers(either: Server) -> None:
    """The client reads up to the first `then` and leaves: the engine becomes free for the next request."""
    body = {**ONCE, "n": 6, "then": {"text": SO, "max_tokens": 900, "return_free": True}}
    connection = either.connect()
    connection.request("POST", "/v1/events", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    while b'"then"' not in response.readline():
        pass
    connection.close()
    assert events_of(either, {**ONCE, "n": 2, "then": THEN})[1][0]["finish_reason"] == "stop"


# Other dialects: what of an answer is its text


def openai(body: Body) -> list[str]:
    return [choice["text"] for choice in body["choices"]]


def chats(body: Body) -> list[str]:
    return [choice["message"]["content"] for choice in body["choices"]]


def anthropic(body: Body) -> list[str]:
    return ["".join(block["text"] for block in body["content"])]


def responses(body: Body) -> list[str]:
    return ["".join(part["text"] for item in body["output"] for part in item["content"])]


ONE, FOUR = {"n": 1}, {"n": 6}
ANSWERS: list[tuple[str, Body, Any]] = [
    ("/openai/v1/completions", ONCE | FOUR, openai),
    ("/openai/v1/completions", ONCE | FOUR | {"prompt": ["Once", "The"]}, openai),
    ("/v1/chat/completions", CHAT | FOUR, chats),
    ("/v1/messages", CHAT, anthropic),
    ("/v1/responses", {"input": "A story!", "max_output_tokens": 6, "ignore_eos": True}, responses),
    ("/completion", ONCE | {"n_predict": 6}, lambda body: [body["content"]]),
    ("/api/v1/generate", ONCE | {"max_length": 6}, lambda body: [body["results"][0]["text"]]),
    ("/api/generate", ONCE | {"stream": False}, lambda body: [body["response"]]),
    ("/api/chat", CHAT | {"stream": False}, lambda body: [body["message"]["content"]]),
]  # fmt: skip
IDS = [f"{path} {len(body)}" for path, body, _ in ANSWERS]


@each_row(("path", "body", "texts"), ANSWERS, ids=IDS)
def test_bodies_have_only_second_answers_unless_both_are_asked_for(
    server: Server, path: str, body: Body, texts: Any
) -> None:
    for then, expected in ((THEN, SECOND), (BOTH, WHOLE)):
        status, answer = server.json("POST", path, {**body, "then": then})
        assert status == 200, answer
        found = texts(answer)
        assert all(map(expected.fullmatch, found)), found
        assert len(found) == body.get("n", 1) * (2 if isinstance(body.get("prompt"), list) else 1)


STREAMS: list[tuple[str, Body, Any]] = [
    ("/openai/v1/completions", ONCE | {"stream": True},
     lambda frame: frame["choices"][0]["text"] if frame["choices"] else ""),
    ("/v1/chat/completions", CHAT | {"stream": True},
     lambda frame: frame["choices"][0]["delta"].get("content") or "" if frame["choices"] else ""),
    ("/v1/messages", CHAT | {"stream": True}, lambda frame: frame.get("delta", {}).get("text", "")),
    ("/v1/responses", {"input": "A story!", "max_output_tokens": 6, "ignore_eos": True, "stream": True},
     lambda frame: frame.get("delta", "")),
    ("/completion", ONCE | {"n_predict": 6, "stream": True}, lambda frame: frame["content"]),
    ("/api/extra/generate/stream", ONCE | {"max_length": 6}, lambda frame: frame["token"]),
    ("/api/generate", ONCE, lambda frame: frame["response"]),
    ("/api/chat", CHAT, lambda frame: frame["message"]["content"]),
]  # fmt: skip


@each_row(("path", "body", "text"), STREAMS, ids=[path for path, _, _ in STREAMS])
def test_streams_have_only_second_answers_unless_both_are_asked_for(
    server: Server, path: str, body: Body, text: Any
) -> None:
    for then, expected in ((THEN, SECOND), (BOTH, WHOLE)):
        found = "".join(map(text, frames(server, path, {**body, "n": 1, "then": then})))
        assert expected.fullmatch(found), found


def test_usage_counts_both_answers(server: Server) -> None:
    body: Body = {**ONCE, "n": 4, "then": {"text": SO, "max_tokens": 5}}
    usage = server.json("POST", "/openai/v1/completions", body)[1]["usage"]
    assert usage["completion_tokens"] == 4 * (6 + 5)
    assert usage["total_tokens"] == usage["prompt_tokens"] + 44


def test_logprobs_of_a_choice_are_those_of_the_second_answer(server: Server) -> None:
    body: Body = {**ONCE, "n": 2, "logprobs": 1, "then": {"text": SO, "max_tokens": 5}}
    for choice in server.json("POST", "/openai/v1/completions", body)[1]["choices"]:
        assert len(choice["logprobs"]["tokens"]) == 5
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"]


@pytest.mark.parametrize("rank", ["logprob", "typical", "diversity"])
def test_second_answers_are_ranked(server: Server, rank: str) -> None:
    body: Body = {**ONCE, "n": 3, "best_of": 6, "rank_by": rank, "temperature": 1.5, "then": THEN}
    texts, stops, done = events_of(server, body)
    assert len(texts) == 3
    assert all(map(SECOND.fullmatch, texts))
    assert done["ranking"] == [0, 1, 2]
    for stop in stops:
        assert stop["mean_logprob"] == pytest.approx(stop["logprob"] / (stop["length"] - stop["free_length"]))
    texts, _, done = events_of(server, {**ONCE, "n": 4, "rank_by": rank, "then": BOTH})
    assert sorted(done["ranking"]) == [0, 1, 2, 3]


def test_then_may_be_an_object_as_text(server: Server) -> None:
    """`then` as JSON text, as a command line gives it."""
    texts, _, _ = events_of(server, {**ONCE, "n": 2, "then": json.dumps(THEN)})
    assert all(map(SECOND.fullmatch, texts))
