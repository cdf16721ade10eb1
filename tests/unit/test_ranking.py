"""best_of and rank_by: how candidates are scored and ordered, and when their events are sent."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from llama_srb.engine.events import (
    Again,
    Done,
    Error,
    Event,
    Extend,
    Progress,
    Start,
    Stop,
    Stream,
    Then,
    TokenList,
)
from llama_srb.engine.ranking import Rank, joining, ranking, similarity
from llama_srb.engine.ranking.candidates import distinct, words
from llama_srb.engine.ranking.similarity import Overlap, Slices
from llama_srb.request.parse import Defaults, request_from

A_CAT, THE_CAT, A_DOG = "a cat sat on a mat", "the cat sat on a mat", "dogs bark at night"


def stop(index: int, logprob: float, length: int = 10, **more: Any) -> Stop:
    return Stop("1", index, length, 1, more.pop("reason", "stop"), logprob=logprob, **more)


def run(texts: list[str], stops: list[Stop]) -> list[Event]:
    """The events of a request: each text in two pieces, then the stops, in this order."""
    pieces = [Stream("1", i, half) for i, text in enumerate(texts) for half in (text[:3], text[3:])]
    n = len(texts)
    return [Start("1", n, 5, 0, 7), *pieces, *stops, Done("1", n, 5, 0, 10 * n)]


def ranked(events: list[Event], **fields: Any) -> list[Event]:
    take = taking(**fields)
    return [made for event in events for made in take([event])]


def taking(max_held: int | None = None, **fields: Any) -> Callable[[list[Event]], list[Event]]:
    """Ranks a request's events without the pauses between slices."""
    take = ranking(request_from({"prompt": "x", **fields}, Defaults()), max_held)

    async def taken(events: list[Event]) -> list[Event]:
        return await take(events)

    return lambda events: asyncio.run(taken(events))


def said(events: list[Event]) -> dict[int, str]:
    texts: dict[int, str] = {}
    for event in events:
        if isinstance(event, Stream):
            texts[event.index] = texts.get(event.index, "") + event.text
    return texts


FOUR = run([A_CAT, THE_CAT, A_DOG, "x"], [stop(0, -11), stop(1, -10), stop(2, -14), stop(3, -40)])
# means: -1.1, -1.0, -1.4, -4.0; their median is -1.25
ORDERS = {
    "logprob": (1, 0, 2, 3),
    "typical": (0, 2, 1, 3),
    "diversity": (0, 2, 1, 3),
}


@pytest.mark.parametrize(("by", "order"), ORDERS.items(), ids=ORDERS)
def test_done_has_the_order(by: str, order: tuple[int, ...]) -> None:
    done = ranked(FOUR, n=4, rank_by=by)[-1]
    assert isinstance(done, Done)
    assert done.ranking == order


def test_the_likeliest_has_the_best_mean_by_token_not_the_best_sum() -> None:
    done = ranked(run(["a", "b"], [stop(0, -6, length=2), stop(1, -20, length=10)]), n=2, rank_by="logprob")[
        -1
    ]
    assert isinstance(done, Done)
    assert done.ranking == (1, 0)


def test_diversity_prefers_texts_unlike_the_chosen_ones() -> None:
    """THE_CAT is nearer to the median than A_DOG, but its text is like A_CAT's."""
    events = run([A_CAT, THE_CAT, A_DOG], [stop(0, -10), stop(1, -10.1), stop(2, -9.8)])
    orders = [ranked(events, n=3, rank_by=by)[-1].ranking for by in ("typical", "diversity")]  # type: ignore[union-attr]
    assert orders == [(0, 1, 2), (0, 2, 1)]


def test_with_n_equal_to_best_of_nothing_is_held_back() -> None:
    take = taking(n=4, rank_by="logprob")
    for event in FOUR[:-1]:
        (made,) = take([event])
        assert type(made) is type(event)
        assert made == event or isinstance(event, Stop)


def test_stops_have_their_scores() -> None:
    scored = next(event for event in ranked(FOUR, n=4, rank_by="typical") if isinstance(event, Stop))
    assert (scored.logprob, scored.mean_logprob, scored.distinct_2) == (-11, -1.1, 1.0)


