"""`llama-srb complete` with the real engine and the bundled model."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.bench import Bench, plain
from tests.support.places import ROOT
from tests.support.waiting import PATIENCE

PROMPT = "Once upon a time,"


def complete(*arguments: str) -> str:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("LLAMA_SRB_")}
    ended = forked.run(
        [sys.executable, "-m", "llama_srb.cli", "complete", PROMPT, *arguments],
        env=environ, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_eight_choices_of_exactly_max_tokens() -> None:
    choices = json.loads(complete("-n", "8", "--max-tokens", "4", "--ignore-eos", "--json"))["choices"]
    assert [(choice["index"], choice["length"]) for choice in choices] == [(i, 4) for i in range(8)]
    assert all(choice["text"] for choice in choices)


def test_the_same_seed_gives_the_same_texts() -> None:
    first, again = (complete("-n", "4", "--max-tokens", "12", "--seed", "5") for _ in range(2))
    assert first == again
    assert len(set(first.split("\n\n"))) > 1


def test_each_sequence_has_its_own_temperature() -> None:
    given = ("-n", "3", "--max-tokens", "16", "--temperature", "0,0,9", "--top-p", "1", "--min-p", "0")
    texts = [choice["text"] for choice in json.loads(complete(*given, "--json"))["choices"]]
    assert texts[0] == texts[1] != texts[2]


def test_a_chain_of_samplers_has_values() -> None:
    greedy = complete("-n", "1", "--max-tokens", "8", "--temperature", "0")
    for chain in ("temp:5 > top_k:1", "temp:9 > top_k:1 > temp:2 > top_k:40"):
        assert complete("-n", "1", "--max-tokens", "8", "--samplers", chain) == greedy


def test_a_banned_string_may_be_a_regular_expression() -> None:
    greedy = ("-n", "1", "--max-tokens", "8", "--temperature", "0", "--banned-strings")
    text = complete(*greedy, "was", "--banned-strings", '{"regex": " [a-t][a-z]{0,9}"}')
    assert not re.search("was| [a-t]", text)


def test_a_terminal_shows_eight_panels(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.engine.unlink()
    bench.engine.symlink_to(ROOT / "build/bin/llama-batched")
    code, output = bench.on_terminal("complete", PROMPT, "-n", "8", "--max-tokens", "16", "--ignore-eos")
    assert code == 0
    assert all(f"─ {index} ─" in plain(output) for index in range(8))


@pytest.mark.parametrize("form", ["--json", "--jsonl"])
def test_logprobs_are_in_the_json(form: str) -> None:
    lines = complete("-n", "1", "--max-tokens", "2", "--logprobs", "2", form)
    assert lines.count('"logprob"') == 2 * 3
