"""Ranks a request's candidates: which of them become choices, and in what order. Events in, events out.

If all candidates are choices (best_of is at most n), they stream at once, and `done` has their order.
Otherwise events are held back until the last candidate has ended; then the n best follow, each text as one
event, best first. No I/O here, but comparing a thousand texts takes seconds, so long work lets the event loop
run in between.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from statistics import median
from typing import Any, TypeAlias
from zlib import crc32

from llama_srb.engine.events import (
    Again,
    Done,
    Error,
    Event,
    Extend,
    Start,
    Stop,
    Stream,
    Then,
    TokenList,
    content_size,
)
from llama_srb.request.fields import CompletionRequest

Rank: TypeAlias = Callable[[list[Event]], Awaitable[list[Event]]]

SLICE = 0.005  # seconds of work between two runs of the event loop: less than a decode step of most models
MAX_GRAMS = 500_000  # n-grams in memory for all texts together, 64 bytes each; above this, a sample
MAX_SHARED = 1 << 15  # n-grams as bits, so that two texts compare in 2 µs; above this, a sample
MAX_PIECES = 256  # of one text, which are then joined: each piece takes 60 bytes more than its letters

RELEVANCE = 0.5  # the weight of relevance against novelty in maximal marginal relevance
N_GRAMS = (1, 2, 3)  # the lengths of the n-grams by which texts are compared
CUT_SHORT = ("cancelled", "timeout")  # finish_reasons of incomplete texts
# A run of letters; single characters of scripts that put no spaces between words (kana, han, hangul).
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def ranking(request: CompletionRequest, max_held: int | None = None) -> Rank:
    """Returns the function that each list of a request's events goes through on its way to the client.

    Candidates that are held back may have `max_held` tokens and alternatives to them. Above this the events
    end with an Error, and the caller should cancel the request.
    """
    if not request.ranked:
        return _unchanged
    if request.candidates > request.n:
        return _BestOf(request, max_held).take
    return _AllRanked(request).take


def joining(request: CompletionRequest, rank: Rank) -> Rank:
    """For answers whose form has no event `then`: the text between two answers takes its place."""
    if request.then is None or not request.then.return_free:
        return rank
    between = request.then.text

    async def joined(events: list[Event]) -> list[Event]:
        ranked = await rank(events)
        return [
            Stream(event.id, event.index, between) if isinstance(event, Then) else event for event in ranked
        ]

    return joined


async def _unchanged(events: list[Event]) -> list[Event]:
    return events


class _Slices:
    """Divides long work into slices, between which the event loop runs."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def pause(self) -> None:
        """Lets the event loop run if a slice is over."""
        if time.perf_counter() - self._since > SLICE:
            await asyncio.sleep(0)
            self._since = time.perf_counter()


# ----------------------------------------------------------------------------------------------------
# One candidate
# ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Candidate:
    """The text of one sequence so far, and how it ended."""

    texts: list[str] = field(default_factory=list)
    tokens: list[TokenList] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tool_calls: list[Mapping[str, Any]] = field(default_factory=list)
    stop: Stop | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add(self, event: Stream) -> None:
        self.add_text(event.text)
        self.tokens += [event.tokens] if event.tokens else []
        self.reasoning += [event.reasoning] if event.reasoning else []
        self.tool_calls += event.tool_calls

    def add_text(self, text: str) -> None:
        self.texts.append(text)
        if len(self.texts) > MAX_PIECES:
            self.texts = [self.text]

    def events(self, id: str, index: int) -> list[Event]:
        """Its text, tokens, reasoning and tool calls as one event; no event if it has none of them."""
        reasoning = "".join(self.reasoning)
        stream = Stream(
            id, index, self.text, TokenList.joined(self.tokens), reasoning, tuple(self.tool_calls)
        )
        return [] if stream == Stream(id, index, "") else [stream]

    @property
    def mean_logprob(self) -> float:
        stop = self.stop
        drawn = stop.length - (stop.free_length or 0) if stop else 0  # of its second answer, if it has two
        return stop.logprob / drawn if stop and stop.logprob is not None and drawn else 0.0

    @property
    def is_eligible(self) -> bool:
        """Whether it is complete and no duplicate."""
        stop = self.stop
        return stop is not None and stop.finish_reason not in CUT_SHORT and stop.duplicate_of is None

    def scored(self, stop: Stop) -> Stop:
        """Returns its stop event with its scores, and keeps it."""
        self.stop = stop
        if stop.logprob is None:  # the request was cancelled before the engine got it
            return stop
        self.stop = replace(stop, mean_logprob=self.mean_logprob, distinct_2=distinct(words(self.text), 2))
        return self.stop


def words(text: str) -> list[str]:
    """The words of a text in lower case."""
    return WORD.findall(text.lower())


