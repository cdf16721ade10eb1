"""Drafts on the real engine: right guesses save steps, and each token has its logprob without them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.lines import Lines

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
    counts, plain, steps = told(engine, **asked)
    assert counts == {}
    counts, drafted, fewer = told(engine, **asked, draft=16)
    assert [[one["id"] for one in text] for text in drafted] == [
        [one["id"] for one in text] for text in plain
    ]
    for ours, theirs in zip(drafted, plain, strict=True):
        assert [one["logprob"] for one in ours] == pytest.approx([one["logprob"] for one in theirs], abs=0.1)
    if n == 1:  # sequences that are equal share their rows, and guess nothing
        assert counts["draft_n_accepted"] > 0.5 * counts["draft_n"] > 0
        assert fewer < steps  # how many fewer follows the time of steps


def test_what_a_grammar_allows_only_is_guessed_at_once() -> None:
    """A new engine does not know yet what rows cost, so it guesses whatever the clock says."""
    asked: dict[str, Any] = {
        "max_tokens": 80, "regex": "The little fox (ran|went) home to his mother[.] She was very happy[.]",
        "sampling": {"temperature": 0},
    }  # fmt: skip
    with Lines("-np", "8", "-c", "4096") as engine:
        before = engine.ask("status")
        _, plain, steps = told(engine, **asked)
        _, drafted, fewer = told(engine, **asked, draft=16)
        after = engine.ask("status")
    assert [one["text"] for one in drafted[0]] == [one["text"] for one in plain[0]]
    guessed, right = (after[name] - before[name] for name in ("draft_grammar", "draft_grammar_accepted"))
    assert 0 < right <= guessed
    assert fewer < steps


def test_recorded_tokens_are_taken_in_place_of_those_that_are_drawn(engine: Lines) -> None:
    texts = ["The owl sang.", "The owl slept in a tree."]
    recorded = [engine.ask("tokenize", text=text)["tokens"] for text in texts]
    rows = [{"replay": one, "max_tokens": len(one)} for one in recorded]
    for draft in (0, 16):
        answer = engine.generate(prompt=PROMPT, n=2, sequences=rows, draft=draft)
        assert [text.strip() for text in answer.texts] == texts
