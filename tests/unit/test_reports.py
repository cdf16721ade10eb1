"""What llama-server's clients ask for: timings, progress of a prompt, `__verbose`, its metrics."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from llama_srb.dialects import openai
from llama_srb.dialects.common.reply import ServerInfo
from llama_srb.dialects.common.timings import Stopwatch, timings_of
from llama_srb.dialects.llamacpp import REPLIES
from llama_srb.dialects.openai import chat
from llama_srb.engine.events import Done, Event, Progress, Prompt, Start, Stop, Stream
from llama_srb.request.parse import Defaults
from llama_srb.request.values import RequestError
from llama_srb.serving.observe.metrics import Metrics
from llama_srb.serving.observe.model_metrics import ModelNow

HELLO = [{"role": "user", "content": "Hello"}]
ORIGIN = openai.Origin("m", 3, lambda: "b1")
MS = {"queued_ms": 1.0, "prompt_ms": 20.0, "decode_ms": 30.0}
RUN: list[Event] = [
    Start("1", 1, 50, 10, 7),
    Progress("1", 30, 50),
    Stream("1", 0, "a"),
    Stream("1", 0, "b"),
    Stream("1", 0, "c"),
    Stop("1", 0, 3, 0, "length"),
    Done("1", 1, 50, 10, 3, MS),
]
REACHED = [(50, 10, 10), (50, 10, 30), (50, 10, 50)]  # total, cache, processed


def reached(found: list[Any]) -> list[tuple[int, int, int]]:
    return [(one["total"], one["cache"], one["processed"]) for one in found]


def frames(data: bytes) -> list[Any]:
    parts = data.decode().removesuffix("data: [DONE]\n\n").split("\n\n")
    return [json.loads(part.removeprefix("data: ")) for part in parts if part]


def chunks(dialect: Any, events: list[Event], **fields: Any) -> list[Any]:
    asked = {"messages": HELLO} if dialect is chat else {"prompt": "Hello"}
    request, form = dialect.parse({**asked, "stream": True, **fields}, Defaults())
    rendered = openai.renderer(dialect.Chunks(request, form, ORIGIN), request, form)(events)
    return frames(rendered if isinstance(rendered, bytes) else b"".join(rendered))


def whole(dialect: Any, events: list[Event], **fields: Any) -> Any:
    asked = {"messages": HELLO} if dialect is chat else {"prompt": "Hello"}
    request, form = dialect.parse({**asked, **fields}, Defaults())
    answer = openai.builder(dialect.Body(request, ORIGIN), request, form)
    answer.take(events)
    return json.loads(answer.json())


def native(events: list[Event], **fields: Any) -> list[Any]:
    reply = REPLIES["/completion"]({"prompt": "Hello", "stream": True, **fields}, ServerInfo("m"))
    return frames(reply.render(events))


def test_a_stopwatch_says_when_each_part_of_the_prompt_is_computed() -> None:
    clock = itertools.count(0, 2).__next__  # seconds
    watch = Stopwatch(lambda: float(clock()))
    found = []
    for event in RUN[:4]:
        watch.take(event)
        found.append(watch.progress)
    assert reached([one for one in found if one]) == REACHED
    assert found[3] is None, "the prompt is complete"
    assert [one["time_ms"] for one in found if one] == [0, 2000, 6000]
    measured = watch.timings(0)
    assert (measured["cache_n"], measured["prompt_n"], measured["predicted_n"]) == (10, 40, 2)
    assert (measured["prompt_ms"], measured["predicted_ms"]) == (4000, 4000)
    assert (measured["prompt_per_second"], measured["predicted_per_second"]) == (10, 0.25)


def test_the_first_token_is_not_timed_and_no_ratio_is_infinite() -> None:
    one = timings_of(Done("1", 1, 50, 50, 1, {"prompt_ms": 0.0, "decode_ms": 5.0}), 1)
    assert (one["predicted_n"], one["predicted_ms"]) == (1, 5.0)
    assert one["predicted_per_second"] == one["predicted_per_token_ms"] == one["prompt_per_second"] == 0
    three = timings_of(Done("1", 1, 50, 10, 3, MS), 3)
    assert (three["predicted_per_token_ms"], three["predicted_per_second"]) == (15, 2000 / 30)
    assert (three["prompt_per_token_ms"], three["prompt_per_second"]) == (0.5, 2000)


@pytest.mark.parametrize("dialect", [chat, openai])
def test_chunks_with_text_have_timings_and_the_last_has_the_engines(dialect: Any) -> None:
    made = chunks(dialect, RUN, timings_per_token=True, stream_options={"include_usage": True})
    others = made[1:] if dialect is chat else made  # a chat's first chunk has only the role
    assert len([one for one in made if "timings" in one]) == len(others)
    assert [one["timings"]["predicted_n"] for one in others] == [1, 2, 3, 3, 3]
    assert others[-1]["usage"]["completion_tokens"] == 3
    assert others[-1]["timings"]["prompt_ms"] == 20


@pytest.mark.parametrize("dialect", [chat, openai])
def test_the_chunks_of_a_choice_have_its_usage_so_far_as_in_vllm(dialect: Any) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    made = chunks(dialect, RUN, stream_options=options)
    counts = [one["usage"]["completion_tokens"] for one in made if one["usage"]]
    assert counts == [*([0] if dialect is chat else []), 1, 2, 3, 3, 3]  # a chat's first chunk has its role
    assert {one["usage"]["prompt_tokens"] for one in made if one["usage"]} == {50}
    assert [one["usage"] for one in chunks(dialect, RUN, stream_options={"include_usage": True})[:-1]] == [
        None
    ] * (len(made) - 1)


@pytest.mark.parametrize("dialect", [chat, openai])
def test_chunks_tell_the_progress_of_the_prompt_before_its_text(dialect: Any) -> None:
    made = chunks(dialect, RUN, return_progress=True)
    told = [one for one in made if "prompt_progress" in one]
    assert reached([one["prompt_progress"] for one in told]) == REACHED
    assert all(one["choices"][0]["finish_reason"] is None for one in told)
    others = [one for one in made if "prompt_progress" not in one]
    if dialect is chat:
        assert others[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}  # as llama-server's
        others[0]["choices"][0]["delta"]["content"] = ""
    assert others == chunks(dialect, RUN)


@pytest.mark.parametrize("dialect", [chat, openai])
def test_a_body_has_timings_and_its_prompt_if_they_are_asked_for(dialect: Any) -> None:
    told: list[Event] = [RUN[0], Prompt("1", "<user>Hello"), *RUN[1:]] if dialect is chat else RUN
    made = whole(dialect, told, timings_per_token=True, verbose=True, max_tokens=9)
    assert made["timings"] == timings_of(RUN[-1], 3)  # type: ignore[arg-type]
    assert made["__verbose"]["prompt"] == ("<user>Hello" if dialect is chat else "Hello")
    assert made["__verbose"]["tokens_evaluated"] == 50
    assert not {"timings", "__verbose"} & whole(dialect, RUN, verbose=False).keys()
    assert chunks(dialect, told, verbose=True, stream_options={"include_usage": True})[-1]["__verbose"]


def test_a_verbose_chat_asks_the_engine_for_its_prompt() -> None:
    request, form = chat.parse({"messages": HELLO, "verbose": True}, Defaults())
    assert openai.asked(request, form).engine_fields()["echo"] is True
    request, form = chat.parse({"messages": HELLO}, Defaults())
    assert "echo" not in openai.asked(request, form).engine_fields()
    assert openai.asked(request, form.verbose_by_default(True)).echo is True
    refused = chat.parse({"messages": HELLO, "verbose": False}, Defaults())
    assert not openai.asked(refused[0], refused[1].verbose_by_default(True)).echo


def test_llama_servers_own_stream_has_them_too() -> None:
    made = native(RUN, timings_per_token=True, return_progress=True)
    told = [one for one in made if "prompt_progress" in one]
    assert reached([one["prompt_progress"] for one in told]) == REACHED
    assert all(one["content"] == "" and one["stop"] is False for one in told)
    assert told[0]["timings"]["prompt_n"] == told[0]["timings"]["prompt_ms"] == 0
    assert [one["timings"]["predicted_n"] for one in made if one["content"]] == [1, 2, 3]
    assert made[-1]["timings"] == timings_of(RUN[-1], 3)  # type: ignore[arg-type]
    assert not any({"timings", "prompt_progress"} & one.keys() for one in native(RUN)[:-1])


@pytest.mark.parametrize("prompt", [{"prompt_string": "Hello"}, [{"prompt_string": "Hello"}]])
def test_a_prompt_may_be_an_object_with_its_text(prompt: Any) -> None:
    assert REPLIES["/completion"]({"prompt": prompt}, ServerInfo("m")).request.prompt == "Hello"


def test_media_in_a_prompt_are_refused_by_name() -> None:
    prompt = {"prompt_string": "a <__media__>", "multimodal_data": ["aaaa"]}
    with pytest.raises(RequestError, match=r"multimodal_data is .* takes text only"):
        REPLIES["/completion"]({"prompt": prompt}, ServerInfo("m"))


@pytest.mark.parametrize("field", ["timings_per_token", "return_progress", "verbose"])
def test_a_wrong_switch_is_refused_by_name(field: str) -> None:
    for dialect, asked in ((chat, {"messages": HELLO}), (openai, {"prompt": "a"})):
        with pytest.raises(RequestError, match=f"{field} is 1; it must be true or false"):
            dialect.parse({**asked, field: 1}, Defaults())  # type: ignore[attr-defined]


def test_two_messages_of_the_assistant_at_the_end_are_refused() -> None:
    answer = {"role": "assistant", "content": "Hi"}
    with pytest.raises(RequestError, match="two messages of the assistant"):
        chat.parse({"messages": [*HELLO, answer, answer]}, Defaults())
    chat.parse({"messages": [answer, answer, *HELLO]}, Defaults())


def test_metrics_have_llama_servers_names() -> None:
    metrics = Metrics()
    for _ in range(2):
        clock = metrics.of("m").clock()
        for event in RUN:
            clock.take([event])
    engine = {"steps": 8, "step_tokens": 24, "requests": 2, "queued": 1, "drafts": 3}
    engine |= {"draft_prompt": 4, "draft_model": 5, "draft_model_accepted": 2}
    metrics.set({"m": ModelNow(True, 3, 0, engine)})
    families = {one.name: one for one in text_string_to_metric_families(metrics.text().decode())}
    found = {
        name.removeprefix("llamacpp:"): one.samples[0].value
        for name, one in families.items()
        if name.startswith("llamacpp:")
    }
    assert len(found) == 15
    assert all(families[f"llamacpp:{name}"].documentation for name in found)
    assert (found["prompt_tokens"], found["prompt_tokens_cached"], found["tokens_predicted"]) == (80, 20, 6)
    assert (found["prompt_seconds"], found["tokens_predicted_seconds"]) == (0.04, 0.06)
    assert (found["prompt_tokens_seconds"], found["predicted_tokens_seconds"]) == (2000, 100)
    assert (found["n_tokens_max"], found["n_decode"], found["n_busy_slots_per_decode"]) == (53, 8, 3)
    assert (found["requests_processing"], found["requests_deferred"]) == (2, 1)
    drafts = ("spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens")
    assert [found[name] for name in drafts] == [3, 9, 2]


def test_several_prompts_are_told_that_there_are_no_reports() -> None:
    for body, expected in (({"verbose": True}, True), ({"timings_per_token": True}, True), ({}, False)):
        request, form = openai.parse({"prompt": "a", **body}, Defaults())
        warnings = openai.unreported(request, form).warnings
        assert any("one prompt a request" in warning for warning in warnings) == expected
