"""Anthropic's messages: bodies are parsed, and messages and events are rendered as its clients expect."""

# ruff: noqa: E501 (tables)
from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from llama_srb.dialects import anthropic
from llama_srb.dialects.anthropic.generation import Messages
from llama_srb.dialects.common.reply import ServerInfo
from llama_srb.dialects.common.response_types import PromptSize
from llama_srb.engine.events import Done, Error, Event, Extend, Queued, Start, Stop, Stream
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import Defaults
from llama_srb.request.values import RequestError
from tests.support.rows import each_row

ABOUT = ServerInfo("m")
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
WEATHER = {"name": "weather", "description": "Of a city.", "input_schema": {"type": "object"}}
TIME = {"name": "time", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}


def reply(**fields: Any) -> Messages:
    return Messages({"messages": HELLO, **fields}, ABOUT)


def request(**fields: Any) -> CompletionRequest:
    return reply(**fields).request


def chat(**fields: Any) -> list[Any]:
    messages: list[Any] = orjson.loads(request(**fields).messages or "")
    return messages


def tools(**fields: Any) -> list[Any]:
    given: list[Any] = orjson.loads(request(tools=[WEATHER, TIME], **fields).tools or "")
    return given


# ----------------------------------------------------------------------------------------------------
# Messages
# ----------------------------------------------------------------------------------------------------


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def test_texts_and_lists_of_blocks_are_contents() -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    assert chat() == HELLO
    assert chat(messages=[{"role": "user", "content": [text("Hello", **cached)]}]) == HELLO
    parts = [text("What is", citations=None), text(" that?")]
    assert chat(messages=[{"role": "user", "content": parts}]) == [
        {"role": "user", "content": [text("What is"), text(" that?")]}
    ]


@each_row(
    ("system", "content"),
    [
        ("Be brief.", "Be brief."),
        ([text("Be brief.")], "Be brief."),
        ([text("Be brief.", cache_control={"type": "ephemeral"}), text("Be kind.")], [text("Be brief."), text("Be kind.")]),
        ("x-anthropic-billing-header: cc_version=2.1.101.e51; cc_entrypoint=cli; cch=a5145;Be brief.", "Be brief."),
        ([text("x-anthropic-billing-header: cc_version=2.1; cch=00000;"), text("Be brief.")], "Be brief."),
        ([text("x-anthropic-billing-header: cc_version=2.1;"), text("Be brief.")], "Be brief."),
        ("x-anthropic-billing-header: cc_version=2.1;\nBe brief. a=b;", "Be brief. a=b;"),
    ],
)  # fmt: skip
def test_the_system_prompt_is_the_first_message(system: Any, content: Any) -> None:
    assert chat(system=system) == [{"role": "system", "content": content}, *HELLO]


@pytest.mark.parametrize("system", ["", [], None])
def test_an_empty_system_prompt_is_no_message(system: Any) -> None:
    assert chat(system=system) == HELLO


def test_the_word_of_the_billing_header_within_a_prompt_stays() -> None:
    said = "Explain x-anthropic-billing-header: cch=12345; please"
    assert chat(system=said)[0]["content"] == said


def test_an_assistants_blocks_are_one_message() -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"unit": "C", "city": "Ulm"}}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
    hidden = {"type": "redacted_thinking", "data": "gA=="}
    said = chat(
        messages=[*HELLO, {"role": "assistant", "content": [thought, hidden, text("Wait"), text("."), use]}]
    )
    function = {"name": "weather", "arguments": '{"unit":"C","city":"Ulm"}'}
    assert said[1] == {
        "role": "assistant", "content": "Wait.", "reasoning_content": "Hm.",
        "tool_calls": [{"id": "toolu_1", "type": "function", "function": function}],
    }  # fmt: skip


