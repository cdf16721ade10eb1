"""Pins of the engine: prompts whose cells stay, and what is left to requests beside them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from llama_srb.engine.events import Event as PoolEvent
from llama_srb.engine.events import Start
from llama_srb.engine.exchange import EngineError
from llama_srb.engine.pool import Mode, Pool
from llama_srb.engine.settings import EngineSettings
from llama_srb.request.fields import CompletionRequest
from tests.support.lines import Event, Lines
from tests.support.long import amount
from tests.support.models import write_model
from tests.support.places import BINARY, STORYTELLER
from tests.support.waiting import collect, until

STORY = "There was a king who had a red ball, and he lost it in a deep well. "
OTHER = "In the garden stands an old tree, and under it sleeps a small dog. "
LONG = {"ignore_eos": True, "seed": 5}
CELLS = 1024


@pytest.fixture
def engine() -> Iterator[Lines]:
    """Few cells: idle prefixes are evicted soon, and there is no host memory for them."""
    with Lines("-np", "4", "-c", str(CELLS), "-t", "1", "--cache-ram", "0") as engine:
        yield engine


def pin(engine: Lines, name: str, prompt: str, **more: Any) -> Event:
    return engine.ask("pin", name=name, prompt=prompt, **more)


def pressure(engine: Lines) -> None:
    """More prompts and texts than all cells hold, several at a time."""
    for i in range(6):
        engine.generate_all(
            *(
                {"prompt": f"{i} {k} " + OTHER * 12, "n": 2, "max_tokens": 40, "sampling": LONG}
                for k in range(2)
            )
        )


def test_a_pinned_prompt_survives_what_evicts_all_others(engine: Lines) -> None:
    first = pin(engine, "tale", STORY * 8)
    assert (first["event"], first["count"], first["cached_tokens"]) == ("done", 0, 0)
    n = first["prompt_tokens"]
    assert engine.ask("status")["cells_pinned"] == n
    engine.generate(prompt=OTHER * 8, max_tokens=1)
    pressure(engine)
    behind = engine.generate(prompt=STORY * 8 + "Then", max_tokens=3)
    assert behind.start["cached_tokens"] >= n - 1, "the pinned prompt is still there"
    other = engine.generate(prompt=OTHER * 8 + "Then", max_tokens=3)
    assert other.start["cached_tokens"] < 20, "else the pressure was too low to show anything"


def test_pins_are_no_idle_cells_and_unpinned_ones_are(engine: Lines) -> None:
    n = pin(engine, "tale", STORY * 8)["prompt_tokens"]
    status = engine.ask("status")
    assert (status["cells_used"], status["cells_idle"], status["cells_pinned"]) == (n, 0, n)
    assert engine.ask("unpin", name="tale")["event"] == "result"
    status = engine.ask("status")
    assert (status["cells_idle"], status["cells_pinned"]) == (n, 0)
    error = engine.ask("unpin", name="tale")
    assert (error["param"], error["message"]) == ("name", 'no prompt is pinned under the name "tale"')


def test_a_pin_takes_the_place_of_one_of_its_name(engine: Lines) -> None:
    pin(engine, "tale", STORY * 8)
    n = pin(engine, "tale", OTHER * 8)["prompt_tokens"]
    assert engine.ask("status")["cells_pinned"] == n
    assert pin(engine, "tale", OTHER * 8)["cached_tokens"] >= n - 1, "the same again costs nothing"
    assert engine.ask("status")["cells_pinned"] == n


def test_pins_with_a_common_beginning_share_its_cells(engine: Lines) -> None:
    n = pin(engine, "short", STORY * 6)["prompt_tokens"]
    m = pin(engine, "long", STORY * 6 + OTHER * 2)
    assert m["cached_tokens"] >= n - 1
    assert engine.ask("status")["cells_pinned"] <= m["prompt_tokens"] + 1


def test_pins_may_have_half_of_the_cells(engine: Lines) -> None:
    n = pin(engine, "a", STORY * 14)["prompt_tokens"]
    assert n < CELLS // 2
    error = pin(engine, "b", OTHER * 20)
    assert (error["code"], error["param"], error["n_ctx"]) == ("context_exceeded", "prompt", CELLS // 2)
    total = n + error["n_prompt_tokens"] - 1  # they share the token for the beginning
    assert f"{total} cells would be pinned; at most half of the {CELLS} cells may be" in error["message"]
    assert engine.ask("status")["cells_pinned"] == n
    assert [pin(engine, name, OTHER * 12)["event"] for name in "ac"] == ["done", "done"]


def test_two_pins_at_once_count_together(engine: Lines) -> None:
    ids = engine.send(*(
        {"op": "pin", "name": name, "prompt": text * 14} for name, text in (("a", STORY), ("b", OTHER))
    ))  # fmt: skip
    ends = [answer.events[-1]["event"] for answer in engine.answers(ids)]
    assert ends == ["done", "error"]


def test_the_number_of_pins_has_a_bound(engine: Lines) -> None:
    for i in range(16):
        assert pin(engine, str(i), f"{i} {i}")["event"] == "done"
    error = pin(engine, "one more", "too many")
    assert (error["param"], error["message"]) == ("name", "this would be pin 17; there may be 16")
    answer = engine.generate(prompt=OTHER, n=9, max_tokens=20)
    assert len(answer.stops) == 9
    engine.wait_for_sleep()


def test_a_request_may_have_what_pins_leave_and_what_it_shares(engine: Lines) -> None:
    """n_ctx_sequence is 1024, too. Two requests fill their limits to the last token and end."""
    n = pin(engine, "tale", STORY * 10)["prompt_tokens"]
    room = CELLS - n + 1  # all texts share the token for the beginning
    error = engine.generate(prompt=OTHER * 52, max_tokens=9).events[-1]
    prompt = error["n_prompt_tokens"]
    assert room < prompt < CELLS
    assert (error["code"], error["param"], error["n_ctx"]) == ("context_exceeded", "prompt", room)
    assert error["message"] == (
        f"the request has {prompt} tokens; with one more it exceeds the {room} cells that are left to it, "
        f"since {n} of the {CELLS} cells are pinned"
    )
    alone = engine.generate(prompt=OTHER, max_tokens=-1, sampling=LONG)
    assert alone.stops[0]["finish_reason"] == "length"
    assert alone.start["prompt_tokens"] + alone.stops[0]["length"] == room
    behind = engine.generate(prompt=STORY * 10 + OTHER, max_tokens=-1, sampling=LONG)
    assert CELLS - 2 <= behind.start["prompt_tokens"] + behind.stops[0]["length"] <= CELLS


@pytest.mark.parametrize("more", [{"cache": False}, {"echo": True, "logprobs": 0}])
def test_a_request_that_shares_no_cells_has_only_what_pins_leave(engine: Lines, more: dict[str, Any]) -> None:
    n = pin(engine, "tale", STORY * 10)["prompt_tokens"]
    answer = engine.generate(prompt=STORY * 10 + OTHER, max_tokens=-1, sampling=LONG, **more)
    assert answer.start["prompt_tokens"] + answer.stops[0]["length"] == CELLS - n


def test_texts_to_score_have_the_same_limit(engine: Lines) -> None:
    n = pin(engine, "tale", STORY * 10)["prompt_tokens"]
    [id] = engine.send({"op": "score", "texts": [OTHER * 52]})
    [answer] = engine.answers([id])
    assert (answer.events[-1]["code"], answer.events[-1]["n_ctx"]) == ("context_exceeded", CELLS - n)


def test_a_request_that_has_too_few_cells_beside_a_new_pin_ends(engine: Lines) -> None:
    """It waits behind one that runs, and its prompt would fit without the pin."""
    running, waiting, pinned = engine.send(
        {"op": "generate", "prompt": STORY, "n": 4, "max_tokens": 200, "sampling": LONG},
        {"op": "generate", "prompt": OTHER * 50, "max_tokens": 5},
        {"op": "pin", "name": "tale", "prompt": STORY * 14},
    )
    one, two, three = engine.answers([running, waiting, pinned])
    assert one.events[-1]["event"] == "done"
    assert three.events[-1]["event"] == "done"
    last = two.events[-1]
    assert last["event"] == "done" or last["code"] == "context_exceeded"
    error = engine.generate(prompt=OTHER * 50, max_tokens=5).events[-1]
    assert error["code"] == "context_exceeded"


def test_the_next_prefix_of_a_client_does_not_end_a_pin(engine: Lines) -> None:
    ids = engine.send(
        {"op": "pin", "client": "c", "name": "tale", "prompt": STORY * 10},
        {"op": "prefix", "client": "c", "prompt": OTHER * 5},
    )
    engine.answers(ids)
    assert engine.ask("status")["cells_pinned"] > 100


def test_pins_are_computed_again_after_a_decode_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_BATCHED_FAIL_STEP", "20")
    with Lines("-np", "4", "-c", str(CELLS), "-t", "1") as engine:
        n = pin(engine, "tale", STORY * 10)["prompt_tokens"]
        failed = engine.generate(prompt=OTHER, max_tokens=100, sampling=LONG)
        assert failed.events[-1]["code"] == "engine_error"
        behind = engine.generate(prompt=STORY * 10 + "Then", max_tokens=3)
        assert engine.ask("status")["cells_pinned"] == n
        assert behind.start["cached_tokens"] >= n - 1


@pytest.mark.parametrize("kind", ["llama", "gemma3", "mamba"])
def test_pins_of_other_kinds_of_models_serve_requests_behind_them(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, kind)
    with Lines("-np", "4", "-c", "2048", "-t", "1", "--cache-ram", "0", model=path) as engine:
        n = pin(engine, "tale", "x" * 60 + " king")["prompt_tokens"]
        for i in range(12):
            engine.generate(prompt=f"{i}" + "some other text " * 20, n=4, max_tokens=40, sampling=LONG)
        answer = engine.generate(prompt="x" * 60 + " king and queen", n=3, max_tokens=3)
        assert answer.start["cached_tokens"] >= n - 2


@pytest.mark.parametrize("command", [{"name": ""}, {}, {"name": "x", "prompt": "a" * 99_999}])
def test_wrong_pins_are_refused(engine: Lines, command: dict[str, Any]) -> None:
    answer = engine.ask("pin", **({"prompt": "x"} | command))
    assert answer["event"] == "error"
    assert answer["param"] == ("prompt" if "prompt" in command else "name")
    assert engine.ask("status")["cells_pinned"] == 0


def test_another_process_reads_a_pinned_prompt_from_the_prefix_cache(tmp_path: Path) -> None:
    flags = ("-np", "4", "-c", str(CELLS), "-t", "1", "--prefix-cache", str(tmp_path))
    with Lines(*flags) as engine:
        assert pin(engine, "tale", STORY * 10)["cached_tokens"] == 0
        engine.generate(prompt=STORY * 10, max_tokens=1)
    for _ in range(10):  # a request waits for the folder, which hashes the model, a second at most
        with Lines(*flags) as engine:
            done = pin(engine, "tale", STORY * 10)
            assert engine.ask("status")["cells_pinned"] == done["prompt_tokens"]
        if done["cached_tokens"]:
            break
    assert done["cached_tokens"] >= done["prompt_tokens"] - 1


# Everything at once

SENTENCES = (STORY, OTHER, "One day a small dog came by. ", "The sun was hot and the sea was blue. ")


def any_text(random: Random) -> str:
    parts = [random.choice(SENTENCES) * random.randrange(1, 6) for _ in range(random.randrange(1, 4))]
    return "".join(parts)


def any_command(random: Random) -> Event:
    kind, text = random.random(), any_text(random)
    if kind < 0.2:
        return {"op": "pin", "name": random.choice("abc"), "prompt": text}
    if kind < 0.3:
        return {"op": "unpin", "name": random.choice("abc")}
    if kind < 0.4:
        return {"op": "score", "prompt": text, "texts": [any_text(random)]}
    then = {"text": " So:", "max_tokens": random.choice([2, 30, -1])}
    return {
        "op": "generate", "prompt": text, "n": random.choice([1, 2, 8]), "cache": random.random() < 0.8,
        "max_tokens": random.choice([3, 40, -1]), "stop": random.choice([[], ["a"], [" the"]]),
        "sampling": {"temperature": random.choice([0, 1, 2]), "ignore_eos": random.random() < 0.5, "seed": 3},
        **random.choice([{}, {}, {"then": then}, {"echo": True, "logprobs": 0}]),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(amount(2, 8)))
def test_every_request_ends_and_no_cell_is_lost_beside_changing_pins(seed: int) -> None:
    """512 cells, of which up to half are pinned; sequences run to the last cell."""
    random = Random(seed)
    with Lines("-np", "4", "-c", "512", "-t", "1") as engine:
        for _ in range(20):
            ids = engine.send(*(any_command(random) for _ in range(random.randrange(1, 7))))
            for answer in engine.answers(ids):
                last = answer.events[-1]
                assert last["event"] != "error" or last["code"] in ("context_exceeded", "invalid_request"), (
                    last
                )
            status = engine.ask("status")
            assert status["cells_used"] == status["cells_idle"] + status["cells_pinned"]
            assert status["cells_pinned"] <= 256
            assert (status["requests"], status["sequences"]) == (0, 0)


# Pools


def real_pool(mode: Mode = "resident", cells: int = CELLS) -> Pool:
    command = (
        str(BINARY),
        "-m",
        str(STORYTELLER),
        "-np",
        "4",
        "-c",
        str(cells),
        "-t",
        "1",
        "--cache-ram",
        "0",
    )
    return Pool(EngineSettings(command, "storyteller", restart_delay=0.05), mode=mode)


async def started(pool: Pool, text: str) -> Start:
    """The start event of a request with this prompt."""
    async with pool.generate(CompletionRequest(prompt=text, n=2, max_tokens=4)) as generation:
        events: list[PoolEvent] = await collect(generation)
    [start] = [event for event in events if isinstance(event, Start)]
    return start


async def test_an_engine_that_was_killed_has_its_pins_again() -> None:
    pool = real_pool()
    pool.pins.set({"tale": CompletionRequest(prompt=STORY * 10)})
    async with pool:
        for _ in range(2):
            await pool.wait_ready()
            start = await started(pool, STORY * 10 + "Then")
            assert start.cached_tokens >= pool.pins.tokens["tale"] - 1
            [pid] = pool.engines.pids
            os.kill(pid, signal.SIGKILL)
            await until(lambda: pool.state == "loading")


async def test_pins_that_exceed_half_of_the_cells_keep_a_pool_from_starting() -> None:
    pool = real_pool(cells=512)
    pool.pins.set({"tale": CompletionRequest(prompt=STORY * 15)})
    async with pool:
        with pytest.raises(
            EngineError, match="pin tale: with this prompt of 287 tokens 287 cells would be pinned"
        ):
            await pool.wait_ready()


async def test_a_per_request_engine_computes_the_prompt_with_each_request() -> None:
    pool = real_pool("per-request")
    pool.pins.set({"tale": CompletionRequest(prompt=STORY * 10)})
    async with pool:
        for _ in range(2):
            assert (await started(pool, STORY * 10 + "Then")).cached_tokens == 0


def test_a_scored_text_gets_cells_before_younger_prompts_begin_again() -> None:
    """Its prompt, its text and three younger prompts exceed all cells; those three are preempted by turns."""
    for repeats in (5, 6):
        with Lines("-np", "4", "-c", "512", "-t", "1") as engine:
            [score] = engine.send({"op": "score", "prompt": STORY * 14, "texts": [OTHER * 10]})
            while engine.read()["event"] != "accepted":
                pass
            prompts = ("A " + STORY * repeats, "B " + OTHER * 2, "C " + OTHER * 4)
            others = engine.send(
                *({"op": "generate", "prompt": one, "max_tokens": -1, "sampling": LONG} for one in prompts)
            )
            for answer in engine.answers([score, *others]):
                assert answer.events[-1]["event"] == "done"
