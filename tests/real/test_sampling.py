"""Lengths, stop strings, banned strings, settings and UTF-8 are exact to the token."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reference.models import vocabulary
from tests.reference.results import Reference
from tests.support.lines import Answer, Lines
from tests.support.rows import each_row

Request = dict[str, Any]
Vector = np.ndarray[Any, np.dtype[Any]]

HOT: Request = {"temperature": 1.5, "top_k": 0, "top_p": 1, "min_p": 0, "seed": 5, "ignore_eos": True}
TALE: Request = {"prompt": "Once upon a time", "n": 1, "max_tokens": 40, "sampling": HOT}


@pytest.fixture(scope="module")
def engine(bigram: Path) -> Iterator[Lines]:
    """With this model equal settings and seeds give equal tokens in any batch (law 1)."""
    with Lines("-np", "16", "-c", "8192", "-t", "1", model=bigram) as engine:
        yield engine


@pytest.fixture(scope="module")
def text(engine: Lines) -> str:
    """The text of TALE without stop strings."""
    (text,) = engine.generate(**TALE).texts
    assert len(text) > 100
    return text


# Seeds


def test_the_seed_4294967295_means_a_random_seed(engine: Lines) -> None:
    """llama.cpp's LLAMA_DEFAULT_SEED: for a request any seed, for sequence i the request's seed + i."""
    none = {"seed": 2**32 - 1}
    first, other = (engine.generate(**TALE | {"sampling": HOT | none}).start["seed"] for _ in range(2))
    assert first != other
    three = TALE | {"n": 3}
    mixed = engine.generate(**three, sequences=[none, {"seed": 9}, none]).texts
    assert mixed[::2] == engine.generate(**three).texts[::2]
    assert mixed[1:2] == engine.generate(**TALE | {"sampling": HOT | {"seed": 9}}).texts


def test_after_the_last_seed_comes_0(engine: Lines) -> None:
    texts = engine.generate(**TALE | {"n": 2, "sampling": HOT | {"seed": 2**32 - 2}}).texts
    assert texts[1:] == engine.generate(**TALE | {"sampling": HOT | {"seed": 0}}).texts


# The first draw


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_first_tokens_are_independent_draws(plain: Path, tmp_path: Path, temperature: float) -> None:
    """n first tokens from one row of logits follow the model's distribution; none is copied."""
    kv = ("-fa", "off", "-ctk", "f32", "-ctv", "f32")
    n, settings = 512, {"temperature": temperature, "samplers": ["temperature"], "seed": 0}
    with Lines(*kv, "-np", "32", "-c", "2048", "-t", "1", model=plain) as engine:
        prompt = engine.ask("tokenize", text="Lily and the", add_special=True)["tokens"]
        ids = engine.generate(tokens=prompt, n=n, max_tokens=1, logprobs=0, sampling=settings).ids
    weights = np.exp(Reference(tmp_path, *kv).logprobs(prompt)[-1] / temperature)
    drawn = np.bincount([token for tokens in ids for token in tokens or [0]], minlength=len(weights))
    assert_drawn_from(weights / weights.sum(), drawn)


def assert_drawn_from(shares: Vector, drawn: Vector) -> None:
    """Pearson's chi-square over groups of tokens, each with an expectation of 8 or more."""
    expected = shares * drawn.sum()
    order = np.argsort(-expected)
    groups = np.floor(np.cumsum(expected[order]) / 8)  # a likely token is a group by itself
    counts, means = (np.bincount(groups.astype(int), values[order]) for values in (drawn, expected))
    counts, means = counts[means > 4], means[means > 4]
    assert len(means) > 8
    freedom = len(means) - 1
    assert abs(((counts - means) ** 2 / means).sum() - freedom) < 4 * np.sqrt(2 * freedom)


# The likeliest tokens


NEUTRAL = {"samplers": ["penalties", "dry", "typ_p", "top_k", "top_p", "temperature"], "typical_p": 1.0}
WHOLE = NEUTRAL | {"typical_p": 0.9999999}  # needs every token, and removes none


