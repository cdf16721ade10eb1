"""One engine process with each fault that tests/fake_engine has a flag for."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from typing import Any

import pytest

from llama_srb.engine.codec import read_result
from llama_srb.engine.commands import encode, encode_generate
from llama_srb.engine.events import Done, Error, Extend, Queued, Result, Start, Stop, Stream
from llama_srb.engine.exchange import CommandRefused, EngineError, EngineUnavailable, Exchange, new_id
from llama_srb.engine.process import Engine
from llama_srb.engine.settings import EngineSettings
from llama_srb.request.fields import CompletionRequest, Sampling
from tests.fake_engine import story
from tests.support.processes import children
from tests.support.waiting import PATIENCE, collect, soon, texts, until


def generate(engine: Engine, prompt: str = "Once", n: int = 2, **fields: Any) -> Exchange:
    id = new_id()
    request = CompletionRequest(prompt=prompt, n=n, sampling=Sampling(seed=7), **fields)
    return Exchange(id, encode_generate(id, request), n=n, on_enter=engine.submit)


def command(engine: Engine, op: str, **fields: Any) -> Exchange:
    id = new_id()
    return Exchange(id, encode(op, id, **fields), on_enter=engine.submit)


async def run(exchange: Exchange) -> list[Any]:
    async with exchange:
        return await collect(exchange)


async def works(engine: Engine) -> bool:
    """A new request gets its own text, complete."""
    events = await run(generate(engine, "the next", max_tokens=5))
    return texts(events, 2) == ["".join(story("the next", 7, i, 5)) for i in range(2)]


# Requests


async def test_a_request_gets_start_streams_stops_and_done(settings) -> None:
    async with Engine(settings()) as engine:
        await soon(engine.loaded())
        events = await run(generate(engine, n=3, max_tokens=4))
    assert isinstance(events[0], Start)
    assert [type(e) for e in events[1:-1]].count(Stream) == 12
    assert sorted(e.index for e in events if isinstance(e, Stop)) == [0, 1, 2]
    assert isinstance(events[-1], Done)
    assert texts(events, 3) == ["".join(story("Once", 7, i, 4)) for i in range(3)]


async def test_the_events_of_one_step_come_as_one_list(settings) -> None:
    async with Engine(settings("--token-delay", 0.02)) as engine:
        await soon(engine.loaded())
        async with generate(engine, n=30, max_tokens=10) as exchange:
            lists = [sum(isinstance(e, Stream) for e in events) async for events in exchange]
    assert sum(lists) == 300
    assert 30 in lists
    assert {n % 30 for n in lists} == {0}  # a late reader finds two steps at once


async def test_a_slow_reader_gets_all_waiting_events_at_once(settings) -> None:
    async with Engine(settings()) as engine:
        await soon(engine.loaded())
        async with generate(engine, n=2, max_tokens=5) as exchange:
            await until(lambda: exchange.state == "done")
            lists = [events async for events in exchange]
    assert [len(events) for events in lists] == [1 + 2 * 5 + 2 + 1]


async def test_interleaved_requests_never_mix(settings) -> None:
    async with Engine(settings("--flood", "--late-lines", "-np", 64)) as engine:
        await soon(engine.loaded())
        prompts = [f"prompt {k}" for k in range(12)]
        answers = await asyncio.gather(*(run(generate(engine, p, n=4, max_tokens=30)) for p in prompts))
    for prompt, events in zip(prompts, answers, strict=True):
        assert texts(events, 4) == ["".join(story(prompt, 7, i, 30)) for i in range(4)]
        assert len({e.id for e in events}) == 1


async def test_a_line_after_its_requests_end_reaches_no_request(settings, caplog) -> None:
    async with Engine(settings("--late-lines")) as engine:
        await soon(engine.loaded())
        for _ in range(3):
            assert await works(engine)


@pytest.mark.parametrize("size", [1_000, 65_535, 65_536, 65_537, 1_000_000])
async def test_a_long_line_is_read_completely(settings, size: int) -> None:
    async with Engine(settings("--long-line", size)) as engine:
        await soon(engine.loaded())
        events = await run(generate(engine, n=3, max_tokens=1))
    assert [len(text) for text in texts(events, 3)] == [size] * 3


async def test_a_long_command_is_sent_completely_and_does_not_block_the_loop(settings) -> None:
    async with Engine(settings()) as engine:
        await soon(engine.loaded())
        text = "word " * 1_000_000
        events = await run(command(engine, "tokenize", text=text))
    assert isinstance(events[-1], Result)
    assert len(read_result(events[-1].line)["tokens"]) == 1_000_000


async def test_a_refused_command_ends_only_itself(settings) -> None:
    async with Engine(settings()) as engine:
        await soon(engine.loaded())
        async with generate(engine, n=2, max_tokens=20) as running:
            refused = await run(command(engine, "tokenize", text=7))
            assert [(type(e), e.code, e.param) for e in refused] == [(Error, "invalid_request", "text")]
            assert isinstance((await collect(running))[-1], Done)


async def test_a_flood_of_log_lines_does_not_block_the_engine(settings) -> None:
    async with Engine(settings("--stderr-flood")) as engine:
        await soon(engine.loaded())
        events = await run(generate(engine, n=2, max_tokens=30))
    assert isinstance(events[-1], Done)


# Cancel


async def test_after_a_cancel_only_the_step_in_flight_is_written(settings) -> None:
    async with Engine(settings("--endless", "--token-delay", 1.0)) as engine:
        await soon(engine.loaded())
        async with generate(engine, n=4, max_tokens=1000) as exchange:
            await soon(anext(exchange))
            exchange.cancel()
            rest = await collect(exchange)
    assert sum(isinstance(e, Stream) for e in rest) <= 4
    assert [e.finish_reason for e in rest if isinstance(e, Stop)] == ["cancelled"] * 4
    assert isinstance(rest[-1], Done)


async def test_one_sequence_is_cancelled_and_the_others_go_on(settings) -> None:
    async with Engine(settings("--endless")) as engine:
        await soon(engine.loaded())
        async with generate(engine, n=3, max_tokens=1000) as exchange:
            first = await soon(anext(exchange))
            exchange.cancel(1)
            events = first + await collect(exchange)
    stops = {e.index: (e.finish_reason, e.length) for e in events if isinstance(e, Stop)}
    assert stops[0] == stops[2] == ("length", 1000)
    assert stops[1][0] == "cancelled"
    assert stops[1][1] < 1000


async def leave_by_break(exchange: Exchange) -> None:
    async with exchange:
        async for _ in exchange:
            break


async def leave_by_exception(exchange: Exchange) -> None:
    with contextlib.suppress(ZeroDivisionError):
        async with exchange:
            await anext(exchange)
            raise ZeroDivisionError


async def leave_by_cancelled_task(exchange: Exchange) -> None:
    task = asyncio.create_task(run(exchange))
    await until(lambda: exchange.state == "active")
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


@pytest.mark.parametrize("leave", [leave_by_break, leave_by_exception, leave_by_cancelled_task])
async def test_leaving_early_cancels_at_once_and_disturbs_nobody(settings, journal, leave) -> None:
    async with Engine(settings("--endless", *journal.flags)) as engine:
        await soon(engine.loaded())
        exchange = generate(engine, n=2, max_tokens=10_000)
        await soon(leave(exchange))
        assert exchange.state in ("cancelling", "done")  # the cancel command was already sent
        assert await works(engine)
        await until(lambda: exchange.state == "done")
    assert len(journal.entries("cancel")) == 1


async def test_a_request_that_the_server_ends_with_an_error_is_cancelled_in_its_engine(
    settings, journal
) -> None:
    async with Engine(settings("--endless", *journal.flags)) as engine:
        await soon(engine.loaded())
        async with generate(engine, n=2, max_tokens=1000) as exchange:
            await soon(anext(exchange))
            exchange.fail("timed_out", "too late")
            last = (await collect(exchange))[-1]
            await until(lambda: journal.entries("cancel"))
    assert (type(last), last.code) == (Error, "timed_out")


async def test_a_finished_request_is_not_cancelled(settings, journal) -> None:
    async with Engine(settings(*journal.flags)) as engine:
        await soon(engine.loaded())
        await run(generate(engine, max_tokens=2))
        assert await works(engine)
    assert journal.entries("cancel") == []


async def test_a_cancel_before_the_request_is_sent_ends_it_without_an_engine(settings) -> None:
    async with Engine(settings()) as engine:
        exchange = generate(engine, n=2)
        exchange.cancel()
        events = await collect(exchange)
    assert [type(e) for e in events] == [Stop, Stop, Done]


# Crashes


async def test_kill_9_in_mid_stream_ends_every_request_with_an_error(settings) -> None:
    async with Engine(settings("--endless")) as engine:
        await soon(engine.loaded())
        async with (
            generate(engine, max_tokens=10_000) as first,
            generate(engine, max_tokens=10_000) as second,
        ):
            await soon(anext(first))
            await soon(anext(second))
            os.kill(engine.pid, signal.SIGKILL)
            ends = [(await collect(first))[-1], (await collect(second))[-1]]
        assert [(type(e), e.code) for e in ends] == [(Error, "engine_died")] * 2
        assert "SIGKILL" in ends[0].message
        assert "fake engine: loading" not in ends[0].message  # its last log lines are for operators only
        assert "fake engine: loading" in engine.cause_with_log
        assert [ends[0].id, ends[1].id] == [first.id, second.id]
        await soon(engine.ended())
        assert engine.state == "stopped"


HOW = [
    (signal.SIGILL, "signal SIGILL: it was built for another CPU; run ./build.sh"),
    (signal.SIGSEGV, "signal SIGSEGV"),
    (signal.SIGRTMIN + 1, f"signal {signal.SIGRTMIN + 1}"),  # has no name
]


@pytest.mark.parametrize(("number", "how"), HOW)
async def test_the_error_after_a_death_by_signal_has_its_name_and_advice(
    settings, number: int, how: str
) -> None:
    async with Engine(settings("--endless")) as engine:
        await soon(engine.loaded())
        async with generate(engine, max_tokens=10_000) as exchange:
            await soon(anext(exchange))
            os.kill(engine.pid, number)
            assert (await collect(exchange))[-1].message == f"the engine ended while running: {how}"


@pytest.mark.parametrize("flags", [(), ("--half-line",)])
async def test_events_before_a_crash_are_delivered(settings, flags: tuple[str, ...]) -> None:
    async with Engine(settings("--die-after", 7, *flags)) as engine:
        await soon(engine.loaded())
        events = await run(generate(engine, n=2, max_tokens=100))
    assert sum(isinstance(e, Stream) for e in events) == 7 - len(flags)
    assert isinstance(events[-1], Error)


async def test_an_invalid_line_ends_only_its_request(settings, caplog) -> None:
    async with Engine(settings("--endless", "--bad-line-after", 50)) as engine:
        await soon(engine.loaded())
        async with generate(engine, "hers", max_tokens=100), generate(engine, "his", max_tokens=100) as last:
            answers = await asyncio.gather(
                run(generate(engine, "one", max_tokens=60)), run(generate(engine, "two", max_tokens=60))
            )
            await collect(last)
        errors = [answer[-1] for answer in answers if isinstance(answer[-1], Error)]
        assert [error.code for error in errors] in ([], ["engine_error"])
        assert await works(engine)
        assert engine.state == "ready"
        await until(lambda: not engine.busy)
    assert "-nan" in caplog.text
    assert " the" not in caplog.text.partition("it wrote")[2].partition("\n")[0]


async def test_an_invalid_done_is_an_error_and_needs_no_cancel(settings) -> None:
    async with Engine(settings("--bad-done")) as engine:
        await soon(engine.loaded())
        events = await run(generate(engine, n=2, max_tokens=3))
        assert (type(events[-1]), events[-1].code) == (Error, "engine_error")
        assert not engine.busy
        assert engine.state == "ready"


QUOTING = {
    "rubbish": ("--rubbish-after", 5),
    "a bad line": ("--bad-line-after", 5),
    "half a line": ("--die-after", 5, "--half-line"),
    "last words": ("--exit-after", 5, "--last-words", "llama_decode: failed at hers"),
}


@pytest.mark.parametrize("flags", QUOTING.values(), ids=QUOTING)
async def test_no_error_quotes_the_engines_line(settings, flags: tuple[object, ...]) -> None:
    """The line may be about another client's request."""
    async with Engine(settings("--endless", *flags)) as engine:
        await soon(engine.loaded())
        events = await run(generate(engine, n=2, max_tokens=100))
    assert isinstance(events[-1], Error)
    assert not any(word in events[-1].message for word in ("llama_decode", "stream", "nan", "{", "text"))


