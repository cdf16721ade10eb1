"""Ranks a request's candidates: which of them become choices, and in what order. Events in, events out.

If all candidates are choices (best_of is at most n), they stream at once, and `done` has their order.
Otherwise events are held back until the last candidate has ended; then the n best follow, each text as one
event, best first. No I/O here but by the function that computes vectors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

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
    content_size,
)
from llama_srb.engine.exchange import CommandRefused, EngineError
from llama_srb.engine.ranking.candidates import Candidate
from llama_srb.engine.ranking.orders import NO_HELPERS, Helpers, Order, order
from llama_srb.engine.ranking.similarity import Slices
from llama_srb.engine.ranking.stats import Measured
from llama_srb.engine.ranking.votes import Decision, VoteTooSlow
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.rank_by import RankBy
from llama_srb.request.values import RequestError

Rank: TypeAlias = Callable[[list[Event]], Awaitable[list[Event]]]
LIKELIEST = RankBy("logprob")
FAILURES = (EngineError, RequestError, VoteTooSlow)
"""Why texts cannot be ranked; that of a vote, and of the model that computes vectors."""


def ranking(
    request: CompletionRequest,
    max_held: int | None = None,
    helpers: Helpers = NO_HELPERS,
    end_surplus: Callable[[], None] = lambda: None,
) -> Rank:
    """Returns the function that each list of a request's events goes through on its way to the client.

    Candidates that are held back may have `max_held` tokens and alternatives to them. Above this the events
    end with an Error, and the caller should cancel the request. So they do if the texts cannot be ranked.
    helpers: models, for a ranker that needs them. end_surplus: ends the texts that still run, when a vote is
    decided.
    """
    rank = _ranker(request, max_held, helpers, end_surplus)
    if not request.diversity_stats:
        return rank
    measured = Measured(request.n)

    async def ranked_and_measured(events: list[Event]) -> list[Event]:
        return await measured.take(await rank(events))

    return ranked_and_measured


def _ranker(
    request: CompletionRequest, max_held: int | None, helpers: Helpers, end_surplus: Callable[[], None]
) -> Rank:
    if not request.ranked:
        return _unchanged
    if request.candidates > request.n:
        return _BestOf(request, max_held, helpers, _decision(request, end_surplus)).take
    return _AllRanked(request, helpers, _decision(request, end_surplus)).take


def _decision(request: CompletionRequest, end_surplus: Callable[[], None]) -> Decision | None:
    if request.finish is None or not request.finish.vote_decided:
        return None
    assert request.rank_by is not None
    assert request.rank_by.regex is not None
    return Decision(request.rank_by.regex, end_surplus)


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


class _AllRanked:
    """All candidates are choices: stop events get their scores, and done gets the order."""

    def __init__(self, request: CompletionRequest, helpers: Helpers, decision: Decision | None) -> None:
        self._by, self._helpers, self._decision = request.rank_by or LIKELIEST, helpers, decision
        self._candidates = [Candidate() for _ in range(request.n)]

    async def take(self, events: list[Event]) -> list[Event]:
        slices, made = Slices(), list[Event]()
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
                one = self._candidates[event.index]
                scored = one.scored(event)
                if self._decision is not None:
                    await self._decision.ended(one, self._candidates)
                return scored
            case Done():
                return await self._ordered(event)
        return event

    async def _ordered(self, done: Done) -> Event:
        try:
            found = await _order(self._candidates, self._by, self._helpers)
        except FAILURES as failure:
            return _failed(done, failure)
        return replace(done, ranking=tuple(found.indices), votes=found.votes)


class _BestOf:
    """Only the n best candidates are choices: events are held back until the request is done."""

    def __init__(
        self,
        request: CompletionRequest,
        max_held: int | None,
        helpers: Helpers,
        decision: Decision | None,
    ) -> None:
        self._max_held, self._held = max_held, 0
        self._n = request.n
        self._by, self._helpers, self._decision = request.rank_by or LIKELIEST, helpers, decision
        self._candidates = [Candidate() for _ in range(request.candidates)]

    async def take(self, events: list[Event]) -> list[Event]:
        self._held += content_size(events)
        if self._max_held is not None and self._held > self._max_held:
            self._candidates.clear()
            return [_too_many(self._max_held)]
        slices, made = Slices(), list[Event]()
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
                one = self._candidates[event.index]
                one.scored(event)
                if self._decision is not None:
                    await self._decision.ended(one, self._candidates)
            case Done():
                return await self._best(event)
            case _:
                return [event]
        return []

    async def _best(self, done: Done) -> list[Event]:
        try:
            found = await _order(self._candidates, self._by, self._helpers)
        except FAILURES as failure:
            return [_failed(done, failure)]
        best = found.indices[: self._n]
        choice_of = {candidate: index for index, candidate in enumerate(best)}
        made: list[Event] = []
        for candidate, index in choice_of.items():
            one, stop = self._candidates[candidate], self._candidates[candidate].stop
            assert stop is not None  # each sequence stops before done
            made += one.events(done.id, index)
            duplicate_of = None if stop.duplicate_of is None else choice_of.get(stop.duplicate_of)
            made.append(replace(stop, index=index, duplicate_of=duplicate_of))
        return [*made, replace(done, count=self._n, ranking=tuple(range(self._n)), votes=found.votes)]


async def _order(candidates: list[Candidate], by: RankBy, helpers: Helpers) -> Order:
    """If an abort ends the work of a helper, the texts are kept: the likeliest comes first."""
    try:
        return await order(candidates, by, helpers)
    except CommandRefused as refused:
        if refused.error.code != "cancelled":
            raise
    return await order(candidates, LIKELIEST)


def _failed(done: Done, failure: Exception) -> Error:
    match failure:
        case CommandRefused():
            code, why = failure.error.code, failure.error.message
        case RequestError():
            code, why = failure.code or "invalid_request", failure.message
        case VoteTooSlow():
            code, why = "invalid_request", str(failure)
        case _:
            code, why = "unavailable", str(failure)
    return Error(code, f"the texts were not ranked: {why}", done.id, param="rank_by")


def _too_many(most: int) -> Error:
    message = f"the candidates have more than {most} tokens and alternatives to them (4 times --max-unread)"
    return Error("answer_too_large", f"{message}; ask for less", param="logprobs")
