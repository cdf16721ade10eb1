"""Scores of given texts equal llama.cpp's logprobs of the same tokens, however their cells were computed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.real.test_laws import check_idle
from tests.reference.results import Reference
from tests.support.lines import Answer, Event, Lines
from tests.support.models import KINDS, write_model
from tests.support.rows import each_row
from tests.support.serving import serving

KV = ("-fa", "off", "-ctk", "f32", "-ctv", "f32", "-t", "1")
BOUND = 1e-3  # |Δlogprob|; measured: 1.4e-4. One misplaced token makes a difference of at least 0.3
ROOMY = (*KV, "-c", "4096", "-np", "8")
TINY = (*KV, "-c", "256", "-np", "8")  # so small that texts are preempted
OPENING = "Once upon a time, there was a little"
ENDINGS = [
    " girl named Lily. She liked to play in the park with her dog.",
    " dog",
    " boy who saw a big cat, and the cat was very sad. " * 3,
    "st bird",  # the end of " little" and "st" are one token
    "!",
]


def scores(answer: Answer) -> list[Event]:
    """The scores, ordered by index; each comes once, and its sum fits its tokens."""
    found = sorted(answer.named("score"), key=lambda score: score["index"])
    assert [score["index"] for score in found] == list(range(answer.done["count"]))
    for score in found:
        known = [token["logprob"] for token in score["tokens"] if token["logprob"] is not None]
        assert score["count"] == len(known)
        assert math.isclose(score["logprob"], sum(known), rel_tol=1e-4, abs_tol=1e-4)
    return found


def score(engine: Lines, **fields: Any) -> list[Event]:
    (answer,) = engine.answers(engine.send({"op": "score"} | fields))
    return scores(answer)


def values(score: Event) -> list[float]:
    return [token["logprob"] for token in score["tokens"]]


def tokens_of(engine: Lines, text: str) -> list[int]:
    tokens: list[int] = engine.ask("tokenize", text=text, add_special=True)["tokens"]
    return tokens


@pytest.fixture(scope="module")
def engine(plain: Path) -> Iterator[Lines]:
    with Lines(*ROOMY, model=plain) as engine:
        yield engine
        check_idle(engine)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(tmp_path_factory.mktemp("reference"), *KV[:-2])


def check(reference: Reference, before: list[int], score: Event) -> None:
    """The scored tokens follow these tokens, and have the reference's logprobs."""
    ids = [token["id"] for token in score["tokens"]]
    rows = reference.logprobs(before + ids)[len(before) - 1 : -1]
    assert np.abs(rows[range(len(ids)), ids] - values(score)).max() <= BOUND
    assert score["greedy"] == bool((rows.argmax(axis=1) == ids).all())


def test_texts_after_a_prompt_have_the_references_logprobs(engine: Lines, reference: Reference) -> None:
    for text, one in zip(ENDINGS, score(engine, prompt=OPENING, texts=ENDINGS), strict=True):
        whole = tokens_of(engine, OPENING + text)
        n = len(one["tokens"])
        assert whole[-n:] == [token["id"] for token in one["tokens"]]
        check(reference, whole[:-n], one)


def test_a_token_that_begins_in_the_prompt_belongs_to_the_text(engine: Lines) -> None:
    (one,) = score(engine, prompt="Once upon a t", texts=["ime"])
    assert [token["text"] for token in one["tokens"]] == [" time"]


def test_without_a_prompt_the_whole_text_is_scored(engine: Lines, reference: Reference) -> None:
    (one,) = score(engine, texts=[OPENING])
    assert "".join(token["text"] for token in one["tokens"]) == OPENING
    check(reference, tokens_of(engine, OPENING)[:1], one)


def test_token_ids_are_scored_as_they_are(engine: Lines, reference: Reference) -> None:
    before, (first, second) = [0, 300, 417, 300], ([500, 500, 17], [9])
    for ids, one in zip((first, second), score(engine, tokens=before, texts=[first, second]), strict=True):
        assert [token["id"] for token in one["tokens"]] == ids
        check(reference, before, one)


def test_alternatives_are_the_likeliest_best_first(engine: Lines, reference: Reference) -> None:
    (one,) = score(engine, prompt=OPENING, texts=[" girl"], logprobs=5)
    row = reference.logprobs(tokens_of(engine, OPENING))[-1]
    assert [other["id"] for other in one["tokens"][0]["top"]] == np.argsort(-row)[:5].tolist()