def test_the_n_best_follow_best_first_once_all_are_over() -> None:
    made = ranked(FOUR, n=2, best_of=4)
    assert made[0] == Start("1", 2, 5, 0, 7)
    assert said(made) == {0: THE_CAT, 1: A_CAT}
    assert [type(event).__name__ for event in made] == ["Start", "Stream", "Stop", "Stream", "Stop", "Done"]
    assert made[-1] == Done("1", 2, 5, 0, 40, ranking=(0, 1))
    assert ranked(FOUR[:-1], n=2, best_of=4) == made[:1]


def test_progress_is_not_held_back() -> None:
    assert ranked([Progress("1", 5, 10)], n=1, best_of=2) == [Progress("1", 5, 10)]


def test_cancelled_ones_and_duplicates_come_last() -> None:
    stops = [stop(0, -1, reason="cancelled"), stop(1, -2, duplicate_of=2), stop(2, -30), stop(3, -20)]
    events = run(["a", "b", "b", "c"], stops)
    assert ranked(events, n=4, rank_by="logprob")[-1].ranking == (3, 2, 0, 1)  # type: ignore[union-attr]
    best = ranked(events, n=2, best_of=4)
    assert said(best) == {0: "c", 1: "b"}
    assert [event.duplicate_of for event in best if isinstance(event, Stop)] == [None, None]


def test_a_request_cancelled_before_it_was_sent_has_its_n_stops() -> None:
    stops = [Stop("1", i, 0, 0, "cancelled") for i in range(4)]
    made = ranked([*stops, Done("1", 4, 0, 0, 0)], n=2, best_of=4)
    assert [event.index for event in made if isinstance(event, Stop)] == [0, 1]
    assert isinstance(made[-1], Done)


def test_a_retried_sequence_is_ranked_by_its_last_text() -> None:
    events = run(["ab", "cd"], [stop(0, -1), stop(1, -2)])
    events[-3:-3] = [Again("1", 1), Stream("1", 1, "ef")]
    assert said(ranked(events, n=1, best_of=2, rank_by="typical")) in ({0: "ab"}, {0: "ef"})
    assert said(ranked(events, n=2, best_of=2, rank_by="logprob")) == {
        0: "ab",
        1: "cdef",
    }  # streamed live


def test_sequences_of_an_extend_are_ranked_too() -> None:
    events = [*FOUR[:-1], Extend("1", 4, 5), Stream("1", 4, "best"), stop(4, -1), Done("1", 5, 5, 0, 50)]
    assert said(ranked(events, n=1, best_of=4)) == {0: "best"}
    assert ranked(events, n=4, rank_by="logprob")[-1].ranking[0] == 4  # type: ignore[union-attr]


def test_without_ranking_events_pass_as_they_are() -> None:
    take = taking(n=4, best_of=4)
    assert take(FOUR) is FOUR


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("The cat's MAT.", ["the", "cat", "s", "mat"]),
        ("naïve Füße", ["naïve", "füße"]),
        ("狐が走る", ["狐", "が", "走", "る"]),
        ("", []),
    ],
)
def test_texts_are_compared_by_words(text: str, units: list[str]) -> None:
    assert words(text) == units


def test_distinct_2_is_the_share_of_different_word_pairs() -> None:
    assert distinct(words("a b a b a"), 2) == 0.5
    assert distinct(words("a"), 2) == 1.0


WORDS = [f"word{i}" for i in range(500)]


def many(n: int, n_words: int, likeness: float) -> list[Event]:
    """n texts of n_words words each, a share of them common to all texts."""
    dice = random.Random(7)
    first = dice.choices(WORDS, k=n_words)
    texts = [" ".join(w if dice.random() < likeness else dice.choice(WORDS) for w in first) for _ in range(n)]
    return run(texts, [stop(i, -10 - dice.random()) for i in range(n)])


@pytest.mark.parametrize(("n_words", "likeness"), [(60, 0.0), (300, 0.9), (1000, 0.5)])
async def test_a_thousand_texts_are_compared_in_slices(n_words: int, likeness: float) -> None:
    take = ranking(request_from({"prompt": "x", "n": 1024, "rank_by": "diversity"}, Defaults(max_n=1024)))
    ranked = asyncio.create_task(_taken(take, many(1024, n_words, likeness)))
    gc.collect()
    gc.freeze()  # so that no slice is interrupted to collect other tests' objects
    longest = 0.0
    while not ranked.done():
        began = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - began)
    gc.unfreeze()
    done = (await ranked)[-1]
    assert isinstance(done, Done)
    assert sorted(done.ranking) == list(range(1024))
    assert longest < 0.1


