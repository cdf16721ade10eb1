"""The pool: which engine serves a request, the effects of a crash, and no process is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

import pytest

from llama_srb.engine.commands import encode_cancel, encode_extend
from llama_srb.engine.events import Done, Error, Extend, Start, Stop, Stream
from llama_srb.engine.exchange import CommandRefused, EngineError, EngineUnavailable, Exchange
from llama_srb.engine.pool import Mode, Pool
from llama_srb.engine.pool.terms import Terms
from llama_srb.engine.settings import EngineSettings
from llama_srb.request.fields import CompletionRequest, Extension, Sampling
from tests.fake_engine import story
from tests.support.places import ROOT
from tests.support.processes import children
from tests.support.waiting import PATIENCE, collect, soon, texts, until

MODES: list[Mode] = ["resident", "per-request"]
both_modes = pytest.mark.parametrize("mode", MODES)


def a_request(prompt: str = "Once", n: int = 2, **fields: Any) -> CompletionRequest:
    return CompletionRequest(prompt=prompt, n=n, sampling=Sampling(seed=7), **fields)


async def run(pool: Pool, prompt: str = "Once", n: int = 2, **fields: Any) -> list[Any]:
    async with pool.generate(a_request(prompt, n, **fields)) as generation:
        return await collect(generation)


async def more(generation: Exchange, add: int) -> Extend | None:
    return await generation.extend(encode_extend(generation.id, Extension(add)), add)


async def works(pool: Pool) -> bool:
    events = await run(pool, "the next", max_tokens=5)
    return texts(events, 2) == ["".join(story("the next", 7, i, 5)) for i in range(2)]


def is_closed(generation: Exchange) -> bool:
    return generation.state == "done"


# Both modes


@both_modes
async def test_a_request_gets_its_texts(settings, mode: Mode) -> None:
    async with Pool(settings(), mode=mode) as pool:
        events = await run(pool, n=3, max_tokens=4)
    assert isinstance(events[0], Start)
    assert isinstance(events[-1], Done)
    assert texts(events, 3) == ["".join(story("Once", 7, i, 4)) for i in range(3)]


@both_modes
async def test_requests_at_the_same_time_never_mix(settings, mode: Mode) -> None:
    async with Pool(settings("-np", 64), mode=mode, max_engines=3) as pool:
        prompts = [f"prompt {k}" for k in range(7)]
        answers = await asyncio.gather(*(run(pool, prompt, max_tokens=20) for prompt in prompts))
    for prompt, events in zip(prompts, answers, strict=True):
        assert texts(events, 2) == ["".join(story(prompt, 7, i, 20)) for i in range(2)]


@both_modes
async def test_a_pool_whose_block_ends_leaves_no_process(settings, mode: Mode) -> None:
    async with (
        Pool(settings("--endless"), mode=mode) as pool,
        pool.generate(a_request(max_tokens=-1)) as generation,
    ):
        await soon(anext(generation))
        assert len(children()) >= 1
    assert children() == set()
    assert pool.state == "stopped"


@both_modes
async def test_kill_9_in_mid_stream_is_an_error_and_the_next_request_works(
    settings, journal, mode: Mode
) -> None:
    async with Pool(settings("--endless", *journal.flags), mode=mode) as pool:
        async with pool.generate(a_request(max_tokens=-1)) as generation:
            await soon(anext(generation))
            os.kill(journal.entries("ready")[-1]["pid"], signal.SIGKILL)
            end = (await collect(generation))[-1]
        assert (type(end), end.code, end.id) == (Error, "engine_died", generation.id)
        assert "SIGKILL" in end.message
        assert await works(pool)


@both_modes
async def test_a_generation_is_cancelled_by_its_id(settings, mode: Mode) -> None:
    async with Pool(settings("--endless"), mode=mode) as pool:
        async with pool.generate(a_request(n=3, max_tokens=-1)) as generation:
            first = await soon(anext(generation))
            assert pool.requests.cancel(generation.id, 1)
            assert pool.requests.cancel(generation.id)
            events = first + await collect(generation)
        assert [e.finish_reason for e in events if isinstance(e, Stop)] == ["cancelled"] * 3
        assert isinstance(events[-1], Done)
        assert not pool.requests.cancel(generation.id)
        assert not pool.requests.cancel("unknown")
        assert await works(pool)


@both_modes
async def test_a_thousand_cancels_leave_nothing(settings, mode: Mode) -> None:
    async with Pool(settings("--endless"), mode=mode) as pool:
        await soon(pool.wait_ready())
        for _ in range(1000):
            async with pool.generate(a_request(max_tokens=-1)):
                pass
        assert await works(pool)


@both_modes
async def test_commands_are_answered(settings, mode: Mode) -> None:
    async with Pool(settings(), mode=mode) as pool:
        answer = await soon(pool.command("tokenize", text="one two three"))
        assert len(answer["tokens"]) == 3
        assert (await soon(pool.command("status")))["requests"] == 0
        with pytest.raises(CommandRefused, match="text") as refused:
            await soon(pool.command("tokenize", text=7))
        assert refused.value.error.param == "text"


@both_modes
async def test_stop_while_streaming_ends_each_request_with_an_error(settings, mode: Mode) -> None:
    async with Pool(settings("--endless"), mode=mode) as pool:
        async with pool.generate(a_request(max_tokens=-1)) as a, pool.generate(a_request(max_tokens=-1)) as b:
            await soon(anext(a))
            await soon(anext(b))
            await soon(pool.stop())
            ends = [(await collect(a))[-1], (await collect(b))[-1]]
        assert [end.code for end in ends] == ["shutting_down"] * 2
        assert children() == set()


@both_modes
async def test_stop_lets_requests_finish_within_its_grace(settings, mode: Mode) -> None:
    async with Pool(settings(), mode=mode) as pool, pool.generate(a_request(max_tokens=30)) as generation:
        await soon(anext(generation))
        stopping = asyncio.create_task(pool.stop(grace=5.0))
        await until(lambda: pool.state == "draining")
        with pytest.raises(EngineUnavailable, match="draining"):
            pool.generate(a_request())
        assert isinstance((await collect(generation))[-1], Done)
        await soon(stopping)
    with pytest.raises(EngineUnavailable, match="stopped"):
        pool.generate(a_request())


@both_modes
async def test_a_second_stop_ends_the_drain_of_the_first(settings, mode: Mode) -> None:
    async with (
        Pool(settings("--endless"), mode=mode) as pool,
        pool.generate(a_request(max_tokens=-1)) as generation,
    ):
        await soon(anext(generation))
        patient = asyncio.create_task(pool.stop(grace=3600.0))
        await until(lambda: pool.state == "draining")
        await soon(pool.stop())
        await soon(patient)
        assert (await collect(generation))[-1].code == "shutting_down"


@both_modes
async def test_stop_ends_an_engine_that_ignores_everything(settings, mode: Mode) -> None:
    flags = ("--ignore-eof", "--ignore-term", "--hang-after", 1)
    async with Pool(settings(*flags, stop_grace=0.2), mode=mode) as pool:
        async with pool.generate(a_request(max_tokens=-1)) as generation:
            await soon(anext(generation))
            await soon(pool.stop())
        assert children() == set()


@both_modes
async def test_a_cancelled_owner_leaves_no_process(settings, mode: Mode) -> None:
    streaming = asyncio.Event()

    async def serve() -> None:
        async with (
            Pool(settings("--endless"), mode=mode) as pool,
            pool.generate(a_request(max_tokens=-1)) as g,
        ):
            async for _ in g:
                streaming.set()

    task = asyncio.create_task(serve())
    await soon(streaming.wait())
    task.cancel()
    await soon(asyncio.wait({task}))
    assert task.cancelled()
    assert children() == set()


@both_modes
async def test_a_stop_that_is_cancelled_kills(settings, mode: Mode) -> None:
    flags = ("--ignore-eof", "--ignore-term", "--hang-after", 1)
    pool = Pool(settings(*flags, stop_grace=3600.0), mode=mode)
    await pool.start()
    async with pool.generate(a_request(max_tokens=-1)) as generation:
        await soon(anext(generation))
        task = asyncio.create_task(pool.stop())
        await until(lambda: generation.state == "done")
        task.cancel()
        await soon(asyncio.wait({task}))
        assert task.cancelled()
    assert children() == set()
    assert pool.state == "stopped"


@both_modes
async def test_a_missing_program_is_an_error_at_the_start(mode: Mode) -> None:
    with pytest.raises(EngineUnavailable, match=r"/nowhere/llama-batched.*\./build\.sh"):
        await Pool(EngineSettings(("/nowhere/llama-batched",)), mode=mode).start()


# Resident


async def test_requests_wait_while_the_engine_loads(settings) -> None:
    async with Pool(settings("--load-seconds", 0.2)) as pool:
        assert (pool.state, pool.ready) == ("loading", None)
        assert isinstance((await run(pool, max_tokens=2))[-1], Done)
        assert (pool.state, pool.progress) == ("ready", 1.0)
        assert pool.ready is not None


async def test_the_progress_of_loading_is_reported(settings) -> None:
    seen = set()
    async with Pool(settings("--load-seconds", 1.0)) as pool:
        while pool.state == "loading":
            await soon(pool.change.wait())
            seen.add(pool.progress)
        ready = await soon(pool.wait_ready())
    assert seen == {0.0, 0.5, 1.0}
    assert ready.backend == "fake"


async def test_requests_of_all_clients_share_one_engine(settings, journal) -> None:
    async with Pool(settings(*journal.flags)) as pool:
        await asyncio.gather(*(run(pool, max_tokens=5) for _ in range(5)))
    assert len(journal.entries("loading")) == 1


LOAD_FAULTS = {
    "exit": (["--exit-while-loading", 3], "exit code 3.*the model cannot be loaded"),
    "protocol": (["--protocol", 2], r"protocol 2.*speaks 1.*\./build\.sh"),
}


@pytest.mark.parametrize(("flags", "message"), LOAD_FAULTS.values(), ids=LOAD_FAULTS)
async def test_a_first_load_that_fails_stops_the_pool_and_says_why(settings, journal, flags, message) -> None:
    async with Pool(settings("--load-seconds", 0.1, *flags, *journal.flags)) as pool:
        async with pool.generate(a_request()) as waiting:
            with pytest.raises(EngineError, match=message):
                await soon(pool.wait_ready())
            assert [e.code for e in await collect(waiting)] == ["unavailable"]
        assert pool.state == "stopped"
        with pytest.raises(EngineUnavailable, match=message):
            pool.generate(a_request())
    assert len(journal.entries("loading")) == 1


async def test_requests_wait_for_the_restart(settings, journal, tmp_path) -> None:
    flags = ("--only-first", tmp_path / "was here", "--die-after", 3, *journal.flags)
    async with Pool(settings(*flags, restart_delay=0.2)) as pool:
        assert (await run(pool))[-1].code == "engine_died"
        await until(lambda: pool.state == "loading")
        assert await works(pool)
    assert len(journal.entries("loading")) == 2


async def test_a_request_that_only_waited_in_the_engine_survives_its_death(settings, journal) -> None:
    async with (
        Pool(settings("--endless", "-np", 2, *journal.flags)) as pool,
        pool.generate(a_request("running", max_tokens=-1)) as running,
        pool.generate(a_request("waiting", max_tokens=5)) as waiting,
    ):
        await soon(anext(running))
        await until(lambda: len(journal.entries("generate")) == 2)
        await soon(anext(waiting))  # queued
        os.kill(journal.entries("ready")[0]["pid"], signal.SIGKILL)
        assert (await collect(running))[-1].code == "engine_died"
        assert texts(await collect(waiting), 2) == ["".join(story("waiting", 7, i, 5)) for i in range(2)]


async def test_the_pause_before_a_restart_doubles_up_to_its_bound(settings, journal) -> None:
    pauses = {"restart_delay": 0.1, "restart_delay_max": 0.4}
    async with Pool(settings("--die-after", 1, *journal.flags, **pauses)) as pool:
        for _ in range(5):
            assert (await run(pool))[-1].code == "engine_died"
    starts = [entry["time"] for entry in journal.entries("loading")]
    gaps = [later - sooner for sooner, later in pairwise(starts)]
    assert [gap >= pause for gap, pause in zip(gaps, [0.1, 0.2, 0.4, 0.4], strict=True)] == [True] * 4


async def test_an_engine_that_stayed_for_a_while_is_restarted_soon(settings, journal) -> None:
    pauses = {"restart_delay": 0.1, "restart_delay_max": 60.0, "stable_after": 0.0}
    async with Pool(settings("--die-after", 1, *journal.flags, **pauses)) as pool:
        for _ in range(8):
            assert (await run(pool))[-1].code == "engine_died"
    starts = [entry["time"] for entry in journal.entries("loading")]
    assert starts[-1] - starts[0] < sum(0.1 * 2**i for i in range(7))  # the sum of doubled pauses


async def test_a_restart_that_fails_is_tried_again(settings, journal, tmp_path) -> None:
    """The first engine is killed, the second exits while loading, the third serves."""
    script = tmp_path / "engine"
    count = tmp_path / "count"
    fake = " ".join(settings().command)
    script.write_text(
        f"#!/bin/sh\necho >>{count}\n"
        f'[ "$(wc -l <{count})" -eq 2 ] && exec {fake} --exit-while-loading 1 "$@"\nexec {fake} "$@"\n'
    )
    script.chmod(0o755)
    fields = {"restart_delay": 0.05, "stop_grace": 0.5}
    async with Pool(EngineSettings((str(script), *journal.flags), **fields)) as pool:
        await soon(pool.wait_ready())
        os.kill(journal.entries("ready")[0]["pid"], signal.SIGKILL)
        await until(lambda: pool.state == "loading")
        assert await works(pool)
    assert len(journal.entries("loading")) == 3


async def test_cancelled_while_the_engine_loads_a_request_ends_and_is_never_sent(settings, journal) -> None:
    async with Pool(settings("--load-seconds", 0.2, *journal.flags)) as pool:
        async with pool.generate(a_request()) as generation:
            assert pool.requests.cancel(generation.id)
            events = await collect(generation)
        assert [type(e) for e in events] == [Stop, Stop, Done]
        await soon(pool.wait_ready())
        assert await works(pool)
    assert len(journal.entries("generate")) == 1


async def test_one_sequence_cancelled_while_the_engine_loads_stays_cancelled(settings) -> None:
    async with (
        Pool(settings("--load-seconds", 0.2)) as pool,
        pool.generate(a_request(max_tokens=9)) as generation,
    ):
        generation.cancel(1)
        events = await collect(generation)
    assert {e.index: e.finish_reason for e in events if isinstance(e, Stop)} == {0: "length", 1: "cancelled"}


async def test_a_pool_can_be_started_again(settings) -> None:
    pool = Pool(settings())
    for _ in range(2):
        async with pool:
            assert await works(pool)


# Engines that die in their first step


def ending(*ends: str) -> tuple[str, str]:
    """Flags of the fake engine: how each process ends its first step; the last is for all later processes."""
    return "--first-steps", ",".join(ends)


async def until_failed(pool: Pool) -> str:
    """Two requests die with their engines; waiting ones get the reason why no fourth engine is started."""
    for _ in range(2):
        assert (await run(pool))[-1].code == "engine_died"
    (end,) = await run(pool)
    assert (type(end), end.code, pool.state) == (Error, "unavailable", "failed")
    return str(end.message)


@pytest.mark.parametrize("name", ["SIGILL", "SIGSEGV", "SIGBUS", "SIGFPE"])
async def test_after_three_deaths_by_one_signal_in_the_first_step_no_engine_is_started(
    settings, journal, caplog, name: str
) -> None:
    async with Pool(settings(*ending(name), *journal.flags)) as pool:
        why = await until_failed(pool)
        assert f"died 3 times in a row with {name} in its first step" in why
        assert pool.failure == why
        for refused in (pool.command("status"), pool.wait_ready()):
            with pytest.raises(EngineUnavailable, match=name):
                await soon(refused)
        with pytest.raises(EngineUnavailable, match=name):
            pool.generate(a_request())
        assert children() == set()
    assert len(journal.entries("loading")) == 3
    errors = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert errors.count(why) == 1


OTHER_ENDS = {  # how processes end their first step, and how many of the first requests die with them
    "another signal between": (["SIGILL", "SIGSEGV", "SIGILL", "works"], 3),
    "killed from outside": (["SIGKILL", "SIGKILL", "SIGKILL", "SIGKILL", "works"], 4),
    "aborted": (["SIGABRT", "SIGABRT", "SIGABRT", "SIGABRT", "works"], 4),
}


@pytest.mark.parametrize(("ends", "n_deaths"), OTHER_ENDS.values(), ids=OTHER_ENDS)
async def test_after_other_deaths_in_the_first_step_an_engine_is_started(
    settings, journal, ends: list[str], n_deaths: int
) -> None:
    async with Pool(settings(*ending(*ends), *journal.flags)) as pool:
        for _ in range(n_deaths):
            assert (await run(pool))[-1].code == "engine_died"
        assert await works(pool)


async def test_an_engine_program_that_has_worked_once_is_always_started_again(settings, journal) -> None:
    async with Pool(settings(*ending("works", "SIGILL"), *journal.flags)) as pool:
        assert await works(pool)
        os.kill(journal.entries("ready")[0]["pid"], signal.SIGKILL)
        await until(lambda: pool.state == "loading")
        for _ in range(4):
            assert (await run(pool))[-1].code == "engine_died"
    assert len(journal.entries("generate")) == 5, "no request but the clients'"


async def test_a_request_that_kills_each_engine_does_not_stop_the_pool(settings, journal) -> None:
    """Not even if it is the server's first request: other requests make a step in the third engine."""
    async with Pool(settings("--poison", "arsenic", *journal.flags)) as pool:
        for _ in range(4):
            assert (await run(pool, "arsenic"))[-1].code == "engine_died"
        assert await works(pool)
    assert len(journal.entries("loading")) == 5
    assert len(journal.entries("generate")) == 4 + 2 + 1


