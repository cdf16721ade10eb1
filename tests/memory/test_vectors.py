"""The search in the matrix: exact, by owner, after removals; and usearch finds nearly the same."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from llama_srb.memory.stores.vectors import FIRST, Rows, normalised

Matrix = np.ndarray[Any, np.dtype[np.float32]]
WIDTH = 32


def drawn(n: int, seed: int = 1) -> Matrix:
    """Vectors in clusters, as those of texts are."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((50, WIDTH))
    made = centres[random.integers(0, 50, n)] + 0.5 * random.standard_normal((n, WIDTH))
    result: Matrix = normalised(made.tolist(), WIDTH)
    return result


def filled(vectors: Matrix, ann_rows: int = 10**6, owners: int = 1, batch: int = 700) -> Rows:
    """Chunk i is of text i // 3 and of owner i // 3 % owners."""
    rows = Rows(WIDTH, ann_rows)
    for first in range(0, len(vectors), batch):
        numbers = np.arange(first, min(first + batch, len(vectors)))
        names = [f"k{text % owners}" for text in numbers // 3]
        rows.add(vectors[numbers], numbers, numbers // 3, names)
    return rows


def best(rows: Rows, query: Matrix, k: int, owners: frozenset[str] | None = None) -> list[int]:
    return [chunk for chunk, _, _ in islice(rows.ranked(query, owners, k), k)]


def expected(vectors: Matrix, query: Matrix, k: int, mask: Any = True) -> list[int]:
    scores = np.where(mask, vectors @ query, -2)
    return [int(i) for i in np.argsort(-scores, kind="stable")[:k] if scores[i] > -2]


@pytest.mark.parametrize("k", [1, 5, FIRST + 10, 5000])
def test_an_exact_search_finds_the_nearest_in_order(k: int) -> None:
    vectors, queries = drawn(3000), drawn(5, seed=2)
    rows = filled(vectors)
    for query in queries:
        assert best(rows, query, k) == expected(vectors, query, k)


def test_scores_are_cosines() -> None:
    rows = filled(drawn(100))
    query = drawn(1, seed=2)[0]
    for chunk, text, score in rows.ranked(query, None, 5):
        assert text == chunk // 3
        assert score == pytest.approx(float(drawn(100)[chunk] @ query), abs=1e-5)
        assert score <= 1


@pytest.mark.parametrize("ann_rows", [100, 10**6])
def test_only_rows_of_the_owners_are_found(ann_rows: int) -> None:
    vectors, query = drawn(3000), drawn(1, seed=2)[0]
    rows = filled(vectors, ann_rows, owners=10)
    mask = np.arange(3000) // 3 % 10 < 2
    assert best(rows, query, 1000, frozenset({"k0", "k1", "nobody"})) == expected(vectors, query, 1000, mask)
    assert best(rows, query, 5, frozenset({"nobody"})) == []


@pytest.mark.parametrize("ann_rows", [100, 10**6])
def test_removed_rows_are_not_found_and_new_ones_are(ann_rows: int) -> None:
    vectors, query = drawn(3000), drawn(1, seed=2)[0]
    rows = filled(vectors, ann_rows)
    mask = np.ones(3000, bool)
    for part in range(4):  # the matrix is written anew on the way
        mask[np.arange(3000) // 3 % 5 == part] = False
        rows.remove_all_but(np.unique(np.flatnonzero(mask) // 3))
        assert len(rows) == mask.sum()
        assert best(rows, query, 10**4) == expected(vectors, query, 10**4, mask)
    rows.add(query[None], [9000], [3000], ["k0"])
    assert best(rows, query, 1) == [9000]


def test_usearch_finds_nearly_what_an_exact_search_finds() -> None:
    vectors, queries = drawn(20_000), drawn(100, seed=2)
    exact, approximate = filled(vectors), filled(vectors, ann_rows=1000)
    hits = sum(len({*best(exact, query, 10)} & {*best(approximate, query, 10)}) for query in queries)
    assert hits / (10 * len(queries)) >= 0.98


def test_an_approximate_search_goes_on_as_long_as_it_is_asked() -> None:
    vectors, query = drawn(3000), drawn(1, seed=2)[0]
    found = best(filled(vectors, ann_rows=100), query, 3000)
    assert sorted(found) == list(range(3000))


@pytest.mark.parametrize(
    ("vectors", "says"),
    [([[1.0] * 3], "a vector has 3 numbers; this memory's have 32"), ([[0.0] * WIDTH], "has no length"),
     ([[float("nan")] * WIDTH], "not finite")],
)  # fmt: skip
def test_vectors_that_cannot_be_compared_are_an_error(vectors: list[list[float]], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        normalised(vectors, WIDTH)