def test_results_of_tools_are_messages_in_the_order_of_the_blocks() -> None:
    blocks = [
        {"type": "tool_result", "tool_use_id": "a", "content": "12"},
        {"type": "tool_result", "tool_use_id": "b", "content": [text("7"), text("8")], "is_error": True},
        text("And now?"),
        {"type": "tool_result", "tool_use_id": "c"},
    ]
    assert chat(messages=[{"role": "user", "content": blocks}]) == [
        {"role": "tool", "tool_call_id": "a", "content": "12"},
        {"role": "tool", "tool_call_id": "b", "content": [text("7"), text("8")]},
        {"role": "user", "content": "And now?"},
        {"role": "tool", "tool_call_id": "c", "content": ""},
    ]


def test_a_last_assistant_message_is_continued() -> None:
    begun = [*HELLO, {"role": "assistant", "content": [text("Once upon")]}]
    assert request(messages=begun).continue_final_message is True
    assert request().continue_final_message is None


def test_a_system_message_in_a_conversation_is_told_by_the_user() -> None:
    """Claude Code sends one after the user's message; templates of some models refuse it there."""
    system = {"role": "system", "content": "It is Tuesday."}
    told = [*HELLO, system, {"role": "assistant", "content": "Hi"}, system, *HELLO]
    assert chat(messages=told, system="Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [text("Hello"), text("It is Tuesday.")]},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": [text("It is Tuesday."), text("Hello")]},
    ]
    first = chat(messages=[system, *HELLO], system="Be brief.")[0]
    assert first == {"role": "system", "content": [text("Be brief."), text("It is Tuesday.")]}


# ----------------------------------------------------------------------------------------------------
# Tools
# ----------------------------------------------------------------------------------------------------


def test_tools_are_functions() -> None:
    assert [tool["function"]["name"] for tool in tools()] == ["weather", "time"]
    assert tools()[0] == {
        "type": "function",
        "function": {"name": "weather", "description": "Of a city.", "parameters": {"type": "object"}},
    }
    assert request(tools=[]).tools is None


@pytest.mark.parametrize(
    ("choice", "ours", "named"),
    [
        (None, None, 2),
        ({"type": "auto"}, "auto", 2),
        ({"type": "any"}, "required", 2),
        ({"type": "none"}, "none", 2),
        ({"type": "tool", "name": "time"}, "required", 1),
    ],
)
def test_the_choice_of_tools(choice: Any, ours: str | None, named: int) -> None:
    made = request(tools=[WEATHER, TIME], tool_choice=choice)
    assert (made.tool_choice, len(tools(tool_choice=choice))) == (ours, named)
    assert made.parallel_tool_calls is None
    if choice:
        one = choice | {"disable_parallel_tool_use": True}
        assert request(tools=[WEATHER, TIME], tool_choice=one).parallel_tool_calls is False


def test_a_choice_without_tools_is_no_choice() -> None:
    assert request(tool_choice={"type": "auto"}).tool_choice is None


# ----------------------------------------------------------------------------------------------------
# Other fields
# ----------------------------------------------------------------------------------------------------


def test_fields_are_converted() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    made = request(
        max_tokens=5, stop_sequences=["END"], temperature=0.5, top_k=3, top_p=0.9, thinking={"type": "disabled"},
        output_config={"effort": "low", "format": {"type": "json_schema", "schema": schema}},
    )  # fmt: skip
    assert (made.n, made.max_tokens, made.stop, made.enable_thinking) == (1, 5, ("END",), False)
    assert (made.sampling.temperature, made.sampling.top_k, made.sampling.top_p) == (0.5, 3, 0.9)
    assert orjson.loads(made.json_schema or "") == schema
    assert made.chat_template_kwargs == '{"reasoning_effort":"low"}'
    assert made.warnings == ()


def test_a_message_without_max_tokens_ends_by_itself() -> None:
    assert request().max_tokens == -1


@pytest.mark.parametrize("thinking", [{"type": "adaptive"}, {"type": "enabled", "display": "summarized"}])
def test_thinking_is_on(thinking: Any) -> None:
    assert request(thinking=thinking).enable_thinking is True
    assert request().enable_thinking is None


