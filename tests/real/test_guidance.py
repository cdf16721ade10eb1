"""Guidance: texts are drawn from what NumPy makes of the model's rows behind prompt and negative prompt.

A row is known by llama.cpp's own tool, token by token of texts that the engine has drawn, however it came to
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reference.results import Reference
from tests.support.lines import Answer, Event, Lines
from tests.support.rows import each_row
from tests.support.served import key_file
from tests.support.serving import Server, serving

EXACT = ("-fa", "off", "-ctk", "f32", "-ctv", "f32", "-t", "1")
BOUND = 1e-3  # of |Δlogprob|; a difference of two rows counts up to four times here
PROMPT = "Once upon a time, there was a little girl named Lily. She"
NEGATIVE = "It was a dark night. The bad dog"
OFF = {"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0}
ASKED: dict[str, Any] = {
    "prompt": PROMPT, "negative_prompt": NEGATIVE, "n": 3, "max_tokens": 24, "logprobs": 0,
    "logprobs_mode": "both", "return_token_ids": True,
}  # fmt: skip
Vector = np.ndarray[Any, np.dtype[np.float64]]


def asked(scale: float = 2.0, **more: Any) -> dict[str, Any]:
    sampling = OFF | {"seed": 5, "guidance_scale": scale} | more.pop("sampling", {})
    return ASKED | {"sampling": sampling} | more


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(tmp_path_factory.mktemp("reference"), "-fa", "off", "-ctk", "f32", "-ctv", "f32")


@pytest.fixture(scope="module")
def engine(plain: Path) -> Iterator[Lines]:
    with Lines("-np", "16", "-c", "4096", *EXACT, model=plain) as engine:
        yield engine


def tokens_of(engine: Lines, text: str) -> list[int]:
    tokens: list[int] = engine.ask("tokenize", text=text, add_special=True)["tokens"]
    return tokens


def log_softmax(rows: Vector) -> Vector:
    rows = rows - rows.max(axis=1, keepdims=True)
    made: Vector = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    return made


class Rows:
    """The rows along a text, by the reference."""

    def __init__(self, reference: Reference, prompt: list[int], negative: list[int], ids: list[int]) -> None:
        self.ids = ids
        self.positive, self.negative = (
            reference.logprobs(before + ids)[len(before) - 1 : -1] for before in (prompt, negative)
        )

    def of_draws(self, rows: Vector) -> Vector:
        drawn: Vector = rows[range(len(self.ids)), self.ids]
        return drawn

    def mixed(self, scale: float) -> Vector:
        return self.of_draws(log_softmax(self.negative + scale * (self.positive - self.negative)))


def check(rows: Rows, tokens: list[Event], scale: float, *, bans: bool = False) -> None:
    """Raw logprobs are the positive row's, processed ones those of the mixed row, less what is banned."""
    assert [token["id"] for token in tokens] == rows.ids
    raw = rows.of_draws(rows.positive) - [token["logprob"] for token in tokens]
    made = rows.mixed(scale) - [token["processed_logprob"] for token in tokens]
    bound = BOUND * max(1, abs(scale))
    assert np.abs(raw).max() <= BOUND
    assert made.max() <= bound
    assert bans or made.min() >= -bound


