"""How much the texts of an answer differ: `diversity_stats`. Events in, events out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from llama_srb.engine.events import (
    Again,
    DiversityStats,
    Done,
    Event,
    Extend,
    Stop,
    Stream,
    Then,
)
from llama_srb.engine.ranking.candidates import CUT_SHORT, Candidate, words
from llama_srb.engine.ranking.similarity import Overlap, Slices

BEGINNING = 3  # words
CLUSTER = 1 / 3  # the overlap from which two texts belong together


async def diversity_of(texts: Sequence[str]) -> DiversityStats:
    """The figures of some texts.

    The effective number is Hill's of order 1 (1973): exp of the entropy of the clusters' sizes. It is 1 if
    all texts are alike, and their number if none is like another.
    """
    slices = Slices()
    alike, total = await Overlap.of(texts, slices), 0.0
    root = list(range(len(texts)))
    for i in range(len(texts)):
        for j in range(i):
            overlap = alike.pair(i, j)
            total += overlap
            if overlap >= CLUSTER:
                root[_top(root, i)] = _top(root, j)
        await slices.pause()
    pairs = len(texts) * (len(texts) - 1) // 2
    sizes = Counter(_top(root, i) for i in range(len(texts)))
    return DiversityStats(
        texts=len(texts),
        beginnings=len({tuple(words(text)[:BEGINNING]) for text in texts}),
        mean_overlap=total / pairs if pairs else None,
        effective_number=_hill(list(sizes.values())),
    )


def _top(root: list[int], i: int) -> int:
    while root[i] != i:
        root[i] = root[root[i]]
        i = root[i]
    return i


def _hill(sizes: Sequence[int]) -> float:
    total = sum(sizes)
    return math.exp(-sum(size / total * math.log(size / total) for size in sizes)) if total else 0.0


class Measured:
    """Adds the figures of the returned texts to done. Incomplete texts do not count."""

    def __init__(self, n: int) -> None:
        self._choices = [Candidate() for _ in range(n)]

    async def take(self, events: list[Event]) -> list[Event]:
        slices, made = Slices(), list[Event]()
        for event in events:
            made.append(await self._taken(event))
            await slices.pause()
        return made

    async def _taken(self, event: Event) -> Event:
        match event:
            case Stream():
                self._choices[event.index].add_text(event.text)
            case Again() | Then():
                self._choices[event.index] = Candidate()
            case Extend():
                self._choices += [Candidate() for _ in range(event.first, event.count)]
            case Stop():
                self._choices[event.index].stop = event
            case Done():
                return replace(event, diversity_stats=await diversity_of(self._complete()))
        return event

    def _complete(self) -> list[str]:
        return [one.text for one in self._choices if one.stop and one.stop.finish_reason not in CUT_SHORT]