def test_sampler_fields_of_this_server_are_extras() -> None:
    made = request(min_p=0.1, rep_pen=1.2, banned_strings=["no"], best_of=3)
    assert (made.sampling.min_p, made.sampling.repeat_penalty, made.best_of) == (0.1, 1.2, 3)
    assert made.warnings == ()


NO_EFFECT: dict[str, Any] = {
    "model": "claude-opus-4-5", "metadata": {"user_id": "x"}, "cache_control": {"type": "ephemeral"},
    "service_tier": "auto", "inference_geo": "us", "speed": "standard", "betas": ["x"], "mcp_servers": [],
    "container": None, "thread": None, "fallbacks": [{"model": "x"}], "billing_policy": {"bill_to": "self"}, "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
}  # fmt: skip


def test_fields_without_an_effect_cause_no_warning_and_no_error() -> None:
    strict = ServerInfo("m", defaults=Defaults(strict=True))
    assert Messages({"messages": HELLO, **NO_EFFECT, "model": "m"}, strict).request.warnings == ()
    assert request(**NO_EFFECT).warnings == ()


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, "thinking.display is omitted, but "),
        ({"output_config": {"task_budget": {"type": "tokens", "total": 9}}}, "output_config.task_budget is "),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
         'context_management.edits[0] is {"type": "clear_tool_uses_20250919"}, but this server edits no messages'),
        ({"colour": 7}, '"colour" is not a known field'),
    ],
)  # fmt: skip
def test_what_would_matter_is_a_warning(fields: Any, warning: str) -> None:
    (told,) = request(**fields).warnings
    assert told.startswith(warning)


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBOR"}}
REFUSALS: list[tuple[dict[str, Any], str, str]] = [
    ({"messages": None}, "messages", "messages is missing"),
    ({"messages": "Hello"}, "messages", 'messages is "Hello"; it must be a list of messages'),
    ({"messages": []}, "messages", "messages is []; it must be a list of messages, at least one"),
    ({"messages": ["Hello"]}, "messages", "messages[0].role is null"),
    ({"messages": [{"role": "robot", "content": ""}]}, "messages", 'messages[0].role is "robot"'),
    ({"messages": [{"role": "user", "content": 7}]}, "messages", "messages[0].content is 7"),
    ({"messages": [{"role": "user", "content": ["x"]}]}, "messages", 'messages[0].content[0] is "x"; it must be a block'),
    ({"messages": [{"role": "user", "content": [text("a"), {"type": "text"}]}]}, "messages", "messages[0].content[1].text is null"),
    ({"messages": [*HELLO, {"role": "user", "content": [IMAGE]}]}, "messages",
     "image input is not supported: messages[1].content[0] must be of type text or tool_result"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [IMAGE]}]}]},
     "messages", "image input is not supported: messages[0].content[0].content[0] must be of type text"),
    ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "messages", "document input is not supported"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_use"}]}]}, "messages", "tool_use input is not supported"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages", "messages[0].content[0].tool_use_id is null"),
    ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": "{}"}]}]},
     "messages", 'messages[0].content[0].input is "{}"; it must be an object'),
    ({"system": 7}, "system", "system is 7"),
    ({"system": [IMAGE]}, "system", "image input is not supported: system[0]"),
    ({"tools": {}}, "tools", "tools is {}"),
    ({"tools": [{"name": "t"}]}, "tools", "tools[0].input_schema is null; it must be a JSON schema"),
    ({"tools": [{"input_schema": {}}]}, "tools", "tools[0].name is null"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools",
     "tools[0] is of type web_search_20250305, which this server does not have"),
    ({"tool_choice": "auto"}, "tool_choice", 'tool_choice is "auto"; it must be an object whose type'),
    ({"tool_choice": {"type": "any"}}, "tool_choice", "tool_choice is any, but there are no tools"),
    ({"tools": [TIME], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice",
     'tool_choice.name is "x"; it must be one of time'),
    ({"stop_sequences": 7}, "stop_sequences", "stop_sequences is 7"),
    ({"thinking": True}, "thinking", "thinking is true"),
    ({"thinking": {"type": "loud"}}, "thinking", "thinking is "),
    ({"thinking": {"type": "enabled", "budget_tokens": -1}}, "thinking.budget_tokens", "thinking.budget_tokens is -1"),
    ({"output_config": 7}, "output_config", "output_config is 7; it must be an object"),
    ({"output_config": {"effort": 7}}, "output_config", "output_config.effort is 7"),
    ({"output_config": {"format": {"type": "xml"}}}, "output_config", "output_config.format is "),
    ({"context_management": {"edits": 7}}, "context_management", "context_management is "),
    ({"mcp_servers": [{"url": "x"}]}, "mcp_servers", "mcp_servers is "),
    ({"compaction": {"type": "summarize"}}, "compaction", "compaction is "),
    ({"thread": {"type": "create"}}, "thread", 'thread is {"type": "create"}; this server stores no conversations'),
    ({"container": "c"}, "container", 'container is "c"'),
    ({"stream": "yes"}, "stream", 'stream is "yes"'),
    ({"model": 7}, "model", "model is 7"),
    ({"max_tokens": -2}, "max_tokens", "max_tokens is -2"),
    ({"temperature": 101}, "temperature", "temperature is 101"),
    ({"n": 2}, "n", "n is 2; it must be 1: an answer is one message. /v1/chat/completions has n"),
    ({"prompt": "x"}, "messages", "only one of messages and prompt"),
]  # fmt: skip