async def test_deaths_of_idle_engines_do_not_stop_the_pool(settings, journal) -> None:
    async with Pool(settings(*journal.flags)) as pool:
        for n in range(1, 5):
            await until(lambda n=n: len(journal.entries("ready")) == n and pool.state == "ready")
            os.kill(journal.entries("ready")[-1]["pid"], signal.SIGSEGV)
            await until(lambda: pool.state == "loading")
        assert await works(pool)


async def test_a_failed_pool_tries_again_when_it_is_renewed_or_started(settings, journal) -> None:
    dies = settings(*ending("SIGILL"), *journal.flags)
    pool = Pool(dies)
    async with pool:
        await until_failed(pool)
        with pytest.raises(EngineError, match="SIGILL: it was built for another CPU"):
            await soon(pool.renew())
        assert pool.state == "failed"
        pool.engines.settings = settings()
        await soon(pool.renew())
        assert (pool.state, pool.failure) == ("ready", None)
        assert await works(pool)
        pool.engines.settings = dies
        await soon(pool.renew())  # another model: the steps of the first one do not count for it
        await until_failed(pool)
    assert pool.state == "stopped"
    pool.engines.settings = settings()
    async with pool:
        assert await works(pool)


async def test_an_engine_whose_successor_fails_finishes_its_requests(settings, journal) -> None:
    async with (
        Pool(settings("--endless", "-np", 2)) as pool,
        pool.generate(a_request("running", max_tokens=-1)) as running,
        pool.generate(a_request("waiting", max_tokens=5)) as waiting,
    ):
        await soon(anext(running))
        await soon(anext(waiting))  # queued
        pool.engines.settings = settings(*ending("SIGILL"), *journal.flags)
        await soon(pool.renew())
        why = await until_failed(pool)
        await soon(anext(running))
        assert await soon(more(running, 1)) is not None
        os.kill(running.engine.pid, signal.SIGKILL)
        assert (await collect(running))[-1].code == "engine_died"
        (end,) = await collect(waiting)
        assert (end.code, end.message) == ("unavailable", why)


