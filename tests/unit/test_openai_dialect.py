"""OpenAI's completions: bodies are parsed, and chunks and bodies are rendered as its clients expect."""

import json
import random
from typing import Any

import pytest

from llama_srb.dialects import openai
from llama_srb.dialects.openai import Body, Chunks, Form, Origin
from llama_srb.engine.events import (
    Again,
    Done,
    Error,
    Event,
    Extend,
    Prompt,
    Queued,
    Start,
    Stop,
    Stream,
    TokenList,
)
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import Defaults
from llama_srb.request.values import RequestError
from tests.support.rows import each_row

TOKENS = (
    {"id": 5, "text": " a", "logprob": -0.5, "top": [{"id": 5, "text": " a", "logprob": -0.5}]},
    {"id": 6, "text": "b", "logprob": -1.5},
)
RUN: list[Event] = [
    Start("1", 2, 5, 4, 7),
    Stream("1", 1, " there"),
    Stream("1", 0, "é"),
    Stop("1", 1, 1, 0, "length"),
    Stream("1", 0, "!"),
    Stop("1", 0, 2, 1, "stop"),
    Done("1", 2, 5, 4, 3),
]


def token(text: str) -> dict[str, Any]:
    return {"id": 5, "text": text, "logprob": -1.0, "top": []}


def parse(**fields: Any) -> tuple[CompletionRequest, Form]:
    return openai.parse({"prompt": "Once", **fields}, Defaults())


def frames(events: list[Event], **fields: Any) -> list[Any]:
    request, form = parse(n=2, stream=True, **fields)
    data = Chunks(request, form, Origin("m", 3, lambda: "b1")).render(events).decode()
    parts = [part.removeprefix("data: ") for part in data.split("\n\n") if part]
    return [part if part.startswith(("[", ":")) else json.loads(part) for part in parts]


def body(events: list[Event], **fields: Any) -> Any:
    answer = Body(parse(n=2, **fields)[0], Origin("m", 3, lambda: "b1"))
    for event in events:
        answer.take([event])
    return json.loads(answer.json())


def texts(chunks: list[Any]) -> list[str]:
    made = ["", ""]
    for chunk in chunks[:-1]:
        for choice in chunk["choices"]:
            made[choice["index"]] += choice["text"]
    return made


EXTENDED: list[Event] = [
    Start("1", 2, 5, 4, 7),
    Prompt("1", "Once"),
    Stream("1", 1, " a"),
    Extend("1", 2, 3),
    Stream("1", 2, " b"),
    Stop("1", 2, 1, 0, "length"),
    Stream("1", 0, " c"),
    Done("1", 3, 5, 4, 3),
]


def test_an_extended_request_has_more_choices_that_begin_like_the_others() -> None:
    choices = body(EXTENDED, echo=True)["choices"]
    assert [choice["text"] for choice in choices] == ["Once c", "Once a", "Once b"]
    chunks = [chunk["choices"][0] for chunk in frames(EXTENDED, echo=True)[:-1]]
    assert [chunk["text"] for chunk in chunks if chunk["index"] == 2] == ["Once", " b", ""]


def test_the_defaults_are_openais() -> None:
    request, form = parse()
    assert (request.n, request.max_tokens, form) == (1, 16, Form())


def test_a_list_of_one_prompt_is_one_request() -> None:
    assert openai.prompts({"prompt": ["Once"]}) == [{"prompt": "Once"}]
    assert openai.prompts({"prompt": [[1, 2]]}) == [{"prompt": [1, 2]}]
    assert openai.prompts({"prompt": [1, 2]}) == [{"prompt": [1, 2]}]


def test_a_list_of_prompts_is_a_request_each() -> None:
    bodies = openai.prompts({"prompt": ["Once", [1, 2]], "n": 3})
    assert bodies == [{"prompt": "Once", "n": 3}, {"prompt": [1, 2], "n": 3}]


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": ["a", "b"]}, "prompt"),
    ({"prompt": None}, "prompt"),
    ({"stream": "yes"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"model": 5}, "model"),
    ({"stream_options": 5}, "stream_options"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"n": 0}, "n"),
]


