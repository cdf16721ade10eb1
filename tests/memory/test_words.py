"""The words of a text, and BM25 over them: exact, of what a reader sees alone, after removals and merges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from llama_srb.memory.stores import Query
from llama_srb.memory.stores.fusion import fused
from llama_srb.memory.stores.postings import K1, B, Postings
from llama_srb.memory.stores.search import Ended
from llama_srb.memory.stores.vectors import Rows
from llama_srb.memory.words import (
    MOST_ASKED,
    asked,
    count_words,
    hash_of,
    highlights,
    last_words,
    packed,
    terms_of,
    unpacked,
)
from tests.support.rows import each_row


def terms(text: str) -> set[int]:
    return set(terms_of(text))


FINDS = {  # a query finds a text by at least one word
    "a name": ("Varnholm", "the road to Varnholm.", True),
    "a number": ("order 4711", "Order #4711 was sent", True),
    "a code": ("E1042", "error E1042: no disk", True),
    "an option": ("step timeout", "--step-timeout SECONDS", True),
    "a name in another style": ("LlamaContext", "llama_context(…)", True),
    "a part of a name": ("context", "llama_context", True),
    "a plural": ("lighthouse", "two lighthouses", True),
    "a form of a verb": ("running", "she runs", True),
    "a doubled letter": ("stop", "it stopped", True),
    "a German plural": ("Haus", "viele Häuser", True),
    "an umlaut that was not typed": ("uber", "Über den Fluss", True),
    "a part of a long path": ("quokka", f"/opt/{'x' * 40}/lib/{'y' * 20}/quokka_loader.py", True),
    "two characters of Chinese": ("灯塔", "他守着那座灯塔已经四十二年", True),
    "one character of Chinese": ("灯", "自动灯停了", True),
    "other Chinese": ("雾岛", "那座灯塔", False),
    "an option as it is typed": ("--drain", "pass --drain=5", True),
    "Japanese beside Latin": ("サーバー", "aiohttpサーバーを起動", True),
    "accents that stand alone": ("r\u00e9sum\u00e9", "un re\u0301sume\u0301", True),
    "accents that stand alone, asked for": ("nai\u0308ve", "a na\u00efve fox", True),
    "letters of an Indic word": (
        "\u0939\u093f\u0928\u094d\u0926\u0940",
        "\u0939\u0948 \u0928 \u0926\u0947",
        False,
    ),
    "an Indic word": (
        "\u0939\u093f\u0928\u094d\u0926\u0940",
        "\u0935\u0939 \u0939\u093f\u0928\u094d\u0926\u0940 \u0939\u0948",
        True,
    ),
    "Korean with another particle": ("고양이", "지붕 위에 고양이가 앉아 있다", True),
    "other Korean": ("고양이", "강아지가 뛴다", False),
    "Thai": ("แมว", "บ้านมีแมวตัวหนึ่ง", True),
    "an emoji": ("🦊", "I saw a fox🦊.", True),
    "an emoji of another skin": ("👍", "good 👍🏽!", True),
    "another emoji": ("🦊", "🐺", False),
    "the beginning of a long word": ("q" * 100 + "x", "q" * 100 + "y", False),
    "another word": ("ship", "a shape", False),
}


@each_row(("query", "text", "is_found"), FINDS.values(), ids=FINDS)
def test_a_query_finds_what_says_the_same_in_another_form(query: str, text: str, is_found: bool) -> None:
    assert bool({one.term for one in asked(query)} & terms(text)) is is_found


def test_packed_words_are_those_of_the_text() -> None:
    text = "The cat saw the cats. " * 40
    found, counts = unpacked(packed(text))
    expected = Counter(terms_of(text))
    assert dict(zip(found, counts, strict=True)) == {term: min(count, 63) for term, count in expected.items()}
    assert found == sorted(found)
    assert packed(" … ") == b""


def test_a_query_has_a_bound_and_long_tokens_cost_little() -> None:
    assert len(asked(" ".join(f"w{i}x" for i in range(5000)))) == MOST_ASKED
    assert len(asked("a" * 60_000)) == 1
    assert len(asked("灯塔" * 30_000)) == 4
    assert len(terms("\ud800 lone")) == 2


HIGHLIGHTS = {
    "lighthouse": ("Two Lighthouses shine.", ["Lighthouses"]),
    "step timeout": ("With --step-timeout 5", ["step", "timeout"]),
    "LlamaContext": ("a llama_context here", ["llama_context"]),
    "灯塔": ("那座灯塔亮了", ["灯塔"]),
    "E1042": ("error E1042: full", ["E1042"]),
    "ship": ("no cat", []),
    "Python": ("使用Python和GPT4模型", ["Python"]),
    "GPT4": ("使用Python和GPT4模型", ["GPT4"]),
    "第2章": ("第2章講BM25算法", ["第2章"]),
    "don't 方法": ("使用Python的方法", ["方法"]),
    "データ": ("データベースはタワー", ["データ"]),
    "算": ("BM25算法", ["算"]),
    "서울 🦊": ("서울에서 🦊 보다", ["서울에서", "🦊"]),
}


@each_row(("query", "text", "expected"), [(query, *row) for query, row in HIGHLIGHTS.items()], ids=HIGHLIGHTS)
def test_highlights_are_where_the_words_are(query: str, text: str, expected: list[str]) -> None:
    assert [text[start:end] for start, end in highlights(text, asked(query))] == expected


def test_words_are_the_tokens_of_a_memory_without_a_model() -> None:
    assert count_words(["Hello, world.", "灯塔 x", ""]) == [4, 3, 0]
    assert last_words("one two, three", 2) == ", three"
    assert last_words("one", 5) == "one"


# ----------------------------------------------------------------------------------------------------
# BM25
# ----------------------------------------------------------------------------------------------------

VOCABULARY = [f"w{number}z" for number in range(300)]


def drawn(n: int, seed: int = 1) -> list[str]:
    random = np.random.default_rng(seed)
    return [
        " ".join(VOCABULARY[int(one)] for one in random.zipf(1.3, int(random.integers(3, 60))) % 300)
        for _ in range(n)
    ]


def reference(texts: Sequence[str], query: str) -> list[float]:
    """BM25 as the papers write it."""
    counts = [Counter(terms_of(text)) for text in texts]
    mean = sum(map(Counter.total, counts)) / len(texts)
    scores = [0.0] * len(texts)
    for one in asked(query):
        having = sum(one.term in some for some in counts)
        idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for i, some in enumerate(counts):
            tf, norm = some[one.term], K1 * (1 - B + B * some.total() / mean)
            scores[i] += one.times * idf * tf * (K1 + 1) / (tf + norm)
    return scores


def scores(postings: Postings, query: str, mask: Any) -> list[float]:
    found, _ = postings.scores(asked(query), np.asarray(mask, bool), lambda: None)
    return list(map(float, found))


def filled(texts: Sequence[str], batch: int = 17) -> Postings:
    """Searched after each batch, so that there are segments to merge."""
    postings = Postings()
    for first in range(0, len(texts), batch):
        postings.add(first, [packed(text) for text in texts[first : first + batch]])
        postings.scores(asked("w1z"), np.ones(min(first + batch, len(texts)), bool), lambda: None)
    return postings


@pytest.mark.parametrize("batch", [1, 17, 500])
def test_scores_are_those_of_bm25(batch: int) -> None:
    texts = drawn(500)
    postings = filled(texts, batch)
    for query in ("w1z w2z w7z", "w250z", "w1z w1z nothing"):
        assert scores(postings, query, [True] * 500) == pytest.approx(
            reference(texts, query), rel=1e-4, abs=1e-5
        )


def test_scores_are_those_of_the_rows_that_are_seen_alone() -> None:
    """What others have stored changes neither how rare a word is nor how long texts are."""
    own, others = drawn(200), drawn(300, seed=2)
    mask = [i % 5 < 2 for i in range(500)]
    mixed = [(own if seen else others)[i // 5 * (2 if seen else 3) + (i % 5 if seen else i % 5 - 2)]
             for i, seen in enumerate(mask)]  # fmt: skip
    found = np.array(scores(filled(mixed), "w1z w2z w40z", mask))
    assert found[mask].tolist() == pytest.approx(scores(filled(own), "w1z w2z w40z", [True] * 200), rel=1e-5)
    assert not found[~np.array(mask)].any()


def test_rows_that_are_left_keep_their_scores() -> None:
    texts = drawn(500)
    left = np.array([i for i in range(500) if i % 3])
    postings = filled(texts)
    postings.keep(left)
    kept = [texts[i] for i in left]
    assert scores(postings, "w1z w9z", [True] * len(left)) == pytest.approx(
        reference(kept, "w1z w9z"), rel=1e-4, abs=1e-5
    )


def test_a_misspelt_word_finds_the_nearest_words_that_the_reader_sees() -> None:
    postings = filled(["the lighthouse", "a lighthouse", "the tower", "lightnouse of others"], 2)
    for word in ("lighthuose", "lighthose", "ligthhouse", "lightbouse", "llighthouse"):
        found = scores(postings, word, [True, True, True, False])
        assert [one > 0 for one in found] == [True, True, False, False], word
    assert not any(scores(postings, "light", [True] * 4))


def test_a_search_of_many_words_ends_between_two_of_them() -> None:
    asks, calls = asked(" ".join(VOCABULARY[:50])), list[int]()

    def alive() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise Ended("nobody waits")

    with pytest.raises(Ended):
        filled(drawn(20)).scores(asks, np.ones(20, bool), alive)
    assert len(calls) == 3 < len(asks)


def test_rows_learn_their_words_later() -> None:
    rows = Rows(0)
    texts = ["the cat", "a ship", "a cat and a ship"]
    words = [packed(texts[0]), None, None]
    rows.add(np.empty((3, 0), np.float32), [7, 5, 9], [1, 1, 2], [""] * 3, words)
    find = Query("words", None, asked("ship"))
    assert list(rows.found(find, None, 5, alive=lambda: None)) == []
    assert rows.without_words().tolist() == [5, 9]
    rows.learn([5, 9], [packed(one) for one in texts[1:]])
    assert [one.chunk for one in rows.found(find, None, 5, alive=lambda: None)] == [5, 9]
    assert rows.without_words().tolist() == []


def test_ranks_of_both_orders_are_fused() -> None:
    assert [one for one, _ in fused(iter("abcd"), iter("cxa"), 10)] == ["a", "c", "b", "d", "x"]
    assert [one for one, _ in fused(iter("abcd"), iter("cxa"), 1)][:2] == ["a", "c"]
    assert [one for one, _ in fused(iter(range(300)), iter(range(300)), 7)] == list(range(300))
    assert list(fused(iter(""), iter(""), 5)) == []


def test_hashes_do_not_change() -> None:
    """They are in files."""
    assert [hash_of("lighthouse"), hash_of("灯塔")] == [2342686976, 3428504150]
