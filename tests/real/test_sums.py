"""The model that adds (models/sums.gguf) is that of its card, and a vote of its texts beats one of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import pytest

from models.train.sums import held_out
from tests.support.places import ROOT
from tests.support.serving import Server, serving

MODEL, CARD = ROOT / "models/sums.gguf", ROOT / "models/README.md"
PLAIN = {"temperature": 1.0, "top_k": 0, "top_p": 1, "min_p": 0, "diversity": "none", "stream": False}


@pytest.fixture(scope="module")
def adder() -> Iterator[Server]:
    with serving("--model", str(MODEL), "--ctx", "8192", "--parallel", "16", "--", "-t", "1") as server:
        yield server


def test_the_file_is_that_of_the_card() -> None:
    found = re.search(r"sums sha256 \| ([0-9a-f]{64})", CARD.read_text(encoding="utf-8"))
    assert found
    assert hashlib.sha256(MODEL.read_bytes()).hexdigest() == found[1]
    assert MODEL.stat().st_size < 300_000


def test_the_vote_of_sixteen_is_right_far_more_often_than_one_text(adder: Server) -> None:
    votes, texts = [], []
    for seed, (question, right) in enumerate(held_out(30, seed=9)):
        body = PLAIN | {"prompt": question, "n": 16, "max_tokens": 96, "seed": 100 * seed}
        status, answer = adder.json(
            "POST", "/v1/completions", body | {"rank_by": {"vote": {"regex": r"so (\d+)$"}}}
        )
        assert status == 200, answer
        votes.append(answer["votes"][0]["answer"] == right)
        texts += [choice["text"].endswith(f"so {right}") for choice in answer["choices"]]
    assert 0.3 < sum(texts) / len(texts) < 0.7
    assert sum(votes) / len(votes) > 0.75
