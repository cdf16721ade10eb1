"""For any answer of a server the client raises its own exceptions and no others."""

# ruff: noqa: E501 (tables)
from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from llama_srb.client import AsyncClient, Client, ClientError, RequestRefused, ServerError, Stream, core
from tests.support.rows import each_row

TABLES = {"request": [{"name": "max_tokens", "aliases": ["n_predict"]}], "samplers": [], "converted": {}}
CALL = {"index": 0, "id": "c", "name": "look", "arguments": "{}"}
TOKEN = {"id": 5, "text": " a", "logprob": -0.5, "top": []}
RECALLED = {"memory": "m", "id": "17", "document": "d", "score": 0.5}
STREAM: list[dict[str, Any]] = [
    {"event": "queued", "position": 1, "id": "x"},
    {"event": "start", "count": 2, "id": "x", "prompt_tokens": 5, "cached_tokens": 4, "seed": 7, "warnings": ["w"], "recalled": [RECALLED]},
    {"event": "prompt", "text": "Once", "tokens": [TOKEN]},
    {"event": "progress", "processed": 64, "total": 128},
    {"event": "stream", "index": 0, "text": " a", "tokens": [TOKEN], "reasoning": "so", "tool_calls": [CALL]},
    {"event": "then", "index": 0, "length": 1, "stop": 1, "finish_reason": "stop", "stop_text": "!"},
    {"event": "stop", "index": 0, "length": 1, "stop": 1, "finish_reason": "stop", "stop_text": ".", "logprob": -1.5, "free_length": 1},
    {"event": "stop", "index": 1, "length": 1, "stop": 0, "finish_reason": "length", "duplicate_of": 0},
    {"event": "done", "count": 2, "prompt_tokens": 5, "cached_tokens": 4, "completion_tokens": 2, "timings": {"total_ms": 1.5}, "ranking": [1, 0]},
]  # fmt: skip
FAILED = {"event": "error", "code": "invalid_request", "message": "no", "param": "n"}
REFUSAL = {"error": {"message": "no", "type": "invalid_request_error", "param": "n", "code": "c"}}
SCORE = {
    "index": 0,
    "sum": -1.0,
    "mean": -0.5,
    "perplexity": 1.6,
    "count": 2,
    "greedy": True,
    "tokens": [TOKEN],
}
DEEP = b"[" * 100_000

TASK = {"id": "t", "about": "", "model": "m", "prelude": "", "prefix": "", "postfix": "", "fields": {"n": 2},
        "locked": ["n"], "recall": {"memory": "m"}, "private_tokens": ["<x>"]}  # fmt: skip
PART = {"kind": "prompt", "text": "Once", "special": True, "tokens": [1]}
MADE = {"model": "m", "prompt": "Once", "prompt_tokens": 1, "parts": [PART], "warnings": ["w"]}
MEMORY = {"id": "m", "embedding_model": "m", "store": "file", "chunk_tokens": 9, "chunk_overlap": 0,
          "chunk_separators": ["a"], "shared": False}  # fmt: skip
PROGRESS = {"event": "progress", "stage": "read", "done": 1, "total": 1}
STORED = {"id": "d", "object": "document", "chunks": 1, "embedded": 1, "replaced": False}
DOCUMENT = {"id": "d", "created": 1, "characters": 4, "chunks": 1, "own": True, "metadata": {"a": 1}}
CHUNK = {"id": "17", "document": "d", "text": "Once", "score": 0.5, "metadata": {"a": 1}}


def recalled(reading: Stream) -> Any:
    """The chunks that a whole stream names."""
    reading.collect()
    return reading.recalled


