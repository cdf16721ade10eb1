"""Idle prefixes of a device leave its memory by few copies, and come back whole.

The device is the memory of another process (tests/support/lender.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.test_laws import check_idle
from tests.real.test_prefix import n_computed, words
from tests.real.test_store import same, story
from tests.support.lender import Device, Lender
from tests.support.lines import Answer
from tests.support.paced import Paced

PROMPT = words(1, 150)
N_LAYERS = 4  # of the bundled model


@pytest.fixture
def device() -> Iterator[Device]:
    lender = Lender()
    lender.start()
    with Device(lender) as made:
        yield made
    lender.kill()


def on_device(device: Device, log: Path, *flags: str) -> Paced:
    return Paced(log, "-c", "4096", "-np", "8", "-t", "1", "--rpc", device.address, "-ngl", "99", *flags)


def side_by_side(engine: Paced, n: int) -> list[Answer]:
    """The answers to n requests with one prompt: their cells lie interleaved, each text counts for itself."""
    engine.generate(prompt=PROMPT, n=0)  # so that they begin together
    limits = {"n": 1, "max_tokens": 90, "min_tokens": 90}
    ids = [engine.begin(**story(PROMPT, sampling={"seed": seed}, **limits)) for seed in range(n)]
    return [engine.read_until(id, "done") for id in ids]


def test_texts_that_were_decoded_side_by_side_come_back_whole(device: Device, tmp_path: Path) -> None:
    with on_device(device, tmp_path / "log", "--cache-cells", "0") as engine:
        answers = side_by_side(engine, 3)
        longer = [PROMPT + answer.texts[0] for answer in answers]
        warm = [engine.generate(**story(text)) for text in longer]  # from cells
        engine.wait_for_trim(0)
        restored = [engine.generate(**story(text)) for text in longer]
        check_idle(engine)
    assert all(n_computed(answer) <= 1 for answer in restored)
    assert all(same(a, b) for a, b in zip(warm, restored, strict=True))


def test_texts_of_one_prompt_are_copied_together(device: Device, tmp_path: Path) -> None:
    with on_device(device, tmp_path / "log", "--cache-cells", "0") as engine:
        side_by_side(engine, 6)
        engine.wait_for_trim(0)
        assert 2 * N_LAYERS <= device.n_copies <= 4 * N_LAYERS


def test_without_memory_for_snapshots_nothing_is_copied(device: Device, tmp_path: Path) -> None:
    with on_device(device, tmp_path / "log", "--cache-cells", "0", "--cache-ram", "0") as engine:
        side_by_side(engine, 2)
        engine.wait_for_trim(0)
        assert device.n_copies == 0