async def test_a_stop_ends_the_running_requests_of_a_failed_pool(settings, journal) -> None:
    async with Pool(settings("--endless")) as pool:
        async with pool.generate(a_request(max_tokens=-1)) as running:
            await soon(anext(running))
            pool.engines.settings = settings(*ending("SIGILL"), *journal.flags)
            await soon(pool.renew())
            await until_failed(pool)
            await soon(pool.stop())
            assert (await collect(running))[-1].code == "shutting_down"
        assert children() == set()


# Renewal


async def test_a_new_engine_takes_over_and_the_old_one_finishes_its_requests(settings, journal) -> None:
    async with Pool(settings("--endless", *journal.flags)) as pool:
        async with pool.generate(a_request(max_tokens=-1)) as running:
            await soon(anext(running))
            old = running.engine
            await soon(pool.renew())
            async with pool.generate(a_request("the next", max_tokens=5)) as generation:
                await collect(generation)
                new = generation.engine.pid
            assert new != old.pid
            assert isinstance((await soon(anext(running)))[-1], Stream)
            assert len(children()) == 2
            running.cancel()
            assert isinstance((await collect(running))[-1], Done)
        await soon(old.ended())
        assert (pool.state, len(children())) == ("ready", 1)
        os.kill(new, signal.SIGKILL)  # the successor is restarted like any engine
        await until(lambda: pool.state == "loading")
        assert await works(pool)


