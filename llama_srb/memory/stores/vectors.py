"""The chunks of a memory as rows: their vectors in one matrix, their words, and the search in both.

Vectors are searched exactly by NumPy, or approximately by usearch.

A removed row is marked, and the matrix is written anew when half of its rows are removed. One thread at a
time may use it. Scores are always those of the exact vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from ..records import Scores, Vector, extra
from . import ANN_ROWS, Query
from .fusion import fused
from .postings import Postings
from .search import Candidate

FIRST = 1024  # rows that an exact search ranks at first
FIRST_FUSED = 100  # ranks of each order that a hybrid search looks at, at first
CONNECTIVITY, EXPANSION_ADD, EXPANSION_SEARCH = (
    32,
    128,
    256,
)  # of usearch: recall 0.98 and more, see benchmarks


def normalised(vectors: Sequence[Sequence[float]], width: int) -> Vector:
    """Vectors of length 1 as rows of float32; ValueError if one has another width or no length."""
    np = extra("numpy")
    if not width:
        return np.empty((len(vectors), 0), np.float32)
    matrix = np.asarray(vectors, np.float32).reshape(len(vectors), -1)
    if matrix.shape[1] != width:
        raise ValueError(f"a vector has {matrix.shape[1]} numbers; this memory's have {width}")
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        raise ValueError("a vector has no length, or numbers that are not finite")
    return matrix / lengths


class Rows:
    """A row for each chunk: its vector, its words, its number, the number of its text and the owner's.

    The words of a row may be given later: those of an earlier version's chunks are not there at once.
    """

    def __init__(self, width: int, ann_rows: int = ANN_ROWS) -> None:
        self._np = extra("numpy")
        self._ann_rows = ann_rows
        self.width = width
        self._owners: dict[str, int] = {}
        self._n = self._n_removed = 0
        self._matrix = self._np.empty((0, width), self._np.float32)
        self._numbers = self._np.empty(
            (4, 0), self._np.int64
        )  # of chunks, texts (-1: removed), owners; has words
        self._postings = Postings()
        self._index: Any = None

    def __len__(self) -> int:
        return self._n - self._n_removed

    def add(
        self, vectors: Vector, chunks: Vector, texts: Vector, owners: Sequence[str],
        words: Sequence[bytes | None] = (),
    ) -> None:  # fmt: skip
        """Adds rows. vectors: n rows of float32; the others have n items. words: packed; None: come later."""
        first, last = self._n, self._n + len(vectors)
        self._reserve(last)
        self._matrix[first:last] = vectors
        codes = [self._owners.setdefault(owner, len(self._owners)) for owner in owners]
        self._numbers[:3, first:last] = (chunks, texts, codes)
        self._numbers[3, first:last] = [one is not None for one in words] if words else 0
        self._postings.add(first, words or [None] * len(vectors))
        self._n = last
        self._extend_index(first)

    def remove_all_but(self, texts: Vector) -> None:
        """Removes the rows of all texts but these."""
        used = self._numbers[1, : self._n]
        gone = self._np.flatnonzero((used >= 0) & ~self._np.isin(used, texts))
        self._numbers[1, gone] = -1
        self._n_removed += len(gone)
        if self._index is not None and len(gone):
            self._index.remove(gone)
        if self._n_removed * 2 > self._n:
            self._compact()

    def without_words(self) -> Vector:
        """The numbers of the chunks whose words are not known yet, in order."""
        numbers = self._numbers[:, : self._n]
        return self._np.sort(numbers[0, (numbers[3] == 0) & (numbers[1] >= 0)])

    def learn(self, chunks: Vector, words: Sequence[bytes]) -> None:
        """Takes the packed words of chunks that have none."""
        np = self._np
        order = np.argsort(self._numbers[0, : self._n], kind="stable")
        rows = order[np.searchsorted(self._numbers[0, : self._n], chunks, sorter=order)]
        self._postings.put(rows.tolist(), words)
        self._numbers[3, rows] = 1

    def found(
        self, query: Query, owners: frozenset[str] | None, k: int, texts: Vector = None, *,
        alive: Callable[[], None], besides: bool = False,
    ) -> Iterator[Candidate]:  # fmt: skip
        """Chunks as the query wants them, the best first; the rest as of ranked(). alive: as of Postings."""
        if query.by == "meaning":
            for chunk, text, score in self.ranked(query.vector, owners, k, texts, besides=besides):
                yield Candidate(chunk, text, score, Scores(meaning=score))
            return
        mask = self._mask(owners, texts, besides=besides)
        scores, instead = self._postings.scores(query.asked, mask, alive)
        rows = self._np.flatnonzero(scores)
        by_words = (int(rows[i]) for i in _descending(self._np, scores[rows], len(rows)))
        ranked: Iterator[tuple[int, float | None]] = ((row, None) for row in by_words)
        if query.by == "hybrid":
            by_meaning = (row for row, _ in self._nearest(query.vector, mask, k))
            ranked = fused(by_words, by_meaning, max(2 * k, FIRST_FUSED))
        while some := list(islice(ranked, max(k, 64))):
            cosines = self._cosines([row for row, _ in some], query.vector)
            for (row, both), cosine in zip(some, cosines, strict=True):
                words = float(scores[row]) or None
                chunk, text = self._numbers[:2, row].tolist()
                yield Candidate(chunk, text, cosine, Scores(words, cosine, both), query.by, instead)

    def _cosines(self, rows: Sequence[int], vector: Vector | None) -> Sequence[float | None]:
        if vector is None or not self.width:
            return [None] * len(rows)
        return self._np.minimum(1.0, self._matrix[rows] @ vector).tolist()  # type: ignore[no-any-return]

    def ranked(
        self, query: Vector, owners: frozenset[str] | None, k: int, texts: Vector = None, *,
        besides: bool = False,
    ) -> Iterator[tuple[int, int, float]]:  # fmt: skip
        """(chunk, text, score), best first. k: how many are wanted, about; asking for more is slower.

        texts: only chunks of these are ranked, or with `besides` only those of others; None: all.
        """
        rows = self._nearest(query, self._mask(owners, texts, besides=besides), k)
        return ((int(self._numbers[0, row]), int(self._numbers[1, row]), score) for row, score in rows)

    def _mask(self, owners: frozenset[str] | None, texts: Vector, *, besides: bool) -> Any:
        mask = self._seen(owners)
        if texts is not None:
            mask &= self._np.isin(self._numbers[1, : self._n], texts, invert=besides)
        return mask

    def _nearest(self, query: Vector, mask: Any, k: int) -> Iterator[tuple[int, float]]:
        n_seen = int(self._np.count_nonzero(mask))
        approximate = self._index is not None and n_seen > self._ann_rows
        return self._approximate(query, mask, k) if approximate else self._exact(query, mask, n_seen)

    def _seen(self, owners: frozenset[str] | None) -> Any:
        mask = self._numbers[1, : self._n] >= 0
        if owners is None or set(self._owners) <= owners:
            return mask
        codes = [self._owners[owner] for owner in owners if owner in self._owners]
        return mask & self._np.isin(self._numbers[2, : self._n], codes)

    def _exact(self, query: Vector, mask: Any, n_seen: int) -> Iterator[tuple[int, float]]:
        np = self._np
        if n_seen * 4 < self._n:  # gathering few rows is faster than multiplying all
            rows = np.flatnonzero(mask)
            scores = self._matrix[rows] @ query
        else:
            rows, scores = None, self._matrix[: self._n] @ query
            scores[~mask] = -np.inf
        for i in _descending(np, scores, n_seen):
            yield int(i if rows is None else rows[i]), min(1.0, float(scores[i]))

    def _approximate(self, query: Vector, mask: Any, k: int) -> Iterator[tuple[int, float]]:
        """As many as usearch finds at once, then more; an exact search when it is asked for an eighth."""
        np = self._np
        given: set[int] = set()
        count = max(2 * k, 64)
        while count * 8 < self._n:
            rows = self._index.search(query, count).keys.astype(np.int64)
            rows = rows[mask[rows]]
            scores = self._matrix[rows] @ query
            for i in np.argsort(-scores, kind="stable"):
                if (row := int(rows[i])) not in given:
                    given.add(row)
                    yield row, min(1.0, float(scores[i]))
            count *= 8
        left = mask.copy()
        left[list(given)] = False
        yield from self._exact(query, left, int(np.count_nonzero(left)))

    def _reserve(self, wanted: int) -> None:
        if wanted <= len(self._matrix):
            return
        capacity = max(wanted, len(self._matrix) * 3 // 2, 64)
        matrix = self._np.empty((capacity, self.width), self._np.float32)
        numbers = self._np.empty((4, capacity), self._np.int64)
        matrix[: self._n] = self._matrix[: self._n]
        numbers[:, : self._n] = self._numbers[:, : self._n]
        self._matrix, self._numbers = matrix, numbers

    def _compact(self) -> None:
        left = self._np.flatnonzero(self._numbers[1, : self._n] >= 0)
        self._matrix, self._numbers = self._matrix[left], self._numbers[:, left]
        self._postings.keep(left)
        self._n, self._n_removed, self._index = len(left), 0, None
        self._extend_index(0)

    def _extend_index(self, first: int) -> None:
        """Adds the rows from `first` on to the index; all rows if it is begun now."""
        if self._index is None:
            if self._n <= self._ann_rows or not self.width:
                return
            first = 0
            self._index = extra("usearch.index").Index(
                ndim=self.width, metric="ip", dtype="f16", connectivity=CONNECTIVITY,
                expansion_add=EXPANSION_ADD, expansion_search=EXPANSION_SEARCH,
            )  # fmt: skip
        rows = first + self._np.flatnonzero(self._numbers[1, first : self._n] >= 0)
        self._index.add(rows, self._matrix[rows])


def _descending(np: Any, scores: Any, count: int) -> Iterator[Any]:
    """The positions of the `count` highest scores, the highest first; the first ones without sorting all."""
    if count > FIRST:
        first = np.argpartition(-scores, FIRST)[:FIRST]
        yield from first[np.argsort(-scores[first], kind="stable")]
        rest = np.argsort(-scores, kind="stable")[:count]
        seen = np.zeros(len(scores), bool)
        seen[first] = True
        yield from rest[~seen[rest]]
    else:
        yield from np.argsort(-scores, kind="stable")[:count]
