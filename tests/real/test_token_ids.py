"""The ids contract: token_ids are what was drawn, and have the reported logprobs behind the prompt's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.real.test_laws import FEW, OPENING, PHRASES
from tests.real.test_scores import KV
from tests.reference.results import Reference
from tests.support.lines import Answer, Event, Lines
from tests.support.models import write_adapter, write_model
from tests.support.rows import each_row

BOUND = 1e-4  # of law 3 with F32 weights and F32 cells; measured: 7e-6
TALE: dict[str, Any] = {
    "prompt": OPENING,
    "n": 8,
    "max_tokens": 40,
    "logprobs": 1,
    "return_token_ids": True,
    "sampling": {"seed": 1},
}
HOT = {"sampling": {"seed": 3, "temperature": 1.2, "top_k": 0, "min_p": 0}}
SCENES: dict[str, dict[str, Any]] = {
    "plain": {},
    "to the end": {"max_tokens": -1, "n": 4},
    "stop strings": {"stop": ["he ", "ay", "s.", " to"]},
    "a sentence": {"end": {"sentences": 1}, "max_tokens": 60},
    "two paragraphs": {"end": {"paragraphs": 2}, "max_tokens": -1, "sampling": {"seed": 1}},
    "sentences and banned phrases": {"end": {"sentences": 2}, "banned_strings": PHRASES},
    "stop strings that are returned": {"stop": ["he ", "ay"], "include_stop_str_in_output": True},
    "banned phrases": {"banned_strings": PHRASES},
    "banned phrases and stop strings": {"banned_strings": PHRASES, "stop": [" with ", "er", "\n"]},
    "a grammar": {"regex": " [a-z]{3,9}( [a-z]{2,7}){3}\\.", "stop": ["ed "]},
    "emoji": {"regex": "[🙂🚀🐕]{3,5}!", "stop": ["🚀"]},
    "waves": {"n": 40, "max_tokens": 20, "stop": ["he"]},
    "hot": HOT | {"n": 8},
    "token healing": {"prompt": OPENING + " do", "token_healing": True, "stop": ["ay"]},
}


@pytest.fixture(scope="module")
def engine(plain: Path) -> Iterator[Lines]:
    with Lines(*KV, *FEW, model=plain) as engine:
        yield engine


def drawn(answer: Answer) -> list[list[int]]:
    ids: list[list[int]] = [[] for _ in answer.stops]
    for event in answer.named("stream"):
        ids[event["index"]] += event.get("token_ids", [])
    return ids


def prompt_of(answer: Answer) -> list[int]:
    ids: list[int] = answer.start["prompt_token_ids"]
    return ids


def scored(engine: Lines, prompt: list[int], texts: list[list[int]], **more: Any) -> list[list[float]]:
    """The logprobs of these tokens behind the prompt."""
    (answer,) = engine.answers(engine.send({"op": "score", "tokens": prompt, "texts": texts} | more))
    found = sorted(answer.named("score"), key=lambda event: event["index"])
    return [[token["logprob"] for token in event["tokens"]] for event in found]


def text_of(engine: Lines, ids: list[int]) -> str:
    """The text of tokens, without that of control tokens."""
    ends = engine.ask("tokenize", text="", pieces=True)["control"]
    assert ends == []
    pieces = bytearray()
    for id in ids:
        text: str = engine.ask("detokenize", tokens=[id])["text"]
        pieces += b"" if text.startswith("<|") else text.encode()
    return pieces.decode()


@each_row("scene", SCENES.values(), ids=SCENES)
def test_token_ids_behind_the_prompts_have_the_logprobs_that_were_reported(
    engine: Lines, scene: dict[str, Any]
) -> None:
    answer = engine.generate(**TALE | scene)
    ids, prompt = drawn(answer), prompt_of(answer)
    assert len(prompt) == answer.start["prompt_tokens"]
    assert list(map(len, ids)) == answer.lengths
    assert answer.ids == ids, "logprobs are of the same tokens"
    for found, tokens in zip(scored(engine, prompt, ids), answer.tokens, strict=True):
        assert np.abs(np.subtract(found, [token["logprob"] for token in tokens])).max() <= BOUND


ENDS = ("a sentence", "two paragraphs", "sentences and banned phrases")


@each_row("name", ["plain", "stop strings", "banned phrases and stop strings", "a grammar", *ENDS])
def test_token_ids_spell_the_text_and_what_a_stop_string_cuts_off(engine: Lines, name: str) -> None:
    answer = engine.generate(**TALE | SCENES[name])
    stopped = 0
    for ids, text, stop in zip(drawn(answer), answer.texts, answer.stops, strict=True):
        whole = engine.ask("detokenize", tokens=ids)["text"]
        assert whole.startswith(text + stop.get("stop_text", ""))
        if stop.get("end") == "sentences":
            assert (text[-1] in ".!?\"'", whole.removeprefix(text) != "") == (True, True)
            continue
        if stop.get("end") == "paragraphs":
            assert (text == text.rstrip(), "\n" in whole.removeprefix(text)) == (True, True)
            continue
        assert (
            stop["finish_reason"] == "length"
            or "stop_text" in stop
            or whole.removeprefix(text) in ("", "<|endoftext|>", "</s>", "<|end|>")
        )
        stopped += "stop_text" in stop
    assert stopped > 0 or "stop" not in SCENES[name]


def test_without_the_field_answers_have_no_ids(engine: Lines) -> None:
    answer = engine.generate(**TALE | {"return_token_ids": False})
    assert "prompt_token_ids" not in answer.start
    assert not any("token_ids" in event for event in answer.named("stream"))


def test_ids_of_an_adapter_are_scored_with_it(tmp_path: Path) -> None:
    write_model(tmp_path / "model.gguf", "qwen3")
    write_adapter(tmp_path / "0.gguf", "qwen3", 0)
    lora = {"lora": [{"id": 0, "scale": 1.0}]}
    with Lines(
        *KV, "-c", "2048", "-np", "4", "--lora", str(tmp_path / "0.gguf"), model=tmp_path / "model.gguf"
    ) as one:
        answer = one.generate(**TALE | lora | {"n": 4})
        with_it = scored(one, prompt_of(answer), drawn(answer), **lora)
        without = scored(one, prompt_of(answer), drawn(answer), lora=[])
    told = [[token["logprob"] for token in tokens] for tokens in answer.tokens]
    assert max(np.abs(np.subtract(a, b)).max() for a, b in zip(with_it, told, strict=True)) <= BOUND
    assert max(np.abs(np.subtract(a, b)).max() for a, b in zip(without, told, strict=True)) > 100 * BOUND


# continue


@each_row("name", ["stop strings", "to the end", "banned phrases and stop strings", "emoji", *ENDS])
def test_a_sequence_is_continued_behind_the_exact_ids(engine: Lines, name: str) -> None:
    first = engine.generate(**TALE | SCENES[name])
    id, ids = first.start["id"], drawn(first)
    more = TALE | {"n": 2, "prompt": " Then", "max_tokens": 8}
    then = engine.ask("tokenize", text=" Then")["tokens"]
    for index in range(3):
        exact = engine.generate(**more, **{"continue": {"id": id, "index": index, "exact": True}})
        assert prompt_of(exact) == prompt_of(first) + ids[index] + then
        seen = engine.generate(**more, **{"continue": {"id": id, "index": index}})
        behind = prompt_of(seen)[len(prompt_of(first)) :]
        text = first.texts[index] + " Then"
        assert engine.ask("detokenize", tokens=behind)["text"] == text


def test_a_running_sequence_and_an_ended_one_are_continued_alike(engine: Lines) -> None:
    first = engine.generate(**TALE | SCENES["stop strings"])
    at = {"id": first.start["id"], "index": 1, "at": 3, "exact": True}
    again = engine.generate(**TALE | {"n": 1, "prompt": ""}, **{"continue": at})
    assert prompt_of(again) == prompt_of(first) + drawn(first)[1][:3]


# ends and choices of tokens


def test_stop_token_ids_end_a_text(engine: Lines) -> None:
    plain = engine.generate(**TALE)
    token = drawn(plain)[0][5]
    answer = engine.generate(**TALE | {"stop_token_ids": [token], "min_tokens": 2})
    for ids, before, stop, text in zip(drawn(answer), drawn(plain), answer.stops, answer.texts, strict=True):
        assert token not in ids[:-1]
        if token in before[2:] and token not in before[:2]:
            assert (ids[-1], stop["finish_reason"], stop["stop_token"]) == (token, "stop", token)
            assert ids == before[: before.index(token) + 1]
            assert text == text_of(engine, ids[:-1])
    shown = engine.generate(**TALE | {"stop_token_ids": [token], "include_stop_str_in_output": True})
    ended = [i for i, stop in enumerate(shown.stops) if stop.get("stop_token") == token]
    assert 0 in ended
    for i in ended:
        assert shown.texts[i] == text_of(engine, drawn(shown)[i])


def test_stop_token_ids_are_not_drawn_before_min_tokens(engine: Lines) -> None:
    (token, *_), *_ = drawn(engine.generate(**TALE))
    answer = engine.generate(**TALE | {"stop_token_ids": [token], "min_tokens": 6})
    assert all(token not in ids[:6] for ids in drawn(answer))
    assert min(answer.lengths) >= 6


@pytest.mark.parametrize(
    "sampling", [{"temperature": 0}, {"top_k": 0}, {"mirostat": 2}, {"repeat_penalty": 1.3}]
)
def test_only_allowed_tokens_are_drawn(engine: Lines, sampling: dict[str, Any]) -> None:
    allowed = sorted({token for ids in drawn(engine.generate(**TALE)) for token in ids[:6]})
    fields = {"allowed_token_ids": allowed, "sampling": {"seed": 1, **sampling}}
    answer = engine.generate(**TALE | fields)
    assert {token for ids in drawn(answer) for token in ids} <= set(allowed)
    with_grammar = engine.generate(**TALE | fields | {"regex": "[ a-z]+"})
    found = {token for ids in drawn(with_grammar) for token in ids}
    assert found
    assert found <= set(allowed)


def test_of_allowed_tokens_the_likeliest_is_drawn_at_temperature_0(engine: Lines) -> None:
    (top, *_), *_ = engine.generate(**TALE | {"logprobs": 20, "sampling": {"temperature": 0}}).tokens
    allowed = [token["id"] for token in top["top"][5:15]]
    fields = {"allowed_token_ids": allowed, "n": 1, "max_tokens": 1, "sampling": {"temperature": 0}}
    assert drawn(engine.generate(**TALE | fields)) == [[allowed[0]]]


def test_a_stop_string_is_returned_if_it_is_wanted(engine: Lines) -> None:
    scene = TALE | {"stop": ["ay", "he"]}
    cut, whole = engine.generate(**scene), engine.generate(**scene | {"include_stop_str_in_output": True})
    assert any("stop_text" in stop for stop in cut.stops)
    for before, after, stop in zip(cut.texts, whole.texts, cut.stops, strict=True):
        assert after == before + stop.get("stop_text", "")
    assert drawn(cut) == drawn(whole)


def test_control_tokens_are_shown_if_they_are_wanted(engine: Lines) -> None:
    end = engine.generate(**TALE | SCENES["to the end"])
    (i, *_) = [i for i, stop in enumerate(end.stops) if stop["finish_reason"] == "stop"]
    token = drawn(end)[i][-1]
    name = engine.ask("detokenize", tokens=[token])["text"]
    shown = {"skip_special_tokens": False, "include_stop_str_in_output": True}
    answer = engine.generate(**TALE | SCENES["to the end"] | shown)
    assert answer.texts[i] == end.texts[i] + name
    one = {"skip_special_tokens": False}
    assert engine.generate(**TALE | SCENES["to the end"] | one).texts[i] == end.texts[i]


# logprobs


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return Reference(tmp_path_factory.mktemp("reference"), *KV)


def test_entropies_are_those_of_llama_cpps_rows(engine: Lines, reference: Reference) -> None:
    answer = engine.generate(**TALE | {"n": 1, "return_entropies": True, "stop": ["ay"], **HOT})
    (ids,), prompt = drawn(answer), prompt_of(answer)
    entropies = [x for event in answer.named("stream") for x in event.get("entropies", [])]
    rows = reference.logprobs(prompt + ids)[len(prompt) - 1 : -1]
    expected = -(np.exp(rows) * rows).sum(axis=1)
    assert len(entropies) == len(ids)
    assert np.abs(expected - entropies).max() <= 1e-3
    assert expected.max() > 1


def prompt_tokens(answer: Answer) -> list[Event]:
    return [token for event in answer.named("prompt_logprobs") for token in event["tokens"]]


@pytest.mark.parametrize("k", [0, 3])
def test_prompt_logprobs_have_each_tokens_rank(engine: Lines, reference: Reference, k: int) -> None:
    answer = engine.generate(**TALE | {"n": 2, "prompt_logprobs": k})
    first, *others = prompt_tokens(answer)
    prompt = prompt_of(answer)
    assert (first["id"], first["logprob"]) == (prompt[0], None)
    assert [token["id"] for token in others] == prompt[1:]
    rows = reference.logprobs(prompt)
    for token, row in zip(others, rows, strict=False):
        assert abs(row[token["id"]] - token["logprob"]) <= BOUND
        assert token["rank"] == 1 + int((row > row[token["id"]] + BOUND).sum())
        assert [one["id"] for one in token["top"]] == np.argsort(-row)[:k].tolist()


def alike(token: Event, logprob: str, top: str, other: Event) -> bool:
    """Whether the two have the same tokens and logprobs, up to the last bits of another batch."""
    found = [(token["id"], token[logprob]), *((one["id"], one["logprob"]) for one in token[top])]
    expected = [(one["id"], one["logprob"]) for one in (other, *other["top"])]
    ids_and_logprobs = zip(found, expected, strict=True)
    return all(a[0] == b[0] and abs(a[1] - b[1]) <= BOUND for a, b in ids_and_logprobs)


def test_both_logprobs_are_those_of_each_mode(engine: Lines) -> None:
    scene = TALE | {"sampling": {"seed": 4, "temperature": 0.6, "top_k": 5}, "logprobs": 2}
    modes = [engine.generate(**scene | {"logprobs_mode": mode}) for mode in ("raw", "processed", "both")]
    for raw, processed, both in zip(*(answer.tokens for answer in modes), strict=True):
        for one, two, three in zip(raw, processed, both, strict=True):
            assert alike(three, "logprob", "top", one)
            assert alike(three, "processed_logprob", "processed_top", two)


@each_row(
    ("fields", "param"),
    [
        ({"stop_token_ids": [1 << 30]}, "stop_token_ids"),
        ({"allowed_token_ids": [1 << 30]}, "allowed_token_ids"),
        ({"allowed_token_ids": [-1]}, "allowed_token_ids"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"logprobs_mode": "all"}, "logprobs_mode"),
        ({"return_token_ids": 1}, "return_token_ids"),
        ({"return_token_ids": True, "then": {"text": " So"}}, "then"),
        ({"return_entropies": True, "then": {"text": " So"}}, "then"),
    ],
    ids=str,
)
def test_wrong_values_are_refused(engine: Lines, fields: dict[str, Any], param: str) -> None:
    (answer,) = engine.answers(engine.send({"op": "generate", "prompt": OPENING, "n": 2} | fields))
    assert answer.events[-1]["event"] == "error"
    assert answer.events[-1]["param"] == param
