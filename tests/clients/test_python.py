"""This package's client with the real server and engine, and servers started from Python."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import llama_srb
from llama_srb import AsyncClient, Client
from llama_srb.client import ConnectionFailed, RequestRefused, Start, Stop, Text
from llama_srb.client.server_process import NotStarted
from tests.support.chats import HELLO, TOOLS, scripted
from tests.support.serving import LASTING, Server, serving

ONCE = "Once upon a time,"
ONCE_IDS = [417, 435, 259, 392, 12]


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


@pytest.fixture
def patient(lasting: Server) -> Iterator[Client]:
    with Client(lasting.url) as client:
        yield client


@pytest.fixture
async def waiting(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.url) as client:
        yield client


def test_a_story_has_its_parts(client: Client) -> None:
    story = {"memory": "A tale.", "lore": [{"keys": "cat", "text": "The cat is called Mia."}]}
    made = client.prompt("A cat sat", max_tokens=4, story=story)
    assert made.prompt == "A tale.\nThe cat is called Mia.\nA cat sat"
    with client.stream("A cat sat", n=2, max_tokens=4, story=story, token_healing=True) as stream:
        (start,) = [event for event in stream if isinstance(event, Start)]
    assert start.story == made.story
    assert start.story
    assert [part["name"] for part in start.story["parts"]] == ["memory", "lore", "text"]


@pytest.fixture(scope="module")
def chatting(chat_model: Path) -> Iterator[Client]:
    with (
        serving("--model", str(chat_model), "--ctx", "16384") as server,
        Client(server.url) as client,
    ):
        yield client


def test_texts_are_tokenized_and_detokenized(client: Client) -> None:
    assert client.tokenize(ONCE) == ONCE_IDS
    assert client.tokenize(ONCE, special=True) == [0, *ONCE_IDS]
    assert client.detokenize(ONCE_IDS) == ONCE
    with pytest.raises(RequestRefused) as refused:
        client.detokenize([99999])
    assert refused.value.param == "tokens"


def test_texts_have_scores(client: Client) -> None:
    likely, odd = client.score(ONCE, [" there was", " zebra tax"], logprobs=1)
    assert (likely.index, likely.count, len(likely.tokens)) == (0, 2, 2)
    assert likely.mean is not None
    assert likely.perplexity == pytest.approx(math.exp(-likely.mean))
    assert likely.sum > odd.sum
    assert not odd.greedy
    assert [alone.count for alone in client.score(ONCE, " there was")] == [likely.count]


def test_texts_become_vectors(client: Client) -> None:
    rows = client.embed([ONCE, ONCE_IDS, "The dog"], dimensions=8)
    assert [len(row) for row in rows] == [8, 8, 8]
    assert math.hypot(*rows[0]) == pytest.approx(1)
    assert rows[0] != rows[2]
    assert client.embed(ONCE, dimensions=8) == [pytest.approx(rows[0], abs=1e-3)]


def test_fields_of_other_servers_and_presets_are_fields(client: Client) -> None:
    more = {"preset": "hot", "dynatemp_low": 0.5, "dynatemp_high": 1.5, "custom_token_bans": "1,2"}
    [choice] = client.complete(ONCE, n=1, max_tokens=9, response_format={"type": "json_object"}, **more)
    assert choice.text.startswith("{")


async def test_both_clients_get_the_same_answers(client: Client, waiting: AsyncClient) -> None:
    assert await waiting.tokenize(ONCE) == client.tokenize(ONCE)
    assert await waiting.detokenize(ONCE_IDS) == client.detokenize(ONCE_IDS)
    [ours], [theirs] = await waiting.score(ONCE, [" there"]), client.score(ONCE, [" there"])
    assert ours.sum == pytest.approx(theirs.sum, abs=0.2)
    assert await waiting.embed([ONCE]) == [pytest.approx(row, abs=1e-3) for row in client.embed([ONCE])]
    assert await waiting.prefix("The cat") == client.prefix("The cat") == len(client.tokenize("The cat")) + 1
    fields = {"n": 2, "max_tokens": 3, "temperature": 0}
    assert [choice.text for choice in await waiting.complete(ONCE, **fields)] == [
        choice.text for choice in client.complete(ONCE, **fields)
    ]


def test_one_sequence_of_a_running_stream_is_cancelled(patient: Client) -> None:
    with patient.stream(ONCE, n=4, max_tokens=1000, ignore_eos=True) as stream:
        assert next(event for event in stream if isinstance(event, Text))
        assert stream.cancel(3)
        assert {event.index: event.finish_reason for event in stream if isinstance(event, Stop)} == {
            0: "length", 1: "length", 2: "length", 3: "cancelled",
        }  # fmt: skip
    assert [choice.length for choice in stream.choices][:3] == [1000] * 3


def test_best_of_returns_the_best_first(client: Client) -> None:
    with client.stream(ONCE, n=2, best_of=6, max_tokens=8, diversity="none") as stream:
        stops = {event.index: event for event in stream if isinstance(event, Stop)}
    assert stream.answer.done
    assert sorted(stream.answer.done.ranking) == [0, 1]
    best, second = stream.answer.ranked
    first, last = stops[best.index].mean_logprob, stops[second.index].mean_logprob
    assert first is not None
    assert last is not None
    assert first >= last
    assert len(client.complete(ONCE, n=3, best_of=5, max_tokens=2)) == 3


def test_cancelling_an_unknown_sequence_is_an_error(patient: Client) -> None:
    with patient.stream(ONCE, n=2, max_tokens=-1, ignore_eos=True) as stream:
        with pytest.raises(RequestRefused, match="index is 2; it must be at most 1"):
            stream.cancel(2)
        assert stream.cancel()


def test_a_chat_has_n_answers(chatting: Client) -> None:
    answers = chatting.chat(HELLO, n=3, max_tokens=4, ignore_eos=True)
    assert [(answer.index, answer.length) for answer in answers] == [(0, 4), (1, 4), (2, 4)]


async def test_a_chat_thinks_and_calls_tools(chatting: Client) -> None:
    thinking = {"seed": 3, "diversity": "none", "max_tokens": 9, **scripted("<think>")}
    [thought] = chatting.chat(HELLO, n=1, **thinking)
    assert thought.reasoning
    async with AsyncClient(chatting.url) as waiting:
        calling = scripted("<tool_call>", "</tool_call>", "<|im_end|>") | {"max_tokens": 200, "seed": 7}
        [called] = await waiting.chat(HELLO, n=1, tools=TOOLS, tool_choice="required", **calling)
    call, *_ = called.tool_calls
    assert call["name"] in ("weather", "time")
    assert call["arguments"].startswith("{")


def test_a_chats_prefix_is_computed_in_advance(chatting: Client) -> None:
    messages = [{"role": "user", "content": "Tell me of a fox and of a hare that met in the wood."}]
    n_tokens = chatting.prefix(messages=messages)
    with chatting.stream(messages=messages, n=2, max_tokens=1) as stream:
        for _ in stream:
            pass
    start = stream.answer.start
    assert start is not None
    assert (start.prompt_tokens, start.cached_tokens) == (n_tokens, n_tokens)


# Keys


async def test_a_key_is_sent_with_every_request() -> None:
    with serving("--ctx", "16384", "--api-key", "hunter2", "--", *LASTING) as server:
        with Client(server.url, api_key="hunter2") as client:
            assert client.tokenize("Once") == [417]
            with client.stream(ONCE, n=2, max_tokens=-1, ignore_eos=True) as stream:
                assert stream.cancel()
        async with AsyncClient(server.url, api_key="hunter2") as waiting:
            assert len(await waiting.complete(ONCE, n=2, max_tokens=1)) == 2
        with (
            Client(server.url, api_key="wrong") as client,
            pytest.raises(RequestRefused, match="no such key"),
        ):
            client.complete(ONCE)


# Servers started from Python


def test_a_server_runs_for_the_length_of_a_block() -> None:
    with llama_srb.serve(ctx=1024, parallel=4, engine_args=["-t", "1"], api_key="hunter2") as client:
        assert client.url.startswith("http://127.0.0.1:")
        assert len(client.complete(ONCE, n=6, max_tokens=2)) == 6
    with Client(client.url, api_key="hunter2") as other, pytest.raises(ConnectionFailed):
        other.complete(ONCE)


def test_an_exception_in_its_block_ends_a_server() -> None:
    def leave() -> None:
        with llama_srb.serve(ctx=1024) as client, client.stream(ONCE, max_tokens=-1, ignore_eos=True):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        leave()


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    for settings, reason in (
        ({"model": tmp_path / "none.gguf"}, "none.gguf"),
        ({"ctxx": 7}, r"^ctxx is not a setting; did you mean ctx\?"),
        ({"ctx": -1}, "LLAMA_SRB_CTX is '-1'"),
        ({"timeout": 0.01}, "no answer in 0.01 s"),
    ):
        with pytest.raises(NotStarted, match=reason), llama_srb.serve(**settings):
            pass
