"""Second answers (`then`): each sequence answers freely, reads a text and answers again under a structure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.support.lines import Answer, Lines
from tests.support.models import write_model

ONCE = "Once upon a time,"
SO = " So the answer is:"
Request = dict[str, Any]
CAT: Request = {"text": SO, "regex": "[ab]{3}"}
SCHEMA: Request = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
GRAMMAR = 'root ::= " yes" | " no" " "* "!"'
LONG: Request = {"ignore_eos": True, "seed": 4}


@pytest.fixture(scope="module")
def engine() -> Iterator[Lines]:
    with Lines("-np", "4", "-c", "4096", "-t", "1") as engine:
        yield engine


def work(engine: Lines) -> int:
    """The tokens that the engine has computed so far."""
    return int(engine.ask("status")["step_tokens"])


def n_tokens(engine: Lines, text: str, **more: Any) -> int:
    return len(engine.ask("tokenize", text=text, **more)["tokens"])


def thens(answer: Answer) -> list[Request]:
    return sorted(answer.named("then"), key=lambda event: event["index"])


# Structures


STRUCTURES: list[Request] = [
    {"json_schema": SCHEMA}, {"grammar": GRAMMAR}, {"regex": "[a-f]{2,9}x"}, {"choice": [" good", " bad"]},
]  # fmt: skip


def is_valid(text: str, structure: Request) -> bool:
    match structure:
        case {"json_schema": schema}:
            Draft202012Validator(schema).validate(json.loads(text))
            return True
        case {"grammar": _}:
            return re.fullmatch(" yes| no *!", text) is not None
        case {"regex": pattern}:
            return re.fullmatch(pattern, text) is not None
    return text in structure["choice"]


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda one: next(iter(one)))
def test_all_n_second_answers_have_the_structure_in_waves(engine: Lines, structure: Request) -> None:
    """n is above -np, so most sequences start as others finish."""
    answer = engine.generate(
        prompt=ONCE, n=20, max_tokens=12, sampling={"seed": 3, "temperature": 1.5},
        then={"text": SO, "max_tokens": 400, **structure},
    )  # fmt: skip
    assert len(answer.texts) == 20
    for text, stop in zip(answer.texts, answer.stops, strict=True):
        assert stop["finish_reason"] == "stop", stop
        assert is_valid(text, structure), text
        assert 0 < stop["free_length"] <= 12
    assert len(set(answer.texts)) > 1


def test_a_structure_of_the_request_is_that_of_the_free_answer(engine: Lines) -> None:
    answer = engine.generate(
        prompt=ONCE, n=4, regex="[xy]{4}", then={**CAT, "return_free": True}, sampling={"seed": 3}
    )
    for text in answer.texts:
        assert re.fullmatch("[xy]{4}[ab]{3}", text), text


# Ends of the two answers


def test_stop_strings_of_the_request_end_only_free_answers(engine: Lines) -> None:
    """The same letters may stand in the second answer; then.stop ends only that one."""
    answer = engine.generate(
        prompt=ONCE, n=6, max_tokens=200, stop=["a"], sampling=LONG,
        then={"text": SO, "regex": "a{5}z", "return_free": True},
    )  # fmt: skip
    for event, text, stop in zip(thens(answer), answer.texts, answer.stops, strict=True):
        assert (event["finish_reason"], event["stop_text"]) == ("stop", "a")
        assert event["length"] == stop["free_length"]
        assert text.endswith("aaaaaz")
        assert "a" not in text.removesuffix("aaaaaz")
        assert "stop_text" not in stop


def test_stop_strings_of_then_end_only_second_answers(engine: Lines) -> None:
    answer = engine.generate(
        prompt=ONCE, n=6, max_tokens=60, sampling=LONG,
        then={"text": SO, "stop": ["a"], "max_tokens": 300, "return_free": True},
    )  # fmt: skip
    for event, stop in zip(thens(answer), answer.stops, strict=True):
        assert (event["finish_reason"], event["length"]) == ("length", 60)
        assert (stop["finish_reason"], stop["stop_text"]) == ("stop", "a")
        assert stop["free_length"] == 60


@pytest.mark.parametrize(("free", "second"), [(0, 1), (1, 1), (7, 5), (5, 40)])
def test_each_answer_has_its_own_max_tokens(engine: Lines, free: int, second: int) -> None:
    answer = engine.generate(
        prompt=ONCE, n=5, max_tokens=free, sampling=LONG,
        then={"text": SO, "max_tokens": second, "return_free": True},
    )  # fmt: skip
    for event, stop in zip(thens(answer), answer.stops, strict=True):
        assert event["length"] == stop["free_length"] == free
        assert (stop["length"], stop["finish_reason"]) == (free + second, "length")
    assert answer.done["completion_tokens"] == 5 * (free + second)


def test_min_tokens_is_the_free_answers(engine: Lines) -> None:
    answer = engine.generate(prompt=ONCE, n=4, min_tokens=30, max_tokens=40, then=CAT)
    assert all(stop["free_length"] >= 30 and stop["length"] <= 44 for stop in answer.stops)


def test_nothing_of_the_free_answer_is_sent(engine: Lines) -> None:
    """Without return_free the stream is that of the second answers alone."""
    request: Request = {"prompt": ONCE, "n": 6, "max_tokens": 20, "sampling": {"seed": 9}, "logprobs": 1}
    shown = engine.generate(**request, then={**CAT, "return_free": True})
    hidden = engine.generate(**request, then=CAT)
    assert hidden.named("then") == []
    assert all(re.fullmatch("[ab]{3}", text) for text in hidden.texts)
    for whole, second in zip(shown.tokens, hidden.tokens, strict=True):
        assert "".join(token["text"] for token in second) in {
            a + b + c for a in "ab" for b in "ab" for c in "ab"
        }
        assert len(whole) > len(second)


def test_a_free_answer_leaves_room_for_the_second_one(engine: Lines) -> None:
    """The context has 1024 tokens; the free answer has no limit of its own."""
    then = {"text": SO, "max_tokens": 100}
    [stop] = engine.generate(prompt=ONCE, max_tokens=-1, sampling=LONG, then=then).stops
    prompt, text = n_tokens(engine, ONCE, add_special=True), n_tokens(engine, SO)
    assert (stop["length"] - stop["free_length"], stop["finish_reason"]) == (100, "length")
    assert stop["free_length"] == 1024 - prompt - text - 100


# Cells: nothing is computed twice


def test_only_the_text_and_drawn_tokens_are_computed(engine: Lines) -> None:
    """Prompt, free answer, text and second answer, each token once; the last one of all is not computed."""
    before = work(engine)
    answer = engine.generate(
        prompt="A prompt that is new: " + ONCE * 5, max_tokens=10, sampling=LONG,
        then={"text": SO, "max_tokens": 9}, cache=False,
    )  # fmt: skip
    prompt, text = answer.start["prompt_tokens"], n_tokens(engine, SO)
    assert work(engine) - before == prompt + 10 + text + 8


def test_n_sequences_compute_the_prompt_once_and_each_its_own_answers(engine: Lines) -> None:
    before = work(engine)
    answer = engine.generate(
        prompt="Another new prompt: " + ONCE * 20, n=12, max_tokens=10, sampling={"temperature": 2, **LONG},
        then={"text": SO, "max_tokens": 9}, cache=False,
    )  # fmt: skip
    prompt, text = answer.start["prompt_tokens"], n_tokens(engine, SO)
    assert prompt > 100
    assert work(engine) - before <= prompt + 12 * (10 + text + 8)


def test_the_cells_before_a_stop_string_stay(engine: Lines) -> None:
    """The prompt is 200 tokens: were it or the free answer computed again, the counts would show it."""
    request: Request = {"prompt": "Yet another prompt. " + ONCE * 40, "max_tokens": 300, "sampling": LONG}
    free = engine.generate(**request, stop=[" the"], cache=False, logprobs=0)
    before = work(engine)
    [stop] = engine.generate(**request, stop=[" the"], then={"text": SO, "max_tokens": 9}, cache=False).stops
    drawn = stop["free_length"]
    assert drawn == free.stops[0]["length"]
    prompt, text = free.start["prompt_tokens"], n_tokens(engine, SO)
    computed = work(engine) - before
    assert prompt + drawn - 1 + text + 8 <= computed <= prompt + drawn + text + 8, (
        prompt,
        drawn,
        text,
        computed,
    )


def test_the_prompt_is_found_in_the_cache_and_the_whole_text_can_be_continued(engine: Lines) -> None:
    prompt = "Long ago there was a king. " * 20
    engine.generate(prompt=prompt, max_tokens=1)
    [id] = engine.send({
        "op": "generate", "prompt": prompt, "n": 3, "max_tokens": 10, "then": {"text": SO, "max_tokens": 9},
        "sampling": LONG,
    })  # fmt: skip
    [answer] = engine.answers([id])
    assert answer.start["cached_tokens"] >= answer.start["prompt_tokens"] - 1
    again = engine.generate(**{"continue": {"id": id, "index": 2}}, max_tokens=3)
    whole = answer.start["prompt_tokens"] + 10 + n_tokens(engine, SO) + 9
    assert again.start["prompt_tokens"] == whole
    assert again.start["cached_tokens"] >= whole - 2
    detached = engine.generate(**{"continue": {"id": id, "index": 2, "at": 4}}, max_tokens=3)
    assert detached.start["prompt_tokens"] == answer.start["prompt_tokens"] + 4


# Against the same texts asked for one after the other


def test_a_second_answer_is_that_of_a_prompt_with_the_free_one(bigram: Path) -> None:
    """Greedily, with a model that has equal logits in any batch."""
    greedy: Request = {"temperature": 0, "ignore_eos": True}
    with Lines("-np", "4", "-c", "4096", "-t", "1", model=bigram) as engine:
        both = engine.generate(
            prompt=ONCE,
            max_tokens=8,
            sampling=greedy,
            then={"text": SO, "max_tokens": 8, "return_free": True},
        )
        free = engine.generate(prompt=ONCE, max_tokens=8, sampling=greedy)
        second = engine.generate(prompt=ONCE + free.texts[0] + SO, max_tokens=8, sampling=greedy)
    assert both.texts == [free.texts[0] + second.texts[0]]


@pytest.mark.parametrize("kind", ["llama", "gemma3", "mamba"])
def test_models_with_windows_or_states_have_second_answers(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, kind)
    request: Request = {"prompt": ONCE, "n": 6, "max_tokens": 30, "stop": ["e"], "sampling": LONG}
    with Lines("-np", "4", "-c", "2048", "-t", "1", model=path) as engine:
        answer = engine.generate(**request, then=CAT)
    for text, stop in zip(answer.texts, answer.stops, strict=True):
        assert re.fullmatch("[ab]{3}", text)
        assert stop["free_length"] <= 30


# Other fields


def test_logprobs_and_their_sum_are_of_the_second_answer(engine: Lines) -> None:
    answer = engine.generate(
        prompt=ONCE, n=4, max_tokens=6, sampling=LONG, then={"text": SO, "max_tokens": 5},
        logprobs=2, sum_logprobs=True,
    )  # fmt: skip
    for tokens, stop in zip(answer.tokens, answer.stops, strict=True):
        assert len(tokens) == 5
        assert stop["logprob"] == pytest.approx(sum(token["logprob"] for token in tokens), abs=1e-3)


def test_banned_strings_and_private_tokens_hold_in_both_answers(engine: Lines) -> None:
    answer = engine.generate(
        prompt=ONCE, n=8, max_tokens=60, sampling=LONG, banned_strings=[" the", " a"],
        private_tokens=[" was"], then={"text": SO, "max_tokens": 60, "return_free": True},
    )  # fmt: skip
    for text in answer.texts:
        assert not re.search(" the| a| was", text), text


@pytest.mark.parametrize("coupled", [{"diversity": "arithmetic"}, {"first_token": "distinct"}])
def test_free_answers_are_diverse_and_second_ones_have_the_structure(engine: Lines, coupled: Request) -> None:
    request: Request = {"prompt": ONCE, "n": 8, "max_tokens": 6, "sampling": {"seed": 3}, **coupled}
    alone = engine.generate(**request)
    both = engine.generate(**request, then={**CAT, "return_free": True})
    texts = [re.fullmatch("(.*)[ab]{3}", text, re.DOTALL) for text in both.texts]
    assert [found and found[1] for found in texts] == alone.texts


def test_seeds_reproduce_both_answers(engine: Lines) -> None:
    request: Request = {
        "prompt": ONCE, "n": 5, "max_tokens": 9, "sampling": {"seed": 8, "temperature": 1.3},
        "then": {"text": SO, "max_tokens": 9, "return_free": True}, "cache": False,
    }  # fmt: skip
    assert engine.generate(**request).texts == engine.generate(**request).texts


def test_each_sequence_may_have_settings_of_its_own(engine: Lines) -> None:
    answer = engine.generate(
        prompt=ONCE, n=3, then={"text": SO, "max_tokens": 4}, sampling=LONG,
        sequences=[{"max_tokens": 2}, {"stop": ["e"], "max_tokens": 50}, {"temperature": 0, "max_tokens": 7}],
    )  # fmt: skip
    assert [stop["length"] - stop["free_length"] for stop in answer.stops] == [4, 4, 4]
    assert (answer.stops[0]["free_length"], answer.stops[2]["free_length"]) == (2, 7)


def test_a_chat_has_second_answers(engine: Lines) -> None:
    [id] = engine.send({
        "op": "chat", "messages": [{"role": "user", "content": "A story?"}], "n": 3, "max_tokens": 9,
        "then": CAT,
    })  # fmt: skip
    [answer] = engine.answers([id])
    assert all(re.fullmatch("[ab]{3}", text) for text in answer.texts)


# Cancels, extensions, few cells


@pytest.mark.parametrize("phase", ["free", "second"])
def test_one_sequence_is_cancelled_in_either_answer(engine: Lines, phase: str) -> None:
    short, long = {"max_tokens": 3}, {"max_tokens": 700}
    then: Request = {"text": SO, "return_free": True} | (long if phase == "second" else short)
    [id] = engine.send({
        "op": "generate", "prompt": ONCE, "n": 3, "sampling": LONG, "then": then,
        **(short if phase == "second" else long),
    })  # fmt: skip
    begun = set[int]()
    while len(begun) < 3:
        event = engine.read()
        if event["event"] == ("then" if phase == "second" else "stream"):
            begun.add(event["index"])
    engine.send_amid({"op": "cancel", "id": id, "index": 1})
    [answer] = engine.answers([id])
    cancelled = answer.stops[1]
    assert cancelled["finish_reason"] == "cancelled"
    assert ("free_length" in cancelled) == (phase == "second")
    assert [answer.stops[i]["finish_reason"] for i in (0, 2)] == ["length", "length"]
    assert all("free_length" in answer.stops[i] for i in (0, 2))


@pytest.mark.parametrize("phase", ["free", "second"])
def test_a_request_is_cancelled_in_either_answer_and_leaves_no_sequence(engine: Lines, phase: str) -> None:
    then: Request = {"text": SO, "return_free": True, "max_tokens": 900}
    [id] = engine.send({
        "op": "generate", "prompt": ONCE, "n": 9, "sampling": LONG, "then": then,
        "max_tokens": 3 if phase == "second" else 900,
    })  # fmt: skip
    while engine.read()["event"] != ("then" if phase == "second" else "stream"):
        pass
    engine.send_amid({"op": "cancel", "id": id})
    [answer] = engine.answers([id])
    assert {stop["finish_reason"] for stop in answer.stops} == {"cancelled"}
    status = engine.ask("status")
    assert (status["sequences"], status["sequences_waiting"], status["requests"]) == (0, 0, 0)


def test_added_sequences_have_second_answers_and_none_is_forked(engine: Lines) -> None:
    [id] = engine.send({
        "op": "generate", "prompt": ONCE, "n": 2, "max_tokens": 300, "sampling": LONG, "then": CAT,
    })  # fmt: skip
    engine.send_amid({"op": "extend", "id": id, "add": 2})
    [answer] = engine.answers([id])
    assert len(answer.stops) == 4
    assert all(re.fullmatch("[ab]{3}", text) for text in answer.texts)


def test_preempted_second_answers_go_on_and_stay_valid() -> None:
    """Four sequences of up to 300 tokens share 512 cells."""
    with Lines("-np", "4", "-c", "512", "-t", "1") as engine:
        answer = engine.generate(
            prompt=ONCE, n=8, max_tokens=100, sampling={"temperature": 2, **LONG},
            then={"text": SO, "regex": "[a-z ]{90}", "max_tokens": 300},
        )  # fmt: skip
        for text, stop in zip(answer.texts, answer.stops, strict=True):
            assert re.fullmatch("[a-z ]{90}", text)
            assert stop["free_length"] == 100
        assert engine.ask("status")["sequences"] == 0
