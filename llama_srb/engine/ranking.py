"""Which of a request's candidates are its choices, and in what order: events in, events out. Pure, but that
long work gives the event loop its turns: a thousand texts take seconds to compare.

Where all candidates are choices (best_of is not above n) they stream as they come, and `done` says their
order. Else it is decided when the last one is over: then the n best follow, each whole, best first.
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

from llama_srb.engine.events import Again, Done, Error, Event, Extend, Start, Stop, Stream, TokenList, bulk
from llama_srb.request.fields import CompletionRequest

Take: TypeAlias = Callable[[list[Event]], Awaitable[list[Event]]]

SLICE = 0.005  # seconds of work after which the event loop has a turn: less than a step of most models
MOST_GRAMS = 500_000  # of all texts together that are looked at, 64 bytes each; of more, a sample
MOST_SHARED = 1 << 15  # different ones that are compared, a bit each: two texts in 2 µs; of more, a sample
JOINED = 256  # pieces of a text, which are joined then: each by itself takes 60 bytes

RELEVANCE = 0.5  # against novelty, in maximal marginal relevance
N_GRAMS = (1, 2, 3)  # by whose sets two texts are alike
# Words; and letters by themselves where words are written without spaces (kana, han, hangul).
CUT_SHORT = ("cancelled", "timeout")  # finish_reasons
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def ranking(request: CompletionRequest, most_held: int | None = None) -> Take:
    """What a request's events go through, list by list, on their way to its client.

    Candidates are held back until the last is over; with more than most_held tokens and alternatives to them,
    what comes ends with an Error, and the request should.
    """
    if not request.ranked:
        return _as_they_are
    if request.candidates > request.n:
        return _Chosen(request, most_held).take
    return _Ordered(request).take


async def _as_they_are(events: list[Event]) -> list[Event]:
    return events


class _Turns:
    """Work in slices."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def give(self) -> None:
        """Lets the event loop go on, if this has worked for a slice."""
        if time.perf_counter() - self._since > SLICE:
            await asyncio.sleep(0)
            self._since = time.perf_counter()


# ----------------------------------------------------------------------------------------------------
# One candidate
# ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Candidate:
    """What has come of one sequence."""

    texts: list[str] = field(default_factory=list)
    tokens: list[TokenList] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tool_calls: list[Mapping[str, Any]] = field(default_factory=list)
    stop: Stop | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add(self, event: Stream) -> None:
        self.say(event.text)
        self.tokens += [event.tokens] if event.tokens else []
        self.reasoning += [event.reasoning] if event.reasoning else []
        self.tool_calls += event.tool_calls

    def say(self, text: str) -> None:
        self.texts.append(text)
        if len(self.texts) > JOINED:
            self.texts = [self.text]

    def events(self, id: str, index: int) -> list[Event]:
        """All that came of it as one event, if anything did."""
        thought = "".join(self.reasoning)
        whole = Stream(id, index, self.text, TokenList.joined(self.tokens), thought, tuple(self.tool_calls))
        return [] if whole == Stream(id, index, "") else [whole]

    @property
    def mean_logprob(self) -> float:
        stop = self.stop
        return stop.logprob / stop.length if stop and stop.logprob is not None and stop.length else 0.0

    @property
    def is_whole(self) -> bool:
        """Neither cut short nor a repetition of another one."""
        stop = self.stop
        return stop is not None and stop.finish_reason not in CUT_SHORT and stop.duplicate_of is None

    def scored(self, stop: Stop) -> Stop:
        """Its stop event with its scores."""
        self.stop = stop
        if stop.logprob is None:  # cancelled before it was sent
            return stop
        self.stop = replace(stop, mean_logprob=self.mean_logprob, distinct_2=distinct(words(self.text), 2))
        return self.stop


def words(text: str) -> list[str]:
    """The words of a text in lower case."""
    return WORD.findall(text.lower())