@each_row(("fields", "param"), REFUSALS)
def test_a_bad_body_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse(**fields)
    assert caught.value.param == param


def test_openais_own_fields_cause_no_warning() -> None:
    fields = {"stream": True, "stream_options": {}, "model": "m", "user": "u", "suffix": "", "best_of": 1}
    assert not openai.parse({"prompt": "x", **fields}, Defaults(strict=True))[0].warnings
    assert parse(suffix="x")[0].warnings == (openai.NO_INFILL,)


def test_chunks_carry_one_choice_each_and_end_with_done() -> None:
    chunks = frames(RUN)
    assert chunks[-1] == "[DONE]"
    assert all(len(chunk["choices"]) == 1 for chunk in chunks[:-1])
    assert chunks[0] == {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 3,
        "model": "m",
        "system_fingerprint": "b1",
        "choices": [{"text": " there", "index": 1, "logprobs": None, "finish_reason": None}],
    }
    assert texts(chunks) == ["é!", " there"]
    reasons = {c["choices"][0]["index"]: c["choices"][0]["finish_reason"] for c in chunks[:-1]}
    assert reasons == {0: "stop", 1: "length"}


def test_usage_comes_once_when_asked_for_and_counts_all_choices() -> None:
    chunks = frames(RUN, stream_options={"include_usage": True})
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    assert [chunk["choices"] for chunk in chunks[:-1] if chunk["usage"]] == [[]]
    assert not any("usage" in chunk for chunk in frames(RUN)[:-1])
    assert chunks[-2]["usage"] == {**usage, "prompt_tokens_details": {"cached_tokens": 4}}


def test_echo_begins_every_choice() -> None:
    run = [RUN[0], Prompt("1", "Once"), *RUN[1:]]
    assert texts(frames(run, echo=True)) == ["Onceé!", "Once there"]
    assert [choice["text"] for choice in body(run, echo=True)["choices"]] == ["Onceé!", "Once there"]


FOX: list[Event] = [
    Start("1", 2, 6, 0, 7),
    Prompt("1", "An 🦊 ran", TokenList.of([{"id": 1, "text": "An", "logprob": None, "top": []}])),
    Prompt(
        "1",
        "",
        TokenList.of([{"id": 2, "text": " ", "logprob": -1, "top": []}, token("\ufffd"), token("\ufffd")]),
    ),
    Prompt("1", "", TokenList.of([token("\ufffd"), token(" ran")])),
    Stream("1", 1, "!", TokenList.of([token("!")])),
    Stream("1", 0, "", ()),
    Stream("1", 0, "🦊.", TokenList.of([token("\ufffd"), token("\ufffd"), token(".")])),
    Stop("1", 0, 3, 0, "length"),
    Stop("1", 1, 1, 0, "length"),
    Done("1", 2, 6, 0, 4),
]


def test_echo_with_logprobs_begins_with_the_prompts_tokens() -> None:
    fox, ran = body(FOX, logprobs=0, echo=True)["choices"]
    assert (fox["text"], ran["text"]) == ("An 🦊 ran🦊.", "An 🦊 ran!")
    assert fox["logprobs"]["tokens"] == ["An", " ", *["\ufffd"] * 3, " ran", *["\ufffd"] * 2, "."]
    assert fox["logprobs"]["token_logprobs"][:2] == [None, -1]
    assert fox["logprobs"]["top_logprobs"][:2] == [None, {}]
    assert fox["logprobs"]["text_offset"] == [0, 2, 3, 3, 3, 4, 8, 8, 9]
    assert ran["logprobs"]["text_offset"] == [0, 2, 3, 3, 3, 4, 8]
    assert texts(frames(FOX, logprobs=0, echo=True)) == [fox["text"], ran["text"]]