async def _taken(take: Any, events: list[Event]) -> list[Event]:
    made: list[Event] = await take(events)
    return made


def test_the_order_equals_that_of_comparing_all_pairs() -> None:
    events = many(200, 40, 0.5)
    texts = said(events)
    grams = {i: _grams_of(text) for i, text in texts.items()}
    means = {event.index: (event.logprob or 0) / 10 for event in events if isinstance(event, Stop)}
    middle = sorted(means.values())
    distances = {i: abs(mean - (middle[99] + middle[100]) / 2) for i, mean in means.items()}
    widest, chosen, alike = max(distances.values()), list[int](), dict.fromkeys(means, 0.0)
    while len(chosen) < 50:
        left = [i for i in means if i not in chosen]
        best = max(left, key=lambda i: (0.5 * (1 - distances[i] / widest) - 0.5 * alike[i], -i))
        chosen.append(best)
        for i in left:
            alike[i] = max(alike[i], len(grams[i] & grams[best]) / len(grams[i] | grams[best]))
    done = ranked(events, n=200, rank_by="diversity")[-1]
    assert isinstance(done, Done)
    assert list(done.ranking[:50]) == chosen


def _grams_of(text: str) -> set[tuple[str, ...]]:
    units = words(text)
    return {tuple(units[i : i + n]) for n in (1, 2, 3) for i in range(len(units) - n + 1)}


def test_held_back_events_are_bounded() -> None:
    token = {"id": 1, "text": " a", "logprob": -1.0, "top": [{"logprob": -1.0}] * 9}
    take = taking(100, n=1, best_of=2)
    assert take([Stream("1", 0, " a", TokenList.of([token] * 10))]) == []
    (error,) = take([Stream("1", 1, " a", TokenList.of([token]))])
    assert isinstance(error, Error)
    assert error.code == "answer_too_large"


def test_second_answers_are_ranked_by_their_own_tokens_and_texts() -> None:
    """length counts both answers, logprob is the second one's; a text begins after `then`."""
    events = run(
        ["same words", "same words"], [stop(0, -9.0, 30, free_length=20), stop(1, -8.0, 30, free_length=10)]
    )
    events[5:5] = [Then("1", 1, 10, 0, "length"), Stream("1", 1, "x x x")]
    made = ranked(events, n=2, rank_by="logprob", then={"text": "So:", "return_free": True})
    stops = [event for event in made if isinstance(event, Stop)]
    assert [one.mean_logprob for one in stops] == [-0.9, -0.4]
    assert [one.distinct_2 for one in stops] == [1.0, 0.5]
    assert isinstance(made[-1], Done)
    assert made[-1].ranking == (1, 0)


def test_the_text_between_two_answers_takes_the_place_of_then() -> None:
    events: list[Event] = [Stream("1", 1, "a"), Then("1", 1, 1, 0, "length"), Stream("1", 1, "b")]
    for then, expected in (({"return_free": True}, "a So:b"), ({}, "ab")):
        request = request_from({"prompt": "x", "n": 2, "then": {"text": " So:", **then}}, Defaults())
        made = asyncio.run(_taken(joining(request, ranking(request)), events))
        assert said(made) == {1: expected}


async def _taken(rank: Rank, events: list[Event]) -> list[Event]:
    return await rank(events)


def test_a_sample_of_n_grams_is_the_same_one_for_all_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that are in memory already are sampled again when others make the sample smaller."""
    text = " ".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=900))
    texts = [text, text, text + " " + text.upper()]
    whole = asyncio.run(Overlap.of(texts, Slices()))
    monkeypatch.setattr(similarity, "MAX_GRAMS", 500)
    sample = asyncio.run(Overlap.of(texts, Slices()))
    assert sample.pair(0, 1) == whole.pair(0, 1) == 1
    assert abs(sample.pair(0, 2) - whole.pair(0, 2)) < 0.1
