"""What reads a list of a client's takes time in proportion to its length, whatever stands in it.

A thread that reads a body cannot be ended; so a square would be minutes of a core that nobody waits for.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from llama_srb.dialects.anthropic import conversation as anthropic
from llama_srb.dialects.responses.items import messages_of as responses
from llama_srb.request.parse import Defaults, request_from

FEW, MANY = 600, 4800
MOST = 24  # times as long for eight times as many; a square takes 64 times
LEAST = 0.001  # seconds that are too short to be compared

CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ITEM = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CHOICE = {"type": "function", "function": {"name": "f"}}
THOUGHT = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "a"}]}
TEXT = {"type": "text", "text": "a"}
USER, SYSTEM, ASSISTANT = ({"role": role, "content": "a"} for role in ("user", "system", "assistant"))


def chat(*messages: Any, **fields: Any) -> object:
    return request_from({"messages": list(messages), **fields}, Defaults())


READ: Mapping[str, Callable[[int], object]] = {
    "users": lambda n: chat(*[USER] * n),
    "systems": lambda n: chat(*[SYSTEM] * n),
    "parts": lambda n: chat({"role": "user", "content": [TEXT] * n}),
    "calls": lambda n: chat(USER, {**ASSISTANT, "tool_calls": [CALL] * n}),
    "results": lambda n: chat(USER, *[{**ASSISTANT, "tool_calls": [CALL]},
                                      {"role": "tool", "tool_call_id": "a", "content": "a"}] * n),
    "tools": lambda n: chat(USER, tools=[TOOL] * n, tool_choice=CHOICE),
    "biases": lambda n: chat(USER, logit_bias=dict.fromkeys(map(str, range(n)), 1)),
    "responses, users": lambda n: responses("a", [USER] * n),
    "responses, systems": lambda n: responses("a", [SYSTEM] * n),
    "responses, assistants": lambda n: responses("a", [ASSISTANT] * n),
    "responses, calls": lambda n: responses("a", [ITEM] * n),
    "responses, results": lambda n: responses(
        "a", [ITEM, {"type": "function_call_output", "call_id": "a", "output": "a"}] * n),
    "responses, thoughts": lambda n: responses("a", [THOUGHT] * n),
    "Anthropic, users": lambda n: anthropic.messages_of(None, [USER] * n),
    "Anthropic, systems": lambda n: anthropic.messages_of("a", [SYSTEM] * n),
    "Anthropic, systems later": lambda n: anthropic.messages_of("a", [ASSISTANT, *[SYSTEM] * n]),
    "Anthropic, assistants": lambda n: anthropic.messages_of(None, [ASSISTANT] * n),
    "Anthropic, system": lambda n: anthropic.messages_of([TEXT] * n, [USER]),
    "Anthropic, blocks": lambda n: anthropic.messages_of(None, [{"role": "user", "content": [TEXT] * n}]),
    "Anthropic, results": lambda n: anthropic.messages_of(None, [{"role": "user", "content": [
        TEXT, {"type": "tool_result", "tool_use_id": "a", "content": "a"}] * n}]),
    "Anthropic, tools": lambda n: anthropic.tools_of([{"name": "f", "input_schema": {}}] * n),
}  # fmt: skip


def seconds(read: Callable[[int], object], n: int) -> float:
    """CPU time of this thread, the least of three."""
    spent = []
    for _ in range(3):
        begun = time.thread_time()
        read(n)
        spent.append(time.thread_time() - begun)
    return max(LEAST, min(spent))


@pytest.fixture
def no_collector() -> Iterator[None]:
    """A collection takes time by all that a worker's tests have left, and comes when many objects are new."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_a_list_is_read_in_proportion_to_its_length() -> None:
    wrong = dict(READ)
    for _ in range(3):  # a square is one each time; a busy machine is not
        wrong = {name: r for name, r in wrong.items() if seconds(r, MANY) > MOST * seconds(r, FEW)}
    assert list(wrong) == []
