"""One order of two: weighted reciprocal rank fusion of a ranking by words and one by meaning.

Source: Cormack, Clarke and Büttcher, Reciprocal Rank Fusion outperforms Condorcet (SIGIR 2009).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T", bound=Hashable)

RANKS = (
    3  # the larger, the less a rank counts than the one before; the paper's 60 finds less than words alone
)
WEIGHTS = (1.0, 0.5)  # of words and of meaning; see benchmarks


def fused(words: Iterator[T], meaning: Iterator[T], first: int) -> Iterator[tuple[T, float]]:
    """What either ranking has, each once, and the sum of weight / (RANKS + rank) of both.

    It looks at more and more ranks of both, so that the first ones cost little; a rank that was not looked at
    counts as none.
    """
    given, count, begin = set[T](), first, 1
    while True:
        some = [list(islice(one, count)) for one in (words, meaning)]
        scores = dict[T, float]()
        for weight, ranked in zip(WEIGHTS, some, strict=True):
            for rank, one in enumerate(ranked, begin):
                if one not in given:
                    scores[one] = scores.get(one, 0.0) + weight / (RANKS + rank)
        if not any(some):
            return
        given |= scores.keys()
        yield from sorted(scores.items(), key=lambda item: -item[1])
        begin, count = begin + count, count * 4