@each_row(("fields", "param", "message"), REFUSALS, ids=lambda value: str(value)[:60])
def test_a_bad_body_is_refused_by_name(fields: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        reply(**fields)
    assert caught.value.message.startswith(message)
    assert (caught.value.param, caught.value.status) == (param, 400)


def test_the_model_in_the_answer_is_the_one_that_was_found() -> None:
    assert body(TEXT, model="claude-opus-4-5")["model"] == "m"
    made = Messages({"messages": HELLO}, ServerInfo("m", asked="m.gguf"))
    for event in TEXT:
        made.take([event])
    assert json.loads(made.json())["model"] == "m.gguf"


# ----------------------------------------------------------------------------------------------------
# Answers
# ----------------------------------------------------------------------------------------------------

TEXT: list[Event] = [
    Queued("1", 1),
    Start("1", 1, 9, 4, 7),
    Stream("1", 0, "It"),
    Stream("1", 0, " is"),
    Stop("1", 0, 2, 1, "stop"),
    Done("1", 1, 9, 4, 2),
]
CALLS: list[Event] = [
    Start("1", 1, 9, 4, 7),
    Stream("1", 0, "", reasoning="Hm"),
    Stream("1", 0, "Wait", reasoning="."),
    Stream("1", 0, "", tool_calls=({"index": 0, "id": "a1", "name": "weather", "arguments": '{"city":'},)),
    Stream("1", 0, "", tool_calls=({"index": 0, "arguments": '"Ulm"}'},
                                   {"index": 1, "id": "a2", "name": "time", "arguments": ""})),
    Stream("1", 0, "", tool_calls=({"index": 1, "arguments": "{}"},)),
    Stop("1", 0, 9, 1, "stop"),
    Done("1", 1, 9, 4, 11),
]  # fmt: skip


def body(events: list[Event], **fields: Any) -> Any:
    answer = reply(**fields)
    for event in events:
        answer.take([event])
    return json.loads(answer.json())


def frames(events: list[Event], **fields: Any) -> list[Any]:
    *parts, rest = reply(stream=True, **fields).render(events).decode().split("\n\n")
    assert rest == ""
    made = []
    for part in parts:
        first, second = part.split("\n")
        made.append(json.loads(second.removeprefix("data: ")))
        assert first == f"event: {made[-1]['type']}"
    return made


def usage(**counts: int) -> dict[str, Any]:
    """Of message_delta."""
    return {
        "input_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4,
        "output_tokens_details": {"thinking_tokens": 0}, "server_tool_use": None,
    } | counts  # fmt: skip


def whole(**counts: int) -> dict[str, Any]:
    created = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}
    return {**usage(**counts), "cache_creation": created, "inference_geo": None, "service_tier": "standard"}


