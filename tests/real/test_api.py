"""The whole server with the real engine: waves, cancels, warnings, frames as /openapi.json describes them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.support.rows import each_row
from tests.support.serving import Server, serving

ONCE = "Once upon a time,"


@pytest.fixture(scope="module")
def document(server: Server) -> Any:
    return server.json("GET", "/openapi.json")[1]


class Stream:
    """A stream that a test reads as far as it wants."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self.start = self.next()
        self.id = self.start["id"]

    def next(self) -> dict[str, Any]:
        while not (line := self._response.readline()).startswith(b"data: {"):
            assert line, "the stream has ended"
        event: dict[str, Any] = json.loads(line[6:])
        return event

    def until(self, event: str) -> list[dict[str, Any]]:
        events = [self.next()]
        while events[-1]["event"] != event:
            events.append(self.next())
        return events


@pytest.fixture
def endless(lasting: Server) -> Iterator[Stream]:
    """Four sequences that run until the context is full, unless they are cancelled."""
    body = {"prompt": ONCE, "n": 4, "max_tokens": -1, "ignore_eos": True}
    with closing(lasting.connect()) as connection:
        connection.request("POST", "/v1/events", json.dumps(body))
        yield Stream(connection.getresponse())


# Waves


def test_300_sequences_in_32_slots_come_in_waves_from_one_prefill(server: Server) -> None:
    events = server.events(
        {"prompt": "Lily had a red", "n": 300, "max_tokens": 4, "seed": 7, "temperature": 2}
    )
    stops = Counter(event["index"] for event in events if event["event"] == "stop")
    assert stops == dict.fromkeys(range(300), 1)
    assert (events[0]["count"], events[-1]["count"]) == (300, 300)
    assert events[-1]["completion_tokens"] == sum(e["length"] for e in events if e["event"] == "stop")
    assert events[-1]["prompt_tokens"] < 10, "once, not 300 times"
    texts = [
        "".join(e["text"] for e in events if e["event"] == "stream" and e["index"] == i) for i in range(300)
    ]
    assert len(set(texts)) > 100, "each index draws with a seed of its own"


# Cancelling


def test_one_sequence_is_cancelled_and_the_others_go_on(lasting: Server, endless: Stream) -> None:
    endless.until("stream")
    assert lasting.json("DELETE", f"/v1/completions/{endless.id}/2") == (
        200,
        {"id": endless.id, "cancelled": True},
    )
    stopped = endless.until("stop")[-1]
    assert (stopped["index"], stopped["finish_reason"], stopped["stop"]) == (2, "cancelled", 0)
    after = [endless.until("stream")[-1]["index"] for _ in range(12)]
    assert set(after) == {0, 1, 3}


def test_a_cancelled_request_is_unknown_afterwards(lasting: Server, endless: Stream) -> None:
    endless.until("stream")
    assert lasting.call("DELETE", f"/v1/completions/{endless.id}")[0] == 200
    events = endless.until("done")
    assert {e["finish_reason"] for e in events if e["event"] == "stop"} == {"cancelled"}
    assert lasting.call("DELETE", f"/v1/completions/{endless.id}")[0] == 404


def test_cancelling_an_ended_or_unknown_request_does_no_harm(lasting: Server, endless: Stream) -> None:
    endless.until("stream")
    for index in (1, 1):
        lasting.call("DELETE", f"/v1/completions/{endless.id}/{index}")
    status, answer = lasting.json("DELETE", f"/v1/completions/{endless.id}/4")
    assert (status, answer["error"]["message"], answer["error"]["param"]) == (
        400,
        "index is 4; it must be at most 3, the last of 4",
        "index",
    )
    endless.until("stop")
    assert {endless.until("stream")[-1]["index"] for _ in range(12)} == {0, 2, 3}


# Echo in the event stream


def test_echo_is_an_event_before_all_texts(server: Server) -> None:
    body = {"prompt": ONCE, "n": 2, "max_tokens": 2, "echo": True}
    plain = server.events(body)
    assert [event["event"] for event in plain[:3]] == ["start", "prompt", "stream"]
    assert plain[1] == {"event": "prompt", "text": ONCE}
    scored = [e for e in server.events({**body, "logprobs": 1}) if e["event"] == "prompt"]
    assert "".join(token["text"] for e in scored for token in e.get("tokens", ())) == ONCE