async def test_a_new_engine_that_does_not_load_changes_nothing(settings) -> None:
    async with Pool(settings("--endless")) as pool:
        async with pool.generate(a_request(max_tokens=-1)) as running:
            await soon(anext(running))
            pool.engines.settings = settings("--exit-while-loading", 3)
            with pytest.raises(EngineError, match="exit code 3"):
                await soon(pool.renew())
            assert isinstance((await soon(anext(running)))[-1], Stream)
        assert await works(pool)


async def test_requests_that_waited_in_a_dead_old_engine_go_to_the_new_one(settings) -> None:
    async with (
        Pool(settings("--endless", "-np", 2)) as pool,
        pool.generate(a_request("running", max_tokens=-1)) as running,
        pool.generate(a_request("waiting", max_tokens=5)) as waiting,
    ):
        await soon(anext(running))
        await soon(anext(waiting))  # queued
        await soon(pool.renew())
        os.kill(running.engine.pid, signal.SIGKILL)
        assert texts(await collect(waiting), 2) == ["".join(story("waiting", 7, i, 5)) for i in range(2)]


async def test_a_new_engine_in_the_pause_before_a_restart_is_the_only_one(settings, journal) -> None:
    async with Pool(settings(*journal.flags, restart_delay=0.3)) as pool:
        await soon(pool.wait_ready())
        os.kill(journal.entries("ready")[0]["pid"], signal.SIGKILL)
        await until(lambda: not children())
        await soon(pool.renew())
        await asyncio.sleep(0.6)  # the pause is over
        assert await works(pool)
        assert len(children()) == 1
    assert len(journal.entries("loading")) == 2