@each_row(
    "settings",
    [
        {"top_k": 1},
        {"top_k": 12},
        {"top_k": 12, "temperature": 0},
        {"top_k": 5, "logit_bias": [[300, 9.5], [301, False], [1999, 9.0]]},
        {"top_k": 5, "repeat_penalty": 1.9, "repeat_last_n": 8, "presence_penalty": 1.5},
        {"top_k": 5, "repeat_penalty": 0.5, "repeat_last_n": 8},
        {"top_k": 5, "dry_multiplier": 2.0, "dry_allowed_length": 1, "dry_penalty_last_n": 16},
        {"top_k": 900},
    ],
)
def test_a_draw_among_the_likeliest_is_one_among_all(settings: Request) -> None:
    """The engine samples only from tokens that the samplers can choose, with the same result as from all."""
    prompt = {"prompt": "Once upon a time", "n": 4, "max_tokens": 48}
    base: Request = {"temperature": 1.2, "top_p": 0.99, "seed": 3, "ignore_eos": True}
    with Lines("-np", "4", "-c", "1024", "-t", "1") as engine:
        few, all_ = (
            engine.generate(**prompt, cache=False, logprobs=0, sampling=base | order | settings).ids
            for order in (NEUTRAL, WHOLE)
        )
    assert few == all_
    assert any(len(set(ids)) > 3 for ids in few)


# Lengths


@pytest.mark.parametrize("max_tokens", [0, 1, 7])
def test_max_tokens_is_exact(engine: Lines, max_tokens: int) -> None:
    answer = engine.generate(**TALE | {"n": 20, "max_tokens": max_tokens, "logprobs": 0})
    assert answer.lengths == [max_tokens] * 20
    assert {stop["finish_reason"] for stop in answer.stops} == {"length"}
    assert [len(ids) for ids in answer.ids] == [max_tokens] * 20
    assert answer.done["completion_tokens"] == 20 * max_tokens


@pytest.mark.parametrize("min_tokens", [0, 1, 5])
def test_before_min_tokens_a_likely_end_does_not_come(engine: Lines, min_tokens: int) -> None:
    tempted = HOT | {"ignore_eos": False, "logit_bias": [[0, 1000]]}
    answer = engine.generate(**TALE | {"n": 8, "min_tokens": min_tokens, "sampling": tempted})
    assert answer.lengths == [min_tokens + 1] * 8  # the end of text is a token, too
    assert {stop["finish_reason"] for stop in answer.stops} == {"stop"}
    assert [bool(text) for text in answer.texts] == [min_tokens > 0] * 8


def test_before_min_tokens_stop_strings_are_text(engine: Lines, text: str) -> None:
    answer = engine.generate(**TALE | {"min_tokens": 40, "stop": [text[0]]})
    assert answer.texts == [text]


def test_a_sequence_ends_where_its_context_is_full(bigram: Path) -> None:
    request = TALE | {"n": 2, "max_tokens": -1}
    with Lines("-np", "4", "-c", "256", model=bigram) as engine:
        answer = engine.generate(**request)
    n_prompt = answer.start["prompt_tokens"]
    assert answer.lengths == [256 - n_prompt] * 2
    assert {stop["finish_reason"] for stop in answer.stops} == {"length"}


# Stop strings


def check_stopped(answer: Answer, text: str, stops: list[str]) -> None:
    """The text ends before the stop string that is complete first, and no part of that was streamed."""
    ends = [(text.index(stop) + len(stop), text.index(stop), stop) for stop in stops if stop in text]
    _, begin, stop = min(ends)
    assert answer.texts == [text[:begin]]
    assert "" not in answer.pieces[0]
    (end,) = answer.stops
    assert (end["stop"], end["finish_reason"], end["stop_text"]) == (1, "stop", stop)


@pytest.mark.parametrize("length", [1, 2, 5, 13])
def test_a_stop_string_at_any_place_is_never_streamed(engine: Lines, text: str, length: int) -> None:
    stops = [text[i : i + length] for i in range(100 - length)]
    answers = engine.generate_all(*(TALE | {"stop": [stop]} for stop in stops))
    for stop, answer in zip(stops, answers, strict=True):
        check_stopped(answer, text, [stop])


def test_text_that_begins_like_a_stop_string_but_is_none_is_streamed(engine: Lines, text: str) -> None:
    stops = [text[i : i + 9] + "\0" for i in range(len(text))]  # the last ones are undecided at the end
    answers = engine.generate_all(*(TALE | {"stop": [stop]} for stop in stops))
    answers.append(engine.generate(**TALE | {"stop": stops}))
    for answer in answers:
        assert answer.texts == [text]
        assert answer.stops[0]["finish_reason"] == "length"
        assert "stop_text" not in answer.stops[0]


def test_of_several_stop_strings_the_first_complete_one_stops(engine: Lines, text: str) -> None:
    lists = [[text[i + 4 : i + 6], text[i : i + 9], text[i + 20 : i + 22]] for i in range(0, 70, 3)]
    answers = engine.generate_all(*(TALE | {"stop": stops} for stops in lists))
    for stops, answer in zip(lists, answers, strict=True):
        check_stopped(answer, text, stops)


