"""A chat with tools, and sampling settings that make the model call them."""

from __future__ import annotations

from typing import Any

from tests.support.lines import Answer
from tests.support.models import CHAT_TOKENS

HELLO = [{"role": "user", "content": "Hello there, how is the weather in Ulm today?"}]
CITIES, UNITS = ["Ulm", "Bonn"], ["C", "F"]


def tool(name: str, **more: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {"unit": {"enum": UNITS}, "city": {"enum": CITIES}},
        "required": ["unit", "city"],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": "", "parameters": schema | more}}


TOOLS = [tool("weather"), tool("time")]


def scripted(*tokens: str) -> dict[str, Any]:
    """Sampling settings that force these control tokens first, in this order; later tokens are free."""
    biases = [[CHAT_TOKENS[token], 199 - 45 * i] for i, token in enumerate(tokens)]
    once = {"presence_penalty": 100, "frequency_penalty": 100, "repeat_last_n": 12}
    others = [[id, False] for token, id in CHAT_TOKENS.items() if token not in tokens]
    return {"logit_bias": biases + others, **once}


def message(answer: Answer, index: int) -> dict[str, Any]:
    """The message that the stream events of one sequence make."""
    events = [event for event in answer.named("stream") if event["index"] == index]
    calls: dict[int, dict[str, str]] = {}
    for piece in (piece for event in events for piece in event.get("tool_calls", [])):
        call = calls.setdefault(piece["index"], {"arguments": ""} | piece | {"arguments": ""})
        call["arguments"] += piece["arguments"]
    return {
        "content": "".join(event["text"] for event in events),
        "reasoning": "".join(event.get("reasoning", "") for event in events),
        "calls": list(calls.values()),
    }
