"""Pins of a pool: each new engine computes them before it serves; both engine modes, the fake engine."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from llama_srb.engine.exchange import EngineError
from llama_srb.engine.pool import Pool
from llama_srb.engine.pool.pins import PinRefused
from llama_srb.request.fields import CompletionRequest, Sampling
from tests.conftest import Journal
from tests.support.waiting import collect, soon, until


def prompt(text: str) -> CompletionRequest:
    return CompletionRequest(prompt=text, n=1)


TALE, OTHER = prompt("Once upon a time there was"), prompt("In the garden")


def asked(max_tokens: int = 3) -> CompletionRequest:
    return CompletionRequest(prompt="Once", n=1, max_tokens=max_tokens, sampling=Sampling(seed=1))


def kinds(journal: Journal) -> list[str]:
    """The pins and requests that engines got, in order."""
    every = [entry["what"].split()[0] for entry in journal.entries("")]
    return [kind for kind in every if kind in ("pin", "generate")]


async def pinned(pool: Pool) -> int:
    return int((await pool.command("status"))["cells_pinned"])


async def test_an_engine_has_its_pins_before_it_gets_requests(settings, journal) -> None:
    pool = Pool(settings(*journal.flags))
    pool.pins.set({"tale": TALE, "other": OTHER})
    async with pool:
        async with pool.generate(asked()) as generation:
            await soon(collect(generation))
        assert await pinned(pool) == 9
        assert pool.pins.tokens == {"tale": 6, "other": 3}
    ops = kinds(journal)
    assert ops == ["pin", "pin", "generate"]


async def test_a_killed_engines_successor_pins_again_before_waiting_requests(settings, journal) -> None:
    pool = Pool(settings(*journal.flags))
    pool.pins.set({"tale": TALE})
    async with pool:
        await soon(pool.wait_ready())
        [pid] = pool.engines.pids
        os.kill(pid, signal.SIGKILL)
        await soon(until(lambda: pool.state == "loading"))
        async with pool.generate(asked()) as generation:
            events = await soon(collect(generation))
        assert pool.engines.pids != [pid]
        assert await pinned(pool) == 6
    assert type(events[-1]).__name__ == "Done"
    ops = kinds(journal)
    assert ops == ["pin", "pin", "generate"]


async def test_a_renewed_engine_and_a_loaded_again_one_have_the_pins(settings) -> None:
    pool = Pool(settings())
    pool.pins.set({"tale": TALE})
    async with pool:
        await soon(pool.wait_ready())
        pool.pins.set({"tale": TALE, "other": OTHER})
        assert await pinned(pool) == 6, "set() is for later engines"
        await soon(pool.renew())
        assert await pinned(pool) == 9
        await soon(pool.hosting.unload())
        pool.hosting.load()
        assert await soon(pinned(pool)) == 9


async def test_pins_are_put_and_dropped_while_the_engine_serves(settings) -> None:
    async with Pool(settings()) as pool:
        await soon(pool.wait_ready())
        await soon(pool.pins.take({"tale": TALE}))
        assert await pinned(pool) == 6
        await soon(pool.pins.take({"tale": OTHER}))
        assert await pinned(pool) == 3
        await soon(pool.pins.take({}))
        assert (await pinned(pool), pool.pins.wanted) == (0, {})


async def test_a_pin_without_room_leaves_all_as_it_was(settings) -> None:
    large = prompt("word " * 9000)
    async with Pool(settings()) as pool:
        await soon(pool.wait_ready())
        await soon(pool.pins.take({"tale": TALE}))
        with pytest.raises(PinRefused, match="pin tale: 9000 cells would be pinned; at most 8192"):
            await soon(pool.pins.take({"tale": large}))
        assert (await pinned(pool), pool.pins.wanted) == (6, {"tale": TALE})
        await soon(pool.renew())
        assert await pinned(pool) == 6


async def test_the_start_fails_if_a_pin_has_no_room(settings) -> None:
    pool = Pool(settings())
    pool.pins.set({"tale": prompt("word " * 9000)})
    async with pool:
        with pytest.raises(EngineError, match="pin tale: 9000 cells would be pinned; at most 8192"):
            await soon(pool.wait_ready())


async def test_pins_leave_fewer_tokens_to_requests_only_if_cells_are_short(settings) -> None:
    async with Pool(settings()) as pool:
        await soon(pool.wait_ready())
        await soon(pool.pins.take({"tale": TALE, "other": OTHER}))
        assert pool.pins.room(100, 1000) == 100
        assert pool.pins.room(100, 100) == 91
        await soon(pool.pins.take({"tale": TALE}))
        assert pool.pins.room(100, 100) == 94


async def test_a_per_request_engine_pins_nothing(settings, journal) -> None:
    pool = Pool(settings(*journal.flags), mode="per-request")
    pool.pins.set({"tale": TALE})
    async with pool:
        await soon(pool.pins.take({"other": OTHER}))
        async with pool.generate(asked()) as generation:
            events: list[Any] = await soon(collect(generation))
    assert type(events[-1]).__name__ == "Done"
    assert kinds(journal) == ["generate"]


async def test_a_stop_while_pins_are_computed_ends_at_once(settings) -> None:
    pool = Pool(settings("--token-delay", "0.5"))
    pool.pins.set({"tale": prompt("word " * 500)})
    async with pool:
        await soon(until(lambda: pool.ready is None and pool.engines.pids != []))
    assert pool.engines.pids == []