def test_logprobs_are_those_of_the_tokens_in_the_text_before_the_stop_string(
    engine: Lines, text: str
) -> None:
    (whole,) = engine.generate(**TALE | {"logprobs": 0}).ids
    answer = engine.generate(**TALE | {"logprobs": 0, "stop": [text[50:56]]})
    assert answer.ids[0] == whole[: len(answer.ids[0])]
    *others, last = (token["text"] for token in answer.tokens[0])
    assert "".join(others) != answer.texts[0]
    assert ("".join(others) + last).startswith(answer.texts[0]), "the last token may be cut"
    assert answer.texts[0].startswith("".join(others))


# Settings of one sequence


def test_settings_of_one_sequence_leave_the_others_as_they_are(engine: Lines) -> None:
    everyone = engine.generate(**TALE | {"n": 8})
    (greedy,) = engine.generate(**TALE | {"sampling": HOT | {"temperature": 0}}).texts
    (seeded,) = engine.generate(**TALE | {"sampling": HOT | {"seed": 99}}).texts
    stop = everyone.texts[5][30:35]
    overrides: list[Request] = [{} for _ in range(8)]
    overrides[1] = {"temperature": 0}
    overrides[3] = {"max_tokens": 3}
    overrides[4] = {"seed": 99}
    overrides[5] = {"stop": [stop]}
    overrides[7] = {"temperature": 0}
    answer = engine.generate(**TALE | {"n": 8, "sequences": overrides})
    assert answer.texts[1] == answer.texts[7] == greedy
    assert answer.texts[4] == seeded
    assert answer.texts[5] == everyone.texts[5].partition(stop)[0]
    assert everyone.texts[3].startswith(answer.texts[3])
    assert answer.lengths[3] == 3
    for i in (0, 2, 6):
        assert answer.texts[i] == everyone.texts[i]
        assert answer.lengths[i] == 40


# Banned strings


