"""Hostile requests, sent to the engine itself: each ends, and other requests are served."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.reference.models import vocabulary
from tests.support.lines import Answer, Event, Lines
from tests.support.rows import each_row

Request = dict[str, Any]

ONCE: Request = {"prompt": "Once upon a time", "n": 2, "max_tokens": 6}
PLAIN: Request = {"temperature": 0.8, "seed": 7}


@pytest.fixture(scope="module")
def engine(bigram: Path) -> Iterator[Lines]:
    with Lines("-np", "8", "-c", "4096", "-t", "1", model=bigram) as engine:
        yield engine


@pytest.fixture(autouse=True)
def _unharmed(engine: Lines) -> Iterator[None]:
    """After each test another request is served; tables say so after each row."""
    yield
    serves_another_request(engine)


def serves_another_request(engine: Lines) -> None:
    assert engine.generate(**ONCE, sampling=PLAIN).lengths == [6, 6]


def every(answer: Answer) -> list[Event]:
    return [token for tokens in answer.tokens for token in tokens]


def numbers_of(token: Event) -> list[float]:
    return [token["logprob"], *(other["logprob"] for other in token["top"])]


# Numbers


BIASED = {"temperature": 1e-35, "logit_bias": [[5, 1e9]]}
EXTREME: dict[str, Request] = {
    "temperature 1e-38": {"temperature": 1e-38},
    "temperature 1e-45": {"temperature": 1e-45},
    "temperature 1e-35 and a bias": BIASED,
    "a bias of 1e9 twice": BIASED | {"logit_bias": [[5, 1e9], [5, 1e9]]},
    "a bias of 1e9 for all": {"logit_bias": [[i, 1e9] for i in range(2048)]},
    "a bias of -1e9 for all": {"logit_bias": [[i, -1e9] for i in range(2048)]},
    "mirostat": BIASED | {"mirostat": 1},
    "mirostat 2": BIASED | {"mirostat": 2},
    "mirostat that learns fast": {"mirostat": 2, "mirostat_eta": 100, "mirostat_tau": 0},
    "dynamic temperature": {"temperature": 1e-38, "dynatemp_range": 1e-38},
    "dynamic temperature of a steep curve": {"temperature": 1, "dynatemp_range": 1, "dynatemp_exponent": 100},
    "adaptive_p": BIASED | {"adaptive_target": 0.5},
    "typical_p": {"typical_p": 0.1, "logit_bias": [[5, 1e9], [6, False]]},
    "top_n_sigma": BIASED | {"top_n_sigma": 1, "samplers": ["temperature", "top_n_sigma", "typ_p"]},
    "xtc": BIASED | {"xtc_probability": 1, "xtc_threshold": 0, "samplers": ["temperature", "xtc"]},
    "xtc first": {"xtc_probability": 1, "xtc_threshold": 0, "samplers": ["xtc", "temperature"]},
    "penalties": {"repeat_penalty": 0.01, "frequency_penalty": -100, "logit_bias": [[5, 1e9]]},
    "dry": {"dry_multiplier": 100, "dry_base": 100, "dry_allowed_length": 0, "logit_bias": [[5, 1e9]]},
    "infill": {"samplers": ["temperature", "infill"], "temperature": 1e-38},
    "smoothing": BIASED | {"smoothing_factor": 100, "smoothing_curve": 10},
    "smoothing first": {"smoothing_factor": 100, "smoothing_curve": 0, "samplers": ["smoothing", "typ_p"]},
    "tfs": BIASED | {"tfs": 0},
    "tfs of all equal": {"tfs": 0.5, "logit_bias": [[i, -1e9] for i in range(2048)]},
    "cutoffs": BIASED | {"epsilon_cutoff": 10_000, "eta_cutoff": 10_000, "top_a": 1},
    "skew": BIASED | {"skew": 10},
    "skew of all": {"skew": -10, "temperature": 100},
    "bans of all": {"no_repeat_ngram_size": 1, "logit_bias": [[i, False] for i in range(3, 2048)]},
    "prompt": {"encoder_repetition_penalty": 100, "logit_bias": [[5, 1e9]]},
    "fading": {"repeat_penalty": 0.01, "frequency_penalty": -100, "repetition_decay": 2**31 - 1},
}


@each_row("mode", ["raw", "processed"])
@each_row("coupled", [{}, {"diversity": "arithmetic"}, {"first_token": "distinct"}], ids=str)
@each_row("sampling", EXTREME.values(), ids=EXTREME)
def test_logprobs_are_numbers(engine: Lines, sampling: Request, coupled: Request, mode: str) -> None:
    request = ONCE | coupled | {"logprobs": 20, "logprobs_mode": mode, "sum_logprobs": True}
    answer = engine.generate(**request, sampling=PLAIN | sampling)
    serves_another_request(engine)
    if coupled and answer.events[-1].get("param") == "diversity":
        return  # diversity is refused with mirostat and adaptive_p
    numbers = [number for token in every(answer) for number in numbers_of(token)]
    numbers += [stop["logprob"] for stop in answer.stops]
    assert all(map(math.isfinite, numbers))
    assert max(numbers) <= 1e-4


@pytest.mark.parametrize("temperature", [1e-45, 1e-38, 1e-35, 1e-20, 1e-6])
def test_a_tiny_temperature_is_greedy(engine: Lines, temperature: float) -> None:
    request = ONCE | {"logprobs": 1, "logprobs_mode": "processed", "max_tokens": 20}
    greedy, tiny = (
        engine.generate(**request, sampling={"temperature": t, "top_k": k})
        for t, k in ((0, 40), (temperature, 0))
    )
    assert tiny.ids == greedy.ids
    assert {token["logprob"] for token in every(tiny)} == {0}


def test_banned_tokens_do_not_change_the_probabilities_of_the_others(engine: Lines) -> None:
    """With a logit of minus infinity the entropy, which typical_p needs, would be NaN."""
    request = ONCE | {"n": 64, "logprobs": 1000, "logprobs_mode": "processed", "max_tokens": 1}
    typical = {"samplers": ["typ_p"], "typical_p": 0.5, "seed": 3}
    never = vocabulary().index(b"\xff")  # a token without weight here
    plain, banned = (
        engine.generate(**request, sampling=typical | bias) for bias in ({}, {"logit_bias": [[never, False]]})
    )
    assert len({tuple(ids) for ids in plain.ids}) > 3
    assert plain.ids == banned.ids


# Nothing to draw


def ban(*kept: int) -> list[list[Any]]:
    return [[id, False] for id in range(len(vocabulary())) if id not in kept]


STEPS: dict[str, Request] = {
    "the usual": {},
    "all tokens": {"top_k": 0, "top_p": 1, "min_p": 0},
    "greedy": {"temperature": 0},
    "top_k 1": {"top_k": 1},
    "penalties": {"repeat_penalty": 1.5, "dry_multiplier": 1},
    "mirostat": {"mirostat": 1},
    "mirostat 2": {"mirostat": 2},
    "adaptive_p": {"adaptive_target": 0.5},
    "xtc": {"xtc_probability": 1, "xtc_threshold": 0},
    "typical_p": {"typical_p": 0.5},
    "top_n_sigma": {"top_n_sigma": 1},
    "infill": {"samplers": ["top_k", "infill"]},
    "no sampler": {"samplers": []},
}
FIELDS: dict[str, Request] = {
    "plain": {},
    "processed": {"logprobs": 5, "logprobs_mode": "processed"},
    "raw": {"logprobs": 5, "sum_logprobs": True},
    "arithmetic": {"diversity": "arithmetic"},
    "distinct": {"first_token": "distinct"},
    "grammar": {"regex": "[a-z ]+"},
    "banned strings": {"banned_strings": ["a", "the"]},
}


@each_row("fields", FIELDS.values(), ids=FIELDS)
@each_row("sampling", STEPS.values(), ids=STEPS)
def test_where_all_tokens_are_banned_the_request_ends_with_an_error(
    engine: Lines, sampling: Request, fields: Request
) -> None:
    answer = engine.generate(**ONCE, **fields, sampling=PLAIN | sampling | {"logit_bias": ban()})
    serves_another_request(engine)
    error = answer.events[-1]
    assert (error["event"], error["code"]) == ("error", "invalid_request")
    assert "banned" in error["message"] or error["param"] == "diversity"
    assert answer.named("stream") == []


@each_row("fields", FIELDS.values(), ids=FIELDS)
@each_row("sampling", STEPS.values(), ids=STEPS)
def test_a_banned_token_is_never_drawn(engine: Lines, sampling: Request, fields: Request) -> None:
    """Neither is the model's end of text, which the infill sampler falls back on."""
    kept = [vocabulary().index(piece) for piece in (b"a", b"b", b" c")]
    settings = PLAIN | sampling | {"logit_bias": ban(*kept)}
    answer = engine.generate(**ONCE | {"n": 8} | fields, sampling=settings | {"ignore_eos": True})
    serves_another_request(engine)
    if (error := answer.events[-1])["event"] == "error":  # a banned phrase may leave none of "a", "b", " c"
        assert error["param"] == "diversity" or "banned_strings" in fields, error
        return
    assert set("".join(answer.texts)) <= set("ab c")


def test_where_only_a_banned_end_of_text_is_left_the_request_ends_with_an_error(engine: Lines) -> None:
    ends = {"sampling": PLAIN | {"logit_bias": ban(0)}}  # 0 is the model's end of text
    assert [stop["finish_reason"] for stop in engine.generate(**ONCE, **ends).stops] == ["stop"] * 2
    for never in ({"min_tokens": 3}, {"sampling": ends["sampling"] | {"ignore_eos": True}}):
        error = engine.generate(**ONCE | ends | never).events[-1]
        assert (error["event"], error["code"]) == ("error", "invalid_request")


# Time


def test_the_infill_sampler_compares_few_tokens_of_any_vocabulary(engine: Lines) -> None:
    """It compares all pairs of its tokens: 4 million for this vocabulary, 23 billion for a large one."""
    begin = time.monotonic()
    engine.generate(**ONCE | {"n": 8}, sampling=PLAIN | {"samplers": ["infill"]})
    assert time.monotonic() - begin < 2