async def test_rubbish_on_stdout_ends_engine_and_requests(settings) -> None:
    async with Engine(settings("--rubbish-after", 5)) as engine:
        await soon(engine.loaded())
        events = await run(generate(engine, n=2, max_tokens=100))
        await soon(engine.ended())
    assert sum(isinstance(e, Stream) for e in events) == 5
    assert events[-1].code == "engine_died"
    assert "llama_decode: failed" in engine.cause_with_log


async def test_a_request_to_a_dead_engine_is_an_error(settings) -> None:
    async with Engine(settings()) as engine:
        await soon(engine.loaded())
        os.kill(engine.pid, signal.SIGKILL)
        events = await run(generate(engine))
        assert [e.code for e in events] == ["engine_died"]
        await soon(engine.ended())
        assert [e.code for e in await run(generate(engine))] == ["engine_died"]


async def test_a_requested_end_is_no_fault_in_the_log(settings, caplog) -> None:
    with caplog.at_level("INFO", "llama_srb.engine"):
        async with Engine(settings(stop_grace=PATIENCE)) as engine:
            await soon(engine.loaded())
    assert caplog.messages[-1] == f"engine {engine.pid}: the engine has ended, as it was told"


# The watchdog


@pytest.mark.parametrize("flags", [("--hang-after",), ("--ignore-term", "--hang-after"), ("--stall-after",)])
async def test_an_engine_that_makes_no_step_is_ended_with_its_reason(settings, flags) -> None:
    async with Engine(settings(*flags, 3, "--endless", step_timeout=0.4)) as engine:
        await soon(engine.loaded())
        events = await run(generate(engine, n=1, max_tokens=-1))
        await soon(engine.ended())
    assert events[-1].code == "engine_died"
    assert "no step in 0.4 s while it had 1 request (--step-timeout)" in events[-1].message


