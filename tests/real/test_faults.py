"""Faults that only a real engine can have; tests/fake/test_faults.py lists all."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llama_srb.engine.events import Done, Error
from llama_srb.engine.exchange import EngineError
from llama_srb.engine.pool import Pool
from llama_srb.engine.process import Engine
from llama_srb.engine.settings import EngineSettings
from llama_srb.models import gguf_header
from llama_srb.models.gguf_header import ModelFileError
from llama_srb.request.fields import CompletionRequest, Sampling
from tests.real.test_life import engines_of, eventually, running, texts_of
from tests.support.encoder import write_encoder
from tests.support.models import write_model
from tests.support.places import BINARY, FAKE_ENGINE, STORYTELLER
from tests.support.serving import LASTING
from tests.support.waiting import PATIENCE


def settings(model: Path = STORYTELLER, *flags: str, step_timeout: float | None = None) -> EngineSettings:
    command = (str(BINARY), "-m", str(model), *flags)
    return EngineSettings(command, load_timeout=PATIENCE, step_timeout=step_timeout, restart_delay=0.05)


def endless(prompt: str = "Once", **fields: object) -> CompletionRequest:
    return CompletionRequest(prompt=prompt, n=2, max_tokens=-1, sampling=Sampling(ignore_eos=True), **fields)


async def test_an_engine_that_is_stopped_is_ended_and_another_one_started() -> None:
    async with (
        asyncio.timeout(PATIENCE),
        Pool(settings(STORYTELLER, "-c", "16384", *LASTING, step_timeout=1.0)) as pool,
    ):
        async with pool.generate(endless()) as generation:
            await anext(generation)
            os.kill(pool.engines.pids[0], signal.SIGSTOP)
            last = [events[-1] async for events in generation][-1]
        assert isinstance(last, Error)
        assert "no step in 1 s while it had 1 request" in last.message
        async with pool.generate(CompletionRequest(prompt="Once", n=2, max_tokens=3)) as generation:
            assert isinstance([events[-1] async for events in generation][-1], Done)


async def test_a_long_prompt_is_no_hang(tmp_path: Path) -> None:
    """The whole prefill takes longer than the time limit of one step."""
    write_model(tmp_path / "m.gguf", "llama", context=100_000)
    text = " ".join(map(str, range(8_000)))
    async with (
        asyncio.timeout(PATIENCE),
        Pool(settings(tmp_path / "m.gguf", "-b", "64", "-t", "1", step_timeout=1.0)) as pool,
        pool.generate(CompletionRequest(prompt=text, n=1, max_tokens=1)) as generation,
    ):
        last = [events[-1] async for events in generation][-1]
    assert isinstance(last, Done), last
    assert last.timings["prompt_ms"] > 1000


def test_a_model_file_that_is_replaced_or_gone_disturbs_nobody(tmp_path: Path) -> None:
    model, other = tmp_path / "model.gguf", tmp_path / "other.gguf"
    shutil.copy(STORYTELLER, model)
    write_model(other, "llama")
    with running("--model", str(model)) as server, server.streaming() as events:
        engines = engines_of(server.process.pid)
        for change in (lambda: other.replace(model), model.unlink):
            change()
            assert len(texts_of(server)) == 4
            assert next(events)["event"] in ("stream", "stop")
        assert engines_of(server.process.pid) == engines
        os.kill(engines[0], signal.SIGKILL)  # the next engine cannot load until the file is there again
        eventually(lambda: server.json("GET", "/health")[0] == 503, "it is still served")
        shutil.copy(STORYTELLER, model)
        assert len(texts_of(server)) == 4


WRITERS: dict[str, Callable[[Path], None]] = {
    "llama": lambda path: write_model(path, "llama"),
    "mamba": lambda path: write_model(path, "mamba"),
    "encoder": lambda path: write_encoder(path, "mean"),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
async def test_an_engine_proves_itself_after_two_that_died_in_their_first_step(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    model, count, script = tmp_path / "model.gguf", tmp_path / "count", tmp_path / "engine"
    write(model)
    dies = f"{' '.join(FAKE_ENGINE)} --first-steps SIGILL --journal {tmp_path / 'journal'}"
    script.write_text(
        f'#!/bin/sh\necho >>{count}\n[ "$(wc -l <{count})" -le 2 ] && exec {dies}\nexec {BINARY} "$@"\n'
    )
    script.chmod(0o755)
    engine = EngineSettings((str(script), "-m", str(model), "-c", "512"), restart_delay=0.05)
    async with asyncio.timeout(PATIENCE), Pool(engine) as pool:
        for _ in range(2):
            async with pool.generate(CompletionRequest(prompt="Once", n=2)) as generation:
                assert isinstance([events[-1] async for events in generation][-1], Error)
        status = await pool.command("status")  # waits until an engine serves it
        assert status["steps"] >= (1 if gguf_header.read(model).architecture == "bert" else 4)
        assert status["requests"] == 0
    assert len(count.read_text()) == 3


# Files with false lengths

FALSE = (0, 1, 2**31, 2**32 + 1, 2**40, 2**62, 2**63, 2**64 - 1)
N_FILES = 60


def lengths(data: bytes) -> list[int]:
    """The places of small 64-bit numbers in the header: counts, lengths, dimensions, offsets."""
    end = data.index(b"blk.0.ffn_down.weight") if b"blk.0.ffn_down.weight" in data else len(data)
    numbers = ((at, struct.unpack_from("<Q", data, at)[0]) for at in range(4, min(end, len(data) - 8)))
    return [at for at, number in numbers if 0 < number < 2**20]


def damaged(folder: Path, n: int) -> Iterator[Path]:
    """Yields copies of a small model with one or two false lengths, half of them near the beginning."""
    write_model(folder / "whole.gguf", "llama")
    data, path, dice = (folder / "whole.gguf").read_bytes(), folder / "damaged.gguf", random.Random(8)
    places = lengths(data)
    for turn in range(n):
        copy = bytearray(data)
        for _ in range(1 + turn % 2):
            at = dice.choice(places if turn % 4 < 2 else places[:40])
            struct.pack_into("<Q", copy, at, dice.choice(FALSE))
        path.write_bytes(copy)
        yield path


def test_the_header_of_a_file_with_false_lengths_is_an_error_of_one_line(tmp_path: Path) -> None:
    reasons = []
    for path in damaged(tmp_path, 2000):
        try:
            gguf_header.read(path)
        except ModelFileError as error:
            reasons.append(str(error))
    assert len(reasons) > 200
    assert not [reason for reason in reasons if "\n" in reason]


async def test_a_model_file_with_false_lengths_is_an_error_and_no_crash(tmp_path: Path) -> None:
    """The server must not crash. The engine may exit in any way, but must not hang."""
    reasons = []
    for path in damaged(tmp_path, N_FILES):
        async with Engine(settings(path, "-c", "256", "--no-warmup")) as engine:
            try:
                await engine.loaded()
            except EngineError as error:
                reasons.append(str(error))
    assert len(reasons) > N_FILES // 5
    assert not [reason for reason in reasons if "while loading" not in reason]
