"""The Python client against a real server over sockets, with the fake engine."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_srb import client
from llama_srb.client import (
    Answer,
    AsyncClient,
    Client,
    ConnectionFailed,
    Done,
    Error,
    Event,
    Loading,
    Progress,
    Prompt,
    Queued,
    RequestRefused,
    ServerError,
    Start,
    Stop,
    Text,
    Then,
    UnknownField,
    core,
)
from llama_srb.client.models import models_from
from tests.fake_engine import story
from tests.support.bench import Bench
from tests.support.rows import each_row

PROMPT = "Once upon a time,"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def server(bench: Bench) -> Iterator[str]:
    """The address of a server whose stories end only by max_tokens, a stop or a cancel."""
    with bench.serving("--", "--endless") as (_, greeting):
        yield greeting.split()[0]


@pytest.fixture
def caller(server: str) -> Iterator[Client]:
    with Client(server) as made:
        yield made


def notes(bench: Bench, what: str) -> list[str]:
    """The engine's journal entries of this kind."""
    lines = [json.loads(line)["what"] for line in bench.journal.read_text().splitlines()]
    return [line for line in lines if line.startswith(what)]


# Choices


def test_complete_gives_n_choices(caller: Client) -> None:
    choices = caller.complete(PROMPT, n=3, max_tokens=5, seed=7)
    assert [choice.text for choice in choices] == ["".join(story(PROMPT, 7, i, 5)) for i in range(3)]
    assert [(c.index, c.length, c.finish_reason, c.seed) for c in choices] == [
        (0, 5, "length", 7),
        (1, 5, "length", 8),
        (2, 5, "length", 9),
    ]


def test_a_client_names_its_model_in_each_request(bench: Bench) -> None:
    with bench.serving("--alias", "writer", "--strict") as (_, greeting):
        with Client(greeting.split()[0], model="writer") as caller:
            assert len(caller.complete(PROMPT, n=2, max_tokens=1)) == 2
            assert [len(caller.embed("a")), len(caller.score(PROMPT, "b"))] == [1, 1]
            assert caller.prefix(PROMPT) == 4
            with pytest.raises(RequestRefused, match="poet"):
                caller.complete(PROMPT, max_tokens=1, model="poet")
        with (
            Client(greeting.split()[0], model="poet") as caller,
            pytest.raises(RequestRefused, match="poet"),
        ):
            caller.chat([{"role": "user", "content": "?"}])


async def test_models_are_listed(bench: Bench) -> None:
    with bench.serving("--alias", "writer") as (_, greeting):
        url = greeting.split()[0]
        with Client(url) as caller:
            (model,) = caller.models()
        async with AsyncClient(url, model=model.id) as same:
            assert await same.models() == [model]
    assert (model.id, model.aliases, model.parent) == ("writer", ("writer",), None)


@pytest.mark.parametrize(
    "answer", [[], {}, {"data": [{}]}, {"data": [{"id": 1}]}, {"data": [{"id": "a", "status": 1}]}]
)
def test_an_answer_that_lists_no_models_is_an_error(answer: Any) -> None:
    with pytest.raises(core.MALFORMED):
        models_from(answer)


def test_n_is_the_servers_if_not_given(caller: Client) -> None:
    assert len(caller.complete(PROMPT, max_tokens=1)) == 8


def test_a_prompt_may_be_token_ids(caller: Client) -> None:
    assert len(caller.complete([1, 2, 3], n=1, max_tokens=1)) == 1


def test_a_choice_has_the_stop_string_that_ended_it(caller: Client) -> None:
    word = story(PROMPT, 7, 0, 3)[2]
    (choice,) = caller.complete(PROMPT, n=1, max_tokens=5, seed=7, stop=word)
    assert (choice.finish_reason, choice.stop_text) == ("stop", word)
    assert word not in choice.text


def test_echo_puts_the_prompt_before_each(caller: Client) -> None:
    choices = caller.complete(PROMPT, n=2, max_tokens=1, echo=True)
    assert all(choice.text.startswith(PROMPT + " ") for choice in choices)


SEEDS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [7, 8]),
    ({"seed": 7}, [7, 8]),
    ({"seed": [3, 9]}, [3, 9]),
    ({"seed": 7, "sequences": [{}, {"seed": 40}]}, [7, 40]),
    ({"seed": -1}, [7, 8]),
    ({"seed": 2**32 - 1}, [7, 8]),
    ({"seed": [3, 2**32 - 1]}, [3, 8]),
    ({"sequences": [{"seed": 2**32 - 1}, {"seed": -1}]}, [7, 8]),
]


