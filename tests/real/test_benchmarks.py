"""Benchmarks that need no other project's programs: each part prints its figures and leaves no process."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import models, peers, run
from benchmarks.answers import Figures
from benchmarks.run import Crowd, Row
from benchmarks.sides.processes import descendants
from tests.support.bench import alive

ROW, CROWD = Row("bundled", 32, 2, 32, rounds=2), Crowd("bundled", 2, 2, 32, (16, 32), apart=0.01, rounds=1)


@pytest.mark.parametrize(
    ("part", "row", "sides", "figures"),
    [
        ("decode", ROW, ["ours", "pipe", "pipe, empty"], {"around", "decode", "prefill"}),
        ("decode", replace(ROW, settings="writer"), ["ours", "pipe"], {"around", "decode", "prefill"}),
        ("first", ROW, ["alone", "least", "pipe"],
         {"cold ms", "warm ms", "warm steps", "start ms", "server MB", "engine MB", "cells"}),
        ("clients", CROWD, ["ours"], {"decode", "first p50", "first p99", "gap p50", "gap p99"}),
        ("idle", ROW, ["empty", "full"], {"decode", "idle cells"}),
    ],
)  # fmt: skip
def test_a_part_prints_its_figures(part: str, row: Row | Crowd, sides: list[str], figures: set[str]) -> None:
    before = descendants(os.getpid())
    found: list[tuple[str, Figures]] = []
    run.PARTS[part].run(row, sides, Path(), lambda side, _, those: found.append((side, those)))
    assert {side for side, _ in found} == {*sides}
    assert {name for _, those in found for name in those} == figures
    assert all(value >= 0 for _, those in found for value in those.values())
    assert not [pid for pid in descendants(os.getpid()) if pid not in before and alive(pid)]


@pytest.mark.parametrize("name", ["gemma-270m", "experts"])
def test_a_written_model_is_measured(tmp_path: Path, name: str) -> None:
    """Two small layers of the shape, with a small vocabulary."""
    shape = replace(models.SHAPES[name], layers=2, width=256, vocabulary="llama-spm")
    vocabulary = Path(peers.setting("CMAKE_HOME_DIRECTORY")) / "models/ggml-vocab-llama-spm.gguf"
    models.write(shape, vocabulary, tmp_path / "small.gguf")
    row, found = replace(ROW, model=str(tmp_path / "small.gguf")), []
    assert row.name == "small:32:2"
    run.PARTS["decode"].run(row, ["ours", "pipe"], tmp_path, lambda side, *_: found.append(side))
    assert set(found) == {"ours", "pipe"}
