"""Coupled sequences are exact samples, and together they differ more; sums of logprobs; duplicates."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.real.test_laws import check_idle
from tests.support.lines import Answer, Lines
from tests.support.rows import each_row

Request = dict[str, Any]

N = 5  # not a power of two, so codes are not evenly spaced, and one token's interval holds several of them
OPENING: Request = {"prompt": "Once upon a time", "n": N, "max_tokens": 3, "logprobs": 100}
FEW: Request = {"temperature": 1.3, "top_k": 3, "top_p": 1, "min_p": 0, "ignore_eos": True}
END = 0  # the token that ends a text, which ignore_eos bans
XTC: Request = FEW | {"top_k": 4, "xtc_probability": 0.5, "xtc_threshold": 0.1, "min_keep": 1}


@pytest.fixture(scope="module")
def engine(bigram: Path) -> Iterator[Lines]:
    with Lines("-np", "32", "-c", "8192", "-t", "1", model=bigram) as engine:
        yield engine


# The marginals


def over_seeds(engine: Lines, n_seeds: int, sampling: Request, **fields: Any) -> list[Answer]:
    requests = [OPENING | fields | {"sampling": sampling | {"seed": 100 * seed}} for seed in range(n_seeds)]
    return [answer for i in range(0, n_seeds, 50) for answer in engine.generate_all(*requests[i : i + 50])]


def shares(top: list[dict[str, Any]], sampling: Request) -> dict[int, float]:
    """The distribution after the samplers, from the logprobs before: top_k, XTC, temperature."""
    best = [(token["id"], token["logprob"]) for token in top if token["id"] != END][: sampling["top_k"]]
    without = _softmax(best, sampling["temperature"])
    chance = sampling.get("xtc_probability", 0.0)
    if not chance:
        return without
    above = [id for id, share in _softmax(best, 1.0).items() if share >= sampling["xtc_threshold"]]
    left = _softmax(best[max(0, len(above) - 1) :], sampling["temperature"])
    return {id: chance * left.get(id, 0.0) + (1 - chance) * share for id, share in without.items()}


def _softmax(logits: list[tuple[int, float]], temperature: float) -> dict[int, float]:
    weights = {id: math.exp(logit / temperature) for id, logit in logits}
    return {id: weight / sum(weights.values()) for id, weight in weights.items()}


def chi_square(drawn: Counter[Any], expected: dict[Any, float]) -> float:
    """Pearson's chi-square, in standard deviations from its mean; rarely expected texts are one group."""
    total = drawn.total()
    large = {cell for cell, share in expected.items() if share * total >= 8}
    cells = [(drawn[cell], expected[cell] * total) for cell in large]
    rest = total - sum(count for count, _ in cells), total - sum(mean for _, mean in cells)
    cells += [rest] if rest[1] > 4 else []
    assert len(cells) > 3
    freedom = len(cells) - 1
    return (sum((count - mean) ** 2 / mean for count, mean in cells) - freedom) / math.sqrt(2 * freedom)


def texts_of_three(answers: Iterable[Answer], sampling: Request) -> dict[tuple[int, ...], float]:
    """Every text of three tokens with its probability, by the logprobs that the engine reported."""
    rows: dict[tuple[int, ...], dict[int, float]] = {}
    for answer in answers:
        for tokens in answer.tokens:
            ids = [token["id"] for token in tokens]
            for i, token in enumerate(tokens):
                rows[tuple(ids[:i])] = shares(token["top"], sampling)
    probabilities = {(): 1.0}
    for _ in range(3):
        probabilities = {
            (*text, id): probability * share
            for text, probability in probabilities.items()
            for id, share in rows.get(text, {}).items()
        }
    return probabilities


@pytest.mark.parametrize("sampling", [FEW, XTC], ids=["top-k", "xtc"])
def test_each_sequence_is_an_exact_sample(engine: Lines, sampling: Request) -> None:
    """Over many seeds, for each index: texts of three tokens are as frequent as the model's probabilities."""
    answers = over_seeds(engine, 800, sampling, diversity="arithmetic")
    expected = texts_of_three(answers, sampling)
    assert abs(sum(expected.values()) - 1) < 0.02  # nearly all logprobs were seen
    for index in range(N):
        drawn = Counter(tuple(answer.ids[index]) for answer in answers)
        assert abs(chi_square(drawn, expected)) < 5, index


