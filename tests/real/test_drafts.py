"""Drafts on the real engine: right guesses save steps, and each token has its logprob without them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.padded import write_padded
from tests.support.lines import Lines
from tests.support.models import write_model
from tests.support.places import BINARY, STORYTELLER

SENTENCE = "The little fox ran home to his mother. "
PROMPT = "Once upon a time there was a fox. "


@pytest.fixture(scope="module")
def engine() -> Iterator[Lines]:
    with Lines("-np", "8", "-c", "4096") as engine:
        yield engine


def told(engine: Lines, **fields: Any) -> tuple[dict[str, int], list[list[dict[str, Any]]], int]:
    """The counts of guesses, the tokens of each sequence, and how many steps it took."""
    before = engine.ask("status")["steps"]
    answer = engine.generate(prompt=PROMPT, logprobs=0, **fields)
    steps = engine.ask("status")["steps"] - before
    timings = {name: n for name, n in answer.done["timings"].items() if name.startswith("draft")}
    return timings, answer.tokens, steps


@pytest.mark.parametrize("n", [1, 3])
def test_a_text_that_repeats_itself_takes_fewer_steps_and_is_the_same(engine: Lines, n: int) -> None:
    asked: dict[str, Any] = {
        "n": n, "max_tokens": 200, "regex": f"({SENTENCE.replace('.', '[.]')}){{12}}",
        "sampling": {"temperature": 0},
    }  # fmt: skip
    counts, plain, steps = told(engine, **asked, draft=0)
    assert counts == {}
    counts, drafted, fewer = told(engine, **asked, draft=16)
    assert [[one["id"] for one in text] for text in drafted] == [
        [one["id"] for one in text] for text in plain
    ]
    for ours, theirs in zip(drafted, plain, strict=True):
        assert [one["logprob"] for one in ours] == pytest.approx([one["logprob"] for one in theirs], abs=0.1)
    if n == 1:
        assert counts["draft_n_accepted"] > 0.5 * counts["draft_n"] > 0
        assert fewer < steps  # how many fewer follows the time of steps


def test_what_a_grammar_allows_only_is_guessed_at_once() -> None:
    """A new engine does not know yet what rows cost, so it guesses whatever the clock says: by default where
    no seed is given."""
    asked: dict[str, Any] = {
        "max_tokens": 80, "regex": "The little fox (ran|went) home to his mother[.] She was very happy[.]",
        "sampling": {"temperature": 0},
    }  # fmt: skip
    with Lines("-np", "8", "-c", "4096") as engine:
        before = engine.ask("status")
        unseeded, drafted, fewer = told(engine, **asked)
        after = engine.ask("status")
        counts, plain, steps = told(engine, **asked, draft=0)
        assert counts == {}
        for seeded in ({"sampling": {"temperature": 0, "seed": 1}}, {"n": 2, "sequences": [{}, {"seed": 1}]}):
            assert told(engine, **asked | seeded)[0] == {}
    assert [one["text"] for one in drafted[0]] == [one["text"] for one in plain[0]]
    guessed, right = (after[name] - before[name] for name in ("draft_grammar", "draft_grammar_accepted"))
    assert 0 < right <= guessed == unseeded["draft_n"]
    assert fewer < steps


def test_recorded_tokens_are_taken_in_place_of_those_that_are_drawn(engine: Lines) -> None:
    texts = ["The owl sang.", "The owl slept in a tree."]
    recorded = [engine.ask("tokenize", text=text)["tokens"] for text in texts]
    rows = [{"replay": one, "max_tokens": len(one)} for one in recorded]
    for draft in (0, 16):
        answer = engine.generate(prompt=PROMPT, n=2, sequences=rows, draft=draft)
        assert [text.strip() for text in answer.texts] == texts
        banned = engine.generate(prompt=PROMPT, n=2, sequences=rows, draft=draft, banned_strings=["owl"])
        assert not any("owl" in text for text in banned.texts)


def test_a_draft_model_guesses_what_a_slow_one_draws(tmp_path: Path) -> None:
    """The slow one is the same model, with wider layers that add nothing: guesses are wrong by draws only."""
    slow = tmp_path / "slow.gguf"
    write_padded(STORYTELLER, slow, 60e6)
    flags = ("-np", "8", "-c", "8192")
    with Lines(*flags, model=slow) as plain, Lines(*flags, "-md", str(STORYTELLER), model=slow) as guessing:
        asked: dict[str, Any] = {"max_tokens": 60, "sampling": {"temperature": 0}}
        _, texts, steps = told(plain, **asked, draft=0)
        counts, guessed, fewer = told(guessing, **asked, draft=16)
        assert [one["id"] for one in guessed[0]] == [one["id"] for one in texts[0]]
        assert counts["draft_n_accepted"] >= guessing.ask("status")["draft_model_accepted"] > 0
        assert fewer < steps
        before = guessing.ask("status")["draft_model_accepted"]
        for seed in range(10):  # whether it is asked for three texts at once follows the time of steps
            asked |= {"n": 3, "sampling": {"temperature": 0.7, "seed": seed}}
            _, _, steps = told(plain, **asked, draft=0)
            _, _, fewer = told(guessing, **asked, draft=16)
            if guessing.ask("status")["draft_model_accepted"] > before and fewer < steps:
                break
        else:
            pytest.fail("it was not asked")
        long = {"prompt": "Once upon a time. " * 150, "max_tokens": 3, "n": 2, "draft": 16}
        assert guessing.generate(**long).lengths == [3, 3]  # a prompt of more than a batch


def test_a_draft_model_that_cannot_guess_is_refused_by_name(tmp_path: Path) -> None:
    other, recurrent = tmp_path / "other.gguf", tmp_path / "recurrent.gguf"
    write_model(other, "llama")
    write_model(recurrent, "mamba")
    for large, small, said in (
        (STORYTELLER, other, f"{other} cannot guess for {STORYTELLER}: they have 512 and 4096 tokens"),
        (other, recurrent, f"{recurrent} (--spec-draft-model) cannot guess: its cells cannot be truncated"),
        (other, tmp_path / "none.gguf", "none.gguf (--spec-draft-model) cannot be loaded"),
    ):
        run = subprocess.run(
            (BINARY, "-m", large, "-md", small), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=60,
        )  # fmt: skip
        assert run.returncode == 1
        assert said in run.stderr
