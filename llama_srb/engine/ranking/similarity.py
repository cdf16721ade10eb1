"""How alike texts are: by the n-grams of words that they share, or by the cosine of their vectors.

No I/O here, but comparing a thousand texts takes seconds, so long work lets the event loop run in between.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Protocol, TypeAlias
from zlib import crc32

from llama_srb.engine.ranking.candidates import words

Embed: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""Computes a vector of length 1 for each text."""

SLICE = 0.005  # seconds of work between two runs of the event loop: less than a decode step of most models
MAX_GRAMS = 500_000  # n-grams in memory for all texts together, 64 bytes each; above this, a sample
MAX_SHARED = 1 << 15  # n-grams as bits, so that two texts compare in 2 µs; above this, a sample
N_GRAMS = (1, 2, 3)  # the lengths of the n-grams by which texts are compared


class Slices:
    """Divides long work into slices, between which the event loop runs."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def pause(self) -> None:
        """Lets the event loop run if a slice is over."""
        if time.perf_counter() - self._since > SLICE:
            await asyncio.sleep(0)
            self._since = time.perf_counter()


class Alike(Protocol):
    """Texts that can be compared; they are named by their place."""

    def pair(self, one: int, other: int) -> float:
        """How alike two texts are: at most 1."""

    async def means(self, slices: Slices) -> list[float]:
        """How alike each text is to all others, on average; 0.0 if there are no others."""


class Overlap:
    """Texts by the n-grams of words that they share: from 0 to 1."""

    def __init__(self, texts: Sequence[_Comparable]) -> None:
        self._texts = texts

    @classmethod
    async def of(cls, texts: Sequence[str], slices: Slices) -> Overlap:
        return cls(await _comparable(await _grams(texts, slices), slices))

    def pair(self, one: int, other: int) -> float:
        return self._texts[one].similarity(self._texts[other])

    async def means(self, slices: Slices) -> list[float]:
        sums = [0.0] * len(self._texts)
        for i, one in enumerate(self._texts):
            for j in range(i):
                similarity = one.similarity(self._texts[j])
                sums[i] += similarity
                sums[j] += similarity
            await slices.pause()
        return [total / max(1, len(sums) - 1) for total in sums]


class Vectors:
    """Texts by the cosine of their vectors; a text without words has none, and is like no other."""

    def __init__(self, vectors: Sequence[Sequence[float] | None]) -> None:
        self._vectors = [array("f", () if one is None else one) for one in vectors]

    @classmethod
    async def of(cls, texts: Sequence[str], embed: Embed) -> Vectors:
        written = [text for text in texts if text.strip()]
        vectors = iter(await embed(written) if written else ())
        return cls([next(vectors) if text.strip() else None for text in texts])

    def pair(self, one: int, other: int) -> float:
        return float(sum(map(mul, self._vectors[one], self._vectors[other])))

    async def means(self, slices: Slices) -> list[float]:
        """Each vector times the sum of all is the sum of its cosines, its own among them."""
        width = max(map(len, self._vectors), default=0)
        total = array("d", bytes(8 * width))
        for vector in self._vectors:
            for place, number in enumerate(vector):
                total[place] += number
            await slices.pause()
        found = []
        for vector in self._vectors:
            own = sum(map(mul, vector, vector))
            found.append((sum(map(mul, vector, total)) - own) / max(1, len(self._vectors) - 1))
            await slices.pause()
        return found


async def _grams(given: Sequence[str], slices: Slices) -> list[set[int]]:
    """The set of each text's n-grams, as checksums; above MAX_GRAMS a sample, the same for all texts."""
    found: list[set[int]] = []
    total, step = 0, 1
    for text in given:
        units, own = words(text), set[int]()
        for n in N_GRAMS:
            runs = zip(*(units[i:] for i in range(n)), strict=False)
            own.update(gram for run in runs if (gram := crc32(" ".join(run).encode())) % step == 0)
            await slices.pause()
        found.append(own)
        total += len(own)
        while total > MAX_GRAMS:
            step *= 2
            for i, grams in enumerate(found):
                found[i] = {gram for gram in grams if gram % step == 0}
                await slices.pause()
            total = sum(map(len, found))
    return found


@dataclass(frozen=True, slots=True)
class _Comparable:
    """A text's n-grams: how many it has, and one bit for each that another text has, too.

    In a sample each bit stands for `weight` n-grams.
    """

    size: int
    shared: int
    weight: int

    def similarity(self, other: _Comparable) -> float:
        """The Jaccard index: the n-grams in both texts as a share of those in either."""
        both = self.weight * (self.shared & other.shared).bit_count()
        either = self.size + other.size - both
        return both / either if either > 0 else 1.0


async def _comparable(found: Sequence[set[int]], slices: Slices) -> list[_Comparable]:
    """Gives a bit to each n-gram that several texts have. Most 3-grams are in one text: they have no bit."""
    once, shared = set[int](), set[int]()
    for grams in found:
        shared |= grams & once
        once |= grams
        await slices.pause()
    weight = 1
    while len(shared) > MAX_SHARED:
        weight *= 2
        shared = {gram for gram in shared if (gram >> 16) % weight == 0}  # _grams samples by the low bits
        await slices.pause()
    bit_of = {gram: bit for bit, gram in enumerate(shared)}
    made = []
    for grams in found:
        bits = bytearray(len(bit_of) // 8 + 1)
        for bit in map(bit_of.__getitem__, grams & shared):
            bits[bit >> 3] |= 1 << (bit & 7)
        made.append(_Comparable(len(grams), int.from_bytes(bits, "little"), weight))
        await slices.pause()
    return made
