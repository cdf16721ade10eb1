"""`truncate_prompt_tokens` cuts a prompt to its last, or first, k tokens, whatever it is made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.lines import Lines
from tests.support.rows import each_row
from tests.support.serving import Server

Request = dict[str, Any]
STORY = "Once upon a time there was a little dog who liked to play in the park with his friend Tim. "
CHAT = {"messages": [{"role": "user", "content": STORY * 3}]}
GREEDY = {"sampling": {"temperature": 0}, "max_tokens": 5, "n": 1, "return_token_ids": True}
PROMPTS: dict[str, Request] = {
    "a text": {"prompt": STORY * 3},
    "token ids": {"tokens": [*range(300, 360)]},
    "parts": {"prompt": [{"text": STORY, "special": True}, {"text": STORY * 2, "special": False}]},
    "a chat": CHAT,
}
HEADED = ("a text", "parts", "a chat")  # the tokenizer puts a token in front


@pytest.fixture(scope="module")
def engine() -> Iterator[Lines]:
    with Lines("-np", "4", "-t", "1") as engine:
        yield engine


def asked(engine: Lines, fields: Request, **more: Any) -> Any:
    op = "chat" if "messages" in fields else "generate"
    (id,) = engine.send({"op": op, **fields, **GREEDY, **more})
    (answer,) = engine.answers([id])
    return answer


def expected(tokens: list[int], k: int, side: str, *, headed: bool) -> list[int]:
    """The token in front counts, and stays if another one does."""
    if k >= len(tokens):
        return tokens
    if side == "right":
        return tokens[:k]
    head = tokens[: min(1, k - 1)] if headed else []
    return [*head, *tokens[len(tokens) - k + len(head) :]]


@each_row("name", PROMPTS)
def test_the_kept_tokens_are_the_last_or_the_first(engine: Lines, name: str) -> None:
    whole = asked(engine, PROMPTS[name]).start
    tokens = whole["prompt_token_ids"]
    assert "cut_tokens" not in whole
    for k in (1, 2, 7, 40, len(tokens) - 1, len(tokens), len(tokens) + 1, 5000):
        for side in ("left", "right"):
            fields = {"truncate_prompt_tokens": k, "truncation_side": side}
            answer = asked(engine, PROMPTS[name], **fields)
            kept = expected(tokens, k, side, headed=name in HEADED)
            assert answer.start["prompt_token_ids"] == kept, (k, side)
            assert answer.start["prompt_tokens"] == len(kept)
            assert answer.start.get("cut_tokens", 0) == len(tokens) - len(kept)
            same = asked(engine, {"tokens": kept})
            assert answer.texts == same.texts or name == "a chat", "it is as if these tokens were sent"


def test_minus_one_keeps_what_fits(engine: Lines) -> None:
    long, context = STORY * 100, 1024
    n_long = len(engine.ask("tokenize", text=long, add_special=True)["tokens"])
    assert n_long > context
    for max_tokens, kept in ((24, 1000), (1, 1023), (900, 512), (-1, 768)):
        answer = asked(engine, {"prompt": long}, truncate_prompt_tokens=-1, max_tokens=max_tokens)
        assert answer.start["prompt_tokens"] == kept
        assert answer.start["prompt_token_ids"][-5:] == engine.ask("tokenize", text=long)["tokens"][-5:]
    short = asked(engine, {"prompt": STORY * 40}, truncate_prompt_tokens=-1, max_tokens=-1)
    assert "cut_tokens" not in short.start, "a prompt that fits stays"


def test_with_pins_less_fits() -> None:
    with Lines("-np", "4", "-t", "1", "-c", "1024") as engine:
        pinned = engine.ask("pin", name="a", prompt=STORY * 15)["prompt_tokens"]
        answer = asked(engine, {"prompt": "So " + STORY * 100}, truncate_prompt_tokens=-1, max_tokens=24)
        assert answer.start["prompt_tokens"] == 1024 - pinned - 24


def test_what_is_cut_counts_as_unsaid(engine: Lines) -> None:
    """Echo, log probabilities and a continuation are of the kept tokens; too many are still refused."""
    cut = {"truncate_prompt_tokens": 9}
    answer = asked(engine, {"prompt": STORY * 3}, echo=True, logprobs=1, prompt_logprobs=0, **cut)
    ids = answer.start["prompt_token_ids"]
    assert len(ids) == 9
    text = engine.ask("detokenize", tokens=ids[1:])["text"]
    assert "".join(event["text"] for event in answer.named("prompt")) == text
    assert [one["id"] for event in answer.named("prompt_logprobs") for one in event["tokens"]] == ids
    more = engine.generate(**{"continue": {"id": answer.start["id"], "index": 0}}, **GREEDY)
    assert more.start["prompt_token_ids"][:9] == ids
    longer = {
        "continue": {"id": answer.start["id"], "index": 0},
        "prompt": STORY,
        "truncate_prompt_tokens": 4,
    }
    assert len(engine.generate(**longer, **GREEDY).start["prompt_token_ids"]) == 4
    refused = asked(engine, {"prompt": STORY * 100}, truncate_prompt_tokens=2000).events[-1]
    assert (refused["code"], refused["n_prompt_tokens"]) == ("context_exceeded", 2000)
    refused = asked(engine, {"prompt": STORY}, truncate_prompt_tokens=0).events[-1]
    assert refused["message"] == "truncate_prompt_tokens is 0; it must be -1 or at least 1"


def test_a_prefix_is_cut_as_its_request_will_be(engine: Lines) -> None:
    fields = {"prompt": "A prefix: " + STORY * 3, "truncate_prompt_tokens": 33}
    assert engine.ask("prefix", **fields)["prompt_tokens"] == 33
    assert engine.generate(**fields, **GREEDY).start["cached_tokens"] >= 32


BODIES: dict[str, Request] = {
    "/v1/completions": {"prompt": STORY * 3, "stream": False},
    "/v1/chat/completions": CHAT,
    "/v1/responses": {"input": STORY * 3},
    "/v1/messages": CHAT,
    "/v1/embeddings": {"input": STORY * 3},
}


@pytest.mark.parametrize("path", BODIES)
def test_paths_have_it(server: Server, path: str) -> None:
    short = {} if "embeddings" in path else {"max_tokens": 1, "n": 1}
    usage = [
        server.json("POST", path, BODIES[path] | short | {"truncate_prompt_tokens": k})[1]["usage"]
        for k in (-1, 11)
    ]
    counted = [
        one["prompt_tokens"]
        if "prompt_tokens" in one
        else one["input_tokens"] + one.get("cache_read_input_tokens", 0)
        for one in usage
    ]
    assert counted[0] > 40
    assert counted[1] == 11


def test_an_embedding_is_that_of_the_kept_text(tmp_path: Path, server: Server) -> None:
    """By default its first tokens, as vLLM's pooling models have it."""
    ids = server.json("POST", "/v1/token/encode", {"text": STORY * 3})[1]["tokens"]

    def vector(body: Request) -> Any:
        return server.json("POST", "/v1/embeddings", body)[1]["data"][0]["embedding"]

    cut = {"input": STORY * 3, "truncate_prompt_tokens": 12}
    assert vector(cut) == pytest.approx(vector({"input": ids[:12]}), abs=1e-5)
    left = vector(cut | {"truncation_side": "left"})
    assert left == pytest.approx(vector({"input": [ids[0], *ids[-11:]]}), abs=1e-5)
