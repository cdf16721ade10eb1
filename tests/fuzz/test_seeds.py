"""Replays the fuzzers' seeds: the engine answers its commands, Python's parsers read their bodies."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS, corpus
from tests.support.places import BINARY, STORYTELLER
from tests.support.rows import each_row

SEEDS = sorted((Path(__file__).parent / "seeds").glob("*.json"))
SILENT = {"cancel"}  # for a request that does not run


@each_row("seed", SEEDS, ids=lambda seed: seed.stem)
def test_the_engine_answers_a_seed_and_goes_on(seed: Path) -> None:
    command = json.loads(seed.read_bytes())
    lines = seed.read_bytes().strip() + b'\n{"op": "status", "id": "last"}\n'
    argv = [BINARY, "-m", STORYTELLER, "-c", "2048", "-t", "1"]
    done = subprocess.run(argv, input=lines, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    ends = [event for event in events if event["event"] in ("result", "done", "error")]
    of_seed = [end for end in ends if end["id"] == command["id"] or end.get("line") == 1]
    assert done.returncode == 0
    assert len(of_seed) == (command["op"] not in SILENT)
    assert [end["id"] for end in ends if end not in of_seed] == ["last"]


@pytest.mark.parametrize("target", dict.fromkeys(TARGETS), ids=lambda target: target.__name__)
def test_a_parser_reads_the_whole_corpus(target) -> None:
    for data in corpus():
        target(data[1:])


def test_the_corpus_reaches_every_target() -> None:
    assert {data[0] % len(TARGETS) for data in corpus()} == set(range(len(TARGETS)))