@pytest.mark.parametrize("when", ["old one ends", "new one loads"])
async def test_stop_ends_old_and_new_engines(settings, when: str) -> None:
    async with (
        Pool(settings("--endless")) as pool,
        pool.generate(a_request(max_tokens=-1)) as running,
    ):
        await soon(anext(running))
        pool.engines.settings = settings("--endless", *(["--no-ready"] if when == "new one loads" else []))
        renewal = asyncio.create_task(pool.renew())
        await until(lambda: len(children()) == 2)
        if when == "old one ends":
            await soon(renewal)
        await soon(pool.stop())
        assert children() == set()
        (done,) = await soon(asyncio.gather(renewal, return_exceptions=True))
        assert (type(done) is EngineUnavailable) == (when == "new one loads")


async def test_a_first_load_that_fails_ends_the_renewal_too(settings) -> None:
    async with Pool(settings("--no-ready")) as pool:
        await until(children)
        (first,) = children()
        renewal = asyncio.create_task(pool.renew())
        await until(lambda: len(children()) == 2)
        os.kill(first, signal.SIGKILL)
        with pytest.raises(EngineError, match="SIGKILL"):
            await soon(pool.wait_ready())
        await soon(pool.stop())
        assert children() == set()
        with pytest.raises(EngineUnavailable):
            await soon(renewal)


