"""Chats in the engine's protocol: prompts by templates, answers as content, reasoning and tool calls."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.chats import CITIES, HELLO, TOOLS, message, scripted, tool
from tests.support.lines import Answer, Lines
from tests.support.models import CHAT_TOKENS
from tests.support.rows import each_row


def chat(engine: Lines, **fields: Any) -> Answer:
    (answer,) = engine.answers(engine.send({"op": "chat", "messages": HELLO} | fields))
    return answer


@pytest.fixture(scope="module")
def engine(chat_model: Path) -> Iterator[Lines]:
    with Lines("-c", "16384", model=chat_model) as engine:
        yield engine


def test_messages_become_the_prompt_that_the_template_makes(engine: Lines) -> None:
    system = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    answer = chat(engine, messages=[system, *HELLO], n=2, max_tokens=4, echo=True)
    assert answer.named("prompt")[0]["text"] == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        f"<|im_start|>user\n{HELLO[0]['content']}<|im_end|>\n<|im_start|>assistant\n"
    )
    assert answer.lengths == [4, 4]


def test_a_chat_and_its_prompt_as_text_have_the_same_answer(engine: Lines) -> None:
    same = {"n": 3, "max_tokens": 12, "sampling": {"seed": 5, **scripted()}}
    answer = chat(engine, **same, echo=True)
    prompt = answer.named("prompt")[0]["text"]
    assert engine.generate(prompt=prompt, **same).texts == answer.texts


def test_tools_keep_the_order_of_their_properties_when_they_are_text(engine: Lines) -> None:
    answer = chat(engine, tools=json.dumps(TOOLS), max_tokens=1, echo=True)
    prompt = answer.named("prompt")[0]["text"]
    assert 0 < prompt.index('"unit": {"enum"') < prompt.index('"city": {"enum"')


def test_each_answer_calls_a_tool_that_is_required(engine: Lines) -> None:
    fields = {"tools": json.dumps(TOOLS), "tool_choice": "required"}
    script = scripted("<tool_call>", "</tool_call>")
    script["logit_bias"].append([0, 300])  # token 0 ends the text as soon as the grammar allows it
    answer = chat(engine, **fields, n=4, max_tokens=400, sampling=script)
    messages = [message(answer, i) for i in range(4)]
    assert [stop["finish_reason"] for stop in answer.stops] == ["stop"] * 4
    for one in messages:
        assert (one["content"], len(one["calls"])) == ("", 1)
        arguments = json.loads(one["calls"][0]["arguments"])
        assert one["calls"][0]["name"] in ("weather", "time")
        assert list(arguments) == ["unit", "city"]
        assert arguments["city"] in CITIES
    ids = {one["calls"][0]["id"] for one in messages}
    assert len(ids) == 4
    assert all(len(id) == 9 and id.isalnum() for id in ids)


def test_with_tool_choice_auto_only_sequences_that_begin_a_call_make_one(engine: Lines) -> None:
    sequences = [scripted("<tool_call>"), scripted()]
    answer = chat(engine, tools=TOOLS, n=2, max_tokens=150, sequences=sequences)
    caller, talker = message(answer, 0), message(answer, 1)
    assert caller["calls"][0]["name"] in ("weather", "time")
    assert set(json.loads(caller["calls"][0]["arguments"])) == {"unit", "city"}
    assert talker["content"]
    assert not talker["calls"]


def test_a_tool_call_inside_of_reasoning_is_not_a_call(engine: Lines) -> None:
    answer = chat(engine, tools=TOOLS, max_tokens=40, sampling=scripted("<think>", "<tool_call>"))
    made = message(answer, 0)
    assert "<tool_call>" in made["reasoning"]
    assert not made["calls"]


def test_a_tool_call_after_reasoning_is_a_call(engine: Lines) -> None:
    script = scripted("<think>", "</think>", "<tool_call>")
    made = message(chat(engine, tools=TOOLS, max_tokens=150, sampling=script), 0)
    assert made["calls"][0]["name"] in ("weather", "time")
    assert made["content"] == ""


def test_reasoning_is_separate_or_part_of_the_content(engine: Lines) -> None:
    script = {"sampling": {"seed": 3, **scripted("<think>")}, "max_tokens": 9}
    apart = message(chat(engine, **script), 0)
    within = message(chat(engine, **script, reasoning_format="none"), 0)
    assert apart["content"] == ""
    assert apart["reasoning"]
    assert within["reasoning"] == ""
    assert within["content"].removeprefix("<think>").strip() == apart["reasoning"].strip()


def test_tokens_of_thoughts_are_counted(engine: Lines) -> None:
    """Of sixteen thoughts some end within 24 tokens."""
    think, end = CHAT_TOKENS["<think>"], CHAT_TOKENS["</think>"]
    script = scripted("<think>")
    script["logit_bias"] = [bias for bias in script["logit_bias"] if bias[0] != end] + [[end, 3]]
    answer = chat(engine, n=16, max_tokens=24, sampling={**script, "seed": 1}, return_token_ids=True)
    drawn: list[list[int]] = [[] for _ in range(16)]
    for event in answer.named("stream"):
        drawn[event["index"]] += event.get("token_ids", [])
    lengths = [ids.index(end) if end in ids else len(ids) for ids in drawn]
    thoughts = [length for ids, length in zip(drawn, lengths, strict=True) if ids[0] == think and length > 1]
    assert 0 < len([length for length in thoughts if length < 24]) < 16, lengths
    assert answer.done["reasoning_tokens"] == sum(thoughts)
    assert "reasoning_tokens" not in chat(engine, max_tokens=3, reasoning_format="none").done


def test_an_answer_fits_a_schema(engine: Lines) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": CITIES}},
        "required": ["city"],
        "additionalProperties": False,
    }
    answer = chat(engine, json_schema=schema, n=3, max_tokens=200, sampling=scripted())
    assert {json.loads(message(answer, i)["content"])["city"] for i in range(3)} <= set(CITIES)


def test_an_answer_fits_what_only_our_compiler_knows(engine: Lines) -> None:
    """llama.cpp's converter drops patternProperties, multipleOf and minProperties."""
    schema = {
        "type": "object",
        "patternProperties": {"^x[0-9]$": {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 700}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 2,
    }
    answer = chat(engine, json_schema=schema, n=6, max_tokens=200, sampling=scripted())
    for i, stop in enumerate(answer.stops):
        if stop["finish_reason"] == "stop":
            found = json.loads(message(answer, i)["content"])
            assert all(re.fullmatch("x[0-9]", name) for name in found), found
            assert all(value % 7 == 0 for value in found.values()), found
    assert any(stop["finish_reason"] == "stop" for stop in answer.stops)


def test_an_answer_can_go_on_from_its_beginning(engine: Lines) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "It is"}]
    answer = chat(engine, messages=messages, continue_final_message=True, max_tokens=5, echo=True)
    assert answer.named("prompt")[0]["text"].endswith("It is")
    assert not message(answer, 0)["content"].startswith("It is")