async def test_an_engine_that_is_stopped_is_ended(settings) -> None:
    async with Engine(settings("--endless", step_timeout=0.4)) as engine:
        await soon(engine.loaded())
        async with generate(engine, max_tokens=-1) as exchange:
            await soon(anext(exchange))
            os.kill(engine.pid, signal.SIGSTOP)
            assert "no step in 0.4 s" in (await collect(exchange))[-1].message
        await soon(engine.ended())


async def test_steps_without_events_are_signs_of_life(settings) -> None:
    async with Engine(settings(step_timeout=1.0)) as engine:
        await soon(engine.loaded())
        events = await run(command(engine, "prefix", prompt="word " * 1000))  # a step for each word, of 2 ms
        assert [type(event) for event in events] == [Done]
        assert await works(engine)


async def test_an_idle_engine_may_be_silent(settings) -> None:
    async with Engine(settings("--stall-after", 10**6, step_timeout=1.0)) as engine:
        await soon(engine.loaded())
        assert await works(engine)
        await asyncio.sleep(2.5)
        assert await works(engine)


# Loading


async def test_progress_is_reported_while_loading(settings) -> None:
    seen = []
    async with Engine(
        settings("--load-seconds", 0.1), lambda: seen.append((engine.state, engine.progress))
    ) as engine:
        ready = await soon(engine.loaded())
        assert (ready.backend, engine.state) == ("fake", "ready")
    assert seen[:3] == [("loading", 0.0), ("loading", 0.5), ("ready", 1.0)]


