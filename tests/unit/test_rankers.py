"""The rankers beyond logprob: votes, medoids, vectors; and diversity_stats."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from llama_srb.dialects.anthropic.answer import stopped
from llama_srb.dialects.common.response_types import cut_of, finish_of
from llama_srb.engine.events import Done, Error, Event, Extend, Score, Stop, Stream, Vote
from llama_srb.engine.exchange import CommandRefused
from llama_srb.engine.ranking import ranking
from llama_srb.engine.ranking.judging import margins
from llama_srb.engine.ranking.orders import NO_HELPERS, Helpers
from llama_srb.engine.ranking.votes import VoteTooSlow, answers_in
from llama_srb.request.finish import Finish, Prune
from llama_srb.request.parse import Defaults, request_from
from llama_srb.request.rank_by import RankBy
from llama_srb.request.values import RequestError
from tests.support.rows import each_row

NUMBER: dict[str, Any] = {"vote": {"regex": r"\d+"}}


def run(*texts: str, means: Sequence[float] = (), reasons: Sequence[str] = ()) -> list[Event]:
    """The events of a request: texts whose tokens have these mean logprobs, and these finish_reasons."""
    events: list[Event] = [Stream("1", i, text) for i, text in enumerate(texts)]
    for i in range(len(texts)):
        reason = reasons[i] if reasons else "stop"
        events.append(Stop("1", i, 10, 1, reason, logprob=10 * (means[i] if means else -1.0)))
    return [*events, Done("1", len(texts), 5, 0, 10)]


def taken(events: list[Event], helpers: Helpers = NO_HELPERS, **fields: Any) -> list[Event]:
    request = request_from({"prompt": "x", **fields}, Defaults())
    return asyncio.run(ranking(request, None, helpers)(events))


def done(events: list[Event], helpers: Helpers = NO_HELPERS, **fields: Any) -> Done:
    last = taken(events, helpers, **{"n": len(events) // 2, **fields})[-1]
    assert isinstance(last, Done)
    return last


# Votes


@each_row(
    ("pattern", "text", "answer"),
    [
        (r"\d+", "3 and 4 make 70", "70"),
        (r"answer: (\w+)", "answer: yes, no, answer: no", "no"),
        (r"(a)|b", "a b", "a"),  # the last match has no first group
        (r"(?:a|b)", "a b c", "b"),
        (r"\d*", "12 apples", "12"),  # empty matches follow
        (r"\d+", "none", None),
        (r"\d*", "none", None),
        (r"x", "", None),
        (r"é+", "caféé, thé", "é"),
        (r"^a", "a a", "a"),
        (r"(?s)answer(.*)", "answer 1\nanswer 2", " 1\nanswer 2"),
        (r"(?i)YES", "yes", "yes"),
    ],
)
def test_a_texts_answer_is_its_last_match(pattern: str, text: str, answer: str | None) -> None:
    assert answers_in([text], pattern) == [answer]


def test_the_answer_of_most_texts_leads_with_its_likeliest_text() -> None:
    texts = ["is 4", "is 5", "so 4", "no idea", "5 or 4", "it is 6"]
    found = done(run(*texts, means=[-3, -1, -2, -0.5, -4, -0.9]), rank_by=NUMBER)
    assert found.ranking == (2, 0, 4, 5, 1, 3)
    assert found.votes == (Vote("4", 3), Vote("6", 1), Vote("5", 1))


def test_the_winner_of_a_vote_is_the_best_of_m() -> None:
    events = run("is 4", "is 5", "so 4", "7", means=[-3, -1, -2, -0.5])
    made = taken(events, n=1, best_of=4, rank_by=NUMBER)
    assert [event.text for event in made if isinstance(event, Stream)] == ["so 4"]
    assert isinstance(made[-1], Done)
    assert made[-1].votes[0] == Vote("4", 2)


def test_incomplete_texts_do_not_vote() -> None:
    reasons = ["cancelled", "timeout", "stop", "length"]
    found = done(run("4", "4", "5", "x", reasons=reasons), rank_by=NUMBER)
    assert found.votes == (Vote("5", 1),)
    assert found.ranking[0] == 2


def test_texts_of_an_extend_vote() -> None:
    events = run("4", "5", means=[-2, -1])
    events[-1:] = [
        Extend("1", 2, 3),
        Stream("1", 2, "4"),
        Stop("1", 2, 10, 1, "stop", logprob=-90),
        events[-1],
    ]
    assert done(events, n=2, rank_by=NUMBER).ranking == (0, 2, 1)


def test_a_vote_without_an_answer_orders_by_logprob() -> None:
    found = done(run("a", "b", means=[-2, -1]), rank_by=NUMBER)
    assert (found.ranking, found.votes) == ((1, 0), ())


SLOW = r"(a|b)*a(a|b){400}c|a"  # more states than its memory holds, and each match begins another search


def test_a_pattern_that_takes_too_long_ends_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llama_srb.engine.ranking.votes.MOST_SECONDS", 0.2)
    events = run("ab" * 20_000, "a")
    last = taken(events, n=2, rank_by={"vote": {"regex": SLOW}})[-1]
    assert isinstance(last, Error)
    assert (last.code, last.id, last.param) == ("invalid_request", "1", "rank_by")
    assert last.message == (
        "the texts were not ranked: the vote's pattern took more than 0.2 s; use a simpler one"
    )
    with pytest.raises(VoteTooSlow):
        answers_in(["ab" * 20_000], SLOW)


async def test_other_requests_run_during_a_slow_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llama_srb.engine.ranking.votes.MOST_SECONDS", 1.0)
    request = request_from({"prompt": "x", "n": 1, "rank_by": {"vote": {"regex": SLOW}}}, Defaults())
    voting = asyncio.ensure_future(ranking(request)(run("ab" * 20_000)))
    turns, began = 0, time.perf_counter()
    while not voting.done():
        await asyncio.sleep(0.005)
        turns += 1
    assert isinstance((await voting)[-1], Error)
    assert turns > 0.25 * (time.perf_counter() - began) / 0.005


# Medoids

A, B, C, OTHER = "a cat sat on a mat", "a cat sat on the mat", "a cat sat on a hat", "dogs bark at night"


def test_the_medoid_is_most_like_all_others() -> None:
    assert done(run(OTHER, B, A, C), rank_by="medoid").ranking == (2, 3, 1, 0)
    assert done(run("a", "a", means=[-2, -1]), rank_by={"medoid": {}}).ranking == (1, 0)


VECTORS = {A: (1.0, 0.0), B: (0.8, 0.6), C: (0.6, 0.8), OTHER: (0.0, 1.0)}


async def by_table(texts: Sequence[str]) -> list[Sequence[float]]:
    return [VECTORS[text] for text in texts]


BY_TABLE = Helpers(embed=by_table)


def test_embeddings_take_the_place_of_overlap() -> None:
    by = {"medoid": {"by": "embeddings"}}
    means = {t: sum(v[0] * w[0] + v[1] * w[1] for u, w in VECTORS.items() if u != t)
             for t, v in VECTORS.items()}  # fmt: skip
    texts = [A, OTHER, B, C]
    expected = sorted(range(4), key=lambda i: -round(means[texts[i]], 6))
    assert done(run(*texts), BY_TABLE, rank_by=by).ranking == tuple(expected) == (2, 3, 0, 1)


def test_diversity_by_embeddings_is_maximal_marginal_relevance_by_cosines() -> None:
    """All are equally near the median, so after the first the one with the lowest cosine follows."""
    found = done(run(A, B, C, OTHER), BY_TABLE, rank_by={"diversity": {"by": "embeddings"}})
    assert found.ranking == (0, 3, 1, 2)


def test_a_text_without_words_has_no_vector_and_is_last() -> None:
    assert done(run(" ", A, B), BY_TABLE, rank_by={"medoid": {"by": "embeddings"}}).ranking == (1, 2, 0)
    assert done(run(" ", "\n"), BY_TABLE, rank_by={"medoid": {"by": "embeddings"}}).ranking == (0, 1)


async def refusing(texts: Sequence[str]) -> list[Sequence[float]]:
    raise CommandRefused(Error("context_exceeded", "text 0 has 900 tokens; it may have 512"))


@pytest.mark.parametrize("fields", [{"n": 2}, {"n": 1, "best_of": 2}], ids=str)
def test_a_refusal_of_the_embedding_model_ends_the_request(fields: dict[str, Any]) -> None:
    by = {"medoid": {"by": "embeddings"}}
    last = taken(run(A, B), Helpers(embed=refusing), **fields, rank_by=by)[-1]
    message = "the texts were not ranked: text 0 has 900 tokens; it may have 512"
    assert last == Error("context_exceeded", message, "1", param="rank_by")


# Certainty, judges


def test_the_certain_come_first() -> None:
    events = [
        Stop("1", i, 3, 1, "stop", logprob=-3.0, certainty=one) for i, one in enumerate((5.0, 9.0, 7.0))
    ]
    last = taken([*events, Done("1", 3, 5, 0, 9)], n=3, rank_by="certainty")[-1]
    assert isinstance(last, Done)
    assert last.ranking == (1, 2, 0)


JUDGE: dict[str, Any] = {"judge": {"prompt": "Is it good?\n{text}\nAnswer:", "answers": [" yes", " no"]}}


async def by_length(texts: Sequence[str]) -> list[float]:
    return [float(len(text)) for text in texts]


def test_the_surest_praise_comes_first_then_the_likelier_text() -> None:
    found = done(
        run("aa", "b", "cccc", "dd", means=[-2, -1, -1, -1]), Helpers(judge=by_length), rank_by=JUDGE
    )
    assert found.ranking == (2, 3, 0, 1)


@pytest.mark.parametrize("fields", [{}, {"n": 1, "best_of": 4}], ids=str)
def test_an_abort_while_a_model_ranks_keeps_the_texts_the_likeliest_first(fields: dict[str, Any]) -> None:
    async def aborted(texts: Sequence[str]) -> list[float]:
        raise CommandRefused(Error("cancelled", "POST /v1/abort of the same client has ended it"))

    *events, last = taken(
        run("aa", "b", "cccc", "dd", means=[-2, -1, -3, -4]),
        Helpers(judge=aborted),
        **{"n": 4, **fields, "rank_by": JUDGE},
    )
    assert isinstance(last, Done)
    texts = {event.index: event.text for event in events if isinstance(event, Stream)}
    assert [texts[i] for i in last.ranking or ()] == ["b", "aa", "cccc", "dd"][: len(texts)]


def test_a_question_has_the_text_in_each_place() -> None:
    by = RankBy("judge", prompt="{text}? {text}!", answers=("a", "b"))
    assert by.question("{text}") == "{text}? {text}!"
    assert by.question("So") == "So? So!"


class Scorer:
    """A pool that scores answers: the more letters, the surer."""

    def __init__(self) -> None:
        self.running = self.most = 0

    @contextlib.asynccontextmanager
    async def run(self, op: str, prompt: str, texts: list[str]) -> AsyncIterator[AsyncIterator[list[Event]]]:
        self.running += 1
        self.most = max(self.most, self.running)
        yield self._events(op, prompt, texts)
        self.running -= 1

    async def _events(self, op: str, prompt: str, texts: list[str]) -> AsyncIterator[list[Event]]:
        assert op == "score"
        await asyncio.sleep(0)
        if prompt == "refused":
            yield [Error("context_exceeded", "too long", "7")]
            return
        yield [Score("7", i, 1, (-1.0 if i else 1.0) * len(prompt), True) for i in range(len(texts))]
        yield [Done("7", len(texts), 1, 0, 1)]


def test_margins_are_those_of_the_two_answers_a_few_at_once() -> None:
    scorer, prompts = Scorer(), ["a" * length for length in (3, 1, 2, 5, 4)]
    found = asyncio.run(margins(scorer, prompts, str, ("yes", "no"), 2))  # type: ignore[arg-type]
    assert found == [6.0, 2.0, 4.0, 10.0, 8.0]
    assert scorer.most == 2


def test_a_refused_question_ends_the_ranking() -> None:
    with pytest.raises(CommandRefused, match="too long"):
        asyncio.run(margins(Scorer(), ["a", "refused", "b"], str, ("yes", "no"), 2))  # type: ignore[arg-type]


# Decided votes


def ended_after(*texts: str, n: int, **fields: Any) -> int | None:
    """After how many ended texts the rest is ended; None: never."""
    ends = list[int]()
    request = request_from(
        {"prompt": "x", "n": n, "rank_by": NUMBER, "finish": {"vote_decided": True}, **fields}, Defaults()
    )

    async def pass_all() -> None:
        count = 0
        rank = ranking(request, end_surplus=lambda: ends.append(count))
        for i, text in enumerate(texts):
            count += 1
            await rank([Stream("1", i, text), Stop("1", i, 3, 1, "stop", logprob=-1.0)])

    asyncio.run(pass_all())
    assert len(ends) <= 1
    return ends[0] if ends else None


@each_row(
    ("texts", "n", "after"),
    [
        (("4", "4", "4"), 4, 3),
        (("4", "4", "5"), 4, None),  # the last text may still make a tie
        (("4", "4", "5", "4"), 5, 4),
        (("4", "none", "4", "none"), 5, 4),  # texts without an answer are out
        (("none",) * 3, 3, None),
        (("4",), 1, 1),
    ],
)
def test_a_vote_is_decided_when_no_answer_can_overtake(
    texts: tuple[str, ...], n: int, after: int | None
) -> None:
    assert ended_after(*texts, n=n) == after
    assert ended_after(*texts, n=1, best_of=n) == after


def test_a_vote_that_need_not_be_decided_ends_nothing() -> None:
    assert ended_after("4", "4", "4", n=4, finish=None) is None


# The fields


@each_row(
    ("fields", "message"),
    [
        ({"rank_by": {"judge": {"answers": ["a", "b"]}}}, "rank_by.judge.prompt is missing"),
        ({"rank_by": {"judge": {"prompt": "{text}"}}}, "rank_by.judge.answers is missing"),
        ({"rank_by": {"judge": {"prompt": "x", "answers": ["a", "b"]}}}, "a text with {text} in the place"),
        (
            {"rank_by": {"judge": {"prompt": "{text}" * 5, "answers": ["a", "b"]}}},
            "5 times; it may have it 4",
        ),
        (
            {"rank_by": {"judge": {"prompt": "{text}" + "x" * 10**5, "answers": ["a", "b"]}}},
            "may have 100000",
        ),
        ({"rank_by": {"judge": {"prompt": "{text}", "answers": ["a"]}}}, "two different texts, the praise"),
        ({"rank_by": {"judge": {"prompt": "{text}", "answers": ["a", "a"]}}}, "two different texts"),
        ({"rank_by": {"judge": {"prompt": "{text}", "answers": ["a", ""]}}}, "two different texts"),
        ({"rank_by": {"judge": {**JUDGE["judge"], "by": "x"}}}, "rank_by.judge has no field"),
        ({"rank_by": "judge"}, "rank_by.judge.prompt is missing"),
        ({"rank_by": "following"}, "rank_by.following.text is missing"),
        ({"rank_by": {"following": {"text": ""}}}, 'text is ""; it must be the text that is to follow'),
        ({"rank_by": {"following": {"text": "x" * 10001}}}, "10001 characters; it may have 10000"),
        ({"rank_by": {"following": {"text": "x"}}, "prompt": [1, 2]}, "a prompt that is one text"),
        ({"end": 6}, "end is 6; it must be an object: sentences, paragraphs"),
        ({"end": {"sentences": 0}}, "end.sentences is 0; it must be between 1 and 1000"),
        ({"end": {"paragraphs": "2"}}, 'end.paragraphs is "2"; it must be a whole number between 1 and 1000'),
        ({"end": {"lines": 1}}, 'end has no field "lines", only sentences, paragraphs'),
        ({"end": {"sentences": 1, "paragraphs": 1}}, "only one of end.sentences and end.paragraphs"),
        ({"finish": 6}, "finish is 6; it must be an object: first, vote_decided"),
        ({"finish": {"first": 0}}, "finish.first is 0; it must be between 1 and 100000"),
        ({"finish": {"first": 9}}, "finish.first is 9; it must be between 1 and the number of texts, 4"),
        ({"finish": {"frist": 1}}, 'finish has no field "frist", only first, vote_decided'),
        ({"finish": {"vote_decided": 1}}, "finish.vote_decided is 1; it must be true or false"),
        ({"finish": {"vote_decided": True}}, "finish.vote_decided is true, but rank_by is not a vote"),
        ({"prune": {"keep": 1}}, "prune.at is missing"),
        ({"prune": {"at": [8]}}, "prune.keep is missing"),
        ({"prune": {"at": 8, "keep": 1}}, "prune.at is 8; it must be a list of 1 to 16 rising numbers"),
        ({"prune": {"at": [], "keep": 1}}, "prune.at is []"),
        ({"prune": {"at": [8, 8], "keep": 1}}, "prune.at is [8, 8]"),
        ({"prune": {"at": [0], "keep": 1}}, "prune.at is 0"),
        ({"prune": {"at": list(range(1, 18)), "keep": 1}}, "it must be a list of 1 to 16 rising numbers"),
        (
            {"prune": {"at": [8], "keep": 5}},
            "prune.keep is 5; it must be between 1 and the number",
        ),
        ({"prune": {"at": [8], "keep": 1, "by": "typical"}}, "it must be one of certainty, logprob"),
    ],
    ids=str,
)
def test_wrong_fields_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as refused:
        request_from({"prompt": "x", "n": 4, **fields}, Defaults())
    assert message in refused.value.message
    assert refused.value.param is not None
    assert refused.value.param.partition(".")[0] in fields


def test_fields_may_be_text_and_an_empty_finish_is_none() -> None:
    fields = {"finish": '{"first": 2}', "prune": '{"at": [8, 16.0], "keep": 2}'}
    request = request_from({"prompt": "x", "n": 4, **fields}, Defaults())
    assert (request.finish, request.prune) == (Finish(2), Prune((8, 16), 2))
    assert request_from({"prompt": "x", "finish": {"vote_decided": False}}, Defaults()).finish is None


def test_rank_by_is_a_name_or_an_object_or_that_as_text() -> None:
    medoid = RankBy("medoid", "embeddings", "mini")
    given = {"medoid": {"by": "embeddings", "model": "mini"}}
    for value in (given, json.dumps(given)):
        assert request_from({"prompt": "x", "rank_by": value}, Defaults()).rank_by == medoid
    for name in ("logprob", "typical", "diversity", "medoid"):
        for value in (name, {name: {}}, {name: {}}):
            assert request_from({"prompt": "x", "rank_by": value}, Defaults()).rank_by == RankBy(name)


# diversity_stats


def stats(*texts: str, **fields: Any) -> Any:
    return done(run(*texts), diversity_stats=True, **fields).diversity_stats


def test_equal_texts_are_one_cluster() -> None:
    found = stats(A, A, A)
    assert (found.texts, found.beginnings, found.mean_overlap) == (3, 1, 1.0)
    assert found.effective_number == pytest.approx(1.0)


def test_texts_without_common_words_are_as_many_as_they_are() -> None:
    found = stats("one two", "three four", "five six", "seven")
    assert (found.beginnings, found.mean_overlap) == (4, 0.0)
    assert found.effective_number == pytest.approx(4.0)


def test_the_effective_number_is_exp_of_the_entropy_of_cluster_sizes() -> None:
    """Three texts are equal but for case and marks."""
    found = stats(A, A + ".", A.upper(), OTHER)
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert found.effective_number == pytest.approx(math.exp(entropy))
    assert found.mean_overlap == pytest.approx(3 / 6)


def test_beginnings_are_three_words_without_marks_and_capitals() -> None:
    assert stats("Once, upon a time", "once upon a mat", "Once upon the").beginnings == 2


def test_one_text_has_no_overlap() -> None:
    found = stats(A)
    assert (found.texts, found.beginnings, found.mean_overlap, found.effective_number) == (1, 1, None, 1.0)


def test_incomplete_texts_do_not_count() -> None:
    events = run(A, B, reasons=["cancelled", "stop"])
    found = done(events, diversity_stats=True).diversity_stats
    assert found is not None
    assert found.texts == 1
    none = done(run(A, reasons=["timeout"]), n=1, diversity_stats=True).diversity_stats
    assert none is not None
    assert (none.texts, none.beginnings, none.mean_overlap, none.effective_number) == (0, 0, None, 0.0)


def test_only_returned_texts_count() -> None:
    made = taken(run(A, A, OTHER, means=[-1, -2, -3]), n=2, best_of=3, diversity_stats=True)
    assert isinstance(made[-1], Done)
    assert made[-1].diversity_stats is not None
    assert made[-1].diversity_stats.texts == 2
    assert made[-1].diversity_stats.mean_overlap == 1.0
    assert made[-1].ranking == (0, 1)


def test_without_the_field_nothing_is_compared() -> None:
    assert done(run(A, B), rank_by="logprob").diversity_stats is None


def test_clusters_are_of_texts_that_overlap_by_a_third_or_by_way_of_others() -> None:
    """1 and 2 have 6 of 12 n-grams in common, 2 and 3, too; 1 and 3 have 3 of 15."""
    one, two, three = "a b c d", "b c d e", "c d e f"
    assert stats(one, three).effective_number == pytest.approx(2.0)
    assert stats(one, two, three).effective_number == pytest.approx(1.0)


# Why a text was ended


@pytest.mark.parametrize("reason", ["surplus", "pruned"])
def test_apis_of_one_text_say_it_in_their_own_place(reason: str) -> None:
    stop = Stop("1", 0, 3, 0, reason)
    assert stopped(stop, (), called=False)["stop_reason"] == reason
    assert stopped(stop, (), called=True)["stop_reason"] == reason
    assert (finish_of(stop), cut_of(stop)) == (reason, reason)


def test_other_ends_are_no_cuts() -> None:
    for reason in ("stop", "length", "cancelled", "timeout"):
        assert cut_of(Stop("1", 0, 3, 0, reason)) is None
    assert finish_of(Stop("1", 0, 3, 0, "cancelled")) == "length"
    assert cut_of(None) is None
