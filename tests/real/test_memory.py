"""The estimate of a model's memory, against the resident memory of an engine whose cells are in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_srb import bundled, config
from llama_srb.engine.events import Done
from llama_srb.models import model_memory as memory
from llama_srb.models.served import ServedModel, served
from llama_srb.request.fields import CompletionRequest
from tests.support.models import write_model
from tests.support.waiting import collect, soon

CELLS = 16384
FLAGS: dict[str, tuple[str, ...]] = {
    "16-bit cells": (),
    "8-bit cells": ("-ctk", "q8_0", "-ctv", "q8_0"),
    "a large batch": ("-ub", "1024"),
}
REQUESTS = [
    CompletionRequest(prompt=f"{k} " + "a b c d " * 220, n=1, max_tokens=60) for k in range(CELLS // 1024)
]  # of some 950 tokens each


def model_of(path: Path, *flags: str, **more: object) -> ServedModel:
    """Without host memory for prompts, which is another budget (--cache-ram)."""
    given = {"model": str(path), "ctx": CELLS, "cache_ram": 0, "engine_args": flags, **more}
    return served(config.load(given, environ={}))


async def measured(model: ServedModel) -> int:
    """The resident memory when nine tenths of the cells are in use."""
    async with model.pool as pool:
        ready = await soon(pool.wait_ready())
        assert (ready.backend, ready.n_ctx) == ("CPU", CELLS)
        async with pool.generate_all(REQUESTS) as generation:
            events = await collect(generation)
        used = sum(e.prompt_tokens + e.completion_tokens for e in events if isinstance(e, Done))
        assert CELLS * 0.8 < used < CELLS
        (pid,) = pool.engines.pids
        return memory.memory_of(pid)


def is_near(estimate: int, found: int) -> bool:
    """An upper bound, but no useless one; a small model has the parts of every engine, too."""
    return found <= estimate <= 1.3 * found + memory.BASE


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
async def test_the_bundled_model_needs_what_is_estimated(flags: tuple[str, ...]) -> None:
    model = model_of(bundled.model(), *flags)
    found = await measured(model)
    assert is_near(model.need, found), (model.need >> 20, found >> 20)


async def test_a_draft_model_counts() -> None:
    plain, guessing = model_of(bundled.model()), model_of(bundled.model(), "-md", str(bundled.model()))
    assert guessing.need >= plain.need + bundled.model().stat().st_size
    assert await measured(guessing) <= guessing.need


@pytest.mark.parametrize("kind", ["llama", "gemma3", "qwen3moe"])
async def test_a_made_model_needs_what_is_estimated(kind: str, tmp_path: Path) -> None:
    write_model(tmp_path / "made.gguf", kind, context=1024)
    model = model_of(tmp_path / "made.gguf")
    found = await measured(model)
    assert is_near(model.need, found), (model.need >> 20, found >> 20)


async def test_without_ctx_the_cells_are_those_that_the_engine_chooses(tmp_path: Path) -> None:
    for context in (300, 1024, 70_000):
        path = tmp_path / f"{context}.gguf"
        write_model(path, "llama", context=context)
        model = served(config.load({"model": str(path), "parallel": 8}, environ={}))
        async with model.pool as pool:
            ready = await soon(pool.wait_ready())
        again = memory.needed(model.settings, model.info, ready.n_ctx, ready.backend)
        assert model.need == again, context


def test_engines_for_each_request_need_as_much_as_may_run_at_once() -> None:
    one = model_of(bundled.model())
    three = model_of(bundled.model(), engine_mode="per-request", max_engines=3)
    assert three.need == 3 * one.need
