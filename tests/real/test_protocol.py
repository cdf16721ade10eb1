"""Protocol checks for both engines. The fake engine can replace llama-batched only as far as these pass.

They check docs/engine-protocol.md, and know nothing of the texts that either engine generates.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

from llama_srb.engine.commands import encode
from llama_srb.engine.events import Done, Error, Extend, Progress, Queued, Result, Start, Stop, Stream
from llama_srb.engine.exchange import CommandRefused, Exchange, new_id
from llama_srb.engine.process import Engine
from llama_srb.engine.settings import EngineSettings
from tests.support.models import Pairs, write_adapter
from tests.support.places import FAKE_ENGINE, ROOT
from tests.support.serving import LASTING
from tests.support.waiting import PATIENCE, collect, soon, texts

STORYTELLER = ("-m", str(ROOT / "models/storyteller.gguf"), *LASTING)
REAL_ENGINE = (str(ROOT / "build/bin/llama-batched"), *STORYTELLER)
FLAGS = ("-c", "16384", "-np", "16")
COMMANDS = {"fake": (*FAKE_ENGINE, *FLAGS), "real": (*REAL_ENGINE, *FLAGS)}


@pytest.fixture(params=COMMANDS)
def argv(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Each engine's argv. If the real engine is not built, its tests fail; they are not skipped."""
    return COMMANDS[request.param]


@pytest.fixture
async def engine(argv: tuple[str, ...]) -> AsyncIterator[Engine]:
    async with Engine(EngineSettings(argv, "storyteller")) as engine:
        await soon(engine.loaded())
        yield engine


def ask(engine: Engine, op: str = "generate", **fields: Any) -> Exchange:
    id = new_id()
    return Exchange(id, encode(op, id, **fields), on_enter=engine.submit)


def story(engine: Engine, **fields: Any) -> Exchange:
    return ask(
        engine, **{"prompt": "Once upon a time", "n": 3, "max_tokens": 20, "sampling": {"seed": 7}} | fields
    )


async def run(exchange: Exchange) -> list[Any]:
    async with exchange:
        return await collect(exchange)


def stops(events: list[Any]) -> dict[int, Stop]:
    return {e.index: e for e in events if isinstance(e, Stop)}


def check_order(events: list[Any], n: int) -> None:
    """queued*, start, (progress | stream | stop)*, done; each sequence stops once, and streams nothing after it."""
    events = events[sum(isinstance(e, Queued) for e in events) :]
    assert isinstance(events[0], Start)
    assert isinstance(events[-1], Done)
    assert events[0].count == events[-1].count == n
    over: set[int] = set()
    for event in events[1:-1]:
        assert isinstance(event, Progress | Stream | Stop)
        if isinstance(event, Stream | Stop):
            assert event.index not in over
        if isinstance(event, Stop):
            over.add(event.index)
    assert over == set(range(n))
    assert events[-1].completion_tokens == sum(stop.length for stop in stops(events).values())


# Loading


async def test_ready_has_the_facts_that_a_server_needs(engine: Engine) -> None:
    ready = engine.ready
    assert ready is not None
    assert ready.protocol == 1
    assert ready.n_ctx > 0
    assert ready.n_ctx_sequence > 0
    assert ready.max_sequences > 0
    assert ready.backend
    assert ready.model


# Requests


@pytest.mark.parametrize("n", [1, 3, 16, 40])
async def test_n_sequences_stream_and_end(engine: Engine, n: int) -> None:
    """40 is more than may run at once: the rest start as others finish."""
    events = await run(story(engine, n=n))
    check_order(events, n)
    assert all(texts(events, n))


async def test_all_events_carry_the_id_of_their_request(engine: Engine) -> None:
    async with story(engine) as first, story(engine) as second:
        for exchange in (first, second):
            assert {event.id for event in await collect(exchange)} == {exchange.id}


async def test_max_tokens_is_exact(engine: Engine) -> None:
    events = await run(story(engine, max_tokens=7, sampling={"seed": 7}))
    assert [(s.length, s.stop, s.finish_reason) for s in stops(events).values()] == [(7, 0, "length")] * 3