def test_draws_after_the_codes_last_bit_are_exact_too(engine: Lines) -> None:
    """At every position: the count of likeliest tokens against the sum of their probabilities."""
    answers = over_seeds(engine, 400, FEW, diversity="arithmetic", max_tokens=24, logprobs=4)
    for index in range(N):
        for places in (range(8), range(8, 16), range(16, 24)):
            tokens = [answer.tokens[index][place] for answer in answers for place in places]
            likeliest = [max(shares(token["top"], FEW).items(), key=lambda one: one[1]) for token in tokens]
            came = sum(token["id"] == id for token, (id, _) in zip(tokens, likeliest, strict=True))
            chances = [chance for _, chance in likeliest]
            spread = math.sqrt(sum(chance * (1 - chance) for chance in chances))
            assert abs(came - sum(chances)) < 4.5 * spread


def test_grammars_come_first(engine: Lines) -> None:
    words = ["a", "b", "c", "de"]
    fields = {"choice": words, "logprobs": 0, "max_tokens": 4}
    sampling = {"samplers": ["temperature"], "temperature": 3}
    answers = over_seeds(engine, 100, sampling, diversity="arithmetic", **fields)
    independent = over_seeds(engine, 100, sampling, **fields)
    assert {text for answer in answers for text in answer.texts} == set(words)
    assert distinct(answers) > distinct(independent)


def distinct(answers: list[Answer]) -> float:
    return float(np.mean([len(set(answer.texts)) for answer in answers]))


# More variety


def test_there_are_more_different_openings_than_by_independent_draws() -> None:
    """The bundled model with its default samplers, paired over seeds."""
    n_grams: dict[str, list[list[int]]] = {"none": [], "arithmetic": []}
    prompts = ["Once upon a time,", "Lily and her dog", "The old man", "One day, Tim"]
    with Lines("-np", "32", "-c", "16384") as engine:
        for (mode, counts), i in itertools.product(n_grams.items(), range(40)):
            prompt, sampling = prompts[i % 4], {"seed": 1000 * i}
            answer = engine.generate(
                prompt=prompt, n=16, max_tokens=8, logprobs=0, diversity=mode, sampling=sampling
            )
            counts.append([len({tuple(ids[:length]) for ids in answer.ids}) for length in (1, 3, 5)])
    gains = np.array(n_grams["arithmetic"]) - np.array(n_grams["none"])
    assert (gains.mean(axis=0) > 2 * gains.std(axis=0, ddof=1) / math.sqrt(len(gains))).all()
    assert gains.mean() > 0.5


# Seed, index and number of sequences