def n_grams(units: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    """How often each n-gram of the units occurs."""
    return Counter(zip(*(units[i:] for i in range(n)), strict=False))


def distinct(units: Sequence[str], n: int) -> float:
    """Distinct-n (Li et al. 2016): the share of different ones among the n-grams; 1.0 if there are none."""
    found = n_grams(units, n)
    return len(found) / found.total() if found else 1.0


# ----------------------------------------------------------------------------------------------------
# Orders: lists of the candidates' indices, best first
# ----------------------------------------------------------------------------------------------------


async def _by_logprob(candidates: Sequence[Candidate]) -> list[int]:
    return sorted(range(len(candidates)), key=lambda i: -candidates[i].mean_logprob)


def _distances(candidates: Sequence[Candidate]) -> list[float]:
    """Each candidate's distance from the median of the mean logprobs.

    The median is best, since the likeliest prose is repetitive (Zhang et al. 2020).
    """
    means = [one.mean_logprob for one in candidates]
    middle = median(means) if means else 0.0
    return [abs(mean - middle) for mean in means]


async def _typical(candidates: Sequence[Candidate]) -> list[int]:
    distances = _distances(candidates)
    return sorted(range(len(candidates)), key=distances.__getitem__)


async def _diverse(candidates: Sequence[Candidate]) -> list[int]:
    """Maximal marginal relevance (Carbonell and Goldstein 1998): near the median, unlike the ones before.

    A candidate's value can only fall as more are chosen. So its old value is an upper bound, and it is
    compared with the chosen ones only when it comes first by that bound (Minoux's lazy greedy algorithm,
    1978).
    """
    slices, distances = _Slices(), _distances(candidates)
    texts = await _comparable(await _grams(candidates, slices), slices)
    widest = max(distances, default=0.0) or 1.0
    relevance = [1.0 - distance / widest for distance in distances]
    similarity = [0.0] * len(candidates)  # to the most similar of the chosen ones compared so far
    compared = [0] * len(candidates)  # how many of the chosen ones it was compared with
    left, order = [(-RELEVANCE * relevance[i], i) for i in range(len(candidates))], list[int]()
    heapify(left)
    while left:
        _, i = heappop(left)
        if compared[i] == len(order):
            order.append(i)
            continue
        value = 0.0
        while compared[i] < len(order):
            similarity[i] = max(similarity[i], texts[i].similarity(texts[order[compared[i]]]))
            compared[i] += 1
            value = RELEVANCE * relevance[i] - (1 - RELEVANCE) * similarity[i]
            if left and left[0] < (-value, i):
                break
        heappush(left, (-value, i))
        await slices.pause()
    return order


async def _grams(candidates: Sequence[Candidate], slices: _Slices) -> list[set[int]]:
    """The set of each text's n-grams, as checksums; above MAX_GRAMS a sample, the same for all texts."""
    found: list[set[int]] = []
    total, step = 0, 1
    for one in candidates:
        units, own = words(one.text), set[int]()
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


async def _comparable(found: Sequence[set[int]], slices: _Slices) -> list[_Comparable]:
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


ORDERS: dict[str, Callable[[Sequence[Candidate]], Awaitable[list[int]]]] = {
    "logprob": _by_logprob,
    "typical": _typical,
    "diversity": _diverse,
}


async def order(candidates: Sequence[Candidate], by: str) -> list[int]:
    """The indices of all candidates, best first; duplicates and incomplete ones come last."""
    eligible = [i for i, one in enumerate(candidates) if one.is_eligible]
    rest = [i for i, one in enumerate(candidates) if not one.is_eligible]
    return [eligible[i] for i in await ORDERS[by]([candidates[i] for i in eligible])] + rest


# ----------------------------------------------------------------------------------------------------
# Events
# ----------------------------------------------------------------------------------------------------


class _AllRanked:
    """All candidates are choices: stop events get their scores, and done gets the order."""

    def __init__(self, request: CompletionRequest) -> None:
        self._by = request.rank_by or "logprob"
        self._candidates = [Candidate() for _ in range(request.n)]

    async def take(self, events: list[Event]) -> list[Event]:
        slices, made = _Slices(), list[Event]()
        for event in events:
            made.append(await self._scored(event))
            await slices.pause()
        return made

    async def _scored(self, event: Event) -> Event:
        match event:
            case Stream():
                self._candidates[event.index].add_text(event.text)
            case Again() | Then():
                self._candidates[event.index] = Candidate()
            case Extend():
                self._candidates += [Candidate() for _ in range(event.first, event.count)]
            case Stop():
                return self._candidates[event.index].scored(event)
            case Done():
                return replace(event, ranking=tuple(await order(self._candidates, self._by)))
        return event


class _BestOf:
    """Only the n best candidates are choices: events are held back until the request is done."""

    def __init__(self, request: CompletionRequest, max_held: int | None) -> None:
        self._max_held, self._held = max_held, 0
        self._n = request.n
        self._by = request.rank_by or "logprob"
        self._candidates = [Candidate() for _ in range(request.candidates)]

    async def take(self, events: list[Event]) -> list[Event]:
        self._held += content_size(events)
        if self._max_held is not None and self._held > self._max_held:
            self._candidates.clear()
            return [_too_many(self._max_held)]
        slices, made = _Slices(), list[Event]()
        for event in events:
            made += await self._chosen(event)
            await slices.pause()
        return made

    async def _chosen(self, event: Event) -> list[Event]:
        match event:
            case Start():
                return [replace(event, count=self._n)]
            case Stream():
                self._candidates[event.index].add(event)
            case Again():
                self._candidates[event.index] = Candidate()
            case Extend():
                self._candidates += [Candidate() for _ in range(event.first, event.count)]
            case Stop():
                self._candidates[event.index].scored(event)
            case Done():
                return await self._best(event)
            case _:
                return [event]
        return []

    async def _best(self, done: Done) -> list[Event]:
        best = (await order(self._candidates, self._by))[: self._n]
        choice_of = {candidate: index for index, candidate in enumerate(best)}
        made: list[Event] = []
        for candidate, index in choice_of.items():
            one, stop = self._candidates[candidate], self._candidates[candidate].stop
            assert stop is not None  # each sequence stops before done
            made += one.events(done.id, index)
            duplicate_of = None if stop.duplicate_of is None else choice_of.get(stop.duplicate_of)
            made.append(replace(stop, index=index, duplicate_of=duplicate_of))
        return [*made, replace(done, count=self._n, ranking=tuple(range(self._n)))]


def _too_many(most: int) -> Error:
    message = f"the candidates have more than {most} tokens and alternatives to them (4 times --max-unread)"
    return Error("answer_too_large", f"{message}; ask for less", param="logprobs")
