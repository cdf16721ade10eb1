"""The engine's lines: one list of cases, read at once, byte by byte, in odd pieces and with rubbish after it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from llama_srb.engine import codec
from llama_srb.engine.codec import LONG_RESULT, Lines, ProtocolError, parse, read_result
from llama_srb.engine.commands import encode, encode_cancel, encode_extend, encode_generate, encode_prefix
from llama_srb.engine.events import (
    Again,
    Done,
    Embedding,
    Error,
    Event,
    Extend,
    Loading,
    Progress,
    Prompt,
    Queued,
    Ready,
    Result,
    Score,
    Start,
    Stop,
    Stream,
    Then,
    TokenList,
    content_size,
    shows_step,
)
from llama_srb.request.fields import CompletionRequest, Extension
from llama_srb.request.sequence_name import SequenceName
from tests.support.rows import each_row

Token = {"id": 5, "text": " a", "logprob": -0.5, "top": []}

# fmt: off
# ruff: noqa: E501 (a table)
CASES: list[tuple[str, Event]] = [
    ('{"event":"loading","progress":0.42}', Loading(0.42)),
    ('{"event":"loading","progress":1}', Loading(1)),
    ('{"event":"ready","protocol":1,"model":{"name":"m"},"n_ctx":16384,"n_ctx_sequence":2048,"max_sequences":64,"backend":"CPU"}',
     Ready(1, 16384, 64, "CPU", {"name": "m"}, 2048)),
    ('{"event":"ready","protocol":1,"n_ctx":9,"max_sequences":2,"backend":"CPU","cpu":"zen4"}', Ready(1, 9, 2, "CPU", cpu="zen4")),
    ('{"event":"ready","protocol":2,"context":9}', Ready(2, 0, 0, "")),
    ('{"event":"queued","id":"17","position":2}', Queued("17", 2)),
    ('{"event":"start","id":"17","count":8,"prompt_tokens":5,"cached_tokens":4,"seed":7}', Start("17", 8, 5, 4, 7)),
    ('{"event":"prompt","id":"17","text":"Once upon"}', Prompt("17", "Once upon")),
    ('{"event":"prompt","id":"17","text":"","tokens":[{"id":5,"text":" a","logprob":-0.5,"top":[]}]}', Prompt("17", "", TokenList.of([Token]))),
    ('{"event":"progress","id":"17","processed":2048,"total":8192}', Progress("17", 2048, 8192)),
    ('{"event":"stream","id":"17","index":0,"text":" there"}', Stream("17", 0, " there")),
    ('{"event":"stream","id":"17","index":31,"text":"\\n\\"狐🦊\\u2028"}', Stream("17", 31, '\n"狐🦊\u2028')),
    ('{"event":"stream","id":"1","index":0,"text":" a","tokens":[{"id":5,"text":" a","logprob":-0.5,"top":[]}]}', Stream("1", 0, " a", TokenList.of([Token]))),
    ('{"event":"stream","id":"1","index":0,"text":"' + "x" * 200_000 + '"}', Stream("1", 0, "x" * 200_000)),
    ('{"event":"stop","id":"17","index":0,"length":29,"stop":1,"finish_reason":"stop","stop_text":"\\n"}', Stop("17", 0, 29, 1, "stop", "\n")),
    ('{"event":"stop","id":"17","index":0,"length":29,"stop":0,"finish_reason":"length","stop_text":null}', Stop("17", 0, 29, 0, "length")),
    ('{"event":"stop","id":"17","index":0,"length":29,"stop":1,"finish_reason":"stop","free_length":20}',
     Stop("17", 0, 29, 1, "stop", free_length=20)),
    ('{"event":"then","id":"17","index":3,"length":20,"stop":1,"finish_reason":"stop","stop_text":"."}', Then("17", 3, 20, 1, "stop", ".")),
    ('{"event":"extend","id":"17","first":8,"count":12}', Extend("17", 8, 12)),
    ('{"event":"done","id":"17","count":8,"prompt_tokens":5,"cached_tokens":4,"completion_tokens":201,"timings":{"total_ms":3.5}}',
     Done("17", 8, 5, 4, 201, {"total_ms": 3.5})),
    ('{"event":"error","id":"17","code":"context_exceeded","message":"too long"}', Error("context_exceeded", "too long", "17")),
    ('{"event":"error","id":"17","code":"context_exceeded","message":"too long","n_prompt_tokens":9,"n_ctx":8}',
     Error("context_exceeded", "too long", "17", n_prompt_tokens=9, n_ctx=8)),
    ('{"event":"error","code":"invalid_request","message":"no","param":"n"}', Error("invalid_request", "no", "", "n")),
    ('{"event":"result","id":"19","tokens":[1,2]}', Result("19", {"tokens": [1, 2]})),
]

RUBBISH = {
    "no JSON": b"llama_decode: failed",
    "nothing": b"",
    "half a line": b'{"event":"stream","id":"17","ind',
    "no object": b"[1,2]",
    "a number": b"7",
    "no event": b'{"id":"17"}',
    "an event that is no text": b'{"event":["stream"]}',
    "invalid UTF-8": b'{"event":"stream","id":"17","index":0,"text":"\xff"}',
    "a missing field": b'{"event":"stream","id":"17","text":"a"}',
    "no id": b'{"event":"done","count":8,"prompt_tokens":5,"cached_tokens":4,"completion_tokens":201}',
    "text for a number": b'{"event":"stream","id":"17","index":"0","text":"a"}',
    "true for a number": b'{"event":"stream","id":"17","index":true,"text":"a"}',
    "a number for an id": b'{"event":"stream","id":17,"index":0,"text":"a"}',
    "null for a needed field": b'{"event":"queued","id":"17","position":null}',
    "a fraction for a count": b'{"event":"queued","id":"17","position":1.5}',
    "a list for an object": b'{"event":"done","id":"1","count":1,"prompt_tokens":1,"cached_tokens":0,"completion_tokens":1,"timings":[]}',
    "an object for a list": b'{"event":"stream","id":"17","index":0,"text":"a","tokens":{}}',
    "a result without id": b'{"event":"result","tokens":[]}',
    "a protocol that is no number": b'{"event":"ready","protocol":"1"}',
}
# fmt: on


def whole(data: bytes) -> list[bytes]:
    return [data]


def bytewise(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


def in_odd_pieces(data: bytes) -> list[bytes]:
    return [data[i : i + 7919] for i in range(0, len(data), 7919)]


def read(pieces: list[bytes]) -> list[Event | None]:
    lines = Lines()
    return [parse(line) for piece in pieces for line in lines.feed(piece)]


@each_row("cut", [whole, bytewise, in_odd_pieces])
@each_row(("line", "event"), CASES, ids=[line[10:40] for line, _ in CASES])
def test_a_line_is_its_event(line: str, event: Event, cut: Callable[[bytes], list[bytes]]) -> None:
    assert read(cut(line.encode() + b"\n")) == [event]


@pytest.mark.parametrize("cut", [whole, bytewise, in_odd_pieces])
def test_lines_are_read_in_order_wherever_reads_end(cut: Callable[[bytes], list[bytes]]) -> None:
    data = "".join(line + "\n" for line, _ in CASES).encode()
    assert read(cut(data)) == [event for _, event in CASES]


@each_row("rubbish", RUBBISH.values(), ids=RUBBISH)
def test_rubbish_after_a_line_does_not_damage_the_line(rubbish: bytes) -> None:
    for line, event in CASES:
        first, second = Lines().feed(line.encode() + b"\n" + rubbish + b"\n")
        assert parse(first) == event
        with pytest.raises(ProtocolError):
            parse(second)


def test_some_events_are_signs_of_a_made_step() -> None:
    shown = {type(event) for _, event in CASES if shows_step(event)}
    assert shown == {Progress, Stream, Stop, Then}
    assert not shows_step(Stop("17", 0, 0, 0, "cancelled"))
    others = (
        Again("17", 0),
        Then("17", 0, 9, 0, "length"),
        Score("17", 0, 3, -1.0, False),
        Embedding("17", 0, 3, (1.0,)),
    )
    assert all(map(shows_step, others))


def test_an_unfinished_line_is_no_line() -> None:
    assert Lines().feed(CASES[0][0].encode()) == []


@each_row(("line", "event"), CASES, ids=[line[10:40] for line, _ in CASES])
def test_unknown_fields_are_ignored(line: str, event: Event) -> None:
    if not isinstance(event, Result):  # a Result takes any field
        assert parse(line[:-1].encode() + b',"from_the_future":{"a":[1]}}') == event


def test_an_unknown_event_is_ignored() -> None:
    assert parse(b'{"event":"from_the_future","id":"17"}') is None


def test_a_fault_names_the_field_and_quotes_nothing_of_the_line() -> None:
    line = b'{"event":"stream","id":"17","text":"a \\"secret\\" thing","tokens":[-nan]}'
    with pytest.raises(ProtocolError, match="is not valid JSON") as caught:
        parse(line)
    assert "secret" not in str(caught.value)
    assert "17" not in str(caught.value)
    assert (caught.value.event, caught.value.id) == ("stream", "17")
    assert caught.value.shown == '{"event":"…","id":"…","text":"…","tokens":[-nan]}'
    with pytest.raises(ProtocolError, match="without 'index'"):
        parse(b'{"event":"stream","id":"17","text":"a"}')
    with pytest.raises(ProtocolError) as caught:
        parse(b"x" * 100_000)
    assert len(caught.value.shown) < 250
    assert (caught.value.event, caught.value.id) == ("", "")


def test_a_line_without_end_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "LINE_LIMIT", 1000)
    lines = Lines()
    assert lines.feed(b"x" * 999) == []
    with pytest.raises(ProtocolError, match="1000"):
        lines.feed(b"xx")


COMMANDS: list[tuple[bytes, dict[str, Any]]] = [
    (encode("status", "1"), {"op": "status", "id": "1"}),
    (encode("tokenize", "1", text='a\n"狐\u2028'), {"op": "tokenize", "id": "1", "text": 'a\n"狐\u2028'}),
    (encode_cancel("1"), {"op": "cancel", "id": "1"}),
    (encode_cancel("1", 0), {"op": "cancel", "id": "1", "index": 0}),
    (encode_prefix("1", CompletionRequest(prompt="a", n=3)), {"op": "prefix", "id": "1", "prompt": "a"}),
    (encode_prefix("1", CompletionRequest(prompt=(5, 6))), {"op": "prefix", "id": "1", "tokens": [5, 6]}),
    (encode_extend("1", Extension()), {"op": "extend", "id": "1", "add": 1}),
    (
        encode_extend("1", Extension(4, 256, SequenceName(2, 17))),
        {"op": "extend", "id": "1", "add": 4, "max_tokens": 256, "fork": {"index": 2, "at": 17}},
    ),
]


@each_row(("line", "command"), COMMANDS, ids=[c["op"] for _, c in COMMANDS])
def test_a_command_is_one_line_of_json(line: bytes, command: dict[str, Any]) -> None:
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == command


def test_generate_carries_the_fields_of_the_request() -> None:
    request = CompletionRequest(prompt="Once", n=3, max_tokens=5, stop=("\n",))
    command = json.loads(encode_generate("17", request))
    assert command == {"op": "generate", "id": "17", **request.engine_fields()}
    assert (command["prompt"], command["n"], command["stop"]) == ("Once", 3, ["\n"])


def test_a_value_without_json_is_a_type_error() -> None:
    for value in ("\ud800", 1 << 64):
        with pytest.raises(TypeError):
            encode("tokenize", "1", text=value)


def test_the_size_of_an_event_is_about_its_memory() -> None:
    others = [{"id": 1, "text": '"logprob":', "logprob": -1.0}] * 20
    tokens = TokenList.of([{"id": 1, "text": "a", "logprob": -1.0, "top": others}])
    assert (
        content_size(
            [Stream("a", 0, "x"), Stream("a", 0, "x", tokens), Score("a", 0, 1, -1.0, False, tokens)]
        )
        == 42
    )
    assert content_size([Prompt("a", "x" * 2560, tokens), Stream("a", 0, "x" * 2560)]) == 10 + 21 + 10
    assert (
        content_size([Embedding("a", 0, 1, (0.0,) * 800), Stream("a", 0, "", reasoning="x" * 2560)])
        == 100 + 10
    )


@pytest.mark.parametrize("more", [{}, {"control": [1]}], ids=["last", "not last"])
def test_a_long_result_is_read_later_and_says_the_same(more: dict[str, Any]) -> None:
    pieces = [[34, 44], [], [91, 93], [255]] * 9000
    line = orjson.dumps({"event": "result", "id": "7", "text": '"pieces":[[', "pieces": pieces, **more})
    assert parse(line) == Result("7", {}, line)
    said = orjson.loads(line)
    found = dict(read_result(line))
    assert list(map(list, found.pop("pieces"))) == said["pieces"]
    assert found == {"text": said["text"], **more}


@each_row("wrong", ['"pieces":[[1],[256]]', '"pieces":[[1],[x]]', '"pieces":[[1]', '"pieces":[[1]]'])
def test_a_long_result_that_cannot_be_read_is_a_fault(wrong: str) -> None:
    line = f'{{"event":"result","id":"7",{wrong},"more":"{"a" * LONG_RESULT}"'.encode()
    with pytest.raises(ProtocolError):
        read_result(line)