def test_a_cancelled_choice_has_the_finish_reason_length() -> None:
    whole = body([RUN[0], Stop("1", 0, 1, 0, "cancelled"), Stop("1", 1, 1, 1, "stop"), RUN[-1]])
    assert [choice["finish_reason"] for choice in whole["choices"]] == ["length", "stop"]


def test_alternatives_with_equal_texts_have_names_of_their_own() -> None:
    top = [
        {"id": 1, "text": "\ufffd", "bytes": [0xF0, 0x9F], "logprob": -1},
        {"id": 2, "text": "a", "logprob": -2},
        {"id": 3, "text": "\ufffd", "bytes": [0xE6], "logprob": -3},
        {"id": 4, "text": "a", "logprob": -4},
        {"id": 5, "text": "a", "logprob": -5},
    ]
    run: list[Event] = [
        RUN[0],
        Stream("1", 0, "a", TokenList.of([{"text": "a", "logprob": -2, "top": top}])),
        RUN[-1],
    ]
    (names,) = body(run, logprobs=5)["choices"][0]["logprobs"]["top_logprobs"]
    assert names == {r"bytes:\xf0\x9f": -1, "a": -2, r"bytes:\xe6": -3, r"bytes:\x61": -4, "token_id:5": -5}


def test_offsets_are_those_of_the_characters_wherever_tokens_and_pieces_are_cut() -> None:
    """Random texts, cut to tokens of one to five bytes; a piece of text comes with or behind its tokens."""
    draw = random.Random(3)
    for _ in range(300):
        text = "".join(draw.choices("ab é日本🙂\u0301", k=draw.randint(1, 20)))
        data, tokens, expected, at = text.encode(), [], [], 0
        while at < len(data):
            end = min(len(data), at + draw.randint(1, 5))
            part = data[at:end]
            whole = part.decode(errors="replace")
            odd = {} if whole.encode() == part else {"bytes": list(part)}
            tokens.append({"id": at, "text": whole, "logprob": -1.0, "top": [], **odd})
            expected.append(len(data[:at].decode(errors="ignore")))
            at = end
        run: list[Event] = [RUN[0]]
        sent, begun = 0, 0
        while begun < len(tokens):
            count = draw.randint(1, 3)
            given = tokens[begun : begun + count]
            begun += count
            upto = data[: tokens[begun]["id"]] if begun < len(tokens) else data
            now = upto.decode(errors="ignore")
            run.append(Stream("1", 0, now[sent:], TokenList.of(given)))
            sent = len(now)
        run += [Stop("1", 0, 1, 1, "stop"), Stop("1", 1, 1, 1, "stop"), RUN[-1]]
        assert body(run, logprobs=0)["choices"][0]["logprobs"]["text_offset"] == expected, tokens


def test_warnings_come_with_the_first_chunk_and_in_the_body() -> None:
    assert "warnings" in frames(RUN, foo=1)[0]
    assert texts(frames(RUN, foo=1)) == ["é!", " there"]
    assert len(body(RUN, foo=1)["warnings"]) == 1


def test_waiting_is_a_comment() -> None:
    assert frames([Queued("1", 2)]) == [": queued at position 2"]


def test_an_error_is_a_frame_that_clients_raise() -> None:
    chunks = frames([RUN[0], RUN[1], Error("engine_died", "it died", "1")])
    assert chunks[-1] == {
        "error": {"message": "it died", "type": "server_error", "param": None, "code": "engine_died"}
    }


def test_a_body_has_all_choices_in_order() -> None:
    whole = body(RUN)
    assert [(c["index"], c["text"], c["finish_reason"], c["logprobs"]) for c in whole["choices"]] == [
        (0, "é!", "stop", None),
        (1, " there", "length", None),
    ]
    assert whole["usage"]["completion_tokens"] == 3
    assert (whole["object"], whole["model"], whole["id"]) == ("text_completion", "m", "cmpl-1")