LOAD_FAULTS = {
    "exit": (["--exit-while-loading", 3], {}, r"exit code 3.*the model cannot be loaded"),
    "protocol": (["--protocol", 2], {}, r"protocol 2.*speaks 1.*\./build\.sh"),
    "timeout": (["--no-ready"], {"load_timeout": 0.3}, r"not ready after 0\.3 s"),
}


@pytest.mark.parametrize(("flags", "fields", "message"), LOAD_FAULTS.values(), ids=LOAD_FAULTS)
async def test_an_engine_that_does_not_load_says_why(settings, flags, fields, message) -> None:
    async with Engine(settings(*flags, **fields)) as engine:
        with pytest.raises(EngineError, match=message):
            await soon(engine.loaded())


async def test_rubbish_instead_of_events_while_loading_is_an_error() -> None:
    async with Engine(EngineSettings(("echo", "Usage: something else"))) as engine:
        with pytest.raises(EngineError, match="Usage: something else"):
            await soon(engine.loaded())


@pytest.mark.parametrize("program", ["/nowhere/llama-batched", "/etc/passwd"])
async def test_a_program_that_cannot_be_run_is_unavailable(program: str) -> None:
    with pytest.raises(EngineUnavailable, match=rf"{program}.*\./build\.sh"):
        async with Engine(EngineSettings((program,))):
            pass


