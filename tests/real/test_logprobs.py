"""Logprobs after the samplers: each token's probability in the distribution from which it was drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.lines import Event, Lines

EVERYTHING = {"top_k": 0, "top_p": 1, "min_p": 0, "temperature": 1}
REQUEST: dict[str, Any] = {"prompt": "Once upon a time", "n": 4, "max_tokens": 12, "min_tokens": 12}


@pytest.fixture(scope="module")
def engine(bigram: Path) -> Iterator[Lines]:
    with Lines("-np", "4", "-c", "2048", "-t", "1", model=bigram) as engine:
        yield engine


def both(engine: Lines, k: int, **sampling: Any) -> Iterator[tuple[Event, Event]]:
    """The same tokens, by the same seed, with their logprobs before the samplers and after them."""
    request = REQUEST | {"logprobs": k, "sampling": EVERYTHING | {"seed": 3} | sampling}
    raw, processed = (engine.generate(**request, logprobs_mode=mode) for mode in ("raw", "processed"))
    assert raw.ids == processed.ids
    assert len(raw.ids[0]) == 12
    for before, after in zip(raw.tokens, processed.tokens, strict=True):
        yield from zip(before, after, strict=True)


def normalised(logits: dict[int, float]) -> dict[int, float]:
    log_sum = math.log(sum(map(math.exp, logits.values())))
    return {id: logit - log_sum for id, logit in logits.items()}


def top(token: Event) -> dict[int, float]:
    return {other["id"]: other["logprob"] for other in token["top"]}


def test_truncation_and_temperature_count(engine: Lines) -> None:
    for raw, processed in both(engine, 10, top_k=5, temperature=0.7):
        allowed = [
            (id, logprob / 0.7) for id, logprob in top(raw).items() if id != 0
        ]  # no end of text before 12 tokens
        expected = normalised(dict(allowed[:5]))
        assert top(processed) == pytest.approx(expected, abs=1e-4)
        assert processed["logprob"] == pytest.approx(expected[processed["id"]], abs=1e-4)


def test_biases_count_and_banned_tokens_are_left_out(engine: Lines) -> None:
    for raw, processed in both(engine, 1000, logit_bias=[[300, 5.0], [301, False]]):
        logits = top(raw)
        expected = normalised(logits | {300: logits[300] + 5.0} if 300 in logits else logits)
        assert 301 not in top(processed)
        assert processed["logprob"] == pytest.approx(expected[processed["id"]], abs=0.2)


@pytest.mark.parametrize(
    "sampling",
    [
        {"mirostat": 1},
        {"mirostat": 2},
        {"adaptive_target": 0.3},
        {"top_n_sigma": 1.0},
        {"xtc_probability": 1},
        {"smoothing_factor": 0.2},
        {"tfs": 0.95},
    ],
)
def test_the_probabilities_of_all_tokens_left_add_up_to_1(engine: Lines, sampling: dict[str, Any]) -> None:
    for _, processed in both(engine, 1000, **sampling):
        others = list(top(processed).values())
        assert others == sorted(others, reverse=True)
        assert sum(map(math.exp, others)) <= 1 + 1e-3
        assert top(processed).get(processed["id"], processed["logprob"]) == processed["logprob"]
        assert sum(map(math.exp, others)) > 0.99 or len(others) == 1000


def test_a_greedy_token_has_probability_1(engine: Lines) -> None:
    for raw, processed in both(engine, 3, temperature=0):
        assert processed["logprob"] == 0
        assert [other["id"] for other in processed["top"]] == [processed["id"]]
        assert raw["logprob"] < -1e-3


def test_with_a_grammar_the_logprob_is_that_of_the_accepted_draw(engine: Lines) -> None:
    request = REQUEST | {
        "regex": "[a-z ]{40,}",
        "logprobs": 1000,
        "logprobs_mode": "processed",
        "min_tokens": 0,
    }
    answer = engine.generate(**request, sampling=EVERYTHING | {"seed": 3})
    for token in answer.tokens[0]:
        assert math.isclose(top(token)[token["id"]], token["logprob"], abs_tol=1e-6)


def test_an_unknown_mode_is_refused(engine: Lines) -> None:
    error = engine.generate(prompt="x", logprobs_mode="cooked").events[-1]
    assert (error["event"], error["param"]) == ("error", "logprobs_mode")
    assert '"cooked"' in error["message"]