@each_row(("body", "seeds"), SEEDS)
def test_a_choice_has_its_seed(body: dict[str, Any], seeds: list[int]) -> None:
    answer = Answer(body)
    answer.take(Start(2, "x", 1, 0, 7))
    assert [choice.seed for choice in answer.choices] == seeds


# Second answers

THEN: dict[str, Any] = {"text": " So:", "max_tokens": 2}
BOTH = {**THEN, "return_free": True}


def second(index: int) -> str:
    return "".join(story(PROMPT + " So:", 7, index, 2))


def test_a_choice_is_the_second_answer(caller: Client) -> None:
    choices = caller.complete(PROMPT, n=3, max_tokens=4, seed=7, then=THEN)
    assert [choice.text for choice in choices] == [second(i) for i in range(3)]
    assert {(one.length, one.free_length, one.free, one.finish_reason) for one in choices} == {
        (6, 4, None, "length")
    }


def test_a_choice_has_its_free_answer_if_it_is_returned(caller: Client) -> None:
    with caller.stream(PROMPT, n=2, max_tokens=4, seed=7, then=BOTH) as stream:
        borders = [event for event in stream if isinstance(event, Then)]
    assert borders == [Then(index, 4, 0, "length") for index in (0, 1)]
    for index, choice in enumerate(stream.choices):
        free = client.Choice(index, "".join(story(PROMPT, 7, index, 4)), 4, "length", seed=7 + index)
        assert choice == client.Choice(
            index, second(index), 6, "length", seed=7 + index, free_length=4, free=free
        )


def test_an_answer_that_is_cancelled_before_the_second_one_has_only_the_free_one(caller: Client) -> None:
    with caller.stream(PROMPT, n=1, max_tokens=-1, then=BOTH) as stream:
        for event in stream:
            if isinstance(event, Text):
                assert (stream.choices[0].text, stream.choices[0].finish_reason) == ("", None)
                stream.cancel()
    [choice] = stream.choices
    assert choice.free
    assert choice.free.text
    assert (choice.text, choice.finish_reason, choice.free_length) == ("", "cancelled", None)
    assert (choice.free.finish_reason, choice.free.length) == ("cancelled", choice.length)


SECOND: list[tuple[dict[str, Any], list[Event], tuple[str, str | None, int]]] = [
    ({"then": BOTH}, [], ("", "free", 1)),
    ({"then": BOTH}, [Then(0, 1, 1, "stop")], ("", "free", 1)),
    ({"then": BOTH}, [Then(0, 1, 1, "stop"), Text(0, "so")], ("so", "free", 2)),
    ({"then": BOTH}, [Then(0, 1, 1, "stop"), Text(0, "so"), Stop(0, 2, 1, "stop")], ("so", "free", 2)),
    ({"then": THEN}, [Stop(0, 9, 1, "stop", free_length=8)], ("free", None, 9)),
    ({}, [], ("free", None, 1)),
    ({}, [Then(0, 1, 1, "stop"), Text(0, "so")], ("so", "free", 2)),  # a task's own `then`
]


@each_row(("body", "events", "made"), SECOND)
def test_events_of_two_answers_make_a_choice(
    body: dict[str, Any], events: list[Event], made: tuple[str, str | None, int]
) -> None:
    answer = Answer(body)
    for event in (Start(1, "x", 1, 0, 7), Text(0, "free"), *events):
        answer.take(event)
    [choice] = answer.choices
    assert (choice.text, choice.free and choice.free.text, choice.length) == made


async def test_both_clients_give_the_same(server: str) -> None:
    fields: dict[str, Any] = {"n": 3, "max_tokens": 5, "temperature": [0.6, 0.8, 1.0], "seed": 7}
    async with AsyncClient(server) as asynchronous:
        choices = await asynchronous.complete(PROMPT, **fields)
    with Client(server) as synchronous:
        assert synchronous.complete(PROMPT, **fields) == choices


# Streams


