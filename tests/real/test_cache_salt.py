"""`cache_salt` keeps prefixes of one salt from all others, wherever the engine keeps prefixes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from tests.support.lines import Answer, Lines
from tests.support.serving import Server

SALTS = (None, "a", "b")
STEPS = 90
FEW = ("-c", "1024", "-np", "4", "-t", "1", "--cache-cells", "256")
Request = dict[str, Any]


def salted(salt: str | None) -> Request:
    return {} if salt is None else {"cache_salt": salt}


def n_common(one: list[int], other: list[int]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


class History:
    """What requests of each salt have told an engine, as token ids, of which each has a part of its own."""

    def __init__(self) -> None:
        self._told: dict[str | None, list[list[int]]] = {salt: [] for salt in SALTS}
        self.hits, self.temptations = 0, 0  # requests with cached tokens; those that only other salts know

    def check(self, salt: str | None, tokens: list[int], n_cached: int) -> None:
        """A request of this salt has at most the tokens in cells that its own salt has told."""
        most = {name: max([0, *(n_common(one, tokens) for one in told)]) for name, told in self._told.items()}
        assert n_cached <= most[salt], (salt, n_cached, most)
        self.hits += n_cached > 0
        self.temptations += max(most.values()) > most[salt]

    def tell(self, salt: str | None, *texts: list[int]) -> None:
        self._told[salt] += texts


def drawn(answer: Answer) -> list[list[int]]:
    ids: list[list[int]] = [[] for _ in answer.stops]
    for event in answer.named("stream"):
        ids[event["index"]] += event.get("token_ids", [])
    return ids


def play(engine: Lines, history: History, rng: random.Random) -> None:
    """Generations, prefixes, pins, scores and continuations over prompts that begin alike."""
    stems = [[rng.randrange(300, 4000) for _ in range(160)] for _ in range(3)]
    last: tuple[Request, list[int]] | None = None
    for _ in range(STEPS):
        salt, stem = rng.choice(SALTS), rng.choice(stems)
        tokens = [
            *stem[: rng.choice((20, 70, 160))],
            *(rng.randrange(300, 310) for _ in range(rng.randrange(4))),
        ]
        what = rng.choice(["generate"] * 4 + ["prefix", "pin", "score", "continue"])
        if what == "continue" and last is not None:
            named, before = last
            answer = engine.generate(**named, n=1, max_tokens=3, return_token_ids=True, **salted(salt))
            tokens = answer.start["prompt_token_ids"]
            assert tokens[: len(before)] == before
            history.check(salt, tokens, answer.start["cached_tokens"])
        elif what in ("prefix", "pin"):
            name = {"name": rng.choice("xy")} if what == "pin" else {}
            done = engine.ask(what, tokens=tokens, **name, **salted(salt))
            history.check(salt, tokens, done["cached_tokens"])
            history.tell(salt, tokens)
            continue
        elif what == "score":
            text = [rng.randrange(300, 310) for _ in range(3)]
            (id,) = engine.send({"op": "score", "tokens": tokens, "texts": [text], **salted(salt)})
            (answer,) = engine.answers([id])
            history.check(salt, tokens, answer.start["cached_tokens"])
            history.tell(salt, tokens + text)
            continue
        else:
            ends = {"ignore_eos": True, "seed": rng.randrange(3)}
            answer = engine.generate(
                tokens=tokens, n=2, max_tokens=4, return_token_ids=True, sampling=ends, **salted(salt)
            )
            history.check(salt, tokens, answer.start["cached_tokens"])
            last = {"continue": {"id": answer.start["id"], "index": 0}}, tokens
        history.tell(salt, *(tokens + ids for ids in drawn(answer)))


@pytest.mark.parametrize("ram", ["0", "64M"])
def test_no_request_finds_what_only_another_salt_has_told(tmp_path: Path, ram: str) -> None:
    """In cells, pins and host memory, and in a second process on disk."""
    history, flags = History(), (*FEW, "--cache-ram", ram, "--prefix-cache", str(tmp_path / "prefixes"))
    for seed in range(2):
        with Lines(*flags) as engine:
            play(engine, history, random.Random(7))
            play(engine, history, random.Random(seed))
    assert history.hits > 60
    assert history.temptations > 60


def test_a_salt_changes_no_text_and_its_own_prefix_is_found() -> None:
    with Lines("-c", "4096", "-np", "4", "-t", "1") as engine:
        prompt = "Once upon a time there was a little dog who liked to play. " * 4
        answers = [
            engine.generate(prompt=prompt, n=1, max_tokens=3, sampling={"temperature": 0}, **salted(salt))
            for salt in (None, "a", "a", "b", None)
        ]
        n = answers[0].start["prompt_tokens"]
        assert [answer.start["cached_tokens"] for answer in answers] == [0, 0, n, 0, n]
        assert {tuple(answer.texts) for answer in answers} == {tuple(answers[0].texts)}


ASKED: dict[str, Request] = {  # the fields of a request for this text, and where its answer has the count
    "/v1/completions": {"prompt": "{}", "stream": False},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "{}"}]},
    "/v1/responses": {"input": "{}"},
    "/v1/messages": {"messages": [{"role": "user", "content": "{}"}]},
    "/v1/score": {"prompt": "{}", "texts": [" x"]},
    "/completion": {"prompt": "{}"},
}
BEHIND: list[Request] = [
    {"rank_by": {"following": {"text": " The end."}}},
    {"rank_by": {"judge": {"prompt": "{text}", "answers": [" yes", " no"]}}},
]


def filled(fields: Any, text: str) -> Any:
    match fields:
        case dict():
            return {name: filled(value, text) for name, value in fields.items()}
        case list():
            return [filled(value, text) for value in fields]
        case str():
            return fields.replace("{}", text)
    return fields


def n_cached(answer: Any) -> int:
    """The cached tokens that an answer of any path tells of."""
    if "timings" in answer:
        return int(answer["timings"]["cache_n"])
    usage = answer["usage"]
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    return int(details["cached_tokens"] if details else usage["cache_read_input_tokens"])


@pytest.fixture
def texts() -> Iterator[str]:
    """Texts with no beginning in common."""
    return (
        f"{i * 7919 % 1000} hares met {i} foxes by the river at dawn, and none of them ran. " * 3
        for i in range(99)
    )


@pytest.mark.parametrize("path", ASKED)
def test_every_path_has_salts(server: Server, path: str, texts: Iterator[str]) -> None:
    text, found = f"By {path}: {next(texts)}", []
    for salt in (None, "a", "a", "b"):
        short = {} if "score" in path else {"max_tokens": 1, "n": 1}
        status, answer = server.json("POST", path, filled(ASKED[path], text) | short | salted(salt))
        assert status == 200, answer
        found.append(n_cached(answer))
    first, other, same, third = found
    head = max(first, other, third)  # what all requests begin with: a token in front, a template's words
    assert head < 32
    assert same > head + 20


def test_what_is_scored_of_a_salted_request_has_its_salt(server: Server, texts: Iterator[str]) -> None:
    for more in BEHIND:
        text = next(texts)
        body = {"prompt": text, "n": 2, "max_tokens": 4, "stream": False, "cache_salt": "a", **more}
        status, answer = server.json("POST", "/v1/completions", body)
        assert status == 200, answer
        for salt, finds in ((None, False), ("b", False), ("a", True)):
            again = {"prompt": text + " x", "max_tokens": 1, "n": 1, "stream": False, **salted(salt)}
            told = n_cached(server.json("POST", "/v1/completions", again)[1])
            assert (told > 20) is finds, (more, salt, told)
