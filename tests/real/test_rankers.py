"""Votes, medoids and diversity_stats over HTTP and on the command line, with the real engine."""

from __future__ import annotations

import itertools
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from llama_srb import Client
from llama_srb.bundled import CHECKOUT
from tests.real.test_cli import complete
from tests.support import forked
from tests.support.encoder import CONTEXT, write_encoder
from tests.support.places import ROOT
from tests.support.serving import Server, serving
from tests.support.waiting import PATIENCE

ONCE: dict[str, Any] = {"prompt": "Once upon a time, there was a", "max_tokens": 24, "n": 16, "seed": 3}
NAME = r"(?:named|called) ([A-Z]\w+)"
VOTE: dict[str, Any] = {"vote": {"regex": NAME}}
# On a CPU the sums of flash attention depend on how many rows a step has: a mean logprob differs by 0.014.
PLAIN = ("--", "--flash-attn", "off")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The bundled model and an encoder, whose vectors are those of random weights."""
    folder = tmp_path_factory.mktemp("rankers")
    write_encoder(folder / "encoder.gguf", "mean")
    (folder / "srb.toml").write_text(f"""
        [models.tale]
        path = "{CHECKOUT}/models/storyteller.gguf"
        preload = true
        ctx = 8192
        [models.mini]
        path = "encoder.gguf"
        ctx = {CONTEXT}
        """)
    with serving("--config", str(folder / "srb.toml"), *PLAIN) as server:
        yield server


def whole(server: Server, path: str = "/v1/completions", status: int = 200, **fields: Any) -> Any:
    found, answer = server.json("POST", path, {**ONCE, "stream": False, **fields})
    assert found == status, answer
    return answer


def answer_in(text: str) -> str | None:
    """By Python's own re, whose names and word characters are these in ASCII."""
    return (re.findall(NAME, text, re.ASCII) or [None])[-1]


# Votes


def test_the_leading_answers_likeliest_text_wins(server: Server) -> None:
    answer = whole(server, rank_by=VOTE)
    voted = [answer_in(choice["text"]) for choice in answer["choices"]]
    means = [choice["scores"]["mean_logprob"] for choice in answer["choices"]]
    counts = Counter(one for one in voted if one)
    assert len(counts) > 1
    assert {one["answer"]: one["count"] for one in answer["votes"]} == counts
    assert [one["count"] for one in answer["votes"]] == sorted(counts.values(), reverse=True)
    first = answer["votes"][0]["answer"]
    assert voted[: counts[first]] == [first] * counts[first]
    assert means[: counts[first]] == sorted(means[: counts[first]], reverse=True)
    assert all(one is None for one in voted[counts.total() :])


def test_the_winner_of_many_is_one_choice(server: Server) -> None:
    everyone = whole(server, rank_by=VOTE, cache=False)
    best = whole(server, n=1, best_of=16, rank_by=VOTE, cache=False)
    assert len(best["choices"]) == 1
    assert sum(one["count"] for one in best["votes"]) > 1
    assert answer_in(best["choices"][0]["text"]) == best["votes"][0]["answer"]
    assert {one["answer"] for one in best["votes"]} & {one["answer"] for one in everyone["votes"]}


PATHS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {}),
    ("/v1/chat/completions", {"prompt": None, "messages": [{"role": "user", "content": "Hi"}]}),
    ("/api/v1/generate", {}),
    ("/complete", {}),
]


@pytest.mark.parametrize(("path", "fields"), PATHS)
def test_every_body_has_votes_and_stats(server: Server, path: str, fields: dict[str, Any]) -> None:
    answer = whole(server, path, **fields, rank_by={"vote": {"regex": "[a-z]"}}, diversity_stats=True)
    assert sum(one["count"] for one in answer["votes"]) == 16
    assert answer["diversity_stats"]["texts"] == 16
    assert 0 < answer["diversity_stats"]["mean_overlap"] < 1
    assert 1 <= answer["diversity_stats"]["effective_number"] <= 16


def test_llama_servers_form_has_them_with_each_text(server: Server) -> None:
    answers = whole(server, "/completion", n_cmpl=4, n=None, diversity_stats=True)
    assert [one["diversity_stats"]["texts"] for one in answers] == [4] * 4