def test_a_stream_gives_events_in_order(caller: Client) -> None:
    with caller.stream(PROMPT, n=2, max_tokens=3, seed=7) as stream:
        events = list(stream)
    start, done = events[0], events[-1]
    assert isinstance(start, Start)
    assert (start.id, start.count, start.seed) == (stream.id, 2, 7)
    assert isinstance(done, Done)
    assert (done.completion_tokens, done.timings) == (6, {"total_ms": 1.0})
    assert "".join(e.text for e in events if isinstance(e, Text) and e.index == 1) == stream.choices[1].text


def test_one_sequence_can_be_cancelled(caller: Client) -> None:
    with caller.stream(PROMPT, n=4, max_tokens=-1) as stream:
        assert stream.cancel(3)
        stopped = next(event for event in stream if isinstance(event, Stop))
        assert (stopped.index, stopped.finish_reason) == (3, "cancelled")
        assert stream.cancel()
        assert [choice.finish_reason for choice in _all(stream)] == ["cancelled"] * 4
        assert not stream.cancel()


def _all(stream: client.Stream) -> list[client.Choice]:
    for _ in stream:
        pass
    return stream.choices


async def test_one_sequence_can_be_cancelled_asynchronously(server: str) -> None:
    async with AsyncClient(server) as caller, caller.stream(PROMPT, n=4, max_tokens=-1) as stream:
        assert await stream.cancel(3)
        stopped = [event async for event in _until_stop(stream)][-1]
        assert stopped == Stop(3, stopped.length, 0, "cancelled")
        assert await stream.cancel()
        assert isinstance([event async for event in stream][-1], Done)
        assert not await stream.cancel()


async def _until_stop(stream: client.AsyncStream) -> Any:
    async for event in stream:
        if isinstance(event, Stop):
            yield event
            return


def test_a_request_that_waits_can_be_cancelled(bench: Bench) -> None:
    with (
        bench.serving("--parallel", "1", "--", "--endless") as (_, greeting),
        Client(greeting.split()[0]) as caller,
        caller.stream(PROMPT, n=1, max_tokens=-1),
        caller.stream(PROMPT, n=2, max_tokens=-1) as waiting,
    ):
        assert isinstance(next(waiting), Queued)
        assert waiting.cancel()
        assert [choice.finish_reason for choice in _all(waiting)] == ["cancelled"] * 2


async def _leave(server: str) -> None:
    async with AsyncClient(server) as caller, caller.stream(PROMPT, n=2, max_tokens=-1) as stream:
        await anext(stream)


def _leave_at_once(server: str) -> None:
    with Client(server) as caller, caller.stream(PROMPT, n=2, max_tokens=-1) as stream:
        next(stream)


async def test_leaving_a_stream_cancels_it(server: str, bench: Bench) -> None:
    _leave_at_once(server)
    await _leave(server)
    with Client(server) as caller:  # a later request ends after the cancelled ones have
        while len(notes(bench, "done")) < 2:
            caller.complete(PROMPT, n=1, max_tokens=1)
    assert len(notes(bench, "cancel")) == 2


# Errors


def test_unknown_fields_are_refused_before_anything_is_sent(caller: Client, bench: Bench) -> None:
    with pytest.raises(UnknownField, match=r"temperatur is not a known field; did you mean temperature\?"):
        caller.complete(PROMPT, temperatur=1)
    with pytest.raises(TypeError):
        caller.stream(PROMPT, zzz=1)
    assert notes(bench, "generate") == []


async def test_unknown_fields_are_refused_asynchronously(server: str) -> None:
    async with AsyncClient(server) as caller:
        with pytest.raises(UnknownField, match=r"did you mean top_k\?"):
            await caller.complete(PROMPT, topk=1)