# Per-request mode


async def test_ended_requests_leave_nothing_in_the_pool(settings) -> None:
    async with Pool(settings(), mode="per-request") as pool:
        for _ in range(3):
            assert await works(pool)
        await until(lambda: not pool.engines.processes and not pool.engines.tasks)


async def test_each_request_has_its_own_process_that_ends_with_it(settings, journal) -> None:
    async with Pool(settings(*journal.flags), mode="per-request") as pool:
        assert children() == set()
        for _ in range(2):
            await run(pool, max_tokens=2)
        await until(lambda: not children())
        assert pool.state == "ready"
        assert pool.ready is not None
    assert len({entry["pid"] for entry in journal.entries("loading")}) == 2


async def test_no_more_engines_run_at_once_than_allowed(settings) -> None:
    most = 0
    async with Pool(settings("--token-delay", 0.01), mode="per-request", max_engines=2) as pool:
        waiting = {asyncio.create_task(run(pool, max_tokens=20)) for _ in range(6)}
        while waiting:
            most = max(most, len(children()))
            _, waiting = await asyncio.wait(waiting, timeout=0.02)
    assert most == 2


async def test_requests_get_their_engine_in_order(settings) -> None:
    order = []

    async def numbered(k: int) -> None:
        await run(pool, max_tokens=1)
        order.append(k)

    async with Pool(settings(), mode="per-request", max_engines=1) as pool:
        await asyncio.gather(*(numbered(k) for k in range(4)))
    assert order == [0, 1, 2, 3]


async def test_clients_are_scheduled_fairly(settings) -> None:
    order = []

    async def asks(name: str) -> None:
        async with pool.generate(a_request(max_tokens=1), Terms(client=name)) as generation:
            await collect(generation)
        order.append(name)

    async with Pool(settings(), mode="per-request", max_engines=2) as pool, asyncio.TaskGroup() as group:
        for name in ["a"] * 6 + ["b", "c"]:
            group.create_task(asks(name))
            await asyncio.sleep(0)
    assert {"b", "c"} < set(order[:7])