def n_grams(units: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    """How often each run of n units occurs."""
    return Counter(zip(*(units[i:] for i in range(n)), strict=False))


def distinct(units: Sequence[str], n: int) -> float:
    """Distinct-n (Li et al. 2016): how many of the n-grams are different ones; 1.0 when there are none."""
    found = n_grams(units, n)
    return len(found) / found.total() if found else 1.0


# ----------------------------------------------------------------------------------------------------
# Orders: candidates as their numbers, best first
# ----------------------------------------------------------------------------------------------------


async def _by_logprob(candidates: Sequence[Candidate]) -> list[int]:
    return sorted(range(len(candidates)), key=lambda i: -candidates[i].mean_logprob)


def _distances(candidates: Sequence[Candidate]) -> list[float]:
    """From the median of the mean logprobs: the likeliest prose is repetitive (Zhang et al. 2020)."""
    means = [one.mean_logprob for one in candidates]
    middle = median(means) if means else 0.0
    return [abs(mean - middle) for mean in means]


async def _typical(candidates: Sequence[Candidate]) -> list[int]:
    distances = _distances(candidates)
    return sorted(range(len(candidates)), key=distances.__getitem__)


async def _diverse(candidates: Sequence[Candidate]) -> list[int]:
    """Maximal marginal relevance (Carbonell and Goldstein 1998): near the median, unlike those before.

    A candidate's worth only falls with each one chosen, so it is compared with them only when it would be
    next by what is known of it (Minoux's lazy greedy algorithm, 1978).
    """
    turns, distances = _Turns(), _distances(candidates)
    texts = await _compared(await _grams(candidates, turns), turns)
    widest = max(distances, default=0.0) or 1.0
    relevance = [1.0 - distance / widest for distance in distances]
    alike = [0.0] * len(candidates)  # to the most similar of those that it was compared with
    compared = [0] * len(candidates)  # with so many of those that are chosen
    left, order = [(-RELEVANCE * relevance[i], i) for i in range(len(candidates))], list[int]()
    heapify(left)
    while left:
        _, i = heappop(left)
        if compared[i] == len(order):
            order.append(i)
            continue
        worth = 0.0
        while compared[i] < len(order):
            alike[i] = max(alike[i], texts[i].similarity(texts[order[compared[i]]]))
            compared[i] += 1
            worth = RELEVANCE * relevance[i] - (1 - RELEVANCE) * alike[i]
            if left and left[0] < (-worth, i):
                break
        heappush(left, (-worth, i))
        await turns.give()
    return order


async def _grams(candidates: Sequence[Candidate], turns: _Turns) -> list[set[int]]:
    """Each text's n-grams, by their checksums; of too many a sample, the same of all texts."""
    found: list[set[int]] = []
    total, step = 0, 1
    for one in candidates:
        units, own = words(one.text), set[int]()
        for n in N_GRAMS:
            runs = zip(*(units[i:] for i in range(n)), strict=False)
            own.update(gram for run in runs if (gram := crc32(" ".join(run).encode())) % step == 0)
            await turns.give()
        found.append(own)
        total += len(own)
        while total > MOST_GRAMS:
            step *= 2
            for i, grams in enumerate(found):
                found[i] = {gram for gram in grams if gram % step == 0}
                await turns.give()
            total = sum(map(len, found))
    return found


@dataclass(frozen=True, slots=True)
class _Compared:
    """A text: how many n-grams it has, and as bits those that others have, too; each stands for `weight`."""

    size: int
    shared: int
    weight: int

    def similarity(self, other: _Compared) -> float:
        """Jaccard's: what both have of what either has."""
        both = self.weight * (self.shared & other.shared).bit_count()
        either = self.size + other.size - both
        return both / either if either > 0 else 1.0


async def _compared(found: Sequence[set[int]], turns: _Turns) -> list[_Compared]:
    """What one text alone has adds to its size only; most three-grams are so."""
    once, shared = set[int](), set[int]()
    for grams in found:
        shared |= grams & once
        once |= grams
        await turns.give()
    weight = 1
    while len(shared) > MOST_SHARED:
        weight *= 2
        shared = {gram for gram in shared if (gram >> 16) % weight == 0}  # the other end is _grams' sample
        await turns.give()
    places = {gram: place for place, gram in enumerate(shared)}
    made = []
    for grams in found:
        bits = bytearray(len(places) // 8 + 1)
        for place in map(places.__getitem__, grams & shared):
            bits[place >> 3] |= 1 << (place & 7)
        made.append(_Compared(len(grams), int.from_bytes(bits, "little"), weight))
        await turns.give()
    return made


ORDERS: dict[str, Callable[[Sequence[Candidate]], Awaitable[list[int]]]] = {
    "logprob": _by_logprob,
    "typical": _typical,
    "diversity": _diverse,
}


async def order(candidates: Sequence[Candidate], by: str) -> list[int]:
    """All candidates, best first; behind them those that are duplicates of others, or cancelled."""
    whole = [i for i, one in enumerate(candidates) if one.is_whole]
    rest = [i for i, one in enumerate(candidates) if not one.is_whole]
    return [whole[i] for i in await ORDERS[by]([candidates[i] for i in whole])] + rest


# ----------------------------------------------------------------------------------------------------
# Events
# ----------------------------------------------------------------------------------------------------


class _Ordered:
    """All candidates are choices: scores go into their stop events, the order into done."""

    def __init__(self, request: CompletionRequest) -> None:
        self._by = request.rank_by or "logprob"
        self._candidates = [Candidate() for _ in range(request.n)]

    async def take(self, events: list[Event]) -> list[Event]:
        turns, made = _Turns(), list[Event]()
        for event in events:
            made.append(await self._scored(event))
            await turns.give()
        return made

    async def _scored(self, event: Event) -> Event:
        match event:
            case Stream():
                self._candidates[event.index].say(event.text)
            case Again():
                self._candidates[event.index] = Candidate()
            case Extend():
                self._candidates += [Candidate() for _ in range(event.first, event.count)]
            case Stop():
                return self._candidates[event.index].scored(event)
            case Done():
                return replace(event, ranking=tuple(await order(self._candidates, self._by)))
        return event


class _Chosen:
    """Some candidates are choices: their events are held back until the request is done."""

    def __init__(self, request: CompletionRequest, most_held: int | None) -> None:
        self._most_held, self._held = most_held, 0
        self._n = request.n
        self._by = request.rank_by or "logprob"
        self._candidates = [Candidate() for _ in range(request.candidates)]

    async def take(self, events: list[Event]) -> list[Event]:
        self._held += bulk(events)
        if self._most_held is not None and self._held > self._most_held:
            self._candidates.clear()
            return [_too_many(self._most_held)]
        turns, made = _Turns(), list[Event]()
        for event in events:
            made += await self._chosen(event)
            await turns.give()
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
        places = {number: index for index, number in enumerate(best)}
        made: list[Event] = []
        for number, index in places.items():
            one, stop = self._candidates[number], self._candidates[number].stop
            assert stop is not None  # each sequence stops before done
            made += one.events(done.id, index)
            twin = None if stop.duplicate_of is None else places.get(stop.duplicate_of)
            made.append(replace(stop, index=index, duplicate_of=twin))
        return [*made, replace(done, count=self._n, ranking=tuple(range(self._n)))]


def _too_many(most: int) -> Error:
    message = f"the candidates have more than {most} tokens and alternatives to them (4 times --max-unread)"
    return Error("answer_too_large", f"{message}; ask for less", param="logprobs")
