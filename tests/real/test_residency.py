"""Two models with room for one, each with the real engine: they alternate, and no text is another one."""

from __future__ import annotations

import asyncio

from llama_srb import config
from llama_srb.engine.events import Done
from llama_srb.engine.pool.terms import Terms
from llama_srb.models.residency import Limits, Residency
from llama_srb.models.served import ServedModel, served
from llama_srb.request.fields import CompletionRequest, Sampling
from tests.support.processes import children
from tests.support.waiting import collect, soon, texts, until

CLIENT = Terms(client="a client")
LIMITS = Limits(most=1, wait=0.5)


def named(name: str) -> ServedModel:
    """The bundled model. One sequence runs at a time, so that its text depends on nothing else."""
    return served(config.load({"alias": name, "parallel": 1, "ctx": 2048}, environ={}))


async def ask(model: ServedModel, seed: int) -> str:
    request = CompletionRequest(prompt="Once", n=1, max_tokens=32, cache=False, sampling=Sampling(seed=seed))
    async with model.pool.generate(request, CLIENT) as generation:
        events = await collect(generation)
    assert isinstance(events[-1], Done), events[-1]
    return texts(events, 1)[0]


async def test_two_models_alternate_and_their_texts_stay_the_same() -> None:
    a, b = named("a"), named("b")
    began = asyncio.get_running_loop().time()
    loads: list[list[str]] = []
    async with Residency(LIMITS) as residency:
        residency.on_loaded_change = lambda loaded, loading: loads.append([model.name for model in loaded])
        await residency.add(a)
        await residency.add(b)
        alone = [await ask(a, seed) for seed in range(5)]

        async def asks(model: ServedModel) -> list[str]:
            return [await ask(model, seed % 5) for seed in range(20)]

        answers = await soon(asyncio.gather(asks(a), asks(b), asks(b)))
        assert answers == [alone * 4] * 3
        seconds = asyncio.get_running_loop().time() - began
        await until(lambda: len(children()) == 1)
    assert all(len(names) <= 1 for names in loads), "both were loaded"
    n_loads = sum(names != [] for names in loads)
    assert 2 <= n_loads <= 2 + seconds / LIMITS.wait
    assert children() == set()


async def test_a_load_shows_in_its_memory() -> None:
    model = named("a")
    async with Residency(Limits(memory=1 << 40)) as residency:
        await residency.add(model)
        estimate = model.need
        await ask(model, 1)
        await soon(residency.unload(model))
        assert 5 << 20 < model.need < estimate
        await ask(model, 1)