async def test_cancelled_while_waiting_for_a_slot_a_request_starts_no_process(settings, journal) -> None:
    async with Pool(settings("--endless", *journal.flags), mode="per-request", max_engines=1) as pool:
        async with pool.generate(a_request(max_tokens=-1)) as running:
            await soon(anext(running))
            async with pool.generate(a_request()) as waiting:
                assert pool.requests.cancel(waiting.id)
                assert isinstance((await collect(waiting))[-1], Done)
            async with pool.generate(a_request()) as left:
                pass
            assert is_closed(left)
        assert await works(pool)
    assert len(journal.entries("loading")) == 2


async def test_cancelled_while_its_engine_loads_a_request_leaves_no_process(settings) -> None:
    async with Pool(settings("--no-ready"), mode="per-request") as pool:
        async with pool.generate(a_request()):
            await until(children)
        await until(lambda: not children())


async def test_a_request_whose_engine_does_not_load_gets_the_reason(settings) -> None:
    async with Pool(settings("--exit-while-loading", 3), mode="per-request") as pool:
        (error,) = await run(pool)
        assert error.code == "engine_died"
        assert "exit code 3" in error.message
        await until(lambda: not children())


async def test_a_cancelled_request_whose_engine_hangs_releases_its_slot(settings, tmp_path) -> None:
    flags = ("--only-first", tmp_path / "was here", "--hang-after", 1, "--ignore-term")
    async with Pool(settings(*flags, stop_grace=0.1), mode="per-request", max_engines=1) as pool:
        async with pool.generate(a_request()) as generation:
            assert isinstance((await soon(anext(generation)))[-1], Start | Stream)
        assert await works(pool)


async def test_an_unloaded_pool_starts_no_process_when_an_earlier_one_ends(settings, journal) -> None:
    flags = ("--ignore-eof", "--ignore-term", *journal.flags)
    async with Pool(settings(*flags, stop_grace=0.2), mode="per-request", max_engines=1) as pool:
        assert isinstance((await run(pool, max_tokens=2))[-1], Done)
        assert len(children()) == 1, "it is ending"
        pool.hosting.hold()
        async with pool.generate(a_request()) as waiting:
            await soon(pool.hosting.unload())
            assert (pool.state, len(pool.requests.waiting)) == ("unloaded", 1)
            assert children() == set()
            pool.hosting.load()
            assert isinstance((await collect(waiting))[-1], Done)
    assert len(journal.entries("loading")) == 2


# Loads on demand


@both_modes
async def test_requests_of_an_unloaded_pool_wait_for_the_load(settings, journal, mode: Mode) -> None:
    pool = Pool(settings("--load-seconds", 0.1, *journal.flags), mode=mode)
    await pool.start(load=False)
    try:
        async with pool.generate(a_request(max_tokens=5)) as waiting:
            assert (pool.state, pool.ready, waiting.waits) == ("unloaded", None, True)
            with pytest.raises(EngineUnavailable, match="unloaded"):
                await pool.wait_ready()
            pool.hosting.load()
            assert isinstance((await collect(waiting))[-1], Done)
        assert pool.state == "ready"
        async with pool.generate(a_request()) as running:
            await soon(anext(running))
            with pytest.raises(RuntimeError, match="1 requests run"):
                await pool.hosting.unload()
        await until(lambda: not pool.requests)
        await soon(pool.hosting.unload())
        assert (pool.state, children()) == ("unloaded", set())
        assert pool.ready is not None
        pool.hosting.load()
        assert await works(pool)
    finally:
        await soon(pool.stop())
    assert pool.state == "stopped"


async def test_a_first_load_on_demand_that_fails_leaves_the_pool_unloaded(settings) -> None:
    pool = Pool(settings("--exit-while-loading", 3))
    await pool.start(load=False)
    try:
        for _ in range(2):
            async with pool.generate(a_request()) as waiting:
                pool.hosting.load()
                (error,) = await collect(waiting)
            assert (error.code, pool.state) == ("unavailable", "unloaded")
            assert "exit code 3" in error.message
            assert pool.failure is not None
        pool.engines.settings = settings()
        pool.hosting.load()
        assert await works(pool)
    finally:
        await soon(pool.stop())