Ask = Callable[[Client], Any]
QUESTIONS: dict[str, tuple[Ask, Any]] = {
    "complete": (lambda caller: caller.complete("Once"), STREAM),
    "tokenize": (lambda caller: caller.tokenize("Once"), {"tokens": [1, 2]}),
    "detokenize": (lambda caller: caller.detokenize([1]), {"text": "Once"}),
    "embed": (lambda caller: caller.embed(["Once"]), {"data": [{"index": 0, "embedding": [0.6, 0.8]}]}),
    "score": (lambda caller: caller.score("Once", [" a"]), {"data": [SCORE]}),
    "prefix": (lambda caller: caller.prefix("Once"), {"prompt_tokens": 5}),
    "fields": (lambda caller: caller.stream("Once", max_tokens=1), TABLES),
    "task": (lambda caller: recalled(caller.task("t").stream("Once")), STREAM),
    "tasks": (lambda caller: caller.tasks(), {"data": [TASK]}),
    "prompt": (lambda caller: caller.prompt("Once"), MADE),
    "memories": (lambda caller: caller.memories(), {"data": [MEMORY]}),
    "put": (lambda caller: caller.memory("m").put("d", "text"), [PROGRESS, {"event": "done", **STORED}]),
    "put at once": (lambda caller: caller.memory("m").put("d", "text"), STORED),
    "documents": (lambda caller: list(caller.memory("m").documents()), {"data": [DOCUMENT]}),
    "get": (lambda caller: caller.memory("m").get("d"), {**DOCUMENT, "text": "Once"}),
    "search": (lambda caller: caller.memory("m").search("Once"), {"data": [CHUNK]}),
}  # fmt: skip


def written(answer: Any) -> httpx.Response:
    """The bytes of an answer; a list is a stream."""
    if not isinstance(answer, list):
        return plain(json.dumps(answer).encode())
    return stream(b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in answer))


def stream(body: bytes) -> httpx.Response:
    return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=iter([body]))


def called(ask: Ask, response: httpx.Response) -> Any:
    with httpx.Client(transport=httpx.MockTransport(lambda request: response)) as http:
        return ask(Client(http=http))


def plain(body: bytes, status: int = 200) -> httpx.Response:
    return httpx.Response(status, headers={"Content-Type": "application/json"}, content=body)


BROKEN: dict[str, tuple[str, httpx.Response]] = {
    "fields that are a page": ("fields", plain(b"<html>")),
    "fields without a table": ("fields", plain(b'{"request": []}')),
    "fields without names": ("fields", plain(b'{"request": [{}], "samplers": []}')),
    "fields that are a list": ("fields", plain(b"[]")),
    "a call without its index": ("complete", written([STREAM[1], {**STREAM[4], "tool_calls": [{}]}])),
    "tokens that are numbers": ("complete", written([STREAM[1], {**STREAM[4], "tokens": [1]}])),
    "a text that is a number": ("complete", written([STREAM[1], {**STREAM[4], "text": 5}, STREAM[-1]])),
    "an index that is a text": ("complete", written([STREAM[1], {**STREAM[4], "index": "0"}])),
    "an index below 0": ("complete", written([STREAM[1], {**STREAM[4], "index": -3}])),
    "an index beyond all": ("complete", written([STREAM[1], {**STREAM[4], "index": 10**15}])),
    "a count beyond all": ("complete", written([{**STREAM[1], "count": 10**15}])),
    "a count of 0": ("complete", written([{**STREAM[1], "count": 0}])),
    "an order of what is not there": ("complete", written([STREAM[1], {**STREAM[-1], "ranking": [7]}])),
    "a line without end": ("complete", stream(b"data: " + b"x" * (core.LINE_LIMIT + 1))),
    "a line that is nested": ("complete", stream(b"data: " + DEEP + b"\n\n")),
    "bytes that are no text": ("complete", stream(b"data: \xff\n\n")),
    "an answer that is nested": ("tokenize", plain(DEEP)),
    "an error that is nested": ("tokenize", plain(DEEP, 500)),
    "an error of numbers": ("tokenize", plain(b'{"error": {"message": 1, "code": 2, "param": 3}}', 400)),
    "tokens that are a text": ("tokenize", plain(b'{"tokens": "abc"}')),
    "a text that is none": ("detokenize", plain(b'{"text": null}')),
    "a vector of texts": ("embed", plain(b'{"data": [{"embedding": ["a"]}]}')),
    "a vector that is a number": ("embed", plain(b'{"data": [{"embedding": 1}]}')),
    "a score of texts": ("score", plain(json.dumps({"data": [{**SCORE, "sum": "a"}]}).encode())),
    "a recalled chunk without id": ("task", written([{**STREAM[1], "recalled": [{"score": 1}]}, STREAM[-1]])),
    "a task without texts": ("tasks", plain(b'{"data": [{"id": "t"}]}')),
    "a part without tokens": ("prompt", written({**MADE, "parts": [{**PART, "tokens": None}]})),
    "a memory that is a text": ("memories", plain(b'{"data": ["m"]}')),
    "a document that is never stored": ("put", written([PROGRESS])),
    "a document that fails": ("put", written([PROGRESS, {**FAILED, "code": "engine_died"}])),
    "progress without events": ("put", stream(b": comment\n\n")),
    "a document without chunks": ("get", written({**DOCUMENT, "chunks": None})),
    "a page after a number": ("documents", written({"data": [DOCUMENT], "next": 7})),
    "a chunk without score": ("search", written({"data": [{**CHUNK, "score": "1"}]})),
    "a prefix of no tokens": ("prefix", plain(b'{"prompt_tokens": null}')),
}  # fmt: skip