@pytest.mark.parametrize("flags", [ROOMY, TINY, (*ROOMY, "-ub", "64")], ids=["roomy", "tiny", "small steps"])
def test_many_texts_at_once_and_during_generation_have_the_same_scores(
    plain: Path, engine: Lines, flags: tuple[str, ...]
) -> None:
    texts = [text * (1 + i % 2) for i in range(4) for text in ENDINGS]
    alone = [values(score(engine, prompt=OPENING, texts=[text])[0]) for text in texts]
    with Lines(*flags, model=plain) as crowded:
        generation = {"op": "generate", "prompt": OPENING, "n": 6, "max_tokens": 60, "min_tokens": 60}
        scoring = {"op": "score", "prompt": OPENING, "texts": texts}
        answers = crowded.answers(crowded.send(generation, scoring, scoring))
        assert answers[0].lengths == [60] * 6
        for answer in answers[1:]:
            for one, expected in zip(scores(answer), alone, strict=True):
                assert np.abs(np.array(values(one)) - expected).max() <= BOUND
        check_idle(crowded)


def test_streams_go_on_while_a_long_text_is_scored(engine: Lines) -> None:
    """In one batch the text would take one step; in chunks of 64 tokens it takes ten."""
    generation, scoring = engine.send(
        {"op": "generate", "prompt": OPENING, "max_tokens": 200, "min_tokens": 200},
        {"op": "score", "texts": [(OPENING + " dog. ") * 60]},
    )
    story, scored = engine.answers([generation, scoring])
    (one,) = scored.named("score")
    began = scored.start["line"]
    assert len(one["tokens"]) > 500
    assert sum(began < event["line"] < one["line"] for event in story.named("stream")) >= 8


def test_a_prompt_is_computed_once_for_all_texts_and_kept(engine: Lines) -> None:
    prompt = OPENING + " bird who could not sing. " * 8
    answers = [
        engine.answers(engine.send({"op": "score", "prompt": prompt, "texts": [" a", " b", " c"]}))[0]
        for _ in range(2)
    ]
    sizes = [(a.done["prompt_tokens"], a.done["cached_tokens"], a.done["completion_tokens"]) for a in answers]
    n = len(tokens_of(engine, prompt))
    assert sizes[0][0] == n
    assert sizes[1][1] == n
    assert values(scores(answers[0])[1]) == pytest.approx(values(scores(answers[1])[1]), abs=BOUND)


def test_a_cancelled_score_ends_and_leaves_no_cells(engine: Lines) -> None:
    (id,) = engine.send({"op": "score", "texts": [OPENING * 60] * 8})
    engine.send({"op": "cancel", "id": id})
    (answer,) = engine.answers([id])
    assert {stop["finish_reason"] for stop in answer.named("stop")} <= {"cancelled"}
    assert (
        len(answer.named("stop")) + len(answer.named("score")) == answer.done["count"]
    )  # 0: it was cancelled before it was read


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_model_has_the_same_scores_as_echo(tmp_path: Path, kind: str) -> None:
    write_model(tmp_path / "model.gguf", kind)
    with Lines(*ROOMY, model=tmp_path / "model.gguf") as engine:
        first, *others = score(engine, prompt=OPENING, texts=[ENDINGS[0], ENDINGS[2], ENDINGS[0]])
        echoed = engine.generate(prompt=OPENING + ENDINGS[0], echo=True, logprobs=0, max_tokens=0)
        known = [token["logprob"] for event in echoed.named("prompt") for token in event.get("tokens", [])]
        assert values(first) == pytest.approx(known[-len(first["tokens"]) :], abs=BOUND)
        assert values(others[1]) == pytest.approx(values(first), abs=BOUND)
        check_idle(engine)


def test_without_a_begin_token_the_first_token_has_no_logprob(tmp_path: Path) -> None:
    write_model(tmp_path / "model.gguf", "qwen3", written_as_ids=True)
    with Lines(*ROOMY, model=tmp_path / "model.gguf") as engine:
        (answer,) = engine.answers(engine.send({"op": "score", "texts": ["<7>", "<7><8><9>", "<1><2>"]}))
        assert [start["cached_tokens"] for start in answer.named("start")] == [0]
        short, long, pair = scores(answer)
        assert (values(short), short["count"]) == ([None], 0)
        assert (values(long)[0], long["count"]) == (None, 2)
        (after,) = score(engine, tokens=[7], texts=[[8, 9]])
        assert values(long)[1:] == pytest.approx(values(after), abs=BOUND)
        assert values(pair)[1] == pytest.approx(
            values(score(engine, tokens=[1], texts=[[2]])[0])[0], abs=BOUND
        )