def test_a_fork_streams_only_the_text_after_its_place(engine: Lines) -> None:
    """Unread lines block the engine, so that the fork comes in mid-stream."""
    request = {"messages": HELLO, "max_tokens": 400, "logprobs": 1000, "sampling": scripted()}
    (id,) = engine.send({"op": "chat"} | request)
    said = ""
    while len(said) < 12:
        event = engine.read()
        said += event["text"] if event["event"] == "stream" else ""
    engine.send_amid({"op": "extend", "id": id, "fork": {"index": 0}, "add": 1})
    (answer,) = engine.answers([id])
    first, fork = message(answer, 0), message(answer, 1)
    assert fork["content"]
    assert len(fork["content"].encode()) < len(first["content"].encode()) * 4
    assert not fork["content"].startswith(said)


def strict(tool: dict[str, Any]) -> dict[str, Any]:
    return {**tool, "function": {**tool["function"], "strict": True}}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"messages": [{"content": "x"}]}, "messages", "Missing 'role'"),
    ({"messages": "[{"}, "messages", "parse error"),
    ({"messages": "[" * 100_000}, "messages", "refuses|too large"),
    ({"tool_choice": "perhaps"}, "tool_choice", 'tool_choice is "perhaps"; it must be one of "auto"'),
    ({"tool_choice": 7}, "tool_choice", "tool_choice is 7; it must be"),
    (
        {"reasoning_format": "loud"},
        "reasoning_format",
        'reasoning_format is "loud"; it must be one of "auto"',
    ),
    ({"enable_thinking": 1}, "enable_thinking", "enable_thinking is 1; it must be true or false"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs", "chat_template_kwargs is array"),
    ({"tools": [{"type": "stick"}]}, "messages", "Unsupported tool type"),
    ({"tools": TOOLS, "regex": "a"}, "tools", "only one of tools"),
    ({"tool_choice": "required"}, "tool_choice", "there are no tools"),
    ({"tools": [strict(tool("t", **{"$ref": "#"}))]}, "tools", r'the tool "t": /\$ref: '),
    (
        {"json_schema": {"$ref": "#/$defs/none"}},
        "json_schema",
        r'json_schema: /\$ref: "#/\$defs/none" is not in this document',
    ),
    (
        {"continue_final_message": True, "add_generation_prompt": True},
        "continue_final_message",
        "only one of",
    ),
    (
        {"messages": [{"role": "user", "content": "x " * 20_000}]},
        "prompt",
        "exceeds the available context size",
    ),
]


