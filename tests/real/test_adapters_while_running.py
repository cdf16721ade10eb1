"""Adapters that are loaded and unloaded while the engine runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.real.test_adapters import DIFFERENT, PROMPT, all_values, lora, score
from tests.real.test_laws import check_idle
from tests.real.test_scores import KV
from tests.support.lines import Answer, Lines
from tests.support.models import write_adapter, write_model
from tests.support.processes import status

STORY = {
    "op": "generate",
    "prompt": PROMPT,
    "n": 4,
    "max_tokens": 40,
    "min_tokens": 40,
    "logprobs": 0,
    "sampling": {"seed": 7},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    write_model(folder / "model.gguf", "qwen3")
    for seed in range(3):
        write_adapter(folder / f"{seed}.gguf", "qwen3", seed)
    return folder


def flags(*more: str) -> tuple[str, ...]:
    return (*KV, "-c", "4096", "-np", "8", *more)


@pytest.fixture
def engine(folder: Path) -> Iterator[Lines]:
    with Lines(*flags(), model=folder / "model.gguf") as engine:
        yield engine
        check_idle(engine)


def load(engine: Lines, id: int, path: Path, scale: float = 0) -> dict[str, Any]:
    return engine.ask("load_adapter", adapter={"id": id, "path": str(path), "scale": scale})


def same(one: Answer, other: Answer) -> bool:
    """Whether the sequences begin alike; sums of floats depend on the shapes of the batches."""
    pairs = zip(one.tokens, other.tokens, strict=True)
    return all(
        [token["id"] for token in a[:20]] == [token["id"] for token in b[:20]]
        and np.allclose([t["logprob"] for t in a[:20]], [t["logprob"] for t in b[:20]], atol=1e-4)
        for a, b in pairs
    )


def told(folder: Path, *seeds: int) -> list[dict[str, Any]]:
    return [{"id": id, "path": str(folder / f"{seed}.gguf"), "scale": 0.0} for id, seed in enumerate(seeds)]


def test_an_adapter_computes_what_it_computes_when_it_is_loaded_at_the_start(
    engine: Lines, folder: Path
) -> None:
    engine.generate(prompt="Once", n=2, max_tokens=8)  # so that the context has been used before
    assert load(engine, 0, folder / "0.gguf")["adapters"] == told(folder, 0)
    assert load(engine, 1, folder / "1.gguf")["adapters"] == told(folder, 0, 1)
    with Lines(
        *flags("--lora", f"{folder / '0.gguf'},{folder / '1.gguf'}"), model=folder / "model.gguf"
    ) as other:
        for scales in ({0: 1.0}, {1: 1.0}, {}):
            both = [one.answers(one.send(STORY | {"lora": lora(scales)}))[0] for one in (engine, other)]
            assert same(*both)


def test_without_the_field_a_loaded_adapter_is_at_its_scale(engine: Lines, folder: Path) -> None:
    (plain,) = engine.answers(engine.send(score(None)))
    load(engine, 0, folder / "0.gguf")
    (off,) = engine.answers(engine.send(score(None)))
    load(engine, 1, folder / "1.gguf", scale=1)
    (on,) = engine.answers(engine.send(score(None)))
    (named,) = engine.answers(engine.send(score({1: 1.0})))
    assert off.done["cached_tokens"] > 0 == on.done["cached_tokens"] < named.done["cached_tokens"]
    assert np.abs(all_values(on) - all_values(plain)).max() > DIFFERENT
    assert np.abs(all_values(on) - all_values(named)).max() == 0


@pytest.mark.parametrize("disk", [False, True], ids=["in memory", "with files"])
def test_of_another_adapter_no_cells_are_used(folder: Path, tmp_path: Path, disk: bool) -> None:
    """The file is replaced by another one, then loaded under a new id."""
    path, stored = tmp_path / "a.gguf", tmp_path / "cache"
    stored.mkdir()
    more = ("--prefix-cache", str(stored)) if disk else ()
    with Lines(*flags(*more), model=folder / "model.gguf") as engine:
        values = []
        for id, seed in enumerate((0, 1, 2, 0)):
            write_adapter(path, "qwen3", seed)
            load(engine, id, path)
            (answer,) = engine.answers(engine.send(score({id: 1.0})))
            assert disk or answer.done["cached_tokens"] == 0
            values.append(all_values(answer))
            assert engine.ask("unload_adapter", adapter=id)["adapters"] == []
        for other in values[1:3]:
            assert np.abs(values[0] - other).max() > DIFFERENT
        assert np.abs(values[0] - values[3]).max() < 1e-4
        if disk:
            assert answer.done["cached_tokens"] > 0, "the file is the same as the first one"
        check_idle(engine)


def test_an_id_is_given_once(engine: Lines, folder: Path) -> None:
    load(engine, 3, folder / "0.gguf")
    for id in (0, 3):
        error = load(engine, id, folder / "1.gguf")
        assert (error["event"], error["param"]) == ("error", "adapter.id")
        assert "at least 4" in error["message"]
    engine.ask("unload_adapter", adapter=3)
    assert load(engine, 3, folder / "0.gguf")["event"] == "error"
    assert load(engine, 4, folder / "0.gguf")["event"] == "result"


def test_a_running_request_keeps_an_unloaded_adapter_and_later_ones_do_not_get_it(
    engine: Lines, folder: Path
) -> None:
    load(engine, 0, folder / "0.gguf")
    story = STORY | {"lora": lora({0: 1.0}), "max_tokens": 200, "min_tokens": 200}
    (expected,) = engine.answers(engine.send(story | {"cache": False}))
    (running,) = engine.send(story | {"cache": False})
    while engine.read()["event"] != "stream":
        pass
    waiting = engine.send(story | {"cache": False, "prompt": "Two"})
    after = engine.ask("unload_adapter", adapter=0)
    assert after["adapters"] == []
    (late,) = engine.answers(engine.send(story))
    assert (late.events[-1]["code"], late.events[-1]["param"]) == ("invalid_request", "lora")
    one, two = engine.answers([running, *waiting])
    assert same(one, expected)
    assert one.lengths == two.lengths == [200] * 4


def test_prefixes_of_an_unloaded_adapter_leave_the_cells(engine: Lines, folder: Path) -> None:
    before = engine.ask("status")["cells_idle"]
    load(engine, 0, folder / "0.gguf")
    engine.ask("prefix", prompt=PROMPT, lora=lora({0: 1.0}))
    engine.generate(prompt=PROMPT, lora=lora({0: 0.5}), n=3, max_tokens=20)
    assert engine.ask("status")["cells_idle"] > before + 50
    engine.ask("unload_adapter", adapter=0)
    assert engine.ask("status")["cells_idle"] == before


def test_memory_of_unloaded_adapters_is_freed(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "large.gguf"
    write_adapter(path, "qwen3", 0, rank=20000)
    with Lines(*flags(), model=folder / "model.gguf") as engine:
        sizes = []
        for id in range(12):
            assert load(engine, id, path)["event"] == "result"
            engine.generate(prompt="Once", lora=lora({id: 0.01}), max_tokens=2)
            engine.ask("unload_adapter", adapter=id)
            engine.ask("status")
            sizes.append(status(engine.pid, "VmRSS") / 1024)
        assert sizes[-1] - sizes[1] < path.stat().st_size / 2**20, sizes


def test_an_embedding_has_the_adapters_as_they_were_loaded(engine: Lines, folder: Path) -> None:
    def vector() -> Any:
        (answer,) = engine.answers(engine.send({"op": "embed", "input": [PROMPT]}))
        return np.array(answer.named("embedding")[0]["embedding"])

    plain = vector()
    load(engine, 0, folder / "0.gguf")
    assert np.array_equal(vector(), plain)
    load(engine, 1, folder / "1.gguf", scale=1)
    assert np.abs(vector() - plain).max() > 0.01
    engine.ask("unload_adapter", adapter=1)
    assert np.array_equal(vector(), plain)


def test_streams_go_on_while_adapters_are_loaded_and_unloaded(engine: Lines, folder: Path) -> None:
    load(engine, 0, folder / "0.gguf")
    stories = [STORY | {"n": 1, "prompt": f"{i}. {PROMPT}", "lora": lora({0: 1.0})} for i in range(8)]
    alone = engine.answers(engine.send(*stories))
    ids = engine.send(*stories)
    changes = [
        {"op": op, "adapter": adapter(i, folder) if op == "load_adapter" else i}
        for i in range(1, 20)
        for op in ("load_adapter", "unload_adapter")
    ]
    for change in changes:
        assert engine.answers(engine.send(change))[0].events[-1]["event"] == "result"
    for answer, expected in zip(engine.answers(ids), alone, strict=True):
        assert answer.lengths == [40]
        assert same(answer, expected)


def adapter(id: int, folder: Path) -> dict[str, Any]:
    return {"id": id, "path": str(folder / f"{id % 3}.gguf"), "scale": 0}


def test_at_the_start_adapters_get_their_ids(folder: Path) -> None:
    listed = ("--adapter", f"2:0:{folder / '0.gguf'}", "--adapter", f"5:0.5:{folder / '1.gguf'}")
    with Lines(*flags(*listed, "--lora", str(folder / "2.gguf")), model=folder / "model.gguf") as engine:
        after = load(engine, 6, folder / "2.gguf")["adapters"]
        assert [(one["id"], one["scale"]) for one in after] == [(2, 0), (5, 0.5), (6, 0)]
        error = engine.ask("generate", prompt="x", lora=[{"id": 3}])
        assert error["message"] == "lora.id is 3; the loaded adapters have the ids 2, 5, 6"


def test_a_listed_adapter_that_cannot_be_loaded_is_left_out(folder: Path) -> None:
    listed = ("--adapter", f"0:0:{folder / 'none.gguf'}", "--adapter", f"1:0:{folder / '1.gguf'}")
    with Lines(*flags(*listed), model=folder / "model.gguf") as engine:
        assert [one["id"] for one in load(engine, 2, folder / "0.gguf")["adapters"]] == [1, 2]


def test_an_empty_list_replaces_the_option_lora(folder: Path) -> None:
    none = ("--adapter", "none", "--lora", str(folder / "0.gguf"))
    with Lines(*flags(*none), model=folder / "model.gguf") as engine:
        assert load(engine, 1, folder / "1.gguf")["adapters"] == [
            {"id": 1, "path": str(folder / "1.gguf"), "scale": 0.0}
        ]
