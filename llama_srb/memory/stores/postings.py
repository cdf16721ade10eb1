"""Which chunks have which words, and BM25 over those that a reader sees. One thread at a time may use it.

A posting is 32 bits: the row of a chunk, and how often it has the word. New ones are sorted when they are
first searched, into a segment; segments are merged so that each is twice as large as the next one. All
statistics are those of the rows that are searched, so that no score tells what other owners store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..records import Vector, extra
from ..words import MOST_COUNTED, Asked, corrections

K1, B = 0.9, 0.4  # of BM25, as Anserini has them: Lucene's 1.2 and 0.75 find less, see benchmarks
COUNT_BITS = 6
MOST_ROWS = 1 << (32 - COUNT_BITS)
MOST_CORRECTIONS, CORRECTED = 3, 0.6  # words in place of one that no chunk has; what they weigh
MOST_CORRECTED = 16  # words of a query


@dataclass(frozen=True, slots=True)
class Segment:
    """Terms in order; those of `terms[i]` are the postings from `begins[i]` to before `begins[i + 1]`."""

    terms: Any  # uint32
    begins: Any  # int64, one more
    postings: Any  # uint32

    def __len__(self) -> int:
        return len(self.postings)


class Postings:
    """The words of rows, which are numbered as those of Rows."""

    def __init__(self) -> None:
        self._np = extra("numpy")
        self._segments: list[Segment] = []
        self._new: list[Any] = []  # keys that are not sorted: term << 32 | posting
        self._lengths = self._np.zeros(0, self._np.float32)  # of each row, in words

    def add(self, first: int, blobs: Sequence[bytes | None]) -> None:
        """Adds the packed words of rows from `first` on; None: they are not known yet."""
        self.put(range(first, first + len(blobs)), blobs)

    def put(self, rows: Sequence[int], blobs: Sequence[bytes | None]) -> None:
        """Adds the packed words of rows that have none."""
        np = self._np
        known = [(row, blob) for row, blob in zip(rows, blobs, strict=True) if blob]
        self._reserve(max(rows, default=-1) + 1)
        if not known:
            return
        sizes = np.array([len(blob) // 5 for _, blob in known])
        numbers = np.array([row for row, _ in known], np.uint64)
        terms = np.frombuffer(b"".join(blob[: len(blob) // 5 * 4] for _, blob in known), "<u4").astype(
            np.uint64
        )
        counts = np.frombuffer(b"".join(blob[len(blob) // 5 * 4 :] for _, blob in known), np.uint8)
        counts = np.minimum(counts, MOST_COUNTED)
        self._new.append(terms << 32 | np.repeat(numbers, sizes) << COUNT_BITS | counts)
        self._lengths[numbers.astype(np.int64)] = np.add.reduceat(
            counts, np.cumsum(sizes) - sizes, dtype=np.float32
        )

    def keep(self, left: Vector) -> None:
        """Removes all rows but these, which are numbered anew."""
        np = self._np
        self._settle()
        numbers = np.full(len(self._lengths), -1, np.int64)
        numbers[left] = np.arange(len(left))
        keys = np.concatenate([_keys(np, one) for one in self._segments] or [np.zeros(0, np.uint64)])
        rows = numbers[(keys & 0xFFFFFFFF) >> COUNT_BITS]
        kept = rows >= 0
        keys = (
            keys[kept] & ~np.uint64((MOST_ROWS - 1) << COUNT_BITS)
            | rows[kept].astype(np.uint64) << COUNT_BITS
        )
        self._segments = [_segment(np, keys)] if len(keys) else []
        self._lengths = self._lengths[left]

    def scores(
        self, asked: Sequence[Asked], mask: Vector, alive: Callable[[], None]
    ) -> tuple[Any, frozenset[int]]:
        """BM25 of each row, 0 for those outside of the mask, and the terms in place of words with a typo.

        alive: is called now and then, and may raise.
        """
        np = self._np
        self._settle()
        self._reserve(len(mask))
        lengths = self._lengths[: len(mask)]
        n_seen = int(np.count_nonzero(mask))
        mean = float(lengths[mask].mean()) if n_seen else 0.0
        norms = K1 * (1 - B + B * lengths / mean) if mean else lengths
        scores = np.zeros(len(mask), np.float32)
        is_all, n_corrected, instead = n_seen == len(mask), 0, set[int]()
        for one in asked:
            alive()
            found = self._found(one.term, mask, is_all)
            weighted = [(found, float(one.times))]
            if not len(found) and one.word and n_corrected < MOST_CORRECTED:
                n_corrected += 1
                corrected = self._corrected(one, mask, is_all)
                instead.update(corrected)
                weighted = [(row, one.times * CORRECTED) for row in corrected.values()]
            for postings, weight in weighted:
                rows, counts = postings >> COUNT_BITS, (postings & MOST_COUNTED).astype(np.float32)
                idf = math.log(1 + (n_seen - len(rows) + 0.5) / (len(rows) + 0.5))
                scores[rows] += weight * idf * (K1 + 1) * counts / (counts + norms[rows])
        return scores, frozenset(instead)

    def _found(self, term: int, mask: Vector, is_all: bool) -> Any:
        """The postings of a term in rows of the mask."""
        np, parts = self._np, list[Any]()
        for one in self._segments:
            at = int(np.searchsorted(one.terms, np.uint32(term)))
            if at < len(one.terms) and one.terms[at] == term:
                parts.append(one.postings[one.begins[at] : one.begins[at + 1]])
        found = parts[0] if len(parts) == 1 else np.concatenate(parts or [np.zeros(0, np.uint32)])
        return found if is_all else found[mask[found >> COUNT_BITS]]

    def _corrected(self, one: Asked, mask: Vector, is_all: bool) -> dict[int, Any]:
        """The most frequent terms that differ from a word, which no row has, by a letter; their postings."""
        np = self._np
        near = np.array(corrections(one.word), np.uint32)
        known = set[int]()
        for segment in self._segments:
            at = np.minimum(np.searchsorted(segment.terms, near), len(segment.terms) - 1)
            known |= set(near[segment.terms[at] == near].tolist())
        found = {term: self._found(term, mask, is_all) for term in sorted(known)}
        frequent = sorted((term for term in found if len(found[term])), key=lambda term: -len(found[term]))
        return {term: found[term] for term in frequent[:MOST_CORRECTIONS]}

    def _reserve(self, wanted: int) -> None:
        np = self._np
        if wanted > len(self._lengths):
            more = np.zeros(max(wanted, len(self._lengths) * 3 // 2, 64), np.float32)
            more[: len(self._lengths)] = self._lengths
            self._lengths = more

    def _settle(self) -> None:
        """Makes a segment of the new postings, and merges those of about one size."""
        if not self._new:
            return
        np = self._np
        self._segments.append(_segment(np, np.concatenate(self._new)))
        self._new = []
        while len(self._segments) > 1 and len(self._segments[-2]) < 2 * len(self._segments[-1]):
            last = [_keys(np, self._segments.pop()) for _ in range(2)]
            self._segments.append(_segment(np, np.concatenate(last)))


def _segment(np: Any, keys: Any) -> Segment:
    keys.sort()
    terms = (keys >> 32).astype(np.uint32)
    begins = np.flatnonzero(np.concatenate([[True], terms[1:] != terms[:-1]]))
    return Segment(terms[begins], np.append(begins, len(keys)), (keys & 0xFFFFFFFF).astype(np.uint32))


def _keys(np: Any, one: Segment) -> Any:
    terms = np.repeat(one.terms, np.diff(one.begins)).astype(np.uint64)
    return terms << 32 | one.postings
