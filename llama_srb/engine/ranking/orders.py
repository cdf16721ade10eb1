"""Orders of candidates: lists of their indices, best first. Each ranker is a row of ORDERS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from statistics import median
from typing import Any, TypeAlias

from llama_srb.background import in_thread
from llama_srb.engine.events import Vote
from llama_srb.engine.ranking.candidates import Candidate
from llama_srb.engine.ranking.similarity import Alike, Embed, Overlap, Slices, Vectors
from llama_srb.engine.ranking.votes import answers_in
from llama_srb.request.rank_by import RankBy

Judge: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[float]]]
"""A number for each text, of a model: the higher, the better."""
RELEVANCE = 0.5  # the weight of relevance against novelty in maximal marginal relevance


@dataclass(frozen=True, slots=True)
class Order:
    """Indices, best first. votes: the answers of a vote, the leading one first; None if there was none."""

    indices: list[int]
    votes: tuple[Vote, ...] | None = None


async def _no_model(texts: Sequence[str]) -> Any:
    """Where there are no helpers; a request that needs them was refused."""
    raise RuntimeError("no model helps to rank texts here")


@dataclass(frozen=True, slots=True)
class Helpers:
    """Models that help to rank texts. embed: their vectors. judge: margins of the first answer.

    follow: how likely what is to follow is behind each. reward: how well each answers, by a model that ranks.
    """

    embed: Embed = _no_model
    judge: Judge = _no_model
    follow: Judge = _no_model
    reward: Judge = _no_model


NO_HELPERS = Helpers()
Ranker: TypeAlias = Callable[[Sequence[Candidate], RankBy, Helpers], Awaitable[Order]]


def _by_mean(candidates: Sequence[Candidate]) -> list[int]:
    return sorted(range(len(candidates)), key=lambda i: -candidates[i].mean_logprob)


async def _likeliest(candidates: Sequence[Candidate], by: RankBy, helpers: Helpers) -> Order:
    return Order(_by_mean(candidates))


def _distances(candidates: Sequence[Candidate]) -> list[float]:
    """Each candidate's distance from the median of the mean logprobs.

    The median is best, since the likeliest prose is repetitive (Zhang et al. 2020).
    """
    means = [one.mean_logprob for one in candidates]
    middle = median(means) if means else 0.0
    return [abs(mean - middle) for mean in means]


async def _typical(candidates: Sequence[Candidate], by: RankBy, helpers: Helpers) -> Order:
    distances = _distances(candidates)
    return Order(sorted(range(len(candidates)), key=distances.__getitem__))


async def _diverse(candidates: Sequence[Candidate], by: RankBy, helpers: Helpers) -> Order:
    """Maximal marginal relevance (Carbonell and Goldstein 1998): near the median, unlike the ones before.

    A candidate's value can only fall as more are chosen. So its old value is an upper bound, and it is
    compared with the chosen ones only when it comes first by that bound (Minoux's lazy greedy algorithm,
    1978).
    """
    slices, distances = Slices(), _distances(candidates)
    alike = await _alike(candidates, by, helpers, slices)
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
            similarity[i] = max(similarity[i], alike.pair(i, order[compared[i]]))
            compared[i] += 1
            value = RELEVANCE * relevance[i] - (1 - RELEVANCE) * similarity[i]
            if left and left[0] < (-value, i):
                break
        heappush(left, (-value, i))
        await slices.pause()
    return Order(order)


async def _medoid(candidates: Sequence[Candidate], by: RankBy, helpers: Helpers) -> Order:
    """Minimum Bayes risk (Kumar and Byrne 2004; Eikema and Aziz 2020): the most like all others, first."""
    slices = Slices()
    means = await (await _alike(candidates, by, helpers, slices)).means(slices)
    return Order(sorted(range(len(means)), key=lambda i: (-means[i], -candidates[i].mean_logprob)))


async def _alike(candidates: Sequence[Candidate], by: RankBy, helpers: Helpers, slices: Slices) -> Alike:
    texts = [one.text for one in candidates]
    return await Vectors.of(texts, helpers.embed) if by.needs_vectors else await Overlap.of(texts, slices)


async def _certain(candidates: Sequence[Candidate], by: RankBy, helpers: Helpers) -> Order:
    """Self-certainty (Kang et al. 2025): the text in which the model was the most certain of its tokens."""
    means = [one.stop.certainty or 0.0 if one.stop else 0.0 for one in candidates]
    return Order(sorted(range(len(means)), key=lambda i: -means[i]))


async def _judged(candidates: Sequence[Candidate], by: RankBy, helpers: Helpers) -> Order:
    """What a model answers about each text (Kadavath et al. 2022): the surest yes first."""
    margins = await helpers.judge([one.text for one in candidates])
    return Order(sorted(range(len(margins)), key=lambda i: (-margins[i], -candidates[i].mean_logprob)))


async def _followed(candidates: Sequence[Candidate], by: RankBy, helpers: Helpers) -> Order:
    """The text behind which the given one is the likeliest, first: it leads over to what stands there."""
    means = await helpers.follow([one.text for one in candidates])
    return Order(sorted(range(len(means)), key=lambda i: (-means[i], -candidates[i].mean_logprob)))


async def _rewarded(candidates: Sequence[Candidate], by: RankBy, helpers: Helpers) -> Order:
    """The text that answers best by a model that was trained to rank, first."""
    rewards = await helpers.reward([one.text for one in candidates])
    return Order(sorted(range(len(rewards)), key=lambda i: (-rewards[i], -candidates[i].mean_logprob)))


async def _vote(candidates: Sequence[Candidate], by: RankBy, helpers: Helpers) -> Order:
    """Self-consistency (Wang et al. 2022): the answer of most texts leads; its likeliest text is the best.

    Texts of an answer stand together. Of answers with as many texts the one with the likeliest text leads.
    Texts without an answer come last.
    """
    assert by.regex is not None
    answers = await in_thread(partial(answers_in, [one.text for one in candidates], by.regex))
    texts_of: dict[str, list[int]] = {}
    for i in _by_mean(candidates):
        if (answer := answers[i]) is not None:
            texts_of.setdefault(answer, []).append(i)
    leading = sorted(texts_of, key=lambda answer: -len(texts_of[answer]))  # stable: the likeliest stay first
    silent = [i for i in _by_mean(candidates) if answers[i] is None]
    votes = tuple(Vote(answer, len(texts_of[answer])) for answer in leading)
    return Order([i for answer in leading for i in texts_of[answer]] + silent, votes)


ORDERS: dict[str, Ranker] = {
    "logprob": _likeliest,
    "typical": _typical,
    "diversity": _diverse,
    "medoid": _medoid,
    "vote": _vote,
    "certainty": _certain,
    "judge": _judged,
    "following": _followed,
    "reward": _rewarded,
}


async def order(candidates: Sequence[Candidate], by: RankBy, helpers: Helpers = NO_HELPERS) -> Order:
    """The indices of all candidates, best first; duplicates and incomplete ones come last."""
    eligible = [i for i, one in enumerate(candidates) if one.is_eligible]
    rest = [i for i, one in enumerate(candidates) if not one.is_eligible]
    found = await ORDERS[by.name]([candidates[i] for i in eligible], by, helpers)
    return Order([eligible[i] for i in found.indices] + rest, found.votes)