def test_streams_have_them_at_their_end(server: Server) -> None:
    fields = {**ONCE, "rank_by": {"vote": {"regex": "[a-z]"}}, "diversity_stats": True, "stream": True}
    *_, done = server.events(fields)
    *_, last = server.events(fields, "/openai/v1/completions")
    for one in (done, last):
        assert sum(vote["count"] for vote in one["votes"]) == 16
        assert one["diversity_stats"]["texts"] == 16


def test_each_of_several_prompts_has_its_own(server: Server) -> None:
    fields = {**ONCE, "prompt": ["The cat", "Two dogs"], "n": 3, "rank_by": VOTE, "diversity_stats": True}
    answer = whole(server, **fields)
    *_, last = server.events({**fields, "stream": True}, "/openai/v1/completions")
    for one in (answer, last):
        assert not {"votes", "diversity_stats"} & one.keys()
        assert [found["diversity_stats"]["texts"] for found in one["by_prompt"]] == [3, 3]


def test_a_vote_that_takes_too_long_is_an_error_and_no_answer(server: Server) -> None:
    """The pattern has more states than its memory holds, and each "a" begins another search."""
    slow = {"vote": {"regex": "(a|b)*a(a|b){400}c|a"}}
    body = {"n": 32, "max_tokens": 400, "grammar": 'root ::= "a"+', "ignore_eos": True, "rank_by": slow}
    answer = whole(server, status=400, **body)
    assert "the vote's pattern took more than 5 s" in answer["error"]["message"]
    assert answer["error"]["param"] == "rank_by"
    *_, last = server.events({**ONCE, **body})
    assert (last["event"], last["param"]) == ("error", "rank_by")


# Medoids


def test_the_medoid_by_embeddings_is_that_of_the_models_vectors(several: Server) -> None:
    """The model must be loaded: nothing is loaded for a ranking, and overlap does not take its place."""
    by = {"medoid": {"by": "embeddings"}}
    refused = whole(several, status=400, model="tale", rank_by=by)["error"]
    assert refused["param"] == "rank_by.medoid.by"
    assert "no embedding model is loaded" in refused["message"]
    assert several.json("POST", "/v1/embeddings", {"model": "mini", "input": "a"})[0] == 200
    for more in ({}, {"model": "mini"}):
        answer = whole(several, model="tale", rank_by={"medoid": {"by": "embeddings", **more}})
        texts = [choice["text"] for choice in answer["choices"]]
        made = several.json("POST", "/v1/embeddings", {"model": "mini", "input": texts})[1]["data"]
        vectors = [one["embedding"] for one in made]
        means = [sum(_dot(one, other) for other in vectors) - _dot(one, one) for one in vectors]
        assert means == sorted(means, reverse=True)
    overlap = whole(several, model="tale", rank_by="medoid")
    assert [choice["text"] for choice in overlap["choices"]] != texts