NOTHING_SPECIAL = {"stop_details": None, "container": None}


def test_a_message_as_a_body() -> None:
    assert body(TEXT) == {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "It is", "citations": None}], "stop_reason": "end_turn",
        "stop_sequence": None, **NOTHING_SPECIAL, "usage": whole(output_tokens=2),
    }  # fmt: skip


def test_a_message_as_events() -> None:
    begun = body(TEXT) | {"content": [], "stop_reason": None, "usage": whole(output_tokens=0)}
    assert frames(TEXT) == [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "", "citations": None}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "It"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " is"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None, **NOTHING_SPECIAL},
         "usage": usage(output_tokens=2)},
        {"type": "message_stop"},
    ]  # fmt: skip


def joined(events: list[Any]) -> list[Any]:
    """The content that a client makes of the events of blocks; only one block is open at a time."""
    content: list[Any] = []
    is_open = False
    for event in events:
        kind = event["type"]
        if kind == "content_block_start":
            assert (event["index"], is_open) == (len(content), False)
            content.append(dict(event["content_block"]))
            is_open = True
        elif kind in ("content_block_delta", "content_block_stop"):
            assert (event["index"], is_open) == (len(content) - 1, True)
            is_open = kind == "content_block_delta"
        if kind == "content_block_delta":
            sort, (name, value) = event["delta"].pop("type"), *event["delta"].items()
            assert sort == {"partial_json": "input_json_delta"}.get(name, f"{name}_delta")
            name = "json" if name == "partial_json" else name
            content[-1][name] = content[-1].get(name, "") + value
    for block in content:
        if "json" in block:
            block["input"] = json.loads(block.pop("json"))
    return content


def test_thinking_text_and_calls_are_blocks_of_a_body_and_of_a_stream() -> None:
    content = [
        {"type": "thinking", "thinking": "Hm.", "signature": "unsigned"},
        {"type": "text", "text": "Wait", "citations": None},
        {"type": "tool_use", "id": "a1", "name": "weather", "input": {"city": "Ulm"}},
        {"type": "tool_use", "id": "a2", "name": "time", "input": {}},
    ]
    answer = body(CALLS)
    assert (answer["content"], answer["stop_reason"]) == (content, "tool_use")
    events = frames(CALLS)
    assert joined(events) == content
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_an_events_piece_of_the_open_block_comes_before_others() -> None:
    run: list[Event] = [
        CALLS[0],
        CALLS[3],
        Stream("1", 0, "!", tool_calls=({"index": 0, "arguments": '"Ulm"}'},)),
        *CALLS[-2:],
    ]
    assert [block["type"] for block in joined(frames(run))] == ["tool_use", "text"]


def test_an_incomplete_call_has_an_empty_input() -> None:
    stop, done = Stop("1", 0, 3, 0, "length"), CALLS[-1]
    answer = body([CALLS[0], CALLS[3], stop, done])
    assert (answer["content"][0]["input"], answer["stop_reason"]) == ({}, "max_tokens")


@pytest.mark.parametrize(
    ("stop", "reason", "sequence"),
    [
        (Stop("1", 0, 2, 1, "stop"), "end_turn", None),
        (Stop("1", 0, 2, 1, "stop", "END"), "stop_sequence", "END"),
        (Stop("1", 0, 2, 1, "stop", "<|im_end|>"), "end_turn", None),
        (Stop("1", 0, 2, 0, "length"), "max_tokens", None),
        (Stop("1", 0, 2, 0, "cancelled"), "max_tokens", None),
    ],
)
def test_why_a_message_ended(stop: Stop, reason: str, sequence: str | None) -> None:
    run = [*TEXT[:-2], stop, TEXT[-1]]
    answer = body(run, stop_sequences=["END", "###"])
    assert (answer["stop_reason"], answer["stop_sequence"]) == (reason, sequence)
    assert frames(run, stop_sequences=["END", "###"])[-2]["delta"] == {
        "stop_reason": reason,
        "stop_sequence": sequence,
        **NOTHING_SPECIAL,
    }


