"""Models that are loaded on demand: with too little room, after failures, as the operator wants."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from llama_srb import bundled, config
from llama_srb.engine.events import Done, Error, Loading, Start
from llama_srb.engine.exchange import EngineError, EngineUnavailable
from llama_srb.engine.pool import Mode, Pool
from llama_srb.engine.pool.terms import Terms, TimeLimit
from llama_srb.models import gguf_header, resident_model
from llama_srb.models import model_memory as memory
from llama_srb.models.residency import Limits, ModelBusy, ModelRemoved, Residency
from llama_srb.models.served import ServedModel
from llama_srb.request.fields import CompletionRequest, Sampling
from llama_srb.serving.admission import Admission
from llama_srb.serving.keys.caller import Caller
from llama_srb.serving.limits import Load
from tests.conftest import Journal
from tests.fake_engine import story
from tests.support.processes import children
from tests.support.waiting import collect, soon, texts, until

ROOM_FOR_ONE = Limits(most=1, wait=0.3)
ENDLESS = {"max_tokens": -1}
CLIENT = Terms(client="a client")


class Models:
    """Makes models of the fake engine, each with a journal of its own."""

    def __init__(self, settings: Callable[..., Any], folder: Path) -> None:
        self._settings, self._folder = settings, folder

    def __call__(
        self, name: str, *flags: object, need: int = 0, mode: Mode = "resident", **given: Any
    ) -> ServedModel:
        settings = config.load({"alias": name, **given}, environ={})
        engine = self._settings(*flags, "--endless", *self.journal(name).flags)
        info = gguf_header.read(bundled.model())
        return ServedModel(settings, info, Pool(engine, mode=mode, max_engines=2), need)

    def journal(self, name: str) -> Journal:
        return Journal(self._folder / f"{name}.jsonl")

    def loads(self, *names: str) -> int:
        return sum(len(self.journal(name).entries("loading")) for name in names)


@pytest.fixture
def models(settings: Callable[..., Any], tmp_path: Path) -> Models:
    return Models(settings, tmp_path)


@contextlib.asynccontextmanager
async def residing(limits: Limits, *served: ServedModel) -> AsyncIterator[Residency]:
    async with Residency(limits) as residency:
        for model in served:
            await residency.add(model)
        yield residency


def generate(
    model: ServedModel, prompt: str = "Once", terms: Terms = CLIENT, shows: bool = False, **fields: Any
) -> Any:
    request = CompletionRequest(prompt=prompt, n=1, sampling=Sampling(seed=7), **{"max_tokens": 5} | fields)
    return model.pool.generate(request, terms, shows_loading=shows)


async def ask(model: ServedModel, prompt: str = "Once", **fields: Any) -> list[Any]:
    async with generate(model, prompt, **fields) as generation:
        return await collect(generation)


async def serves(model: ServedModel, prompt: str = "Once") -> bool:
    return texts(await ask(model, prompt), 1) == ["".join(story(prompt, 7, 0, 5))]


# Room for fewer than there are


async def test_two_models_with_room_for_one_serve_all_requests_of_four_clients(models: Models) -> None:
    a, b = models("a", "--token-delay", 0.005), models("b", "--token-delay", 0.005)
    most = 0

    async def asks(model: ServedModel, client: str) -> None:
        nonlocal most
        for k in range(50):
            assert await serves(model, f"{client} {k}"), "a text is not whole"
            most = max(most, len(children()))

    began = time.monotonic()
    async with residing(ROOM_FOR_ONE, a, b), asyncio.TaskGroup() as group:
        for model, client in ((a, "1"), (a, "2"), (b, "3"), (b, "4")):
            group.create_task(asks(model, client))
    seconds = time.monotonic() - began
    assert most == 1
    assert 4 <= models.loads("a", "b") <= 2 + seconds / ROOM_FOR_ONE.wait, "they alternate, and not faster"


async def test_a_model_with_running_requests_stays_until_they_end(models: Models) -> None:
    a, b = models("a"), models("b")
    async with residing(ROOM_FOR_ONE, a, b) as residency, generate(a, **ENDLESS) as running:
        await soon(anext(running))
        waiting = [asyncio.create_task(serves(b, f"{k}")) for k in range(3)]
        await until(lambda: a.pool.requests.held)
        later = [asyncio.create_task(serves(a, f"{k}")) for k in range(3)]
        await until(lambda: len(a.pool.requests.waiting) == 3)
        await soon(anext(running))
        assert [residency.state_of(model) for model in (a, b)] == ["loaded", "unloaded"]
        running.cancel()
        await collect(running)
        assert await soon(asyncio.gather(*waiting)) == [True] * 3
        assert await soon(asyncio.gather(*later)) == [True] * 3
    assert (models.loads("a"), models.loads("b")) == (2, 1), "waiting requests are grouped by model"


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
async def test_a_hold_ends_with_the_wait_that_it_is_for(models: Models, how: str) -> None:
    a, b = models("a"), models("b")
    async with residing(ROOM_FOR_ONE, a, b), generate(a, **ENDLESS) as running:
        await soon(anext(running))
        now = asyncio.get_running_loop().time()
        limit = TimeLimit(now + 1.0, "1 s (--queue-timeout)", only_waiting=True)
        terms = Terms("b", (limit,) if how == "timed out" else ())
        async with generate(b, terms=terms) as waiting:
            await until(lambda: a.pool.requests.held)
            assert waiting.waits
            later = asyncio.create_task(serves(a))
            if how == "cancelled":
                assert b.pool.requests.cancel(waiting.id)
                assert isinstance((await collect(waiting))[-1], Done)
            else:
                (end,) = await collect(waiting)
                assert (end.code, "queue-timeout" in end.message) == ("timed_out", True)
            assert await soon(later), "the hold is over, and its requests run beside the first"
        assert not running.cancelled
    assert models.loads("b") == 0


async def test_an_idle_model_leaves_without_a_wait(models: Models) -> None:
    a, b = models("a"), models("b")
    async with residing(Limits(most=1, wait=3600), a, b) as residency:
        for model in (a, b, a):
            assert await serves(model)
        assert [residency.state_of(model) for model in (a, b)] == ["loaded", "unloaded"]
        assert b.pool.ready is not None, "what is known of it stays known"
    assert models.loads("a", "b") == 3


async def test_a_client_that_asks_one_request_after_the_other_keeps_its_model(models: Models) -> None:
    a, b = models("a"), models("b")
    async with residing(Limits(most=1, wait=3600), a, b):
        assert await serves(a)
        waiting = asyncio.create_task(serves(b))
        for k in range(20):
            assert await serves(a, f"{k}")
            await asyncio.sleep(0.01)
        assert models.loads("a") == 1
        assert await soon(waiting)


async def test_memory_bounds_what_is_loaded(models: Models) -> None:
    """A fake engine takes some 20 MB as measured; loads are estimated to take 200."""
    a, b, c = (models(name, "--backend", "CPU", need=200 << 20) for name in "abc")
    async with residing(Limits(memory=260 << 20, wait=0.3), a, b, c) as residency:
        assert await serves(a)
        assert await serves(b)
        assert residency.state_of(a) == "unloaded", "there is no room for two estimates"
        assert await serves(a)
        states = [residency.state_of(model) for model in (a, b, c)]
        assert states == ["loaded", "loaded", "unloaded"], "one as measured, and one estimate"
        c.need = 250 << 20
        assert await serves(c)
        assert [residency.state_of(model) for model in (a, b)] == ["unloaded", "unloaded"]
        assert all(model.need < 100 << 20 for model in (a, b)), "they were measured"
        await soon(asyncio.gather(residency.load(a), residency.load(b)))


async def test_what_another_device_holds_counts_as_estimated(models: Models) -> None:
    a, b = (models(name, need=200 << 20) for name in "ab")
    async with residing(Limits(memory=260 << 20, wait=0.3), a, b) as residency:
        assert await serves(a)
        assert a.need > 100 << 20, "the estimate, with what the engine has said of its cells and its backend"
        assert await serves(b)
        assert [residency.state_of(model) for model in (a, b)] == ["unloaded", "loaded"]


async def test_what_lies_on_a_gpu_counts_as_the_engine_says(models: Models) -> None:
    a, b = (models(name, "--gpu-bytes", 100 << 20, need=200 << 20) for name in "ab")
    async with residing(Limits(memory=380 << 20, wait=0.3), a, b) as residency:
        assert await serves(a)
        assert a.need == (100 << 20) + memory.BASE
        assert await serves(b)
        assert [residency.state_of(model) for model in (a, b)] == ["loaded", "loaded"]


async def test_a_model_above_the_memory_is_refused_with_both_numbers(models: Models) -> None:
    large, small = models("large", need=3 << 30), models("small", need=1 << 20)
    async with residing(Limits(memory=2 << 30), large, small) as residency:
        (error,) = await ask(large)
        assert error.code == "unavailable"
        assert "large needs about 3.0 GiB" in error.message
        assert "--models-memory is 2.0 GiB" in error.message
        with pytest.raises(EngineUnavailable, match=r"3\.0 GiB"):
            await ask(large)
        with pytest.raises(EngineUnavailable, match=r"3\.0 GiB"):
            await soon(residency.load(large))
        assert residency.state_of(large) == "failed"
        assert await serves(small)
    assert models.loads("large") == 0


@pytest.mark.parametrize("most", [1, 2])
async def test_models_with_an_engine_for_each_request_leave_room(models: Models, most: int) -> None:
    a, b = models("a", mode="per-request"), models("b")
    async with residing(Limits(most=most, wait=0.3), a, b):
        async with generate(a, **ENDLESS) as running:
            await soon(anext(running))
            waiting = asyncio.create_task(serves(b))
            if most == 1:
                await until(lambda: a.pool.requests.held)
                later = asyncio.create_task(serves(a))
                await until(lambda: a.pool.requests.waiting)
                assert len(children()) == 1
            else:
                later = asyncio.create_task(serves(a))
                assert await soon(waiting)
            running.cancel()
            await collect(running)
        assert await soon(asyncio.gather(waiting, later)) == [True, True]


# Loads that fail, engines that die


async def test_a_model_that_does_not_load_fails_its_requests_alone(models: Models) -> None:
    bad, good = models("bad", "--load-seconds", 0.1, "--exit-while-loading", 3), models("good")
    async with residing(Limits(), bad, good) as residency, generate(good, **ENDLESS) as running:
        await soon(anext(running))
        async with generate(bad) as one, generate(bad) as two:
            for generation in (one, two):
                (error,) = await collect(generation)
                assert error.code == "unavailable"
                assert "exit code 3" in error.message
                assert "the model cannot be loaded" in error.message
        with pytest.raises(EngineUnavailable, match="exit code 3") as refused:
            await ask(bad)
        assert 0 < refused.value.retry_after <= resident_model.RETRY
        assert residency.state_of(bad) == "failed"
        assert await serves(good)
        await soon(anext(running))
    assert models.loads("bad") == 1


async def test_after_a_pause_that_doubles_it_is_tried_again(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident_model, "RETRY", 0.2)
    monkeypatch.setattr(resident_model, "RETRY_MAX", 0.4)
    bad = models("bad", "--exit-while-loading", 3)
    pauses = []
    async with residing(Limits(), bad):
        for n in range(1, 4):
            (error,) = await ask(bad)
            assert error.code == "unavailable"
            with pytest.raises(EngineUnavailable) as refused:
                await ask(bad)
            pauses.append(refused.value.retry_after)
            await asyncio.sleep(pauses[-1] + 0.01)
            assert models.loads("bad") == n, "nobody asks for it"
    assert [0.1 < pauses[0] <= 0.2, 0.3 < pauses[1] <= 0.4, 0.3 < pauses[2] <= 0.4] == [True] * 3


async def test_a_model_that_failed_once_is_served_after_the_pause(
    models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident_model, "RETRY", 0.1)
    model = models("a", "--only-first", tmp_path / "was here", "--exit-while-loading", 3)
    async with residing(Limits(), model) as residency:
        assert isinstance((await ask(model))[-1], Error)
        await asyncio.sleep(0.15)
        async with generate(model) as generation:
            assert isinstance((await collect(generation))[-1], Done)
        assert residency.state_of(model) == "loaded"


async def test_a_crash_disturbs_no_other_model(models: Models) -> None:
    a, b = models("a"), models("b")
    async with residing(Limits(), a, b), generate(a, **ENDLESS) as dies, generate(b, **ENDLESS) as lives:
        await soon(anext(dies))
        await soon(anext(lives))
        os.kill(models.journal("a").entries("ready")[0]["pid"], signal.SIGKILL)
        assert (await collect(dies))[-1].code == "engine_died"
        assert await serves(a)
        await soon(anext(lives))
    assert (models.loads("a"), models.loads("b")) == (2, 1)


async def test_an_engine_that_dies_while_its_model_is_held_leaves_the_room(models: Models) -> None:
    a, b = models("a"), models("b")
    async with residing(ROOM_FOR_ONE, a, b), generate(a, **ENDLESS) as running:
        await soon(anext(running))
        waiting = asyncio.create_task(serves(b))
        await until(lambda: a.pool.requests.held)
        later = asyncio.create_task(serves(a))
        await until(lambda: a.pool.requests.waiting)
        os.kill(models.journal("a").entries("ready")[0]["pid"], signal.SIGKILL)
        assert await soon(asyncio.gather(waiting, later)) == [True, True]


# Idle models, progress


async def test_an_idle_model_leaves_after_its_time(models: Models) -> None:
    a, b = models("a", unload_after=0.4), models("b")
    async with residing(Limits(), a, b) as residency:
        for _ in range(2):
            assert await serves(a)
            assert residency.state_of(a) == "loaded"
            await until(lambda: not children())
            assert residency.state_of(a) == "unloaded"
        assert await serves(b)
        async with generate(a, **ENDLESS) as running:
            await soon(anext(running))
            await asyncio.sleep(0.6)
            await soon(anext(running))
    assert models.loads("a") == 3


async def test_the_servers_own_questions_keep_no_model_loaded(models: Models) -> None:
    model = models("a", unload_after=0.5)
    async with residing(Limits(), model) as residency:
        assert await serves(model)
        while residency.state_of(model) == "loaded":
            await soon(model.pool.command("status"))
            await asyncio.sleep(0.02)
        await until(lambda: not children())


async def test_requests_that_wait_get_the_progress_of_the_load(models: Models) -> None:
    model = models("a", "--load-seconds", 0.4)
    async with residing(Limits(), model):
        async with generate(model, shows=True) as shown, generate(model) as plain:
            events = await collect(shown)
            assert all(not isinstance(event, Loading) for event in await collect(plain))
        progress = [event for event in events if isinstance(event, Loading)]
        assert events[: len(progress)] == progress
        assert isinstance(events[len(progress)], Start)
        assert {event.id for event in progress} == {shown.id}
        async with generate(model, shows=True) as loaded:
            assert isinstance((await collect(loaded))[0], Start)


# The operator's wishes


async def test_a_model_is_loaded_and_unloaded_when_the_operator_wants(models: Models) -> None:
    model = models("a")
    async with residing(Limits(), model) as residency:
        assert residency.state_of(model) == "unloaded"
        await soon(residency.load(model))
        await soon(residency.load(model))
        assert residency.state_of(model) == "loaded"
        async with generate(model, **ENDLESS) as running:
            await soon(anext(running))
            with pytest.raises(ModelBusy, match="a has a request"):
                await residency.unload(model)
            running.cancel()
            await collect(running)
        await soon(residency.unload(model))
        assert residency.state_of(model) == "unloaded"
        assert children() == set()
        await soon(residency.unload(model))
        assert await serves(model)
    assert models.loads("a") == 2


async def test_a_load_that_is_asked_for_says_why_it_fails_and_is_tried_at_once(
    models: Models, tmp_path: Path
) -> None:
    model = models("a", "--only-first", tmp_path / "was here", "--exit-while-loading", 3)
    async with residing(Limits(), model) as residency:
        with pytest.raises(EngineError, match="exit code 3"):
            await soon(residency.load(model))
        assert residency.state_of(model) == "failed"
        await soon(residency.load(model))
        assert residency.state_of(model) == "loaded"


async def test_a_load_that_is_asked_for_waits_for_room(models: Models) -> None:
    a, b = models("a"), models("b")
    async with residing(ROOM_FOR_ONE, a, b) as residency, generate(a, **ENDLESS) as running:
        await soon(anext(running))
        loading = asyncio.create_task(residency.load(b))
        await until(lambda: a.pool.requests.held)
        loading.cancel()
        await until(lambda: not a.pool.requests.held)
        loading = asyncio.create_task(residency.load(b))
        await until(lambda: a.pool.requests.held)
        running.cancel()
        await soon(loading)
        assert [residency.state_of(model) for model in (a, b)] == ["unloaded", "loaded"]


async def test_an_unload_ends_a_load_that_nobody_waits_for(models: Models) -> None:
    model = models("a", "--no-ready")
    async with residing(Limits(), model) as residency:
        loading = asyncio.create_task(residency.load(model))
        await until(children)
        await soon(residency.unload(model))
        with pytest.raises(EngineUnavailable, match="unloaded"):
            await soon(loading)
        assert residency.state_of(model) == "unloaded"
        assert children() == set()


async def test_a_model_to_preload_is_loaded_without_a_request(models: Models) -> None:
    a, b = models("a", preload=True), models("b")
    async with residing(Limits(), a, b) as residency:
        await until(lambda: residency.state_of(a) == "loaded")
        await soon(residency.unload(a))
        await asyncio.sleep(0.1)
        assert residency.state_of(a) == "unloaded", "once"
    assert models.loads("b") == 0


async def test_a_model_whose_pool_runs_already_is_loaded(models: Models) -> None:
    good, bad = models("good", unload_after=0.3), models("bad", "--exit-while-loading", 3)
    async with Residency(Limits()) as residency:
        for model in (good, bad):
            await model.pool.start()
            await residency.add(model)
        await soon(residency.load(good))
        with pytest.raises(EngineError, match="exit code 3"):
            await soon(residency.load(bad))
        await until(lambda: residency.state_of(good) == "unloaded")
        assert await serves(good)


async def test_a_model_that_is_removed_finishes_its_requests(models: Models) -> None:
    a, b = models("a"), models("b")
    async with residing(ROOM_FOR_ONE, a, b) as residency, generate(a, **ENDLESS) as running:
        await soon(anext(running))
        async with generate(b) as waiting:
            removal = asyncio.create_task(residency.remove(a))
            removal_of_b = asyncio.create_task(residency.remove(b))
            await until(lambda: a.pool.requests.held)
            assert not removal.done()
            running.cancel()
            await soon(removal)
            assert a.pool.state == "stopped"
            assert isinstance((await collect(waiting))[-1], Done), "it is loaded for the request that waited"
        await soon(removal_of_b)
        assert children() == set()


async def test_a_model_that_is_removed_stays_for_requests_that_have_not_reached_its_pool(
    models: Models,
) -> None:
    a, admission = models("a"), Admission(Load())
    async with residing(Limits(), a) as residency:
        with admission.reserve(Caller(), a) as reservation:
            removal = asyncio.create_task(residency.remove(a))
            for _ in range(3):
                assert await soon(reservation.command("tokenize", text="Once"))
                await asyncio.sleep(0.05)
                assert not removal.done()
        await soon(removal)
        assert a.pool.state == "stopped"


async def test_a_load_of_a_model_that_is_removed_ends(models: Models) -> None:
    a = models("a", "--no-ready")
    async with residing(Limits(), a) as residency:
        a.begin_use()
        load = asyncio.create_task(residency.load(a))
        await until(lambda: a.pool.state == "loading")
        removal = asyncio.create_task(residency.remove(a))
        for _ in range(2):
            with pytest.raises(ModelRemoved, match="removed"):
                await soon(load)
            load = asyncio.create_task(residency.load(a))
        a.end_use()
        await soon(removal)
        with pytest.raises(ModelRemoved, match="removed"):
            await soon(load)
    assert children() == set()


async def test_the_end_gives_all_models_the_same_grace(models: Models) -> None:
    a, b, c = (models(name) for name in "abc")
    async with residing(Limits(most=2, wait=0.1), a, b, c) as residency:
        async with generate(a, **ENDLESS) as one, generate(b, **ENDLESS) as two, generate(c) as waiting:
            await soon(anext(one))
            await soon(anext(two))
            await until(lambda: a.pool.requests.held or b.pool.requests.held)
            began = time.monotonic()
            await soon(residency.stop(grace=1.5))
            assert time.monotonic() - began < 3
            ends = [(await collect(generation))[-1] for generation in (one, two, waiting)]
            assert [end.code for end in ends] == ["shutting_down"] * 3
        assert children() == set()
    assert models.loads("c") == 0


async def test_who_shares_a_budget_learns_which_models_are_loaded(models: Models) -> None:
    a, b = models("a"), models("b")
    told: list[tuple[set[str], set[str]]] = []  # loaded, loading

    def names(*given: list[ServedModel]) -> None:
        loaded, loading = ({model.name for model in models} for models in given)
        told.append((loaded, loading))

    async with Residency(Limits()) as residency:
        residency.on_loaded_change = names
        await residency.add(a)
        await residency.add(b)
        await soon(residency.load(a))
        await soon(residency.load(b))
        await soon(residency.unload(a))
        both = [(set(), {"a"}), ({"a"}, set()), ({"a"}, {"b"}), ({"a", "b"}, set()), ({"b"}, set())]
        await until(lambda: told == both)
        os.kill(models.journal("b").entries("ready")[0]["pid"], signal.SIGKILL)
        await until(lambda: told[-1] == ({"b"}, set()) and (set(), {"b"}) in told)


# How long a model stays


async def test_a_model_stays_as_long_as_it_is_told_until_it_leaves(models: Models) -> None:
    a = models("a", unload_after="1h")
    async with residing(Limits(), a) as residency:
        assert residency.leaves_at(a) is None, "it is not loaded"
        await residency.load(a)
        now = asyncio.get_running_loop().time()
        assert (residency.leaves_at(a) or 0) == pytest.approx(now + 3600, abs=5)
        residency.keep(a, math.inf)
        assert residency.leaves_at(a) is None
        residency.keep(a, 0.0)
        await until(lambda: residency.state_of(a) == "unloaded")
        await residency.load(a)
        assert (residency.leaves_at(a) or 0) > now + 3500, "the wish has ended with the load"


async def test_a_model_that_is_to_leave_at_once_ends_its_requests_first(models: Models) -> None:
    a = models("a")
    async with residing(Limits(), a) as residency, generate(a, max_tokens=40) as running:
        await soon(anext(running))
        residency.keep(a, 0.0)
        assert isinstance((await collect(running))[-1], Done)
        await until(lambda: residency.state_of(a) == "unloaded")


async def test_a_model_that_is_not_served_is_neither_loaded_nor_kept(models: Models) -> None:
    a = models("a")
    async with Residency(Limits()) as residency:
        residency.keep(a, 1.0)
        assert residency.leaves_at(a) is None
        with pytest.raises(EngineUnavailable, match="a is not served"):
            await residency.load(a)
        with pytest.raises(EngineUnavailable, match="a is not served"):
            await residency.unload(a)
