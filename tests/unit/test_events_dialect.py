"""The event stream, byte by byte, as the README shows it."""

import json

import pytest

from llama_srb.dialects import events, messages
from llama_srb.engine.events import (
    Done,
    Error,
    Event,
    Extend,
    Loading,
    Progress,
    Prompt,
    Queued,
    Start,
    Stop,
    Stream,
    Then,
    TokenList,
)
from llama_srb.request.parse import Defaults
from llama_srb.request.values import RequestError
from tests.support.rows import each_row

FRAMES: list[tuple[Event, str]] = [
    (Loading(0.4, "1"), '{"event": "loading", "id": "1", "progress": 0.4}'),
    (Queued("1", 2), '{"event": "queued", "position": 2, "id": "1"}'),
    (
        Start("1", 8, 5, 4, 7),
        '{"event": "start", "count": 8, "id": "1", "prompt_tokens": 5, "cached_tokens": 4, "seed": 7}',
    ),
    (Prompt("1", "Once"), '{"event": "prompt", "text": "Once"}'),
    (
        Prompt("1", "", TokenList.of([{"id": 5, "logprob": None}])),
        '{"event": "prompt", "text": "", "tokens": [{"id": 5, "logprob": null}]}',
    ),
    (Progress("1", 2048, 8192), '{"event": "progress", "processed": 2048, "total": 8192}'),
    (Stream("1", 0, " there"), '{"event": "stream", "index": 0, "text": " there"}'),
    (Stream("1", 12, '"\n\0é\u2028'), '{"event": "stream", "index": 12, "text": "\\"\\n\\u0000é\u2028"}'),
    (
        Stream("1", 3, "a", TokenList.of([{"id": 5, "logprob": -0.5}])),
        '{"event": "stream", "index": 3, "text": "a", "tokens": [{"id":5,"logprob":-0.5}]}',
    ),
    (
        Stop("1", 7, 12, 1, "stop", "\n\n"),
        '{"event": "stop", "index": 7, "length": 12, "stop": 1, "finish_reason": "stop", '
        '"stop_text": "\\n\\n"}',
    ),
    (
        Stop("1", 7, 128, 0, "length"),
        '{"event": "stop", "index": 7, "length": 128, "stop": 0, "finish_reason": "length"}',
    ),
    (
        Stop("1", 2, 9, 1, "stop", "", -11.5, -1.25, 0.75, duplicate_of=0),
        '{"event": "stop", "index": 2, "length": 9, "stop": 1, "finish_reason": "stop", "logprob": -11.5, '
        '"mean_logprob": -1.25, "distinct_2": 0.75, "duplicate_of": 0}',
    ),
    (
        Stop("1", 2, 9, 1, "stop", free_length=5),
        '{"event": "stop", "index": 2, "length": 9, "stop": 1, "finish_reason": "stop", "free_length": 5}',
    ),
    (
        Then("1", 2, 5, 1, "stop", "."),
        '{"event": "then", "index": 2, "length": 5, "stop": 1, "finish_reason": "stop", "stop_text": "."}',
    ),
    (Extend("1", 8, 12), '{"event": "extend", "first": 8, "count": 12}'),
    (
        Done("1", 8, 5, 4, 201, {"prompt_ms": 1.5}),
        '{"event": "done", "count": 8, "prompt_tokens": 5, "cached_tokens": 4, "completion_tokens": 201, '
        '"timings": {"prompt_ms": 1.5}}',
    ),
    (
        Done("1", 2, 5, 4, 20, ranking=(1, 0)),
        '{"event": "done", "count": 2, "prompt_tokens": 5, "cached_tokens": 4, "completion_tokens": 20, '
        '"timings": {}, "ranking": [1, 0]}',
    ),
    (Error("engine_died", "é", "1"), '{"event": "error", "code": "engine_died", "message": "é"}'),
    (
        Error("invalid_request", "m", "1", "prompt"),
        '{"event": "error", "code": "invalid_request", "message": "m", "param": "prompt"}',
    ),
]


@each_row(("event", "data"), FRAMES, ids=lambda value: type(value).__name__)
def test_each_event_is_one_frame(event: Event, data: str) -> None:
    assert events.render([event]).decode() == f"data: {data}\n\n"
    assert json.loads(data)["event"] == type(event).__name__.lower()


def test_frames_follow_in_order() -> None:
    assert events.render([event for event, _ in FRAMES]).decode() == "".join(
        f"data: {d}\n\n" for _, d in FRAMES
    )


def test_events_that_are_not_for_clients_are_left_out() -> None:
    assert events.render([Loading(0.5)]) == b""
    assert events.render([]) == b""


def test_a_message_about_a_load_has_the_clients_id() -> None:
    (message,) = messages.render("mine", [Loading(0.4, "1")])
    assert json.loads(message) == {"event": "loading", "id": "mine", "progress": 0.4}


def test_warnings_go_into_the_start_event() -> None:
    frame = events.render([Start("1", 8, 5, 4, 7), Stream("1", 0, "x")], {"warnings": ("not used",)}).decode()
    assert json.loads(frame.split("\n\n")[0].removeprefix("data: "))["warnings"] == ["not used"]
    assert frame.count("warnings") == 1


def test_n_and_max_tokens_come_from_the_server() -> None:
    request = events.parse({"prompt": "x"}, Defaults(n=3))
    assert (request.n, request.max_tokens) == (3, 128)


def test_fields_that_choose_a_dialect_cause_no_warning() -> None:
    assert not events.parse(
        {"prompt": "x", "model": "m", "stream": True, "user": "u"}, Defaults(strict=True)
    ).warnings


def test_a_bad_body_is_a_request_error() -> None:
    with pytest.raises(RequestError, match="prompt is missing"):
        events.parse({}, Defaults())
