"""The server's memory of generations that KoboldCpp's clients poll, and its bounds."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from llama_srb.dialects import koboldai
from llama_srb.dialects.koboldai import GenerationRecord
from llama_srb.engine.events import Again, Done, Extend, Start, Stream, TokenList
from llama_srb.engine.exchange import Exchange
from llama_srb.request.fields import CompletionRequest
from llama_srb.serving.watchlist import MOST, MOST_BYTES, SHARE_BYTES, Watched, Watchlist

TEXT = "a" * 1000


def seen(n: int = 1, logprobs: int | None = None, prompt: str = "x") -> GenerationRecord:
    return GenerationRecord(CompletionRequest(prompt=prompt, n=n, logprobs=logprobs))


def said(index: int, text: str, alternatives: int | None = None) -> Stream:
    """A stream event; with logprobs a token of so many alternatives."""
    if alternatives is None:
        return Stream("", index, text)
    top = [{"id": i, "text": f" {i}", "logprob": -float(i)} for i in range(alternatives)]
    return Stream("", index, text, TokenList.of([{"id": 7, "text": text, "logprob": -1.0, "top": top}]))


def texts(one: GenerationRecord) -> list[str]:
    return [result["text"] for result in koboldai.so_far(one)["results"]]


def logprobs(one: GenerationRecord) -> Any:
    return orjson.loads(koboldai.last_logprobs(one, one.tokens()))


@pytest.fixture
async def watchlist() -> Watchlist:
    return Watchlist()


def add(
    watchlist: Watchlist, client: str, genkey: str, one: GenerationRecord, *, runs: bool = True
) -> Watched:
    generation = Exchange(genkey, b"", client=client)
    watched = watchlist.add(genkey, generation, one)
    watched.generation = generation if runs else None
    return watched


def total(watchlist: Watchlist) -> int:
    return watchlist.sizes.total()


# One generation


def test_all_texts_and_the_first_texts_tokens_are_shown() -> None:
    one = seen(2, logprobs=2)
    one.take([Start("", 2, 3, 0, 11), said(0, " ä", 2), said(1, " b", 2), said(0, " c", 2)])
    assert texts(one) == [" ä c", " b"]
    told = logprobs(one)["logprobs"]
    assert told["tokens"] == [" ä", " c"]
    assert [list(top) for top in told["top_logprobs"]] == [[" 1", " 0"]] * 2
    assert one.start == Start("", 2, 3, 0, 11)


def test_a_retried_text_is_forgotten_and_an_added_one_is_shown() -> None:
    one = seen(1, logprobs=0)
    one.take([said(0, "old", 0), Again("", 0), Extend("", 1, 2), said(0, "new", 0), said(1, "more", 0)])
    assert texts(one) == ["new", "more"]
    assert logprobs(one)["logprobs"]["tokens"] == ["new"]
    fresh = seen(2, logprobs=0)
    fresh.take([said(0, "new", 0), said(1, "more", 0)])
    assert one.size == fresh.size


def test_no_field_of_the_request_is_kept() -> None:
    assert seen(prompt="x" * 1_000_000).size < 100


def test_it_forgets_the_alternatives_then_the_tokens_then_the_texts_and_says_so() -> None:
    one = seen(2, logprobs=50)
    for expected in ("", "alternatives", "tokens", "texts"):
        one.take([said(0, TEXT, 50), said(1, TEXT, 50), Done("", 2, 3, 0, 2, {}, (0, 1))])
        shown = koboldai.so_far(one) | logprobs(one)
        assert expected in "".join(shown.get("warnings", ()))
        before = one.size
        assert one.shrink() == (expected != "texts")
        assert one.size < before or expected == "texts"
    assert texts(one) == ["", ""]
    assert koboldai.so_far(one)["warnings"]
    assert logprobs(one)["logprobs"] is None
    assert one.done == Done("", 2, 3, 0, 2), "without a ranking, which may be long"


# All generations


async def test_an_endless_generation_stays_within_its_clients_share(watchlist: Watchlist) -> None:
    watched = add(watchlist, "ann", "K", seen(4, logprobs=100))
    largest = 0
    for _ in range(2000):
        watchlist.take(watched, [said(index, TEXT, 100) for index in range(4)])
        largest = max(largest, total(watchlist))
    assert largest <= SHARE_BYTES
    assert watchlist.find("ann", "K") is watched, "it can be ended"


async def test_the_oldest_ended_generation_is_forgotten_before_any_running_one(watchlist: Watchlist) -> None:
    for genkey in ("first", "second"):
        over = add(watchlist, "ann", genkey, seen())
        watchlist.take(over, [said(0, "a" * (SHARE_BYTES * 2 // 5))])
        over.generation = None
    running = add(watchlist, "ann", "running", seen(logprobs=0))
    watchlist.take(running, [said(0, "a" * (SHARE_BYTES // 5), 0)])
    assert [watched.key[1] for watched in watchlist.of("ann")] == ["second", "running"]
    assert "warnings" not in logprobs(running.record)


async def test_one_clients_generations_push_out_no_other_clients(watchlist: Watchlist) -> None:
    other = add(watchlist, "bob", "K", seen(logprobs=1), runs=False)
    watchlist.take(other, [said(0, "kept", 1)])
    for number in range(2 * MOST):
        watched = add(watchlist, "ann", str(number), seen(16, logprobs=100), runs=number % 2 > 0)
        watchlist.take(watched, [said(index, TEXT, 100) for index in range(16)])
    assert total(watchlist) <= 2 * SHARE_BYTES
    assert texts(other.record) == ["kept"]
    assert logprobs(other.record)["logprobs"]["top_logprobs"] == [{" 0": 0.0}]


async def test_all_clients_together_are_bounded(watchlist: Watchlist) -> None:
    for number in range(40):
        watched = add(watchlist, f"client {number}", "K", seen(), runs=number % 2 > 0)
        watchlist.take(watched, [said(0, "a" * (SHARE_BYTES - 1000))])
    assert MOST_BYTES // 2 < total(watchlist) <= MOST_BYTES


async def test_many_sequences_without_text_are_bounded(watchlist: Watchlist) -> None:
    for number in range(MOST):
        watchlist.take(add(watchlist, "ann", str(number), seen(1024)), [])
    assert total(watchlist) <= SHARE_BYTES


async def test_a_replaced_generation_of_the_same_name_grows_no_more(watchlist: Watchlist) -> None:
    before, _ = add(watchlist, "ann", "K", seen()), add(watchlist, "ann", "K", seen())
    watchlist.take(before, [said(0, TEXT)])
    assert texts(before.record) == [""]


def test_the_length_of_a_name_is_bounded() -> None:
    assert koboldai.genkey_of({"genkey": "K" * 128})
    with pytest.raises(Exception, match="genkey"):
        koboldai.genkey_of({"genkey": "K" * 129})


def test_the_size_of_a_record_falls_with_what_is_removed_and_counts_empty_texts() -> None:
    one = seen(n=100, logprobs=2)
    one.take([said(0, TEXT, 2), said(1, TEXT)])
    sizes = [one.size]
    while one.shrink():
        sizes.append(one.size)
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes) == 4
    assert sizes[2] - 2 * len(TEXT) > 32 * 100, "an empty text has a size"
    assert sizes[3] < 16 * 100, "texts that were removed share one"