@each_row(("question", "response"), BROKEN.values(), ids=BROKEN)
def test_a_broken_answer_is_a_server_error(question: str, response: httpx.Response) -> None:
    with pytest.raises(ServerError):
        called(QUESTIONS[question][0], response)


@each_row(("ask", "answer"), QUESTIONS.values(), ids=QUESTIONS)
def test_the_unbroken_answers_of_this_table_are_valid(ask: Ask, answer: Any) -> None:
    assert called(ask, written(answer)) is not None


def test_errors_have_their_status_code_and_message() -> None:
    with pytest.raises(RequestRefused, match="no"):
        called(QUESTIONS["complete"][0], written([FAILED]))
    with pytest.raises(RequestRefused, match="no"):
        called(QUESTIONS["put"][0], written([PROGRESS, FAILED]))
    with pytest.raises(RequestRefused, match="no"):
        called(QUESTIONS["tokenize"][0], httpx.Response(400, json=REFUSAL))


async def test_the_asynchronous_client_raises_the_same_exceptions() -> None:
    def answered(request: httpx.Request) -> httpx.Response:
        return plain(b"{}")

    async with httpx.AsyncClient(transport=httpx.MockTransport(answered)) as http:
        caller = AsyncClient(http=http)
        asked = [lambda: caller.complete("Once", max_tokens=1), lambda: caller.tokenize("x"),
                 lambda: caller.embed("x"), lambda: caller.score("x", "y"), lambda: caller.prefix("x"),
                 lambda: caller.memory("m").put("d", "x"), lambda: caller.memory("m").get("d")]  # fmt: skip
        for ask in asked:
            with pytest.raises(ServerError):
                await ask()


# Random changes of valid answers

ODD = (None, True, -1, 10**30, 1e400, 0.5, "", "x", [], [None], {}, {"index": 0}, [[]], float("nan"))


def places(answer: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values."""
    rows = (
        answer.items() if isinstance(answer, dict) else enumerate(answer) if isinstance(answer, list) else ()
    )
    for key, value in rows:
        yield (*path, key)
        yield from places(value, (*path, key))


def changed(answer: Any, path: tuple[Any, ...], odd: object) -> Any:
    """A copy with another value at this path; "gone" removes it."""
    made = copy.deepcopy(answer)
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    if odd == "gone":
        del holder[path[-1]]
    else:
        holder[path[-1]] = odd
    return made


@each_row("question", QUESTIONS)
def test_one_changed_value_is_an_answer_or_the_clients_error(question: str) -> None:
    ask, answer = QUESTIONS[question]
    for path in places(answer):
        for odd in ("gone", *ODD):
            with contextlib.suppress(ClientError):
                called(ask, written(changed(answer, path, odd)))


def test_any_bytes_are_an_answer_or_the_clients_error() -> None:
    dice = random.Random(7)
    whole = {name: written(answer).read() for name, (_, answer) in QUESTIONS.items()}
    for name, data in whole.items():
        for _ in range(150):
            at, size = dice.randrange(len(data)), dice.randrange(8)
            body = data[:at] + dice.randbytes(dice.randrange(4)) + data[at + size :]
            response = (
                stream(body)
                if isinstance(QUESTIONS[name][1], list)
                else plain(body, dice.choice((200, 200, 400, 500)))
            )
            with contextlib.suppress(ClientError):
                called(QUESTIONS[name][0], response)