def test_echo_reports_each_token_once_despite_preemption_and_cached_tokens(plain: Path) -> None:
    prompts = [OPENING + ENDINGS[2] + f" {name} was there." for name in ("Tom", "Sue", "Lily", "Ben")]
    with Lines(*ROOMY, model=plain) as engine:
        known = [echo(engine, prompt) for prompt in prompts for _ in range(2)]
    with Lines(*TINY, model=plain) as engine:
        requests = [{"prompt": prompt, "echo": True, "logprobs": 0, "max_tokens": 40} for prompt in prompts]
        for i, answer in enumerate(engine.generate_all(*requests)):
            told = [token for event in answer.named("prompt") for token in event.get("tokens", [])]
            for expected in known[2 * i : 2 * i + 2]:
                assert [t["id"] for t in told] == [t["id"] for t in expected]
                assert [t["logprob"] for t in told] == pytest.approx(
                    [t["logprob"] for t in expected], abs=BOUND
                )


def echo(engine: Lines, prompt: str) -> list[Event]:
    answer = engine.generate(prompt=prompt, echo=True, logprobs=0, max_tokens=0)
    return [token for event in answer.named("prompt") for token in event.get("tokens", [])]


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {  # fields, param, part of the message
    "no texts": ({}, "texts", "texts is missing"),
    "none": ({"texts": []}, "texts", "texts has 0 entries; 1 to 1024 are allowed"),
    "an empty one": ({"texts": ["a", ""]}, "texts", "texts[1] is empty"),
    "a number": ({"texts": [7]}, "texts", "number"),
    "no token": ({"texts": ["a", [99999]]}, "texts", "99999"),
    "no token in the prompt": ({"texts": [[5]], "tokens": [99999]}, "tokens", "99999"),
    "too long": ({"texts": ["a", "dog " * 1100]}, "texts", "texts[1] has"),
    "two prompts": ({"texts": ["a"], "prompt": "x", "tokens": [1]}, "prompt", "only one"),
    "sampling": ({"texts": ["a"], "sampling": {}}, "sampling", "no field"),
}


@each_row(("fields", "param", "message"), WRONG.values(), ids=WRONG)
def test_invalid_scores_are_refused(engine: Lines, fields: dict[str, Any], param: str, message: str) -> None:
    error = engine.ask("score", **fields)
    assert (error["event"], error["param"]) == ("error", param)
    assert message in error["message"]


def test_a_score_cannot_be_extended(engine: Lines) -> None:
    score = {"op": "score", "id": "whole", "texts": [OPENING * 60] * 4}
    engine.send(score, {"op": "extend", "id": "whole"})
    while (event := engine.read())["event"] != "error":
        assert event["event"] != "done"
    assert "extend" in event["message"]
    engine.answers(["whole"])


# Over HTTP


def test_the_route_answers_sum_mean_perplexity_and_tokens() -> None:
    with serving() as server:
        status, answer = server.json("POST", "/v1/score", {"prompt": OPENING, "texts": ENDINGS[:2]})
        assert status == 200
        assert [one["index"] for one in answer["data"]] == [0, 1]
        for one in answer["data"]:
            known = [token["logprob"] for token in one["tokens"]]
            assert one["count"] == len(known)
            assert one["sum"] == pytest.approx(sum(known), rel=1e-4)
            assert one["mean"] == pytest.approx(one["sum"] / one["count"])
            assert one["perplexity"] == pytest.approx(math.exp(-one["mean"]))
        status, single = server.json("POST", "/v1/score", {"prompt": OPENING, "texts": ENDINGS[0], "cach": 1})
        assert status == 200
        assert single["data"][0]["sum"] == pytest.approx(answer["data"][0]["sum"], abs=0.2)
        assert "cache" in single["warnings"][0]
        for body, param in (
            ({"texts": [""]}, "texts"),
            ({"prompt": "x"}, "texts"),
            ({"texts": [1.5]}, "texts[0]"),
        ):
            status, refused = server.json("POST", "/v1/score", body)
            assert (status, refused["error"]["param"]) == (400, param), json.dumps(refused)