@pytest.mark.parametrize(("echo", "offset"), [(False, 0), (True, 4)])
def test_logprobs_are_four_lists_with_offsets_into_the_whole_text(echo: bool, offset: int) -> None:
    events: list[Event] = [
        Start("1", 2, 5, 4, 7),
        *([Prompt("1", "Once")] if echo else []),
        Stream("1", 0, " ab", TokenList.of(TOKENS)),
        Stream("1", 0, "b", TokenList.of(TOKENS[1:])),
        Stop("1", 0, 3, 0, "length"),
        Stop("1", 1, 0, 0, "length"),
        Done("1", 2, 5, 4, 3),
    ]
    logprobs = body(events, logprobs=1, echo=echo)["choices"][0]["logprobs"]
    assert logprobs == {
        "tokens": [" a", "b", "b"],
        "token_logprobs": [-0.5, -1.5, -1.5],
        "top_logprobs": [{" a": -0.5}, {}, {}],
        "text_offset": [offset, offset + 2, offset + 3],
    }
    chunks = [c["choices"][0]["logprobs"] for c in frames(events, logprobs=1, echo=echo)[:-1] if c["choices"]]
    streamed = [chunk for chunk in chunks if chunk]
    assert {key: streamed[0][key] + streamed[1][key] for key in logprobs} == logprobs


RANKED: list[Event] = [
    Start("1", 2, 5, 4, 7),
    Stream("1", 1, "b"),
    Stop("1", 1, 4, 1, "stop", "", -2.0, -0.5, 1.0),
    Stream("1", 0, "b"),
    Stop("1", 0, 4, 0, "length", "", -4.0, -1.0, 0.5, duplicate_of=1),
    Done("1", 2, 5, 4, 8, ranking=(1, 0)),
]


def test_choices_of_a_body_come_best_first_with_their_scores() -> None:
    first, second = body(RANKED, rank_by="logprob", dedupe=True)["choices"]
    assert (first["index"], first["finish_reason"], "duplicate_of" in first) == (0, "stop", False)
    assert first["scores"] == {"logprob": -2.0, "mean_logprob": -0.5, "length": 4, "distinct_2": 1.0}
    assert (second["index"], second["finish_reason"], second["duplicate_of"]) == (1, "length", 0)


def test_chunks_carry_the_scores_and_the_last_one_the_order() -> None:
    *chunks, last, _ = frames(RANKED, rank_by="logprob")
    ends = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["finish_reason"]]
    assert [(end["index"], end["scores"]["mean_logprob"]) for end in ends] == [(1, -0.5), (0, -1.0)]
    assert (last["choices"], last["ranking"]) == ([], [1, 0])


def test_a_retried_choice_has_only_its_last_text_after_the_prompt() -> None:
    events: list[Event] = [
        Start("1", 2, 5, 4, 7),
        Prompt("1", "Once"),
        Stream("1", 1, " ab", TokenList.of(TOKENS)),
        Again("1", 1),
        Stream("1", 1, " ab", TokenList.of(TOKENS)),
        Stop("1", 1, 2, 0, "length"),
        Stop("1", 0, 0, 0, "length"),
        Done("1", 2, 5, 4, 4),
    ]
    choice = body(events, echo=True, logprobs=1)["choices"][1]
    assert choice["text"] == "Once ab"
    assert choice["logprobs"]["tokens"] == [" a", "b"]
    assert choice["logprobs"]["text_offset"] == [4, 6]


@pytest.mark.parametrize("stream", [True, False])
def test_diversity_is_off_unless_asked_for(stream: bool) -> None:
    request, _ = parse(stream=stream)
    assert (request.diversity, request.whole) == ("none", not stream)
    assert parse(diversity="arithmetic")[0].diversity == "arithmetic"