def phrases_across_tokens(engine: Lines, index: int, n: int = 10) -> list[tuple[str, str]]:
    """Phrases that several tokens make, each with the text before its first token."""
    tokens = engine.generate(**TALE | {"n": index + 1, "logprobs": 0}).tokens[index]
    pieces = [token["text"] for token in tokens]
    found = []
    for i in range(len(pieces) - 3):
        phrase = pieces[i][-2:] + pieces[i + 1] + pieces[i + 2][:2]
        text = "".join(pieces)
        first = text.lower().index(phrase.lower())
        starts = list(itertools.accumulate(map(len, pieces), initial=0))
        before = max(start for start in starts if start <= first)
        if not any(phrase.lower().encode() in piece.lower() for piece in vocabulary()):
            found.append((text[:before], phrase))
    assert len(found) >= n
    return found[:: len(found) // n]


def test_a_banned_string_is_not_streamed_and_the_text_before_it_stays(engine: Lines) -> None:
    cases = phrases_across_tokens(engine, 2)
    everyone = engine.generate(**TALE | {"n": 6})
    requests = [TALE | {"n": 6, "banned_strings": [phrase.swapcase()]} for _, phrase in cases]
    for (before, phrase), answer in zip(cases, engine.generate_all(*requests), strict=True):
        assert answer.texts[2].startswith(before)
        assert answer.texts[2] != everyone.texts[2]
        assert not any(phrase.lower() in text.lower() for text in answer.texts)
        assert answer.lengths == [40] * 6
        for own, untouched in zip(answer.texts, everyone.texts, strict=True):
            assert own == untouched or phrase.lower() in untouched.lower()


def test_a_banned_string_that_a_rewind_makes_possible_is_not_streamed(engine: Lines) -> None:
    """A beginning of one must stay held back while a later beginning of another may still be rewound."""
    pieces = [token["text"] for token in engine.generate(**TALE, logprobs=0).tokens[0]]
    n_said = 0
    for i in range(1, 30):
        taken_back = "".join(pieces[i : i + 2])
        other = engine.generate(**TALE, banned_strings=[taken_back], logprobs=0).tokens[0]
        said = pieces[i - 1] + other[i]["text"]
        answer = engine.generate(**TALE, banned_strings=[taken_back, said])
        assert said.lower() not in answer.texts[0].lower()
        n_said += [token["text"] for token in other[:i]] == pieces[:i] and other[i]["text"] != pieces[i]
    assert n_said >= 10


def test_banned_strings_of_one_sequence_leave_the_others_alone(engine: Lines) -> None:
    everyone = engine.generate(**TALE | {"n": 4})
    _, phrase = phrases_across_tokens(engine, 2)[3]
    overrides: list[Request] = [{}, {}, {"banned_strings": [phrase]}, {}]
    answer = engine.generate(**TALE | {"n": 4, "sequences": overrides})
    assert phrase.lower() not in answer.texts[2].lower()
    assert [answer.texts[i] for i in (0, 1, 3)] == [everyone.texts[i] for i in (0, 1, 3)]


def test_banned_strings_are_not_streamed_over_many_seeds() -> None:
    banned = ["Lily", "there was", "LITTLE GIRL", "a", ". she", "the "]
    request = {"prompt": "Once upon a time", "n": 64, "max_tokens": 30, "sampling": {"seed": 1}}
    with Lines("-np", "32", "-c", "4096") as engine:
        answer = engine.generate(**request, banned_strings=banned)
        plain = engine.generate(**request)
    assert all(any(phrase.lower() in text.lower() for text in plain.texts) for phrase in banned)
    assert not any(phrase.lower() in text.lower() for phrase in banned for text in answer.texts)
    assert len(set(answer.texts)) > 32
    assert answer.done["completion_tokens"] == sum(answer.lengths)


def test_with_banned_strings_stop_strings_and_max_tokens_are_exact(engine: Lines) -> None:
    before, phrase = phrases_across_tokens(engine, 0)[-1]
    banned = TALE | {"banned_strings": [phrase]}
    (text,) = engine.generate(**banned).texts
    stops = [text[i : i + 5] for i in range(0, len(before) + 20, 5)]
    lengths = range(1, 41, 3)
    answers = engine.generate_all(
        *(banned | {"stop": [stop]} for stop in stops), *(banned | {"max_tokens": k} for k in lengths)
    )
    for stop, answer in zip(stops, answers, strict=False):
        check_stopped(answer, text, [stop])
    for length, answer in zip(lengths, answers[len(stops) :], strict=True):
        assert answer.lengths == [length]
        assert phrase.lower() not in answer.texts[0].lower()


# UTF-8

ALPHABETS = {  # bytes to draw from, each a token; they make characters, parts of characters, or invalid UTF-8
    "two bytes": "é".encode(),
    "three bytes": "€".encode() + b"a",
    "four bytes": "😀".encode(),
    "many": "é€😀".encode() + b" z\xff\xc0",
}


@each_row("alphabet", ALPHABETS.values(), ids=ALPHABETS)
@each_row("fields", [{}, {"stop": ["z\0"], "banned_strings": ["z\0"]}], ids=["freely", "held back"])
def test_text_is_utf_8_whatever_the_bytes(engine: Lines, alphabet: bytes, fields: Request) -> None:
    ids = [vocabulary().index(bytes([byte])) for byte in alphabet]
    bias = [[id, 1000 if vocabulary()[id] >= b"\x80" else 940] for id in ids]  # the bytes' own logit is -64
    forced = {"samplers": ["temperature"], "temperature": 4, "seed": 3, "logit_bias": bias}
    request = TALE | {"n": 24, "sampling": forced} | fields
    answer = engine.generate(**request)
    tokens = engine.generate(**request, logprobs=0)
    assert {id for ids in tokens.ids for id in ids} == set(ids)
    said = [b"".join(vocabulary()[id] for id in ids) for ids in tokens.ids]
    expected = [text.decode(errors="replace") for text in said]
    assert answer.texts == tokens.texts == expected
    assert [engine.ask("detokenize", tokens=ids)["text"] for ids in tokens.ids] == expected
    unfinished = [text for text in said if text[-1] >= 0xC2]
    assert unfinished or len(ids) < 3
    assert all(text.decode(errors="replace").endswith("\ufffd") for text in unfinished)


def test_a_character_is_streamed_in_one_piece(engine: Lines) -> None:
    """Draws the bytes of 😀 in order: each is likelier than the next, and none may come twice."""
    emoji = [vocabulary().index(bytes([byte])) for byte in "😀".encode()]
    penalties = {"presence_penalty": 100, "repeat_last_n": 4, "samplers": ["penalties", "temperature"]}
    descending = [[id, 1000 - 10 * i] for i, id in enumerate(emoji)]
    settings = {"temperature": 0, "logit_bias": descending} | penalties
    answer = engine.generate(**TALE | {"max_tokens": 4, "sampling": settings})
    assert answer.pieces == [["😀"]]