@each_row(("fields", "param", "pattern"), REFUSED, ids=lambda value: str(value)[:40])
def test_an_invalid_chat_is_refused_with_a_message(
    engine: Lines, fields: dict[str, Any], param: str, pattern: str
) -> None:
    answer = chat(engine, **fields)
    assert answer.events[-1]["event"] == "error", answer.events[-1]
    assert answer.events[-1]["param"] == param
    assert re.search(pattern, answer.events[-1]["message"]), answer.events[-1]["message"]
    assert len(answer.events[-1]["message"]) < 2200
    assert chat(engine, max_tokens=1).lengths == [1]


def test_a_model_without_a_template_chats_as_chatml_and_knows_no_tools() -> None:
    with Lines() as engine:
        answer = chat(engine, n=2, max_tokens=3, echo=True)
        assert answer.named("prompt")[0]["text"].startswith("<|im_start|>user\nHello there")
        refused = chat(engine, tools=TOOLS, max_tokens=3).events[-1]
        assert refused["param"] == "tools"
        assert chat(engine, tools=TOOLS, tool_choice="none", max_tokens=3).lengths == [3]


def test_the_template_tells_the_tokens_that_a_chat_has(engine: Lines) -> None:
    asked = {"op": "template", "messages": HELLO, "tools": TOOLS, "return_tokens": True, "pieces": True}
    (answer,) = engine.answers(engine.send(asked))
    found = answer.events[-1]
    chatted = chat(engine, tools=TOOLS, max_tokens=1)
    assert len(found["tokens"]) == chatted.done["prompt_tokens"] == len(found["pieces"])
    assert b"".join(map(bytes, found["pieces"])).decode().endswith(found["prompt"])  # behind BOS


THINK, ENDED = CHAT_TOKENS["<think>"], CHAT_TOKENS["</think>"]


def drawn_ids(answer: Answer, n: int) -> list[list[int]]:
    drawn: list[list[int]] = [[] for _ in range(n)]
    for event in answer.named("stream"):
        drawn[event["index"]] += event.get("token_ids", [])
    return drawn


def test_thoughts_end_when_their_tokens_are_used_up(engine: Lines) -> None:
    """Each sequence has its own; without a thought there is no effect; the last words come before the end."""
    sequences = [
        {"thinking_budget_tokens": 5, **scripted("<think>")},
        {"thinking_budget_tokens": 0, **scripted("<think>")},
        {"thinking_budget_tokens": 5, **scripted()},
        {**scripted("<think>")},
    ]
    asked = {"max_tokens": 30, "return_token_ids": True, "thinking_budget_message": "Enough."}
    answer = chat(engine, n=4, sequences=sequences, thinking_budget_tokens=12, **asked)
    five, none, plain, twelve = drawn_ids(answer, 4)
    made = [message(answer, i) for i in range(4)]
    assert [ids[0] for ids in (five, none, twelve)] == [THINK] * 3
    assert made[0]["reasoning"].endswith("Enough.")
    assert made[0]["content"]
    assert made[1]["reasoning"].strip() == "Enough."
    assert ENDED not in plain
    assert made[2]["content"]
    assert made[3]["reasoning"].endswith("Enough.")
    words = five.index(ENDED) - 5
    assert 0 < words < 8
    assert (none.index(ENDED), twelve.index(ENDED)) == (1 + words, 12 + words)


def test_a_servers_budget_is_the_default_and_its_texts_are_the_same(chat_model: Path) -> None:
    asked = {"max_tokens": 30, "sampling": {"seed": 4, **scripted("<think>")}, "return_token_ids": True}
    with Lines("--reasoning-budget", "6", "--reasoning-budget-message", "Stop.", model=chat_model) as limited:
        (ids,) = drawn_ids(chat(limited, **asked), 1)
        assert chat(limited, **asked, thinking_budget_tokens=-1).texts != chat(limited, **asked).texts
    with Lines(model=chat_model) as free:
        (own,) = drawn_ids(chat(free, **asked, thinking_budget_tokens=6, thinking_budget_message="Stop."), 1)
        (unbound,) = drawn_ids(chat(free, **asked), 1)
    assert ids == own
    assert ids[:6] == unbound[:6] != ids
