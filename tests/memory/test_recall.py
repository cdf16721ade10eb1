"""The benchmark of recall: its questions are right, and it runs with the real engine."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.recall.run import (
    Bm25,
    approximate,
    by_vectors,
    chunks,
    near_chunks,
    plain,
    questions,
    shares,
    texts,
)
from llama_srb import bundled
from llama_srb.memory.records import Chunking


def test_each_question_has_a_passage_that_is_once_in_its_text() -> None:
    asked, known = questions(), {name: plain(text) for name, text in texts().items()}
    assert len(asked) >= 60
    assert len({one.question for one in asked}) == len(asked)
    assert {one.text for one in asked} == known.keys()
    assert [one for one in asked if known[one.text].count(plain(one.passage)) != 1] == []
    assert [one for one in asked if re.sub(r"\W+$", "", one.question) == one.question] == []


async def test_lexical_search_vectors_and_usearch_are_measured(tmp_path: Path) -> None:
    divided = await chunks(Chunking(200, 40))
    asked, lexical = questions(), Bm25(divided)
    found = shares({one: lexical.best(one.question, 5) for one in asked})
    assert found[5] >= 0.5
    chance = 5 / len(divided)
    assert (await by_vectors(bundled.model(), divided, tmp_path))[5] > chance
    assert approximate(await near_chunks(divided, 5000)) >= 0.98
