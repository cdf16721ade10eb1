"""The benchmark of recall: its questions are right, and its figures are above what chance finds."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial

from benchmarks.recall.rules import plain
from benchmarks.recall.run import approximate, figures, filled, near_chunks, questions
from benchmarks.recall.sources import texts
from llama_srb.memory.records import NO_MODEL


def test_each_question_has_a_passage_that_is_once_in_its_text() -> None:
    some = texts()
    asked, known = questions(some), {one.name: plain(one.text) for one in some}
    assert len({one.question for one in asked}) == len(asked)
    assert [one for one in asked if known[one.text].count(plain(one.passage)) != 1] == []
    by_hand = [one for one in asked if one.kind == "paraphrase"]
    assert len(by_hand) >= 90
    assert [one for one in by_hand if re.sub(r"\W+$", "", one.question) == one.question] == []
    assert {one.text for one in by_hand} == {one.name for one in some if one.kind == "own"}
    by_rule = Counter(one.kind for one in asked)  # of the project's docs alone, where nothing else is there
    assert min(by_rule[kind] for kind in ("exact", "heading", "typos", "inflection", "long")) >= 15


async def test_words_find_most_and_usearch_is_measured() -> None:
    some = [one for one in texts() if one.kind in ("own", "docs")]
    asked = questions(some)
    async with filled(NO_MODEL, 200, some) as memory:
        found = await figures(partial(memory.search, k=10, by="words"), asked)
    assert found.hit(5) >= 0.6
    assert found.hit(5, "exact") >= 0.7
    assert found.hit(1) <= found.mrr <= found.hit(10)
    parts = [one.text[i : i + 500] for one in some if one.language == "en" for i in range(0, 2000, 500)]
    assert approximate(await near_chunks(parts, 5000)) >= 0.98