async def test_the_seed_is_reported_and_reproduces_the_texts(argv: tuple[str, ...]) -> None:
    answers = []
    for _ in range(2):  # fresh processes: law 2 of docs/architecture.md
        async with Engine(EngineSettings(argv)) as engine:
            await soon(engine.loaded())
            answers.append(await run(story(engine)))
    assert [events[0].seed for events in answers] == [7, 7]
    assert texts(answers[0], 3) == texts(answers[1], 3)
    assert len(set(texts(answers[0], 3))) == 3


async def test_a_stop_string_is_reported_and_never_streamed(argv: tuple[str, ...]) -> None:
    async def fresh(**fields: Any) -> list[Any]:
        async with Engine(EngineSettings(argv)) as engine:
            await soon(engine.loaded())
            return await run(story(engine, n=1, **fields))

    (text,) = texts(await fresh(), 1)
    stop = text[len(text) // 2 :][:5]
    events = await fresh(stop=["never said", stop])
    assert texts(events, 1) == [text[: text.index(stop)]]
    (end,) = stops(events).values()
    assert (end.stop, end.finish_reason, end.stop_text) == (1, "stop", stop)


async def test_a_prompt_may_come_as_tokens(engine: Engine) -> None:
    tokens = (await run(ask(engine, "tokenize", text="Once upon a time")))[-1].data["tokens"]
    command = {"tokens": tokens, "n": 2, "max_tokens": 3}
    events = await run(ask(engine, **command))
    check_order(events, 2)
    assert events[0].prompt_tokens == len(tokens)


async def test_requests_at_the_same_time_all_end(engine: Engine) -> None:
    exchanges = [story(engine, prompt=f"There was a king {k}", n=k) for k in range(1, 9)]
    answers = await asyncio.gather(*map(run, exchanges))
    for n, events in enumerate(answers, start=1):
        check_order(events, n)


# Cancel


async def test_a_request_of_a_later_priority_does_not_count_as_waiting(engine: Engine) -> None:
    whole = {"sampling": {"ignore_eos": True}, "n": 48, "max_tokens": 300}

    async def waiting() -> tuple[int, int]:
        async with ask(engine, "status") as exchange:
            (found,) = await collect(exchange)
        return found.data["queued"], found.data["sequences_waiting"]

    async with story(engine, priority=1, **whole) as later, story(engine, priority=1, **whole):
        await soon(anext(aiter(later)))
        assert await waiting() == (0, 0)
        async with story(engine, **whole) as first, story(engine, **whole):
            await soon(anext(aiter(first)))
            queued, waits = await waiting()
            assert 48 * queued + waits == 2 * 48 - 16


async def test_a_request_of_a_later_priority_waits_and_then_goes_on(engine: Engine) -> None:
    whole = {"sampling": {"ignore_eos": True}}
    seen: list[str] = []

    async def read(name: str, exchange: Exchange) -> list[Any]:
        events: list[Any] = []
        async for new in exchange:
            events += new
            seen.extend(name for event in new if isinstance(event, Stream))
        return events

    async with story(engine, n=16, max_tokens=400, priority=1, **whole) as later:
        reading = asyncio.create_task(read("later", later))
        while not seen:  # noqa: ASYNC110
            await asyncio.sleep(0)
        async with story(engine, n=16, max_tokens=100, **whole) as first:
            check_order(await soon(read("first", first)), 16)
        events = await soon(reading)
    check_order(events, 16)
    assert events[-1].completion_tokens == 16 * 400
    between = seen[seen.index("first") : len(seen) - seen[::-1].index("first")]
    assert set(between) == {"first"}


async def test_cancel_ends_all_sequences_soon(engine: Engine) -> None:
    async with story(engine, n=4, max_tokens=1500, sampling={"ignore_eos": True}) as exchange:
        first = await first_stream(exchange)
        exchange.cancel()
        rest = await collect(exchange)
    check_order(first + rest, 4)
    assert {s.finish_reason for s in stops(rest).values()} == {"cancelled"}
    assert max(Counter(e.index for e in rest if isinstance(e, Stream)).values(), default=0) < 750


async def first_stream(exchange: Exchange) -> list[Any]:
    """Reads all events up to the first list with text."""
    events: list[Any] = []
    while not any(isinstance(e, Stream) for e in events):
        events += await soon(anext(exchange))
    return events


async def test_cancel_of_one_sequence_leaves_the_others(engine: Engine) -> None:
    async with story(engine, n=3, max_tokens=1000, sampling={"ignore_eos": True}) as exchange:
        events = await first_stream(exchange)
        exchange.cancel(1)
        events += await collect(exchange)
    check_order(events, 3)
    assert stops(events)[1].finish_reason == "cancelled"
    assert stops(events)[1].length < 1000
    assert [stops(events)[i].length for i in (0, 2)] == [1000, 1000]


async def test_a_cancel_right_after_its_request_ends_it(engine: Engine) -> None:
    async with story(engine, max_tokens=1500, sampling={"ignore_eos": True}) as exchange:
        exchange.cancel()
        events = await collect(exchange)
    assert isinstance(events[-1], Done)
    check_order(events, 3) if isinstance(events[0], Start) else None
    check_order(await run(story(engine)), 3)


async def test_cancels_of_unknown_requests_and_sequences_are_ignored(engine: Engine) -> None:
    async with story(engine) as exchange:
        engine.send(encode("cancel", "unknown"))
        engine.send(encode("cancel", exchange.id, index=99))
        events = await collect(exchange)
    check_order(events, 3)
    assert "cancelled" not in {s.finish_reason for s in stops(events).values()}


# Continue, prefix, extend


async def test_continue_works_for_an_ended_and_for_a_running_sequence(engine: Engine) -> None:
    async with story(engine, max_tokens=1500, sampling={"ignore_eos": True}) as running:
        await first_stream(running)
        over = story(engine, max_tokens=7)
        assert stops(await run(over))[2].length == 7
        for named in ({"id": over.id, "index": 2, "at": 3}, {"id": running.id, "index": 0, "at": 1}):
            events = await run(ask(engine, **{"continue": named}, max_tokens=3))
            check_order(events, 1)
            longer = await run(ask(engine, **{"continue": named, "prompt": " and so"}, max_tokens=3))
            assert longer[0].prompt_tokens > events[0].prompt_tokens


async def test_continue_of_an_unknown_sequence_is_refused(engine: Engine) -> None:
    over = story(engine)
    await run(over)
    for named in ({"id": "unknown", "index": 0}, {"id": over.id, "index": 3}):
        (error,) = await run(ask(engine, **{"continue": named}))
        assert (error.code, error.param) == ("invalid_request", "continue")


async def test_a_prefix_is_done_without_sequences(engine: Engine) -> None:
    (done,) = await run(ask(engine, "prefix", prompt="Once upon a time"))
    assert (done.count, done.completion_tokens) == (0, 0)
    assert done.prompt_tokens > 0


async def test_a_prefix_ends_the_previous_one(engine: Engine) -> None:
    async with ask(engine, "prefix", prompt="word " * 300) as first:
        async with ask(engine, "prefix", prompt="Once") as second:
            assert (await collect(second))[-1].id == second.id
        assert isinstance((await collect(first))[-1], Done)


def extend(engine: Engine, id: str, **fields: Any) -> None:
    engine.send(encode("extend", id, **fields))


async def test_extend_adds_sequences_to_a_running_request(engine: Engine) -> None:
    async with story(engine, n=2, max_tokens=1000, sampling={"ignore_eos": True}) as exchange:
        events = await first_stream(exchange)
        extend(engine, exchange.id, add=2)
        extend(engine, exchange.id, add=1, fork={"index": 0, "at": 1})
        events += await collect(exchange)
    told = [event for event in events if isinstance(event, Extend)]
    assert told == [Extend(exchange.id, 2, 4), Extend(exchange.id, 4, 5)]
    assert {i: stop.length for i, stop in stops(events).items()} == dict.fromkeys(range(5), 1000)
    assert events[-1].count == 5
    assert all(texts(events, 5))


async def test_extend_sets_a_later_limit(engine: Engine) -> None:
    async with story(engine, n=1, max_tokens=1000, sampling={"ignore_eos": True}) as exchange:
        events = await first_stream(exchange)
        extend(engine, exchange.id, add=0, max_tokens=1050)
        events += await collect(exchange)
    assert [stop.length for stop in stops(events).values()] == [1050]


async def test_cancel_ends_added_sequences_too(engine: Engine) -> None:
    async with story(engine, n=1, max_tokens=1500, sampling={"ignore_eos": True}) as exchange:
        events = await first_stream(exchange)
        extend(engine, exchange.id, add=40)
        exchange.cancel()
        events += await collect(exchange)
    assert [stop.finish_reason for stop in stops(events).values()] == ["cancelled"] * 41
    assert events[-1].count == 41


async def test_an_invalid_extend_affects_no_request(engine: Engine) -> None:
    async with story(engine) as exchange:
        extend(engine, "unknown", add=1)
        extend(engine, exchange.id, fork={"index": 99})
        extend(engine, exchange.id, add="x")
        check_order(await collect(exchange), 3)


async def test_a_refused_extend_ends_its_own_wait(engine: Engine) -> None:
    async with story(engine, max_tokens=-1, sampling={"ignore_eos": True}) as exchange:
        await anext(exchange)
        line = encode("extend", exchange.id, fork={"index": 99, "at": 0}, add=2)
        with pytest.raises(CommandRefused, match="99"):
            await soon(exchange.extend(line, 2))
        assert exchange.n == 0  # unchanged
        assert await soon(exchange.extend(encode("extend", exchange.id, add=1), 1)) is not None
        exchange.cancel()
        assert len(stops(await collect(exchange))) == 4


# Commands


MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ({"op": "generate", "prompt": "Once", "max_tokens": 1}, ("queued", "start")),
        ({"op": "chat", "messages": MESSAGES, "max_tokens": 1}, ("accepted",)),
        ({"op": "prefix", "prompt": "Once"}, ("accepted",)),
        ({"op": "score", "prompt": "Once", "texts": ["a"]}, ("accepted",)),
        ({"op": "embed", "input": ["a"]}, ("accepted",)),
        ({"op": "tokenize", "text": "a"}, ("result",)),
        ({"op": "count_tokens", "texts": ["a"]}, ("result",)),
        ({"op": "detokenize", "tokens": [1]}, ("result", "error")),
        ({"op": "limits", "cache_ram": 1}, ("result",)),
        ({"op": "status"}, ("result",)),
    ],
    ids=lambda value: value["op"] if isinstance(value, dict) else "",
)
def test_every_command_is_acknowledged(
    argv: tuple[str, ...], command: dict[str, Any], first: tuple[str, ...]
) -> None:
    lines = [{"op": "status", "id": "x"}, command | {"id": "y"}]
    events = talk(argv, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    own = [event for event in events if event.get("id") == "y"]
    assert own[0]["event"] in first
    assert own[0].get("line", 2) == 2
    assert own[-1]["event"] in ("done", "result", "error")


def test_a_refusal_names_the_line_that_it_refuses(argv: tuple[str, ...]) -> None:
    commands = [
        {"op": "generate", "id": "a", "prompt": "Once", "max_tokens": 2},
        {"op": "generate", "id": "b", "prompt": 5},
        {"op": "extend", "id": "c", "add": 1},
        {"op": "cancel", "id": "a", "index": "x"},
        {"op": "cook", "id": "d"},
    ]
    data = b"\n".join(json.dumps(command).encode() for command in commands)
    errors = [event for event in talk(argv, data + b"\n\n[]\n") if event["event"] == "error"]
    named = sorted((error["line"], error["id"]) for error in errors)
    assert named == [(2, "b"), (3, ""), (4, ""), (5, "d"), (7, "")]


async def test_many_texts_are_counted_as_tokenize_counts_each(engine: Engine) -> None:
    texts = ["Once upon a time", "a", "", "One.\n\n", "a" * 100]
    each = [(await run(ask(engine, "tokenize", text=text)))[-1].data["tokens"] for text in texts]
    (answer,) = await run(ask(engine, "count_tokens", texts=texts))
    assert isinstance(answer, Result)
    assert answer.data["counts"] == [len(tokens) for tokens in each]


async def test_tokenize_and_status_are_answered_in_mid_stream(engine: Engine) -> None:
    async with story(engine, max_tokens=200) as running:
        (answer,) = await run(ask(engine, "tokenize", text="one two three"))
        (status,) = await run(ask(engine, "status"))
        check_order(await collect(running), 3)
    assert isinstance(answer, Result)
    assert all(isinstance(token, int) for token in answer.data["tokens"])
    assert isinstance(status.data["cells_used"], int)


async def test_status_counts_steps_and_the_time_in_the_model(engine: Engine) -> None:
    (before,) = await run(ask(engine, "status"))
    async with story(engine, max_tokens=200) as running:
        await collect(running)
    (after,) = await run(ask(engine, "status"))
    steps, step_us, model_us = (
        after.data[name] - before.data[name] for name in ("steps", "step_us", "model_us")
    )
    assert 1 < steps <= 210
    assert 0 < model_us < step_us


# fmt: off
# ruff: noqa: E501 (a table)
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {  # command, code, param
    "unknown op":      ({"op": "dance"}, "invalid_request", "op"),
    "op missing":      ({"op": None}, "invalid_request", "op"),
    "unknown field":   ({"op": "generate", "prompt": "a", "temprature": 1}, "invalid_request", "temprature"),
    "no prompt":       ({"op": "generate"}, "invalid_request", "prompt"),
    "two prompts":     ({"op": "generate", "prompt": "a", "tokens": [1]}, "invalid_request", "prompt"),
    "prompt a number": ({"op": "generate", "prompt": 7}, "invalid_request", "prompt"),
    "tokens a text":   ({"op": "generate", "tokens": "a"}, "invalid_request", "tokens"),
    "n zero":          ({"op": "generate", "prompt": "a", "n": 0}, "invalid_request", "n"),
    "n a text":        ({"op": "generate", "prompt": "a", "n": "8"}, "invalid_request", "n"),
    "n true":          ({"op": "generate", "prompt": "a", "n": True}, "invalid_request", "n"),
    "n a fraction":    ({"op": "generate", "prompt": "a", "n": 1.5}, "invalid_request", "n"),
    "max_tokens -2":   ({"op": "generate", "prompt": "a", "max_tokens": -2}, "invalid_request", "max_tokens"),
    "stop a number":   ({"op": "generate", "prompt": "a", "stop": 7}, "invalid_request", "stop"),
    "sampling a list": ({"op": "generate", "prompt": "a", "sampling": []}, "invalid_request", "sampling"),
    "text missing":    ({"op": "tokenize"}, "invalid_request", "text"),
    "texts empty":     ({"op": "count_tokens", "texts": []}, "invalid_request", "texts"),
    "continue a text": ({"op": "generate", "continue": "17"}, "invalid_request", "continue"),
    "continue bare":   ({"op": "generate", "continue": {"id": "17"}}, "invalid_request", "continue"),
    "prefix bare":     ({"op": "prefix"}, "invalid_request", "prompt"),
    "too long":        ({"op": "generate", "prompt": "word " * 20_000}, "context_exceeded", "prompt"),
}
# fmt: on


@pytest.mark.parametrize(("command", "code", "param"), REFUSED.values(), ids=REFUSED)
async def test_a_wrong_command_is_an_error_that_names_the_field(
    engine: Engine, command: dict[str, Any], code: str, param: str
) -> None:
    id = new_id()
    line = json.dumps({key: value for key, value in (command | {"id": id}).items() if value is not None})
    async with story(engine, max_tokens=30) as running:
        (error,) = await run(Exchange(id, line.encode() + b"\n", on_enter=engine.submit))
        check_order(await collect(running), 3)
    assert isinstance(error, Error)
    assert (error.code, error.param) == (code, param)
    assert (error.n_ctx is not None) == (error.n_prompt_tokens is not None) == (code == "context_exceeded")


UNREADABLE = [
    b"rubbish",
    b"[]",
    b"7",
    b"{}",
    b'{"op":"status","id":7}',
    b'{"op":"cancel","id":"1","index":"0"}',  # its error must not look like the end of request 1
    b'{"op":"extend","id":"1","add":"0"}',
    b'{"op":',
    b"\xff\xfe",
    b"[" * 20_000,
    b"\0",
]


async def test_adapters_come_and_go(engine: Engine, tmp_path: Path) -> None:
    """The fake engine takes any file, the real one an adapter of the bundled model."""
    write_adapter(tmp_path / "a.gguf", "llama", 0, change=suit_storyteller)
    assert engine.ready is not None
    assert engine.ready.adapters == ()
    wanted = {"id": 3, "path": str(tmp_path / "a.gguf"), "scale": 0.0}
    (*_, loaded) = await run(ask(engine, "load_adapter", adapter=wanted))
    assert isinstance(loaded, Result)
    assert loaded.data == {"adapters": [wanted]}
    (*_, done) = await run(story(engine, lora=[{"id": 3, "scale": 0.5}]))
    assert isinstance(done, Done)
    for wrong, param in ((wanted, "adapter.id"), (wanted | {"id": 4, "path": "/none"}, "adapter.path")):
        (*_, error) = await run(ask(engine, "load_adapter", adapter=wrong))
        assert isinstance(error, Error)
        assert (error.code, error.param) == ("invalid_request", param)
    (*_, unloaded) = await run(ask(engine, "unload_adapter", adapter=3))
    assert isinstance(unloaded, Result)
    assert unloaded.data == {"adapters": []}
    for op, fields in (
        ("unload_adapter", {"adapter": 3}),
        ("generate", {"prompt": "x", "lora": [{"id": 3}]}),
    ):
        (*_, error) = await run(ask(engine, op, **fields))
        assert isinstance(error, Error)
        assert error.code == "invalid_request"


def suit_storyteller(writer: Any, pairs: Pairs) -> None:
    """Changes one tensor, which the bundled model has, by a matrix of its shape."""
    pairs.clear()
    shape = next(t.shape for t in GGUFReader(STORYTELLER[1]).tensors if t.name == "output_norm.weight")
    width = int(shape[0])
    pairs["blk.0.attn_q.weight"] = [np.ones((1, width), np.float32), np.ones((width, 1), np.float32)]


async def test_lines_without_a_readable_id_affect_no_request(engine: Engine) -> None:
    async with story(engine, max_tokens=50) as running:
        for line in (*UNREADABLE, b"", b"  "):
            engine.send(line + b"\n")
        check_order(await collect(running), 3)


@pytest.mark.parametrize("line", UNREADABLE, ids=[repr(line[:20]) for line in UNREADABLE])
def test_a_line_without_a_readable_id_is_an_error_without_id(argv: tuple[str, ...], line: bytes) -> None:
    events = talk(argv, line + b"\n")
    assert [(e["id"], e["code"]) for e in events if e["event"] == "error"] == [("", "invalid_request")]


# The end


def talk(argv: tuple[str, ...], data: bytes) -> list[dict[str, Any]]:
    """All events of an engine that reads these bytes and then end of file. It must exit with 0."""
    done = subprocess.run(
        argv, input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PATIENCE
    )
    assert done.returncode == 0
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def test_without_a_cancel_an_engine_finishes_its_work_at_end_of_file(argv: tuple[str, ...]) -> None:
    events = talk(argv, b'{"op":"generate","id":"1","prompt":"Once","n":4,"max_tokens":5}\n')
    names = [event["event"] for event in events]
    assert "ready" in names
    assert names.count("stop") == 4
    assert names[-1] == "done"
    assert events[-1]["id"] == "1"


def test_an_engine_without_work_exits_at_end_of_file(argv: tuple[str, ...]) -> None:
    assert talk(argv, b"")[-1]["event"] == "ready"


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_an_engine_whose_output_is_closed_exits(argv: tuple[str, ...], busy: bool) -> None:
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    work = encode("generate", "1", prompt="Once", max_tokens=1500, sampling={"ignore_eos": True})
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=null, bufsize=0) as process:
        assert process.stdin
        assert process.stdout
        while b'"ready"' not in process.stdout.readline():
            pass
        if busy:
            process.stdin.write(work)
            process.stdout.readline()
        process.stdout.close()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()


async def test_sigterm_ends_an_engine_in_mid_stream(engine: Engine) -> None:
    async with story(engine, max_tokens=1500, sampling={"ignore_eos": True}) as running:
        await first_stream(running)
        os.killpg(engine.pid, signal.SIGTERM)
        assert isinstance((await collect(running))[-1], Error | Done)
    await soon(engine.ended())
