"""The real openai client against the real server and the real engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError, OpenAI
from openai.types import Completion, CompletionChoice

from tests.support.rows import each_row
from tests.support.serving import Server

ONCE = "Once upon a time,"
ONCE_IDS = [417, 435, 259, 392, 12]


@pytest.fixture(scope="module")
def openai(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.url + "/v1", api_key="-", max_retries=0) as client:
        yield client


def complete(openai: OpenAI, **fields: Any) -> Completion:
    answer = openai.completions.create(
        **{"model": "storyteller", "prompt": ONCE, "max_tokens": 6, "seed": 7, **fields}
    )
    assert isinstance(answer, Completion)
    return answer


def stream(openai: OpenAI, **fields: Any) -> list[Completion]:
    asked = {"model": "storyteller", "prompt": ONCE, "max_tokens": 6, "seed": 7, **fields}
    with openai.completions.create(stream=True, **asked) as chunks:
        return list(chunks)


def texts(chunks: list[Completion], n: int) -> list[str]:
    made = [""] * n
    for chunk in chunks:
        for choice in chunk.choices:
            made[choice.index] += choice.text
    return made


def logprobs_of(choice: CompletionChoice) -> dict[str, list[Any]]:
    assert choice.logprobs
    return choice.logprobs.model_dump()


def test_a_stream_ends_with_done(server: Server) -> None:
    status, headers, data = server.call(
        "POST", "/v1/completions", {"prompt": ONCE, "stream": True, "max_tokens": 2, "n": 2}
    )
    assert (status, headers.get_content_type()) == (200, "text/event-stream")
    frames = data.decode().split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    assert all(len(json.loads(frame[6:])["choices"]) == 1 for frame in frames[:-2])


def test_usage_counts_all_choices(openai: OpenAI) -> None:
    usage = complete(openai, n=8).usage
    assert usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (6, 48, 54)


def test_usage_is_one_chunk_without_choices_and_null_before_it(openai: OpenAI) -> None:
    chunks = stream(openai, n=3, stream_options={"include_usage": True})
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert all("usage" in chunk.model_fields_set for chunk in chunks)
    assert (chunks[-1].choices, chunks[-1].usage and chunks[-1].usage.completion_tokens) == ([], 18)
    assert not any("usage" in chunk.model_fields_set for chunk in stream(openai))


def test_a_seed_gives_the_same_choices_and_another_others(openai: OpenAI) -> None:
    complete(openai)  # caches the prompt, so that the next two requests compute the same
    first, again, other = (texts([complete(openai, n=4, seed=seed)], 4) for seed in (1, 1, 2))
    assert first == again != other


def test_temperature_0_makes_all_choices_equal(openai: OpenAI) -> None:
    assert len(set(texts([complete(openai, n=4, temperature=0)], 4))) == 1


@pytest.mark.parametrize("stop", ["a", [" was", " a"]])
def test_a_stop_string_ends_a_choice_and_is_not_in_it(openai: OpenAI, stop: Any) -> None:
    answer = complete(openai, n=4, stop=stop, max_tokens=60)
    assert {choice.finish_reason for choice in answer.choices} == {"stop"}
    assert not any(one in choice.text for choice in answer.choices for one in stop)
    chunks = stream(openai, n=4, stop=stop, max_tokens=60)
    assert not any(one in text for text in texts(chunks, 4) for one in stop)


def test_logprobs_are_of_the_tokens_of_the_text(openai: OpenAI) -> None:
    for choice in complete(openai, n=3, logprobs=2).choices:
        logprobs = logprobs_of(choice)
        assert "".join(logprobs["tokens"]) == choice.text
        for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
            assert choice.text[offset:].startswith(token)
        assert {len(top) for top in logprobs["top_logprobs"]} == {2}
        assert all(logprob <= 0 for logprob in logprobs["token_logprobs"])


def test_streamed_logprobs_are_those_of_the_body(openai: OpenAI) -> None:
    asked: dict[str, Any] = {"logprobs": 1, "temperature": 0, "echo": True}
    whole = logprobs_of(complete(openai, **asked).choices[0])
    choices = [chunk.choices[0] for chunk in stream(openai, **asked)]
    for name in ("tokens", "text_offset"):
        assert [x for one in choices if one.logprobs for x in logprobs_of(one)[name]] == whole[name]


@pytest.mark.parametrize(
    "prompt", [ONCE, [ONCE], ONCE_IDS, [ONCE_IDS]], ids=["text", "[text]", "ids", "[ids]"]
)
def test_echo_begins_every_choice_with_the_prompt(openai: OpenAI, prompt: Any) -> None:
    answer = complete(openai, prompt=prompt, n=3, echo=True)
    assert all(choice.text.startswith(ONCE) and len(choice.text) > len(ONCE) for choice in answer.choices)
    assert all(text.startswith(ONCE) for text in texts(stream(openai, prompt=prompt, n=3, echo=True), 3))


@pytest.mark.parametrize(("prompt", "first"), [(ONCE, False), (ONCE_IDS, True)], ids=["text", "ids"])
def test_echo_with_logprobs_begins_with_the_prompts_logprobs(
    openai: OpenAI, prompt: Any, first: bool
) -> None:
    for choice in complete(openai, prompt=prompt, n=2, echo=True, logprobs=1).choices:
        logprobs = logprobs_of(choice)
        assert "".join(logprobs["tokens"]) == choice.text
        assert logprobs["text_offset"][:6] == [0, 4, 9, 11, 16, 17]
        assert (logprobs["token_logprobs"][0] is None) is first, (
            "only a token with nothing before it has none"
        )
        assert None not in logprobs["token_logprobs"][1:]


def test_max_tokens_0_scores_the_prompt_only(openai: OpenAI) -> None:
    answer = complete(openai, max_tokens=0, echo=True, logprobs=0)
    (choice,) = answer.choices
    assert (choice.text, choice.finish_reason) == (ONCE, "length")
    assert logprobs_of(choice)["tokens"] == ["Once", " upon", " a", " time", ","]
    assert answer.usage
    assert answer.usage.completion_tokens == 0


def test_a_biased_token_is_drawn_and_a_banned_one_is_not(openai: OpenAI) -> None:
    assert complete(openai, logit_bias={"435": 100}).choices[0].text == " upon" * 6
    free, banned = (complete(openai, temperature=0, logit_bias=bias) for bias in ({}, {"397": -100}))
    assert free.choices[0].text.startswith(" there")
    assert not banned.choices[0].text.startswith(" there")


def test_this_servers_sampler_fields_work_in_extra_body(openai: OpenAI) -> None:
    answer = complete(openai, n=2, extra_body={"temperature": [0, 0], "top_k": 1, "min_p": 0.1})
    assert len(set(texts([answer], 2))) == 1


REFUSALS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"n": 0}, BadRequestError, "n"),
    ({"temperature": 101}, BadRequestError, "temperature"),
    ({"stop": 7}, BadRequestError, "stop"),
    ({"prompt": "word " * 2000}, BadRequestError, "prompt"),
    ({"prompt": ["a", 7]}, BadRequestError, "prompt"),
]


def test_a_request_for_another_model_is_answered_by_the_loaded_one(openai: OpenAI) -> None:
    assert complete(openai, model="gpt-4").model == "storyteller"
    with pytest.raises(NotFoundError) as raised:
        openai.models.retrieve("gpt-4")
    assert "there is no model gpt-4 here, only storyteller" in str(raised.value)


@each_row("streamed", [False, True], ids=["body", "stream"])
@each_row(("fields", "error", "param"), REFUSALS, ids=[row[2] for row in REFUSALS])
def test_an_invalid_field_is_an_error_that_names_it(
    openai: OpenAI, fields: dict[str, Any], error: type[Exception], param: str, streamed: bool
) -> None:
    with pytest.raises(error) as caught:
        complete(openai, stream=streamed, **fields)
    assert caught.value.param == param  # type: ignore[attr-defined]


def test_models_are_listed(openai: OpenAI) -> None:
    assert [model.id for model in openai.models.list()] == ["storyteller"]


def test_leaving_early_ends_the_request(openai: OpenAI, server: Server) -> None:
    with openai.completions.create(
        model="storyteller", prompt=ONCE, n=8, max_tokens=-1, stream=True, extra_body={"ignore_eos": True}
    ) as chunks:
        id = next(iter(chunks)).id.removeprefix("cmpl-")
    while server.call("DELETE", f"/v1/completions/{id}")[0] != 404:
        pass  # until the server has noticed; an uncancelled request would take seconds
    assert complete(openai).choices[0].text


# Several prompts


PROMPTS = [ONCE, "The end", "The sun was"]


def test_each_of_several_prompts_has_n_choices(openai: OpenAI) -> None:
    answer = complete(openai, prompt=PROMPTS, n=2, temperature=0)
    assert [choice.index for choice in answer.choices] == list(range(6))
    alone = [complete(openai, prompt=prompt, temperature=0).choices[0].text for prompt in PROMPTS]
    assert [choice.text for choice in answer.choices] == [text for text in alone for _ in range(2)]
    single = [complete(openai, prompt=prompt, n=2, temperature=0).usage for prompt in PROMPTS]
    assert answer.usage
    assert answer.usage.completion_tokens == sum(usage.completion_tokens for usage in single if usage)
    assert answer.usage.prompt_tokens == sum(usage.prompt_tokens for usage in single if usage)


def test_several_prompts_stream_under_one_id(openai: OpenAI) -> None:
    asked = {"prompt": PROMPTS, "n": 2, "echo": True, "stream_options": {"include_usage": True}}
    chunks = stream(openai, **asked, extra_body={"ignore_eos": True})
    assert len({chunk.id for chunk in chunks}) == 1
    made = texts(chunks, 6)
    assert [text.startswith(PROMPTS[i // 2]) for i, text in enumerate(made)] == [True] * 6
    ends = [c.choices[0].index for c in chunks if c.choices and c.choices[0].finish_reason]
    assert sorted(ends) == list(range(6))
    assert [bool(chunk.usage) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens == 36


def test_lists_of_token_ids_are_prompts_too(openai: OpenAI) -> None:
    assert len(complete(openai, prompt=[ONCE_IDS, ONCE_IDS[:3]]).choices) == 2


def test_one_wrong_prompt_of_several_refuses_them_all(openai: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="exceeds the available context size") as refused:
        complete(openai, prompt=[ONCE, "word " * 2000])
    assert (refused.value.type, refused.value.code) == (
        "exceed_context_size_error",
        "context_length_exceeded",
    )
    assert isinstance(refused.value.body, dict)
    assert refused.value.body["n_prompt_tokens"] > refused.value.body["n_ctx"] == 1024
    with pytest.raises(BadRequestError, match="exceeds the available context size"):
        stream(openai, prompt=["word " * 2000, ONCE])