# Stopping


async def test_end_of_file_ends_an_engine_gently(settings) -> None:
    async with Engine(settings(stop_grace=PATIENCE)) as engine:
        await soon(engine.loaded())
    assert "exit code 0" in engine.cause_with_log


async def test_an_engine_may_finish_its_requests_before_it_ends(settings) -> None:
    async with Engine(settings(stop_grace=5.0)) as engine:
        await soon(engine.loaded())
        async with generate(engine, n=2, max_tokens=20) as exchange:
            await soon(engine.stop())
            assert isinstance((await collect(exchange))[-1], Done)


STUBBORN = {
    "ignores EOF": (["--ignore-eof"], "SIGTERM"),
    "ignores EOF and SIGTERM": (["--ignore-eof", "--ignore-term"], "SIGKILL"),
    "hangs": (["--hang-after", 1], "SIGTERM"),
    "never finishes": (["--endless"], "SIGTERM"),
}


@pytest.mark.parametrize(("flags", "end"), STUBBORN.values(), ids=STUBBORN)
async def test_a_stubborn_engine_is_ended_and_reaped(settings, flags: list[str], end: str) -> None:
    async with Engine(settings(*flags, stop_grace=0.2)) as engine:
        await soon(engine.loaded())
        exchange = generate(engine, max_tokens=-1)
        async with exchange:
            await soon(anext(exchange))
            await soon(engine.stop())
            assert isinstance((await collect(exchange))[-1], Done | Error)
    assert end in engine.cause_with_log


async def test_an_engine_that_is_loading_is_ended_at_once(settings) -> None:
    async with Engine(settings("--no-ready", stop_grace=60.0)) as engine:
        await until(lambda: engine.progress > 0)
        await soon(engine.stop())
    assert "SIGTERM" in engine.cause_with_log


async def test_a_stop_that_is_cancelled_kills(settings) -> None:
    engine = Engine(settings("--ignore-eof", "--ignore-term", stop_grace=60.0))
    async with engine:
        await soon(engine.loaded())
        task = asyncio.create_task(engine.stop())
        await until(lambda: engine.state == "draining")
        task.cancel()
        await soon(asyncio.wait({task}))
        assert engine.state == "stopped"


async def test_a_task_that_is_cancelled_while_it_spawns_leaves_no_process(settings) -> None:
    async def hold() -> None:
        async with Engine(settings("--no-ready")) as engine:
            await engine.loaded()

    for turns in range(12):  # so that the cancel hits every await of the start
        task = asyncio.create_task(hold())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await soon(asyncio.wait({task}))


# Commands without an answer


QUESTIONS = 2  # later commands that are answered before one without an answer is given up
OVERLOOKS = {"stop_grace": 0.3, "step_timeout": 0.4}


