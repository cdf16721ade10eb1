"""OpenAI's responses: instructions and the items of the input as a chat's messages. Pure.

An item of the output comes back as an item of the next input. Reasoning, text and calls are items of their
own there; in a chat they are one message of the assistant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import orjson

from llama_srb.dialects.responses.tools import INPUT, chat_name
from llama_srb.request.values import MAX_MESSAGES, RequestError, shown, wrong

Json: TypeAlias = dict[str, Any]
Messages: TypeAlias = list[Json]

ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
TEXT_OF = {  # where the text of a part is, by the part's type
    **dict.fromkeys(("input_text", "output_text", "text", "reasoning_text", "summary_text"), "text"),
    "refusal": "refusal",
}
WANTED_INPUT = "a text, or a list of items, at least one"


def messages_of(instructions: str | None, value: object, before: Sequence[Json] = ()) -> Messages:
    """The messages of a chat; value: the field input. RequestError if an item is wrong.

    before: the items of earlier responses, behind which the input may be empty. The instructions and the
    system's messages at the beginning become one message: many templates take only one, and only there.
    """
    if value is None and not before:
        raise RequestError("input is missing", param="input")
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    if before and value is None:
        value = []
    if not isinstance(value, list) or not (value or before):
        raise wrong("input", value, WANTED_INPUT)
    if len(value) + len(before) > MAX_MESSAGES:
        more = f", with {len(before)} of earlier responses" if before else ""
        raise RequestError(f"input has {len(value)} items{more}; it may have {MAX_MESSAGES}", param="input")
    messages: Messages = [{"role": "system", "content": [instructions]}] if instructions else []
    for item in before:
        _add("previous_response_id", item, messages)
    for i, item in enumerate(value):
        _add(f"input[{i}]", item, messages)
    return [{**one, "content": _content(one["content"])} for one in _merged(messages)]


def _merged(messages: Messages) -> Messages:
    """With the system's messages at the beginning as one."""
    n = next((i for i, one in enumerate(messages) if one["role"] != "system"), len(messages))
    if n < 2:
        return messages
    texts = [text for one in messages[:n] for text in one["content"]]
    return [{"role": "system", "content": ["\n\n".join(texts)]}, *messages[n:]]


def _content(texts: list[str]) -> str | list[Json]:
    """As a chat has it: a text, or several as parts."""
    if len(texts) < 2:
        return "".join(texts)
    return [{"type": "text", "text": text} for text in texts]


def _add(place: str, item: object, messages: Messages) -> None:
    if not isinstance(item, dict):
        raise wrong(place, item, "an object with a type")
    kind = item.get("type") or "message"
    if not isinstance(kind, str) or kind not in ADDING:
        raise wrong(f"{place}.type", kind, "one of " + ", ".join(ADDING), place)
    ADDING[kind](place, item, messages)


def _add_message(place: str, item: Json, messages: Messages) -> None:
    role, texts = item.get("role"), _texts(f"{place}.content", item.get("content"))
    if not isinstance(role, str) or role not in ROLES:
        raise wrong(f"{place}.role", role, "one of " + ", ".join(ROLES))
    last = messages[-1] if messages else {}
    if role == "assistant" and last.get("role") == role and not last["content"] and "tool_calls" not in last:
        last["content"] = texts  # after its reasoning
    else:
        messages.append({"role": ROLES[role], "content": texts})


def _add_reasoning(place: str, item: Json, messages: Messages) -> None:
    """Encrypted reasoning is another server's, which nobody can read here."""
    texts = _texts(f"{place}.content", item.get("content") or [])
    texts = texts or _texts(f"{place}.summary", item.get("summary") or [])
    if texts:
        messages.append({"role": "assistant", "content": [], "reasoning_content": "\n".join(texts)})


def _add_call(place: str, item: Json, messages: Messages) -> None:
    arguments = "" if item.get("arguments") is None else _text(place, item, "arguments")
    _add_tool_call(place, item, arguments, messages)


def _add_custom_call(place: str, item: Json, messages: Messages) -> None:
    arguments = orjson.dumps({INPUT: _text(place, item, "input")}).decode()
    _add_tool_call(place, item, arguments, messages)


def _add_tool_call(place: str, item: Json, arguments: str, messages: Messages) -> None:
    name = chat_name(_text(place, item, "name"), item.get("namespace"))
    function = {"name": name, "arguments": arguments}
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": []})
    calls = messages[-1].setdefault("tool_calls", [])
    calls.append({"id": _text(place, item, "call_id"), "type": "function", "function": function})


def _add_output(place: str, item: Json, messages: Messages) -> None:
    texts = _texts(f"{place}.output", item.get("output"))
    messages.append({"role": "tool", "tool_call_id": _text(place, item, "call_id"), "content": texts})


ADDING: Mapping[str, Callable[[str, Json, Messages], None]] = {
    "message": _add_message,
    "reasoning": _add_reasoning,
    "function_call": _add_call,
    "function_call_output": _add_output,
    "custom_tool_call": _add_custom_call,
    "custom_tool_call_output": _add_output,
}


def _texts(place: str, value: object) -> list[str]:
    """The texts of a content: a text, or a list of parts."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise wrong(place, value, "a text or a list of parts")
    return [_part(f"{place}[{i}]", part) for i, part in enumerate(value)]


def _part(place: str, part: object) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str) or kind not in TEXT_OF:
        message = f"{place} is of type {shown(kind)}; this server takes only text: " + ", ".join(TEXT_OF)
        raise RequestError(message, param=place)
    return _text(place, part, TEXT_OF[kind])


def _text(place: str, fields: Json, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise wrong(f"{place}.{name}", value, "a text")
    return value