def _dot(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_a_generating_model_may_be_named_for_its_embeddings(server: Server) -> None:
    by = {"by": "embeddings", "model": "storyteller"}
    answers = [whole(server, rank_by={name: by}) for name in ("medoid", "diversity")]
    assert [len(answer["choices"]) for answer in answers] == [16, 16]


def test_a_text_that_is_too_long_for_the_embedding_model_is_an_error(several: Server) -> None:
    several.json("POST", "/v1/embeddings", {"model": "mini", "input": "a"})
    fields = {"model": "tale", "max_tokens": CONTEXT + 100, "ignore_eos": True, "n": 2}
    answer = whole(several, status=400, **fields, rank_by={"medoid": {"by": "embeddings"}})
    assert "the texts were not ranked" in answer["error"]["message"]


# The command line


def test_stats_are_printed_and_are_those_of_the_json() -> None:
    given = ("-n", "4", "--max-tokens", "12", "--seed", "5", "--stats")
    printed = complete(*given).split("\n\n")[-1].strip()
    stats = json.loads(complete(*given, "--json"))["diversity_stats"]
    assert printed == (
        f"4 texts: {stats['beginnings']} different beginnings, mean overlap {stats['mean_overlap']:.3f}, "
        f"effective number {stats['effective_number']:.2f}"
    )
    guessed = complete("--regex", "The little fox went home[.]", "--draft", "16", "--stats").strip()
    assert re.fullmatch(r"guessed \d+ tokens, \d+ of them right", guessed.splitlines()[-1])


def test_the_command_line_ranks_without_a_server_too() -> None:
    given = ("-n", "1", "--best-of", "8", "--max-tokens", "24", "--seed", "5", "--rank-by", json.dumps(VOTE))
    answer = json.loads(complete(*given, "--json"))
    assert len(answer["choices"]) == 1
    if answer["votes"]:
        assert answer_in(answer["choices"][0]["text"]) == answer["votes"][0]["answer"]


def test_a_pool_of_texts_is_not_more_diverse_than_their_number(server: Server) -> None:
    cold, hot = (whole(server, temperature=t, diversity_stats=True)["diversity_stats"] for t in (0, 1.5))
    assert cold == {"texts": 16, "beginnings": 1, "mean_overlap": 1.0, "effective_number": 1.0}
    assert hot["beginnings"] > 4
    assert hot["mean_overlap"] < 0.5
    assert hot["effective_number"] > 8


def test_the_client_reads_votes_and_stats(server: Server) -> None:
    with Client(server.url) as client, client.stream(**ONCE, rank_by=VOTE, diversity_stats=True) as stream:
        choices = stream.collect()
    done = stream.answer.done
    assert done is not None
    assert done.votes
    assert answer_in(choices[0].text) == done.votes[0]["answer"]
    assert done.diversity_stats is not None
    assert done.diversity_stats["texts"] == 16


def test_a_vote_without_answers_has_an_empty_list(server: Server) -> None:
    assert whole(server, rank_by={"vote": {"regex": "%%%"}})["votes"] == []
    assert "votes" not in whole(server, rank_by="medoid")


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ({"medoid": {"by": "embeddings"}}, "only a server with an embedding model computes them (--url)"),
        (
            {"judge": {"prompt": "{text}", "answers": ["a", "b"], "model": "other"}},
            'rank_by.judge.model is "other"; without --url the model that writes is the only one',
        ),
        ({"following": {"text": " and so"}}, "only a server's model scores texts for it"),
    ],
    ids=["embeddings", "judge", "following"],
)
def test_the_command_line_has_no_other_model_without_a_server(by: dict[str, Any], message: str) -> None:
    ended = forked.run(
        [sys.executable, "-m", "llama_srb.cli", "complete", "Once", "--rank-by", json.dumps(by)],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert message in ended.stderr


# Judges

JUDGE: dict[str, Any] = {"prompt": "A story about a {text}\nIt was a happy", "answers": [" day", " cup"]}


def margin(server: Server, text: str, judge: dict[str, Any], **fields: Any) -> float:
    prompt = judge["prompt"].replace("{text}", text)
    status, answer = server.json("POST", "/v1/score", {"prompt": prompt, "texts": judge["answers"], **fields})
    assert status == 200, answer
    first, second = (one["sum"] for one in answer["data"])
    return float(first - second)


@pytest.mark.parametrize("more", [{}, {"model": "tale"}], ids=str)
def test_a_judge_puts_the_text_of_the_largest_margin_first(several: Server, more: dict[str, Any]) -> None:
    answer = whole(several, model="tale", rank_by={"judge": {**JUDGE, **more}})
    margins = [margin(several, choice["text"], JUDGE, model="tale") for choice in answer["choices"]]
    assert len(set(margins)) > 1
    assert all(one >= other - 2e-3 for one, other in itertools.pairwise(margins))


def test_the_command_line_judges_with_its_own_engine(several: Server) -> None:
    options = ["-n", "6", "--max-tokens", "12", "--seed", "3", "--rank-by", json.dumps({"judge": JUDGE})]
    answer = json.loads(complete("--json", *options, *PLAIN))
    margins = [margin(several, choice["text"], JUDGE, model="tale") for choice in answer["choices"]]
    assert len(set(margins)) > 1
    assert all(one >= other - 2e-3 for one, other in itertools.pairwise(margins))


def test_the_command_line_tells_the_order() -> None:
    given = ("-n", "4", "--max-tokens", "8", "--seed", "3", "--rank-by", "logprob")
    choices = json.loads(complete(*given, "--logprobs", "0", "--json"))["choices"]
    means = [sum(token["logprob"] for token in choice["tokens"]) / choice["length"] for choice in choices]
    assert means == sorted(means, reverse=True)
    order = ", ".join(str(choice["index"]) for choice in choices)
    assert complete(*given).splitlines()[-1] == f"best first: {order}"


def test_a_judge_chooses_the_best_of_many(several: Server) -> None:
    everyone = whole(several, model="tale", rank_by={"judge": JUDGE}, diversity="none")
    best = whole(several, model="tale", rank_by={"judge": JUDGE}, diversity="none", n=1, best_of=16)
    (choice,) = best["choices"]
    most = margin(several, everyone["choices"][0]["text"], JUDGE, model="tale")
    assert margin(several, choice["text"], JUDGE, model="tale") == pytest.approx(most, abs=0.3)


def test_what_judged_prompts_have_in_common_is_computed_once(several: Server) -> None:
    long = "Once there was a cat who liked to play in the sun all day. " * 20
    judge = {**JUDGE, "prompt": long + JUDGE["prompt"]}
    before = step_tokens(several)
    answer = whole(several, model="tale", n=16, max_tokens=8, rank_by={"judge": judge})
    assert len(answer["choices"]) == 16
    words = len(long.split())  # a token each, at least
    assert step_tokens(several) - before < 8 * words  # not 16 times


def test_an_abort_while_a_model_judges_loses_no_text(several: Server) -> None:
    judge = {**JUDGE, "prompt": "{text}" + " Once there was a cat who liked to play." * 80}
    body = {"n": 64, "max_tokens": 4, "model": "tale", "rank_by": {"judge": judge}}
    before, give_up = step_tokens(several), time.monotonic() + PATIENCE
    with ThreadPoolExecutor() as thread:
        answer = thread.submit(whole, several, **body)
        while step_tokens(several) - before < 2000:  # more than are generated
            assert time.monotonic() < give_up
        assert several.json("POST", "/v1/abort")[1]["aborted"] > 0
        choices = answer.result()["choices"]
    means = [choice["scores"]["mean_logprob"] for choice in choices]
    assert len(means) == 64
    assert means == sorted(means, reverse=True)


def step_tokens(server: Server) -> int:
    """The tokens that engines have computed since their start."""
    return int(server.json("GET", "/v1/stats")[1]["engine_step_tokens"])


@pytest.mark.parametrize("model", ["nobody", "mini"])
def test_a_judge_must_be_a_loaded_model_that_generates(several: Server, model: str) -> None:
    """The encoder makes vectors only."""
    refused = whole(several, status=400, model="tale", rank_by={"judge": {**JUDGE, "model": model}})["error"]
    assert refused["param"] == "rank_by.judge.model"
    assert "it must be a loaded model that generates texts" in refused["message"]


def test_a_prompt_that_is_too_long_for_the_judge_ends_the_request(several: Server) -> None:
    judge = {**JUDGE, "prompt": "word " * 9000 + "{text}"}
    refused = whole(several, status=400, model="tale", n=2, rank_by={"judge": judge})["error"]
    assert refused["message"].startswith("the texts were not ranked: ")


# What follows


def test_the_text_that_leads_over_to_what_follows_is_first(several: Server) -> None:
    """The order is that of the mean logprobs which /v1/score tells."""
    following = " The cat and the dog were best friends from that day on."
    fields = {"rank_by": {"following": {"text": following}}, "end": {"sentences": 1}, "max_tokens": 60}
    answer = whole(several, model="tale", n=12, diversity="none", **fields)
    prompts = [ONCE["prompt"] + choice["text"] for choice in answer["choices"]]
    means = []
    for prompt in prompts:
        body = {"model": "tale", "prompt": prompt, "texts": [following]}
        status, scored = several.json("POST", "/v1/score", body)
        assert status == 200, scored
        means.append(scored["data"][0]["mean"])
    assert len(set(means)) > 1
    assert all(one >= other - 2e-3 for one, other in itertools.pairwise(means))