async def test_a_stop_ends_the_requests_of_an_unloaded_pool_at_once(settings) -> None:
    pool = Pool(settings())
    await pool.start(load=False)
    async with pool.generate(a_request()) as waiting:
        await soon(pool.stop(grace=3600))
        assert [end.code for end in await collect(waiting)] == ["shutting_down"]
    pool.hosting.load()
    assert (pool.state, children()) == ("stopped", set())


@both_modes
async def test_a_stop_ends_a_hold_so_that_waiting_requests_finish(settings, mode: Mode) -> None:
    async with Pool(settings(), mode=mode) as pool:
        await soon(pool.wait_ready())
        pool.hosting.hold()
        async with pool.generate(a_request(max_tokens=5)) as waiting:
            assert waiting.state == "new"
            await soon(pool.stop(grace=PATIENCE))
            assert isinstance((await collect(waiting))[-1], Done)


# Without the server

SERVER = """
import asyncio, signal, sys
from llama_srb.engine.pool import Pool
from llama_srb.engine.settings import EngineSettings
from llama_srb.request.fields import CompletionRequest

async def main():
    async with Pool(EngineSettings(tuple(sys.argv[2:])), mode=sys.argv[1]) as pool:
        async with pool.generate(CompletionRequest(prompt="Once", max_tokens=-1)) as generation:
            async for _ in generation:
                print("streaming", flush=True)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background is born ignoring it
asyncio.run(main())
"""


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie, which this process cannot reap, does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], stdout=subprocess.PIPE, text=True).stdout
    return bool(state) and not state.startswith("Z")


@both_modes
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_server_that_is_killed_leaves_no_engine(fake_engine, journal, mode: Mode, number: int) -> None:
    command = [sys.executable, "-c", SERVER, mode, *fake_engine("--endless", *journal.flags)]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, stdout=pipe, stderr=null, cwd=ROOT) as server:
        assert server.stdout
        assert server.stdout.readline() == b"streaming\n"
        (engine,) = journal.entries("ready")
        server.send_signal(number)
        server.wait(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while is_alive(engine["pid"]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(engine["pid"])


# Extend and prefix


@both_modes
async def test_an_extend_is_answered_in_the_stream_and_counted(settings, mode: Mode) -> None:
    async with Pool(settings("--endless"), mode=mode) as pool:
        async with pool.generate(a_request(max_tokens=-1)) as generation:
            assert pool.requests.generation(generation.id) is None, "it has not started"
            await soon(anext(generation))
            assert pool.requests.generation(generation.id) is generation
            made = await soon(asyncio.gather(*(more(generation, k) for k in (2, 3))))
            assert [(extend.first, extend.count) for extend in made] == [(2, 4), (4, 7)]
            assert generation.n == 7
            generation.cancel()
            assert pool.requests.generation(generation.id) is None
            events = await collect(generation)
        assert sorted(e.index for e in events if isinstance(e, Stop)) == list(range(7))


@both_modes
async def test_an_extend_that_crosses_the_requests_end_adds_nothing(settings, mode: Mode) -> None:
    async with Pool(settings("--endless"), mode=mode) as pool:
        async with pool.generate(a_request(max_tokens=-1)) as generation:
            await soon(anext(generation))
            generation.engine.send(encode_cancel(generation.id))
            assert await soon(more(generation, 1)) is None
        assert await soon(more(generation, 1)) is None
        assert await works(pool)


@both_modes
async def test_an_extend_during_a_crash_adds_nothing(settings, mode: Mode) -> None:
    async with (
        Pool(settings("--hang-after", 1), mode=mode) as pool,
        pool.generate(a_request(max_tokens=-1)) as generation,
    ):
        await soon(anext(generation))
        extending = asyncio.create_task(more(generation, 1))
        await asyncio.sleep(0)
        generation.engine.kill()
        assert await soon(extending) is None


async def test_a_prefix_is_superseded_by_the_next_in_every_state(settings) -> None:
    async with Pool(settings(), mode="resident") as pool:
        long, short = a_request("word " * 10_000), a_request("a b c")
        async with pool.prefix(long) as unsent, pool.prefix(long) as sent:
            await soon(pool.wait_ready())
            async with pool.prefix(short) as last:
                (done,) = await collect(last)
            assert (done.count, done.prompt_tokens) == (0, 3)
            assert [prefix.cancelled for prefix in (unsent, sent, last)] == [True, True, False]
            ends = [(await collect(prefix))[-1] for prefix in (unsent, sent)]
            assert [type(end) for end in ends] == [Done, Done]