COUPLED: Request = {"prompt": "Once upon a time", "max_tokens": 20, "logprobs": 0}
HOT: Request = {"temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0, "seed": 5, "ignore_eos": True}


@pytest.mark.parametrize("fields", [{"diversity": "arithmetic"}, {"first_token": "distinct"}], ids=str)
def test_a_sequence_does_not_depend_on_n(engine: Lines, fields: Request) -> None:
    request = COUPLED | fields | {"sampling": HOT}
    many = engine.generate(**request, n=12)
    assert engine.generate(**request, n=3).ids == many.ids[:3]
    id = f"few {fields}"
    engine.send({"op": "generate", "id": id, "n": 3, **request}, {"op": "extend", "id": id, "add": 9})
    assert engine.answers([id])[0].ids == many.ids


def test_another_seed_gives_other_texts(engine: Lines) -> None:
    request = COUPLED | {"n": 4, "diversity": "arithmetic"}
    first, second = (engine.generate(**request, sampling=HOT | {"seed": seed}).ids for seed in (5, 6))
    assert not {tuple(ids) for ids in first} & {tuple(ids) for ids in second}


def test_a_sequence_with_its_own_seed_is_not_coupled(engine: Lines) -> None:
    request = COUPLED | {"n": 3, "sampling": HOT}
    (alone,) = engine.generate(**COUPLED, sampling=HOT | {"seed": 99}).ids
    plain = engine.generate(**request, diversity="arithmetic").ids
    seeded = engine.generate(**request, diversity="arithmetic", sequences=[{}, {"seed": 99}, {}]).ids
    assert seeded == [plain[0], alone, plain[2]]


def test_forks_are_spread_from_where_they_begin(engine: Lines) -> None:
    """From a row of logits with four about equally likely tokens, four forks nearly always draw all four."""
    even = {"temperature": 100, "top_k": 4, "samplers": ["top_k", "temperature"], "ignore_eos": True}
    different = []
    for seed in range(20):
        request = COUPLED | {"diversity": "arithmetic", "sampling": even | {"seed": seed}, "n": 1}
        held = {"max_tokens": 40, "logprobs": 1000}  # unread lines of this size block the engine
        (id,) = engine.send({"op": "generate", **request, **held})
        while engine.read()["event"] != "stream":
            pass
        engine.send_amid({"op": "extend", "id": id, "add": 4, "fork": {"index": 0, "at": 1}, "max_tokens": 2})
        (answer,) = engine.answers([id])
        different.append(len({ids[0] for ids in answer.ids[1:]}))
    assert np.mean(different) > 3.5  # of independent draws 2.7


# First tokens


def test_first_tokens_are_distinct_also_in_waves(plain: Path, engine: Lines) -> None:
    request = COUPLED | {"n": 40, "max_tokens": 2, "first_token": "distinct", "sampling": {"seed": 3}}
    with Lines("-np", "4", "-c", "2048") as few, Lines("-np", "40", "-c", "4096") as many:
        firsts = [[ids[0] for ids in engine.generate(**request).ids] for engine in (few, many) * 2]
    assert len(set(firsts[0])) == 40
    assert firsts == firsts[:1] * 4, "the prompt is known the second time"


def test_the_first_of_distinct_tokens_is_an_exact_sample(engine: Lines) -> None:
    sampling = {"temperature": 2.0, "ignore_eos": True}  # top_k and other truncation do not apply
    answers = over_seeds(engine, 1500, sampling, first_token="distinct", max_tokens=1, n=2)
    everything = engine.generate(
        prompt=OPENING["prompt"], max_tokens=1, logprobs=1000, sampling={"ignore_eos": True}
    ).tokens[0][0]["top"]
    weights = [(token["id"], token["logprob"]) for token in everything if token["id"] != END]
    expected = _softmax(weights, 2.0)
    drawn = Counter(answer.ids[0][0] for answer in answers if answer.ids[0][0] in expected)
    assert drawn.total() > 0.8 * len(answers)  # draws among the thousand likeliest tokens
    assert abs(chi_square(drawn, expected)) < 5
    assert all(answer.ids[0][0] != answer.ids[1][0] for answer in answers)


def test_without_temperature_first_tokens_are_the_likeliest(engine: Lines) -> None:
    greedy = {"temperature": 0, "ignore_eos": True}
    answer = engine.generate(**OPENING | {"n": 20, "first_token": "distinct", "sampling": greedy})
    likeliest = [token["id"] for token in answer.tokens[0][0]["top"] if token["id"] != END]
    assert [tokens[0]["id"] for tokens in answer.tokens] == likeliest[:20]


def test_with_fewer_possible_first_tokens_than_sequences_they_repeat_in_rounds(engine: Lines) -> None:
    fields = {"choice": ["a", "b", "c"], "max_tokens": 4, "first_token": "distinct", "logprobs": 0}
    for seed in range(10):
        texts = engine.generate(**OPENING | fields | {"n": 9, "sampling": {"seed": seed}}).texts
        assert [set(texts[i : i + 3]) for i in (0, 3, 6)] == [{"a", "b", "c"}] * 3


# Scores


@pytest.mark.parametrize(
    "fields", [{}, {"stop": [" a"]}, {"banned_strings": ["he", " a", "in", "st"]}], ids=str
)
def test_the_sum_of_logprobs_is_that_of_the_tokens(engine: Lines, fields: Request) -> None:
    request = COUPLED | {"n": 6, "sampling": HOT, "max_tokens": 30} | fields
    answer = engine.generate(**request, sum_logprobs=True)
    for stop, tokens in zip(answer.stops, answer.tokens, strict=True):
        said = sum(token["logprob"] for token in tokens)
        assert stop["logprob"] == pytest.approx(said, rel=1e-4) or stop["length"] > len(tokens)
        assert stop["logprob"] <= said + 1e-3
    assert all("logprob" not in stop for stop in engine.generate(**request).stops)


# Duplicates

TWINS: Request = {"prompt": "Once upon a time", "n": 6, "max_tokens": 2, "logprobs": 0}
ALIKE: Request = {"temperature": 1.0, "top_k": 3, "seed": 1, "ignore_eos": True}


def last_attempts(answer: Answer) -> list[list[int]]:
    """The tokens of each sequence since its last retry."""
    ids: list[list[int]] = [[] for _ in answer.stops]
    for event in answer.events:
        if event["event"] == "again":
            ids[event["index"]] = []
        elif event["event"] == "stream":
            ids[event["index"]] += [token["id"] for token in event["tokens"]]
    return ids


def test_duplicates_are_marked(engine: Lines) -> None:
    answer = engine.generate(**TWINS | {"n": 20, "dedupe": "mark", "sampling": ALIKE})
    seen: dict[str, int] = {}
    for stop in sorted(answer.stops, key=lambda stop: stop["line"]):
        text = answer.texts[stop["index"]]
        assert stop.get("duplicate_of") == seen.get(text)
        seen.setdefault(text, stop["index"])
    assert len(seen) < 20
    assert not answer.named("again")


@pytest.mark.parametrize("parallel", ["32", "3"])
@pytest.mark.parametrize("cache", [True, False])
def test_duplicates_are_retried(bigram: Path, parallel: str, cache: bool) -> None:
    with Lines("-np", parallel, "-c", "1024", "-t", "1", model=bigram) as engine:
        for seed in range(8):
            sampling = ALIKE | {"seed": seed}
            answer = engine.generate(**TWINS, dedupe="again", sampling=sampling, cache=cache)
            texts = [tuple(ids) for ids in last_attempts(answer)]
            unmarked = [texts[stop["index"]] for stop in answer.stops if "duplicate_of" not in stop]
            assert len(unmarked) == len(set(unmarked))
            assert set(texts) == set(unmarked)
            assert [len(text) for text in texts] == answer.lengths == [2] * 6
            plain = engine.generate(**TWINS, sampling=sampling, cache=cache)
            assert len(set(unmarked)) >= len(set(map(tuple, plain.ids)))
            assert bool(answer.named("again")) == (len(set(plain.texts)) < 6)
        check_idle(engine)


def test_duplicates_whose_retries_fail_are_marked(engine: Lines) -> None:
    """A retry cannot change greedy and empty texts; other retries are bounded."""
    for fields, attempts in [
        ({"sampling": {"temperature": 0}}, 0),
        ({"max_tokens": 0}, 0),
        ({"sampling": {"temperature": 0.001}}, 8),
    ]:
        answer = engine.generate(**TWINS | {"dedupe": "again"} | fields)
        assert [stop.get("duplicate_of") for stop in answer.stops] == [None, 0, 0, 0, 0, 0]
        again = Counter(event["index"] for event in answer.named("again"))
        assert again == Counter(dict.fromkeys(range(1, 6), attempts) if attempts else [])


# Equal texts are decoded once

GREEDY: Request = {
    "prompt": "Once upon a time",
    "logprobs": 0,
    "sampling": {"temperature": 0, "ignore_eos": True},
}


def used_after(engine: Lines, **request: Any) -> tuple[Answer, int]:
    """An answer, and the number of used cells once it is complete, idle ones included."""
    answer = engine.generate(**GREEDY | request)
    check_idle(engine)
    return answer, engine.ask("status")["cells_used"]


@pytest.mark.parametrize("parallel", ["32", "5"])
def test_equal_sequences_have_one_cell_a_token(bigram: Path, parallel: str) -> None:
    """In waves, too: later sequences are equal to each other, and to idle ones."""
    with Lines("-np", parallel, "-c", "8192", model=bigram) as engine:
        answer, used = used_after(engine, n=12, max_tokens=50)
    assert len(set(map(tuple, answer.ids))) == 1
    assert answer.lengths == [50] * 12
    waves = math.ceil(12 / int(parallel))
    assert used <= answer.start["prompt_tokens"] + waves * 50


def test_sequences_have_their_own_cells_from_their_first_different_token_on(bigram: Path) -> None:
    """A ban splits the sequences into two groups at the third token; one sequence ends before all others."""
    with Lines("-np", "32", "-c", "8192", model=bigram) as engine:
        (whole,) = engine.generate(**GREEDY, n=1, max_tokens=30).ids
        ban = {"logit_bias": [[whole[2], False]]}
        (banned,) = engine.generate(**GREEDY, n=1, max_tokens=30, sequences=[ban]).ids
    with Lines("-np", "32", "-c", "8192", model=bigram) as engine:
        sequences = [{}, ban, {}, ban, {"max_tokens": 2}, {}, ban]
        answer, used = used_after(engine, max_tokens=30, sequences=sequences)
    expected = [banned if "logit_bias" in own else whole[: own.get("max_tokens", 30)] for own in sequences]
    assert answer.ids == expected
    assert used <= answer.start["prompt_tokens"] + 30 + 30


def test_equal_sequences_can_be_cancelled_forked_and_preempted(bigram: Path) -> None:
    with Lines("-np", "32", "-c", "8192", model=bigram) as engine:
        (whole,) = engine.generate(**GREEDY, n=1, max_tokens=60).ids
    held_up = {"logprobs": 20}  # more than a pipe holds, so that both still run when they are extended
    with Lines("-np", "8", "-c", "256", model=bigram) as engine:
        ids = engine.send(
            {"op": "generate", **GREEDY, **held_up, "n": 7, "max_tokens": 60},
            {"op": "generate", **GREEDY, **held_up, "n": 7, "max_tokens": 60, "prompt": "Lily and"},
        )
        for _ in range(30):
            engine.read()
        engine.send_amid({"op": "cancel", "id": ids[0], "index": 0})  # whose cells the others share
        engine.send_amid({"op": "extend", "id": ids[0], "add": 3, "fork": {"index": 2, "at": 1}})
        first, second = engine.answers(ids)
        check_idle(engine)
    assert {tuple(ids) for ids in first.ids[1:7]} == {tuple(whole)}
    assert {tuple(ids) for ids in first.ids[7:]} == {tuple(whole[1:])}
    assert whole[: len(first.ids[0])] == first.ids[0]
    assert len(set(map(tuple, second.ids))) == 1


# Refusals

NOT_COUPLED = (
    'diversity is "arithmetic", which is not possible with {}: its draws depend on more than the text'
)
REFUSED = [
    ({"diversity": "beam"}, 'diversity is "beam"; it must be one of "none", "arithmetic"'),
    ({"diversity": 1}, 'diversity is 1; it must be one of "none", "arithmetic"'),
    ({"first_token": "all"}, 'first_token is "all"; it must be one of "any", "distinct"'),
    ({"dedupe": True}, 'dedupe is true; it must be one of "mark", "again"'),
    ({"sum_logprobs": 1}, "sum_logprobs is 1; it must be true or false"),
    (
        {"diversity": "arithmetic", "sampling": {"mirostat": 2}},
        NOT_COUPLED.format("mirostat"),
    ),
    (
        {"diversity": "arithmetic", "sampling": {"samplers": ["adaptive_p"]}},
        NOT_COUPLED.format("adaptive_p"),
    ),
    (
        {"first_token": "distinct", "sequences": [{"temperature": 1}]},
        "first_token couples sequences whose settings are the same; sequences has temperature",
    ),
]


@each_row(("fields", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_contradicting_fields_are_refused(engine: Lines, fields: Request, message: str) -> None:
    answer = engine.generate(prompt="Once", **fields)
    assert answer.events[-1]["message"] == message
    assert answer.events[-1]["param"] == next(iter(fields))
