"""Which of the best chunks say something else than the ones before them: maximal marginal relevance.

Source: Carbonell and Goldstein, The Use of MMR, Diversity-Based Reranking (SIGIR 1998). Relevance is the
rank, since scores of words, meaning and both have different scales; likeness is that of the texts' words,
which each memory has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import TypeVar

from ..words import terms_of

T = TypeVar("T")
POOL, MOST_POOL = 4, 200  # chunks that are compared: so many times k, at most: in a tenth of a second


def pool_of(k: int) -> int:
    """How many of the best chunks are looked at for k."""
    return max(k, min(POOL * k, MOST_POOL))


def different(ranked: Sequence[T], k: int, diversity: float, text_of: Callable[[T], str]) -> list[T]:
    """k of these, best first. diversity: 0 is the rank alone, 1 only how little is there already.

    Those behind the first MOST_POOL follow by their rank.
    """
    ranked, rest = ranked[:MOST_POOL], ranked[MOST_POOL:]
    words = [set(terms_of(text_of(one))) for one in ranked]
    nearest, left, taken = [0.0] * len(ranked), list(range(len(ranked))), list[T]()
    while left and len(taken) < k:
        best = max(left, key=lambda i: (1 - diversity) * (1 - i / len(ranked)) - diversity * nearest[i])
        left.remove(best)
        taken.append(ranked[best])
        for i in left:
            nearest[i] = max(nearest[i], _likeness(words[best], words[i]))
    return [*taken, *rest[: k - len(taken)]]


def _likeness(one: set[int], other: set[int]) -> float:
    """The cosine of two sets of words."""
    return len(one & other) / sqrt(len(one) * len(other)) if one and other else 0.0