# Warnings and strict


def test_each_sequence_has_a_chain_of_samplers(server: Server) -> None:
    """Twice the same seed, so a chain that is another one in words alone gives the same text."""
    chains = [
        "temp:3 > top_k:20", "top-k > temp:3", ["temp:6", "temp:0.5", "top_k"], "temp:3 > top_k:20 > top_k:1",
        "temp:0", "temp:0 > temp:9 > xtc:0:0.5 > xtc:0",
    ]  # fmt: skip
    own = [{"samplers": chain, "seed": 5, "top_k": 20} for chain in chains]
    body = {"prompt": ONCE, "n": len(own), "max_tokens": 12, "sequences": own, "stream": False}
    answer = server.json("POST", "/v1/completions", body)[1]
    texts = [choice["text"] for choice in answer["choices"]]
    assert texts[0] == texts[1] == texts[2] != texts[3] == texts[4] == texts[5]
    assert answer["warnings"] == ["sequences[3].top_k is not used, because samplers has top_k:20"]


def test_unknown_fields_are_named_in_warnings(server: Server) -> None:
    body = {"prompt": ONCE, "n": 1, "max_tokens": 1, "temprature": 1, "length_penalty": 0.5}
    warnings = [
        '"temprature" is not a known field; did you mean "temperature"?',
        "length_penalty is 0.5, but there is no such setting here; it is not used",
    ]
    assert server.events(body)[0]["warnings"] == warnings
    assert server.json("POST", "/v1/completions", {**body, "stream": False})[1]["warnings"] == warnings


def test_strict_refuses_unknown_fields_and_takes_all_known_ones() -> None:
    with serving("--strict", "--ctx", "4096") as server:
        status, answer = server.json("POST", "/v1/completions", {"prompt": ONCE, "temprature": 1})
        assert (status, answer["error"]["param"]) == (400, "temprature")
        status, answer = server.json("POST", "/v1/completions", {"prompt": ONCE, "model": "gpt-4"})
        assert (status, answer["error"]["param"]) == (404, "model")
        known = {"temp": 0.5, "typical": 1, "rep_pen": 1.1, "top_a": 0, "max_new_tokens": 2, "n": 1}
        assert "warnings" not in server.events({"prompt": ONCE, **known})[0]


def test_an_answer_of_too_many_logprobs_is_refused_and_a_stream_of_them_is_not() -> None:
    body = {"prompt": ONCE, "n": 2, "max_tokens": 450, "logprobs": 9, "ignore_eos": True, "stream": False}
    with serving(
        "--max-unread", "2000", "--ctx", "4096"
    ) as server:  # 100 steps, which a slow client keeps up with
        status, answer = server.json("POST", "/v1/completions", body)
        assert (status, answer["error"]["code"]) == (400, "answer_too_large")
        assert "more than 8000 tokens and alternatives" in answer["error"]["message"]
        assert server.json("POST", "/v1/completions", body | {"logprobs": 3})[0] == 200
        assert server.events(body | {"stream": True})[-1]["choices"][0]["finish_reason"] == "length"


# Frames as /openapi.json describes them


HELLO = [{"role": "user", "content": "Hello"}]


def check(document: Any, schema: Any, value: Any) -> None:
    Draft202012Validator({**schema, "components": document["components"]}).validate(value)


def test_metrics_and_stats_tell_what_the_engine_does(lasting: Server, endless: Stream) -> None:
    endless.until("stream")
    stats = lasting.json("GET", "/v1/stats")[1]
    assert stats["engine"]["sequences"] == 4
    assert stats["engine"]["cells_used"] > 0
    lines = lasting.call("GET", "/metrics")[2].decode().splitlines()
    assert any(line.startswith("llama_srb_") and not line.endswith(" 0.0") for line in lines)


