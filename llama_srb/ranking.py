"""Which of a request's candidates are its choices, and in what order: events in, events out. Pure.

Where all candidates are choices (best_of is not above n) they stream as they come, and `done` says their
order. Else it is decided when the last one is over: then the n best follow, each whole, best first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, TypeAlias

from llama_srb.protocol import Again, Done, Event, Extend, Start, Stop, Stream
from llama_srb.request import CompletionRequest

Take: TypeAlias = Callable[[list[Event]], list[Event]]

RELEVANCE = 0.5  # against novelty, in maximal marginal relevance
N_GRAMS = (1, 2, 3)  # by whose sets two texts are alike
# Words; and letters by themselves where words are written without spaces (kana, han, hangul).
CUT_SHORT = ("cancelled", "timeout")  # finish_reasons
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def ranking(request: CompletionRequest) -> Take:
    """What a request's events go through, list by list, on their way to its client."""
    if not request.ranked:
        return lambda events: events
    if request.candidates > request.n:
        return _Chosen(request).take
    return _Ordered(request).take


# ----------------------------------------------------------------------------------------------------
# One candidate
# ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Candidate:
    """What has come of one sequence."""

    texts: list[str] = field(default_factory=list)
    tokens: list[Mapping[str, Any]] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tool_calls: list[Mapping[str, Any]] = field(default_factory=list)
    stop: Stop | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add(self, event: Stream) -> None:
        self.texts.append(event.text)
        self.tokens += event.tokens
        self.reasoning.append(event.reasoning)
        self.tool_calls += event.tool_calls

    def events(self, id: str, index: int) -> list[Event]:
        """All that came of it as one event, if anything did."""
        thought = "".join(self.reasoning)
        whole = Stream(id, index, self.text, tuple(self.tokens), thought, tuple(self.tool_calls))
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


def _by_logprob(candidates: Sequence[Candidate]) -> list[int]:
    return sorted(range(len(candidates)), key=lambda i: -candidates[i].mean_logprob)


def _distances(candidates: Sequence[Candidate]) -> list[float]:
    """From the median of the mean logprobs: the likeliest prose is repetitive (Zhang et al. 2020)."""
    means = [one.mean_logprob for one in candidates]
    return [abs(mean - median(means)) for mean in means]


def _typical(candidates: Sequence[Candidate]) -> list[int]:
    distances = _distances(candidates)
    return sorted(range(len(candidates)), key=distances.__getitem__)


def _diverse(candidates: Sequence[Candidate]) -> list[int]:
    """Maximal marginal relevance (Carbonell and Goldstein 1998): near the median, unlike those before."""
    distances, masks = _distances(candidates), _masks(candidates)
    widest = max(distances, default=0.0) or 1.0
    relevance = [1.0 - distance / widest for distance in distances]
    alike = [0.0] * len(candidates)  # to the most similar of those that are chosen
    left, order = set(range(len(candidates))), list[int]()
    while left:
        best = max(left, key=lambda i: (RELEVANCE * relevance[i] - (1 - RELEVANCE) * alike[i], -i))
        left.remove(best)
        order.append(best)
        for i in left:
            alike[i] = max(alike[i], _similarity(masks[i], masks[best]))
    return order


def _masks(candidates: Sequence[Candidate]) -> list[int]:
    """Each text's set of n-grams as the bits of a number: to compare a thousand texts is quick."""
    places: dict[tuple[str, ...], int] = {}
    masks = []
    for one in candidates:
        units = words(one.text)
        found = [gram for n in N_GRAMS for gram in n_grams(units, n)]
        masks.append(sum(1 << places.setdefault(gram, len(places)) for gram in found))
    return masks


def _similarity(a: int, b: int) -> float:
    """Jaccard's: what both have of what either has."""
    return (a & b).bit_count() / either if (either := (a | b).bit_count()) else 1.0


ORDERS: dict[str, Callable[[Sequence[Candidate]], list[int]]] = {
    "logprob": _by_logprob,
    "typical": _typical,
    "diversity": _diverse,
}


def order(candidates: Sequence[Candidate], by: str) -> list[int]:
    """All candidates, best first; behind them those that are duplicates of others, or cancelled."""
    whole = [i for i, one in enumerate(candidates) if one.is_whole]
    rest = [i for i, one in enumerate(candidates) if not one.is_whole]
    return [whole[i] for i in ORDERS[by]([candidates[i] for i in whole])] + rest


# ----------------------------------------------------------------------------------------------------
# Events
# ----------------------------------------------------------------------------------------------------


class _Ordered:
    """All candidates are choices: scores go into their stop events, the order into done."""

    def __init__(self, request: CompletionRequest) -> None:
        self._by = request.rank_by or "logprob"
        self._candidates = [Candidate() for _ in range(request.n)]

    def take(self, events: list[Event]) -> list[Event]:
        return [self._scored(event) for event in events]

    def _scored(self, event: Event) -> Event:
        match event:
            case Stream():
                self._candidates[event.index].texts.append(event.text)
            case Again():
                self._candidates[event.index] = Candidate()
            case Extend():
                self._candidates += [Candidate() for _ in range(event.first, event.count)]
            case Stop():
                return self._candidates[event.index].scored(event)
            case Done():
                return replace(event, ranking=tuple(order(self._candidates, self._by)))
        return event


class _Chosen:
    """Some candidates are choices: their events are held back until the request is done."""

    def __init__(self, request: CompletionRequest) -> None:
        self._n = request.n
        self._by = request.rank_by or "logprob"
        self._candidates = [Candidate() for _ in range(request.candidates)]

    def take(self, events: list[Event]) -> list[Event]:
        return [made for event in events for made in self._chosen(event)]

    def _chosen(self, event: Event) -> list[Event]:
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
                return self._best(event)
            case _:
                return [event]
        return []

    def _best(self, done: Done) -> list[Event]:
        best = order(self._candidates, self._by)[: self._n]
        places = {number: index for index, number in enumerate(best)}
        made: list[Event] = []
        for number, index in places.items():
            one, stop = self._candidates[number], self._candidates[number].stop
            assert stop is not None  # each sequence stops before done
            made += one.events(done.id, index)
            twin = None if stop.duplicate_of is None else places.get(stop.duplicate_of)
            made.append(replace(stop, index=index, duplicate_of=twin))
        return [*made, replace(done, count=self._n, ranking=tuple(range(self._n)))]