async def test_a_command_that_the_engine_ignores_ends_with_an_error(settings) -> None:
    async with Engine(settings("--overlook", "tokenize", **OVERLOOKS)) as engine:
        await soon(engine.loaded())
        async with generate(engine, max_tokens=-1) as running:  # otherwise the watchdog would end the engine
            (error,) = await soon(run(command(engine, "tokenize", text="x")))
            assert isinstance(error, Error)
            assert "has not taken" in error.message
            running.cancel()
            assert isinstance((await collect(running))[-1], Done)
        assert not engine.busy
        assert await works(engine)


async def test_an_extend_that_the_engine_ignores_ends_with_an_error(settings) -> None:
    async with Engine(settings("--overlook", "extend", "--endless", **OVERLOOKS)) as engine:
        await soon(engine.loaded())
        async with generate(engine, max_tokens=-1) as running:
            await anext(running)
            line = encode("extend", running.id, add=3)
            with pytest.raises(CommandRefused, match="has not taken"):
                await soon(running.extend(line, 3))
            assert running.n == 2
            running.cancel()
            assert isinstance((await collect(running))[-1], Done)


class Numbering:
    """An engine that numbers the lines that it receives, and answers none."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def send(self, line: bytes) -> int:
        return next(self._numbers)


@pytest.mark.parametrize("acknowledged", [True, False])
async def test_an_extend_is_given_up_only_when_several_later_questions_were_answered(acknowledged) -> None:
    """One answer proves nothing: the engine may need longer to read the extend than the later command."""
    exchange, engine = generate_by(lambda exchange: None), Numbering()
    exchange.sent(engine, engine.send(b""))
    exchange.deliver([Start(exchange.id, exchange.n, 1, 0, 1)])
    extending = asyncio.create_task(exchange.extend(b"", 3))
    await asyncio.sleep(0)
    if acknowledged:
        exchange.commands.acknowledge(2)
    refused = []
    for asked in range(3, 3 + QUESTIONS):
        exchange.commands.is_lost(asked)
        await asyncio.sleep(0)
        refused.append(extending.done())
    assert refused == [False] * (QUESTIONS - 1) + [not acknowledged]
    if acknowledged:
        exchange.deliver([Extend(exchange.id, 3, 6)])
        assert (await extending).count == 6
    else:
        with pytest.raises(CommandRefused, match="has not taken"):
            await extending


async def test_a_request_cancelled_before_it_was_read_has_its_stops(settings) -> None:
    exchange = generate_by(lambda exchange: None)
    exchange.deliver([Done(exchange.id, 0, 0, 0, 0)])
    events = [event async for batch in exchange for event in batch]
    assert [(e.index, e.finish_reason) for e in events[:-1]] == [(i, "cancelled") for i in range(3)]
    assert events[-1].count == 3


async def test_a_request_extended_while_it_waits_still_waits(settings) -> None:
    exchange = generate_by(lambda exchange: None)
    for event, waits in ((Queued("x", 1), True), (Extend("x", 3, 5), True), (Start("x", 5, 1, 0, 1), False)):
        exchange.deliver([event])
        assert exchange.waits is waits


def generate_by(send: Any) -> Exchange:
    """A request of 3 sequences that is sent to no engine."""
    return Exchange("x", b"", n=3, on_enter=send)


async def test_events_count_as_unread_until_their_reader_asks_for_more() -> None:
    """A slow reader takes all waiting events at once; while it writes them, as many may arrive again."""
    exchange = Exchange("a", b"")
    text = [Stream("a", 0, " x")] * 10
    exchange.deliver(text)
    assert (exchange.unread, len(await anext(exchange))) == (0, 10)
    exchange.deliver(text)
    exchange.deliver(text)
    assert exchange.unread == 20
    await anext(exchange)
    exchange.deliver(text)
    assert exchange.unread == 20
    await anext(exchange)
    assert exchange.unread == 0


async def test_a_start_that_is_cancelled_leaves_no_process(settings) -> None:
    starting = asyncio.create_task(Engine(settings("--no-ready")).__aenter__())
    while not children():  # noqa: ASYNC110 (each turn counts)
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait({starting})
    assert starting.cancelled()
    assert children() == set()
