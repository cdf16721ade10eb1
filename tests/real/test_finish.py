"""finish and prune over HTTP, with the real engine and the bundled model."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from llama_srb import Client
from llama_srb.client.events import Stop, Text
from tests.real.test_cli import complete
from tests.support.rows import each_row
from tests.support.serving import Server

PROMPT = "Once upon a time, there was a"
ONCE: dict[str, Any] = {"prompt": PROMPT, "n": 8, "max_tokens": 60, "seed": 3}
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "prompt": None}
VOTE = {"vote": {"regex": "(?i)(the|a)"}}


def ends(server: Server, **fields: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The stop events by index, and done."""
    *events, done = server.events({**ONCE, **fields})
    assert done["event"] == "done", done
    stops = [event for event in events if event["event"] == "stop"]
    assert sorted(stop["index"] for stop in stops) == list(range(done["count"]))
    return sorted(stops, key=lambda stop: int(stop["index"])), done


def reasons(stops: list[dict[str, Any]]) -> Counter[str]:
    return Counter(stop["finish_reason"] for stop in stops)


@pytest.mark.parametrize("more", [{}, {"grammar": "root ::= [a-z ]+"}, {"n": 40}], ids=str)
def test_the_rest_ends_with_the_first(server: Server, more: dict[str, Any]) -> None:
    lengths = [5 + 3 * i for i in range(more.get("n", 8))]
    own = [{"max_tokens": length} for length in lengths]
    fields = {"ignore_eos": True, **more, "sequences": own, "diversity": "none"}
    stops, done = ends(server, **fields, finish={"first": 3})
    assert reasons(stops) == {"length": 3, "surplus": len(lengths) - 3}
    first = max(stop["length"] for stop in stops if stop["finish_reason"] == "length")
    assert first == 11  # 5, 8 and 11 tokens: however many slots there are
    lost = sum(length - stop["length"] for length, stop in zip(lengths, stops, strict=True))
    assert done["timings"]["saved_tokens"] == lost
    assert done["completion_tokens"] == sum(stop["length"] for stop in stops)


def test_texts_are_the_same_until_they_are_ended(server: Server) -> None:
    """Nothing that ends others changes a draw."""
    fields = {"diversity": "none", "temperature": 1.0, "ignore_eos": True}
    whole, cut = (texts(server, **fields, **more) for more in ({}, {"prune": {"at": [8, 20], "keep": 3}}))
    assert len(cut) == len(whole) == 8
    same = [all_of.startswith(one) for all_of, one in zip(whole, cut, strict=True)]
    assert sum(same) >= 6  # the shape of a batch may change a late token


def texts(server: Server, **fields: Any) -> list[str]:
    made = dict.fromkeys(range(8), "")
    for event in server.events({**ONCE, **fields}):
        if event["event"] == "stream":
            made[event["index"]] += event["text"]
    return list(made.values())


@pytest.mark.parametrize("by", ["certainty", "logprob"])
def test_the_best_go_on(server: Server, by: str) -> None:
    """At the mark all texts have 12 tokens; those that go on are the best of texts that end there."""
    fields: dict[str, Any] = {"diversity": "none", "ignore_eos": True, "rank_by": by, "cache": False}
    short, _ = ends(server, **fields, max_tokens=12)
    score = (lambda stop: stop["certainty"]) if by == "certainty" else (lambda stop: stop["logprob"])
    best = {stop["index"] for stop in sorted(short, key=score, reverse=True)[:3]}
    stops, done = ends(server, **fields, max_tokens=40, prune={"at": [12], "keep": 3, "by": by})
    assert reasons(stops) == {"length": 3, "pruned": 5}
    assert {stop["index"] for stop in stops if stop["finish_reason"] == "length"} == best
    assert all(stop["length"] == 12 for stop in stops if stop["finish_reason"] == "pruned")
    assert done["timings"]["saved_tokens"] == 5 * 28
    assert set(done["ranking"][:3]) == best  # what was cut short comes last


def test_more_texts_than_slots_do_not_wait(server: Server) -> None:
    """Of 60 texts in waves, at most those go on that 2 earlier ones do not beat."""
    stops, _ = ends(server, n=60, ignore_eos=True, diversity="none", max_tokens=24,
                    prune={"at": [6], "keep": 2})  # fmt: skip
    assert reasons(stops).keys() == {"length", "pruned"}
    assert 2 <= reasons(stops)["length"] <= 20
    assert all(stop["length"] == 6 for stop in stops if stop["finish_reason"] == "pruned")


def test_what_was_ended_can_be_continued(server: Server) -> None:
    *events, done = server.events({**ONCE, "ignore_eos": True, "prune": {"at": [10], "keep": 1}})
    start = next(event for event in events if event["event"] == "start")
    pruned = next(event for event in events if event.get("finish_reason") == "pruned")
    assert done["event"] == "done"
    again = {"continue": {"id": start["id"], "index": pruned["index"]}, "n": 2, "max_tokens": 5}
    *_, end = server.events(again)
    assert end["event"] == "done"
    assert end["prompt_tokens"] == done["prompt_tokens"] + 10
    assert end["cached_tokens"] >= done["prompt_tokens"]