@each_row("ranked", [{}, {"rank_by": "typical", "dedupe": True}, {"best_of": 4}], ids=str)
@each_row(
    ("path", "frame"), [("/v1/events", "Event"), ("/v1/completions", "Chunk")], ids=["events", "chunks"]
)
def test_frames_are_as_described(
    server: Server, document: Any, path: str, frame: str, ranked: dict[str, Any]
) -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}} if frame == "Chunk" else {}
    body = {"prompt": ONCE, "n": 2, "max_tokens": 3, "echo": True, "logprobs": 1, "foo": 1, **options}
    body |= ranked
    check(document, document["components"]["schemas"]["Request"], body)
    frames = server.events(body, path)
    assert len(frames) > 6
    for one in frames:
        check(document, document["components"]["schemas"][frame], one)


@pytest.mark.parametrize("ranked", [{}, {"rank_by": "typical", "dedupe": True}, {"best_of": 4}], ids=str)
def test_frames_of_a_chat_are_as_described(server: Server, document: Any, ranked: dict[str, Any]) -> None:
    body = {
        "messages": HELLO,
        "n": 2,
        "max_tokens": 3,
        "logprobs": True,
        "top_logprobs": 1,
        "foo": 1,
        **ranked,
    }
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    check(document, document["components"]["schemas"]["ChatRequest"], body)
    frames = server.events(body, "/v1/chat/completions")
    for one in frames:
        check(document, document["components"]["schemas"]["ChatChunk"], one)
    choices = [choice for one in frames for choice in one["choices"]]
    assert {choice["index"] for choice in choices if choice["delta"].get("content")} == {0, 1}
    assert sum(len(choice["logprobs"]["content"]) for choice in choices if choice["logprobs"]) == 6


# best_of


def means(choices: list[dict[str, Any]]) -> list[float]:
    return [choice["scores"]["mean_logprob"] for choice in choices]


def test_the_best_of_12_are_the_first_of_all_12(server: Server) -> None:
    body = {"prompt": ONCE, "stream": False, "max_tokens": 12, "seed": 3, "cache": False}
    everyone = server.json("POST", "/v1/completions", body | {"n": 12, "rank_by": "logprob"})[1]
    best = server.json("POST", "/v1/completions", body | {"n": 3, "best_of": 12})[1]
    assert means(everyone["choices"]) == sorted(means(everyone["choices"]), reverse=True)
    assert [choice["index"] for choice in best["choices"]] == [0, 1, 2]
    assert means(best["choices"]) == pytest.approx(means(everyone["choices"])[:3], abs=0.1)
    assert best["usage"]["completion_tokens"] == everyone["usage"]["completion_tokens"]


def test_the_best_are_streamed_best_first_each_in_one_piece(server: Server) -> None:
    body = {"prompt": ONCE, "n": 3, "best_of": 12, "max_tokens": 12, "rank_by": "logprob"}
    start, *events, done = server.events(body)
    assert (start["count"], done["count"], done["ranking"]) == (3, 3, [0, 1, 2])
    assert [(e["event"], e["index"]) for e in events] == [
        (k, i) for i in range(3) for k in ("stream", "stop")
    ]
    logprobs = [event["mean_logprob"] for event in events if event["event"] == "stop"]
    assert logprobs == sorted(logprobs, reverse=True)


def test_a_cancelled_request_still_has_its_n_choices(lasting: Server) -> None:
    body = {"prompt": ONCE, "n": 2, "best_of": 6, "max_tokens": -1, "ignore_eos": True}
    with closing(lasting.connect()) as connection:
        connection.request("POST", "/v1/events", json.dumps(body))
        stream = Stream(connection.getresponse())
        assert lasting.json("DELETE", f"/v1/completions/{stream.id}")[0] == 200
        events = stream.until("done")
    assert [event["index"] for event in events if event["event"] == "stop"] == [0, 1]


def test_duplicates_are_retried_or_marked(server: Server) -> None:
    body = {"prompt": ONCE, "stream": False, "n": 24, "max_tokens": 5, "temperature": 1.2, "seed": 1}
    plain, deduped = (
        server.json("POST", "/v1/completions", body | fields)[1]["choices"]
        for fields in ({}, {"dedupe": True})
    )
    different = [len({choice["text"] for choice in choices}) for choices in (plain, deduped)]
    assert different[0] < different[1]
    assert different[1] == sum("duplicate_of" not in choice for choice in deduped)
    for choice in deduped:
        assert choice["text"] == deduped[choice.get("duplicate_of", choice["index"])]["text"]
