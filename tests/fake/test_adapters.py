"""Adapters of a pool: names, ids that are given once, and engines that start with those of the one before."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from llama_srb.engine.events import Done, Error
from llama_srb.engine.exchange import CommandRefused
from llama_srb.engine.pool import Mode, Pool
from llama_srb.engine.pool.pool_adapters import NameTaken
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.values import RequestError
from tests.support.waiting import collect, soon, until

both_modes = pytest.mark.parametrize("mode", ["resident", "per-request"])


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    made = [tmp_path / f"{name}.gguf" for name in ("pirate", "noir", "farce")]
    for file in made:
        file.write_bytes(b"GGUF")
    return made


def listed(pool: Pool) -> list[tuple[int, str]]:
    return [(one.id, one.name) for one in pool.adapters.loaded]


async def last_event(pool: Pool, which: int | str) -> Any:
    request = CompletionRequest(prompt="Once", n=1, max_tokens=3, lora=((which, 1.0),))
    async with pool.generate(request) as generation:
        return (await collect(generation))[-1]


async def crash(pool: Pool) -> None:
    await until(lambda: len(pool.engines.pids) == 1)  # an engine with a successor has ended
    (pid,) = pool.engines.pids
    os.kill(pid, signal.SIGKILL)
    await until(lambda: pool.state == "ready" and pid not in pool.engines.pids)


@both_modes
async def test_adapters_are_named_and_each_id_is_given_once(settings, mode: Mode, files: list[Path]) -> None:
    async with Pool(settings("--lora", files[0]), mode=mode) as pool:
        one = await soon(pool.adapters.load("a", files[1]))
        assert (one.id, one.name, one.path, one.scale) == (1, "a", str(files[1]), 0.0)
        assert listed(pool) == [(0, "pirate"), (1, "a")]
        with pytest.raises(NameTaken):
            await soon(pool.adapters.load("a", files[2]))
        two = await soon(pool.adapters.load("a", files[2], replaces=True))
        assert two.id == 2
        assert listed(pool) == [(0, "pirate"), (2, "a")]
        await soon(pool.adapters.unload("a"))
        await soon(pool.adapters.unload("pirate"))
        assert listed(pool) == []
        assert (await soon(pool.adapters.load("a", files[1]))).id == 3
        assert isinstance(await soon(last_event(pool, "a")), Done)
        for old in (0, 1, 2):
            assert isinstance(await soon(last_event(pool, old)), Error)


@both_modes
async def test_an_unknown_name_is_refused_with_the_nearest(settings, mode: Mode, files: list[Path]) -> None:
    async with Pool(settings("--lora", files[0]), mode=mode) as pool:
        await soon(pool.adapters.load("noir", files[1]))
        for call in (lambda: pool.generate(a_request("pirat")), lambda: pool.prefix(a_request("pirat"))):
            with pytest.raises(
                RequestError, match=r"'pirat', which is no adapter here; did you mean pirate\?"
            ):
                call()
        with pytest.raises(RequestError, match=r"did you mean noir\?"):
            pool.run("score", texts=["a"], lora=[{"id": "nior", "scale": 1.0}])


def a_request(name: str) -> CompletionRequest:
    return CompletionRequest(prompt="Once", n=1, lora=((name, 1.0),))


@both_modes
async def test_an_adapter_that_cannot_be_loaded_changes_nothing(
    settings, mode: Mode, files: list[Path]
) -> None:
    async with Pool(settings(), mode=mode) as pool:
        await soon(pool.adapters.load("a", files[0]))
        with pytest.raises(CommandRefused, match="cannot be loaded"):
            await soon(pool.adapters.load("a", Path("/none.gguf"), replaces=True))
        assert listed(pool) == [(0, "a")]
        assert isinstance(await soon(last_event(pool, "a")), Done)
        assert (await soon(pool.adapters.load("b", files[1]))).id == 2


async def test_later_engines_have_the_same_adapters(settings, files: list[Path]) -> None:
    async with Pool(settings("--lora", files[0], restart_delay=0.01), mode="resident") as pool:
        await soon(pool.wait_ready())
        await crash(pool)
        assert pool.engines.flags == (), "they are those of the command line"
        await soon(pool.adapters.load("a", files[1], scale=0.25))
        await soon(pool.adapters.unload("pirate"))
        for again in (crash(pool), pool.renew(), crash(pool)):
            await soon(again)
            assert [(one.id, one.name, one.scale) for one in pool.adapters.loaded] == [(1, "a", 0.25)]
            assert isinstance(await soon(last_event(pool, 1)), Done)
            assert isinstance(await soon(last_event(pool, 0)), Error)
        await soon(pool.adapters.unload("a"))
        await soon(crash(pool))
        assert pool.ready is not None
        assert pool.ready.adapters == ()


async def test_a_renewed_engine_lacks_no_adapter_that_is_loaded_meanwhile(
    settings, files: list[Path]
) -> None:
    async with Pool(settings("--load-seconds", 0.3), mode="resident") as pool:
        await soon(pool.wait_ready())
        renewal = asyncio.ensure_future(pool.renew())
        await asyncio.sleep(0)
        await soon(pool.adapters.load("a", files[0]))
        await soon(renewal)
        assert isinstance(await soon(last_event(pool, "a")), Done)


async def test_of_a_pool_that_is_unloaded_adapters_are_unloaded_without_a_load(
    settings, files: list[Path]
) -> None:
    async with Pool(settings("--lora", f"{files[0]},{files[1]}"), mode="resident") as pool:
        await soon(pool.wait_ready())
        await soon(pool.hosting.unload())
        await soon(pool.adapters.unload("pirate"))
        assert pool.state == "unloaded"
        pool.hosting.load()
        await soon(pool.wait_ready())
        assert listed(pool) == [(1, "noir")]


async def test_streams_go_on_while_adapters_come_and_go(settings, files: list[Path]) -> None:
    async with Pool(settings("--token-delay", 0.01), mode="resident") as pool:
        streams = [
            asyncio.ensure_future(collect_all(pool, CompletionRequest(prompt=f"{i}", n=2, max_tokens=40)))
            for i in range(8)
        ]
        for i in range(6):
            await soon(pool.adapters.load(f"{i % 2}", files[i % 3], replaces=True))
        ends = [(await soon(stream))[-1] for stream in streams]
        assert all(isinstance(end, Done) and end.completion_tokens == 80 for end in ends)
        assert listed(pool) == [(4, "0"), (5, "1")]


async def collect_all(pool: Pool, request: CompletionRequest) -> list[Any]:
    async with pool.generate(request) as generation:
        return await collect(generation)