def test_a_sequence_may_be_cancelled_while_others_wait(server: Server) -> None:
    """The last one to come to the mark is cancelled: the others go on."""
    slow = {"banned_strings": ["zebra"]}
    with Client(server.url) as client, client.stream(
        prompt=PROMPT, n=4, max_tokens=400, ignore_eos=True, prune={"at": [300], "keep": 2}, **slow
    ) as stream:  # fmt: skip
        for event in stream:
            if isinstance(event, Text):
                stream.cancel(0)
                break
        ended = [event for event in stream if isinstance(event, Stop)]
    found = Counter(stop.finish_reason for stop in ended)
    assert found == {"cancelled": 1, "pruned": 1, "length": 2}


# A vote


@pytest.mark.parametrize("more", [{}, {"n": 1, "best_of": 16}], ids=str)
def test_a_decided_vote_ends_the_rest(server: Server, more: dict[str, Any]) -> None:
    """Half of the texts end with the answer after 3 tokens, the others would take 400."""
    own = {"sequences": [{"max_tokens": 3 if i < 10 else 400} for i in range(16)]} if not more else {}
    vote = {"vote": {"regex": "[a-z]"}} if more else {"vote": {"regex": "(.)"}}
    fields: dict[str, Any] = {"n": 16, **own, "ignore_eos": True, "diversity": "none", **more}
    fields |= {"grammar": 'root ::= "a"+', "rank_by": vote, "finish": {"vote_decided": True}}
    *events, done = server.events({**ONCE, **fields})
    assert done["event"] == "done", done
    assert done["votes"][0]["answer"] == "a"
    found = reasons([event for event in events if event["event"] == "stop"])
    if not more:
        assert done["votes"] == [{"answer": "a", "count": 10}]
        assert found == {"length": 10, "surplus": 6}
        assert done["timings"]["saved_tokens"] > 1000
    else:
        assert found == {"length": 1}


def test_a_vote_with_several_prompts_is_decided_for_each(server: Server) -> None:
    body = {"prompt": ["The cat", "A dog"], "n": 6, "ignore_eos": True, "stream": False,
            "rank_by": {"vote": {"regex": "(.)"}}, "grammar": 'root ::= "a"+',
            "finish": {"vote_decided": True}, "max_tokens": [3, 3, 3, 3, 300, 300]}  # fmt: skip
    status, answer = server.json("POST", "/v1/completions", body)
    assert status == 200, answer
    found = Counter(choice["finish_reason"] for choice in answer["choices"])
    assert found == {"length": 8, "surplus": 4}


# In each API's words

BODIES: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/completions", {**ONCE}, "finish_reason"),
    ("/v1/chat/completions", {**ONCE, **CHAT}, "finish_reason"),
    ("/completion", {**ONCE, "n": None, "n_cmpl": 8}, "stop_type"),
    ("/api/v1/generate", {**ONCE}, "finish_reason"),
    ("/api/generate", {**ONCE, "model": None}, "done_reason"),
]


def values_of(answer: Any, name: str) -> list[Any]:
    """All values of this name, at any depth."""
    if isinstance(answer, list):
        return [found for one in answer for found in values_of(one, name)]
    if not isinstance(answer, dict):
        return []
    own = [answer[name]] if name in answer else []
    return own + [found for one in answer.values() for found in values_of(one, name)]


@each_row(("path", "body", "name"), BODIES, ids=[path for path, *_ in BODIES])
def test_every_api_says_why_a_text_was_ended(
    server: Server, path: str, body: dict[str, Any], name: str
) -> None:
    fields = {**body, "stream": False, "ignore_eos": True, "prune": {"at": [4], "keep": 5}}
    fields["finish"] = {"first": 2}
    status, answer = server.json("POST", path, fields)
    assert status == 200, answer
    found = Counter(values_of(answer, name))
    assert found["pruned"] == 3
    assert found["surplus"] == 3


def test_llama_servers_timings_tell_the_saved_tokens(server: Server) -> None:
    body = {**ONCE, "ignore_eos": True, "prune": {"at": [4], "keep": 5}, "stream": False, "model": "x"}
    status, answer = server.json("POST", "/openai/v1/completions", {**body, "timings_per_token": True})
    assert status == 200, answer
    assert answer["timings"]["saved_tokens"] == 3 * 56


def test_nothing_is_told_of_saved_tokens_without_the_fields(server: Server) -> None:
    _, done = ends(server)
    assert "saved_tokens" not in done["timings"]


def test_the_command_line_ends_texts_early_too() -> None:
    given = ("-n", "8", "--max-tokens", "40", "--seed", "5", "--ignore-eos")
    early = ("--prune", '{"at": [8], "keep": 3}', "--finish", '{"first": 1}')
    answer = json.loads(complete(*given, *early, "--json"))
    found = Counter(choice["finish_reason"] for choice in answer["choices"])
    assert found == {"length": 1, "surplus": 2, "pruned": 5}
    vote = ("--rank-by", '{"vote": {"regex": "(.)"}}', "--finish", '{"vote_decided": true}')
    answer = json.loads(complete(*given, *vote, "--grammar", 'root ::= "a"+', "--json"))
    assert answer["votes"] == [{"answer": "a", "count": 8}]