def test_aliases_are_known(caller: Client) -> None:
    assert caller.complete(PROMPT, n=1, n_predict=2)[0].length == 2


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"n": 0}, "n"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": float("nan")}, "temperature"),
    ({"stop": "\ud800"}, "stop"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
def test_a_servers_refusal_names_its_field(caller: Client, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        caller.complete(PROMPT, **fields)
    assert refused.value.param == param


def test_a_prompt_that_is_too_long_is_refused(caller: Client) -> None:
    with pytest.raises(RequestRefused) as refused:
        caller.complete("x " * 20000, n=1)
    assert refused.value.code == "context_length_exceeded"


def test_an_engine_that_dies_is_a_server_error(bench: Bench) -> None:
    with (
        bench.serving("--engine-mode", "per-request", "--", "--die-after", "9") as (_, greeting),
        Client(greeting.split()[0]) as caller,
        pytest.raises(ServerError) as failed,
    ):
        caller.complete(PROMPT, n=2)
    assert failed.value.code == "engine_died"


async def test_a_lost_server_is_a_failed_connection(bench: Bench) -> None:
    with bench.serving("--", "--endless") as (process, greeting):
        async with AsyncClient(greeting.split()[0]) as caller:
            async with caller.stream(PROMPT, max_tokens=-1) as stream:
                process.kill()
                with pytest.raises(ConnectionFailed):
                    await _drain(stream)
            with pytest.raises(ConnectionFailed, match=caller.url):
                await caller.complete(PROMPT)


async def _drain(stream: client.AsyncStream) -> None:
    async for _ in stream:
        pass


class Stranger(http.server.BaseHTTPRequestHandler):
    """A server of another kind, which answers each POST with these bytes."""

    answer: tuple[int, str, bytes] = (200, "", b"")

    def do_POST(self) -> None:
        status, kind, body = self.answer
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


STRANGE: list[tuple[int, str, bytes, type[Exception], str]] = [
    (200, "text/html", b"<html>", ServerError, "which is no event stream"),
    (404, "text/html", b"<html>", ServerError, "answers 404, which is not llama-srb's"),
    (500, "application/json", b'{"error": "none of ours"}', ServerError, "answers 500"),
    (200, "text/event-stream", b"", ConnectionFailed, "broke off"),
    (200, "text/event-stream", b'data: {"event": "queued", "id": "x", "position": 1}\n\n', ConnectionFailed,
     "broke off"),
    (200, "text/event-stream", b"data: rubbish\n\n", ServerError, "no event"),
    (200, "text/event-stream", b'data: {"event": "start"}\n\n', ServerError, "incomplete"),
]  # fmt: skip


@each_row(("status", "kind", "body", "error", "message"), STRANGE)
def test_an_answer_of_another_kind_of_server_is_a_clear_error(
    status: int, kind: str, body: bytes, error: type[Exception], message: str
) -> None:
    handler = type("Handler", (Stranger,), {"answer": (status, kind, body)})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as stranger:
        threading.Thread(target=stranger.serve_forever, args=(0.01,), daemon=True).start()
        with Client(f"127.0.0.1:{stranger.server_port}/v1/") as caller, pytest.raises(error, match=message):
            caller.complete(PROMPT)
        stranger.shutdown()


# Events


EVENTS: list[Event] = [
    Loading("x", 0.25),
    Queued(1, "x"),
    Start(2, "x", 5, 4, 7),
    Start(2, "x", 5, 4, 7, ("top_a is not used",)),
    Prompt("Once"),
    Progress(64, 128),
    Text(0, ""),
    Text(1, "line\u2028separator 🦊", ({"id": 5, "text": " a", "logprob": -0.5},)),
    Stop(0, 29, 1, "stop", "\n\n"),
    Stop(1, 29, 0, "length"),
    Stop(1, 29, 0, "length", free_length=0),
    Then(1, 9, 1, "stop", "."),
    Done(2, 5, 4, 58, {"total_ms": 1.5}),
    Error("engine_died", "gone"),
]


@each_row("event", EVENTS, ids=repr)
def test_events_read_as_they_are_written(event: Event) -> None:
    assert client.event_from(json.loads(json.dumps(client.as_json(event)))) == event


def test_unknown_events_and_keys_of_a_newer_server_are_ignored() -> None:
    assert client.event_from({"event": "applause"}) is None
    assert client.event_from({"event": "queued", "id": "x", "position": 1, "mood": "calm"}) == Queued(1, "x")


CUTS: list[Callable[[bytes], list[bytes]]] = [
    lambda data: [data],
    lambda data: [data[i : i + 1] for i in range(len(data))],
    lambda data: [data[i : i + 7] for i in range(0, len(data), 7)],
]


@pytest.mark.parametrize("cut", CUTS, ids=["whole", "bytes", "sevens"])
def test_a_stream_may_come_in_any_pieces(cut: Callable[[bytes], list[bytes]]) -> None:
    lines = [json.dumps(client.as_json(event), ensure_ascii=False) for event in EVENTS]
    data = "".join(f": comment\n\ndata: {line}\n\n" for line in lines).encode()
    frames = core.Frames()
    assert [event for chunk in cut(data) for event in frames.feed(chunk)] == EVENTS