def test_an_empty_answer_has_no_blocks() -> None:
    run = [TEXT[1], *TEXT[-2:]]
    assert body(run)["content"] == []
    assert [event["type"] for event in frames(run)] == ["message_start", "message_delta", "message_stop"]


def test_a_message_that_is_cancelled_in_the_queue_begins_and_ends() -> None:
    run: list[Event] = [Queued("1", 1), Stop("1", 0, 0, 0, "cancelled"), Done("1", 1, 0, 0, 0)]
    assert [event["type"] for event in frames(run)] == ["message_start", "message_delta", "message_stop"]


def test_sequences_that_are_added_are_no_part_of_the_message() -> None:
    added: list[Event] = [Extend("1", 1, 2), Stream("1", 1, "no"), Stop("1", 1, 1, 0, "length")]
    run = [*TEXT[:3], *added, *TEXT[3:]]
    assert (
        joined(frames(run)) == body(run)["content"] == [{"type": "text", "text": "It is", "citations": None}]
    )
    late: list[Event] = [TEXT[1], TEXT[2], added[0], TEXT[4], *added[1:], TEXT[-1]]
    assert frames(late)[-2]["delta"]["stop_reason"] == "end_turn"


def test_warnings_are_in_the_message() -> None:
    assert len(body(TEXT, colour=7)["warnings"]) == 1
    assert len(frames(TEXT, colour=7)[0]["message"]["warnings"]) == 1


# ----------------------------------------------------------------------------------------------------
# Errors
# ----------------------------------------------------------------------------------------------------


@each_row(
    ("status", "code", "kind", "own"),
    [
        (400, None, "invalid_request_error", 400),
        (401, "invalid_api_key", "authentication_error", 401),
        (403, "scope_missing", "permission_error", 403),
        (404, None, "not_found_error", 404),
        (405, None, "invalid_request_error", 405),
        (413, None, "request_too_large", 413),
        (429, "rate_limit_exceeded", "rate_limit_error", 429),
        (500, "engine_died", "api_error", 500),
        (503, "queue_full", "overloaded_error", 529),
        (503, "timed_out", "timeout_error", 504),
    ],
)
def test_errors_have_anthropics_types_and_statuses(
    status: int, code: str | None, kind: str, own: int
) -> None:
    error = {"type": kind, "message": "no"}
    assert anthropic.error_body(status, "no", param="n", code=code) == {"type": "error", "error": error}
    assert anthropic.status_of(status, code) == own


def test_a_refused_thread_has_the_details_by_which_clients_send_all_messages() -> None:
    with pytest.raises(RequestError) as caught:
        reply(thread={"type": "continue", "previous_message_id": "msg_1"})
    refused = caught.value
    error = anthropic.error_body(400, refused.message, param=refused.param, code=refused.code)["error"]
    assert error["type"] == "invalid_request_error"
    assert error["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


def test_an_error_in_a_stream_is_its_last_event() -> None:
    events = frames([*TEXT[:3], Error("timed_out", "too late", "1")])
    assert events[-1] == {"type": "error", "error": {"type": "timeout_error", "message": "too late"}}


def test_a_prompt_that_is_too_long_is_told_as_agents_read_it() -> None:
    told = "the prompt has at least 1333 tokens; with one more it exceeds the context of 1024 tokens per sequence"
    size: PromptSize = {"n_prompt_tokens": 1333, "n_ctx": 1024}
    error = anthropic.error_body(400, told, code="context_exceeded", size=size)["error"]
    assert error == {
        "type": "invalid_request_error",
        "message": "prompt is too long: 1333 tokens > 1023 maximum",
    }
