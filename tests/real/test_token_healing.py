"""Token healing: the end of a prompt is drawn again, and the texts begin behind the prompt."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.lines import Lines
from tests.support.rows import each_row

PLAIN = {"temperature": 1, "samplers": ["temperature"], "seed": 5}
NAMED = "Once upon a time, there was a little girl named"
GIRL = "Once upon a time, there was a little gi"


@pytest.fixture(scope="module")
def engine() -> Iterator[Lines]:
    with Lines("-np", "16", "-c", "8192", "-t", "1") as engine:
        yield engine


def healed(engine: Lines, prompt: str, n: int = 1, **fields: Any) -> Any:
    return engine.generate(prompt=prompt, n=n, **{"sampling": PLAIN, "token_healing": True, **fields})


def first_words(texts: list[str]) -> Counter[str]:
    return Counter(re.split(r"[ ,.!]", text.strip(), maxsplit=1)[0] for text in texts)


def distance(one: Counter[str], other: Counter[str]) -> float:
    """Half of the sum of differences of two distributions: 0 if they are equal, 1 if they share nothing."""
    words = one.keys() | other.keys()
    return sum(abs(one[w] / one.total() - other[w] / other.total()) for w in words) / 2


def echoed(engine: Lines, **fields: Any) -> str:
    return str(engine.generate(n=1, max_tokens=1, echo=True, **fields).named("prompt")[0]["text"])


# ----------------------------------------------------------------------------------------------------
# Distributions
# ----------------------------------------------------------------------------------------------------


def test_the_first_token_is_drawn_from_those_that_begin_with_the_dropped_bytes(engine: Lines) -> None:
    raw = engine.generate(prompt=NAMED, n=1, max_tokens=1, logprobs=100, sampling=PLAIN).tokens[0][0]["top"]
    answer = healed(engine, NAMED + " ", max_tokens=1, logprobs=100, logprobs_mode="processed")
    drawn = {token["id"]: token["logprob"] for token in answer.tokens[0][0]["top"]}
    fitting = {token["id"]: token["logprob"] for token in raw if token["text"].startswith(" ")}
    common = drawn.keys() & fitting.keys()
    assert len(common) > 30
    assert all(token["text"].startswith(" ") for token in answer.tokens[0][0]["top"])
    shifts = [drawn[id] - fitting[id] for id in common]
    assert max(shifts) - min(shifts) < 1e-3
    mass = sum(map(math.exp, fitting.values()))  # of the 100 likeliest
    assert mass - 1e-3 <= math.exp(-shifts[0]) <= mass + 0.05


def test_a_space_at_the_end_changes_nothing(engine: Lines) -> None:
    n, fields = 300, {"max_tokens": 4, "sampling": PLAIN}
    names = first_words(engine.generate(prompt=NAMED, n=n, **fields).texts)
    with_space = healed(engine, NAMED + " ", n, **fields).texts
    assert not any(text.startswith(" ") for text in with_space)
    assert distance(names, first_words(with_space)) < 0.25
    without = first_words(engine.generate(prompt=NAMED + " ", n=n, **fields).texts)
    assert distance(names, without) > 0.5


def test_a_word_goes_on(engine: Lines) -> None:
    texts = healed(engine, GIRL, 100, max_tokens=3).texts
    assert sum(text.startswith("rl ") for text in texts) > 80


def test_nothing_is_dropped_where_no_token_is_longer(engine: Lines) -> None:
    known = engine.generate(prompt=NAMED, n=4, max_tokens=5, sampling=PLAIN)
    same = healed(engine, NAMED, 4, max_tokens=5)
    assert (same.texts, same.start["prompt_tokens"]) == (known.texts, known.start["prompt_tokens"])


# ----------------------------------------------------------------------------------------------------
# Prompts
# ----------------------------------------------------------------------------------------------------

PROMPTS = [
    "gi",
    " ",
    "\n",
    "a caf\u00e9",
    "x \u8a9e",
    "\u00e9",
    "\U0001f600",
    "named  ",
    "one\n\n",
    "Lily's ",
    "12",
    '"',
]


@each_row("prompt", PROMPTS)
def test_the_texts_follow_the_prompt(engine: Lines, prompt: str) -> None:
    answer = healed(engine, prompt, 20, max_tokens=6, echo=True, first_token="distinct")
    plain = engine.generate(prompt=prompt, n=1, max_tokens=1)
    assert answer.named("prompt")[0]["text"] == prompt
    assert 1 <= answer.start["prompt_tokens"] <= plain.start["prompt_tokens"]
    assert all(answer.lengths)
    id = answer.events[0]["id"]
    for index, text in enumerate(answer.texts):
        if "\ufffd" not in text:  # a text that ends within a character has no other form
            assert echoed(engine, **{"continue": {"id": id, "index": index}}) == prompt + text


def test_of_a_model_without_a_first_token_one_token_stays(bigram: Path) -> None:
    with Lines("-np", "4", "-c", "1024", "-t", "1", model=bigram) as engine:
        answer = healed(engine, "a", 8, max_tokens=3, echo=True)
        assert answer.start["prompt_tokens"] >= 1
        assert answer.named("prompt")[0]["text"] == "a"


def test_tokens_are_healed_as_text_is(engine: Lines) -> None:
    ids = engine.ask(op="tokenize", text=GIRL, add_special=True)["tokens"]
    by_text = healed(engine, GIRL, 8, max_tokens=4)
    by_ids = engine.generate(tokens=ids, n=8, max_tokens=4, sampling=PLAIN, token_healing=True)
    assert by_ids.texts == by_text.texts


# ----------------------------------------------------------------------------------------------------
# With other fields
# ----------------------------------------------------------------------------------------------------


def test_seeds_give_the_same_texts_again(engine: Lines) -> None:
    for fields in ({}, {"diversity": "arithmetic"}, {"first_token": "distinct"}):
        once, again = (healed(engine, GIRL, 24, max_tokens=5, **fields).texts for _ in range(2))
        assert once == again


def test_distinct_first_tokens_are_distinct(engine: Lines) -> None:
    answer = healed(engine, NAMED + " ", 16, max_tokens=1, logprobs=0, first_token="distinct")
    firsts = [ids[0] for ids in answer.ids]
    assert len(set(firsts)) == 16
    assert all(tokens[0]["text"].startswith(" ") for tokens in answer.tokens)


def test_diversity_spreads_the_names(engine: Lines) -> None:
    plain = engine.generate(prompt=NAMED, n=16, max_tokens=1, sampling=PLAIN, diversity="arithmetic").texts
    spread = healed(engine, NAMED + " ", 16, max_tokens=1, diversity="arithmetic").texts
    assert len(set(spread)) >= len(set(plain)) - 2


@pytest.mark.parametrize(
    ("prompt", "structure", "pattern"),
    [
        (GIRL, {"regex": "r[a-z]+ named (Lily|Sue)"}, "r[a-z]+ named (Lily|Sue)"),
        (NAMED + " ", {"choice": ["Lily", "Jane", "Quack"]}, "Lily|Jane|Quack"),
        (NAMED + " ", {"grammar": 'root ::= [A-Z] [a-z]+ "."'}, r"[A-Z][a-z]+\."),
        ('{"a": ', {"json_schema": {"type": "integer"}}, r"-?\d+"),
        (GIRL, {"regex": "(rl)?"}, "(rl)?"),
    ],
)
def test_a_structure_is_that_of_the_text_behind_the_prompt(
    engine: Lines, prompt: str, structure: dict[str, Any], pattern: str
) -> None:
    answer = healed(engine, prompt, 30, max_tokens=30, **structure)
    ended = [t for t, stop in zip(answer.texts, answer.stops, strict=True) if stop["finish_reason"] == "stop"]
    assert len(ended) > 20
    assert all(re.fullmatch(pattern, text) for text in ended)


def test_a_stop_string_begins_behind_the_prompt(engine: Lines) -> None:
    answer = healed(engine, GIRL, 30, max_tokens=10, stop=["l", "gi"])
    girls = [i for i, text in enumerate(answer.texts) if text == "r"]
    assert len(girls) > 20
    assert all(answer.stops[i]["stop_text"] == "l" for i in girls)
    named = {"id": answer.events[0]["id"], "index": girls[0]}
    assert echoed(engine, **{"continue": named}) == GIRL + "r"


def test_a_continued_sequence_has_the_whole_prompt_wherever_it_is_cut(engine: Lines) -> None:
    answer = healed(engine, GIRL, 1, max_tokens=6, logprobs=0)
    id, text = answer.events[0]["id"], answer.texts[0]
    for at in range(7):
        prompt = echoed(engine, **{"continue": {"id": id, "index": 0, "at": at}})
        assert prompt.startswith(GIRL)
        assert (GIRL + text).startswith(prompt)


def test_a_continued_sequence_is_healed(engine: Lines) -> None:
    id = engine.generate(prompt=NAMED, n=1, max_tokens=1, sampling=PLAIN).events[0]["id"]
    fields = {"continue": {"id": id, "index": 0, "at": 0}, "prompt": " "}
    answer = engine.generate(n=16, max_tokens=3, sampling=PLAIN, token_healing=True, echo=True, **fields)
    assert answer.named("prompt")[0]["text"] == NAMED + " "
    assert not any(text.startswith(" ") for text in answer.texts)
    assert answer.texts == healed(engine, NAMED + " ", 16, max_tokens=3).texts


def test_a_fork_goes_on_within_the_end_of_the_prompt(engine: Lines) -> None:
    (id,) = engine.send({"op": "generate", "prompt": GIRL, "n": 1, "max_tokens": 200, "token_healing": True,
                         "sampling": {**PLAIN, "ignore_eos": True}})  # fmt: skip
    engine.send({"op": "extend", "id": id, "add": 3, "fork": {"index": 0, "at": 0}})
    (answer,) = engine.answers([id])
    assert len(answer.texts) == 4
    assert sum(text.startswith("rl") for text in answer.texts) >= 3


def test_banned_phrases_and_duplicates_are_of_the_text(engine: Lines) -> None:
    banned = healed(engine, GIRL, 16, max_tokens=8, banned_strings=["rl", "girl"]).texts
    assert not any("rl" in text for text in banned)
    distinct = healed(engine, NAMED + " ", 16, max_tokens=1, dedupe="again").texts
    assert len(set(distinct)) > 10


def test_a_second_answer_follows_the_healed_one(engine: Lines) -> None:
    then = {"text": " So:", "regex": "[ab]{3}", "return_free": True}
    answer = healed(engine, GIRL, 4, max_tokens=4, then=then)
    assert all(re.fullmatch(r"rl.*[ab]{3}", text, re.DOTALL) for text in answer.texts if text[0] == "r")


def test_tokens_have_their_whole_text_and_texts_only_what_follows(engine: Lines) -> None:
    answer = healed(engine, GIRL, 1, max_tokens=4, logprobs=2)
    whole = "".join(token["text"] for token in answer.tokens[0])
    assert whole.endswith(answer.texts[0])
    assert whole.removesuffix(answer.texts[0]) == " gi"


def test_a_score_of_the_prompt_goes_up_to_the_dropped_tokens(engine: Lines) -> None:
    answer = healed(engine, GIRL, 1, max_tokens=3, logprobs=0, echo=True)
    prompt = "".join(token["text"] for event in answer.named("prompt") for token in event.get("tokens", ()))
    assert prompt + "".join(token["text"] for token in answer.tokens[0]) == GIRL + answer.texts[0]


def test_bans_that_leave_no_token_are_an_error(engine: Lines) -> None:
    answer = healed(engine, GIRL, max_tokens=1, logprobs=100, logprobs_mode="processed")
    fitting = [token["id"] for token in answer.tokens[0][0]["top"]]
    assert 1 < len(fitting) < 100
    error = healed(engine, GIRL, sampling={"logit_bias": [[id, False] for id in fitting]}).events[-1]
    assert error["event"] == "error"
    assert "no token is left that spells the end of the prompt (token_healing)" in error["message"]
