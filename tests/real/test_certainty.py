"""How certain the model is: equal to NumPy by all rows of a small vocabulary, and a sign of sound text."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.lines import Event, Lines
from tests.support.models import N_VOCAB, write_model
from tests.support.places import ROOT
from tests.support.serving import Server

HELD_OUT = ROOT.parent / "shared" / "corpus" / "tinystories_heldout_val.txt"
END = "<|endoftext|>"
PADDING = [5, 6, 300, 510, 511]
ALL = 1000  # alternatives: more than there are tokens
BOUND = 1e-4


@pytest.fixture(scope="module", params=[[], PADDING], ids=["plain", "padding"])
def padding(request: pytest.FixtureRequest) -> list[int]:
    tokens: list[int] = request.param
    return tokens


@pytest.fixture(scope="module")
def engine(padding: list[int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lines]:
    path = tmp_path_factory.mktemp("certainty") / "model.gguf"
    write_model(path, "llama", padding=padding)
    with Lines("-c", "2048", "-np", "8", model=path) as lines:
        yield lines


def by_numpy(tokens: list[Event], padding: list[int]) -> float:
    """The mean of KL(uniform || row) over these tokens, without the padding of the vocabulary."""
    means = []
    for token in tokens:
        row = {one["id"]: one["logprob"] for one in token["top"]}
        assert len(row) == N_VOCAB
        real = np.array([row[i] for i in range(N_VOCAB) if i not in padding])
        log_p = real - np.log(np.exp(real).sum())
        means.append(-np.log(len(real)) - log_p.mean())
    return float(np.mean(means))


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "samplers": {"sampling": {"top_k": 3, "min_p": 0.3, "repeat_penalty": 1.5, "temperature": 2.0}},
    "biases": {"sampling": {"logit_bias": [[17, 50.0], [18, False], [" the", 3.0]]}},
    "grammar": {"grammar": "root ::= [a-e ]+"},
    "whole rows": {"sampling": {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}},
    "equal texts": {"sampling": {"temperature": 0.0}},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_it_is_that_of_numpy_whatever_is_drawn(engine: Lines, padding: list[int], name: str) -> None:
    fields = {"prompt": "The cat", "n": 4, "max_tokens": 20, "logprobs": ALL, "certainty": True}
    fields |= SETTINGS[name]
    fields["sampling"] = {"seed": 7, "ignore_eos": True, **fields.get("sampling", {})}
    (answer,) = engine.answers(engine.send({"op": "generate"} | fields))
    for stop, tokens in zip(answer.stops, answer.tokens, strict=True):
        assert len(tokens) == 20
        assert stop["certainty"] == pytest.approx(by_numpy(tokens, padding), abs=BOUND)


def test_that_of_a_score_is_of_given_tokens(engine: Lines, padding: list[int]) -> None:
    fields = {"prompt": "The", "texts": [" cat sat on a mat", " xyz"], "logprobs": ALL, "certainty": True}
    (answer,) = engine.answers(engine.send({"op": "score"} | fields))
    for score in answer.named("score"):
        assert score["certainty"] == pytest.approx(by_numpy(score["tokens"], padding), abs=BOUND)


def test_it_is_told_only_to_those_who_ask(engine: Lines) -> None:
    (answer,) = engine.answers(engine.send({"op": "generate", "prompt": "The", "max_tokens": 2}))
    assert all("certainty" not in event for event in answer.named("stop"))
    (answer,) = engine.answers(engine.send({"op": "score", "prompt": "The", "texts": [" cat"]}))
    assert all("certainty" not in event for event in answer.named("score"))


# Over HTTP


def stories(server: Server, n: int) -> list[str]:
    """Held-out stories; without the corpus, texts that the model writes itself."""
    if HELD_OUT.exists():
        found = [" ".join(story.split()) for story in HELD_OUT.read_text().split(END)]
        return [story for story in found if len(story.split()) > 100][:n]
    body = {"prompt": "Once upon a time,", "n": 25, "max_tokens": 180, "stream": False}
    made: list[str] = []
    for seed in range(0, 500, 25):
        status, answer = server.json("POST", "/v1/completions", {**body, "seed": seed})
        assert status == 200, answer
        texts = (" ".join(choice["text"].split()) for choice in answer["choices"])
        made += [body["prompt"] + " " + text for text in texts if len(text.split()) > 100]
    return made[:n]


def certainties(server: Server, prompt: str, texts: list[str]) -> list[float]:
    body = {"prompt": prompt, "texts": texts, "certainty": True}
    status, answer = server.json("POST", "/v1/score", body)
    assert status == 200, answer
    return [one["certainty"] for one in answer["data"]]


def test_the_true_end_of_a_story_beats_its_own_shuffled_words(server: Server) -> None:
    dice, beaten = random.Random(5), 0
    told = stories(server, 200)
    for story in told:
        words = story.split()
        end = words[40:100]
        shuffled = dice.sample(end, len(end))
        true, false = certainties(server, " ".join(words[:40]), [" " + " ".join(w) for w in (end, shuffled)])
        beaten += true > false
    assert len(told) == 200
    assert beaten >= 190


def test_ranked_by_certainty_the_surest_text_is_first(server: Server) -> None:
    body = {"prompt": "Once upon a time", "n": 8, "max_tokens": 20, "rank_by": "certainty", "seed": 4}
    status, answer = server.json("POST", "/v1/completions", {**body, "stream": False})
    assert status == 200, answer
    found = [choice["scores"]["certainty"] for choice in answer["choices"]]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) > 1


def test_a_score_has_it_only_on_wish(server: Server) -> None:
    status, answer = server.json("POST", "/v1/score", {"prompt": "The", "texts": [" cat"]})
    assert status == 200
    assert "certainty" not in answer["data"][0]
    status, answer = server.json("POST", "/v1/score", {"texts": ["a"], "certainty": 1})
    assert (status, answer["error"]["param"]) == (400, "certainty")