def check_all(reference: Reference, engine: Lines, answer: Answer, scale: float, **given: Any) -> None:
    prompt = given.get("prompt", tokens_of(engine, PROMPT))
    negative = given.get("negative", tokens_of(engine, NEGATIVE))
    spoken = [tokens for tokens in answer.tokens if tokens]
    assert spoken
    for tokens in spoken[:: max(1, len(spoken) // 2)]:
        check(Rows(reference, prompt, negative, [token["id"] for token in tokens]), tokens, scale)


WAYS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "alone": (("-np", "2", "-c", "1024"), {"n": 1}),
    "side by side": (("-np", "8", "-c", "2048"), {"n": 4}),
    "in waves": (("-np", "4", "-c", "2048"), {"n": 7}),
    "preempted": (("-np", "16", "-c", "256"), {"n": 8, "max_tokens": 60}),
    "preempted, without cache": (("-np", "16", "-c", "256"), {"n": 8, "max_tokens": 60, "cache": False}),
    "without cache": (("-np", "8", "-c", "1024"), {"cache": False}),
    "in small batches": (("-np", "8", "-c", "1024", "-ub", "8"), {"n": 4}),
    "rewinds": (("-np", "8", "-c", "1024"), {"banned_strings": ["he", "the ", " a"]}),
    "arithmetic": (("-np", "8", "-c", "1024"), {"diversity": "arithmetic"}),
    "distinct first tokens": (("-np", "4", "-c", "1024"), {"first_token": "distinct", "n": 5}),
}


@each_row(("flags", "fields"), WAYS.values(), ids=WAYS)
def test_each_draw_is_from_the_mixed_rows(
    reference: Reference, plain: Path, flags: tuple[str, ...], fields: dict[str, Any]
) -> None:
    with Lines(*flags, *EXACT, model=plain) as engine:
        answer = engine.generate(**asked(**fields))
        spoken = [tokens for tokens in answer.tokens if tokens]
        for tokens in spoken[:: max(1, len(spoken) // 2)]:
            ids = [token["id"] for token in tokens]
            rows = Rows(reference, tokens_of(engine, PROMPT), tokens_of(engine, NEGATIVE), ids)
            check(rows, tokens, 2, bans="banned_strings" in fields)
        status = engine.ask("status")
        assert status["cells_used"] == status["cells_idle"]


@each_row("scale", [-1, 0, 0.5, 1.5, 4])
def test_any_scale_is_the_mixture(reference: Reference, engine: Lines, scale: float) -> None:
    answer = engine.generate(**asked(scale))
    check_all(reference, engine, answer, scale)
    assert answer.done["negative_tokens"] == len(tokens_of(engine, NEGATIVE))


def test_an_empty_negative_prompt_is_the_prompts_last_token(reference: Reference, engine: Lines) -> None:
    last = tokens_of(engine, PROMPT)[-1:]
    check_all(reference, engine, engine.generate(**asked(negative_prompt="")), 2, negative=last)


def test_each_sequence_has_its_own_scale_and_one_of_1_is_plain(reference: Reference, engine: Lines) -> None:
    scales = [1, 3, 0.5]
    own = [{"guidance_scale": scale} for scale in scales]
    answer = engine.generate(**asked(sequences=own))
    for tokens, scale in zip(answer.tokens, scales, strict=True):
        rows = Rows(
            reference, tokens_of(engine, PROMPT), tokens_of(engine, NEGATIVE), [t["id"] for t in tokens]
        )
        check(rows, tokens, scale)
    alone = engine.generate(**ASKED | {"n": 1, "negative_prompt": ""}, sampling=OFF | {"seed": 5})
    assert alone.texts[0] == answer.texts[0]


def test_a_scale_of_1_costs_nothing(plain: Path) -> None:
    def made(**more: Any) -> tuple[list[Event], int]:
        with Lines("-np", "8", "-c", "1024", *EXACT, model=plain) as engine:
            answer = engine.generate(**ASKED | {"negative_prompt": ""} | more)
            return [e for e in answer.events if e["event"] == "stream"], engine.ask("status")["step_tokens"]

    plainly, cost = made(sampling=OFF | {"seed": 5})
    same, same_cost = made(sampling=OFF | {"seed": 5, "guidance_scale": 1}, negative_prompt=NEGATIVE)
    strip = ("line",)
    assert [{k: v for k, v in e.items() if k not in strip} for e in plainly] == [
        {k: v for k, v in e.items() if k not in strip} for e in same
    ]
    assert same_cost == cost


def test_n_texts_share_the_negative_prompt(plain: Path) -> None:
    with Lines("-np", "16", "-c", "1024", *EXACT, model=plain) as engine:
        n = [len(tokens_of(engine, text)) for text in (PROMPT, NEGATIVE * 4)]
        answer = engine.generate(**asked(n=8, negative_prompt=NEGATIVE * 4, max_tokens=1))
        assert len(answer.texts) == 8
        assert engine.ask("status")["step_tokens"] == sum(n)


def test_a_text_that_is_continued_or_forked_goes_on_as_if_it_had_never_ended(
    reference: Reference, engine: Lines
) -> None:
    """The same rows, so that the draws of what follows are exact samples of the same distribution."""
    prompt, negative = tokens_of(engine, PROMPT), tokens_of(engine, NEGATIVE)
    (first,) = engine.send({"op": "generate"} | asked(n=1))
    (begun,) = engine.answers([first])
    ids = [token["id"] for token in begun.tokens[0]]
    fields = {k: v for k, v in asked(n=2).items() if k != "prompt"}
    for at in (len(ids), 7):
        (second,) = engine.send({"op": "generate", "continue": {"id": first, "index": 0, "at": at}} | fields)
        (answer,) = engine.answers([second])
        check_all(reference, engine, answer, 2, prompt=prompt + ids[:at], negative=negative + ids[:at])
    more = [token["id"] for token in answer.tokens[1]]
    text = engine.ask("tokenize", text=" Then", add_special=False)["tokens"]
    third = {"op": "generate", "continue": {"id": second, "index": 1, "exact": True}, "prompt": " Then"}
    (answer,) = engine.answers(engine.send(third | fields))
    before = ids[:7] + more + text
    check_all(reference, engine, answer, 2, prompt=prompt + before, negative=negative + before)


def test_a_fork_is_guided_as_the_sequence_is(reference: Reference, engine: Lines) -> None:
    held = {"max_tokens": 300, "logprobs": 20}  # unread lines of this size block the engine
    (id,) = engine.send({"op": "generate"} | asked(n=1, sampling={"ignore_eos": True}, **held))
    for _ in range(20):
        engine.read()
    engine.send_amid({"op": "extend", "id": id, "add": 1, "fork": {"index": 0, "at": 9}})
    (answer,) = engine.answers([id])
    begun, fork = ([token["id"] for token in tokens] for tokens in answer.tokens)
    prompt, negative = ([*tokens_of(engine, text), *begun[:9]] for text in (PROMPT, NEGATIVE))
    check(Rows(reference, prompt, negative, fork[:60]), answer.tokens[1][:60], 2, bans=True)


def test_a_second_answer_is_guided_as_the_first_one_is(reference: Reference, engine: Lines) -> None:
    then = {"text": " So the dog", "regex": " (was|ran|said)[ a-z]{10}", "return_free": True}
    fields = {k: v for k, v in asked(n=2, max_tokens=8, then=then).items() if k != "return_token_ids"}
    answer = engine.generate(**fields)
    prompt, negative = tokens_of(engine, PROMPT), tokens_of(engine, NEGATIVE)
    text = engine.ask("tokenize", text=" So the dog", add_special=False)["tokens"]
    for tokens in answer.tokens:
        free, second = [t["id"] for t in tokens[:8]], [t["id"] for t in tokens[8:]]
        before = free + text
        rows = Rows(reference, prompt + before, negative + before, second)
        assert np.abs(rows.of_draws(rows.positive) - [t["logprob"] for t in tokens[8:]]).max() <= BOUND
        words = {
            w: engine.ask("tokenize", text=w, add_special=False)["tokens"][0]
            for w in (" was", " ran", " said")
        }
        row = log_softmax(rows.negative + 2 * (rows.positive - rows.negative))[0]
        assert second[0] in words.values()
        allowed = row[[*words.values()]]
        expected = row[second[0]] - np.log(np.exp(allowed).sum())
        assert tokens[8]["processed_logprob"] <= expected + BOUND  # other tokens may begin one of them


def test_a_negative_prompt_that_is_too_long_is_refused_by_name(engine: Lines) -> None:
    answer = engine.generate(**asked(negative_prompt="word " * 20_000))
    error = answer.events[-1]
    assert (error["event"], error["param"], error["code"]) == ("error", "negative_prompt", "context_exceeded")


# The server


BODY: dict[str, Any] = {"prompt": PROMPT, "n": 2, "max_tokens": 12, "seed": 3, "stream": False}


def texts(server: Server, path: str = "/v1/completions", **fields: Any) -> list[str]:
    status, answer = server.json("POST", path, BODY | fields)
    assert status == 200, answer
    return [one["text"] for one in answer.get("choices", answer.get("results"))]


def test_each_dialect_has_its_names(server: Server) -> None:
    guided = texts(server, guidance_scale=3, negative_prompt=NEGATIVE)
    assert guided != texts(server)
    assert texts(server, guidance_scale=3) != guided
    assert texts(server, cfg_scale=3, negative_prompt=NEGATIVE) == guided
    assert texts(server, guidance_scale=1, negative_prompt=NEGATIVE) == texts(server)
    first, second = texts(server, guidance_scale=[1, 3], negative_prompt=NEGATIVE)
    assert (first, second) == (texts(server)[0], guided[1])
    kobold = {"sampler_seed": 3, "max_length": 12, "temperature": 0.8, "guidance_scale": 3}
    assert texts(server, "/api/v1/generate", **kobold, negative_prompt=NEGATIVE) != texts(
        server, "/api/v1/generate", **kobold
    )


def test_a_negative_prompt_counts_in_the_budget_of_its_key(tmp_path: Path) -> None:
    keys = key_file(tmp_path / "keys", {"name": "poor", "tokens_per_minute": 40})
    body = {"prompt": "Once", "negative_prompt": "upon a time " * 20, "n": 1, "max_tokens": 2}
    with serving("--ctx", "2048", "--api-key-file", str(keys)) as server:
        statuses = [
            server.call("POST", "/v1/completions", body | scale, Authorization="Bearer poor")[0]
            for scale in ({}, {}, {"guidance_scale": 2}, {})
        ]
    assert statuses == [200, 200, 200, 429]
